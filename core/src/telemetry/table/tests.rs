use super::*;
use crate::idempotency::PutBack;
use crate::payload::Handler;
use crate::priority::Priority;
use crate::retry::OutcomeClass;
use crate::run::{RunStatus, SkipReason};
use crate::turns::Slot;
use std::collections::BTreeSet;

/// Series in one process that keeps all metrics, however many tenants, jobs and hosts there are.
const MOST_SERIES: usize = 300;
/// The same as lines of Prometheus text.
const MOST_LINES: usize = 560;
/// Metrics that CloudWatch is paid for, all services together.
const MOST_IN_CLOUDWATCH: usize = 160;

fn listed(metric: &Metric, label: &str) -> &'static [&'static str] {
    let label = metric.labels.iter().find(|known| known.name == label).unwrap();
    match label.values {
        Values::Listed(values) => values,
        Values::UpTo { .. } => panic!("{} lists no values of {}", metric.name, label.name),
    }
}

#[test]
fn the_values_of_labels_are_the_words_of_the_code() {
    let priorities = Priority::ALL.map(Priority::as_str);
    for metric in [RUNS_DUE, RUNS_ENQUEUED, DISPATCH_LAG, QUEUE_MESSAGES, QUEUE_LATENCY, START_LAG] {
        assert_eq!(listed(&metric, "priority"), priorities, "{}", metric.name);
    }
    assert_eq!(listed(&SLOTS_TAKEN, "queue"), priorities);
    assert_eq!(listed(&SLOTS_TAKEN, "slot"), Slot::ALL.map(Slot::as_str));
    let handlers = [Handler::Sms, Handler::Email, Handler::Webhook, Handler::Queue, Handler::Noop];
    for metric in [ATTEMPT_DURATION, ATTEMPTS, RETRIES, CIRCUITS] {
        assert_eq!(listed(&metric, "handler"), handlers.map(Handler::as_str), "{}", metric.name);
    }
    let reasons = [SkipReason::Cancelled, SkipReason::Superseded, SkipReason::Deadline, SkipReason::Missed];
    assert_eq!(listed(&RUNS_SKIPPED, "reason"), reasons.map(SkipReason::as_str));
    let outcomes = [
        OutcomeClass::Delivered,
        OutcomeClass::Temporary,
        OutcomeClass::Permanent,
        OutcomeClass::Unknown,
        OutcomeClass::Lost,
    ];
    assert_eq!(listed(&ATTEMPTS, "outcome"), outcomes.map(OutcomeClass::as_str));
    let why = [PutBack::Paused, PutBack::Held, PutBack::NotDue, PutBack::JobOlder];
    assert_eq!(listed(&MESSAGES_PUT_BACK, "why"), why.map(PutBack::as_str));
    let ends = [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Dead, RunStatus::Indeterminate, RunStatus::Skipped];
    assert_eq!(listed(&RUNS_ENDED, "status"), ends.map(RunStatus::as_str));
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    let is_name = |name: &str| {
        let is_first = |c: char| c.is_ascii_lowercase();
        name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit() || c == '_')
    };
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len(), "a name stands there twice");
    for metric in ALL {
        let name = metric.name;
        assert!(is_name(name) && name.starts_with("punctual_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), metric.unit == Unit::Info, "{name}");
        let stem = name.trim_end_matches("_total");
        assert_eq!(stem.ends_with("_seconds"), metric.unit == Unit::Seconds, "{name}");
        // Suffixes that the text format makes itself, and units that are no base units.
        for taken in ["_sum", "_count", "_bucket", "_ms", "_milliseconds", "_minutes", "_hours", "_percent"] {
            assert!(!stem.ends_with(taken), "{name}");
        }
        for label in metric.labels {
            // `le` and `quantile` are the text format's own, `service` and `_aws` those of the lines for CloudWatch.
            let is_taken = ["le", "quantile", "service", "_aws", "job", "instance"].contains(&label.name);
            assert!(is_name(label.name) && !is_taken && !names.contains(label.name), "{name}: {}", label.name);
        }
    }
}

#[test]
fn each_metric_says_what_it_means_and_who_tells_it() {
    for metric in ALL {
        let (name, meaning) = (metric.name, metric.meaning);
        assert!(meaning.len() > 20 && meaning.ends_with('.') && !meaning.contains(['\n', '|']), "{name}: {meaning}");
        assert!(!metric.by.is_empty(), "{name}");
        let is_anchor = |alarm: &str| alarm.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(metric.alarm.is_none_or(is_anchor), "{name}");
    }
}

#[test]
fn bounds_rise_and_are_few() {
    for metric in ALL {
        let Kind::Histogram(bounds) = metric.kind else { continue };
        assert!((5..=15).contains(&bounds.len()), "{}", metric.name);
        assert!(bounds[0] > 0.0 && bounds.windows(2).all(|pair| pair[0] < pair[1]), "{}", metric.name);
    }
}

#[test]
fn there_are_so_many_series_and_no_more() {
    let series: usize = ALL.iter().map(|metric| metric.most_series()).sum();
    let lines: usize = ALL.iter().map(|metric| metric.most_lines()).sum();
    assert!(series <= MOST_SERIES && lines <= MOST_LINES, "{series} series, {lines} lines");
}

#[test]
fn cloudwatch_keeps_so_many_metrics_and_no_more() {
    let kept = |metric: &&Metric| {
        let sets = metric.in_emf.iter().map(|set| match set {
            DimensionSet::Service => 1,
            DimensionSet::Labels => metric.most_series(),
        });
        metric.by.len() * sets.sum::<usize>()
    };
    let in_all: usize = ALL.iter().map(kept).sum();
    assert!(in_all <= MOST_IN_CLOUDWATCH, "{in_all}");
}

#[test]
fn what_an_alarm_of_cloudwatch_goes_by_can_be_added_up() {
    for metric in ALL {
        let sets: BTreeSet<DimensionSet> = metric.in_emf.iter().copied().collect();
        assert_eq!(sets.len(), metric.in_emf.len(), "{}", metric.name);
        // A last value of each of several series makes no sum, and one set is enough where there are no labels.
        let is_one = metric.labels.is_empty() && sets.contains(&DimensionSet::Labels);
        let mixes = metric.kind == Kind::Gauge && !metric.labels.is_empty() && sets.contains(&DimensionSet::Service);
        assert!(!is_one && !mixes, "{}", metric.name);
    }
}

#[test]
fn labels_other_than_those_of_the_table_are_found_out() {
    assert_eq!(RUNS_DUE.check(&[("priority", "urgent")]), Ok(()));
    assert_eq!(API_REQUESTS.check(&[("op", "createJob"), ("status", "2xx")]), Ok(()));
    for (metric, labels) in [
        (&RUNS_DUE, &[][..]),
        (&RUNS_DUE, &[("priority", "high")]),
        (&RUNS_DUE, &[("tenant", "bank")]),
        (&RUNS_DUE, &[("priority", "urgent"), ("tenant", "bank")]),
        (&API_REQUESTS, &[("status", "2xx"), ("op", "createJob")]),
        (&API_REQUESTS, &[("op", ""), ("status", "2xx")]),
    ] {
        let problem = metric.check(labels).unwrap_err();
        assert!(problem.contains(metric.name), "{problem}");
    }
}

#[test]
fn the_documents_table_has_a_line_for_each_metric() {
    let table = markdown();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), ALL.len() + 2);
    for (metric, line) in ALL.iter().zip(&lines[2..]) {
        assert!(line.starts_with(&format!("| `{}` | ", metric.name)), "{line}");
        assert_eq!(line.matches('|').count(), 9, "{line}");
    }
    let dispatch_lag = "| `punctual_dispatch_lag_seconds` | histogram | seconds | `priority`: urgent, normal, bulk | dispatch | \
        From the instant a run was due to the moment its message is in the queue. | [dispatch-lag](#dispatch-lag) | \
        service, priority |";
    assert!(lines.contains(&dispatch_lag), "{table}");
    let requests = "`op`: operations of the API, at most 40; `status`: 2xx, 3xx, 4xx, 5xx | api |";
    assert!(table.contains(requests), "{table}");
    assert!(table.contains("| all | By how much the host's clock"), "{table}");
    let bounds = markdown_of_bounds();
    assert!(
        bounds.contains("| `punctual_start_lag_seconds` | 0.01 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60 120 300 900 3600 |")
    );
}

use super::*;
use crate::telemetry::handles::Value;
use crate::telemetry::rules::text::Text;
use crate::telemetry::table::{API_REQUESTS, ATTEMPTS, CURSOR_AGE, LIMITER_WAIT, RUNS_DUE, START_LAG, Values};
use metrics::{counter, gauge, histogram, with_local_recorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// All combinations of the values of a metric's labels.
fn combinations(metric: &Metric) -> Vec<Vec<Value>> {
    metric.labels.iter().fold(vec![Vec::new()], |combined, label| {
        let values: Vec<&'static str> = match label.values {
            Values::Listed(values) => values.to_vec(),
            Values::UpTo { most, .. } => (0..most).map(|n| &*format!("op{n}").leak()).collect(),
        };
        let with = |labels: &Vec<Value>, value| labels.iter().copied().chain([(label.name, value)]).collect();
        combined.iter().flat_map(|labels| values.iter().map(|value| with(labels, *value)).collect::<Vec<_>>()).collect()
    })
}

/// Counts once in every series of the table.
fn use_all() {
    for metric in ALL {
        for labels in combinations(metric) {
            match metric.kind {
                Kind::Counter => metric.counter(&labels).increment(1),
                Kind::Gauge => metric.gauge(&labels).set(0.5),
                Kind::Histogram(_) => metric.histogram(&labels).record(0.3),
            }
        }
    }
}

/// Reads a text; what is no line of the format (version 0.0.4) fails.
fn scrape(text: &str) -> Text {
    Text::read(text).unwrap()
}

#[test]
fn the_text_passes_the_lint() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, use_all);
    let scraped = scrape(&handle.render());
    assert_eq!((scraped.faults(), scraped.strangers()), (Vec::new(), Vec::new()));
    assert_eq!(scraped.kinds.len(), ALL.len());
    for metric in ALL {
        assert_eq!(scraped.kinds[metric.name], metric.kind.as_str(), "{}", metric.name);
        assert_eq!(scraped.help[metric.name], metric.meaning, "{}", metric.name);
    }
}

#[test]
fn the_lint_finds_what_it_is_there_for() {
    for (text, expected) in [
        ("# TYPE a_total counter\na_total 1\n", "no help text"),
        ("# HELP a x\n# TYPE a counter\na 1\n", "counters end in _total"),
        ("# HELP a_total x\n# TYPE a_total gauge\na_total 1\n", "counters end in _total"),
        ("# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n", "base unit"),
        ("# HELP a_gauge x\n# TYPE a_gauge gauge\na_gauge 1\n", "kind is in its name"),
        ("# HELP a x\n# TYPE a gauge\na{le=\"1\"} 1\n", "`le` belongs"),
        ("# HELP a x\n# TYPE a gauge\na{B=\"1\"} 1\n", "label's name"),
        ("a 1\n", "no kind"),
    ] {
        let faults = scrape(text).faults();
        assert!(faults.len() == 1 && faults[0].contains(expected), "{text}: {faults:?}");
    }
}

/// What a text of 10,000 tenants would be that are labels, and other texts that the table does not foresee.
#[test]
fn what_is_not_as_the_table_says_is_found() {
    let head = "# HELP punctual_runs_due_total x\n# TYPE punctual_runs_due_total counter\n";
    let by_tenant: String = (0..10_000).map(|n| format!("punctual_runs_due_total{{priority=\"c-{n}\"}} 1\n")).collect();
    let meaning = RUNS_DUE.meaning;
    let strangers = scrape(&format!("{}{by_tenant}", head.replace(" x\n", &format!(" {meaning}\n")))).strangers();
    assert_eq!(strangers.len(), 10_001);
    assert!(strangers[10_000].contains("has 10000 series, and at most 3"), "{}", strangers[10_000]);
    let operations: String =
        (0..41).map(|n| format!("punctual_api_requests_total{{op=\"o{n}\",status=\"2xx\"}} 1\n")).collect();
    for (text, expected) in [
        (head, "another kind or help text"),
        ("a_total 1\n", "not in the table"),
        ("punctual_runs_due_total 1\n", "has the labels"),
        ("punctual_runs_due_total{tenant=\"bank\"} 1\n", "has the labels"),
        (&operations, "op of punctual_api_requests_total has 41 values"),
    ] {
        let strangers = scrape(text).strangers();
        assert!(strangers.len() == 1 && strangers[0].contains(expected), "{text}: {strangers:?}");
    }
}

#[test]
fn what_is_no_text_of_the_format_is_not_read() {
    for text in ["a 1", "# a\n", "a\n", "a one\n", "a{b} 1\n", "a 1\na 2\n", "a 1\n# TYPE a gauge\n"] {
        assert!(Text::read(text).is_err(), "{text}");
    }
    let text = scrape("a{b=\"1\",c=\"2\"} 3\na{b=\"1\",c=\"3\"} 4\na_count 5\n");
    assert_eq!(text.of("a", &[("b", "1")]).sum::<f64>(), 7.0);
    assert_eq!(text.of("a", &[("c", "3"), ("b", "1")]).collect::<Vec<_>>(), [4.0]);
    assert_eq!(text.of("a", &[("c", "4")]).count(), 0);
}

#[test]
fn a_histogram_has_its_bounds_its_sum_and_its_count() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, use_all);
    let scraped = scrape(&handle.render());
    for metric in ALL {
        let Kind::Histogram(bounds) = metric.kind else { continue };
        for labels in combinations(metric) {
            let inside: String = labels.iter().map(|(name, value)| format!("{name}=\"{value}\",")).collect();
            let series = |le: &str| scraped.samples[&format!("{}_bucket{{{inside}le=\"{le}\"}}", metric.name)];
            let counts: Vec<f64> = bounds.iter().map(|bound| series(&bound.to_string())).collect();
            assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]), "{}", metric.name);
            for (bound, count) in bounds.iter().zip(&counts) {
                assert_eq!(*count, f64::from(u8::from(*bound >= 0.3)), "{} {bound}", metric.name);
            }
            let inside = inside.trim_end_matches(',');
            let part = |suffix: &str| match inside {
                "" => scraped.samples[&format!("{}{suffix}", metric.name)],
                _ => scraped.samples[&format!("{}{suffix}{{{inside}}}", metric.name)],
            };
            assert_eq!((series("+Inf"), part("_count"), part("_sum")), (1.0, 1.0, 0.3), "{}", metric.name);
        }
    }
}

#[test]
fn what_was_counted_is_what_is_read() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, || {
        let due = RUNS_DUE.counter(&[("priority", "urgent")]);
        let (age, wait) = (CURSOR_AGE.gauge(&[]), LIMITER_WAIT.histogram(&[]));
        for n in 1..=10 {
            due.increment(n);
            age.set(n as f64);
            wait.record(0.02);
        }
    });
    handle.run_upkeep();
    let text = handle.render();
    for line in [
        "punctual_runs_due_total{priority=\"urgent\"} 55",
        "punctual_cursor_age_seconds 10",
        "punctual_limiter_wait_seconds_bucket{le=\"0.01\"} 0",
        "punctual_limiter_wait_seconds_bucket{le=\"0.05\"} 10",
        "punctual_limiter_wait_seconds_count 10",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_is_not_in_the_table_is_recorded_nowhere() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, || {
        counter!("somebody_elses_total").increment(1);
        gauge!("punctual_runs_due_total", "priority" => "urgent").set(1.0);
        for tenant in 0..10_000 {
            counter!("punctual_runs_due_total", "priority" => "urgent", "tenant" => tenant.to_string()).increment(1);
            counter!("punctual_runs_due_total", "priority" => tenant.to_string()).increment(1);
            gauge!("punctual_circuits", "handler" => format!("webhook/{tenant}"), "state" => "open").set(1.0);
            histogram!("punctual_start_lag_seconds", "tenant" => tenant.to_string()).record(1.0);
        }
    });
    assert_eq!(handle.render(), "");
}

#[test]
fn there_are_no_more_operations_than_the_table_says() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, || {
        for n in 0..1_000 {
            let op: &'static str = format!("op{n}").leak();
            API_REQUESTS.counter(&[("op", op), ("status", "2xx")]).increment(1);
        }
    });
    let scraped = scrape(&handle.render());
    assert_eq!(scraped.samples.len(), 40);
    assert!(scraped.samples.contains_key("punctual_api_requests_total{op=\"op0\",status=\"2xx\"}"));
}

#[test]
#[cfg(debug_assertions)]
fn a_label_that_the_table_does_not_know_is_found_by_the_first_test_that_meets_it() {
    let unknown = std::panic::catch_unwind(|| ATTEMPTS.counter(&[("handler", "sms"), ("outcome", "good")]));
    assert!(unknown.is_err());
    let of_another_kind = std::panic::catch_unwind(|| START_LAG.counter(&[("priority", "urgent")]));
    assert!(of_another_kind.is_err());
}

#[tokio::test(start_paused = true)]
async fn samples_are_counted_in_without_a_scrape() {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = times.clone();
    let keeping = tokio::spawn(keep_up(move || {
        counted.fetch_add(1, Relaxed);
    }));
    tokio::time::sleep(UPKEEP * 10 + UPKEEP / 2).await;
    assert!(!keeping.is_finished());
    keeping.abort();
    assert_eq!(times.load(Relaxed), 10);
}

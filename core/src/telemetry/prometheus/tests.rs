use super::*;
use crate::telemetry::handles::Value;
use crate::telemetry::table::{API_REQUESTS, ATTEMPTS, CURSOR_AGE, LIMITER_WAIT, RUNS_DUE, START_LAG, Values};
use metrics::{counter, gauge, histogram, with_local_recorder};
use std::collections::{BTreeMap, BTreeSet};
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

/// A text as a collector reads it.
#[derive(Debug, Default)]
struct Scraped {
    help: BTreeMap<String, String>,
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

/// Reads a text; what is no line of the format (version 0.0.4) fails.
fn scrape(text: &str) -> Scraped {
    let mut scraped = Scraped::default();
    assert!(text.ends_with('\n'));
    for line in text.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let twice = match words[..] {
            ["#", "HELP", name, help] => scraped.help.insert(name.to_owned(), help.to_owned()).is_some(),
            ["#", "TYPE", name, kind] => {
                let is_late = scraped.samples.keys().any(|series| family(series) == name);
                assert!(!is_late, "a type after its samples: {line}");
                scraped.kinds.insert(name.to_owned(), kind.to_owned()).is_some()
            }
            _ => {
                assert!(!line.starts_with('#'), "{line}");
                let (series, value) = line.rsplit_once(' ').unwrap();
                scraped.samples.insert(series.to_owned(), value.parse().unwrap()).is_some()
            }
        };
        assert!(!twice, "twice: {line}");
    }
    scraped
}

/// The metric that a series belongs to.
fn family(series: &str) -> &str {
    let name = series.split('{').next().unwrap();
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.unwrap_or(name)
}

/// Name and value of each label.
fn labels(series: &str) -> Vec<(&str, &str)> {
    let Some((_, inside)) = series.split_once('{') else { return Vec::new() };
    let inside = inside.strip_suffix('}').unwrap();
    inside
        .split(',')
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name, value.strip_prefix('"').unwrap().strip_suffix('"').unwrap())
        })
        .collect()
}

/// What `promtool check metrics` would find fault with.
fn faults(scraped: &Scraped) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |is_one: bool, name: &str, text: &str| {
        if is_one {
            faults.push(format!("{name}: {text}"));
        }
    };
    for (name, kind) in &scraped.kinds {
        let (is_counter, is_histogram) = (kind == "counter", kind == "histogram");
        let help = scraped.help.get(name).map(String::as_str).unwrap_or_default();
        fault(help.trim().is_empty(), name, "no help text");
        fault(is_counter != name.ends_with("_total"), name, "counters end in _total, and nothing else does");
        let has_suffix = ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix));
        fault(has_suffix, name, "a suffix of histograms");
        let words: BTreeSet<&str> = name.split('_').collect();
        for word in ["ms", "milliseconds", "minutes", "hours", "days", "kilobytes", "megabytes", "percent"] {
            fault(words.contains(word), name, "not in a base unit");
        }
        for word in ["counter", "gauge", "histogram", "summary"] {
            fault(words.contains(word), name, "its kind is in its name");
        }
        fault(name.contains(':') || name.contains(char::is_uppercase), name, "not in snake case");
        fault(!["counter", "gauge", "histogram"].contains(&&**kind), name, "of an unknown kind");
        let of_it: Vec<&String> = scraped.samples.keys().filter(|series| family(series) == name).collect();
        fault(of_it.is_empty(), name, "no samples");
        for series in of_it {
            let labels = labels(series);
            let has_le = labels.iter().any(|(name, _)| *name == "le");
            let is_bucket = is_histogram && series.split('{').next().unwrap().ends_with("_bucket");
            fault(has_le != is_bucket, series, "`le` belongs to buckets, and to nothing else");
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            fault(!labels.iter().all(|(name, _)| is_name(name)), series, "a label's name is not valid");
        }
    }
    for series in scraped.samples.keys() {
        fault(!scraped.kinds.contains_key(family(series)), series, "no kind");
    }
    faults
}

#[test]
fn the_text_passes_the_lint() {
    let (recorder, handle) = recorder();
    with_local_recorder(&recorder, use_all);
    let scraped = scrape(&handle.render());
    assert_eq!(faults(&scraped), Vec::<String>::new());
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
        let faults = faults(&scrape(text));
        assert!(faults.len() == 1 && faults[0].contains(expected), "{text}: {faults:?}");
    }
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

use super::encode::{MOST_BYTES, MOST_VALUES};
use super::flusher::Lines;
use super::spread::{VALUES, index, value};
use super::*;
use crate::telemetry::handles::Tabled;
use crate::telemetry::rules::event::{LIMIT_BYTES, Rules};
use crate::telemetry::table::{
    ALL, ATTEMPTS, CURSOR_AGE, DEAD_LETTERS, JOBS_ADVANCED, LIMITER_WAIT, REPEATS_CAUGHT, RUNS_DUE, RUNS_IN_FLIGHT,
    SLOTS_TAKEN, START_LAG, Values,
};
use metrics::{counter, with_local_recorder};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW_MS: i64 = 1_790_000_000_123;
/// Reads a line that keeps to the rules.
fn read(rules: &Rules, line: &str) -> Value {
    let event = rules.check(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
    assert!(line.len() <= MOST_BYTES && MOST_BYTES < LIMIT_BYTES, "{} bytes", line.len());
    event
}

/// The events that a flush writes, each of them within the rules.
fn flushed(emf: &Emf) -> Vec<Value> {
    let mut bytes = Vec::new();
    emf.flush(Service::Worker, NOW_MS, &mut bytes).unwrap();
    let rules = Rules::default();
    String::from_utf8(bytes).unwrap().lines().map(|line| read(&rules, line)).collect()
}

fn recording<T>(emf: &Emf, work: impl FnOnce() -> T) -> T {
    with_local_recorder(&Tabled::new(emf.clone()), work)
}

#[test]
fn a_counter_tells_what_came_since_it_was_last_told() {
    let emf = Emf::default();
    let repeats = recording(&emf, || REPEATS_CAUGHT.counter(&[]));
    repeats.increment(3);
    repeats.increment(4);
    let events = flushed(&emf);
    let expected = json!({
        "_aws": {
            "Timestamp": NOW_MS,
            "CloudWatchMetrics": [{
                "Namespace": "Punctual",
                "Dimensions": [["service"]],
                "Metrics": [{ "Name": "punctual_repeats_caught_total", "Unit": "Count" }],
            }],
        },
        "service": "worker",
        "punctual_repeats_caught_total": 7,
    });
    assert_eq!(events, [expected]);
    assert_eq!(flushed(&emf), Vec::<Value>::new());
    repeats.increment(1);
    assert_eq!(flushed(&emf)[0]["punctual_repeats_caught_total"], 1);
    repeats.absolute(5);
    repeats.absolute(4);
    repeats.absolute(6);
    assert_eq!(flushed(&emf)[0]["punctual_repeats_caught_total"], 6);
}

#[test]
fn a_gauge_is_told_whenever_it_was_set_be_it_to_the_same() {
    let emf = Emf::default();
    let (age, in_flight) = recording(&emf, || (CURSOR_AGE.gauge(&[]), RUNS_IN_FLIGHT.gauge(&[])));
    assert_eq!(flushed(&emf), Vec::<Value>::new());
    for _ in 0..2 {
        age.set(9.0);
        age.set(2.5);
        assert_eq!(flushed(&emf)[0]["punctual_cursor_age_seconds"], 2.5);
        assert_eq!(flushed(&emf), Vec::<Value>::new());
    }
    in_flight.increment(3);
    in_flight.decrement(1);
    assert_eq!(flushed(&emf)[0]["punctual_runs_in_flight"], 2.0);
    age.set(f64::NAN);
    in_flight.set(f64::INFINITY);
    assert_eq!(flushed(&emf), Vec::<Value>::new(), "no numbers of JSON");
}

#[test]
fn a_histogram_tells_values_with_counts() {
    let emf = Emf::default();
    let lag = recording(&emf, || START_LAG.histogram(&[("priority", "urgent")]));
    for _ in 0..1_000 {
        lag.record(0.3);
    }
    lag.record_many(5.0, 7);
    lag.record(0.0);
    lag.record(-1.0);
    lag.record(f64::NAN);
    let told = &flushed(&emf)[0]["punctual_start_lag_seconds"];
    assert_eq!(told["Counts"], json!([2, 1_000, 7]));
    let values: Vec<f64> = told["Values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert_eq!(values[0], 0.0);
    assert!((values[1] / 0.3 - 1.0).abs() < 0.05 && (values[2] / 5.0 - 1.0).abs() < 0.05, "{values:?}");
    assert_eq!(flushed(&emf), Vec::<Value>::new());
}

proptest! {
    #[test]
    fn a_sample_differs_from_its_value_by_a_twentieth_at_most(exponent in -4.0f64..6.71) {
        let sample = 10f64.powf(exponent);
        let rounded = value(index(sample).unwrap());
        prop_assert!((rounded / sample - 1.0).abs() <= 0.05, "{sample} became {rounded}");
    }
}

#[test]
fn all_samples_have_a_value_and_values_rise() {
    let values: Vec<f64> = (0..VALUES).map(value).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(values[VALUES - 1] > 60.0 * 86_400.0);
    for (n, value) in values.iter().enumerate() {
        assert_eq!(index(*value), Some(n), "{value}");
        assert!(value.to_string().len() <= 9, "{value}");
    }
    for (sample, expected) in
        [(f64::NAN, None), (f64::NEG_INFINITY, Some(0)), (1e-9, Some(0)), (f64::INFINITY, Some(VALUES - 1))]
    {
        assert_eq!(index(sample), expected, "{sample}");
    }
}

#[test]
fn what_has_the_same_labels_is_told_in_one_line_kept_in_as_many_ways_as_the_table_says() {
    let emf = Emf::default();
    recording(&emf, || {
        JOBS_ADVANCED.counter(&[]).increment(1);
        LIMITER_WAIT.histogram(&[]).record(1.0);
        RUNS_DUE.counter(&[("priority", "bulk")]).increment(2);
        START_LAG.histogram(&[("priority", "bulk")]).record(1.0);
        RUNS_DUE.counter(&[("priority", "urgent")]).increment(3);
        DEAD_LETTERS.counter(&[("reason", "exhausted")]).increment(4);
        // The table keeps it out of CloudWatch.
        SLOTS_TAKEN.counter(&[("slot", "shared"), ("queue", "bulk")]).increment(5);
    });
    let events = flushed(&emf);
    assert_eq!(events.len(), 4);
    let bulk = events.iter().find(|event| event["priority"] == "bulk").unwrap();
    let directives = &bulk["_aws"]["CloudWatchMetrics"];
    assert_eq!(directives[0]["Dimensions"], json!([["service"], ["service", "priority"]]));
    assert_eq!(directives[0]["Metrics"], json!([{ "Name": "punctual_runs_due_total", "Unit": "Count" }]));
    assert_eq!(directives[1]["Dimensions"], json!([["service", "priority"]]));
    assert_eq!(directives[1]["Metrics"], json!([{ "Name": "punctual_start_lag_seconds", "Unit": "Seconds" }]));
}

#[test]
fn nothing_that_is_not_in_the_table_becomes_a_series() {
    let emf = Emf::default();
    recording(&emf, || {
        for tenant in 0..10_000 {
            counter!("punctual_runs_due_total", "priority" => "urgent", "tenant" => tenant.to_string()).increment(1);
            counter!("punctual_repeats_caught_total", "tenant" => tenant.to_string()).increment(1);
        }
    });
    assert_eq!(flushed(&emf), Vec::<Value>::new());
    assert!(emf.series.lock().unwrap().is_empty());
}

/// All combinations of the values of a metric's labels.
fn combinations(metric: &Metric) -> Vec<Vec<(String, String)>> {
    metric.labels.iter().fold(vec![Vec::new()], |combined, label| {
        let values: Vec<String> = match label.values {
            Values::Listed(values) => values.iter().map(|value| (*value).to_owned()).collect(),
            Values::UpTo { most, .. } => (0..most).map(|n| format!("anOperationOfTheApiNumber{n}")).collect(),
        };
        let with = |labels: &Vec<(String, String)>, value: &String| {
            labels.iter().cloned().chain([(label.name.to_owned(), value.clone())]).collect::<Vec<_>>()
        };
        combined.iter().flat_map(|labels| values.iter().map(|value| with(labels, value)).collect::<Vec<_>>()).collect()
    })
}

/// What there can be at most: all series, every count as large as can be, histograms with all values.
fn all_there_can_be() -> Vec<Figure> {
    let figures = |metric: &Metric| match metric.kind {
        Kind::Counter => Figures::Count(u64::MAX),
        Kind::Gauge => Figures::Last(-f64::MAX),
        Kind::Histogram(_) => Figures::Spread((0..VALUES).map(|n| (n, u64::MAX)).collect()),
    };
    let series = ALL.iter().filter(|metric| !metric.in_emf.is_empty()).flat_map(|metric| {
        combinations(metric).into_iter().map(move |labels| Figure { metric, labels, figures: figures(metric) })
    });
    series.collect()
}

#[test]
fn all_there_can_be_keeps_to_the_rules() {
    let rules = Rules::default();
    let figures = all_there_can_be();
    let histograms = figures.iter().filter(|figure| matches!(figure.metric.kind, Kind::Histogram(_))).count();
    let (series, parts) = (figures.len(), VALUES.div_ceil(MOST_VALUES));
    let events = events(Service::Worker, figures, NOW_MS);
    events.iter().for_each(|event| drop(read(&rules, &event.line)));
    let told: usize = events.iter().map(|event| event.figures.len()).sum();
    assert_eq!(told, series + histograms * (parts - 1), "each series is told, and a histogram in parts");
}

#[test]
fn a_line_has_a_hundred_metrics_at_most() {
    let rules = Rules::default();
    let metrics: Vec<&'static Metric> = (0..250)
        .map(|n| {
            let name: &'static str = format!("punctual_some{n}_total").leak();
            &*Box::leak(Box::new(Metric { name, ..REPEATS_CAUGHT }))
        })
        .collect();
    let figure = |metric| Figure { metric, labels: Vec::new(), figures: Figures::Count(1) };
    let events = events(Service::Worker, metrics.into_iter().map(figure).collect(), NOW_MS);
    let counts: Vec<usize> = events.iter().map(|event| event.figures.len()).collect();
    assert_eq!(counts, [100, 100, 50]);
    events.iter().for_each(|event| drop(read(&rules, &event.line)));
}

#[test]
fn the_rules_find_what_they_are_there_for() {
    let rules = Rules::default();
    let emf = Emf::default();
    recording(&emf, || RUNS_DUE.counter(&[("priority", "bulk")]).increment(2));
    let event = flushed(&emf).remove(0);
    assert!(rules.check(&event.to_string()).is_ok());
    let too_many: Vec<usize> = (0..101).collect();
    for (place, wrong) in [
        ("/_aws/Timestamp", json!("now")),
        ("/_aws/CloudWatchMetrics", json!([])),
        ("/_aws/CloudWatchMetrics/0/Namespace", json!("")),
        ("/_aws/CloudWatchMetrics/0/Dimensions", json!([["service", "tenant"]])),
        ("/_aws/CloudWatchMetrics/0/Metrics/0/Unit", json!("seconds")),
        ("/_aws/CloudWatchMetrics/0/Metrics/0/Name", json!("punctual_else_total")),
        ("/punctual_runs_due_total", json!("2")),
        ("/punctual_runs_due_total", json!({ "Values": too_many, "Counts": [1] })),
        ("/punctual_runs_due_total", json!({ "Values": [1, 2], "Counts": [1] })),
        ("/priority", json!(1)),
    ] {
        let mut event = event.clone();
        *event.pointer_mut(place).unwrap() = wrong.clone();
        assert!(rules.check(&event.to_string()).is_err(), "{place} {wrong}");
    }
}

/// Takes so many bytes, and then no more.
struct Disk {
    taken: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room);
        self.taken.extend(&bytes[..n]);
        self.room -= n;
        if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

proptest! {
    // Wherever a disk gets full, what its whole lines tell in the end is what was counted: also with 521 bytes of room, which
    // end a line without its line end.
    #[test]
    fn what_could_not_be_written_is_told_later(room in prop_oneof![Just(521), 0usize..3_000]) {
        let emf = Emf::default();
        let rules = Rules::default();
        let mut lines = Lines { out: Disk { taken: Vec::new(), room }, is_broken: false };
        let (sent, lost, age, lag) = recording(&emf, || (
            ATTEMPTS.counter(&[("handler", "sms"), ("outcome", "delivered")]),
            ATTEMPTS.counter(&[("handler", "sms"), ("outcome", "lost")]),
            CURSOR_AGE.gauge(&[]),
            START_LAG.histogram(&[("priority", "bulk")]),
        ));
        for n in 1..=4u64 {
            sent.increment(n);
            lost.increment(10 * n);
            age.set(n as f64);
            lag.record_many(1.0, 100 * n as usize);
            let written = emf.flush(Service::Worker, NOW_MS, &mut lines);
            prop_assert!(written.is_ok() || lines.out.room == 0);
        }
        lines.out.room = usize::MAX;
        emf.flush(Service::Worker, NOW_MS, &mut lines).unwrap();
        let text = String::from_utf8(lines.out.taken).unwrap();
        let whole: Vec<Value> = text.lines().filter_map(|line| rules.check(line).ok()).collect();
        let in_all = |name: &str, label: &str, value: &str| -> u64 {
            let of_it = whole.iter().filter(|event| event[label] == value);
            of_it.filter_map(|event| event[name].as_u64().or(event[name]["Counts"][0].as_u64())).sum()
        };
        prop_assert_eq!(in_all("punctual_attempts_total", "outcome", "delivered"), 10);
        prop_assert_eq!(in_all("punctual_attempts_total", "outcome", "lost"), 100);
        prop_assert_eq!(in_all("punctual_start_lag_seconds", "priority", "bulk"), 1_000);
        prop_assert_eq!(whole.iter().rev().find_map(|event| event["punctual_cursor_age_seconds"].as_f64()), Some(4.0));
    }
}

#[test]
fn nothing_is_lost_between_threads_that_count_and_one_that_tells() {
    let emf = Emf::default();
    let (sent, wait) = recording(&emf, || (REPEATS_CAUGHT.counter(&[]), LIMITER_WAIT.histogram(&[])));
    let mut told = (0, 0);
    let mut add = |events: Vec<Value>| {
        for event in events {
            told.0 += event["punctual_repeats_caught_total"].as_u64().unwrap_or_default();
            let counts = event["punctual_limiter_wait_seconds"]["Counts"].as_array().cloned().unwrap_or_default();
            told.1 += counts.iter().filter_map(Value::as_u64).sum::<u64>();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..20_000 {
                    sent.increment(1);
                    wait.record(f64::from(n) / 1_000.0);
                }
            });
        }
        for _ in 0..20 {
            add(flushed(&emf));
        }
    });
    add(flushed(&emf));
    assert_eq!(told, (80_000, 80_000));
}

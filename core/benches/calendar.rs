//! What the calendar costs: the next firing of a cron job, and reading its expression.
//!
//! - `next/ordinary`: expressions as jobs have them, on an ordinary day. Target: a median of 3 µs at most.
//! - `next/leap_day`, `next/overlap`: years ahead, and inside the hour that a clock shows twice. Target: 10 µs at most.
//! - `beside`: the same expressions on UTC, by this calendar, by crate `cron` alone and by crate `croner`.
//! - `parse/cold`: an expression that no job had before. `parse/shared`: the jobs of a large installation, 2.7 million
//!   that say 5,000 different things, as one iteration.
//!
//! `cargo bench -p punctual-core --no-default-features` runs these and nothing else. No figure is asserted.

use chrono::{DateTime, Utc};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use punctual_core::schedule::{CronExpression, Schedule, ScheduleText};
use punctual_core::zone::Zones;
use std::hint::black_box;
use std::str::FromStr;
use std::time::Duration;

/// Expressions as jobs have them, and what crate `cron` says for them: it has no `L`.
const ORDINARY: [(&str, Option<&str>); 4] = [
    ("0 9 * * *", Some("0 0 9 * * * *")),
    ("*/15 9-17 * * 1-5", Some("0 */15 9-17 * * 2-6 *")),
    ("30 9 L * *", None),
    ("0 9 1,15 * *", Some("0 0 9 1,15 * * *")),
];

const LEAP_DAY: (&str, Option<&str>) = ("0 0 29 2 *", Some("0 0 0 29 2 * *"));

/// A Wednesday far from any clock change.
const ORDINARY_DAY: &str = "2026-12-09T10:17:23Z";

/// New York shows 1:40 for the first time; it will again an hour later.
const IN_OVERLAP: &str = "2026-11-01T05:40:00Z";

const SHARED_READS: usize = 2_700_000;
const SHARED_EXPRESSIONS: usize = 5_000;

/// More than are kept parsed, so that none is found when it comes round again.
const COLD_EXPRESSIONS: usize = 60_000;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn schedule(expression: &str, tz: &str, zones: &Zones) -> Schedule {
    let when = format!("cron {expression}");
    let text = ScheduleText { when: &when, tz: Some(tz), ..ScheduleText::default() };
    text.read(at(ORDINARY_DAY), zones).expect("a valid expression").0
}

fn next(c: &mut Criterion) {
    let zones = Zones::embedded();
    let mut measure = |group: &str, tz: &str, expressions: &[&str], after: DateTime<Utc>| {
        let mut group = c.benchmark_group(group);
        for expression in expressions {
            let schedule = schedule(expression, tz, &zones);
            group.bench_function(BenchmarkId::new(tz, expression), |b| {
                b.iter(|| black_box(&schedule).next_after(black_box(after), &zones));
            });
        }
        group.finish();
    };
    for tz in ["Asia/Kolkata", "America/New_York"] {
        measure("next/ordinary", tz, &ORDINARY.map(|(expression, _)| expression), at(ORDINARY_DAY));
        measure("next/leap_day", tz, &[LEAP_DAY.0], at(ORDINARY_DAY));
    }
    measure("next/overlap", "America/New_York", &["30 1 * * *", "*/15 * * * *"], at(IN_OVERLAP));
}

fn beside(c: &mut Criterion) {
    let zones = Zones::embedded();
    let after = at(ORDINARY_DAY);
    let mut group = c.benchmark_group("beside");
    for (expression, seven_fields) in ORDINARY.into_iter().chain([LEAP_DAY]) {
        let ours = schedule(expression, "UTC", &zones);
        let expected = ours.next_after(after, &zones).expect("it fires").at;
        group.bench_function(BenchmarkId::new("punctual", expression), |b| {
            b.iter(|| black_box(&ours).next_after(black_box(after), &zones));
        });
        if let Some(seven_fields) = seven_fields {
            let theirs = cron::Schedule::from_str(seven_fields).expect("a valid expression");
            assert_eq!(theirs.after(&after).next(), Some(expected), "{seven_fields}");
            group.bench_function(BenchmarkId::new("cron", expression), |b| {
                b.iter(|| black_box(&theirs).after(&black_box(after)).next());
            });
        }
        let theirs = croner::Cron::from_str(expression).expect("a valid expression");
        assert_eq!(theirs.find_next_occurrence(&after, false).expect("it fires"), expected, "{expression}");
        group.bench_function(BenchmarkId::new("croner", expression), |b| {
            b.iter(|| black_box(&theirs).find_next_occurrence(&black_box(after), false));
        });
    }
    group.finish();
}

fn parse(c: &mut Criterion) {
    let text = |n: usize| format!("{} {} {} {} *", n % 60, n / 60 % 24, n / 1_440 % 28 + 1, n / 40_320 % 12 + 1);
    let read = |text: &str| CronExpression::read(black_box(text), None).expect("a valid expression");
    let mut group = c.benchmark_group("parse");
    let cold: Vec<String> = (0..COLD_EXPRESSIONS).map(text).collect();
    let mut turn = cold.iter().cycle();
    group.bench_function("cold", |b| b.iter(|| turn.next().map(|text| read(text))));
    let shared = &cold[..SHARED_EXPRESSIONS];
    group.sample_size(10).throughput(Throughput::Elements(SHARED_READS as u64));
    group.bench_function("shared", |b| {
        b.iter(|| shared.iter().cycle().take(SHARED_READS).for_each(|text| drop(black_box(read(text)))));
    });
    group.finish();
}

criterion_group! {
    name = calendar;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = next, beside, parse
}
criterion_main!(calendar);

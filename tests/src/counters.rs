//! Counters as a program raises them, to be read by a test.

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Hears what the thread counts for which it is made the recorder; gauges and histograms go unheard.
#[derive(Default)]
pub struct Counters(Mutex<BTreeMap<Key, Arc<Count>>>);

#[derive(Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

impl Counters {
    /// What a counter has come to, all that have these labels together.
    pub fn of(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let has = |key: &Key, (name, value): &(&str, &str)| {
            key.labels().any(|label| label.key() == *name && label.value() == *value)
        };
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let these = counts.iter().filter(|(key, _)| key.name() == name && labels.iter().all(|label| has(key, label)));
        these.map(|(_, count)| count.0.load(Ordering::Relaxed)).sum()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(counts.entry(key.clone()).or_default().clone())
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

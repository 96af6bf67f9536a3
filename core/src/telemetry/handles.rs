//! Handles made from the table, and the guard that keeps recorders to it.
//!
//! A handle is made once and kept: to look it up costs ten times what it costs to count. Handles made before the exporter is
//! installed count nothing, for ever.

use super::table::{Kind, Metric, Values, find};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit, with_recorder,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// A label and its value. Only what is written in code can be one: no tenant, no id, no host.
pub type Value = (&'static str, &'static str);

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

impl Metric {
    /// A handle to count with; the labels in the table's order.
    pub fn counter(&self, labels: &[Value]) -> Counter {
        debug_assert_eq!(self.kind, Kind::Counter, "{} is no counter", self.name);
        with_recorder(|recorder| recorder.register_counter(&self.key(labels), &METADATA))
    }

    /// A handle to set a value with; the labels in the table's order.
    pub fn gauge(&self, labels: &[Value]) -> Gauge {
        debug_assert_eq!(self.kind, Kind::Gauge, "{} is no gauge", self.name);
        with_recorder(|recorder| recorder.register_gauge(&self.key(labels), &METADATA))
    }

    /// A handle to record samples with; the labels in the table's order.
    pub fn histogram(&self, labels: &[Value]) -> Histogram {
        debug_assert!(matches!(self.kind, Kind::Histogram(_)), "{} is no histogram", self.name);
        with_recorder(|recorder| recorder.register_histogram(&self.key(labels), &METADATA))
    }

    /// All labels that it can have, in the table's order; none if the table does not list them.
    pub(super) fn series(&self) -> Vec<Vec<Value>> {
        self.labels.iter().fold(vec![Vec::new()], |all, label| {
            let values = match label.values {
                Values::Listed(values) => values,
                Values::UpTo { .. } => &[],
            };
            let with_each = |labels: &Vec<Value>| {
                let labels = labels.clone();
                values.iter().map(move |value| [&labels[..], &[(label.name, *value)]].concat()).collect::<Vec<_>>()
            };
            all.iter().flat_map(with_each).collect()
        })
    }

    fn key(&self, labels: &[Value]) -> Key {
        debug_assert_eq!(self.check(labels), Ok(()));
        Key::from_parts(
            self.name,
            labels.iter().map(|(name, value)| Label::from_static_parts(name, value)).collect::<Vec<_>>(),
        )
    }
}

/// A recorder of what is in the table; all else is recorded nowhere. What another crate counts, or a label that should not
/// be, can so cost neither memory nor a bill.
pub(super) struct Tabled<R> {
    recorder: R,
    /// What was seen of each metric's labels whose values are not listed.
    seen: Mutex<BTreeMap<(&'static str, &'static str), BTreeSet<String>>>,
}

impl<R> Tabled<R> {
    pub(super) fn new(recorder: R) -> Self {
        Tabled { recorder, seen: Mutex::default() }
    }

    fn admits(&self, key: &Key, is_of_kind: fn(Kind) -> bool) -> bool {
        let Some(metric) = find(key.name()).filter(|metric| is_of_kind(metric.kind)) else { return false };
        let labels: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
        metric.check(&labels).is_ok() && self.has_room(metric, &labels)
    }

    fn has_room(&self, metric: &'static Metric, labels: &[(&str, &str)]) -> bool {
        metric.labels.iter().zip(labels).all(|(label, (_, value))| match label.values {
            Values::Listed(_) => true,
            Values::UpTo { most, .. } => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let seen = seen.entry((metric.name, label.name)).or_default();
                seen.contains(*value) || (seen.len() < most && seen.insert((*value).to_owned()))
            }
        })
    }
}

/// Descriptions are the table's; nobody else's are taken.
impl<R: Recorder> Recorder for Tabled<R> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        if self.admits(key, |kind| kind == Kind::Counter) {
            self.recorder.register_counter(key, metadata)
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if self.admits(key, |kind| kind == Kind::Gauge) {
            self.recorder.register_gauge(key, metadata)
        } else {
            Gauge::noop()
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if self.admits(key, |kind| matches!(kind, Kind::Histogram(_))) {
            self.recorder.register_histogram(key, metadata)
        } else {
            Histogram::noop()
        }
    }
}

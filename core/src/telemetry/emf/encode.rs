//! From figures to lines.
//!
//! All that has the same labels goes into one line, with one directive for each way in which CloudWatch is to keep it. The
//! limits are those of the format's specification (AWS, "Specification: Embedded metric format"): 100 metrics a directive, 100
//! values a metric, 256 KB an event. That a metric may be an object of `Values` and `Counts` is not in its text; it is what
//! CloudWatch's own metric data look like (`PutMetricData`), and what the exporters of OpenTelemetry and AWS's client
//! libraries send.

use super::spread::value;
use crate::telemetry::table::{DimensionSet, Metric, Service};
use metrics::Key;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Under which CloudWatch keeps all metrics.
pub(in crate::telemetry) const NAMESPACE: &str = "Punctual";
/// Values of one metric in one line.
pub(super) const MOST_VALUES: usize = 100;
/// Metrics in one line.
pub(super) const MOST_METRICS: usize = 100;
/// The format allows 256 KB, but container runtimes cut what they log into pieces of 16 KB (Docker's default), and a piece of a line is no event.
pub(super) const MOST_BYTES: usize = 16 * 1024;

/// What a series tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figures {
    /// So much was added to a counter.
    Count(u64),
    /// A gauge's value.
    Last(f64),
    /// Samples of a histogram: numbers of values, and how many samples each has.
    Spread(Vec<(usize, u64)>),
}

/// A series with what it tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) metric: &'static Metric,
    pub(super) labels: Vec<(String, String)>,
    pub(super) figures: Figures,
}

impl Figure {
    /// Whether it is of the series with this key.
    pub(super) fn is_of(&self, key: &Key) -> bool {
        let labels = || key.labels().map(|label| (label.key(), label.value()));
        self.metric.name == key.name() && self.labels.iter().map(|(name, value)| (&**name, &**value)).eq(labels())
    }

    /// The same in parts that keep to the format's limit of values.
    fn parts(self) -> Vec<Figure> {
        match &self.figures {
            Figures::Spread(counts) if counts.len() > MOST_VALUES => counts
                .chunks(MOST_VALUES)
                .map(|part| Figure { figures: Figures::Spread(part.to_vec()), ..self.clone() })
                .collect(),
            Figures::Spread(_) | Figures::Count(_) | Figures::Last(_) => vec![self],
        }
    }

    fn target(&self) -> Value {
        match &self.figures {
            Figures::Count(n) => json!(n),
            Figures::Last(value) => json!(value),
            Figures::Spread(counts) => {
                let values: Vec<f64> = counts.iter().map(|(index, _)| value(*index)).collect();
                let counts: Vec<u64> = counts.iter().map(|(_, n)| *n).collect();
                json!({ "Values": values, "Counts": counts })
            }
        }
    }
}

/// A line, and what it tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) line: String,
    pub(super) figures: Vec<Figure>,
}

/// The lines that tell these figures, each of one series and none twice.
pub(super) fn events(service: Service, figures: Vec<Figure>, timestamp_ms: i64) -> Vec<Event> {
    let mut by_labels: BTreeMap<Vec<(String, String)>, Vec<Draft>> = BTreeMap::new();
    for figure in figures.into_iter().flat_map(Figure::parts) {
        let drafts = by_labels.entry(figure.labels.clone()).or_default();
        let target = figure.target();
        match drafts.iter_mut().find(|draft| draft.has_room(&figure, &target)) {
            Some(draft) => draft.add(figure, target),
            None => {
                let mut draft = Draft::new(service, &figure.labels, timestamp_ms);
                draft.add(figure, target);
                drafts.push(draft);
            }
        }
    }
    by_labels.into_values().flatten().map(Draft::finished).collect()
}

/// A line in the making.
struct Draft {
    root: Map<String, Value>,
    directives: BTreeMap<&'static [DimensionSet], Vec<Value>>,
    timestamp_ms: i64,
    labels: Vec<(String, String)>,
    figures: Vec<Figure>,
    bytes: usize,
}

impl Draft {
    fn new(service: Service, labels: &[(String, String)], timestamp_ms: i64) -> Self {
        let mut root = Map::new();
        root.insert("service".into(), service.as_str().into());
        root.extend(labels.iter().map(|(name, value)| (name.clone(), Value::from(&**value))));
        let mut draft = Draft {
            root,
            directives: BTreeMap::new(),
            timestamp_ms,
            labels: labels.to_vec(),
            figures: Vec::new(),
            bytes: 0,
        };
        draft.bytes = draft.line().len();
        draft
    }

    fn has_room(&self, figure: &Figure, target: &Value) -> bool {
        self.figures.len() < MOST_METRICS
            && !self.root.contains_key(figure.metric.name)
            && self.bytes + self.cost(figure, target) <= MOST_BYTES
    }

    /// The most bytes that a figure adds.
    fn cost(&self, figure: &Figure, target: &Value) -> usize {
        let directive = if self.directives.contains_key(figure.metric.in_emf) {
            0
        } else {
            self.directive(figure.metric.in_emf, &[]).to_string().len()
        };
        let member = figure.metric.name.len() + target.to_string().len() + r#","":"#.len();
        directive + member + definition(figure.metric).to_string().len() + ",,".len()
    }

    fn add(&mut self, figure: Figure, target: Value) {
        self.bytes += self.cost(&figure, &target);
        self.root.insert(figure.metric.name.into(), target);
        self.directives.entry(figure.metric.in_emf).or_default().push(definition(figure.metric));
        self.figures.push(figure);
    }

    fn directive(&self, sets: &[DimensionSet], metrics: &[Value]) -> Value {
        let dimensions: Vec<Vec<&str>> = sets.iter().map(|set| self.dimensions(*set)).collect();
        json!({ "Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": metrics })
    }

    fn dimensions(&self, set: DimensionSet) -> Vec<&str> {
        let labels = match set {
            DimensionSet::Service => &[],
            DimensionSet::Labels => &*self.labels,
        };
        std::iter::once("service").chain(labels.iter().map(|(name, _)| &**name)).collect()
    }

    fn line(&self) -> String {
        let directives: Vec<Value> =
            self.directives.iter().map(|(sets, metrics)| self.directive(sets, metrics)).collect();
        let mut root = self.root.clone();
        root.insert("_aws".into(), json!({ "Timestamp": self.timestamp_ms, "CloudWatchMetrics": directives }));
        Value::Object(root).to_string()
    }

    fn finished(self) -> Event {
        Event { line: self.line(), figures: self.figures }
    }
}

fn definition(metric: &Metric) -> Value {
    json!({ "Name": metric.name, "Unit": metric.unit.cloudwatch() })
}

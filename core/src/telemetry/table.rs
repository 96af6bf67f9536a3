//! The table of metrics: name, kind, unit, labels, meaning and alarm of each. The documents' table is made from it.
//!
//! Names follow Prometheus: base units, counters end in `_total`. CloudWatch keeps them under the same names. The values of
//! every label are listed here, so how many series there can be is known before anything runs.

mod metrics;
#[cfg(test)]
mod tests;

pub use metrics::*;

use std::fmt;
use std::fmt::Write;

/// A service: the value of the dimension `service` in CloudWatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Copies that find what is due and put it into the queues.
    Dispatch,
    /// Workers.
    Worker,
    /// The HTTP API.
    Api,
}

impl Service {
    /// All services.
    pub const ALL: [Service; 3] = [Service::Dispatch, Service::Worker, Service::Api];

    /// The word for dimensions and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Service::Dispatch => "dispatch",
            Service::Worker => "worker",
            Service::Api => "api",
        }
    }
}

/// How a metric's figures add up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Rises only.
    Counter,
    /// A value at a time. Whoever keeps it sets it at least once a minute: what nobody sets is not told.
    Gauge,
    /// Samples, counted below each of these bounds in Prometheus.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word of the text format.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds; the name says so.
    Seconds,
    /// How many.
    Count,
    /// Always 1: what it tells is in its labels.
    Info,
}

impl Unit {
    /// The word for documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Count => "count",
            Unit::Info => "info",
        }
    }

    /// CloudWatch's word.
    pub fn cloudwatch(self) -> &'static str {
        match self {
            Unit::Seconds => "Seconds",
            Unit::Count => "Count",
            Unit::Info => "None",
        }
    }
}

/// The values that a label can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// These.
    Listed(&'static [&'static str]),
    /// Words that are written in another package's code. From the first beyond `most` on, none is recorded.
    UpTo {
        /// The most there may be.
        most: usize,
        /// What they are.
        of: &'static str,
    },
}

impl Values {
    /// The most there can be.
    pub fn most(self) -> usize {
        match self {
            Values::Listed(values) => values.len(),
            Values::UpTo { most, .. } => most,
        }
    }
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What it can be.
    pub values: Values,
}

/// The dimensions under which CloudWatch keeps a metric. It adds up nothing by itself: what an alarm needs as a sum is kept
/// under [`DimensionSet::Service`] too. Each combination of values is a metric that is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimensionSet {
    /// `service` alone.
    Service,
    /// `service` and all labels of the metric.
    Labels,
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, in Prometheus and in CloudWatch.
    pub name: &'static str,
    /// How its figures add up.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// Its labels, in the order in which they are shown.
    pub labels: &'static [Label],
    /// Who tells it.
    pub by: &'static [Service],
    /// What it says: the help text.
    pub meaning: &'static str,
    /// The alarm that goes by it: a section of the operations' guide.
    pub alarm: Option<&'static str>,
    /// Where CloudWatch keeps it; empty = not there.
    pub in_emf: &'static [DimensionSet],
}

impl Metric {
    /// The most series it can have in one process.
    pub fn most_series(&self) -> usize {
        self.labels.iter().map(|label| label.values.most()).product()
    }

    /// The most lines that it can have in the text of one process: a histogram has one for each bound, and three more.
    pub fn most_lines(&self) -> usize {
        match self.kind {
            Kind::Histogram(bounds) => self.most_series() * (bounds.len() + 3),
            Kind::Counter | Kind::Gauge => self.most_series(),
        }
    }

    /// Whether these are its labels, in its order, with values that they can have.
    ///
    /// # Errors
    /// Names what is not so.
    pub fn check(&self, labels: &[(&str, &str)]) -> Result<(), String> {
        let names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
        let expected: Vec<&str> = self.labels.iter().map(|label| label.name).collect();
        if names != expected {
            return Err(format!("{} has the labels {expected:?}, not {names:?}", self.name));
        }
        for (label, (name, value)) in self.labels.iter().zip(labels) {
            match label.values {
                Values::Listed(values) if !values.contains(value) => {
                    return Err(format!("{name} of {} is one of {values:?}, not {value:?}", self.name));
                }
                Values::UpTo { .. } if value.is_empty() => {
                    return Err(format!("{name} of {} is empty", self.name));
                }
                Values::Listed(_) | Values::UpTo { .. } => {}
            }
        }
        Ok(())
    }
}

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().copied().find(|metric| metric.name == name)
}

/// The table for the documents.
pub fn markdown() -> String {
    let mut table = String::from(
        "| name | kind | unit | labels | by | meaning | alarm | CloudWatch |\n|---|---|---|---|---|---|---|---|\n",
    );
    for metric in ALL {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{}", Row(metric));
    }
    table
}

/// The bounds of each histogram, for the documents.
pub fn markdown_of_bounds() -> String {
    let mut table = String::from("| histogram | bounds |\n|---|---|\n");
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
            let _ = writeln!(table, "| `{}` | {} |", metric.name, bounds.join(" "));
        }
    }
    table
}

struct Row(&'static Metric);

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.0;
        let labels: Vec<String> = metric.labels.iter().map(label_in_words).collect();
        let by: Vec<&str> = metric.by.iter().map(|service| service.as_str()).collect();
        let by = if by.len() == Service::ALL.len() { "all".to_owned() } else { by.join(", ") };
        let alarm = metric.alarm.map(|alarm| format!("[{alarm}](#{alarm})"));
        let kept: Vec<String> = metric.in_emf.iter().map(|set| set_in_words(metric, *set)).collect();
        write!(
            f,
            "| `{}` | {} | {} | {} | {by} | {} | {} | {} |",
            metric.name,
            metric.kind.as_str(),
            metric.unit.as_str(),
            labels.join("; "),
            metric.meaning,
            alarm.unwrap_or_default(),
            kept.join("; "),
        )
    }
}

fn label_in_words(label: &Label) -> String {
    match label.values {
        Values::Listed(values) => format!("`{}`: {}", label.name, values.join(", ")),
        Values::UpTo { most, of } => format!("`{}`: {of}, at most {most}", label.name),
    }
}

fn set_in_words(metric: &Metric, set: DimensionSet) -> String {
    let labels = match set {
        DimensionSet::Service => &[],
        DimensionSet::Labels => metric.labels,
    };
    let names: Vec<&str> = std::iter::once("service").chain(labels.iter().map(|label| label.name)).collect();
    names.join(", ")
}

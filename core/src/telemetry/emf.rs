//! Metrics as lines of CloudWatch's embedded metric format (EMF).
//!
//! Counters are told as what came since they were last told, gauges as their last value if they were set since, histograms
//! as values with counts. What nobody moved is not told, and no line is written when nothing moved. Figures of lines that
//! could not be written are kept and told with the next ones: sums over time stay right, though some land in a later minute, and
//! keeping costs no memory, since what is kept is added up.

mod cells;
mod encode;
mod flusher;
mod spread;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use encode::NAMESPACE;
pub(super) use flusher::Flusher;

use super::table::{Kind, Metric, Service, find};
use cells::{Count, Last, Spread};
use encode::{Event, Figure, Figures, events};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// All series of a process. Its lock is taken to make a handle and to flush, never to count.
#[derive(Clone, Default)]
pub(super) struct Emf {
    series: Arc<Mutex<BTreeMap<Key, Series>>>,
}

#[derive(Clone)]
struct Series {
    metric: &'static Metric,
    cell: Cell,
}

#[derive(Clone)]
enum Cell {
    Count(Arc<Count>),
    Last(Arc<Last>),
    Spread(Arc<Spread>),
}

impl Series {
    fn new(metric: &'static Metric) -> Self {
        let cell = match metric.kind {
            Kind::Counter => Cell::Count(Arc::default()),
            Kind::Gauge => Cell::Last(Arc::default()),
            Kind::Histogram(_) => Cell::Spread(Arc::default()),
        };
        Series { metric, cell }
    }

    /// What is to be told; it is told no second time unless it is given back.
    fn take(&self, key: &Key) -> Option<Figure> {
        let figures = match &self.cell {
            Cell::Count(count) => count.take().map(Figures::Count),
            Cell::Last(last) => last.take().map(Figures::Last),
            Cell::Spread(spread) => spread.take().map(Figures::Spread),
        }?;
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
        Some(Figure { metric: self.metric, labels: labels.collect(), figures })
    }

    fn give_back(&self, figures: &Figures) {
        match (&self.cell, figures) {
            (Cell::Count(count), Figures::Count(n)) => count.add(*n),
            (Cell::Last(last), Figures::Last(_)) => last.is_to_be_told(),
            (Cell::Spread(spread), Figures::Spread(counts)) => spread.add(counts),
            (Cell::Count(_) | Cell::Last(_) | Cell::Spread(_), _) => {}
        }
    }
}

impl Emf {
    /// The cell of a series; none for what CloudWatch does not keep.
    fn cell(&self, key: &Key) -> Option<Cell> {
        let metric = find(key.name()).filter(|metric| !metric.in_emf.is_empty())?;
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        Some(series.entry(key.to_retained()).or_insert_with(|| Series::new(metric)).cell.clone())
    }

    /// Writes what is to be told, a line for each set of labels.
    ///
    /// # Errors
    /// When a line cannot be written. Its figures and those of the lines after it are kept.
    pub(super) fn flush(&self, service: Service, timestamp_ms: i64, out: &mut dyn Write) -> io::Result<()> {
        let mut events = events(service, self.take(), timestamp_ms).into_iter();
        while let Some(event) = events.next() {
            // In one piece, so that nothing else that is written there gets into it.
            if let Err(error) = out.write_all(format!("{}\n", event.line).as_bytes()) {
                std::iter::once(event).chain(events).for_each(|event| self.give_back(&event));
                return Err(error);
            }
        }
        out.flush()
    }

    fn take(&self) -> Vec<Figure> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.iter().filter_map(|(key, series)| series.take(key)).collect()
    }

    fn give_back(&self, event: &Event) {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for figure in &event.figures {
            if let Some((_, series)) = series.iter().find(|(key, _)| figure.is_of(key)) {
                series.give_back(&figure.figures);
            }
        }
    }
}

impl Recorder for Emf {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.cell(key) {
            Some(Cell::Count(count)) => Counter::from_arc(count),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.cell(key) {
            Some(Cell::Last(last)) => Gauge::from_arc(last),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.cell(key) {
            Some(Cell::Spread(spread)) => Histogram::from_arc(spread),
            _ => Histogram::noop(),
        }
    }
}

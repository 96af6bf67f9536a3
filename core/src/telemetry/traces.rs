//! Spans of runs and requests, for a collector that speaks OTLP. Off unless asked for: then recording one is a look at a
//! value that was never set.
//!
//! What carries a trace from process to process is [`TraceContext`], which goes on its way whether anybody records or not.

mod otlp;
#[cfg(test)]
mod tests;

pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanKind;
pub(super) use otlp::Otlp;

use super::table::Service;
use crate::priority::Priority;
use crate::run::RunId;
use crate::trace::{Ratio, TraceContext};
use chrono::{DateTime, Utc};
use std::sync::{Arc, OnceLock};

const CHOICE: &str = "PUNCTUAL_TRACES";
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Where spans go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceExport {
    /// Nowhere.
    Off,
    /// To the collector that the standard variables of OpenTelemetry name.
    Otlp {
        /// How many of the traces that begin here.
        ratio: Ratio,
    },
}

impl TraceExport {
    /// What `PUNCTUAL_TRACES` and `OTEL_TRACES_SAMPLER_ARG` mean.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn choose(choice: Option<&str>, ratio: Option<&str>) -> Result<Self, Vec<String>> {
        match choice.unwrap_or_default() {
            "" | "off" => Ok(TraceExport::Off),
            "otlp" => {
                let ratio = match ratio.filter(|text| !text.is_empty()) {
                    None => Some(Ratio::ALL),
                    Some(text) => text.parse().ok().and_then(Ratio::new),
                };
                let problem = || vec![format!("{RATIO}: a part of all traces is meant, from 0 to 1, such as `0.01`")];
                Ok(TraceExport::Otlp { ratio: ratio.ok_or_else(problem)? })
            }
            found => Err(vec![format!("{CHOICE}: `{found}` is none of `otlp` and `off`")]),
        }
    }

    pub(super) fn from_env() -> Result<Self, Vec<String>> {
        let value = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::choose(value(CHOICE).as_deref(), value(RATIO).as_deref())
    }
}

struct Recording {
    otlp: Arc<Otlp>,
    ratio: Ratio,
}

static RECORDING: OnceLock<Recording> = OnceLock::new();

/// Starts sending spans away, for as long as the process lives.
pub(super) fn install(export: TraceExport, service: Service) -> Option<Arc<Otlp>> {
    let TraceExport::Otlp { ratio } = export else { return None };
    match Otlp::start(service) {
        Ok(otlp) => {
            let otlp = Arc::new(otlp);
            let installed = RECORDING.set(Recording { otlp: otlp.clone(), ratio });
            // As in tests that run two services in one process: the first one's stays.
            installed.is_ok().then_some(otlp)
        }
        Err(problem) => {
            tracing::warn!(problem, "spans cannot be sent to a collector: none are");
            None
        }
    }
}

/// Whether this process records spans.
pub fn are_recorded() -> bool {
    RECORDING.get().is_some()
}

/// How many of the traces that begin here are recorded.
pub fn ratio() -> Ratio {
    RECORDING.get().map_or(Ratio::NONE, |recording| recording.ratio)
}

/// What every span of a run says of it.
pub fn of_run(run: &RunId, priority: Priority) -> Vec<KeyValue> {
    vec![
        KeyValue::new("job.id", run.job_key.to_string()),
        KeyValue::new("run.id", run.to_string()),
        KeyValue::new("tenant", run.job_key.tenant().to_owned()),
        KeyValue::new("queue", priority.as_str()),
    ]
}

/// A span that has ended.
pub struct Span {
    /// What was done: few different names.
    pub name: &'static str,
    /// On which side of a call.
    pub kind: SpanKind,
    /// Its ids.
    pub context: TraceContext,
    /// The span that led to it.
    pub parent: Option<TraceContext>,
    /// When it began and ended.
    pub time: (DateTime<Utc>, DateTime<Utc>),
    /// Why it counts as failed, in a word.
    pub failure: Option<&'static str>,
}

/// Records a span, if its trace is recorded and this process does so. Never waits: what there is no room for is lost.
pub fn record(span: Span, attributes: impl FnOnce() -> Vec<KeyValue>) {
    if let Some(recording) = RECORDING.get().filter(|_| span.context.is_sampled()) {
        recording.otlp.take(span, attributes());
    }
}

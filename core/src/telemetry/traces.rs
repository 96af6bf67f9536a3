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
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
/// What else may be said of the exporter elsewhere, and the one value that is right here. It would be left aside without a
/// word, and spans would go unseen, or unprotected.
const OF_EXPORTER: &[(&str, Option<&str>)] = &[
    ("PROTOCOL", Some("http/protobuf")),
    ("COMPRESSION", Some("none")),
    ("CERTIFICATE", None),
    ("CLIENT_CERTIFICATE", None),
    ("CLIENT_KEY", None),
];

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
    /// What the variables mean that a process is given; all values are asked of `value`.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn choose(value: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let value = |name: &str| value(name).filter(|value| !value.is_empty());
        match value(CHOICE).as_deref() {
            None | Some("off") => return Ok(TraceExport::Off),
            Some("otlp") if value("OTEL_SDK_DISABLED").is_some_and(|is_off| is_off.eq_ignore_ascii_case("true")) => {
                return Ok(TraceExport::Off);
            }
            Some("otlp") => {}
            Some(found) => return Err(vec![format!("{CHOICE}: `{found}` is none of `otlp` and `off`")]),
        }
        let ratio = sampled(value(SAMPLER).as_deref(), value(RATIO).as_deref());
        let mut problems: Vec<String> = ratio.as_ref().err().into_iter().cloned().collect();
        for (what, allowed) in OF_EXPORTER {
            for name in [format!("OTEL_EXPORTER_OTLP_{what}"), format!("OTEL_EXPORTER_OTLP_TRACES_{what}")] {
                if value(&name).is_some_and(|value| Some(value.as_str()) != *allowed) {
                    let instead = allowed.map_or_else(String::new, |allowed| format!(" or set it to `{allowed}`"));
                    problems.push(format!("{name}: is not understood here: unset it{instead}"));
                }
            }
        }
        for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
            // The value stays unsaid: it may hold a key.
            if value(name).is_some_and(|address| !is_endpoint(&address)) {
                problems.push(format!(
                    "{name}: is no address such as `http://localhost:4318`; name and password go into \
                     OTEL_EXPORTER_OTLP_HEADERS"
                ));
            }
        }
        match ratio {
            Ok(ratio) if problems.is_empty() => Ok(TraceExport::Otlp { ratio }),
            _ => Err(problems),
        }
    }

    pub(super) fn from_env() -> Result<Self, Vec<String>> {
        Self::choose(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }
}

/// How many of the traces that begin here are recorded, as the sampler and its argument say.
fn sampled(sampler: Option<&str>, argument: Option<&str>) -> Result<Ratio, String> {
    match sampler.map(|sampler| sampler.strip_prefix("parentbased_").unwrap_or(sampler)) {
        None | Some("traceidratio") => {
            let ratio = argument.map_or(Some(Ratio::ALL), |part| part.parse().ok().and_then(Ratio::new));
            ratio.ok_or_else(|| format!("{RATIO}: a part of all traces is meant, from 0 to 1, such as `0.01`"))
        }
        Some("always_on") => Ok(Ratio::ALL),
        Some("always_off") => Ok(Ratio::NONE),
        Some(_) => Err(format!(
            "{SAMPLER}: `parentbased_traceidratio`, `parentbased_always_on` and `parentbased_always_off` are understood here"
        )),
    }
}

fn is_endpoint(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
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

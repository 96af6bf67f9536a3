//! Metrics as Prometheus text.
//!
//! No series is ever dropped for standing still: the table bounds how many there are, a counter that vanishes and comes
//! again looks like a restart, and handles that are kept would count on into what nobody reads.

use super::handles::Tabled;
use super::table::{ALL, Kind, Metric};
use metrics::{KeyName, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::time::Duration;

/// The content type of what is rendered.
pub(super) const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Samples of histograms are kept one by one until they are counted: at 10,000 a second not a megabyte in this time.
const UPKEEP: Duration = Duration::from_secs(5);

/// A recorder with the table's bounds and texts, and what renders it.
pub(super) fn recorder() -> (Tabled<PrometheusRecorder>, PrometheusHandle) {
    let builder = ALL.iter().fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Histogram(bounds) => builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)
            .expect("a histogram of the table has bounds"),
        Kind::Counter | Kind::Gauge => builder,
    });
    let recorder = builder.build_recorder();
    ALL.iter().for_each(|metric| describe(&recorder, metric));
    let handle = recorder.handle();
    (Tabled::new(recorder), handle)
}

/// The name says the unit already.
fn describe(recorder: &PrometheusRecorder, metric: &Metric) {
    let (name, meaning) = (KeyName::from_const_str(metric.name), metric.meaning.into());
    match metric.kind {
        Kind::Counter => recorder.describe_counter(name, None, meaning),
        Kind::Gauge => recorder.describe_gauge(name, None, meaning),
        Kind::Histogram(_) => recorder.describe_histogram(name, None, meaning),
    }
}

/// Has samples counted into their buckets, for ever: without that, they would pile up between scrapes, or without any.
pub(super) async fn keep_up(upkeep: impl Fn()) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        upkeep();
    }
}

#[cfg(test)]
mod tests;

//! What whoever reads the metrics demands of them, for tests here and of whole processes: [`text`] holds Prometheus text
//! against the rules of its linter and against the table, [`event`] a line for CloudWatch against the format's.

pub mod event;
pub mod text;

use super::prometheus;
use metrics::Recorder;

/// A recorder of Prometheus text that is nobody's yet, and what renders it.
pub fn recorder() -> (impl Recorder + Send + Sync + use<>, impl Fn() -> String + use<>) {
    let (recorder, handle) = prometheus::recorder();
    (recorder, move || handle.render())
}

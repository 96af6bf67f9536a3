//! What the services tell of themselves: one table of metrics, spans, and the ways by which both leave a process.
//!
//! [`table`] is the only place where a metric has a name; code counts through handles made from it. So each label has a
//! known and bounded set of values, and nobody can put a tenant, an id or a host into one. Exporters are Prometheus text on
//! a port of each process and CloudWatch's embedded metric format on standard output. Neither ever stands in the way of a
//! run: a port that is taken, a full disk and a slow reader cost figures, not work. Spans go to a collector that speaks OTLP,
//! where one is asked for.

use std::time::Duration;

#[cfg(feature = "process")]
mod admin;
#[cfg(all(test, feature = "process"))]
mod dashboards;
#[cfg(feature = "process")]
mod emf;
#[cfg(feature = "process")]
mod exporter;
#[cfg(feature = "process")]
mod handles;
#[cfg(feature = "process")]
mod prometheus;
#[cfg(all(feature = "process", any(test, feature = "test-util")))]
pub mod rules;
pub mod table;
#[cfg(feature = "process")]
pub mod traces;

#[cfg(feature = "process")]
pub use exporter::{Exporter, Telemetry, Ways, install};

/// Time between two looks of one scheduler copy at the queues, and between two times at which it tells what it counted.
pub const QUEUES_EVERY: Duration = Duration::from_secs(30);
/// Time between two counts of what is in quarantine, and of the runs that wait for a person.
pub const COUNTED_EVERY: Duration = Duration::from_secs(120);

//! What dispatch counts.

use metrics::{Counter, Gauge, Histogram};
use punctual_core::priority::Priority;
use punctual_core::run::SkipReason;
use punctual_core::telemetry::table;

/// Handles of the counters that rise with every run: looking them up each time costs more than counting.
pub(super) struct Metrics {
    due: [Counter; Priority::ALL.len()],
    enqueued: [Counter; Priority::ALL.len()],
    dispatch_lag: [Histogram; Priority::ALL.len()],
    pub(super) advanced: Counter,
    pub(super) already_advanced: Counter,
    pub(super) quarantined: Counter,
    pub(super) pass_failures: Counter,
    pub(super) stragglers: Counter,
    pub(super) shards_taken: Counter,
    pub(super) clock_offset: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let label = |priority: Priority| [("priority", priority.as_str())];
        Metrics {
            due: Priority::ALL.map(|priority| table::RUNS_DUE.counter(&label(priority))),
            enqueued: Priority::ALL.map(|priority| table::RUNS_ENQUEUED.counter(&label(priority))),
            dispatch_lag: Priority::ALL.map(|priority| table::DISPATCH_LAG.histogram(&label(priority))),
            advanced: table::JOBS_ADVANCED.counter(&[]),
            already_advanced: table::JOBS_ALREADY_ADVANCED.counter(&[]),
            quarantined: table::JOBS_QUARANTINED.counter(&[]),
            pass_failures: table::DISPATCH_PASS_FAILURES.counter(&[]),
            stragglers: table::DISPATCH_STRAGGLERS.counter(&[]),
            shards_taken: table::SHARDS_TAKEN.counter(&[]),
            clock_offset: table::CLOCK_OFFSET.gauge(&[]),
        }
    }

    /// So many runs are to be sent.
    pub(super) fn due(&self, priority: Priority, runs: usize) {
        self.due[priority as usize].increment(runs as u64);
    }

    pub(super) fn enqueued(&self, priority: Priority, lag_s: f64) {
        self.enqueued[priority as usize].increment(1);
        self.dispatch_lag[priority as usize].record(lag_s);
    }

    /// So many firings have a row that says why they are not run.
    pub(super) fn skipped(&self, reason: SkipReason, firings: u64) {
        table::RUNS_SKIPPED.counter(&[("by", "dispatch"), ("reason", reason.as_str())]).increment(firings);
    }
}

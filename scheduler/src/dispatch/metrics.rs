//! What dispatch counts.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use punctual_core::priority::Priority;

/// Handles of the counters that rise with every run: looking them up each time costs more than counting.
pub(super) struct Metrics {
    enqueued: [Counter; Priority::ALL.len()],
    dispatch_lag: [Histogram; Priority::ALL.len()],
    pub(super) advanced: Counter,
    pub(super) already_advanced: Counter,
    pub(super) skipped: Counter,
    pub(super) quarantined: Counter,
    pub(super) pass_failures: Counter,
    pub(super) stragglers: Counter,
    pub(super) clock_offset: Gauge,
}

impl Metrics {
    pub(super) fn new() -> Self {
        Metrics {
            enqueued: Priority::ALL.map(|p| counter!("punctual_runs_enqueued_total", "priority" => p.as_str())),
            dispatch_lag: Priority::ALL.map(|p| histogram!("punctual_dispatch_lag_seconds", "priority" => p.as_str())),
            advanced: counter!("punctual_jobs_advanced_total"),
            already_advanced: counter!("punctual_jobs_already_advanced_total"),
            skipped: counter!("punctual_runs_skipped_total", "by" => "dispatch"),
            quarantined: counter!("punctual_jobs_quarantined_total"),
            clock_offset: gauge!("punctual_clock_offset_seconds"),
            stragglers: counter!("punctual_dispatch_stragglers_total"),
            pass_failures: counter!("punctual_dispatch_pass_failures_total"),
        }
    }

    pub(super) fn enqueued(&self, priority: Priority, lag_s: f64) {
        self.enqueued[priority as usize].increment(1);
        self.dispatch_lag[priority as usize].record(lag_s);
    }
}

//! What a worker counts.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use punctual_core::circuit::Gate;
use punctual_core::idempotency::PutBack;
use punctual_core::priority::Priority;
use punctual_core::retry::OutcomeClass;
use punctual_core::run::RunStatus;
use punctual_core::target::Target;
use punctual_core::turns::Slot;
use std::collections::BTreeMap;

/// Handles of the counters that rise with every run, and the names of the others.
pub(crate) struct Metrics {
    pub(crate) received: Counter,
    pub(crate) repeats: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) fenced: Counter,
    pub(crate) store_failures: Counter,
    pub(crate) start_lag: Histogram,
    pub(crate) attempt_duration: Histogram,
    pub(crate) limiter_wait: Histogram,
    pub(crate) clock_offset: Gauge,
    delivered: Counter,
    turns: BTreeMap<(Slot, Priority), Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Metrics {
            received: counter!("punctual_messages_received_total"),
            repeats: counter!("punctual_repeats_caught_total"),
            takeovers: counter!("punctual_takeovers_total"),
            fenced: counter!("punctual_fenced_records_total"),
            store_failures: counter!("punctual_store_failures_total"),
            start_lag: histogram!("punctual_start_lag_seconds"),
            attempt_duration: histogram!("punctual_attempt_duration_seconds"),
            limiter_wait: histogram!("punctual_limiter_wait_seconds"),
            clock_offset: gauge!("punctual_clock_offset_seconds"),
            delivered: counter!("punctual_attempts_total", "outcome" => OutcomeClass::Delivered.as_str()),
            turns: kinds_of_turns().map(|(slot, priority)| ((slot, priority), turns(slot, priority))).collect(),
        }
    }

    /// A slot was taken: which kind of slots is short, and for whom.
    pub(crate) fn turn(&self, slot: Slot, priority: Priority) {
        if let Some(counter) = self.turns.get(&(slot, priority)) {
            counter.increment(1);
        }
    }

    pub(crate) fn attempt(&self, class: OutcomeClass) {
        match class {
            OutcomeClass::Delivered => self.delivered.increment(1),
            class => counter!("punctual_attempts_total", "outcome" => class.as_str()).increment(1),
        }
    }

    pub(crate) fn put_back(&self, why: PutBack) {
        counter!("punctual_messages_put_back_total", "why" => why.as_str()).increment(1);
    }

    /// 0 closed, 1 half open, 2 open.
    pub(crate) fn circuit(&self, target: &Target, gate: Gate) {
        let value = match gate {
            Gate::Closed => 0.0,
            Gate::HalfOpen => 1.0,
            Gate::Open { .. } => 2.0,
        };
        gauge!("punctual_circuit_state", "target" => target.to_string()).set(value);
    }

    pub(crate) fn dead_letter(&self, why: &'static str) {
        counter!("punctual_dead_letters_total", "why" => why).increment(1);
    }

    pub(crate) fn ended(&self, status: RunStatus) {
        counter!("punctual_runs_ended_total", "status" => status.as_str()).increment(1);
    }
}

fn kinds_of_turns() -> impl Iterator<Item = (Slot, Priority)> {
    Slot::ALL.into_iter().flat_map(|slot| Priority::ALL.map(|priority| (slot, priority)))
}

fn turns(slot: Slot, priority: Priority) -> Counter {
    counter!("punctual_slots_taken_total", "slot" => slot.as_str(), "queue" => priority.as_str())
}

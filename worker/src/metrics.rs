//! What a worker counts.

use chrono::{DateTime, Utc};
use metrics::{Counter, Gauge, Histogram};
use punctual_core::circuit::Gate;
use punctual_core::idempotency::PutBack;
use punctual_core::payload::Handler;
use punctual_core::priority::Priority;
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{RunStatus, SkipReason};
use punctual_core::target::Target;
use punctual_core::telemetry::table;
use punctual_core::turns::Slot;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Handles of what rises with every run, and the names of the others.
pub(crate) struct Metrics {
    pub(crate) received: Counter,
    pub(crate) repeats: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) fenced: Counter,
    pub(crate) store_failures: Counter,
    pub(crate) limiter_wait: Histogram,
    pub(crate) clock_offset: Gauge,
    queue_latency: [Histogram; Priority::ALL.len()],
    start_lag: [Histogram; Priority::ALL.len()],
    handlers: [OfHandler; Handler::ALL.len()],
    turns: BTreeMap<(Slot, Priority), Counter>,
    /// Runs that are begun and not ended.
    in_flight: AtomicUsize,
    /// Of these, those that were taken over.
    taken_over: AtomicUsize,
}

/// What is counted of one handler.
struct OfHandler {
    duration: Histogram,
    delivered: Counter,
    retries: Counter,
}

impl OfHandler {
    fn new(handler: Handler) -> Self {
        let handler = ("handler", handler.as_str());
        OfHandler {
            duration: table::ATTEMPT_DURATION.histogram(&[handler]),
            delivered: table::ATTEMPTS.counter(&[handler, ("outcome", OutcomeClass::Delivered.as_str())]),
            retries: table::RETRIES.counter(&[handler]),
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let by_priority =
            |metric: &table::Metric| Priority::ALL.map(|priority| metric.histogram(&[("priority", priority.as_str())]));
        Metrics {
            received: table::MESSAGES_RECEIVED.counter(&[]),
            repeats: table::REPEATS_CAUGHT.counter(&[]),
            takeovers: table::TAKEOVERS.counter(&[]),
            fenced: table::FENCED_RECORDS.counter(&[]),
            store_failures: table::STORE_FAILURES.counter(&[]),
            limiter_wait: table::LIMITER_WAIT.histogram(&[]),
            clock_offset: table::CLOCK_OFFSET.gauge(&[]),
            queue_latency: by_priority(&table::QUEUE_LATENCY),
            start_lag: by_priority(&table::START_LAG),
            handlers: Handler::ALL.map(OfHandler::new),
            turns: kinds_of_turns().map(|(slot, priority)| ((slot, priority), turns(slot, priority))).collect(),
            in_flight: AtomicUsize::new(0),
            taken_over: AtomicUsize::new(0),
        }
    }

    /// A slot was taken: which kind of slots is short, and for whom.
    pub(crate) fn turn(&self, slot: Slot, priority: Priority) {
        if let Some(counter) = self.turns.get(&(slot, priority)) {
            counter.increment(1);
        }
    }

    /// A message was received for the first time, so long after it could be.
    pub(crate) fn waited_in_queue(&self, priority: Priority, latency_s: f64) {
        self.queue_latency[priority as usize].record(latency_s.max(0.0));
    }

    /// A run's first attempt begins, so long after it was due.
    pub(crate) fn started(&self, priority: Priority, lag_s: f64) {
        self.start_lag[priority as usize].record(lag_s.max(0.0));
    }

    /// A call ended.
    pub(crate) fn call(&self, handler: Handler, took: Duration) {
        self.handlers[handler as usize].duration.record(took.as_secs_f64());
    }

    pub(crate) fn attempt(&self, handler: Handler, attempt: u32, class: OutcomeClass) {
        let of_handler = &self.handlers[handler as usize];
        if attempt > 1 {
            of_handler.retries.increment(1);
        }
        match class {
            OutcomeClass::Delivered => of_handler.delivered.increment(1),
            class => {
                let labels = [("handler", handler.as_str()), ("outcome", class.as_str())];
                table::ATTEMPTS.counter(&labels).increment(1);
            }
        }
    }

    /// The worker of a run's last attempt is gone.
    pub(crate) fn lost(&self, handler: Handler) {
        let labels = [("handler", handler.as_str()), ("outcome", OutcomeClass::Lost.as_str())];
        table::ATTEMPTS.counter(&labels).increment(1);
    }

    pub(crate) fn put_back(&self, why: PutBack) {
        table::MESSAGES_PUT_BACK.counter(&[("why", why.as_str())]).increment(1);
    }

    pub(crate) fn dead_letter(&self, reason: &'static str) {
        table::DEAD_LETTERS.counter(&[("reason", reason)]).increment(1);
    }

    pub(crate) fn ended(&self, status: RunStatus) {
        table::RUNS_ENDED.counter(&[("status", status.as_str())]).increment(1);
    }

    pub(crate) fn skipped(&self, reason: SkipReason) {
        table::RUNS_SKIPPED.counter(&[("by", "worker"), ("reason", reason.as_str())]).increment(1);
    }

    /// A run is begun, until what is returned is dropped.
    pub(crate) fn begun(&self, is_taken_over: bool) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.taken_over.fetch_add(usize::from(is_taken_over), Ordering::Relaxed);
        InFlight { metrics: self, is_taken_over }
    }

    /// The heartbeat that was due at this instant ran.
    pub(crate) fn beat(&self, due_at: DateTime<Utc>, now: DateTime<Utc>) {
        let lag_ms = (now - due_at).num_milliseconds().max(0);
        // Told once: that nothing is told is the alarm.
        table::HEARTBEAT_TIMESTAMP.gauge(&[]).set(now.timestamp_millis() as f64 / 1_000.0);
        table::HEARTBEAT_LAG.gauge(&[]).set(lag_ms as f64 / 1_000.0);
    }

    /// Says what stands at this moment.
    pub(crate) fn set(&self, standing: &Standing) {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        table::RUNS_IN_FLIGHT.gauge(&[]).set(in_flight as f64);
        table::RUNS_STUCK.gauge(&[]).set(self.taken_over.load(Ordering::Relaxed) as f64);
        if let Some(holds) = standing.holds {
            table::HOLDS_IN_FORCE.gauge(&[]).set(holds as f64);
        }
        // A handler of which nothing stands is told as 0: an alarm must see that it is over.
        for handler in Handler::ALL.into_iter().filter(|handler| *handler != Handler::Noop) {
            let name = handler.as_str();
            let shares = standing.shares.get(name).copied().unwrap_or_default();
            table::RATE_SHARES_HELD.gauge(&[("target", name)]).set(f64::from(shares));
            for (state, is_it) in [("open", true), ("half_open", false)] {
                let of_state = |(target, gate): &&(Target, Gate)| {
                    target.kind() == name && matches!(gate, Gate::Open { .. }) == is_it
                };
                let circuits = standing.circuits.iter().filter(of_state).count();
                table::CIRCUITS.gauge(&[("handler", name), ("state", state)]).set(circuits as f64);
            }
        }
    }
}

/// What stands at a moment.
pub(crate) struct Standing {
    /// Holds in force; none = not known.
    pub(crate) holds: Option<usize>,
    /// Shares that may be used, by the kind of their target.
    pub(crate) shares: BTreeMap<&'static str, u32>,
    /// Circuits that are not closed.
    pub(crate) circuits: Vec<(Target, Gate)>,
}

/// A run that is begun.
pub(crate) struct InFlight<'a> {
    metrics: &'a Metrics,
    is_taken_over: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.metrics.taken_over.fetch_sub(usize::from(self.is_taken_over), Ordering::Relaxed);
    }
}

fn kinds_of_turns() -> impl Iterator<Item = (Slot, Priority)> {
    Slot::ALL.into_iter().flat_map(|slot| Priority::ALL.map(|priority| (slot, priority)))
}

fn turns(slot: Slot, priority: Priority) -> Counter {
    table::SLOTS_TAKEN.counter(&[("slot", slot.as_str()), ("queue", priority.as_str())])
}

//! What a worker says of itself, for operators to see: which of its circuits are not closed.
//!
//! No rule goes by it. A worker whose circuits are all closed says nothing, so a report is there while something is wrong,
//! and for as long after its writer's death as [`REPORT_VALID`] lets it count. Nothing here reads a clock or knows the store.

use crate::circuit::Gate;
use crate::target::Target;
use chrono::{DateTime, TimeDelta, Utc};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two reports of a worker that has something to say.
pub const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A report counts for so long after it was written: six times [`REPORT_EVERY`].
pub const REPORT_VALID: TimeDelta = TimeDelta::seconds(60);

/// A report so old was left by a worker that died, and may be removed by anybody.
pub const REPORT_LEFT: TimeDelta = TimeDelta::hours(1);

/// A report as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// The worker's id, random for each process.
    pub worker: String,
    /// When it was written.
    pub at: DateTime<Utc>,
    /// The circuits that are not closed.
    pub circuits: BTreeMap<Target, CircuitReport>,
}

/// One circuit that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitReport {
    /// How it stands.
    pub state: CircuitState,
    /// When its worker first found it not closed.
    pub since: DateTime<Utc>,
}

/// How a circuit stands that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CircuitState {
    /// No call is made.
    Open,
    /// The next call decides.
    HalfOpen,
}

impl CircuitState {
    /// How a gate stands; none = closed.
    pub fn of(gate: Gate) -> Option<Self> {
        match gate {
            Gate::Closed => None,
            Gate::HalfOpen => Some(CircuitState::HalfOpen),
            Gate::Open { .. } => Some(CircuitState::Open),
        }
    }

    /// The word for the store and for tables.
    pub fn as_str(self) -> &'static str {
        match self {
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half_open",
        }
    }
}

impl std::str::FromStr for CircuitState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = [CircuitState::Open, CircuitState::HalfOpen].into_iter().find(|state| state.as_str() == text);
        known.ok_or_else(|| format!("`{text}` is no state of a circuit: expected `open` or `half_open`"))
    }
}

/// What a worker says at `now` of the circuits that are not closed, given what it found at its last look.
pub fn circuit_reports(
    before: &BTreeMap<Target, CircuitReport>,
    not_closed: &[(Target, Gate)],
    now: DateTime<Utc>,
) -> BTreeMap<Target, CircuitReport> {
    let reports = not_closed.iter().filter_map(|(target, gate)| {
        let since = before.get(target).map_or(now, |before| before.since);
        Some((target.clone(), CircuitReport { state: CircuitState::of(*gate)?, since }))
    });
    reports.collect()
}

/// What workers say of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// How many say so.
    pub workers: usize,
    /// The earliest moment at which one of them found its circuit not closed.
    pub since: DateTime<Utc>,
    /// When the last of them said so.
    pub last: DateTime<Utc>,
}

/// What the workers say at `now`, by target and state. Reports that do not count any more are left out.
pub fn said(reports: &[WorkerReport], now: DateTime<Utc>) -> BTreeMap<(Target, CircuitState), Said> {
    let mut all = BTreeMap::new();
    for report in reports.iter().filter(|report| now - report.at <= REPORT_VALID) {
        for (target, CircuitReport { state, since }) in &report.circuits {
            let of = all.entry((target.clone(), *state)).or_insert(Said { workers: 0, since: *since, last: report.at });
            of.workers += 1;
            of.since = of.since.min(*since);
            of.last = of.last.max(report.at);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Gate = Gate::Open { until: Duration::from_secs(9) };

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + s, 0).unwrap()
    }

    fn report(worker: &str, written_s: i64, circuits: &[(Target, CircuitState, i64)]) -> WorkerReport {
        let circuits = circuits
            .iter()
            .map(|(target, state, since_s)| (target.clone(), CircuitReport { state: *state, since: at(*since_s) }));
        WorkerReport { worker: worker.into(), at: at(written_s), circuits: circuits.collect() }
    }

    #[test]
    fn a_circuit_is_not_closed_since_its_worker_first_found_it_so() {
        let (sms, hook) = (Target::sms(), Target::webhook("hooks.example.com"));
        let first = circuit_reports(&BTreeMap::new(), &[(sms.clone(), OPEN), (Target::noop(), Gate::Closed)], at(0));
        assert_eq!(first, report("w", 0, &[(sms.clone(), CircuitState::Open, 0)]).circuits);
        let second = circuit_reports(&first, &[(sms.clone(), Gate::HalfOpen), (hook.clone(), OPEN)], at(5));
        let expected = [(sms.clone(), CircuitState::HalfOpen, 0), (hook.clone(), CircuitState::Open, 5)];
        assert_eq!(second, report("w", 0, &expected).circuits);
        let closed = circuit_reports(&second, &[(hook, OPEN)], at(6));
        let again = circuit_reports(&closed, &[(sms.clone(), OPEN)], at(7));
        assert_eq!(again[&sms].since, at(7), "it was closed in between");
    }

    #[test]
    fn workers_that_say_the_same_are_counted_together() {
        let sms = Target::sms();
        let reports = [
            report("a", 3, &[(sms.clone(), CircuitState::Open, 1)]),
            report("b", 8, &[(sms.clone(), CircuitState::Open, 2), (Target::email(), CircuitState::HalfOpen, 4)]),
            report("c", 5, &[(sms.clone(), CircuitState::HalfOpen, 0)]),
        ];
        let one = |since_s, last_s| Said { workers: 1, since: at(since_s), last: at(last_s) };
        let expected = BTreeMap::from([
            ((sms.clone(), CircuitState::Open), Said { workers: 2, since: at(1), last: at(8) }),
            ((sms, CircuitState::HalfOpen), one(0, 5)),
            ((Target::email(), CircuitState::HalfOpen), one(4, 8)),
        ]);
        assert_eq!(said(&reports, at(10)), expected);
    }

    #[test]
    fn a_report_counts_for_a_minute() {
        let reports = [report("dead", 0, &[(Target::sms(), CircuitState::Open, 0)])];
        assert_eq!(said(&reports, at(60)).len(), 1);
        assert!(said(&reports, at(61)).is_empty());
    }

    #[test]
    fn a_state_reads_back_from_its_word() {
        for state in [CircuitState::Open, CircuitState::HalfOpen] {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("closed".parse::<CircuitState>().unwrap_err().contains("half_open"));
    }
}

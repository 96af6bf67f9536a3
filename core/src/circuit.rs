//! A circuit breaker for one target: when most calls fail, none are made for a while, and then one, to see.
//!
//! Part of step 8, *deliver*. An open circuit costs nobody an attempt: its runs are put back, those of other targets go on.
//! Each worker judges by its own calls. Times are readings of a monotonic clock, given by the caller.

use crate::retry::OutcomeClass;
use std::collections::VecDeque;
use std::time::Duration;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitRule {
    /// Failures among the latest [`JUDGED`] calls that open it, if they are at least half of these; zero = it never opens.
    pub failures: usize,
    /// How long it stays open the first time; twice as long each further time.
    pub first_open: Duration,
    /// The longest it stays open.
    pub longest_open: Duration,
}

/// How many of the latest calls are judged by.
pub const JUDGED: usize = 20;

impl Default for CircuitRule {
    /// Ten failures; 5 s to 60 s.
    fn default() -> Self {
        CircuitRule { failures: 10, first_open: Duration::from_secs(5), longest_open: Duration::from_secs(60) }
    }
}

/// Whether calls may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// As many as there are slots.
    Closed,
    /// One at a time, to see.
    HalfOpen,
    /// None before this.
    Open {
        /// A reading of the monotonic clock.
        until: Duration,
    },
}

impl Gate {
    /// The word for labels and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Gate::Closed => "closed",
            Gate::HalfOpen => "half_open",
            Gate::Open { .. } => "open",
        }
    }
}

/// What is known of one target.
#[derive(Clone, Debug, Default)]
pub struct Circuit {
    /// Whether each of the latest calls failed.
    latest: VecDeque<bool>,
    /// Until when none is to be made; none = closed.
    open_until: Option<Duration>,
    /// How often it opened since it was last closed.
    opened: u32,
    /// When the last call ended.
    used: Duration,
}

/// So long after its pause a circuit is tried by runs that have not failed before.
const OTHERS_FIRST: Duration = Duration::from_secs(60);
/// A circuit that nothing happened to for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

impl Circuit {
    /// Whether calls may be made at `now`.
    pub fn gate(&self, now: Duration) -> Gate {
        match self.open_until {
            None => Gate::Closed,
            Some(until) if now < until => Gate::Open { until },
            Some(_) => Gate::HalfOpen,
        }
    }

    /// Whether a run that has failed before leaves the next call, which is to try the target, to one that has not: trying is to
    /// use up nobody's attempts. After a while there is no such other.
    pub fn spares_the_tried(&self, now: Duration) -> bool {
        self.open_until.is_some_and(|until| now >= until && now - until < OTHERS_FIRST)
    }

    /// Counts a call that began at `began` and ended at `now`. A permanent refusal is an answer: its target is well.
    pub fn ended(&mut self, rule: &CircuitRule, class: OutcomeClass, began: Duration, now: Duration) {
        let failed = match class {
            OutcomeClass::Delivered | OutcomeClass::Permanent => false,
            OutcomeClass::Temporary | OutcomeClass::Unknown => true,
            OutcomeClass::Lost => return,
        };
        self.used = now;
        match self.open_until {
            // Began before it opened: says nothing about now.
            Some(until) if began < until => {}
            Some(_) if failed => self.open(rule, now),
            Some(_) => *self = Circuit { used: now, ..Circuit::default() },
            None => {
                self.latest.push_back(failed);
                if self.latest.len() > JUDGED {
                    self.latest.pop_front();
                }
                let failures = self.latest.iter().filter(|failed| **failed).count();
                if failed && rule.failures > 0 && failures >= rule.failures && failures * 2 >= self.latest.len() {
                    self.open(rule, now);
                }
            }
        }
    }

    /// Whether nothing happened to it for so long that it says nothing any more.
    pub fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.used.max(self.open_until.unwrap_or_default())) >= FORGOTTEN
    }

    fn open(&mut self, rule: &CircuitRule, now: Duration) {
        let lasts = (rule.first_open * 2u32.pow(self.opened.min(16))).min(rule.longest_open);
        self.open_until = Some(now + lasts);
        self.opened += 1;
        self.latest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutcomeClass::{Delivered, Permanent, Temporary, Unknown};

    const S: fn(u64) -> Duration = Duration::from_secs;
    const RULE: CircuitRule =
        CircuitRule { failures: 10, first_open: Duration::from_secs(5), longest_open: Duration::from_secs(60) };

    fn after(calls: impl IntoIterator<Item = OutcomeClass>) -> Circuit {
        let mut circuit = Circuit::default();
        calls.into_iter().for_each(|class| circuit.ended(&RULE, class, S(1), S(1)));
        circuit
    }

    #[test]
    fn it_opens_when_most_calls_fail_and_not_before() {
        assert_eq!(after([Temporary; 9]).gate(S(1)), Gate::Closed);
        assert_eq!(after([Temporary; 10]).gate(S(1)), Gate::Open { until: S(6) });
        assert_eq!(after([Unknown; 10]).gate(S(1)), Gate::Open { until: S(6) });
        let third = std::iter::repeat_n([Temporary, Delivered, Delivered], 100).flatten();
        assert_eq!(after(third).gate(S(1)), Gate::Closed, "a third of the numbers is bad luck of their own");
        assert_eq!(after([Permanent; 100]).gate(S(1)), Gate::Closed, "it answers");
        let never = CircuitRule { failures: 0, ..RULE };
        let mut circuit = Circuit::default();
        (0..100).for_each(|_| circuit.ended(&never, Temporary, S(1), S(1)));
        assert_eq!(circuit.gate(S(1)), Gate::Closed);
    }

    #[test]
    fn after_a_while_one_call_decides() {
        let mut circuit = after([Temporary; 10]);
        assert_eq!(circuit.gate(S(5)), Gate::Open { until: S(6) });
        assert_eq!(circuit.gate(S(6)), Gate::HalfOpen);
        circuit.ended(&RULE, Delivered, S(2), S(6));
        assert_eq!(circuit.gate(S(6)), Gate::HalfOpen, "that call began before it opened");
        circuit.ended(&RULE, Temporary, S(6), S(7));
        assert_eq!(circuit.gate(S(7)), Gate::Open { until: S(17) }, "twice as long");
        circuit.ended(&RULE, Permanent, S(17), S(18));
        assert_eq!(circuit.gate(S(18)), Gate::Closed);
        (0..10).for_each(|_| circuit.ended(&RULE, Temporary, S(20), S(20)));
        assert_eq!(circuit.gate(S(20)), Gate::Open { until: S(25) }, "the pauses begin anew");
    }

    #[test]
    fn runs_that_failed_before_are_spared_for_a_while_when_it_is_tried() {
        let mut circuit = after([Temporary; 10]);
        let opens_at = match circuit.gate(S(0)) {
            Gate::Open { until } => until,
            gate => panic!("{gate:?}"),
        };
        let spared = |circuit: &Circuit, after: u64| circuit.spares_the_tried(opens_at + S(after));
        assert!(!circuit.spares_the_tried(opens_at - S(1)), "nobody is called");
        assert!(spared(&circuit, 0) && spared(&circuit, 59) && !spared(&circuit, 60));
        circuit.ended(&CircuitRule::default(), OutcomeClass::Delivered, opens_at, opens_at + S(1));
        assert!(!spared(&circuit, 2), "it is well");
    }

    #[test]
    fn what_nobody_calls_any_more_is_forgotten() {
        let circuit = after([Temporary; 10]);
        assert!(!circuit.is_over(S(3_605)));
        assert!(circuit.is_over(S(3_606)));
    }

    #[test]
    fn no_pause_is_longer_than_the_longest() {
        let mut circuit = after([Temporary; 10]);
        let mut now = S(6);
        for _ in 0..40 {
            circuit.ended(&RULE, Temporary, now, now);
            let Gate::Open { until } = circuit.gate(now) else { panic!("closed") };
            assert!(until - now <= S(60));
            now = until;
        }
    }
}

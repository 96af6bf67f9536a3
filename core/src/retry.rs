//! What follows an attempt: again later, done, failed, dead, or a question for a person.
//!
//! Only temporary failures are retried, with full jitter. An unknown outcome (the request went out, no answer came back)
//! is retried only where the gateway drops repeats of the same reference; otherwise a person decides.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::time::Duration;

mod waits;

pub use waits::{LONGEST_WAIT_S, LONGEST_WAITS_S, Waits};

/// The most attempts a rule may ask for; a row keeps the history of as many.
pub const MOST_ATTEMPTS: u32 = 20;

/// How often a run is tried, and how long it waits in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRule {
    /// Attempts in all, the first one included; 1 to 20.
    pub max_attempts: u32,
    /// Bound of the first wait, in seconds; each further bound is twice the one before.
    pub base_s: u32,
    /// Highest bound of a wait, in seconds.
    pub cap_s: u32,
    /// The bound of each wait, in seconds, in place of base and cap; none = these.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waits_s: Option<Waits>,
}

impl Default for RetryRule {
    /// Six attempts, waits below 30, 60, 120, 240 and 480 seconds, cap 600 (mission 10).
    fn default() -> Self {
        RetryRule { max_attempts: 6, base_s: 30, cap_s: 600, waits_s: None }
    }
}

impl RetryRule {
    /// A rule that waits below each of these seconds in turn, and tries once more than there are waits. Its base is the first of
    /// them and its cap the longest.
    ///
    /// # Errors
    /// Names the bound that is broken.
    pub fn with_waits(waits_s: &[u32]) -> Result<Self, String> {
        let waits = Waits::new(waits_s)?;
        let (base_s, cap_s) = (waits.get(0).unwrap_or_default(), waits.longest());
        Ok(RetryRule { max_attempts: waits.len() + 1, base_s, cap_s, waits_s: Some(waits) })
    }

    /// The bound of the wait after attempt `attempt` (the first is 1).
    pub fn bound(&self, attempt: u32) -> Duration {
        if let Some(waits) = &self.waits_s {
            return Duration::from_secs(waits.get(attempt.saturating_sub(1)).unwrap_or(self.cap_s).into());
        }
        let doubled = u64::from(self.base_s) << attempt.saturating_sub(1).min(31);
        Duration::from_secs(doubled.min(u64::from(self.cap_s)))
    }

    /// The wait after attempt `attempt`: full jitter, `random` in `[0, 1)` of the bound.
    pub fn wait(&self, attempt: u32, random: f64) -> Duration {
        self.bound(attempt).mul_f64(random.clamp(0.0, 1.0))
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MOST_ATTEMPTS).contains(&self.max_attempts) {
            return Err(format!("max_attempts {} is out of range 1-{MOST_ATTEMPTS}", self.max_attempts));
        }
        if let Some(waits) = &self.waits_s {
            let (attempts, asked) = (waits.len() + 1, self.max_attempts);
            let fits = attempts == asked && self.base_s >= 1 && self.cap_s == waits.longest();
            let problem =
                format!("{} waits are for {attempts} attempts, up to the longest of them; found {asked}", waits.len());
            return if fits { Ok(()) } else { Err(problem) };
        }
        if self.base_s == 0 || self.base_s > self.cap_s || self.cap_s > 3_600 {
            return Err(format!(
                "waits of base {} s and cap {} s are out of range: 1 ≤ base ≤ cap ≤ 3600",
                self.base_s, self.cap_s
            ));
        }
        Ok(())
    }
}

/// What to do where nobody knows whether the message went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnknown {
    /// Send again: at-least-once, the customer may get two.
    Retry,
    /// Leave it to a person: the run ends `indeterminate`.
    Hold,
}

/// What is known of a gateway's way with repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayPolicy {
    /// For how long after the first try the gateway drops a repeat of the same reference; zero = it never does. Inside
    /// the window an unknown outcome is always retried.
    pub dedupe_window: Duration,
    /// Outside the window: the call timed out, or the connection was lost after the request went out.
    pub on_unknown: WhenUnknown,
    /// Outside the window: the worker that held the run is gone.
    pub on_takeover: WhenUnknown,
}

impl Default for GatewayPolicy {
    fn default() -> Self {
        GatewayPolicy { dedupe_window: Duration::ZERO, on_unknown: WhenUnknown::Hold, on_takeover: WhenUnknown::Retry }
    }
}

impl GatewayPolicy {
    /// What to do about an attempt of this class whose repeat the gateway would not drop; none where the outcome is known.
    pub fn when_unknown(&self, class: OutcomeClass) -> Option<WhenUnknown> {
        match class {
            OutcomeClass::Unknown => Some(self.on_unknown),
            OutcomeClass::Lost => Some(self.on_takeover),
            OutcomeClass::Delivered | OutcomeClass::Temporary | OutcomeClass::Permanent => None,
        }
    }

    /// Whether a repeat sent at `at` of a call first made at `first_call_at` is dropped by the gateway.
    pub fn drops_repeat(&self, first_call_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        (at - first_call_at).to_std().unwrap_or_default() < self.dedupe_window
    }
}

/// How a call to a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The gateway has it, under this id of its own.
    Delivered {
        /// The gateway's id of the message, for support.
        gateway_ref: String,
    },
    /// It did not go out, and may at another time.
    Temporary {
        /// What happened, without personal data.
        reason: String,
        /// What the gateway asked for.
        retry_after: Option<Duration>,
    },
    /// It did not go out and never will.
    Permanent {
        /// What happened, without personal data.
        reason: String,
    },
    /// It did not go out, and the receiver wants no more of this job: a permanent failure, and its job is paused.
    Gone {
        /// What happened, without personal data.
        reason: String,
    },
    /// The request went out and no answer came back.
    Unknown {
        /// What happened, without personal data.
        reason: String,
    },
}

impl Outcome {
    /// The class kept in the row and counted in metrics.
    pub fn class(&self) -> OutcomeClass {
        match self {
            Outcome::Delivered { .. } => OutcomeClass::Delivered,
            Outcome::Temporary { .. } => OutcomeClass::Temporary,
            Outcome::Permanent { .. } | Outcome::Gone { .. } => OutcomeClass::Permanent,
            Outcome::Unknown { .. } => OutcomeClass::Unknown,
        }
    }

    /// What happened, for the row; nothing for a delivery.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Outcome::Delivered { .. } => None,
            Outcome::Temporary { reason, .. }
            | Outcome::Permanent { reason }
            | Outcome::Gone { reason }
            | Outcome::Unknown { reason } => Some(reason),
        }
    }
}

/// [`Outcome`] without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeClass {
    /// Accepted by the gateway.
    Delivered,
    /// Not sent, try again.
    Temporary,
    /// Not sent, do not try again.
    Permanent,
    /// The request went out and no answer came back: nobody knows.
    Unknown,
    /// The worker that made the attempt is gone: nobody knows.
    Lost,
}

impl OutcomeClass {
    /// The word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeClass::Delivered => "delivered",
            OutcomeClass::Temporary => "temporary",
            OutcomeClass::Permanent => "permanent",
            OutcomeClass::Unknown => "unknown",
            OutcomeClass::Lost => "lost",
        }
    }
}

/// What becomes of a run after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered.
    Succeeded,
    /// It never will be; no dead letter, the row says why.
    Failed,
    /// The attempts are used up: dead letter.
    Dead,
    /// Nobody knows and a repeat would reach the customer: dead letter.
    Indeterminate,
    /// Again after this wait.
    RetryAfter(Duration),
}

/// Decides what follows attempt `attempt`, which ended with `outcome` at `now`. `first_unknown_at` is the start of the
/// earliest attempt of this run whose outcome nobody knows, this one included; `random` is in `[0, 1)`.
pub fn after_attempt(
    outcome: &Outcome,
    attempt: u32,
    rule: &RetryRule,
    gateway: &GatewayPolicy,
    first_unknown_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
    random: f64,
) -> Verdict {
    let left = attempt < rule.max_attempts;
    let wait = rule.wait(attempt, random);
    match outcome {
        Outcome::Delivered { .. } => Verdict::Succeeded,
        Outcome::Permanent { .. } | Outcome::Gone { .. } => Verdict::Failed,
        Outcome::Temporary { retry_after, .. } if left => {
            // What the gateway asks for is respected up to the rule's cap, so that it cannot park a run for ever.
            let asked = retry_after.unwrap_or_default().min(Duration::from_secs(u64::from(rule.cap_s)));
            Verdict::RetryAfter(wait.max(asked))
        }
        Outcome::Temporary { .. } => Verdict::Dead,
        Outcome::Unknown { .. } => {
            let dropped = first_unknown_at.is_some_and(|first| gateway.drops_repeat(first, now + wait));
            match (dropped || gateway.on_unknown == WhenUnknown::Retry, left) {
                (true, true) => Verdict::RetryAfter(wait),
                _ => Verdict::Indeterminate,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RetryRule = RetryRule { max_attempts: 6, base_s: 30, cap_s: 600, waits_s: None };

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(s, 0).unwrap()
    }

    fn temporary() -> Outcome {
        Outcome::Temporary { reason: "503".into(), retry_after: None }
    }

    #[test]
    fn the_five_waits_stay_below_their_bounds() {
        let bounds: Vec<u64> = (1..=5).map(|n| RULE.bound(n).as_secs()).collect();
        assert_eq!(bounds, [30, 60, 120, 240, 480]);
        assert_eq!(RULE.bound(6), Duration::from_secs(600));
        assert_eq!(RULE.bound(40), Duration::from_secs(600));
        assert_eq!(RULE.wait(1, 0.5), Duration::from_secs(15));
        assert_eq!(bounds.iter().sum::<u64>(), 930);
    }

    #[test]
    fn the_first_retries_of_50_000_runs_spread_over_half_a_minute() {
        use rand::{Rng, SeedableRng};
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        let mut seconds = [0u32; 30];
        for _ in 0..50_000 {
            seconds[RULE.wait(1, random.random()).as_secs() as usize] += 1;
        }
        assert!(seconds.iter().all(|n| (1_500..=1_900).contains(n)), "{seconds:?}");
    }

    #[test]
    fn no_run_that_fails_to_the_end_waits_for_more_than_930_seconds_in_all() {
        use rand::{Rng, SeedableRng};
        let gateway = GatewayPolicy::default();
        let waits_in_all = |random: &mut dyn FnMut() -> f64| {
            let mut in_all = Duration::ZERO;
            for attempt in 1.. {
                match after_attempt(&temporary(), attempt, &RetryRule::default(), &gateway, None, at(0), random()) {
                    Verdict::RetryAfter(wait) => in_all += wait,
                    end => {
                        assert_eq!((attempt, end), (6, Verdict::Dead));
                        break;
                    }
                }
            }
            in_all
        };
        let mut random = rand::rngs::StdRng::seed_from_u64(2);
        let longest = (0..50_000).map(|_| waits_in_all(&mut || random.random())).max().unwrap();
        assert!(longest <= Duration::from_secs(930), "{longest:?}");
        // The jitter is over the whole bound: with the greatest of it, all but nothing of the 930 s is used.
        assert!(waits_in_all(&mut || 1.0 - f64::EPSILON) > Duration::from_secs(929));
    }

    #[test]
    fn each_outcome_leads_where_the_mission_says() {
        let plain = GatewayPolicy::default();
        let dropping = GatewayPolicy { dedupe_window: Duration::from_secs(3_600), ..plain };
        let eager = GatewayPolicy { on_unknown: WhenUnknown::Retry, ..plain };
        let unknown = Outcome::Unknown { reason: "timeout".into() };
        let delivered = Outcome::Delivered { gateway_ref: "g1".into() };
        let permanent = Outcome::Permanent { reason: "bad number".into() };
        let gone = Outcome::Gone { reason: "410".into() };
        let wait = |s| Verdict::RetryAfter(Duration::from_secs(s));
        for (outcome, attempt, gateway, first_unknown, expected) in [
            (&delivered, 1, &plain, None, Verdict::Succeeded),
            (&permanent, 1, &plain, None, Verdict::Failed),
            (&gone, 1, &plain, None, Verdict::Failed),
            (&temporary(), 1, &plain, None, wait(15)),
            (&temporary(), 5, &plain, None, wait(240)),
            (&temporary(), 6, &plain, None, Verdict::Dead),
            (&unknown, 1, &plain, Some(at(990)), Verdict::Indeterminate),
            (&unknown, 1, &dropping, Some(at(990)), wait(15)),
            (&unknown, 2, &dropping, Some(at(-2_590)), Verdict::Indeterminate), // the window ends during the wait
            (&unknown, 1, &eager, Some(at(990)), wait(15)),
            (&unknown, 6, &dropping, Some(at(990)), Verdict::Indeterminate),
        ] {
            let verdict = after_attempt(outcome, attempt, &RULE, gateway, first_unknown, at(1_000), 0.5);
            assert_eq!(verdict, expected, "{outcome:?} attempt {attempt}");
        }
    }

    #[test]
    fn a_retry_after_is_respected_up_to_the_cap() {
        let asks = |s| Outcome::Temporary { reason: "429".into(), retry_after: Some(Duration::from_secs(s)) };
        let after = |s| after_attempt(&asks(s), 1, &RULE, &GatewayPolicy::default(), None, at(0), 0.1);
        assert_eq!(after(1), Verdict::RetryAfter(Duration::from_secs(3)));
        assert_eq!(after(45), Verdict::RetryAfter(Duration::from_secs(45)));
        assert_eq!(after(86_400), Verdict::RetryAfter(Duration::from_secs(600)));
    }

    #[test]
    fn a_rule_out_of_range_is_refused() {
        assert!(RULE.check().is_ok());
        assert!(RetryRule { max_attempts: 0, ..RULE }.check().unwrap_err().contains("1-20"));
        assert!(RetryRule { base_s: 700, ..RULE }.check().unwrap_err().contains("base"));
    }

    #[test]
    fn a_list_of_waits_bounds_each_wait_and_counts_the_attempts() {
        let rule = RetryRule::with_waits(&[30, 120, 86_400]).unwrap();
        assert_eq!((rule.max_attempts, rule.check()), (4, Ok(())));
        assert_eq!((1..=3).map(|n| rule.bound(n).as_secs()).collect::<Vec<_>>(), [30, 120, 86_400]);
        assert_eq!(rule.wait(2, 0.5), Duration::from_secs(60));
        let fails = |attempt| after_attempt(&temporary(), attempt, &rule, &GatewayPolicy::default(), None, at(0), 0.5);
        assert_eq!((fails(3), fails(4)), (Verdict::RetryAfter(Duration::from_secs(43_200)), Verdict::Dead));
        assert!(RetryRule { max_attempts: 5, ..rule }.check().unwrap_err().contains("4 attempts"));
    }

    #[test]
    fn rules_read_back_as_they_were_stored_lists_or_not() {
        let old: RetryRule = serde_json::from_str(r#"{"max_attempts":6,"base_s":30,"cap_s":600}"#).unwrap();
        assert_eq!(old, RULE);
        assert_eq!(serde_json::to_string(&RULE).unwrap(), r#"{"max_attempts":6,"base_s":30,"cap_s":600}"#);
        let rule = RetryRule::with_waits(&[30, 600]).unwrap();
        let stored = serde_json::to_string(&rule).unwrap();
        assert_eq!(stored, r#"{"max_attempts":3,"base_s":30,"cap_s":600,"waits_s":[30,600]}"#);
        assert_eq!(serde_json::from_str::<RetryRule>(&stored).unwrap(), rule);
        assert!(serde_json::from_str::<RetryRule>(&stored.replace("[30,600]", "[0]")).is_err());
    }
}

//! Step 3, *dispatch*: what happens when several firings of one job were missed.
//!
//! One pure function of the rule, the owed firings and now. Its answer is a step, not a plan: the scheduler performs it,
//! advances the job, and asks again with what is owed then. So every step is safe to repeat, and none is too large.

use crate::deadline::StartRule;
use crate::run::SkipReason;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Firings later than this were missed. A shard that changes hands makes a run late by less.
pub const MISSED_AFTER: TimeDelta = TimeDelta::minutes(2);

/// The most owed firings of one job that one step looks at, runs or skips.
pub const MOST_IN_ONE_STEP: usize = 1_000;

/// What happens when several firings of one job were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Many {
    /// The latest one is run, the others are skipped as one row.
    #[default]
    Latest,
    /// Each one is run.
    All,
    /// None is run: what is missed is skipped as one row.
    None,
}

impl Many {
    /// The word for files, tables and options.
    pub fn as_str(self) -> &'static str {
        match self {
            Many::Latest => "latest",
            Many::All => "all",
            Many::None => "none",
        }
    }
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Many {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Many::Latest, Many::All, Many::None]
            .into_iter()
            .find(|many| many.as_str() == text)
            .ok_or_else(|| "a rule for missed firings is `latest`, `all` or `none`".into())
    }
}

/// A job's missed-run rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedRule {
    /// What happens to several.
    pub many: Many,
    /// How late each may start.
    pub start: StartRule,
}

/// A firing that is due and not yet done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// When it was due.
    pub due_at: DateTime<Utc>,
    /// Until when it may start.
    pub deadline: Option<DateTime<Utc>>,
}

/// What is to be done first about owed firings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Run the first so many, each as a run of its own.
    Fire(usize),
    /// Skip the first so many, for this reason, each with a row of its own.
    Skip(usize, SkipReason),
    /// Skip the first so many, at least two, as one row.
    Coalesce(usize, SkipReason),
}

/// Rules on a job's owed firings, the oldest first, at least one. `more` says that there are yet others behind them.
///
/// Where firings may be coalesced, none is run together with others: so only the oldest owed one can be in a queue already
/// (its advance failed), and a row over several never covers a run that is on its way under another row.
pub fn rule(many: Many, owed: &[Owed], more: bool, now: DateTime<Utc>) -> Ruling {
    let all = owed.len();
    let expired = owed.iter().take_while(|one| one.deadline.is_some_and(|deadline| now > deadline)).count();
    let is_missed = owed.first().is_some_and(|oldest| now - oldest.due_at > MISSED_AFTER);
    let coalesce = |count, reason| match count {
        1 => Ruling::Skip(1, reason),
        _ => Ruling::Coalesce(count, reason),
    };
    match many {
        Many::All if expired > 0 => Ruling::Skip(expired, SkipReason::Deadline),
        Many::All => Ruling::Fire(all),
        Many::None if is_missed => coalesce(all, SkipReason::Missed),
        Many::Latest if is_missed && more => coalesce(all, SkipReason::Missed),
        Many::Latest if is_missed && all > 1 && expired < all => coalesce(all - 1, SkipReason::Missed),
        _ if expired > 0 => coalesce(expired, SkipReason::Deadline),
        _ => Ruling::Fire(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: i64 = 3_600;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + s, 0).unwrap()
    }

    /// Firings `every` seconds apart, the first due at 0, and all that is due at `now`.
    fn owed(every: i64, now: i64, within: Option<i64>) -> Vec<Owed> {
        let firing = |s| Owed { due_at: at(s), deadline: within.map(|w| at(s + w)) };
        (0..=now / every).map(|n| firing(n * every)).collect()
    }

    #[test]
    fn a_minutely_job_that_was_down_for_49_minutes_owes_50_firings() {
        let now = 49 * 60; // next was 08:58, now it is 09:47
        let owed = owed(60, now, None);
        assert_eq!(rule(Many::All, &owed, false, at(now)), Ruling::Fire(50));
        assert_eq!(rule(Many::Latest, &owed, false, at(now)), Ruling::Coalesce(49, SkipReason::Missed));
        assert_eq!(rule(Many::Latest, &owed[49..], false, at(now)), Ruling::Fire(1));
        assert_eq!(rule(Many::None, &owed, false, at(now)), Ruling::Coalesce(50, SkipReason::Missed));
    }

    #[test]
    fn a_take_over_is_not_a_miss() {
        for many in [Many::All, Many::Latest, Many::None] {
            let at_once = if many == Many::All { 3 } else { 1 };
            assert_eq!(rule(many, &owed(60, 120, None), false, at(120)), Ruling::Fire(at_once), "{many}");
            assert_eq!(rule(many, &owed(HOUR, 0, None), false, at(120)), Ruling::Fire(1), "{many}");
        }
        assert_eq!(rule(Many::None, &owed(HOUR, 0, None), false, at(121)), Ruling::Skip(1, SkipReason::Missed));
        assert_eq!(rule(Many::Latest, &owed(HOUR, 0, None), false, at(121)), Ruling::Fire(1));
    }

    #[test]
    fn what_is_past_its_deadline_is_skipped_whatever_the_rule() {
        // Six hourly firings, each with two hours to start, five hours and a second after the first.
        let (owed, now) = (owed(HOUR, 5 * HOUR, Some(2 * HOUR)), at(5 * HOUR + 1));
        assert_eq!(rule(Many::All, &owed, false, now), Ruling::Skip(4, SkipReason::Deadline));
        assert_eq!(rule(Many::All, &owed[4..], false, now), Ruling::Fire(2));
        assert_eq!(rule(Many::Latest, &owed, false, now), Ruling::Coalesce(5, SkipReason::Missed));
        let late = at(9 * HOUR);
        assert_eq!(rule(Many::Latest, &owed, false, late), Ruling::Coalesce(6, SkipReason::Deadline));
        assert_eq!(rule(Many::None, &owed, false, late), Ruling::Coalesce(6, SkipReason::Missed));
        // Late by less than a miss, but later than allowed.
        let tight = [Owed { due_at: at(0), deadline: Some(at(30)) }];
        assert_eq!(rule(Many::Latest, &tight, false, at(31)), Ruling::Skip(1, SkipReason::Deadline));
        assert_eq!(rule(Many::Latest, &tight, false, at(30)), Ruling::Fire(1), "the deadline itself is in time");
    }

    #[test]
    fn an_outage_of_any_length_is_worked_off_in_bounded_steps() {
        let (now, all) = (20_000 * 60, MOST_IN_ONE_STEP);
        let owed: Vec<Owed> = owed(60, now, None).into_iter().take(all).collect();
        assert_eq!(rule(Many::All, &owed, true, at(now)), Ruling::Fire(all));
        assert_eq!(rule(Many::Latest, &owed, true, at(now)), Ruling::Coalesce(all, SkipReason::Missed));
        assert_eq!(rule(Many::None, &owed, true, at(now)), Ruling::Coalesce(all, SkipReason::Missed));
    }

    proptest! {
        // Asked again and again, each rule gets to the end, and every firing is in exactly one step.
        #[test]
        fn every_firing_is_fired_or_skipped_once(
            many in prop::sample::select(vec![Many::All, Many::Latest, Many::None]),
            every in 60i64..5_000, down in 0i64..200_000, within in prop::option::of(10i64..50_000), most in 1usize..60,
        ) {
            let owed = owed(every, down, within);
            let (mut done, mut fired) = (0, Vec::new());
            while done < owed.len() {
                let end = (done + most).min(owed.len());
                match rule(many, &owed[done..end], end < owed.len(), at(down)) {
                    Ruling::Fire(n) => { prop_assert!(n > 0); fired.extend(done..done + n); done += n; }
                    Ruling::Skip(n, _) => { prop_assert!(n > 0); done += n; }
                    Ruling::Coalesce(n, _) => { prop_assert!(n > 1 && many != Many::All); done += n; }
                }
                prop_assert!(done <= owed.len());
            }
            let in_time = |n: &usize| within.is_none_or(|w| down <= *n as i64 * every + w);
            let missed = |n: usize| down - n as i64 * every > 120;
            prop_assert!(fired.iter().all(in_time), "nothing is fired past its deadline");
            match many {
                Many::All => prop_assert_eq!(fired, (0..owed.len()).filter(in_time).collect::<Vec<_>>()),
                Many::Latest => prop_assert_eq!(fired.contains(&(owed.len() - 1)), in_time(&(owed.len() - 1))),
                Many::None => prop_assert!(fired.iter().all(|n| !missed(*n))),
            }
        }
    }
}

//! What the store's answers say about its time.
//!
//! An answer carries the store's time in whole seconds, cut off, never rounded up. A request sent at `s` and answered at
//! `r` with the date `d`, by a clock that cannot be set, shows that the store is ahead of that clock by at least `d − r`
//! and by less than `d + 1 s − s`. The tightest bound of many answers on either side is kept; it gets looser with time,
//! by as much as two clocks can drift apart. So few numbers are kept, a slow answer loosens nothing, and an old one is
//! worth less than a new one.
//!
//! **The reading is the lower bound.** With one host behind the store it is never early at all, and late by less than a
//! second and a round trip after the first answer, by little more than the way back after some. Any other point of the
//! interval would be early by up to its distance from the lower bound, a whole round trip included. What the promise
//! *never early by more than a second* leaves free is for hosts of the store whose clocks disagree: the reading follows
//! the fastest of them, so it is early by at most what that one is ahead. Where bounds contradict each other by more
//! than this second, the machine stood still or a clock was set, and the newest answer alone counts.
//!
//! Nothing here reads a clock.

use chrono::{DateTime, Utc};
use std::time::Duration;

/// By how much the reading may be ahead of what any host of the store says: the promise.
pub const MOST_EARLY: Duration = Duration::from_secs(1);
/// Nanoseconds within which two clocks drift apart by one: 500 ppm, the most by which `adjtimex` corrects a clock's rate.
const DRIFT: i64 = 2_000;
/// Resolution of HTTP's `Date`.
const SECOND_NS: i64 = 1_000_000_000;

/// One answer of the store, by a clock that is never set.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When the request went out, or earlier.
    pub sent: Duration,
    /// When the answer was there, or later.
    pub received: Duration,
    /// The date in the answer; what it has beyond whole seconds is cut off.
    pub date: DateTime<Utc>,
}

/// How far the store is ahead of the clock, as one answer showed it, and when that was.
#[derive(Clone, Copy, Debug)]
struct Bound {
    ahead_ns: i64,
    at: Duration,
}

impl Bound {
    /// How much looser it has become by `at`.
    fn loosened_ns(&self, at: Duration) -> i64 {
        nanos(at.abs_diff(self.at)) / DRIFT + 1
    }
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    lower: Bound,
    upper: Bound,
}

impl Bounds {
    /// Lower and upper bound in nanoseconds at `at`.
    fn at(&self, at: Duration) -> (i64, i64) {
        let Bounds { lower, upper } = self;
        (lower.ahead_ns - lower.loosened_ns(at), upper.ahead_ns + upper.loosened_ns(at))
    }
}

/// The store's time at one moment: it is not before `earliest`, and before `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What counts as now.
    pub earliest: DateTime<Utc>,
    /// How late that may be.
    pub latest: DateTime<Utc>,
}

impl Reading {
    /// The middle. It stays where it is while both bounds get looser.
    pub fn middle(&self) -> DateTime<Utc> {
        self.earliest + (self.latest - self.earliest) / 2
    }

    /// How far the store's time may be from the middle.
    pub fn exact_to(&self) -> Duration {
        ((self.latest - self.earliest) / 2).to_std().unwrap_or_default()
    }

    /// Time until the middle is a whole second: an answer given then tells the two halves apart.
    pub fn until_best_asked(&self) -> Duration {
        Duration::from_nanos(u64::from(1_000_000_000 - self.middle().timestamp_subsec_nanos().min(999_999_999)))
    }
}

/// What is known of the store's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchor {
    bounds: Option<Bounds>,
}

impl Anchor {
    /// Takes an answer into account. One whose date is beyond all calendars, or whose times are in the wrong order, says
    /// nothing.
    pub fn hear(&mut self, sample: &Sample) {
        let date_ns = sample.date.timestamp().checked_mul(SECOND_NS);
        let Some(date_ns) = date_ns.filter(|_| sample.sent <= sample.received) else { return };
        let new = Bounds {
            lower: Bound { ahead_ns: date_ns.saturating_sub(nanos(sample.received)), at: sample.received },
            upper: Bound { ahead_ns: (date_ns + SECOND_NS).saturating_sub(nanos(sample.sent)), at: sample.sent },
        };
        self.bounds = Some(self.bounds.map_or(new, |known| combine(known, new, sample.received)));
    }

    /// The store's time when the clock shows `at`; none before the first answer.
    pub fn read(&self, at: Duration) -> Option<Reading> {
        let (earliest, latest) = self.bounds.as_ref()?.at(at);
        let instant = |ahead_ns: i64| DateTime::from_timestamp_nanos(ahead_ns.saturating_add(nanos(at)));
        Some(Reading { earliest: instant(earliest), latest: instant(latest) })
    }
}

/// The tighter bound on either side, or the new ones alone if old and new contradict each other.
fn combine(known: Bounds, new: Bounds, at: Duration) -> Bounds {
    let ((lower, upper), (new_lower, new_upper)) = (known.at(at), new.at(at));
    let allowed = nanos(MOST_EARLY);
    if new_lower > upper + allowed || new_upper < lower - allowed {
        return new;
    }
    let lower_bound = if new_lower >= lower { new.lower } else { known.lower };
    let upper_bound = if new_upper <= upper { new.upper } else { known.upper };
    if upper.min(new_upper) >= lower.max(new_lower) {
        return Bounds { lower: lower_bound, upper: upper_bound };
    }
    // Hosts of the store disagree a little. The reading follows the fastest, and no bound lies below it.
    Bounds { lower: lower_bound, upper: Bound { ahead_ns: lower.max(new_lower), at } }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

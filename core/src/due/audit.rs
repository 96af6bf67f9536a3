//! Which minutes that a cursor has passed are looked at again.
//!
//! Nothing should be left behind a cursor. What is there all the same, by a clock that was wrong, a lag nobody foresaw or
//! a store restored from a backup, is found here: sooner the younger it is. Nothing here reads a clock or the store.

use super::{Cursor, Minute};
use chrono::{DateTime, TimeDelta, Utc};

/// A stretch of the past, by the age of its minutes, and how often each of them is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Minutes younger than this belong to the tier before.
    pub from: TimeDelta,
    /// Minutes older than this belong to the tier behind.
    pub to: TimeDelta,
    /// Each minute is read once in this time.
    pub every: TimeDelta,
}

/// The last hour every minute, the last day every hour, fourteen days every day.
pub const TIERS: [Tier; 3] = [
    Tier { from: TimeDelta::zero(), to: TimeDelta::hours(1), every: TimeDelta::minutes(1) },
    Tier { from: TimeDelta::hours(1), to: TimeDelta::hours(24), every: TimeDelta::hours(1) },
    Tier { from: TimeDelta::hours(24), to: TimeDelta::days(14), every: TimeDelta::days(1) },
];

/// The most minutes that one look reads: a reader that stood still does not make up for all it left out at once.
const MOST_AT_ONCE: i64 = 60;

impl Tier {
    fn oldest(&self, now: DateTime<Utc>) -> i64 {
        Minute::of(now - self.to).0
    }

    /// Behind its youngest minute.
    fn end(&self, now: DateTime<Utc>) -> i64 {
        Minute::of(now - self.from).0
    }

    /// Minutes to be read in `passed`. A little more than its share: while a sweep goes on, time adds minutes at its end.
    fn owed(&self, passed: TimeDelta) -> f64 {
        let length = (self.to - self.from).num_minutes() as f64;
        let every_s = self.every.num_seconds() as f64;
        passed.as_seconds_f64() * (length / every_s + 1.0 / 60.0)
    }
}

/// Where one shard's sweeps stand.
#[derive(Clone, Debug)]
pub struct Audit {
    looked_at: DateTime<Utc>,
    sweeps: [Sweep; TIERS.len()],
}

#[derive(Clone, Copy, Debug)]
struct Sweep {
    next: i64,
    owed: f64,
}

impl Audit {
    /// Sweeps that begin where those of a reader that never stopped would stand at `now`: shards change hands more often
    /// than fourteen days are read.
    pub fn begin(now: DateTime<Utc>) -> Self {
        let sweeps = TIERS.map(|tier| {
            let (oldest, end) = (tier.oldest(now), tier.end(now));
            let every = tier.every.num_seconds();
            let passed = now.timestamp().rem_euclid(every);
            Sweep { next: oldest + (end - oldest) * passed / every, owed: 0.0 }
        });
        Audit { looked_at: now, sweeps }
    }

    /// The minutes before `cursor` to be read at `now`. What the cursor has not passed is read anyway.
    pub fn minutes(&mut self, now: DateTime<Utc>, cursor: Cursor) -> Vec<Minute> {
        let passed = (now - self.looked_at).max(TimeDelta::zero());
        self.looked_at = now;
        let mut minutes = Vec::new();
        for (tier, sweep) in TIERS.iter().zip(&mut self.sweeps) {
            sweep.owed = (sweep.owed + tier.owed(passed)).min(MOST_AT_ONCE as f64);
            let (oldest, end) = (tier.oldest(now), tier.end(now).min(cursor.0.0));
            while sweep.owed >= 1.0 && oldest < end {
                if !(oldest..end).contains(&sweep.next) {
                    sweep.next = oldest;
                }
                minutes.push(Minute(sweep.next));
                sweep.next += 1;
                sweep.owed -= 1.0;
            }
        }
        minutes
    }

    /// How many minutes one shard's audit reads in an hour.
    pub fn reads_per_hour() -> f64 {
        TIERS.iter().map(|tier| tier.owed(TimeDelta::hours(1))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SETTLE;
    use super::*;
    use std::collections::BTreeMap;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + s, 0).unwrap()
    }

    fn cursor(now: DateTime<Utc>) -> Cursor {
        Cursor(Minute::of(now - SETTLE))
    }

    /// When each minute was read in so many seconds of ticks.
    fn reads(seconds: i64, tick: i64) -> BTreeMap<Minute, Vec<i64>> {
        let mut audit = Audit::begin(at(0));
        let mut reads: BTreeMap<Minute, Vec<i64>> = BTreeMap::new();
        for s in (0..seconds).step_by(tick as usize) {
            for minute in audit.minutes(at(s), cursor(at(s))) {
                reads.entry(minute).or_default().push(s);
            }
        }
        reads
    }

    #[test]
    fn each_tier_reads_each_of_its_minutes_once_in_its_time() {
        let day = 86_400;
        let reads = reads(2 * day + 7_200, 1);
        let widest_gap = |age: TimeDelta, span: std::ops::Range<i64>| {
            let times = &reads[&Minute::of(at(span.start) - age)];
            let inside: Vec<i64> = times.iter().copied().filter(|s| span.contains(s)).collect();
            let bounds = [span.start].into_iter().chain(inside).chain([span.end]).collect::<Vec<_>>();
            bounds.windows(2).map(|two| two[1] - two[0]).max().unwrap()
        };
        for age_min in [8, 20, 40] {
            assert!(widest_gap(TimeDelta::minutes(age_min), 600..1_500) <= 61, "{age_min} min");
        }
        for age_h in [2, 10, 20] {
            assert!(widest_gap(TimeDelta::hours(age_h), 0..3 * 3_600) <= 3_610, "{age_h} h");
        }
        for age_d in [2, 7, 11] {
            assert!(widest_gap(TimeDelta::days(age_d), 0..2 * day) <= day + 100, "{age_d} d");
        }
    }

    #[test]
    fn nothing_that_the_cursor_has_not_passed_is_read_twice() {
        let mut audit = Audit::begin(at(0));
        let behind = Cursor(Minute::of(at(0) - TimeDelta::hours(2)));
        let minutes: Vec<Minute> = (0..600).flat_map(|s| audit.minutes(at(s), behind)).collect();
        assert!(!minutes.is_empty());
        assert!(minutes.iter().all(|minute| *minute < behind.0));
    }

    #[test]
    fn a_reader_that_stood_still_or_whose_clock_went_back_does_not_flood_the_store() {
        let mut audit = Audit::begin(at(0));
        assert!(audit.minutes(at(7 * 86_400), cursor(at(7 * 86_400))).len() <= 3 * MOST_AT_ONCE as usize);
        assert!(audit.minutes(at(0), cursor(at(0))).is_empty());
    }

    #[test]
    fn a_shard_that_changes_hands_goes_on_where_the_last_reader_was() {
        let kept = reads(86_400, 1);
        let mut handed: BTreeMap<Minute, usize> = BTreeMap::new();
        for start in (0..86_400).step_by(600) {
            let mut audit = Audit::begin(at(start));
            for s in start..start + 600 {
                audit.minutes(at(s), cursor(at(s))).into_iter().for_each(|m| *handed.entry(m).or_default() += 1);
            }
        }
        let old = |minute: &&Minute| **minute < Minute::of(at(0) - TimeDelta::hours(48));
        let (kept, handed) = (kept.keys().filter(old).count(), handed.keys().filter(old).count());
        assert!(handed * 100 >= kept * 97, "{handed} of {kept} minutes older than two days");
    }

    #[test]
    fn an_audit_reads_a_known_number_of_minutes() {
        assert!((4_900.0..7_000.0).contains(&Audit::reads_per_hour()), "{}", Audit::reads_per_hour());
    }
}

//! What a screen shows of many figures: how late most of them were, and how fast a count rises.

use chrono::TimeDelta;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A rate is that of the last so many seconds.
const WINDOW: Duration = Duration::from_secs(2);

/// Lags, counted by their first two figures: of a million of them some hundred counts are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Lags {
    counts: BTreeMap<u64, u64>,
    n: u64,
    max_ms: u64,
}

/// How late things were, in milliseconds; all but the largest to two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) p50_ms: u64,
    pub(super) p99_ms: u64,
    pub(super) max_ms: u64,
}

impl Lags {
    /// Counts a lag; what was early counts as 0.
    pub(super) fn note(&mut self, lag: TimeDelta) {
        let ms = u64::try_from(lag.num_milliseconds()).unwrap_or(0);
        *self.counts.entry(two_figures(ms)).or_default() += 1;
        self.n += 1;
        self.max_ms = self.max_ms.max(ms);
    }

    /// What was counted so far, if anything was.
    pub(super) fn lag(&self) -> Option<Lag> {
        let at = |percent: u64| {
            let rank = (self.n * percent).div_ceil(100);
            let mut below = 0;
            let reaches_it = |(ms, count): (&u64, &u64)| {
                below += count;
                (below >= rank).then_some(*ms)
            };
            self.counts.iter().find_map(reaches_it).map_or(0, |ms| ms.min(self.max_ms))
        };
        (self.n > 0).then(|| Lag { p50_ms: at(50), p99_ms: at(99), max_ms: self.max_ms })
    }
}

/// The nearest number that has zeros behind its first two figures.
fn two_figures(n: u64) -> u64 {
    let unit = 10_u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(1));
    (n + unit / 2) / unit * unit
}

/// A count as it was seen in the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    seen: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// Notes the count at a moment of the monotonic clock; how much it rises a second.
    pub(super) fn per_s(&mut self, now: Duration, count: u64) -> u64 {
        self.seen.push_back((now, count));
        while self.seen.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.seen.pop_front();
        }
        let (since, before) = self.seen.front().copied().unwrap_or((now, count));
        let took = now.saturating_sub(since).as_secs_f64();
        if took > 0.0 { (count.saturating_sub(before) as f64 / took).round() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(ms: impl IntoIterator<Item = i64>) -> Option<Lag> {
        let mut lags = Lags::default();
        ms.into_iter().for_each(|ms| lags.note(TimeDelta::milliseconds(ms)));
        lags.lag()
    }

    #[test]
    fn a_percentile_is_the_smallest_lag_that_so_many_do_not_exceed() {
        assert_eq!(lag([]), None);
        assert_eq!(lag(1..=100), Some(Lag { p50_ms: 50, p99_ms: 99, max_ms: 100 }));
        assert_eq!(lag((1..=99).chain([5_000; 1])), Some(Lag { p50_ms: 50, p99_ms: 99, max_ms: 5_000 }));
        assert_eq!(lag((1..=98).chain([5_000; 2])), Some(Lag { p50_ms: 50, p99_ms: 5_000, max_ms: 5_000 }));
        assert_eq!(lag([7, 3]), Some(Lag { p50_ms: 3, p99_ms: 7, max_ms: 7 }));
        assert_eq!(lag([-5]), Some(Lag { p50_ms: 0, p99_ms: 0, max_ms: 0 }), "early");
    }

    #[test]
    fn none_is_shown_later_than_the_latest() {
        assert_eq!(lag([237; 3]), Some(Lag { p50_ms: 237, p99_ms: 237, max_ms: 237 }));
        assert_eq!(lag([233; 3]), Some(Lag { p50_ms: 230, p99_ms: 230, max_ms: 233 }));
    }

    #[test]
    fn lags_are_kept_to_two_figures_and_so_are_few() {
        let shown = [0, 9, 42, 99, 104, 105, 994, 995, 1_949, 1_950, 123_456].map(two_figures);
        assert_eq!(shown, [0, 9, 42, 99, 100, 110, 990, 1_000, 1_900, 2_000, 120_000]);
        let mut lags = Lags::default();
        (0..1_000_000).for_each(|ms| lags.note(TimeDelta::milliseconds(ms)));
        assert!(lags.counts.len() < 500, "{}", lags.counts.len());
    }

    #[test]
    fn a_pace_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        let mut at = |ms: u64, count: u64| pace.per_s(Duration::from_millis(ms), count);
        assert_eq!(at(10_000, 500), 0, "nothing to compare with");
        assert_eq!(at(10_500, 600), 200);
        assert_eq!(at(11_000, 1_000), 500);
        assert_eq!(at(12_000, 1_500), 500);
        assert_eq!(at(13_000, 1_500), 250, "from 11,000 on");
        assert_eq!(at(15_000, 1_500), 0);
        assert_eq!(at(15_000, 1_500), 0);
    }
}

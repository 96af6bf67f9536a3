//! When runs that are put back because there are too many of their kind come again: one after the other, at the pace at
//! which their kind is worked off.
//!
//! Part of step 5, *lease*. A tenant's hundred thousand runs, or those of a host that answers slowly, must not stand before
//! everybody else's in the queue; so they are hidden until about their turn. Too early costs another delivery, too late
//! an idle slot: they are called back somewhat faster than they are worked off, and never slower than a worker can be:
//! what was worked off lately says how much there was, not how much there could have been.

use std::collections::BTreeMap;
use std::time::Duration;

/// Nothing is put back for less: every time costs a delivery.
const SHORTEST: Duration = Duration::from_secs(2);
/// The slowest pace, in runs a second. It bounds what is received in vain, and is more than a worker's part of any limit but
/// the largest.
const SLOWEST: f64 = 500.0;
/// By how much faster than they are worked off they are called back.
const EAGER: f64 = 1.5;
/// How long the past counts.
const MEMORY: Duration = Duration::from_secs(10);
/// Kinds are forgotten when nothing happened to them for this long.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The pace and the line of each kind.
#[derive(Clone, Debug)]
pub struct Pacing<K> {
    kinds: BTreeMap<K, Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    /// Runs a second, lately.
    pace: f64,
    /// When that was worked out.
    at: Duration,
    /// When the last one that was put back comes again.
    line_ends: Duration,
}

impl<K> Default for Pacing<K> {
    fn default() -> Self {
        Pacing { kinds: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Pacing<K> {
    /// A run of this kind was worked off.
    pub fn worked_off(&mut self, kind: &K, now: Duration) {
        let kind = self.kind(kind, now);
        let faded = faded(now.saturating_sub(kind.at));
        kind.pace = kind.pace * faded + 1.0 / MEMORY.as_secs_f64();
        kind.at = now;
    }

    /// For how long another run of this kind is put back; at most `longest`. Where its pace is known, as a limit makes it, it
    /// goes by that.
    pub fn put_back(&mut self, kind: &K, known_pace: Option<f64>, now: Duration, longest: Duration) -> Duration {
        let kind = self.kind(kind, now);
        let pace = kind.pace * faded(now.saturating_sub(kind.at));
        let pace =
            known_pace.map_or((pace * EAGER).max(SLOWEST), |known| (known * EAGER).max(1.0 / longest.as_secs_f64()));
        let step = Duration::from_secs_f64(1.0 / pace);
        // Whoever is told the longest wait comes again before its turn, and gets a new place then: its old one is nobody's.
        kind.line_ends = (kind.line_ends + step).clamp(now + SHORTEST.min(longest), now + longest);
        kind.line_ends - now
    }

    /// Forgets what is over.
    pub fn tidy(&mut self, now: Duration) {
        self.kinds.retain(|_, kind| now.saturating_sub(kind.at.max(kind.line_ends)) < FORGOTTEN);
    }

    fn kind(&mut self, kind: &K, now: Duration) -> &mut Kind {
        self.kinds.entry(kind.clone()).or_insert(Kind { pace: 0.0, at: now, line_ends: now })
    }
}

/// What is left of a pace after `age`.
fn faded(age: Duration) -> f64 {
    (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn what_is_put_back_comes_again_a_little_faster_than_it_is_worked_off() {
        let mut pacing = Pacing::default();
        // 1,000 a second for a minute.
        (0..60_000).for_each(|n| pacing.worked_off(&"bank", Duration::from_millis(n)));
        let waits: Vec<Duration> = (0..30_000).map(|_| pacing.put_back(&"bank", None, S(60), S(900))).collect();
        assert!(waits[0] >= SHORTEST && waits.is_sorted());
        let a_second = waits.iter().filter(|w| **w >= S(5) && **w < S(6)).count();
        assert!((1_400..=1_600).contains(&a_second), "{a_second} come again in one second");
    }

    #[test]
    fn a_kind_of_which_little_was_worked_off_is_not_taken_to_be_slow() {
        let mut pacing = Pacing::default();
        pacing.worked_off(&"host", S(0));
        let waits: Vec<Duration> = (0..10_000).map(|_| pacing.put_back(&"host", None, S(1_000), S(900))).collect();
        assert_eq!(waits.iter().filter(|w| **w >= S(5) && **w < S(6)).count(), 500);
        pacing.tidy(S(5_000));
        assert!(pacing.kinds.is_empty());
    }

    #[test]
    fn what_a_limit_makes_slow_comes_again_at_its_pace() {
        let mut pacing = Pacing::default();
        let waits: Vec<Duration> = (0..30).map(|_| pacing.put_back(&"host", Some(0.2), S(0), S(900))).collect();
        assert_eq!(waits[29] - waits[28], Duration::from_secs_f64(1.0 / 0.3));
    }

    #[test]
    fn a_backlog_longer_than_the_longest_wait_is_worked_off_at_its_pace() {
        // Ten a second are worked off, of which two seconds' work is in hand. 10,000 wait.
        let (pace, longest) = (10.0, S(600));
        let mut pacing = Pacing::default();
        let mut comes: BinaryHeap<_> = (0..10_000).map(|_| Reverse(S(0))).collect();
        let mut free_at = S(0);
        while let Some(Reverse(now)) = comes.pop() {
            if free_at < now + S(2) {
                free_at = free_at.max(now) + Duration::from_secs_f64(1.0 / pace);
            } else {
                comes.push(Reverse(now + pacing.put_back(&"host", Some(pace), now, longest)));
            }
        }
        assert!(free_at < S(1_050), "{free_at:?} for what takes 1,000 s");
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_and_kinds_do_not_mix() {
        let mut pacing = Pacing::default();
        let last = (0..1_000_000).map(|_| pacing.put_back(&"bank", None, S(1), S(900))).last();
        assert_eq!(last, Some(S(900)));
        assert_eq!(pacing.put_back(&"other", None, S(1), S(900)), SHORTEST);
    }
}

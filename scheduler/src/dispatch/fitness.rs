//! Step 5, *lease*: for how long a copy that got nowhere leaves the shards to others. Pure: `now` is an argument, by the
//! monotonic clock.

use std::time::Duration;

/// By how much the first pause is longer than a lease time: enough for others to see this copy's leases stand still, and no
/// more, for the trouble may be everybody's.
const BEYOND_LEASE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(240);
/// A copy that gets nowhere again within this has not recovered since.
const SAME_TROUBLE: Duration = Duration::from_secs(600);

/// Whether this copy counts and takes shards.
#[derive(Debug)]
pub(super) struct Fitness {
    first_pause: Duration,
    /// When it last got nowhere, and how long the pause is that followed.
    last: Option<(Duration, Duration)>,
    /// None = it is fit.
    unfit_until: Option<Duration>,
}

impl Fitness {
    /// A copy that is fit, whose leases last `lease`.
    pub(super) fn new(lease: Duration) -> Self {
        Fitness { first_pause: lease + BEYOND_LEASE, last: None, unfit_until: None }
    }

    /// Notes that the copy got nowhere; returns the pause that begins with that, none if it is in one already. A pause
    /// doubles with each that follows the one before within ten minutes, up to four minutes.
    pub(super) fn got_nowhere(&mut self, now: Duration) -> Option<Duration> {
        if self.unfit_until.is_some() {
            return None;
        }
        let pause = match self.last {
            Some((at, pause)) if now.saturating_sub(at) < SAME_TROUBLE => (pause * 2).min(LONGEST_PAUSE),
            _ => self.first_pause,
        };
        self.last = Some((now, pause));
        self.unfit_until = Some(now + pause);
        Some(pause)
    }

    /// Whether the copy leaves the shards to others at `now`: also after its pause, while what kept it is known to last.
    pub(super) fn is_unfit(&mut self, now: Duration, is_kept: bool) -> bool {
        self.unfit_until = self.unfit_until.filter(|until| now < *until || is_kept);
        self.unfit_until.is_some()
    }

    /// Ends the pause: there is nobody who could do better.
    pub(super) fn end_pause(&mut self) {
        self.unfit_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn pauses_double_up_to_four_minutes_while_the_trouble_lasts() {
        let (mut fitness, mut now) = (Fitness::new(S(10)), S(1_000));
        for pause in [15, 30, 60, 120, 240, 240, 240] {
            assert_eq!(fitness.got_nowhere(now), Some(S(pause)));
            assert_eq!(fitness.got_nowhere(now + S(1)), None, "its other shards are part of it");
            assert!(fitness.is_unfit(now + S(pause - 1), false));
            now += S(pause);
            assert!(!fitness.is_unfit(now, false));
            now += S(13);
        }
    }

    #[test]
    fn a_copy_that_was_well_for_ten_minutes_begins_with_a_short_pause() {
        let mut fitness = Fitness::new(S(10));
        fitness.got_nowhere(S(100));
        assert!(!fitness.is_unfit(S(115), false));
        assert_eq!(fitness.got_nowhere(S(699)), Some(S(30)));
        assert!(!fitness.is_unfit(S(729), false));
        assert_eq!(fitness.got_nowhere(S(1_299)), Some(S(15)));
    }

    #[test]
    fn a_pause_goes_on_while_what_kept_the_copy_is_known_to_last() {
        let mut fitness = Fitness::new(S(10));
        assert!(!fitness.is_unfit(S(100), true), "it has not lost a shard by it");
        fitness.got_nowhere(S(100));
        assert!(fitness.is_unfit(S(500), true));
        assert!(!fitness.is_unfit(S(501), false));
        assert!(!fitness.is_unfit(S(502), true));
    }

    #[test]
    fn a_pause_that_helps_nobody_ends_and_counts_all_the_same() {
        let mut fitness = Fitness::new(S(10));
        fitness.got_nowhere(S(100));
        fitness.end_pause();
        assert!(!fitness.is_unfit(S(101), true));
        assert_eq!(fitness.got_nowhere(S(113)), Some(S(30)));
    }
}

//! The only place that reads a clock.
//!
//! Every rule takes `now` as an argument. Services ask a [`Clock`] at their edge and hand the reading on, so that tests
//! and the simulation decide what time it is. `clippy.toml` bans clock reads everywhere else. Now is the store's time
//! ([`AnchoredClock`], by the estimate in [`anchor`]); a host whose own clock is far from it neither writes nor fires
//! ([`Clock::check`]). How long something took is what the largest of all clocks says ([`Stopwatch`], [`Trust`]).

pub mod anchor;
mod anchored;

pub use anchored::{AnchoredClock, ClockOff, MOST_OFFSET, Standing, in_words};

use anchor::Reading;
use chrono::{DateTime, TimeDelta, Utc};
use std::time::Duration;

/// What a service asks for the time.
pub trait Clock: Send + Sync + 'static {
    /// The present instant, in UTC.
    fn now(&self) -> DateTime<Utc>;

    /// Time since some fixed moment of this process; never goes backwards. Leases are judged without comparing two
    /// machines' clocks. May stand still while the machine is suspended.
    fn monotonic(&self) -> Duration;

    /// Time since some fixed moment that goes on while the machine is suspended, where the platform has such a clock;
    /// never goes backwards.
    fn boottime(&self) -> Duration {
        self.monotonic()
    }

    /// What the host's wall clock shows, be it right or wrong.
    fn wall(&self) -> DateTime<Utc> {
        self.now()
    }

    /// What is known of the store's time; none where nothing is, or where this clock is itself the time of its world.
    fn reading(&self) -> Option<Reading> {
        None
    }

    /// How the host's clock stands to the store's time. A clock that is itself the time of its world is right.
    fn standing(&self) -> Standing {
        Standing::Anchored { offset: TimeDelta::zero() }
    }

    /// Whether anything may be written or fired by this clock now.
    ///
    /// # Errors
    /// When the store's time is not known, or the host's clock is off by more than [`MOST_OFFSET`].
    fn check(&self) -> Result<(), ClockOff> {
        match self.standing() {
            Standing::Anchored { .. } => Ok(()),
            Standing::Unanchored => Err(ClockOff::Unanchored),
            Standing::Off { offset } => Err(ClockOff::Off(offset)),
        }
    }
}

/// Measures how long something took, by whichever clock says most: the monotonic one may stand still while a machine is
/// suspended, the wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// When it was started.
    pub started_at: DateTime<Utc>,
    wall: DateTime<Utc>,
    monotonic: Duration,
    boottime: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start(clock: &dyn Clock) -> Self {
        let (monotonic, boottime) = (clock.monotonic(), clock.boottime());
        Stopwatch { started_at: clock.now(), wall: clock.wall(), monotonic, boottime }
    }

    /// Time since the start.
    pub fn elapsed(&self, clock: &dyn Clock) -> Duration {
        let by_now = (clock.now() - self.started_at).to_std().unwrap_or_default();
        let by_wall = (clock.wall() - self.wall).to_std().unwrap_or_default();
        let by_monotonic = clock.monotonic().saturating_sub(self.monotonic);
        let by_boottime = clock.boottime().saturating_sub(self.boottime);
        by_now.max(by_wall).max(by_monotonic).max(by_boottime)
    }
}

/// Trust in a claim that others may take over after a while: it ends as soon as *any* clock says so. A wall clock that is
/// set back does not extend it; one that jumps ahead ends it early, which is harmless.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    /// Started before the call that made or renewed the claim.
    pub since: Stopwatch,
    /// How long the claim is trusted from then on.
    pub lasts: Duration,
}

impl Trust {
    /// Whether the claim may be somebody else's by now.
    pub fn is_over(&self, clock: &dyn Clock) -> bool {
        self.since.elapsed(clock) >= self.lasts
    }
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// Starts the monotonic reading at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the one place where clocks are read")]
    pub fn new() -> Self {
        Self { started: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where clocks are read")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    #[cfg(target_os = "linux")]
    fn boottime(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).expect("time since boot is not negative")
    }
}

/// A clock that follows tokio's, so that a test with paused time moves both together.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: DateTime<Utc>,
    started: tokio::time::Instant,
}

#[cfg(feature = "test-util")]
impl TokioClock {
    /// A clock that shows `start` now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place where clocks are read")]
    pub fn new(start: DateTime<Utc>) -> Self {
        Self { start, started: tokio::time::Instant::now() }
    }
}

#[cfg(feature = "test-util")]
impl Clock for TokioClock {
    fn now(&self) -> DateTime<Utc> {
        self.start + self.started.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds by the three clocks of a host.
    #[derive(Clone, Copy)]
    pub(super) struct Shows {
        pub(super) wall: i64,
        pub(super) monotonic: u64,
        pub(super) boottime: u64,
    }

    impl Clock for Shows {
        fn now(&self) -> DateTime<Utc> {
            DateTime::from_timestamp(self.wall, 0).expect("in range")
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.monotonic)
        }

        fn boottime(&self) -> Duration {
            Duration::from_secs(self.boottime)
        }
    }

    const START: Shows = Shows { wall: 1_000, monotonic: 10, boottime: 500 };

    /// What the clocks show after they went on by so many seconds each.
    fn after(wall: i64, monotonic: u64, boottime: u64) -> Shows {
        Shows { wall: 1_000 + wall, monotonic: 10 + monotonic, boottime: 500 + boottime }
    }

    #[test]
    fn a_clock_that_stands_still_or_is_set_back_hides_no_time() {
        let watch = Stopwatch::start(&START);
        let cases = [
            (after(5, 5, 5), 5),
            (after(600, 0, 0), 600),
            (after(-600, 600, 600), 600),
            (after(-600, 0, 600), 600),
            (after(-600, 0, 0), 0),
        ];
        for (clock, expected) in cases {
            assert_eq!(watch.elapsed(&clock), Duration::from_secs(expected));
        }
    }

    #[test]
    fn trust_ends_when_any_clock_says_so() {
        let trust = Trust { since: Stopwatch::start(&START), lasts: Duration::from_secs(8) };
        assert!(!trust.is_over(&after(7, 7, 7)));
        for over in [after(8, 0, 0), after(0, 8, 0), after(0, 0, 8), after(-3_600, 8, 8), after(-3_600, 0, 8)] {
            assert!(trust.is_over(&over));
        }
        assert!(!trust.is_over(&after(-3_600, 7, 7)), "a clock set back alone ends nothing");
    }

    #[test]
    fn the_machines_clocks_never_go_backwards() {
        let clock = SystemClock::new();
        let (monotonic, boottime) = (clock.monotonic(), clock.boottime());
        assert!(clock.monotonic() >= monotonic && clock.boottime() >= boottime);
        assert_eq!(clock.check(), Ok(()));
    }
}

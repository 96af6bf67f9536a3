//! The only place that reads a clock.
//!
//! Every rule takes `now` as an argument. Services ask a [`Clock`] at their edge and hand the reading on, so that tests
//! and the simulation decide what time it is. `clippy.toml` bans clock reads everywhere else.

use chrono::{DateTime, Utc};
use std::time::Duration;

/// What a service asks for the time.
pub trait Clock: Send + Sync + 'static {
    /// The present instant, in UTC.
    fn now(&self) -> DateTime<Utc>;

    /// Time since some fixed moment of this process; never goes backwards. Leases are judged by this alone, so that no
    /// two machines' clocks are ever compared.
    fn monotonic(&self) -> Duration;
}

/// Measures how long something took, by whichever clock says more: the monotonic one may stand still while a machine is
/// suspended, the wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// When it was started, by the wall clock.
    pub started_at: DateTime<Utc>,
    monotonic: Duration,
}

impl Stopwatch {
    /// Starts now.
    pub fn start(clock: &dyn Clock) -> Self {
        Stopwatch { started_at: clock.now(), monotonic: clock.monotonic() }
    }

    /// Time since the start.
    pub fn elapsed(&self, clock: &dyn Clock) -> Duration {
        let by_wall = (clock.now() - self.started_at).to_std().unwrap_or_default();
        clock.monotonic().saturating_sub(self.monotonic).max(by_wall)
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

    /// Seconds by the wall clock, and by the monotonic one.
    struct Shows(i64, u64);

    impl Clock for Shows {
        fn now(&self) -> DateTime<Utc> {
            DateTime::from_timestamp(self.0, 0).expect("in range")
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.1)
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_is_set_back_hides_no_time() {
        let watch = Stopwatch::start(&Shows(1_000, 10));
        for (wall, monotonic, expected) in [(1_005, 15, 5), (1_600, 10, 600), (400, 610, 600), (400, 10, 0)] {
            assert_eq!(watch.elapsed(&Shows(wall, monotonic)), Duration::from_secs(expected));
        }
    }
}

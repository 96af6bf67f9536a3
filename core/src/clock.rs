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

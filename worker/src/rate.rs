//! Step 7, *rate*: a call waits for its permit, it never collects a refusal.
//!
//! Waiters stand in line (a fair lock around `governor`), so that none waits for ever. The limiter starts empty: a worker
//! that has just started owes nothing for the second before.

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use punctual_core::clock::Clock;
use punctual_core::rate::RateShare;
use punctual_core::target::Target;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The project's clock, as `governor` reads it.
#[derive(Clone)]
struct Monotonic(Arc<dyn Clock>);

impl GovernorClock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<<Monotonic as GovernorClock>::Instant>>;

/// What is said to one who asks for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Here it is.
    Ready,
    /// Ask again when the monotonic clock shows this.
    At(Duration),
    /// There is none at all now: ask again when something has changed.
    Never,
}

/// Hands out permits at a fixed rate.
pub struct Permits {
    clock: Monotonic,
    limiter: Limiter,
    line: Mutex<()>,
}

impl Permits {
    /// Permits at the rate of `share`, none in store.
    pub fn new(share: RateShare, clock: Arc<dyn Clock>) -> Self {
        let clock = Monotonic(clock);
        let quota = Quota::per_second(share.per_second).allow_burst(share.burst);
        let limiter = Limiter::direct_with_clock(quota, clock.clone());
        // Spends the burst that a new limiter starts with.
        let _ = limiter.check_n(share.burst);
        Permits { clock, limiter, line: Mutex::default() }
    }

    /// A permit for a call to `target`, if there is one now.
    pub fn try_permit(&self, _target: &Target) -> Permit {
        match self.limiter.check() {
            Ok(()) => Permit::Ready,
            Err(not_until) => Permit::At(self.clock.now() + not_until.wait_time_from(self.clock.now())),
        }
    }

    /// Whether a permit given a moment ago still holds.
    pub fn still_valid(&self, _target: &Target) -> bool {
        true
    }

    /// Waits until there may be permits where there were none.
    pub async fn changed(&self) {
        std::future::pending().await
    }

    /// Waits for the next permit.
    pub async fn next(&self, _target: &Target) {
        let _first = self.line.lock().await;
        while let Err(not_until) = self.limiter.check() {
            let wait = not_until.wait_time_from(self.clock.now());
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::clock::TokioClock;
    use punctual_core::rate::share;

    #[tokio::test(start_paused = true)]
    async fn no_second_sees_more_than_the_share_and_its_burst() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(chrono::DateTime::UNIX_EPOCH));
        let share = share(450, 2).unwrap();
        let permits = Permits::new(share, clock.clone());
        let mut at = Vec::new();
        for _ in 0..2_000 {
            permits.next(&Target::sms()).await;
            at.push(clock.monotonic());
        }
        let most =
            (0..at.len()).map(|i| at[i..].partition_point(|t| *t < at[i] + Duration::from_secs(1))).max().unwrap();
        assert!(most <= (share.per_second.get() + share.burst.get()) as usize, "{most} in one second");
        let rate = 2_000.0 / at[1_999].as_secs_f64();
        assert!(rate > 215.0, "{rate} a second");
    }
}

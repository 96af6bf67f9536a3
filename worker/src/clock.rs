//! The watch over the host's clock: while it is off, the worker takes no message and starts no call.
//!
//! Whoever begins something asks [`Clock::check`] himself. What is here tells people when work stops for it and when it
//! goes on.

use crate::metrics::Metrics;
use punctual_core::clock::Clock;
use punctual_core::process::ClockWatch;
use std::time::Duration;

/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Watches for ever.
pub(crate) async fn watch(clock: &dyn Clock, metrics: &Metrics) {
    let mut watch = ClockWatch::new("no message is taken and no call made until this is mended");
    loop {
        // The first look leaves the store time to answer.
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(offset) = watch.look(clock) {
            metrics.clock_offset.set(offset.as_seconds_f64());
        }
    }
}

//! The watch over the host's clock: while it is off, the worker takes no message and starts no call.
//!
//! Whoever begins something asks [`Clock::check`](punctual_core::clock::Clock::check) himself. What is here asks the
//! store for its time while nothing else does, and tells people when work stops for it and when it goes on.

use crate::pipeline::Context;
use punctual_core::clock::{ClockOff, Standing};
use std::time::Duration;

/// Time between two looks at the clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after which the store is asked again. What is known of its time gets looser by 30 ms meanwhile.
const ASK_EVERY: u32 = 60;
/// The same while the clock is refused.
const ASK_EVERY_WHEN_OFF: u32 = 5;

/// Watches for ever.
pub(crate) async fn watch(context: &Context) {
    let (mut told, mut looks) = (None, 0);
    loop {
        let ask_every = if told.is_some() { ASK_EVERY_WHEN_OFF } else { ASK_EVERY };
        if looks % ask_every == 0 {
            // The clock hears what this answer says of the store's time; nothing else of it is wanted.
            if let Err(error) = context.ports.control.shards().await {
                tracing::debug!(class = error.class(), %error, "the store could not be asked for its time");
            }
        }
        looks += 1;
        if let Standing::Anchored { offset } | Standing::Off { offset } = context.clock.standing() {
            context.metrics.clock_offset.set(offset.as_seconds_f64());
        }
        tell(&mut told, context.clock.check().err());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Logs when work stops and when it goes on, once each.
fn tell(told: &mut Option<ClockOff>, off: Option<ClockOff>) {
    match (&told, off) {
        (None, Some(off)) => tracing::error!(%off, "no message is taken and no call made until this is mended"),
        (Some(_), None) => tracing::info!("the host's clock is right: work goes on"),
        _ => {}
    }
    *told = off;
}

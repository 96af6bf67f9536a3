//! What the queues and the gateway saw of each run.

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::priority::Priority;
use punctual_tests::measure::{Lag, Scene};
use std::collections::HashMap;

/// A run as the queue and the gateway saw it.
pub struct Seen {
    /// Its queue.
    pub priority: Priority,
    /// When it should start.
    pub due_at: DateTime<Utc>,
    /// When it could be received.
    pub visible_at: DateTime<Utc>,
    /// When the gateway was called for it first.
    pub called_at: DateTime<Utc>,
}

/// Every run that the gateway saw.
pub fn seen(scene: &Scene) -> anyhow::Result<Vec<Seen>> {
    let visible = scene.queue.visible()?;
    let of_queue: HashMap<String, Priority> = Priority::ALL.map(|p| (scene.names.queue(p), p)).into();
    let seen = scene.gateway().arrivals().into_iter().map(|arrival| {
        let run = visible.get(&arrival.reference).context("a run was called that no queue took")?;
        let priority = *of_queue.get(&run.queue).context("a run lay in no queue of a priority")?;
        Ok(Seen { priority, due_at: run.due_at, visible_at: run.visible_at, called_at: arrival.arrived_at })
    });
    seen.collect()
}

/// The quantiles of some times.
pub fn lag(times: impl Iterator<Item = TimeDelta>) -> Lag {
    let mut times: Vec<i64> = times.map(|time| time.num_milliseconds()).collect();
    times.sort_unstable();
    Lag::of(&times)
}

//! What stands at a moment beside the runs themselves, told again and again: how full the queues are, how many jobs are in
//! quarantine, how many runs wait for a person. Nothing goes by it.
//!
//! It is the same from wherever it is asked, so one copy asks: the one that holds the first shard.

use super::pass::Dispatcher;
use chrono::{DateTime, Utc};
use punctual_core::due::Layout;
use punctual_core::ports::{PortResult, QueueDepth, Waiting};
use punctual_core::priority::Priority;
use punctual_core::telemetry::{COUNTED_EVERY, QUEUES_EVERY, table};
use std::collections::BTreeMap;
use std::time::Duration;

/// Jobs in quarantine, of one shard, and runs that wait for a person are counted up to this.
const MOST_COUNTED: usize = 1_000;

/// What is seldom.
#[derive(Clone, Copy, Debug, Default)]
struct Rare {
    quarantined: usize,
    waiting: usize,
    oldest: Option<DateTime<Utc>>,
}

impl Dispatcher {
    /// Looks and tells, for ever.
    pub(super) async fn keep_watch(&self) {
        let (mut rare, mut has_told): (Option<(Duration, Rare)>, _) = (None, false);
        loop {
            tokio::time::sleep(QUEUES_EVERY).await;
            if !self.is_first() {
                // Another copy tells it now. What was told here last would stand beside that for ever.
                if std::mem::take(&mut has_told) {
                    rare = None;
                    tell_queue_depths(|_| QueueDepth::default());
                    tell_rare(Rare::default(), 0.0);
                }
                continue;
            }
            has_told = true;
            let now = self.clock.monotonic();
            if let Err(error) = self.watch_queues().await {
                tracing::debug!(class = error.class(), %error, "the queues could not be looked at");
            }
            if rare.as_ref().is_none_or(|(counted_at, _)| now.saturating_sub(*counted_at) >= COUNTED_EVERY) {
                match self.count_rare().await {
                    Ok(counted) => rare = Some((now, counted)),
                    Err(error) => tracing::debug!(class = error.class(), %error, "what waits could not be counted"),
                }
            }
            if let Some((_, counted)) = rare {
                let age_s = counted.oldest.map_or(0.0, |oldest| (self.clock.now() - oldest).as_seconds_f64().max(0.0));
                tell_rare(counted, age_s);
            }
        }
    }

    async fn watch_queues(&self) -> PortResult<()> {
        let mut depths = BTreeMap::new();
        for priority in Priority::ALL {
            depths.insert(priority, self.ports.queue.depth(priority).await?);
        }
        tell_queue_depths(|priority| depths.get(&priority).copied().unwrap_or_default());
        Ok(())
    }

    async fn count_rare(&self) -> PortResult<Rare> {
        let mut quarantined = 0;
        if let Some(Layout { read, .. }) = self.ports.control.layout().await? {
            for shard in read.all() {
                quarantined += self.ports.due.quarantined(shard, None, MOST_COUNTED).await?.entries.len();
            }
        }
        let Waiting { rows, oldest } = self.ports.history.waiting(MOST_COUNTED).await?;
        Ok(Rare { quarantined, waiting: rows, oldest })
    }
}

fn tell_queue_depths(depth_of: impl Fn(Priority) -> QueueDepth) {
    for priority in Priority::ALL {
        let QueueDepth { visible, in_flight, delayed } = depth_of(priority);
        for (state, messages) in [("visible", visible), ("in_flight", in_flight), ("delayed", delayed)] {
            let labels = [("priority", priority.as_str()), ("state", state)];
            table::QUEUE_MESSAGES.gauge(&labels).set(messages as f64);
        }
    }
}

fn tell_rare(rare: Rare, oldest_age_s: f64) {
    table::QUARANTINED_JOBS.gauge(&[]).set(rare.quarantined as f64);
    table::DEAD_LETTER_ROWS.gauge(&[]).set(rare.waiting as f64);
    table::OLDEST_DEAD_LETTER_AGE.gauge(&[]).set(oldest_age_s);
}

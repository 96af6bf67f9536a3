//! One scheduler copy: a turn of the leases every renewal time, one loop for each shard held.

use super::DispatchSettings;
use super::leases::Holder;
use super::pass::Dispatcher;
use super::shard;
use punctual_core::clock::Clock;
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::ports::Ports;
use punctual_core::zone::Zones;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// Told to stop, a copy lets the turn under way end, so that it knows what it holds.
const LAST_TURN: Duration = Duration::from_secs(1);
/// Time for passes to end after the last send, and for leases to be given back.
const LAST_PASSES: Duration = Duration::from_secs(10);
const LAST_RELEASES: Duration = Duration::from_secs(5);

/// Runs a copy named `id` until `stop` is ready; then ends its passes, and gives its shards back after its last send.
pub async fn run(
    ports: Ports,
    clock: Arc<dyn Clock>,
    shards: Shards,
    zones: Arc<Zones>,
    settings: DispatchSettings,
    id: String,
    stop: impl Future<Output = ()>,
) {
    let times = settings.leases;
    let mut holder = Holder::new(ports.leases.clone(), clock.clone(), shards, times, id.clone());
    let dispatcher = Arc::new(Dispatcher::new(ports, clock.clone(), shards, zones, id, &settings));
    let mut loops = JoinSet::new();
    let mut is_failing = false;
    tokio::pin!(stop);
    loop {
        let began = clock.monotonic();
        let is_stopped = {
            let turn = turn(&mut holder, times.renew_every, &mut is_failing);
            tokio::pin!(turn);
            tokio::select! {
                () = &mut turn => false,
                () = &mut stop => {
                    // Cut off in the middle, a counter may be known wrong and its lease expire by itself instead.
                    let _ = timeout(LAST_TURN, turn).await;
                    true
                }
            }
        };
        let fresh = holder.fresh();
        if !fresh.is_empty() && !is_stopped {
            let taken: Vec<String> = fresh.iter().map(|lease| lease.shard.to_string()).collect();
            tracing::info!(taken = taken.join(" "), held = holder.held().count(), "shards taken");
        }
        for lease in fresh {
            loops.spawn(shard::work(dispatcher.clone(), clock.clone(), lease, settings.tick));
        }
        while let Some(ended) = loops.try_join_next() {
            tell_panic(ended);
        }
        if is_stopped {
            break;
        }
        let next = (began + times.renew_every + settings.tick / 10).saturating_sub(clock.monotonic());
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(next) => {}
        }
    }
    holder.stop_all();
    let passes = async {
        while let Some(ended) = loops.join_next().await {
            tell_panic(ended);
        }
    };
    if timeout(LAST_PASSES, passes).await.is_err() {
        tracing::warn!("a pass did not end in time and is cut off; what it enqueued may be enqueued again");
        loops.shutdown().await;
    }
    if timeout(LAST_RELEASES, holder.release_all()).await.is_err() {
        tracing::warn!("leases were not given back in time; they expire by themselves");
    }
    tracing::info!("stopped");
}

/// Renews, then looks and takes within the time to the next renewal.
async fn turn(holder: &mut Holder, time: Duration, is_failing: &mut bool) {
    holder.renew().await;
    let error = match timeout(time, holder.look_and_take()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(PortError::Unknown("the leases could not be read in time".into())),
    };
    if let Some(error) = &error
        && !*is_failing
    {
        match error {
            PortError::Permanent(_) => tracing::error!(%error, "the leases cannot be used; it is tried again"),
            _ => tracing::warn!(class = error.class(), %error, "a turn of the leases failed; the next one repeats it"),
        }
    }
    *is_failing = error.is_some();
}

fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a shard's loop broke off: its lease is not renewed, and another copy takes the shard");
    }
}

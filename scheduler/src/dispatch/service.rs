//! One scheduler copy: a turn of the leases every renewal time, one loop for each shard held.

use super::DispatchSettings;
use super::leases::Holder;
use super::pass::Dispatcher;
use super::shard;
use punctual_core::clock::Clock;
use punctual_core::due::Shards;
use punctual_core::ports::Ports;
use std::future::Future;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Runs a copy named `id` until `stop` is ready; then ends its passes, and gives its shards back after its last send.
pub async fn run(
    ports: Ports,
    clock: Arc<dyn Clock>,
    shards: Shards,
    settings: DispatchSettings,
    id: String,
    stop: impl Future<Output = ()>,
) {
    let mut holder = Holder::new(ports.leases.clone(), clock.clone(), shards, settings.leases, id.clone());
    let dispatcher = Arc::new(Dispatcher::new(ports, clock.clone(), shards, id, &settings));
    let mut loops = JoinSet::new();
    let mut leases = Vec::new();
    let mut is_first = true;
    tokio::pin!(stop);
    loop {
        match holder.turn().await {
            Ok(new) => {
                if !new.is_empty() {
                    let taken: Vec<String> = new.iter().map(|lease| lease.shard.to_string()).collect();
                    tracing::info!(taken = taken.join(" "), held = holder.held().count(), "shards taken");
                }
                for lease in new {
                    leases.push(Arc::downgrade(&lease));
                    loops.spawn(shard::work(dispatcher.clone(), clock.clone(), lease, settings.tick));
                }
            }
            Err(error) => {
                tracing::warn!(class = error.class(), %error, "a turn of the leases failed; the next one repeats it")
            }
        }
        while loops.try_join_next().is_some() {}
        leases.retain(|lease| lease.strong_count() > 0);
        // The first turn only registers; the second comes as soon as others have had time to be seen.
        let wait =
            if is_first { settings.leases.renew_every + settings.tick / 10 } else { settings.leases.renew_every };
        is_first = false;
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(wait) => {}
        }
    }
    for lease in leases.iter().filter_map(std::sync::Weak::upgrade) {
        lease.give_up();
    }
    while loops.join_next().await.is_some() {}
    holder.release_all().await;
    tracing::info!("stopped: shards given back");
}

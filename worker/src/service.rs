//! One worker: a receiving loop per priority, heartbeats, and an orderly stop.

use crate::lease::Hands;
use crate::metrics::Metrics;
use crate::pipeline::{Context, handle};
use crate::rate::Permits;
use crate::settings::WorkSettings;
use punctual_core::clock::Clock;
use punctual_core::ports::{BATCH, Gateway, Ports};
use punctual_core::priority::Priority;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);

/// Works under the name `id` until `stop` is ready; then starts nothing more, finishes its calls within the time to
/// stop, and gives the rest back.
pub async fn run(
    ports: Ports,
    gateway: Arc<dyn Gateway>,
    clock: Arc<dyn Clock>,
    settings: WorkSettings,
    id: String,
    stop: impl Future<Output = ()>,
) {
    let queue = ports.queue.clone();
    let (hands, deletes) =
        Hands::new(queue.clone(), clock.clone(), settings.visibility, settings.heartbeat, settings.trust);
    let hands = Arc::new(hands);
    let context = Arc::new(Context {
        gateway,
        permits: Permits::new(settings.rate, clock.clone()),
        slots: Semaphore::new(settings.slots),
        clock,
        id,
        hands: hands.clone(),
        metrics: Metrics::new(),
        settings: settings.clone(),
        ports,
    });
    let (stopping, is_stopping) = watch::channel(false);
    let mut receivers = JoinSet::new();
    for priority in Priority::ALL {
        receivers.spawn(receive(context.clone(), priority, is_stopping.clone()));
    }
    let mut helpers = JoinSet::new();
    helpers.spawn({
        let hands = hands.clone();
        async move { hands.keep().await }
    });
    let mut deleter = JoinSet::new();
    deleter.spawn(Hands::delete_gathered(queue, deletes));

    stop.await;
    tracing::info!("stopping: nothing more is started");
    // Receivers hold the only other sender.
    let _ = stopping.send(true);
    let finished = async { while receivers.join_next().await.is_some() {} };
    if tokio::time::timeout(settings.stop, finished).await.is_err() {
        tracing::warn!("calls under way did not end within the time to stop; their runs are taken over later");
    }
    drop(receivers);
    helpers.abort_all();
    while helpers.join_next().await.is_some() {}
    hands.give_back_all().await;
    drop((context, hands));
    while deleter.join_next().await.is_some() {}
    tracing::info!("stopped");
}

/// Receives one priority's messages and works on them; ends when told to stop and all its messages are done with.
async fn receive(context: Arc<Context>, priority: Priority, mut stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(context.settings.prefetch));
    let mut work = JoinSet::new();
    let mut failures = 0;
    while !*stop.borrow() {
        while work.try_join_next().is_some() {}
        let permits = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            permits = room_for_batch(&room) => permits,
        };
        let asked = context.clock.monotonic();
        let (poll, visibility) = (context.settings.poll, context.settings.visibility);
        // A receive that is cut off may have taken messages: it is always waited for.
        match context.ports.queue.receive(priority, permits.len(), poll, visibility).await {
            Ok(deliveries) => {
                failures = 0;
                for (delivery, permit) in deliveries.into_iter().zip(permits) {
                    let held = context.hands.take(delivery, asked);
                    let (context, stop) = (context.clone(), stop.clone());
                    work.spawn(async move {
                        handle(context, held, stop).await;
                        drop(permit);
                    });
                }
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(queue = %priority, class = error.class(), %error, "a queue cannot be read; it is tried again");
                }
                let wait = (FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF);
                failures = (failures + 1).min(6);
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => break,
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
    while work.join_next().await.is_some() {}
}

/// Room for at least one message, and for as many more of one batch as there is.
async fn room_for_batch(room: &Arc<Semaphore>) -> Vec<tokio::sync::OwnedSemaphorePermit> {
    let first = room.clone().acquire_owned().await.expect("the semaphore is never closed");
    let more = (1..BATCH).map_while(|_| room.clone().try_acquire_owned().ok());
    std::iter::once(first).chain(more).collect()
}

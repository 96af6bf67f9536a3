//! One worker: a receiving loop per priority, heartbeats, and an orderly stop.

use crate::clock;
use crate::lease::Hands;
use crate::metrics::Metrics;
use crate::pipeline::{Context, handle, pause};
use crate::rate::{Permits, Sharing};
use crate::settings::WorkSettings;
use crate::shares::Keeper;
use crate::steering::Steered;
use punctual_core::clock::{Clock, Stopwatch};
use punctual_core::ports::{BATCH, Gateway, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::keep_time;
use punctual_core::zone::Zones;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);
/// Time until a worker whose clock was refused looks at it again.
const CLOCK_PAUSE: Duration = Duration::from_secs(1);
/// Time until a worker looks again whether a queue that is held, or of which that is not known, is free.
const HELD_PAUSE: Duration = Duration::from_secs(1);
/// Time for the last gives-back and deletes after the work has ended; what does not happen then comes back by itself.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    InOrder,
    /// One of its own loops broke; the log says which. It stopped as if told to.
    Broken,
}

/// Works under the name `id` until `stop` is ready; then starts nothing more, finishes its calls within the time to
/// stop, and gives the rest back.
pub async fn run(
    ports: Ports,
    gateway: Arc<dyn Gateway>,
    clock: Arc<dyn Clock>,
    zones: Arc<Zones>,
    settings: WorkSettings,
    id: String,
    stop: impl Future<Output = ()>,
) -> Ended {
    let queue = ports.queue.clone();
    let (hands, deletes) =
        Hands::new(queue.clone(), clock.clone(), settings.visibility, settings.heartbeat, settings.trust);
    let hands = Arc::new(hands);
    let steered = Arc::new(Steered::new(clock.clone()));
    let permits = Arc::new(Permits::new(clock.clone(), steered.clone(), settings.sharing));
    let shares = Keeper::new(permits.clone(), ports.shares.clone(), clock.clone(), settings.share_leases, &id);
    let shares = Arc::new(shares);
    let context = Arc::new(Context {
        gateway,
        permits,
        steered,
        slots: Semaphore::new(settings.slots),
        clock,
        zones,
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
    let mut keeper = JoinSet::new();
    keeper.spawn({
        let hands = hands.clone();
        async move { hands.keep().await }
    });
    let mut watcher = JoinSet::new();
    watcher.spawn({
        let context = context.clone();
        async move {
            let watch = clock::watch(&*context.clock, &context.metrics);
            tokio::join!(watch, keep_time(&*context.clock, &*context.ports.control));
        }
    });
    let mut steerer = JoinSet::new();
    steerer.spawn({
        let (context, shares) = (context.clone(), shares.clone());
        async move { steer(&context, &shares).await }
    });
    let mut deleter = JoinSet::new();
    deleter.spawn(Hands::delete_gathered(queue, deletes));

    let broken = tokio::select! {
        biased;
        () = stop => None,
        ended = receivers.join_next() => Some(("receiving", ended)),
        ended = keeper.join_next() => Some(("heartbeats", ended)),
        ended = watcher.join_next() => Some(("the watch over the clock", ended)),
        ended = steerer.join_next() => Some(("rate shares and holds", ended)),
        ended = deleter.join_next() => Some(("deleting", ended)),
    };
    if let Some((what, ended)) = &broken {
        tracing::error!(what, ?ended, "a loop that must not end has ended: the worker stops");
    }
    tracing::info!("stopping: nothing more is started");
    stopping.send_replace(true);
    let finished = async { while receivers.join_next().await.is_some() {} };
    if tokio::time::timeout(settings.stop, finished).await.is_err() {
        tracing::warn!("calls under way did not end within the time to stop; their runs are taken over later");
        receivers.shutdown().await;
    }
    keeper.shutdown().await;
    watcher.shutdown().await;
    steerer.shutdown().await;
    let last_calls = async {
        tokio::join!(shares.leave(), hands.give_back_all());
        drop((context, hands));
        while deleter.join_next().await.is_some() {}
    };
    if tokio::time::timeout(LAST_CALLS, last_calls).await.is_err() {
        tracing::warn!("the queue did not take the last calls in time: its messages come back by themselves");
    }
    tracing::info!("stopped");
    if broken.is_some() { Ended::Broken } else { Ended::InOrder }
}

/// Keeps limits, holds and rate shares up to date.
async fn steer(context: &Context, shares: &Keeper) {
    let tell = async {
        loop {
            context.steered.changed().await;
            context.permits.tell();
        }
    };
    let keep_shares = async {
        match context.settings.sharing {
            Sharing::Leased => shares.keep().await,
            Sharing::Static(_) => std::future::pending().await,
        }
    };
    // Whoever tells is there before there is anything to tell.
    tokio::join!(tell, context.steered.keep(&*context.ports.control), keep_shares);
}

/// Receives one priority's messages and works on them; ends when told to stop and all its messages are done with.
async fn receive(context: Arc<Context>, priority: Priority, mut stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(context.settings.prefetch));
    let mut work = JoinSet::new();
    let mut failures = 0;
    while !*stop.borrow() {
        while let Some(ended) = work.try_join_next() {
            tell_panic(ended);
        }
        let permits = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            permits = room_for_batch(&room) => permits,
        };
        if context.clock.check().is_err() {
            pause(&mut stop, CLOCK_PAUSE).await;
            continue;
        }
        let changed = context.steered.changed();
        if context.steered.current().is_none_or(|steering| steering.holds_queue(priority)) {
            // A queue that is held as a whole keeps its messages best itself.
            tokio::select! {
                biased;
                () = changed => {}
                () = pause(&mut stop, HELD_PAUSE) => {}
            }
            continue;
        }
        let asked = Stopwatch::start(&*context.clock);
        let (poll, visibility) = (context.settings.poll, context.settings.visibility);
        // A receive that is cut off may have taken messages: it is always waited for.
        match context.ports.queue.receive(priority, permits.len(), poll, visibility).await {
            Ok(deliveries) => {
                failures = 0;
                for (delivery, permit) in deliveries.into_iter().zip(permits) {
                    let held = context.hands.take(delivery, asked);
                    let (context, stop) = (context.clone(), stop.clone());
                    work.spawn(async move {
                        // Lets go even if the work panics: otherwise its heartbeats would hide the message for hours.
                        let _in_hand = InHand(context.clone(), held.clone());
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
                pause(&mut stop, wait).await;
            }
        }
    }
    while let Some(ended) = work.join_next().await {
        tell_panic(ended);
    }
}

struct InHand(Arc<Context>, Arc<crate::lease::Held>);

impl Drop for InHand {
    fn drop(&mut self) {
        // Only a panic leaves it in hand here. A task that is cut off at the end of a stop stays in hand, to be given back.
        if std::thread::panicking() {
            self.0.hands.let_go(&self.1);
        }
    }
}

fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "work on a message broke off: the message comes again");
    }
}

/// Room for at least one message, and for as many more of one batch as there is.
async fn room_for_batch(room: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let first = room.clone().acquire_owned().await.expect("the semaphore is never closed");
    let more = (1..BATCH).map_while(|_| room.clone().try_acquire_owned().ok());
    std::iter::once(first).chain(more).collect()
}

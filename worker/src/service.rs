//! One worker: a receiving loop per priority, heartbeats, and an orderly stop.

use crate::alive::Alive;
use crate::clock;
use crate::idempotency::read_jobs;
use crate::lease::{Hands, Held};
use crate::metrics::Metrics;
use crate::pipeline::{Context, handle, pause};
use crate::rate::{Permits, Sharing};
use crate::report::Reporter;
use crate::returns::{self, Returns};
use crate::settings::WorkSettings;
use crate::shares::Keeper;
use crate::slots::Slots;
use crate::steering::Steered;
use crate::tenants::Tenants;
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

/// A call to the queue that takes longer, with all its tries, never ends.
pub(crate) const CALL_TIME: Duration = Duration::from_secs(120);

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    InOrder,
    /// One of its own loops broke; the log says which. It stopped as if told to.
    Broken,
}

/// What a worker works with.
pub struct Equipment {
    /// Store and queues.
    pub ports: Ports,
    /// Whom runs are handed to.
    pub gateway: Arc<dyn Gateway>,
    /// The store's time.
    pub clock: Arc<dyn Clock>,
    /// What clocks show where customers live.
    pub zones: Arc<Zones>,
    /// How it works.
    pub settings: WorkSettings,
    /// Its name in rows and logs.
    pub id: String,
}

impl Equipment {
    /// What all messages share, with empty hands, and what those let go of.
    pub(crate) fn context(self, trust: Duration) -> (Context, Returns) {
        let Equipment { ports, gateway, clock, zones, settings, id } = self;
        let (hands, returns) =
            Hands::new(ports.queue.clone(), clock.clone(), settings.visibility, settings.heartbeat, trust);
        let metrics = Arc::new(Metrics::new());
        let steered = Arc::new(Steered::new(clock.clone()));
        let permits = Arc::new(Permits::new(clock.clone(), steered.clone(), settings.sharing));
        let slots = Slots::new(
            settings.slots,
            settings.circuit,
            settings.prefetch,
            permits.clone(),
            clock.clone(),
            metrics.clone(),
        );
        let tenants = Tenants::new(settings.tenant_in_hand, clock.clone());
        let hands = Arc::new(hands);
        let context =
            Context { ports, gateway, clock, zones, settings, id, hands, slots, permits, steered, tenants, metrics };
        (context, returns)
    }
}

/// Works until `stop` is ready; then starts nothing more, finishes its calls within the time to stop, and gives the rest
/// back.
pub async fn run(equipment: Equipment, stop: impl Future<Output = ()>) -> Ended {
    let trust = equipment.settings.trust;
    let (context, returns) = equipment.context(trust);
    let context = Arc::new(context);
    let (queue, clock) = (context.ports.queue.clone(), context.clock.clone());
    let (settings, hands) = (context.settings.clone(), context.hands.clone());
    let alive = Arc::new(Alive::new(clock.clone()));
    let (permits, store) = (context.permits.clone(), context.ports.shares.clone());
    let shares = Arc::new(Keeper::new(permits, store, clock.clone(), settings.share_leases, &context.id));
    let (slots, store) = (context.slots.clone(), context.ports.reports.clone());
    let reporter = Arc::new(Reporter::new(slots, store, clock.clone(), &context.id));
    let (stopping, is_stopping) = watch::channel(false);
    let mut receivers = JoinSet::new();
    for priority in &settings.priorities {
        receivers.spawn(receive(context.clone(), alive.clone(), *priority, is_stopping.clone()));
    }
    let mut dealer = JoinSet::new();
    dealer.spawn(context.slots.clone().deal());
    let mut keeper = JoinSet::new();
    keeper.spawn({
        let (hands, alive) = (hands.clone(), alive.clone());
        async move { hands.keep(&alive).await }
    });
    let mut watcher = JoinSet::new();
    watcher.spawn({
        let context = context.clone();
        async move {
            let watch = clock::watch(&*context.clock, &context.metrics);
            tokio::join!(watch, keep_time(&*context.clock, &*context.ports.control));
        }
    });
    let mut returner = JoinSet::new();
    returner.spawn({
        let alive = alive.clone();
        async move { returns::perform(queue, clock, returns, &alive).await }
    });
    let mut steerer = JoinSet::new();
    steerer.spawn({
        let (context, shares, reporter) = (context.clone(), shares.clone(), reporter.clone());
        async move {
            tokio::join!(steer(&context, &shares), reporter.keep());
        }
    });

    let broken = tokio::select! {
        biased;
        () = stop => None,
        ended = receivers.join_next() => Some(("receiving", ended)),
        ended = dealer.join_next() => Some(("slots", ended)),
        ended = keeper.join_next() => Some(("heartbeats", ended)),
        ended = watcher.join_next() => Some(("the watch over the clock", ended)),
        ended = steerer.join_next() => Some(("rate shares, holds and reports", ended)),
        ended = returner.join_next() => Some(("giving back", ended)),
        overdue = alive.watch(settings.alive_file.as_deref()) => Some((overdue, None)),
    };
    if let Some((what, ended)) = &broken {
        tracing::error!(what, ?ended, "a loop has ended or stands still: the worker stops");
    }
    tracing::info!("stopping: nothing more is started");
    stopping.send_replace(true);
    let finished = async { while receivers.join_next().await.is_some() {} };
    if tokio::time::timeout(settings.stop, finished).await.is_err() {
        tracing::warn!("calls under way did not end within the time to stop; their runs are taken over later");
        receivers.shutdown().await;
    }
    dealer.shutdown().await;
    keeper.shutdown().await;
    watcher.shutdown().await;
    steerer.shutdown().await;
    let last_calls = async {
        tokio::join!(shares.leave(), reporter.leave(), hands.give_back_all());
        drop((context, hands));
        while returner.join_next().await.is_some() {}
    };
    if tokio::time::timeout(LAST_CALLS, last_calls).await.is_err() {
        tracing::warn!("the queue did not take the last calls in time: its messages come back by themselves");
    }
    tracing::info!("stopped");
    if broken.is_some() { Ended::Broken } else { Ended::InOrder }
}

/// Keeps limits, holds and rate shares up to date.
async fn steer(context: &Context, shares: &Keeper) {
    let keep_shares = async {
        match context.settings.sharing {
            Sharing::Leased => shares.keep().await,
            Sharing::Static(_) => std::future::pending().await,
        }
    };
    // Whoever tells is there before there is anything to tell.
    let follow = context.permits.follow(&context.steered);
    tokio::join!(follow, context.steered.keep(&*context.ports.control), keep_shares);
}

/// Receives one priority's messages and works on them; ends when told to stop and all its messages are done with.
async fn receive(context: Arc<Context>, alive: Arc<Alive>, priority: Priority, mut stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(context.settings.prefetch));
    let batch = BATCH.min(context.settings.prefetch.div_ceil(2));
    let mut work = JoinSet::new();
    let mut failures = 0;
    while !*stop.borrow() {
        while let Some(ended) = work.try_join_next() {
            tell_panic(ended);
        }
        let permits = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            permits = room_for_batch(&room, batch) => permits,
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
        let under_way = alive.begin("a receive", poll + CALL_TIME);
        let received = context.ports.queue.receive(priority, permits.len(), poll, visibility).await;
        drop(under_way);
        match received {
            Ok(deliveries) => {
                failures = 0;
                // In hand first: reading their jobs takes time, and heartbeats begin at the receipt.
                let held: Vec<_> = deliveries.into_iter().map(|delivery| context.hands.take(delivery, asked)).collect();
                let (context, stop) = (context.clone(), stop.clone());
                work.spawn(start(context, held, permits, stop));
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

/// Works on the messages of one receive, each by itself, with their jobs read together.
pub(crate) async fn start(
    context: Arc<Context>,
    held: Vec<Arc<Held>>,
    permits: Vec<OwnedSemaphorePermit>,
    stop: watch::Receiver<bool>,
) {
    let mut work = JoinSet::new();
    // Lets go even if the work panics: otherwise its heartbeats would hide the message for hours.
    let in_hand: Vec<_> = held.iter().map(|held| InHand(context.clone(), held.clone())).collect();
    let mut jobs = read_jobs(&context, &held).await.into_iter();
    for ((held, permit), in_hand) in held.into_iter().zip(permits).zip(in_hand) {
        let (context, stop, job) = (context.clone(), stop.clone(), jobs.next().flatten());
        work.spawn(async move {
            let _in_hand = in_hand;
            handle(context, held, job, stop).await;
            drop(permit);
        });
    }
    while let Some(ended) = work.join_next().await {
        tell_panic(ended);
    }
}

struct InHand(Arc<Context>, Arc<Held>);

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

/// Room for a batch: a receive that can take one message only costs as much as one that takes ten.
async fn room_for_batch(room: &Arc<Semaphore>, batch: usize) -> Vec<OwnedSemaphorePermit> {
    let mut permits = Vec::with_capacity(batch);
    for _ in 0..batch {
        permits.push(room.clone().acquire_owned().await.expect("the semaphore is never closed"));
    }
    permits
}

//! One worker: a receiving loop per priority, heartbeats, and an orderly stop.

use crate::alive::Alive;
use crate::clock;
use crate::gauges;
use crate::lease::Hands;
use crate::metrics::Metrics;
use crate::pipeline::Context;
use crate::rate::{Permits, Sharing};
use crate::receive::receive;
use crate::report::Reporter;
use crate::returns::{self, Returns};
use crate::settings::WorkSettings;
use crate::shares::Keeper;
use crate::slots::Slots;
use crate::steering::Steered;
use crate::tenants::Tenants;
use punctual_core::clock::Clock;
use punctual_core::ports::{Gateway, Ports};
use punctual_core::process::keep_time;
use punctual_core::zone::Zones;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

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
            tokio::join!(watch, gauges::keep(&context), keep_time(&*context.clock, &*context.ports.control));
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

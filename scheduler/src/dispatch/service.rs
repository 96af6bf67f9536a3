//! One scheduler copy: it renews its leases, looks at all leases every second, and runs the loops of each shard it holds.

use super::leases::Holder;
use super::pass::Dispatcher;
use super::shard;
use super::sweep::Sweep;
use super::{DispatchSettings, LAYOUT_EVERY, LOOK_EVERY};
use punctual_core::clock::Clock;
use punctual_core::due::Layout;
use punctual_core::error::PortError;
use punctual_core::ports::{Control, Ports};
use punctual_core::process::ClockWatch;
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
    layout: Layout,
    zones: Arc<Zones>,
    settings: DispatchSettings,
    id: String,
    stop: impl Future<Output = ()>,
) {
    let holder = Holder::new(ports.leases.clone(), clock.clone(), layout.read, settings.leases, id.clone());
    let control = ports.control.clone();
    let sweep = Sweep::new(ports.clone(), clock.clone(), zones.clone(), id.clone());
    let dispatcher = Arc::new(Dispatcher::new(ports, clock.clone(), layout.write, zones, id, &settings));
    let mut turns = Turns::new(holder, control, clock.clone(), dispatcher.clone(), layout, settings);
    let mut loops = JoinSet::new();
    let mut asides = JoinSet::new();
    asides.spawn(sweep.run(dispatcher.clone()));
    let probing = dispatcher.clone();
    asides.spawn(async move { probing.keep_probing().await });
    let watching = dispatcher.clone();
    asides.spawn(async move { watching.keep_watch().await });
    tokio::pin!(stop);
    loop {
        let began = clock.monotonic();
        let is_stopped = {
            let turn = turns.take();
            tokio::pin!(turn);
            tokio::select! {
                biased;
                () = &mut turn => false,
                () = &mut stop => {
                    // Cut off in the middle, a counter may be known wrong and its lease expire by itself instead.
                    let _ = timeout(LAST_TURN, turn).await;
                    true
                }
            }
        };
        let fresh = turns.holder.fresh();
        if !fresh.is_empty() && !is_stopped {
            let taken: Vec<String> = fresh.iter().map(|lease| lease.shard.to_string()).collect();
            dispatcher.count_taken(taken.len());
            tracing::info!(taken = taken.join(" "), held = turns.holder.held().count(), "shards taken");
        }
        for lease in fresh {
            loops.spawn(shard::work(dispatcher.clone(), clock.clone(), lease, settings));
        }
        while let Some(ended) = loops.try_join_next() {
            tell_panic(ended);
        }
        if is_stopped {
            break;
        }
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = tokio::time::sleep(turns.wait(began)) => {}
        }
    }
    asides.abort_all();
    let mut holder = turns.holder;
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

/// The turns of a copy: what it does about its leases, and when.
struct Turns {
    holder: Holder,
    control: Arc<dyn Control>,
    clock: Arc<dyn Clock>,
    dispatcher: Arc<Dispatcher>,
    layout: Layout,
    settings: DispatchSettings,
    renew_at: Duration,
    read_layout_at: Duration,
    clock_watch: ClockWatch,
    is_failing: bool,
}

impl Turns {
    fn new(
        holder: Holder,
        control: Arc<dyn Control>,
        clock: Arc<dyn Clock>,
        dispatcher: Arc<Dispatcher>,
        layout: Layout,
        settings: DispatchSettings,
    ) -> Self {
        let now = clock.monotonic();
        let read_layout_at = now + LAYOUT_EVERY;
        Turns {
            holder,
            control,
            clock,
            dispatcher,
            layout,
            settings,
            renew_at: now,
            read_layout_at,
            clock_watch: ClockWatch::new("no run is sent and no job advanced until this is mended"),
            is_failing: false,
        }
    }

    /// One turn: renews if it is time, then looks, hands over, asks and takes.
    async fn take(&mut self) {
        let (now, renew_every) = (self.clock.monotonic(), self.settings.leases.renew_every);
        if now >= self.renew_at {
            self.renew_at = now + renew_every;
            self.holder.renew().await;
        }
        let error = match timeout(renew_every, self.look(now)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(PortError::Unknown("the leases could not be read in time".into())),
        };
        if let Some(error) = &error
            && !self.is_failing
        {
            match error {
                PortError::Permanent(_) => tracing::error!(%error, "the leases cannot be used; it is tried again"),
                _ => {
                    tracing::warn!(class = error.class(), %error, "a turn of the leases failed; the next one repeats it")
                }
            }
        }
        self.is_failing = error.is_some();
        let (held, first) = (self.holder.held().count(), self.layout.read.all().next());
        let is_first = first.is_some_and(|first| self.holder.held().any(|shard| shard == first));
        self.dispatcher.note_shards(held, self.holder.oldest_cursor(), is_first);
        // After a call to the store: before the first one nothing is known of its time.
        if let Some(offset) = self.clock_watch.look(&*self.clock) {
            self.dispatcher.note_clock_offset(offset);
        }
    }

    async fn look(&mut self, now: Duration) -> Result<(), PortError> {
        if now >= self.read_layout_at {
            if let Some(layout) = self.control.layout().await?.filter(|layout| *layout != self.layout) {
                tracing::info!(?layout, "the shard counts have changed");
                self.holder.set_shards(layout.read);
                self.dispatcher.set_shards(layout.write);
                self.layout = layout;
            }
            self.read_layout_at = now + LAYOUT_EVERY;
        }
        self.holder.look_and_take(self.dispatcher.queues.is_cut_off()).await
    }

    /// How long to wait for the next turn after one that began at `began`: a second, less when something expires sooner.
    fn wait(&self, began: Duration) -> Duration {
        let now = self.clock.monotonic();
        let expiry = self.holder.next_expiry().filter(|at| *at > began);
        let next = expiry.into_iter().chain([began + LOOK_EVERY.min(self.settings.leases.renew_every)]).min();
        next.unwrap_or(now).saturating_sub(now)
    }
}

fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a shard's loop broke off: its lease is not renewed, and another copy takes the shard");
    }
}

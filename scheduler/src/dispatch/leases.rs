//! Step 5, *lease*, on the scheduler's side: registration, renewal, taking and giving back of shards.
//!
//! [`Holder`] keeps the books of the mechanism in [`punctual_core::lease`]; whether a shard is worked on is read from
//! [`ShardLease`], which the shard's loop asks before every send.

use super::fitness::Fitness;
use super::pass::Permission;
use super::queues::Queues;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use punctual_core::clock::{Clock, Standing, Stopwatch, Trust};
use punctual_core::due::{Cursor, Minute, ShardId, Shards};
use punctual_core::error::PortError;
use punctual_core::lease::{Lease, LeaseId, LeaseTimes, Observer, Take, plan_asks, plan_takes, to_hand_over};
use punctual_core::ports::{Claim, LeaseStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

const RENEWALS_AT_ONCE: usize = 8;

/// The two sides from which a shard is worked on. Each must get somewhere for the lease to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Passes over what is due.
    Passes,
    /// Sends by the clock.
    Clock,
}

/// A shard in this copy's hands, as its loops see it.
pub struct ShardLease {
    /// Which shard.
    pub shard: ShardId,
    clock: Arc<dyn Clock>,
    /// None = not before the next renewal.
    trust: Mutex<Option<Trust>>,
    last_progress_ms: [AtomicU64; 2],
    cursor: AtomicI64,
    given_up: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

impl ShardLease {
    fn new(shard: ShardId, clock: Arc<dyn Clock>, trust: Option<Trust>, cursor: Cursor) -> Self {
        let now = clock.monotonic().as_millis() as u64;
        Self {
            shard,
            clock,
            trust: Mutex::new(trust),
            last_progress_ms: [AtomicU64::new(now), AtomicU64::new(now)],
            cursor: AtomicI64::new(cursor.0.0),
            given_up: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        }
    }

    /// Whether the lease is gone for good and the loops must end.
    pub fn is_given_up(&self) -> bool {
        *self.given_up.borrow()
    }

    /// How far the shard has been read.
    pub fn cursor(&self) -> Cursor {
        Cursor(Minute(self.cursor.load(Ordering::Acquire)))
    }

    /// Notes how far the shard has been read.
    pub fn set_cursor(&self, cursor: Cursor) {
        self.cursor.store(cursor.0.0, Ordering::Release);
    }

    /// Ends this copy's claim: nothing is sent any more.
    pub fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    /// Says that no send is under way any more and none will follow.
    pub(super) fn set_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Whether its loops have ended.
    fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits for the end of its loops.
    async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Sleeps, or less when the claim ends.
    pub async fn sleep(&self, wait: Duration) {
        let mut given_up = self.given_up.subscribe();
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            _ = given_up.wait_for(|given_up| *given_up) => {}
        }
    }

    /// The permission of one side, in a process that knows these queues.
    pub(super) fn side<'a>(&'a self, side: Side, queues: &'a Queues) -> SideOfShard<'a> {
        SideOfShard { lease: self, side, queues }
    }

    /// Whether this copy may send for the shard right now: the lease is trusted by every clock, and the clock itself is
    /// right.
    pub fn holds(&self) -> bool {
        let is_trusted = || self.trusted().is_some_and(|trust| !trust.is_over(&*self.clock));
        !self.is_given_up() && self.clock.check().is_ok() && is_trusted()
    }

    fn trust(&self, trust: Trust) {
        *self.trusted() = Some(trust);
    }

    fn trusted(&self) -> MutexGuard<'_, Option<Trust>> {
        // A panic elsewhere leaves the value whole: it is set in one piece.
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the side that is behind last got somewhere.
    fn last_progress(&self) -> Duration {
        let [passes, clock] = &self.last_progress_ms;
        Duration::from_millis(passes.load(Ordering::Acquire).min(clock.load(Ordering::Acquire)))
    }
}

/// A shard's lease as one of its sides uses it.
pub(super) struct SideOfShard<'a> {
    lease: &'a ShardLease,
    side: Side,
    queues: &'a Queues,
}

impl Permission for SideOfShard<'_> {
    fn holds(&self) -> bool {
        self.lease.holds()
    }

    fn progress(&self) {
        // Reading alone gets nobody anywhere.
        if self.queues.is_cut_off() {
            return;
        }
        let now = self.lease.clock.monotonic().as_millis() as u64;
        self.lease.last_progress_ms[self.side as usize].store(now, Ordering::Release);
    }
}

struct Held {
    counter: u64,
    /// When it began to be given back, by the monotonic clock; meaningless before.
    left_at: Duration,
    lease: Arc<ShardLease>,
}

/// For so long a turn waits for the last send of a shard that is given back; the next turn goes on waiting.
const LAST_SENDS: Duration = Duration::from_millis(500);

/// What a renewal came to.
enum Renewal {
    Renewed {
        counter: u64,
    },
    /// The shard's loop got nowhere for a lease time: it must not be renewed.
    Unearned,
    /// Somebody else has it.
    Lost,
}

/// Keeps this copy's registration and its shards.
pub struct Holder {
    store: Arc<dyn LeaseStore>,
    clock: Arc<dyn Clock>,
    shards: Shards,
    times: LeaseTimes,
    id: String,
    registration: Option<u64>,
    registered_at: Option<Duration>,
    last_register_at: Duration,
    fitness: Fitness,
    observer: Observer,
    held: BTreeMap<ShardId, Held>,
    /// Shards that this copy gives back as soon as their loops have ended.
    leaving: BTreeMap<ShardId, Held>,
    fresh: Vec<Arc<ShardLease>>,
}

impl Holder {
    /// A holder with the id of this process start, which no other start may share.
    pub fn new(
        store: Arc<dyn LeaseStore>,
        clock: Arc<dyn Clock>,
        shards: Shards,
        times: LeaseTimes,
        id: String,
    ) -> Self {
        Self {
            store,
            clock,
            shards,
            times,
            id,
            registration: None,
            registered_at: None,
            last_register_at: Duration::ZERO,
            fitness: Fitness::new(times.lease),
            observer: Observer::default(),
            held: BTreeMap::new(),
            leaving: BTreeMap::new(),
            fresh: Vec::new(),
        }
    }

    /// The shards in this copy's hands.
    pub fn held(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.held.keys().copied()
    }

    /// The cursor of the shard that is furthest behind.
    pub fn oldest_cursor(&self) -> Option<Cursor> {
        self.held.values().map(|held| held.lease.cursor()).min_by_key(|cursor| cursor.0)
    }

    /// The shards taken since the last call: each needs its loop.
    pub fn fresh(&mut self) -> Vec<Arc<ShardLease>> {
        std::mem::take(&mut self.fresh)
    }

    /// Renews what is held, and gives up what was lost or is not earned.
    pub async fn renew(&mut self) {
        let renewals = self.held.iter().map(|(shard, held)| {
            let (shard, counter, lease) = (*shard, held.counter, held.lease.clone());
            let holder = &*self;
            async move {
                // One that hangs must not keep the others waiting; what came of it is found by the next one.
                let renewal = timeout(holder.times.renew_every, holder.renew_one(counter, &lease)).await;
                let unknown = || Err(PortError::Unknown("it was not answered in time".into()));
                (shard, renewal.unwrap_or_else(|_| unknown()))
            }
        });
        let renewals: Vec<_> = renewals.collect();
        let results: Vec<_> = stream::iter(renewals).buffer_unordered(RENEWALS_AT_ONCE).collect().await;
        for (shard, result) in results {
            match result {
                Ok(Renewal::Renewed { counter }) => {
                    if let Some(held) = self.held.get_mut(&shard) {
                        held.counter = counter;
                    }
                }
                Ok(Renewal::Lost) => {
                    tracing::warn!(%shard, "the shard is given up: another copy has taken it over");
                    self.give_up(shard);
                }
                Ok(Renewal::Unearned) => {
                    tracing::warn!(%shard, "the shard is left to others: its loop got nowhere for a lease time");
                    let now = self.clock.monotonic();
                    self.leave(shard, now);
                    if let Some(pause) = self.fitness.got_nowhere(now) {
                        let pause_s = pause.as_secs();
                        tracing::info!(pause_s, "this copy takes no shards for a while, unless it is the only one");
                    }
                }
                Err(error) => {
                    tracing::warn!(%shard, class = error.class(), %error, "a lease could not be renewed; it is trusted until its time is over");
                }
            }
        }
    }

    async fn renew_one(&self, counter: u64, lease: &ShardLease) -> Result<Renewal, PortError> {
        let id = LeaseId::Shard(lease.shard);
        let cursor = Some(lease.cursor().0);
        let mut counter = counter;
        // Raised by an earlier call whose answer was lost, nobody knows when: raise it once more, from now.
        for _ in 0..2 {
            let since = Stopwatch::start(&*self.clock);
            if !self.times.has_earned_renewal(lease.last_progress(), self.clock.monotonic()) {
                return Ok(Renewal::Unearned);
            }
            match self.store.renew(&id, &self.id, counter, cursor).await? {
                Claim::Held { counter } => {
                    lease.trust(Trust { since, lasts: self.times.trusted_for() });
                    return Ok(Renewal::Renewed { counter });
                }
                Claim::Mine { counter: now } => counter = now,
                Claim::Lost => return Ok(Renewal::Lost),
            }
        }
        Ok(Renewal::Renewed { counter })
    }

    /// Registers, looks at all leases, and takes what is due to this copy, unless it leaves that to others: it got nowhere,
    /// and `is_cut_off` says whether it still cannot, or its clock is off. May be cut off at any point.
    ///
    /// # Errors
    /// The call that failed; the next turn repeats it.
    pub async fn look_and_take(&mut self, is_cut_off: bool) -> Result<(), PortError> {
        let began = self.clock.monotonic();
        if matches!(self.clock.standing(), Standing::Off { .. }) {
            // Nothing is sent by such a clock, so nothing is kept from others either.
            let held: Vec<ShardId> = self.held().collect();
            held.into_iter().for_each(|shard| self.leave(shard, began));
            return self.step_back(began).await;
        }
        if self.fitness.is_unfit(began, is_cut_off) {
            self.step_back(began).await?;
            self.look().await?;
            if self.observer.live_copies(&self.id, &self.times, began).len() == 1 {
                self.fitness.end_pause();
            }
            return Ok(());
        }
        self.register(began).await?;
        let leases = self.look().await?;
        for forgotten in self.observer.forgotten_copies(&leases, &self.times, began) {
            if let Err(error) = self.store.remove(forgotten).await {
                tracing::debug!(class = error.class(), %error, "an old registration could not be removed");
            }
        }
        // Copies that start together must see each other before the first of them counts heads.
        let has_settled = self.registered_at.is_some_and(|at| began.saturating_sub(at) >= self.times.renew_every);
        if !has_settled {
            return Ok(());
        }
        self.hand_over(&leases, began);
        self.give_back(began).await?;
        // What is on its way out is not free for the copy that hands it over.
        let held: BTreeSet<ShardId> = self.held.keys().chain(self.leaving.keys()).copied().collect();
        for ask in plan_asks(&self.observer, &leases, &self.shards, &self.id, &held, &self.times, began) {
            if let Some(owner) = &ask.owner {
                self.store.ask(&ask.id, owner, &self.id).await?;
            }
        }
        for take in plan_takes(&self.observer, &leases, &self.shards, &self.id, &held, &self.times, began) {
            self.take(take).await?;
        }
        Ok(())
    }

    /// Looks at all leases.
    async fn look(&mut self) -> Result<Vec<Lease>, PortError> {
        let leases = self.store.list().await?;
        // What the list shows may be as new as its end: counted from there, nothing seems to stand still for too long.
        self.observer.observe(&leases, self.clock.monotonic());
        Ok(leases)
    }

    /// Counts no more, and gives back what it leaves: a copy that counts but gets nowhere would keep its share from those
    /// that could do the work.
    async fn step_back(&mut self, now: Duration) -> Result<(), PortError> {
        let is_gone = self.deregister().await;
        self.give_back(now).await?;
        is_gone
    }

    /// Begins to hand over what others ask for and should have.
    fn hand_over(&mut self, leases: &[Lease], now: Duration) {
        for shard in to_hand_over(&self.observer, leases, &self.id, &self.times, now) {
            if self.held.contains_key(&shard) {
                tracing::info!(%shard, "the shard is handed over to a copy that holds fewer");
                self.leave(shard, now);
            }
        }
    }

    /// Ends this copy's claim to a shard, which is given back when its loops have ended.
    fn leave(&mut self, shard: ShardId, now: Duration) {
        if let Some(held) = self.held.remove(&shard) {
            held.lease.give_up();
            self.leaving.insert(shard, Held { left_at: now, ..held });
        }
    }

    /// Gives back what this copy leaves: after the last send of the shard's loops.
    async fn give_back(&mut self, now: Duration) -> Result<(), PortError> {
        // A loop that broke off never says that it has ended: its lease has expired by then.
        self.leaving.retain(|_, held| now.saturating_sub(held.left_at) < self.times.lease);
        let ends = join_all(self.leaving.values().map(|held| held.lease.ended()));
        let _ = timeout(LAST_SENDS, ends).await;
        let ended: Vec<ShardId> =
            self.leaving.iter().filter(|(_, held)| held.lease.has_ended()).map(|(shard, _)| *shard).collect();
        for shard in ended {
            if let Some(held) = self.leaving.remove(&shard) {
                let (id, cursor) = (LeaseId::Shard(shard), Some(held.lease.cursor().0));
                // What cannot be given back expires by itself.
                self.store.release(&id, &self.id, held.counter, cursor).await?;
            }
        }
        Ok(())
    }

    /// When a lease expires that this copy could take then, by the monotonic clock; none = nothing is about to.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.observer.next_expiry(&self.id, &self.times)
    }

    /// Goes by these shards from now on.
    pub fn set_shards(&mut self, shards: Shards) {
        self.shards = shards;
    }

    async fn take(&mut self, take: Take) -> Result<(), PortError> {
        let since = Stopwatch::start(&*self.clock);
        let id = LeaseId::Shard(take.shard);
        let (counter, trust) = match self.store.take(&id, take.observed.as_ref(), &self.id).await? {
            Claim::Held { counter } => (counter, Some(Trust { since, lasts: self.times.trusted_for() })),
            // An earlier take whose answer was lost: no trust before the next renewal.
            Claim::Mine { counter } => (counter, None),
            Claim::Lost => return Ok(()),
        };
        let cursor = Cursor::start(take.observed.and_then(|lease| lease.cursor), self.clock.now());
        let lease = Arc::new(ShardLease::new(take.shard, self.clock.clone(), trust, cursor));
        self.held.insert(take.shard, Held { counter, left_at: Duration::ZERO, lease: lease.clone() });
        self.fresh.push(lease);
        Ok(())
    }

    async fn register(&mut self, now: Duration) -> Result<(), PortError> {
        if self.registration.is_some() && now.saturating_sub(self.last_register_at) < self.times.renew_every {
            return Ok(());
        }
        let id = LeaseId::Copy(self.id.clone());
        let claim = match self.registration {
            None => self.store.take(&id, None, &self.id).await?,
            Some(counter) => self.store.renew(&id, &self.id, counter, None).await?,
        };
        self.last_register_at = now;
        self.registration = match claim {
            Claim::Held { counter } | Claim::Mine { counter } => Some(counter),
            // Others took this copy for dead and threw its registration away: register again.
            Claim::Lost => None,
        };
        if self.registration.is_some() && self.registered_at.is_none() {
            self.registered_at = Some(self.clock.monotonic());
        }
        Ok(())
    }

    async fn deregister(&mut self) -> Result<(), PortError> {
        let Some(counter) = self.registration else { return Ok(()) };
        let id = LeaseId::Copy(self.id.clone());
        self.store.remove(&Lease { id, owner: Some(self.id.clone()), counter, cursor: None, wanted_by: None }).await?;
        (self.registration, self.registered_at) = (None, None);
        Ok(())
    }

    fn give_up(&mut self, shard: ShardId) {
        if let Some(held) = self.held.remove(&shard) {
            held.lease.give_up();
        }
    }

    /// Ends this copy's claims: no loop sends any more.
    pub fn stop_all(&self) {
        self.held.values().chain(self.leaving.values()).for_each(|held| held.lease.give_up());
    }

    /// Gives everything back, after the last send. What cannot be given back expires by itself.
    pub async fn release_all(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.leaving);
        let releases = held.into_iter().map(|(shard, held)| {
            let holder = &*self;
            async move {
                let (id, cursor) = (LeaseId::Shard(shard), Some(held.lease.cursor().0));
                if let Err(error) = holder.store.release(&id, &holder.id, held.counter, cursor).await {
                    tracing::warn!(%shard, class = error.class(), %error, "a lease could not be given back; it expires by itself");
                }
            }
        });
        join_all(releases.collect::<Vec<_>>()).await;
        if let Err(error) = self.deregister().await {
            tracing::warn!(class = error.class(), %error, "the registration could not be removed; it expires by itself");
        }
    }
}

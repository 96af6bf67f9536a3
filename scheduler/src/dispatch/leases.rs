//! Step 5, *lease*, on the scheduler's side: registration, renewal, taking and giving back of shards.
//!
//! [`Holder::turn`] is one turn of the mechanism in [`punctual_core::lease`]. It only keeps the books; whether a shard
//! is worked on is read from [`ShardLease`], which the shard's loop asks before every send.

use super::pass::Permission;
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::due::{Cursor, Minute, ShardId, Shards};
use punctual_core::error::PortError;
use punctual_core::lease::{LeaseId, LeaseTimes, Observer, plan_takes};
use punctual_core::ports::{Claim, LeaseStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

const RENEWALS_AT_ONCE: usize = 8;

/// A shard in this copy's hands, as its loop sees it.
pub struct ShardLease {
    /// Which shard.
    pub shard: ShardId,
    clock: Arc<dyn Clock>,
    trusted_until_ms: AtomicU64,
    last_progress_ms: AtomicU64,
    cursor: AtomicI64,
    given_up: AtomicBool,
    end: Notify,
}

impl ShardLease {
    fn new(shard: ShardId, clock: Arc<dyn Clock>, trusted_until: Duration, cursor: Cursor) -> Self {
        let now = clock.monotonic().as_millis() as u64;
        Self {
            shard,
            clock,
            trusted_until_ms: AtomicU64::new(trusted_until.as_millis() as u64),
            last_progress_ms: AtomicU64::new(now),
            cursor: AtomicI64::new(cursor.0.0),
            given_up: AtomicBool::new(false),
            end: Notify::new(),
        }
    }

    /// Whether the lease is gone for good and the loop must end.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
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
        self.given_up.store(true, Ordering::Release);
        self.end.notify_one();
    }

    /// Sleeps, or less when the claim ends.
    pub async fn sleep(&self, wait: Duration) {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.end.notified() => {}
        }
    }

    fn trust(&self, until: Duration) {
        self.trusted_until_ms.store(until.as_millis() as u64, Ordering::Release);
    }

    fn last_progress(&self) -> Duration {
        Duration::from_millis(self.last_progress_ms.load(Ordering::Acquire))
    }
}

impl Permission for ShardLease {
    fn holds(&self) -> bool {
        let until = Duration::from_millis(self.trusted_until_ms.load(Ordering::Acquire));
        !self.is_given_up() && self.clock.monotonic() < until
    }

    fn progress(&self) {
        self.last_progress_ms.store(self.clock.monotonic().as_millis() as u64, Ordering::Release);
    }
}

struct Held {
    counter: u64,
    lease: Arc<ShardLease>,
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
    observer: Observer,
    held: BTreeMap<ShardId, Held>,
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
            observer: Observer::default(),
            held: BTreeMap::new(),
        }
    }

    /// The shards in this copy's hands.
    pub fn held(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.held.keys().copied()
    }

    /// One turn: renews the registration and the shards, looks at all leases, takes what is due to this copy. Returns the
    /// shards that are new.
    ///
    /// # Errors
    /// The call that failed. What was not renewed is simply trusted no longer when its time is over.
    pub async fn turn(&mut self) -> Result<Vec<Arc<ShardLease>>, PortError> {
        self.renew_held().await;
        self.register().await?;
        let now = self.clock.monotonic();
        let leases = self.store.list().await?;
        self.observer.observe(&leases, now);
        for forgotten in self.observer.forgotten_copies(&leases, &self.times, now) {
            self.store.remove(forgotten).await?;
        }
        // Copies that start together must see each other before the first of them counts heads.
        let settled = self.registered_at.is_some_and(|at| now.saturating_sub(at) >= self.times.renew_every);
        if !settled {
            return Ok(Vec::new());
        }
        let held: BTreeSet<ShardId> = self.held().collect();
        let takes = plan_takes(&self.observer, &leases, &self.shards, &self.id, &held, &self.times, now);
        let mut new = Vec::new();
        for take in takes {
            let id = LeaseId::Shard(take.shard);
            let started = self.clock.monotonic();
            let claim = match self.store.take(&id, take.observed.as_ref(), &self.id).await {
                Ok(claim) => claim,
                Err(error) => {
                    // What was taken so far needs its loops; the rest is for the next turn.
                    tracing::warn!(shard = %take.shard, %error, "a shard could not be taken");
                    break;
                }
            };
            let (counter, trusted_until) = match claim {
                Claim::Held { counter } => (counter, self.times.trusted_until(started)),
                // An earlier take whose answer was lost: no trust before the next renewal.
                Claim::Mine { counter } => (counter, Duration::ZERO),
                Claim::Lost => continue,
            };
            let cursor = Cursor::start(take.observed.and_then(|lease| lease.cursor), self.clock.now());
            let lease = Arc::new(ShardLease::new(take.shard, self.clock.clone(), trusted_until, cursor));
            self.held.insert(take.shard, Held { counter, lease: lease.clone() });
            new.push(lease);
        }
        Ok(new)
    }

    async fn register(&mut self) -> Result<(), PortError> {
        let id = LeaseId::Copy(self.id.clone());
        let claim = match self.registration {
            None => self.store.take(&id, None, &self.id).await?,
            Some(counter) => self.store.renew(&id, &self.id, counter, None).await?,
        };
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

    async fn renew_held(&mut self) {
        let work: Vec<_> = self
            .held
            .iter()
            .map(|(shard, held)| {
                let (store, clock, id, times) = (self.store.clone(), self.clock.clone(), self.id.clone(), self.times);
                let (shard, counter, lease) = (*shard, held.counter, held.lease.clone());
                async move { (shard, renew(&*store, &*clock, &id, &times, counter, &lease).await) }
            })
            .collect();
        let results: Vec<_> = stream::iter(work).buffer_unordered(RENEWALS_AT_ONCE).collect().await;
        for (shard, result) in results {
            match result {
                Ok(Some(counter)) => {
                    if let Some(held) = self.held.get_mut(&shard) {
                        held.counter = counter;
                    }
                }
                Ok(None) => {
                    tracing::warn!(%shard, "the shard is given up: its lease was lost, or it got nowhere for a lease time");
                    if let Some(held) = self.held.remove(&shard) {
                        held.lease.give_up();
                    }
                }
                Err(error) => {
                    tracing::warn!(%shard, %error, "a lease could not be renewed; it is trusted until its time is over")
                }
            }
        }
    }

    /// Gives everything back, after the last send. What cannot be given back expires by itself.
    pub async fn release_all(&mut self) {
        for (shard, held) in std::mem::take(&mut self.held) {
            held.lease.give_up();
            let cursor = Some(held.lease.cursor().0);
            if let Err(error) = self.store.release(&LeaseId::Shard(shard), &self.id, held.counter, cursor).await {
                tracing::warn!(%shard, %error, "a lease could not be given back; it expires by itself");
            }
        }
        if let Some(counter) = self.registration.take() {
            let id = LeaseId::Copy(self.id.clone());
            let registration = punctual_core::lease::Lease { id, owner: Some(self.id.clone()), counter, cursor: None };
            if let Err(error) = self.store.remove(&registration).await {
                tracing::warn!(%error, "the registration could not be removed; it expires by itself");
            }
        }
    }
}

/// Renews one shard; none when it must be given up.
async fn renew(
    store: &dyn LeaseStore,
    clock: &dyn Clock,
    id: &str,
    times: &LeaseTimes,
    counter: u64,
    lease: &ShardLease,
) -> Result<Option<u64>, PortError> {
    let started = clock.monotonic();
    if !times.has_earned_renewal(lease.last_progress(), started) {
        return Ok(None);
    }
    let cursor = Some(lease.cursor().0);
    match store.renew(&LeaseId::Shard(lease.shard), id, counter, cursor).await? {
        Claim::Held { counter } => {
            lease.trust(times.trusted_until(started));
            Ok(Some(counter))
        }
        // Raised by an earlier call whose answer was lost, nobody knows when: raise it once more, from now.
        Claim::Mine { counter } => {
            let started = clock.monotonic();
            match store.renew(&LeaseId::Shard(lease.shard), id, counter, cursor).await? {
                Claim::Held { counter } => {
                    lease.trust(times.trusted_until(started));
                    Ok(Some(counter))
                }
                Claim::Mine { counter } => Ok(Some(counter)),
                Claim::Lost => Ok(None),
            }
        }
        Claim::Lost => Ok(None),
    }
}

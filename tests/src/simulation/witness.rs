//! What passed at the world's side of the ports: who read which row, who held which shard, who called the gateway.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_core::clock::Clock;
use punctual_core::due::{Minute, ShardId};
use punctual_core::job::JobKey;
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::memory::World;
use punctual_core::payload::Handler;
use punctual_core::ports::{Call, Claim, Gateway, LeaseStore, PortResult, Ports, Put, RunStore};
use punctual_core::retry::Outcome;
use punctual_core::run::{RunId, RunRow};
use std::sync::{Arc, Mutex, PoisonError};

/// Something that passed.
#[derive(Clone, Debug)]
pub struct Note {
    /// When.
    pub at: DateTime<Utc>,
    /// Behind so many effects of the world's history.
    pub after: usize,
    /// The process.
    pub process: String,
    /// What.
    pub what: What,
}

/// What passed.
#[derive(Clone, Debug)]
pub enum What {
    /// A row was read: a worker does so when it looks whether a message may be run.
    Read(RunId),
    /// A shard's lease was taken or renewed by this owner; none = it was given back.
    Lease(ShardId, Option<String>),
    /// The gateway was called.
    Called(RunId),
    /// A process began.
    Began,
    /// A process died.
    Died,
    /// A process stood still from here on, or no longer.
    Frozen(bool),
}

/// Writes down what passes, for all processes of a simulation.
#[derive(Clone)]
pub struct Witness {
    world: World,
    clock: Arc<dyn Clock>,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Witness {
    /// A witness of this world.
    pub fn of(world: World, clock: Arc<dyn Clock>) -> Self {
        Witness { world, clock, notes: Arc::default() }
    }

    /// The ports of one process, watched.
    pub fn ports(&self, process: &str) -> Ports {
        let ports = self.world.ports();
        let runs = Arc::new(Watched { port: ports.runs.clone(), by: self.by(process) });
        let leases = Arc::new(Watched { port: ports.leases.clone(), by: self.by(process) });
        Ports { runs, leases, ..ports }
    }

    /// The gateway of one process, watched.
    pub fn gateway(&self, process: &str) -> Arc<dyn Gateway> {
        Arc::new(Watched { port: self.world.gateway(), by: self.by(process) })
    }

    /// Writes something down.
    pub fn note(&self, process: &str, what: What) {
        let (at, after) = (self.clock.now(), self.world.happened());
        let note = Note { at, after, process: process.to_owned(), what };
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// All of it, in order.
    pub fn notes(&self) -> Vec<Note> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn by(&self, process: &str) -> By {
        By { witness: self.clone(), process: process.to_owned() }
    }
}

struct By {
    witness: Witness,
    process: String,
}

impl By {
    fn note(&self, what: What) {
        self.witness.note(&self.process, what);
    }

    fn claim(&self, id: &LeaseId, owner: &str, claim: &Claim) {
        if let (LeaseId::Shard(shard), Claim::Held { .. } | Claim::Mine { .. }) = (id, claim) {
            self.note(What::Lease(*shard, Some(owner.to_owned())));
        }
    }
}

struct Watched<P: ?Sized> {
    port: Arc<P>,
    by: By,
}

#[async_trait]
impl RunStore for Watched<dyn RunStore> {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        self.by.note(What::Read(id.clone()));
        self.port.get(id).await
    }
    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        self.port.put(row).await
    }
    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        self.port.list(key, limit).await
    }
}

#[async_trait]
impl LeaseStore for Watched<dyn LeaseStore> {
    async fn list(&self) -> PortResult<Vec<Lease>> {
        self.port.list().await
    }
    async fn init(&self, id: &LeaseId, cursor: Minute) -> PortResult<()> {
        self.port.init(id, cursor).await
    }
    async fn take(&self, id: &LeaseId, observed: Option<&Lease>, owner: &str) -> PortResult<Claim> {
        let claim = self.port.take(id, observed, owner).await?;
        self.by.claim(id, owner, &claim);
        Ok(claim)
    }
    async fn renew(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<Claim> {
        let claim = self.port.renew(id, owner, counter, cursor).await?;
        self.by.claim(id, owner, &claim);
        Ok(claim)
    }
    async fn release(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<()> {
        self.port.release(id, owner, counter, cursor).await?;
        let left = self.by.witness.world.leases().into_iter().find(|lease| lease.id == *id);
        if let (LeaseId::Shard(shard), Some(None)) = (id, left.map(|lease| lease.owner)) {
            self.by.note(What::Lease(*shard, None));
        }
        Ok(())
    }
    async fn ask(&self, id: &LeaseId, owner: &str, by: &str) -> PortResult<()> {
        self.port.ask(id, owner, by).await
    }
    async fn remove(&self, observed: &Lease) -> PortResult<()> {
        self.port.remove(observed).await
    }
}

#[async_trait]
impl Gateway for Watched<dyn Gateway> {
    async fn send(&self, call: &Call) -> Outcome {
        self.by.note(What::Called(call.reference.clone()));
        self.port.send(call).await
    }

    fn serves(&self, handler: Handler) -> bool {
        self.port.serves(handler)
    }
}

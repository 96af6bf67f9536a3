//! What passed at the world's side of the ports: who read which job, who held which shard, who called the gateway.

use super::plan::Steer;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_core::clock::Clock;
use punctual_core::due::{DueBucket, Minute, ShardId};
use punctual_core::job::{Job, JobKey};
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::memory::World;
use punctual_core::payload::Handler;
use punctual_core::ports::{
    Advance, Call, Claim, Create, Gateway, JobPage, JobRead, JobStore, JobsUnder, LeaseStore, Move, PageToken,
    PortResult, Ports, Replace, ReplaceIf,
};
use punctual_core::retry::Outcome;
use punctual_core::run::RunId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
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
    /// A job was read whole: a worker does so when it looks whether a message may be run.
    Read(JobKey),
    /// A shard's lease was taken or renewed by this owner; none = it was given back.
    Lease(ShardId, Option<String>),
    /// The gateway was called.
    Called(RunId),
    /// A function answered: so many messages it is done with, and so many come again.
    Answered {
        /// Done with.
        done: usize,
        /// Given back, or put back.
        given_back: usize,
    },
    /// An operator said something, and it is in force.
    Steered(Steer),
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
        let jobs = Arc::new(Watched { port: ports.jobs.clone(), by: self.by(process) });
        let leases = Arc::new(Watched { port: ports.leases.clone(), by: self.by(process) });
        Ports { jobs, leases, ..ports }
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
impl JobStore for Watched<dyn JobStore> {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        self.port.create(job).await
    }
    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        keys.iter().for_each(|key| self.by.note(What::Read(key.clone())));
        self.port.get_many(keys).await
    }
    async fn get_due(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        self.port.get_due(keys).await
    }
    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        self.port.replace(job, if_still).await
    }
    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        self.port.advance_many(moves).await
    }
    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        self.port.unindex(key, bucket).await
    }
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        self.port.quarantine(key, bucket, error).await
    }
    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.port.scan(after, limit).await
    }
    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.port.list(of, after, limit).await
    }
    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        self.port.keep_version(job, expires_at).await
    }
    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        self.port.versions(key, numbers).await
    }
    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        self.port.forget_versions(key, numbers).await
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

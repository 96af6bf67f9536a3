//! The world in memory: every port over one shared state, with the semantics of DynamoDB and SQS.
//!
//! For tests and the simulation. A [`World`] is cheap to clone, so several "processes" can work on one; what it keeps is
//! copied in and out, so that nobody changes it except through a port. It is as strict as AWS (conditional writes, batch
//! sizes, visibility, receipts that go stale, instants cut to what is kept of them, messages that vanish after 14 days),
//! and shows what no emulator does: lag of the index, and by [`Faults`] lost answers, crashes, throttling and repeats.

mod control;
mod faults;
mod gateway;
mod history;
mod inspect;
mod jobs;
mod leases;
mod queue;
mod reports;
mod runs;
mod shares;

pub use faults::{Call, Fault, FaultPlan, Faults, Point};
pub use gateway::{GatewaySend, Script};
pub use inspect::{Effect, Enqueued, Recorded, Waiting};
pub(crate) use jobs::as_dispatch_reads;

use crate::access::ApiKeys;
use crate::clock::Clock;
use crate::due::Layout;
use crate::job::{Job, JobKey};
use crate::lease::{Lease, LeaseId};
use crate::message::DeadLetter;
use crate::ports::{Attended, Gateway, Ports};
use crate::priority::Priority;
use crate::rate::Shares;
use crate::report::WorkerReport;
use crate::run::RunId;
use crate::steering::Steering;
use crate::target::Target;
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// All that exists: jobs, rows, leases, rate shares, reports, settings, queues, dead letters, and a gateway.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    // One per queue: something became visible, or will sooner than was known.
    arrivals: [Notify; Priority::ALL.len()],
}

#[derive(Default)]
struct State {
    jobs: jobs::Jobs,
    rows: runs::Rows,
    leases: BTreeMap<LeaseId, Lease>,
    shares: BTreeMap<Target, Shares>,
    reports: BTreeMap<String, WorkerReport>,
    layout: Option<Layout>,
    steering: Steering,
    api_keys: ApiKeys,
    versions: BTreeMap<JobKey, BTreeMap<u64, Job>>,
    attended: BTreeMap<RunId, Attended>,
    unreadable_rows: BTreeSet<RunId>,
    // Never forgotten: DynamoDB promises no moment either.
    kept_once: BTreeMap<String, String>,
    queues: [queue::Queue; Priority::ALL.len()],
    dead_letters: Vec<DeadLetter>,
    gateway: gateway::State,
    history: Vec<Recorded>,
}

impl World {
    /// An empty world, whose store, queues and gateway go by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        World { inner: Arc::new(Inner { clock, state: Mutex::default(), arrivals: Default::default() }) }
    }

    /// The ports to this world.
    pub fn ports(&self) -> Ports {
        let world = Arc::new(self.clone());
        Ports {
            jobs: world.clone(),
            due: world.clone(),
            runs: world.clone(),
            history: world.clone(),
            leases: world.clone(),
            shares: world.clone(),
            reports: world.clone(),
            control: world.clone(),
            queue: world,
        }
    }

    /// The gateway of this world.
    pub fn gateway(&self) -> Arc<dyn Gateway> {
        Arc::new(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state whole: each call changes it in one piece.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> DateTime<Utc> {
        self.inner.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.inner.clock.monotonic()
    }
}

/// An instant as the store keeps it: to the millisecond.
fn to_ms(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}

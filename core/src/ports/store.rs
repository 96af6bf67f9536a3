//! Ports to what is stored: jobs, the due index, run rows, settings.

use super::PortResult;
use crate::access::ApiKeys;
use crate::due::{DueBucket, Layout, ShardId, Shards};
use crate::error::PortError;
use crate::job::{Advanced, Job, JobKey, JobState};
use crate::run::{RunId, RunRow};
use crate::steering::Steering;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Step 1: the jobs.
#[async_trait]
pub trait JobStore: Send + Sync {
    /// Stores a new job if its key is free.
    async fn create(&self, job: &Job) -> PortResult<Create>;

    /// Reads jobs consistently. Keys without a job are missing from the answer.
    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>>;

    /// Reads of jobs, consistently, what dispatch decides by: what the job is to do may be left out, and who changed it. Such a
    /// job cannot be written.
    async fn get_due(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        self.get_many(keys).await
    }

    /// A person's change: stores `job` if the stored one is still what the change was decided from.
    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace>;

    /// Moves up to [`ADVANCES`] different jobs on, each by itself and only if it still stands where its move begins and is
    /// active. One result per move, in order.
    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>>;

    /// Moves one job on.
    async fn advance(&self, key: &JobKey, from: &AdvanceFrom, to: &Advanced) -> PortResult<Advance> {
        let only = Move { key: key.clone(), from: *from, to: to.clone() };
        let result = self.advance_many(&[only]).await?.pop();
        result.unwrap_or_else(|| Err(PortError::Unknown("the store did not say what came of an advance".into())))
    }

    /// Takes a job that is not active out of the due index, if it still sits in `bucket`.
    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()>;

    /// Sets a job aside that cannot be understood, if it still sits in `bucket`.
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()>;

    /// A page of all jobs, in no order. May lag behind what was written last.
    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage>;

    /// A page of jobs, ordered by key within each page. May lag behind what was written last. A token of another listing is
    /// a permanent error.
    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage>;

    /// Keeps a version of a job as it was read, before it is overwritten: until `expires_at`, at least. Of two readings of one
    /// version the one that stood at a later firing stays.
    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()>;

    /// Reads kept versions of a job, those of them that there are; at most [`VERSIONS`] at a time.
    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>>;

    /// Forgets kept versions of a job.
    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()>;
}

/// The most versions of a job that one call reads.
pub const VERSIONS: u64 = 100;

/// Which jobs to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobsUnder {
    /// Whose.
    pub tenant: String,
    /// What their ids begin with; nothing = all.
    pub prefix: String,
}

impl JobsUnder {
    /// All jobs of a tenant.
    pub fn tenant(tenant: &str) -> Self {
        JobsUnder { tenant: tenant.to_owned(), prefix: String::new() }
    }

    /// Whether a job is one of them.
    pub fn covers(&self, key: &JobKey) -> bool {
        key.tenant() == self.tenant && key.id().starts_with(&self.prefix)
    }
}

/// What came of a create.
#[derive(Clone, Debug, PartialEq)]
pub enum Create {
    /// Stored, or already stored by this very write (its answer was lost).
    Created,
    /// The key is taken by this job.
    Exists(Box<JobRead>),
}

/// A job as read.
#[derive(Clone, Debug, PartialEq)]
pub enum JobRead {
    /// Understood.
    Job(Box<Job>),
    /// Stored by something that this program cannot read.
    Unreadable(String),
}

impl JobRead {
    /// The job, if it was understood.
    pub fn job(&self) -> Option<&Job> {
        match self {
            JobRead::Job(job) => Some(job),
            JobRead::Unreadable(_) => None,
        }
    }
}

/// What a change was decided from: a job that was changed, advanced or quarantined since is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceIf {
    /// The version that was read.
    pub version: u64,
    /// The firing that it stood at.
    pub next_scheduled_at: Option<DateTime<Utc>>,
    /// The state that it was in.
    pub state: JobState,
}

impl From<&Job> for ReplaceIf {
    fn from(job: &Job) -> Self {
        ReplaceIf { version: job.version, next_scheduled_at: job.next_scheduled_at, state: job.state }
    }
}

/// What came of a replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Stored, or already stored by this very write.
    Replaced,
    /// The job was changed, advanced or quarantined first, or it is gone.
    Changed,
}

/// Where a job must still stand to be advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvanceFrom {
    /// The firing that is done with.
    pub next_scheduled_at: DateTime<Utc>,
    /// The version that was read.
    pub version: u64,
}

/// The most jobs that one call moves on.
pub const ADVANCES: usize = 25;

/// One job's way from firing to firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which job.
    pub key: JobKey,
    /// Where it must still stand.
    pub from: AdvanceFrom,
    /// Where it goes.
    pub to: Advanced,
}

/// What came of an advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The job moved on.
    Advanced,
    /// It stands elsewhere, was changed, or is not active: someone else advanced or changed it.
    Changed,
}

/// Opaque place in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken(pub String);

/// A page of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobPage {
    /// The jobs, by key.
    pub jobs: BTreeMap<JobKey, JobRead>,
    /// Where the next page starts; none = that was all.
    pub next: Option<PageToken>,
}

/// Step 2: the due index. Eventually consistent: what it says is a hint, the job decides.
#[async_trait]
pub trait DueIndex: Send + Sync {
    /// A page of what sits in `bucket` and is due within `span`, the oldest first.
    async fn page(
        &self,
        bucket: DueBucket,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
    ) -> PortResult<DuePage>;

    /// A page of the quarantined jobs of a shard, those first that were due first.
    async fn quarantined(&self, shard: ShardId, after: Option<PageToken>, limit: usize) -> PortResult<DuePage>;
}

/// A stretch of due times, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueSpan {
    /// Only what is due later than this; none = however early.
    pub after: Option<DateTime<Utc>>,
    /// Only what is due at this or earlier.
    pub until: DateTime<Utc>,
}

impl DueSpan {
    /// All that is due at `until` or earlier.
    pub fn up_to(until: DateTime<Utc>) -> Self {
        DueSpan { after: None, until }
    }
}

/// One entry of the due index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEntry {
    /// The job.
    pub key: JobKey,
    /// When its next run is due.
    pub due_at: DateTime<Utc>,
}

/// A page of the due index.
#[derive(Clone, Debug, Default)]
pub struct DuePage {
    /// The entries.
    pub entries: Vec<DueEntry>,
    /// Where the next page starts; none = that was all.
    pub next: Option<PageToken>,
}

/// Steps 6 and 9: the run rows, idempotency table and history in one.
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Reads a row consistently.
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>>;

    /// Writes `row` over revision `row.revision - 1` (1 = there must be no row).
    async fn put(&self, row: &RunRow) -> PortResult<Put>;

    /// The rows of a job, newest first.
    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>>;
}

/// What came of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// Written, or already written by this very write (same `write_token`).
    Written,
    /// The row is another one by now; none = it is gone.
    Conflict(Option<Box<RunRow>>),
}

/// Settings that live in the store.
#[async_trait]
pub trait Control: Send + Sync {
    /// The shard counts; none = the store was never set up.
    async fn layout(&self) -> PortResult<Option<Layout>>;

    /// Sets the shard counts if none are set yet; returns those in force, as jobs are written by them.
    async fn init_shards(&self, shards: Shards) -> PortResult<Shards>;

    /// Changes the shard counts if they are still `from`; returns those in force.
    async fn change_layout(&self, from: Layout, to: Layout) -> PortResult<Layout>;

    /// The shards that jobs are written to; none = the store was never set up.
    async fn shards(&self) -> PortResult<Option<Shards>> {
        Ok(self.layout().await?.map(|layout| layout.write))
    }

    /// Stores `value` under `id` if nothing is there; returns what is there now, the same to everybody. It may be forgotten
    /// after `expires_at`, and is in force for as long as it is not.
    async fn once(&self, id: &str, value: &str, expires_at: DateTime<Utc>) -> PortResult<String>;

    /// Limits and holds, read consistently.
    async fn steering(&self) -> PortResult<Steering>;

    /// Stores limits and holds if those in the store still have revision `from`; returns those in force. A change whose
    /// answer was lost is found to be in force.
    async fn change_steering(&self, from: u64, to: &Steering) -> PortResult<Steering>;

    /// The keys of the HTTP API, read consistently.
    async fn api_keys(&self) -> PortResult<ApiKeys>;

    /// Stores the keys if those in the store still have revision `from`; returns those in force, as `change_steering`.
    async fn change_api_keys(&self, from: u64, to: &ApiKeys) -> PortResult<ApiKeys>;

    /// What is kept under `id` by [`Self::once`]; none = nothing, or no more.
    async fn kept(&self, id: &str) -> PortResult<Option<String>>;
}

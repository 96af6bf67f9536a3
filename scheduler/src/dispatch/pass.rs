//! One pass over one minute of a shard: read due pages, decide, and have everything performed.
//!
//! What is due is sent first ([`super::fire`]); backlogs and skips ([`super::backlog`]), clean-ups and quarantines follow
//! side by side. Nothing that fails
//! for one job keeps the others of its page from being enqueued: the first error is kept and told at the end.

use super::backlog::{Budget, WorkedOff};
use super::fire::{BATCH_OF_RUNS, BATCHES_AT_ONCE, Firing};
use super::metrics::Metrics;
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::dispatch::{Decision, decide, is_backlog};
use punctual_core::due::{DueBucket, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Job, JobKey, Timetable};
use punctual_core::ports::{DueEntry, JobRead, Ports};
use punctual_core::priority::Priority;
use punctual_core::zone::Zones;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Skips and clean-ups of one page that are worked on at the same time.
const ASIDES_AT_ONCE: usize = 16;

/// Whether this copy may still act for the shard, and a note that it got somewhere.
pub trait Permission: Send + Sync {
    /// Whether the lease is trusted right now. Asked before every send and every skip.
    fn holds(&self) -> bool;
    /// Some jobs were done with: the renewal is earned.
    fn progress(&self);
}

/// Reads, decides, enqueues, advances.
pub struct Dispatcher {
    pub(super) ports: Ports,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    /// Bounds the sends and advances under way in this process.
    pub(super) in_flight: Semaphore,
    shards: Shards,
    zones: Arc<Zones>,
    pub(super) id: String,
    page: usize,
}

/// What some work came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Something due was left.
    pub left: bool,
    /// The first call that failed.
    pub error: Option<PortError>,
    /// The first refusal that concerned one job and its row alone.
    pub refusal: Option<(JobKey, PortError)>,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.left |= other.left;
        self.error = self.error.take().or(other.error);
        self.refusal = self.refusal.take().or(other.refusal);
    }

    pub(super) fn left() -> Self {
        Tally { left: true, ..Tally::default() }
    }

    pub(super) fn failed(error: PortError) -> Self {
        Tally { left: true, error: Some(error), refusal: None }
    }
}

/// What is to be done about a job other than sending its one run.
enum Aside {
    /// It owes several firings, or one that is too late: work them off ([`super::backlog`]).
    WorkOff(Box<Job>),
    Unindex(JobKey),
    Quarantine(JobKey, String),
}

impl Dispatcher {
    /// A dispatcher that signs its messages with `id`.
    pub fn new(
        ports: Ports,
        clock: Arc<dyn Clock>,
        shards: Shards,
        zones: Arc<Zones>,
        id: String,
        settings: &super::DispatchSettings,
    ) -> Self {
        Self {
            ports,
            clock,
            metrics: Metrics::new(),
            in_flight: Semaphore::new(settings.calls_in_flight),
            shards,
            zones,
            id,
            page: settings.page,
        }
    }

    /// Works through what is due in one bucket. What was done before an error stays done, the next pass goes on.
    pub async fn minute(&self, bucket: DueBucket, permission: &dyn Permission) -> Tally {
        let mut tally = Tally::default();
        let mut after = None;
        loop {
            if !permission.holds() {
                tally.add(Tally::left());
                return tally;
            }
            let page = match self.ports.due.page(bucket, self.clock.now(), after, self.page).await {
                Ok(page) => page,
                Err(error) => {
                    tally.add(Tally::failed(error));
                    return tally;
                }
            };
            let of_page = self.page(bucket, &page.entries, permission).await;
            // A store that asks for fewer calls gets none until the shard's back-off is over.
            let is_throttled = matches!(of_page.error, Some(PortError::Throttled(_)));
            tally.add(of_page);
            after = page.next;
            if after.is_none() || is_throttled {
                tally.left |= after.is_some();
                return tally;
            }
        }
    }

    async fn page(&self, bucket: DueBucket, entries: &[DueEntry], permission: &dyn Permission) -> Tally {
        if entries.is_empty() {
            return Tally::default();
        }
        let keys: Vec<JobKey> = entries.iter().map(|entry| entry.key.clone()).collect();
        let jobs = match self.ports.jobs.get_many(&keys).await {
            Ok(jobs) => jobs,
            Err(error) => return Tally::failed(error),
        };
        let (mut firings, mut asides) = (Vec::new(), Vec::new());
        for (key, read) in jobs {
            self.sort_out(bucket, key, read, &mut firings, &mut asides);
        }
        let mut tally = self.fire_all(firings, permission).await;
        let budget = Budget::of_a_page();
        let work: Vec<_> = asides.into_iter().map(|aside| self.aside(bucket, aside, permission, &budget)).collect();
        let results: Vec<_> = stream::iter(work).buffer_unordered(ASIDES_AT_ONCE).collect().await;
        let mut late = Vec::new();
        for result in results {
            match result {
                Ok(to_be_sent) => late.extend(to_be_sent),
                Err(of_one) => tally.add(of_one),
            }
        }
        tally.add(self.fire_all(late, permission).await);
        tally
    }

    async fn fire_all(&self, firings: Vec<Firing>, permission: &dyn Permission) -> Tally {
        let mut by_priority: BTreeMap<Priority, Vec<Firing>> = BTreeMap::new();
        for firing in firings {
            by_priority.entry(firing.priority).or_default().push(firing);
        }
        let batches = by_priority.iter().flat_map(|(priority, of_one)| {
            of_one.chunks(BATCH_OF_RUNS).map(|batch| self.fire(*priority, batch, permission))
        });
        let work: Vec<_> = batches.collect();
        stream::iter(work)
            .buffer_unordered(BATCHES_AT_ONCE)
            .fold(Tally::default(), async |mut all, one| {
                all.add(one);
                all
            })
            .await
    }

    /// Decides about one entry.
    fn sort_out(
        &self,
        bucket: DueBucket,
        key: JobKey,
        read: JobRead,
        firings: &mut Vec<Firing>,
        asides: &mut Vec<Aside>,
    ) {
        let job = match read {
            JobRead::Job(job) => job,
            JobRead::Unreadable(reason) => return asides.push(Aside::Quarantine(key, reason)),
        };
        let now = self.clock.now();
        if is_backlog(&job, now, &self.timetable()) {
            return asides.push(Aside::WorkOff(job));
        }
        match decide(&job, bucket, now, &self.timetable(), &self.id) {
            Decision::Stale => {}
            Decision::Unindex => asides.push(Aside::Unindex(key)),
            Decision::Broken(reason) => asides.push(Aside::Quarantine(key, reason)),
            Decision::Fire { priority, runs } => {
                firings.extend(runs.into_iter().map(|run| Firing::new(priority, run, &job)));
            }
            Decision::Skip { .. } | Decision::Coalesce(_) => asides.push(Aside::WorkOff(job)),
        }
    }

    /// Performs one aside; returns the run of a skip whose row is open: it must be sent after all, the worker decides.
    async fn aside(
        &self,
        bucket: DueBucket,
        aside: Aside,
        permission: &dyn Permission,
        budget: &Budget,
    ) -> Result<Option<Firing>, Tally> {
        if !permission.holds() {
            return Err(Tally::left());
        }
        let (key, result) = match aside {
            Aside::Quarantine(key, reason) => {
                let result = self.quarantine(&key, bucket, &reason).await;
                (key, result.map(|()| None))
            }
            Aside::Unindex(key) => {
                let result = self.ports.jobs.unindex(&key, bucket).await;
                (key, result.map(|()| None))
            }
            Aside::WorkOff(job) => {
                let key = job.spec.key.clone();
                match self.work_off(*job, bucket, permission, budget).await {
                    Ok(WorkedOff::Done(tally)) if tally.left => return Err(tally),
                    Ok(WorkedOff::Done(_)) => (key, Ok(None)),
                    Ok(WorkedOff::Send(firing)) => (key, Ok(Some(*firing))),
                    Err(error) => (key, Err(error)),
                }
            }
        };
        if result.is_ok() {
            permission.progress();
        }
        result.map_err(|error| match error {
            // Rights, or a row that cannot be read: the job stays due, and nothing else waits for it.
            PortError::Permanent(_) => Tally { left: true, error: None, refusal: Some((key, error)) },
            error => Tally::failed(error),
        })
    }

    /// Sets one job aside, so that it never stops the others.
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, reason: &str) -> Result<(), PortError> {
        self.ports.jobs.quarantine(key, bucket, reason).await?;
        tracing::error!(job.id = %key, reason, "a job cannot be dispatched and is quarantined: look at its item");
        self.metrics.quarantined.increment(1);
        Ok(())
    }

    /// What firings are placed by.
    pub(super) fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    pub(super) fn count_failure(&self) {
        self.metrics.pass_failures.increment(1);
    }
}

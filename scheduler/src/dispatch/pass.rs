//! One pass over one minute of a shard: read due pages, decide, and have everything performed.
//!
//! What is due is sent first ([`super::fire`]); skips, clean-ups and quarantines follow side by side. Nothing that fails
//! for one job keeps the others of its page from being enqueued: the first error is kept and told at the end.

use super::fire::{BATCH_OF_RUNS, BATCHES_AT_ONCE, Firing};
use super::metrics::Metrics;
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::dispatch::{Decision, after_skip, decide};
use punctual_core::due::{DueBucket, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job, JobKey, Timetable};
use punctual_core::message::Message;
use punctual_core::ports::{AdvanceFrom, DueEntry, JobRead, Move, Ports, Put};
use punctual_core::priority::Priority;
use punctual_core::process::random_token;
use punctual_core::run::{Event, RunStatus, SkipReason, SkippedBy, SkippedRange, Transition, apply};
use punctual_core::zone::Zones;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
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
    id: String,
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

/// What is to be done about a job other than sending its run.
enum Aside {
    /// Several runs of one job.
    Fire(Vec<Firing>),
    Skip(Box<Skip>),
    Unindex(JobKey),
    Quarantine(JobKey, String),
}

/// Firings that are not to be run.
struct Skip {
    job: Job,
    reason: SkipReason,
    range: Option<SkippedRange>,
    /// The first of them, which has the row.
    first: Firing,
    /// Where the job goes when the row is written.
    to: Advanced,
}

/// The row of a skip, when it is dealt with.
enum SkipRow {
    /// It says what it was to say.
    Written,
    /// It was there already, and stands for these firings.
    Covers(SkippedRange),
    /// Its run has ended otherwise.
    Ended,
    /// A worker has it, or will: the run must be sent after all.
    Open,
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
        let work: Vec<_> = asides.into_iter().map(|aside| self.aside(bucket, aside, permission)).collect();
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
        let from = |run: &Message| AdvanceFrom { next_scheduled_at: run.scheduled_at, version: job.version };
        match decide(&job, bucket, self.clock.now(), &self.timetable(), &self.id) {
            Decision::Stale => {}
            Decision::Unindex => asides.push(Aside::Unindex(key)),
            Decision::Broken(reason) => asides.push(Aside::Quarantine(key, reason)),
            Decision::Fire { priority, runs } => {
                let from = from(&runs[0].message);
                let mut runs: Vec<_> = runs.into_iter().map(|run| Firing::new(priority, run, from)).collect();
                // What is late by many runs does not hold up what is due with one.
                if runs.len() == 1 { firings.append(&mut runs) } else { asides.push(Aside::Fire(runs)) }
            }
            Decision::Skip { reason, range, priority, first, to } => {
                let from = from(&first.message);
                let first = Firing::new(priority, first, from);
                asides.push(Aside::Skip(Box::new(Skip { job: *job, reason, range, first, to })));
            }
        }
    }

    /// Performs one aside; returns the run of a skip whose row is open: it must be sent after all, the worker decides.
    async fn aside(
        &self,
        bucket: DueBucket,
        aside: Aside,
        permission: &dyn Permission,
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
            Aside::Fire(runs) => {
                let tally = self.fire_in_order(&runs, permission).await;
                return if tally.left { Err(tally) } else { Ok(None) };
            }
            Aside::Skip(skip) => {
                let key = skip.job.spec.key.clone();
                (key, self.skip(*skip).await)
            }
        };
        permission.progress();
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

    /// Writes the row of a skip, then advances; or says that its run must be sent after all.
    async fn skip(&self, skip: Skip) -> Result<Option<Firing>, PortError> {
        let Skip { job, reason, range, first, to } = skip;
        let to = match self.write_skip(&first.message, reason, range).await? {
            SkipRow::Written => to,
            SkipRow::Covers(range) => after_skip(&job, range, self.clock.now(), &self.timetable()),
            SkipRow::Ended => first.way.to.clone(),
            SkipRow::Open => return Ok(Some(first)),
        };
        let way = Move { to, ..first.way.clone() };
        self.advance(&[&Firing { way, ..first }]).await?;
        Ok(None)
    }

    async fn write_skip(
        &self,
        message: &Message,
        reason: SkipReason,
        range: Option<SkippedRange>,
    ) -> Result<SkipRow, PortError> {
        let token = random_token();
        let event = Event::Skip { reason, range, by: SkippedBy::Dispatch, takeover_grace: Duration::ZERO };
        let mut row = self.ports.runs.get(&message.run_id()).await?;
        loop {
            match apply(row.as_ref(), &message.facts(), &event, self.clock.now(), &token) {
                Transition::Write(new) => match self.ports.runs.put(&new).await? {
                    Put::Written => {
                        self.metrics.skipped.increment(range.map_or(1, |range| u64::from(range.count)));
                        return Ok(SkipRow::Written);
                    }
                    Put::Conflict(current) => row = current.map(|row| *row),
                },
                Transition::Refused(RunStatus::Running | RunStatus::Retrying) | Transition::LookLater { .. } => {
                    return Ok(SkipRow::Open);
                }
                Transition::Refused(_) => {
                    return Ok(row.and_then(|row| row.range).map_or(SkipRow::Ended, SkipRow::Covers));
                }
            }
        }
    }

    fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    pub(super) fn count_failure(&self) {
        self.metrics.pass_failures.increment(1);
    }
}

//! One pass over one shard: read due pages, decide, enqueue, and only then advance.
//!
//! Invariant: **a job advances only after its run is in the queue or its skip is a row.** So a crash, a lost answer or a
//! lost lease on any line repeats a run's id, and never loses one. The lease prevents the repeat, the condition of the
//! advance prevents a rewind, the worker's begin makes a repeat harmless.

use super::metrics::Metrics;
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::dispatch::{Decision, decide};
use punctual_core::due::{DueBucket, Minute, ShardId, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job, JobKey, NextFiring};
use punctual_core::message::Message;
use punctual_core::ports::{ADVANCES, Advance, AdvanceFrom, BATCH, DueEntry, JobRead, Move, Ports, Put};
use punctual_core::priority::Priority;
use punctual_core::process::random_token;
use punctual_core::run::{Event, RunStatus, SkipReason, SkippedBy, Transition, apply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Runs that are enqueued by calls side by side and then advanced together: five full sends, two full advances.
const BATCH_OF_RUNS: usize = 50;
/// Such batches of one page that are worked on at the same time.
const BATCHES_AT_ONCE: usize = 4;

/// Whether this copy may still act for the shard, and a note that it got somewhere.
pub trait Permission: Send + Sync {
    /// Whether the lease is trusted right now. Asked before every send.
    fn holds(&self) -> bool;
    /// A page was finished: the renewal is earned.
    fn progress(&self);
}

/// Reads, decides, enqueues, advances.
pub struct Dispatcher {
    ports: Ports,
    clock: Arc<dyn Clock>,
    shards: Shards,
    id: String,
    page: usize,
    in_flight: Semaphore,
    metrics: Metrics,
}

/// What a pass came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Runs that the queue accepted.
    pub enqueued: u64,
    /// The oldest minute in which something due was left.
    pub oldest_left: Option<Minute>,
}

/// One due job on its way through a pass.
struct Firing {
    priority: Priority,
    message: Message,
    way: Move,
}

/// What came of sending one message.
#[derive(Clone)]
enum Sent {
    Accepted,
    /// The lease is not trusted any more.
    NotSent,
    /// The queue refused this one message.
    Refused(PortError),
    /// The whole call failed; it may have happened.
    CallFailed(PortError),
}

impl Dispatcher {
    /// A dispatcher that signs its messages with `id`.
    pub fn new(
        ports: Ports,
        clock: Arc<dyn Clock>,
        shards: Shards,
        id: String,
        settings: &super::DispatchSettings,
    ) -> Self {
        Self {
            ports,
            clock,
            shards,
            id,
            page: settings.page,
            in_flight: Semaphore::new(settings.calls_in_flight),
            metrics: Metrics::new(),
        }
    }

    /// Works through `minutes` of a shard, oldest first.
    ///
    /// # Errors
    /// A call to the store or a queue that failed; what was done until then stays done, the next pass goes on.
    pub async fn pass(
        &self,
        shard: ShardId,
        minutes: impl Iterator<Item = Minute> + Send,
        permission: &dyn Permission,
    ) -> Result<PassReport, PortError> {
        let mut report = PassReport::default();
        for minute in minutes {
            let bucket = DueBucket { minute, shard };
            let mut after = None;
            loop {
                if !permission.holds() {
                    report.oldest_left.get_or_insert(minute);
                    return Ok(report);
                }
                let page = self.ports.due.page(bucket, self.clock.now(), after, self.page).await?;
                let (enqueued, left) = self.page(bucket, &page.entries, permission).await?;
                report.enqueued += enqueued;
                if left {
                    report.oldest_left.get_or_insert(minute);
                }
                permission.progress();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(report)
    }

    pub(super) fn count_failure(&self) {
        self.metrics.pass_failures.increment(1);
    }

    /// Works on one page; says how many runs the queue accepted, and whether anything due is left.
    async fn page(
        &self,
        bucket: DueBucket,
        entries: &[DueEntry],
        permission: &dyn Permission,
    ) -> Result<(u64, bool), PortError> {
        if entries.is_empty() {
            return Ok((0, false));
        }
        let keys: Vec<JobKey> = entries.iter().map(|entry| entry.key.clone()).collect();
        let jobs = self.ports.jobs.get_many(&keys).await?;
        let mut firings: BTreeMap<Priority, Vec<Firing>> = BTreeMap::new();
        for (key, read) in jobs {
            if let Some(firing) = self.sort_out(bucket, key, read).await? {
                firings.entry(firing.priority).or_default().push(firing);
            }
        }
        let batches = firings.into_iter().flat_map(|(priority, firings)| {
            let mut batches = Vec::new();
            let mut rest = firings.into_iter().peekable();
            while rest.peek().is_some() {
                batches.push((priority, rest.by_ref().take(BATCH_OF_RUNS).collect::<Vec<_>>()));
            }
            batches
        });
        let work: Vec<_> = batches.map(|(priority, batch)| self.batch(bucket, priority, batch, permission)).collect();
        let results: Vec<_> = stream::iter(work).buffer_unordered(BATCHES_AT_ONCE).collect().await;
        let mut total = (0, false);
        for result in results {
            let (enqueued, left) = result?;
            total = (total.0 + enqueued, total.1 || left);
        }
        Ok(total)
    }

    /// Decides about one entry and performs all that is not a firing.
    async fn sort_out(&self, bucket: DueBucket, key: JobKey, read: JobRead) -> Result<Option<Firing>, PortError> {
        let job = match read {
            JobRead::Job(job) => job,
            JobRead::Unreadable(reason) => {
                self.quarantine(&key, bucket, &reason).await?;
                return Ok(None);
            }
        };
        match decide(&job, bucket, self.clock.now(), &self.shards, &self.id) {
            Decision::Stale => Ok(None),
            Decision::Unindex => self.ports.jobs.unindex(&key, bucket).await.map(|()| None),
            Decision::Fire { priority, message, to } => Ok(Some(firing(&job, priority, message, to))),
            Decision::Skip { reason, priority, message, to } => {
                let firing = firing(&job, priority, message, to);
                if self.skip(&firing.message, reason).await? {
                    self.metrics.skipped.increment(1);
                    self.advance(&[&firing]).await?;
                    return Ok(None);
                }
                Ok(Some(firing))
            }
        }
    }

    /// Sets one job aside, so that it never stops the others.
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, reason: &str) -> Result<(), PortError> {
        tracing::error!(job.id = %key, reason, "a job cannot be dispatched and is quarantined: look at its item");
        self.metrics.quarantined.increment(1);
        self.ports.jobs.quarantine(key, bucket, reason).await
    }

    /// Writes a run's row as skipped. False when the row is open: its run must be enqueued, the worker decides.
    async fn skip(&self, message: &Message, reason: SkipReason) -> Result<bool, PortError> {
        let token = random_token();
        let event = Event::Skip { reason, by: SkippedBy::Dispatch, takeover_grace: Duration::ZERO };
        let mut row = self.ports.runs.get(&message.run_id()).await?;
        loop {
            match apply(row.as_ref(), &message.facts(), &event, self.clock.now(), &token) {
                Transition::Write(new) => match self.ports.runs.put(&new).await? {
                    Put::Written => return Ok(true),
                    Put::Conflict(current) => row = current.map(|row| *row),
                },
                Transition::Refused(RunStatus::Running | RunStatus::Retrying) | Transition::LookLater { .. } => {
                    return Ok(false);
                }
                // The run has ended otherwise: there is its row.
                Transition::Refused(_) => return Ok(true),
            }
        }
    }

    /// Enqueues some runs, then advances those that the queue accepted, whatever became of the others.
    async fn batch(
        &self,
        bucket: DueBucket,
        priority: Priority,
        batch: Vec<Firing>,
        permission: &dyn Permission,
    ) -> Result<(u64, bool), PortError> {
        let sends = batch.chunks(BATCH).map(|some| self.enqueue(priority, some, permission));
        let results = futures::future::join_all(sends).await.into_iter().flatten();
        let now = self.clock.now();
        let (mut accepted, mut failed) = (Vec::with_capacity(batch.len()), None);
        for (firing, sent) in batch.iter().zip(results) {
            match sent {
                Sent::Accepted => {
                    let lag = (now - firing.message.due_at).as_seconds_f64();
                    self.metrics.enqueued(priority, lag.max(0.0));
                    accepted.push(firing);
                }
                // No other try will end better, and the jobs behind it must not wait for it.
                Sent::Refused(PortError::Permanent(reason)) => {
                    self.quarantine(&firing.way.key, bucket, &reason).await?;
                }
                Sent::Refused(error) | Sent::CallFailed(error) => failed = Some(error),
                Sent::NotSent => {}
            }
        }
        let all_moved = self.advance(&accepted).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok((accepted.len() as u64, accepted.len() < batch.len() || !all_moved)),
        }
    }

    /// Sends up to ten messages, if the lease is trusted; says what came of each.
    async fn enqueue(&self, priority: Priority, firings: &[Firing], permission: &dyn Permission) -> Vec<Sent> {
        let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
        if !permission.holds() {
            return vec![Sent::NotSent; firings.len()];
        }
        let bodies: Vec<String> = firings.iter().map(|firing| firing.message.encode()).collect();
        match self.ports.queue.send(priority, &bodies).await {
            Ok(results) => {
                results.into_iter().map(|result| result.map_or_else(Sent::Refused, |()| Sent::Accepted)).collect()
            }
            Err(error) => vec![Sent::CallFailed(error); firings.len()],
        }
    }

    /// Moves jobs on. False when one of them stands elsewhere by now, or was not moved: the next read shows where it is.
    async fn advance(&self, firings: &[&Firing]) -> Result<bool, PortError> {
        let mut all_moved = true;
        for some in firings.chunks(ADVANCES) {
            let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
            let began = self.clock.monotonic();
            let moves: Vec<Move> = some.iter().map(|firing| firing.way.clone()).collect();
            let results = self.ports.jobs.advance_many(&moves).await?;
            let is_stale = DueBucket::is_stale_after(self.clock.monotonic() - began);
            let mut failed = None;
            for (one, result) in moves.iter().zip(results) {
                match result {
                    Ok(Advance::Advanced) => {
                        self.metrics.advanced.increment(1);
                        if is_stale {
                            self.put_into_present_bucket(one).await?;
                        }
                    }
                    Ok(Advance::Changed) => {
                        self.metrics.already_advanced.increment(1);
                        all_moved = false;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(all_moved)
    }

    /// The process stood still during the write: the minute may have been left behind by its reader meanwhile.
    async fn put_into_present_bucket(&self, moved: &Move) -> Result<(), PortError> {
        let Some(next) = moved.to.next else { return Ok(()) };
        let bucket = DueBucket::for_write(next.due_at, self.clock.now(), next.bucket.shard);
        let to = Advanced { next: Some(NextFiring { bucket, ..next }), ..moved.to.clone() };
        let from = AdvanceFrom { next_scheduled_at: next.scheduled_at, ..moved.from };
        self.ports.jobs.advance(&moved.key, &from, &to).await.map(|_| ())
    }
}

fn firing(job: &Job, priority: Priority, message: Message, to: Advanced) -> Firing {
    let from = AdvanceFrom { next_scheduled_at: message.scheduled_at, version: job.version };
    Firing { priority, message, way: Move { key: job.spec.key.clone(), from, to } }
}

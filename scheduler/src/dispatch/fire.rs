//! Enqueue, and only then advance.
//!
//! Invariant: **a job advances only after its run is in the queue or its skip is a row.** So a crash, a lost answer or a
//! lost lease on any line repeats a run's id, and never loses one. The lease prevents the repeat, the condition of the
//! advance prevents a rewind, the worker's begin makes a repeat harmless.

use super::pass::{Dispatcher, Permission, Tally};
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use punctual_core::clock::Stopwatch;
use punctual_core::dispatch::DueRun;
use punctual_core::due::DueBucket;
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job, JobKey, NextFiring};
use punctual_core::message::Message;
use punctual_core::ports::{ADVANCES, Advance, AdvanceFrom, BATCH, Move, PortResult, SendResult};
use punctual_core::priority::Priority;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs that are enqueued by calls side by side and then advanced together: five full sends, two full advances.
const BATCH_OF_RUNS: usize = 50;
/// Such batches of one page that are worked on at the same time.
const BATCHES_AT_ONCE: usize = 4;

/// One due job on its way through a pass.
pub(super) struct Firing {
    pub(super) priority: Priority,
    pub(super) message: Message,
    pub(super) way: Move,
}

impl Firing {
    pub(super) fn new(priority: Priority, run: DueRun, job: &Job) -> Self {
        let from = AdvanceFrom { next_scheduled_at: run.message.scheduled_at, version: job.version };
        Firing { priority, message: run.message, way: Move { key: job.spec.key.clone(), from, to: run.to } }
    }
}

/// What came of sending one message.
#[derive(Clone)]
enum Post {
    Accepted,
    /// It is not in the queue, for all that is known: the lease is not trusted any more, or the queue is in trouble.
    Left,
    /// The queue refuses this message, whenever it is sent.
    Refused(PortError),
}

impl Post {
    fn tally(self, key: &JobKey, priority: Priority) -> Tally {
        match self {
            Post::Accepted => Tally::default(),
            Post::Left => Tally { waiting: vec![(key.clone(), priority)], ..Tally::left() },
            Post::Refused(error) => Tally::in_trouble(key.clone(), error),
        }
    }
}

impl Dispatcher {
    /// Enqueues runs of different jobs, to appear after `delay`, and advances each job whose run the queue accepted.
    pub(super) async fn fire_all(&self, firings: Vec<Firing>, delay: Duration, permission: &dyn Permission) -> Tally {
        let mut by_priority: BTreeMap<Priority, Vec<Firing>> = BTreeMap::new();
        for firing in firings {
            by_priority.entry(firing.priority).or_default().push(firing);
        }
        let batches = by_priority.iter().flat_map(|(priority, of_one)| {
            of_one.chunks(BATCH_OF_RUNS).map(|batch| self.fire(*priority, batch, delay, permission))
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

    /// Enqueues some runs, then advances those that the queue accepted, whatever became of the others.
    async fn fire(&self, priority: Priority, batch: &[Firing], delay: Duration, permission: &dyn Permission) -> Tally {
        let sends = batch.chunks(BATCH).map(|some| self.enqueue(priority, some, delay, permission));
        let results = join_all(sends).await.into_iter().flatten();
        let mut tally = Tally::default();
        let mut accepted = Vec::with_capacity(batch.len());
        for (firing, sent) in batch.iter().zip(results) {
            match sent {
                Post::Accepted => accepted.push(firing),
                left => tally.add(left.tally(&firing.message.job_key, priority)),
            }
        }
        if !accepted.is_empty() {
            tally.add(self.advance(accepted.into_iter().map(|firing| firing.way.clone()).collect()).await);
            permission.progress();
        }
        tally
    }

    /// Enqueues several runs of one job, in order, and advances it behind each batch: behind the last run before which
    /// none failed.
    pub(super) async fn fire_in_order(
        &self,
        priority: Priority,
        runs: &[DueRun],
        job: &Job,
        permission: &dyn Permission,
    ) -> Tally {
        for some in runs.chunks(BATCH_OF_RUNS) {
            let batch: Vec<Firing> = some.iter().map(|run| Firing::new(priority, run.clone(), job)).collect();
            let sends = batch.chunks(BATCH).map(|few| self.enqueue(priority, few, Duration::ZERO, permission));
            let results: Vec<Post> = join_all(sends).await.into_iter().flatten().collect();
            let accepted = results.iter().take_while(|post| matches!(post, Post::Accepted)).count();
            if let Some(last) = accepted.checked_sub(1) {
                // The job stands at the first of them.
                let way = Move { from: batch[0].way.from, ..batch[last].way.clone() };
                let tally = self.advance(vec![way]).await;
                if tally.moved.is_empty() {
                    return tally;
                }
                permission.progress();
            }
            if let Some(first_left) = results.into_iter().nth(accepted) {
                return first_left.tally(&job.spec.key, priority);
            }
        }
        Tally::default()
    }

    /// Sends up to ten messages, if the lease is trusted and their queue is not left alone; says what came of each. What a
    /// queue does not take is its own trouble, not the shard's.
    async fn enqueue(
        &self,
        priority: Priority,
        firings: &[Firing],
        delay: Duration,
        permission: &dyn Permission,
    ) -> Vec<Post> {
        let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
        if !permission.holds() {
            return vec![Post::Left; firings.len()];
        }
        let Some(pass) = self.queues.ask(priority, self.clock.monotonic()) else {
            return vec![Post::Left; firings.len()];
        };
        let first_enqueued_at = self.clock.now();
        let body = |firing: &Firing| {
            let trace = self.span_of_send(&firing.message, first_enqueued_at);
            Message { first_enqueued_at, trace, ..firing.message.clone() }.encode()
        };
        let bodies: Vec<String> = firings.iter().map(body).collect();
        self.metrics.due(priority, firings.len());
        let sent = self.ports.queue.send_after(priority, &bodies, delay).await;
        let now = self.clock.monotonic();
        match failure(&sent) {
            None => self.queues.worked(priority, pass, now),
            Some(error) => {
                self.count_failure();
                self.queues.failed(priority, pass, error, now);
            }
        }
        self.record_sends(priority, firings, first_enqueued_at, &sent);
        let Ok(results) = sent else { return vec![Post::Left; firings.len()] };
        let visible_at = self.clock.now().max(first_enqueued_at + delay);
        let sent = firings.iter().zip(results).map(|(firing, result)| match result {
            Ok(()) => {
                let lag = (visible_at - firing.message.due_at).as_seconds_f64();
                self.metrics.enqueued(priority, lag.max(0.0));
                Post::Accepted
            }
            Err(error @ PortError::Permanent(_)) => Post::Refused(error),
            Err(_) => Post::Left,
        });
        sent.collect()
    }

    /// Moves jobs on, each for itself. One that stands elsewhere by now is left: the next read shows where.
    pub(super) async fn advance(&self, mut moves: Vec<Move>) -> Tally {
        let mut tally = Tally::default();
        for moves in moves.chunks_mut(ADVANCES) {
            let (results, is_stale) = {
                let _permit = self.in_flight.acquire().await.expect("the semaphore is never closed");
                let watch = Stopwatch::start(&*self.clock);
                // It was decided before the send: the minute may have passed meanwhile.
                for next in moves.iter_mut().filter_map(|one| one.to.next.as_mut()) {
                    next.bucket = DueBucket::for_write(next.due_at, watch.started_at, next.bucket.shard);
                }
                let results = match self.ports.jobs.advance_many(moves).await {
                    Ok(results) => results,
                    Err(error) => vec![Err(error); moves.len()],
                };
                (results, DueBucket::is_stale_after(watch.elapsed(&*self.clock)))
            };
            for (one, result) in moves.iter().zip(results) {
                // Also where somebody else seems to have moved it: that may have been this very write, its answer lost.
                let may_be_left_behind = is_stale && !matches!(result, Err(PortError::Permanent(_)));
                if may_be_left_behind {
                    tally.error = tally.error.take().or(self.put_into_present_bucket(one).await.err());
                }
                match result {
                    Ok(Advance::Advanced) => {
                        self.metrics.advanced.increment(1);
                        tally.moved.push(one.key.clone());
                    }
                    Ok(Advance::Changed) => {
                        self.metrics.already_advanced.increment(1);
                        tally.add(Tally::left());
                    }
                    Err(error) => tally.add(Tally::failed(error)),
                }
            }
        }
        tally
    }

    /// The process stood still during the write: the minute may have been left behind by its reader meanwhile.
    async fn put_into_present_bucket(&self, moved: &Move) -> Result<(), PortError> {
        let Some(next) = moved.to.next.clone() else { return Ok(()) };
        let bucket = DueBucket::for_write(next.due_at, self.clock.now(), next.bucket.shard);
        let from = AdvanceFrom { next_scheduled_at: next.scheduled_at, ..moved.from };
        let to = Advanced::at(NextFiring { bucket, ..next });
        self.ports.jobs.advance(&moved.key, &from, &to).await.map(|_| ())
    }
}

/// Why a queue is in trouble after a call: the call failed, or it took none of its entries. What it refuses for good is a
/// message's own trouble.
fn failure(sent: &PortResult<Vec<SendResult>>) -> Option<&PortError> {
    match sent {
        Err(error) => Some(error),
        Ok(results) if results.iter().all(|result| result.as_ref().is_err_and(PortError::may_pass)) => {
            results.first().and_then(|result| result.as_ref().err())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_in_trouble_when_it_takes_nothing_and_not_by_what_it_refuses_for_good() {
        let temporary = || Err(PortError::Temporary("busy".into()));
        let refused = || Err(PortError::Permanent("too long".into()));
        let is_trouble = |sent: PortResult<Vec<SendResult>>| failure(&sent).is_some();
        assert!(is_trouble(Err(PortError::Permanent("no right to send".into()))));
        assert!(is_trouble(Ok(vec![temporary(), temporary()])));
        assert!(!is_trouble(Ok(vec![temporary(), Ok(())])));
        assert!(!is_trouble(Ok(vec![refused()])), "it is that message's trouble");
        assert!(!is_trouble(Ok(vec![refused(), temporary()])), "the queue answers for each");
        assert!(!is_trouble(Ok(vec![])));
    }
}

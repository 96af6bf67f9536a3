//! Step 3, *dispatch*: what a due job becomes. Pure: the scheduler reads, asks here, and performs the answer.
//!
//! Invariant of the caller: a job advances only after its run is in the queue or its skip is a row. The next firing is
//! worked out here, before anything is enqueued, so that a job whose next firing cannot be known is set aside first.

use crate::due::{DueBucket, Shards};
use crate::job::{Advanced, Job, JobState};
use crate::message::{MESSAGE_VERSION, Message};
use crate::priority::Priority;
use crate::run::{RunKey, SkipReason};
use chrono::{DateTime, Utc};

/// What the scheduler is to do about one entry of the due index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The entry is older than the job: the job sits elsewhere, or is not due yet.
    Stale,
    /// The job is not active: take its entry out of the index.
    Unindex,
    /// The job contradicts itself, for this reason: set it aside for a person.
    Broken(String),
    /// Enqueue this message, then advance.
    Fire {
        /// To which queue.
        priority: Priority,
        /// What.
        message: Message,
        /// Where the job goes after that.
        to: Advanced,
    },
    /// Write this run's row as skipped, then advance. If the row is open, enqueue after all: the worker decides.
    Skip {
        /// Why.
        reason: SkipReason,
        /// To which queue, if the row is open.
        priority: Priority,
        /// What would have been enqueued.
        message: Message,
        /// Where the job goes after that.
        to: Advanced,
    },
}

/// Decides about `job`, read consistently, that the index showed in `bucket`.
pub fn decide(job: &Job, bucket: DueBucket, now: DateTime<Utc>, shards: &Shards, scheduler: &str) -> Decision {
    if job.due_bucket != Some(bucket) {
        return Decision::Stale;
    }
    let (JobState::Active, Some(scheduled_at), Some(due_at)) = (job.state, job.next_scheduled_at, job.next_due_at)
    else {
        return Decision::Unindex;
    };
    if due_at > now {
        return Decision::Stale;
    }
    let message = Message {
        v: MESSAGE_VERSION,
        job_key: job.spec.key.clone(),
        run_key: RunKey::scheduled(scheduled_at),
        generation: job.generation,
        scheduled_at,
        due_at,
        first_enqueued_at: now,
        scheduler: scheduler.to_owned(),
    };
    let to = job.after_firing(scheduled_at, now, shards);
    let priority = job.spec.priority;
    if job.deadline(due_at).is_some_and(|deadline| now > deadline) {
        return Decision::Skip { reason: SkipReason::Deadline, priority, message, to };
    }
    Decision::Fire { priority, message, to }
}

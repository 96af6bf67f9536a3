//! Step 6, *idempotency*: whether a message may be run at all, decided from the job and the row before anything is sent.
//!
//! The screen is the first half: it looks at the job. The second half is `begin` in [`crate::run`], the conditional
//! write that makes the run one worker's own. Nothing here reads a clock or writes.

use crate::job::{Job, JobState, RETENTION};
use crate::message::Message;
use crate::run::{RunRow, SkipReason};
use crate::steering::Hold;
use crate::zone::Zones;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// What the screen says of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Go on to the permit and begin.
    Run,
    /// Write the row as void, then delete the message.
    Void {
        /// The generation that voids it.
        void_gen: u64,
        /// Cancelled or superseded.
        reason: SkipReason,
    },
    /// Write the row as skipped, then delete the message.
    Skip(SkipReason),
    /// Neither run, nor deleted, nor a row: look again later.
    PutBack {
        /// After how long.
        wait: Duration,
        /// Why, for metrics.
        why: PutBack,
        /// Whether to wait longer with each delivery: what may take days must not use up the queue's deliveries.
        grows: bool,
    },
    /// Nobody may drop or run it by himself: to the dead letters, with this reason.
    DeadLetter(Hopeless),
}

/// Why nothing can ever be done for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hopeless {
    /// Its job does not exist.
    NoJob,
    /// It is older than rows are kept.
    TooOld,
}

impl Hopeless {
    /// The word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Hopeless::NoJob => "no_job",
            Hopeless::TooOld => "too_old",
        }
    }

    /// What the dead letter says.
    pub fn reason(self) -> &'static str {
        match self {
            Hopeless::NoJob => "its job does not exist",
            Hopeless::TooOld => "it is older than the rows that would show whether it was done",
        }
    }
}

/// Why a message is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBack {
    /// The job is paused.
    Paused,
    /// A hold stands over it.
    Held,
    /// It is not due yet.
    NotDue,
    /// The job read is older than the message.
    JobOlder,
}

impl PutBack {
    /// The word for labels.
    pub fn as_str(self) -> &'static str {
        match self {
            PutBack::Paused => "paused",
            PutBack::Held => "held",
            PutBack::NotDue => "not_due",
            PutBack::JobOlder => "job_older",
        }
    }
}

/// How long a message of a paused job is hidden at first.
const PAUSED_WAIT: Duration = Duration::from_secs(60);
/// How long a message under a hold is hidden at first. It doubles with each delivery: what is released goes on after about
/// as long as it was held, or ten minutes.
pub const HELD_WAIT: Duration = Duration::from_secs(15);

const JOB_OLDER_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Decides from the job (read consistently), the row and the hold that stands over them what to do with a message at
/// `now`. What is void ends under a hold as well; what is past its deadline is put back, as for a paused job.
pub fn screen(
    message: &Message,
    job: Option<&Job>,
    row: Option<&RunRow>,
    hold: Option<&Hold>,
    now: DateTime<Utc>,
    zones: &Zones,
) -> Screen {
    let Some(job) = job else {
        return Screen::DeadLetter(Hopeless::NoJob);
    };
    if job.generation < message.generation {
        return Screen::PutBack { wait: JOB_OLDER_WAIT, why: PutBack::JobOlder, grows: true };
    }
    if let Some(void_gen) = job.void_of(&message.run_key, message.scheduled_at, message.generation) {
        let reason = if job.state == JobState::Cancelled { SkipReason::Cancelled } else { SkipReason::Superseded };
        return Screen::Void { void_gen, reason };
    }
    let age = (now - message.first_enqueued_at).to_std().unwrap_or_default();
    if row.is_none() && age > RETENTION {
        return Screen::DeadLetter(Hopeless::TooOld);
    }
    if job.state == JobState::Paused {
        return Screen::PutBack { wait: PAUSED_WAIT, why: PutBack::Paused, grows: true };
    }
    if hold.is_some() {
        return Screen::PutBack { wait: HELD_WAIT, why: PutBack::Held, grows: true };
    }
    if message.due_at > now {
        let wait = (message.due_at - now).to_std().unwrap_or_default().min(LONGEST_WAIT);
        return Screen::PutBack { wait, why: PutBack::NotDue, grows: false };
    }
    if job.spec.deadline(message.due_at, zones).is_some_and(|deadline| now > deadline) {
        return Screen::Skip(SkipReason::Deadline);
    }
    Screen::Run
}

//! Step 1, *job*: a run that a person asks for, besides those of the timetable, or once more.

use super::{ChangeError, Job, JobState};
use crate::message::{MESSAGE_VERSION, Message};
use crate::run::{RunKey, RunRow};
use crate::schedule::Firing;
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

/// The longest idempotency key, in bytes.
const LONGEST_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// The token that a request for a run has in its run key: the same for each repeat of it, 32 hexadecimal digits.
///
/// # Errors
/// Says how long an idempotency key may be.
pub fn request_token(idempotency_key: &str) -> Result<String, String> {
    let bytes = idempotency_key.len();
    if !(1..=LONGEST_IDEMPOTENCY_KEY_BYTES).contains(&bytes) {
        return Err(format!("an idempotency key has {bytes} bytes: 1 to {LONGEST_IDEMPOTENCY_KEY_BYTES} are allowed"));
    }
    let digest = Sha256::new().chain_update("run-now/v1\0").chain_update(idempotency_key).finalize();
    Ok(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Job {
    /// The message of run `run_key`, made by hand at `at` (whole seconds): the same for every repeat of one request, so that
    /// the row tells them for repeats. Neither the timetable nor the count of firings that are left is touched.
    ///
    /// # Errors
    /// When the job's runs would not be run; says what to do first.
    pub fn run_by_hand(&self, run_key: RunKey, at: DateTime<Utc>) -> Result<Message, ChangeError> {
        self.runs_by_hand()?;
        Ok(Message {
            v: MESSAGE_VERSION,
            job_key: self.spec.key.clone(),
            run_key,
            generation: self.generation,
            scheduled_at: at,
            due_at: at,
            first_enqueued_at: at,
            scheduler: "by hand".into(),
            trace: None,
        })
    }

    /// The message of the `n`-th replay of a run that needs a person: a new run, of what the job says now, with the
    /// original's instants, so that its deadline is the original's too.
    ///
    /// # Errors
    /// When the job's runs would not be run; says what to do first.
    pub fn replay(&self, original: &RunRow, n: u32, now: DateTime<Utc>) -> Result<Message, ChangeError> {
        self.runs_by_hand()?;
        let run_key = original.id.run_key.replay(n);
        Ok(Message {
            v: MESSAGE_VERSION,
            job_key: self.spec.key.clone(),
            scheduled_at: run_key.instant().unwrap_or(original.due_at),
            run_key,
            generation: self.generation,
            due_at: original.due_at,
            first_enqueued_at: now,
            scheduler: "replay".into(),
            trace: None,
        })
    }

    /// The message of the firing at `scheduled_at` once more, where neither a row nor a message of it is to be found: under
    /// its own run key, so that a repeat is harmless, and as the job's present generation decides. A paused job's waits.
    ///
    /// The caller knows that the instant was due: a row of any other would be written by this.
    ///
    /// # Errors
    /// When the job's runs would not be run; says what to do first.
    pub fn requeue(&self, scheduled_at: DateTime<Utc>, now: DateTime<Utc>) -> Result<Message, ChangeError> {
        if self.state != JobState::Paused {
            self.runs_by_hand()?;
        }
        Ok(Message {
            v: MESSAGE_VERSION,
            job_key: self.spec.key.clone(),
            run_key: RunKey::scheduled(scheduled_at),
            generation: self.generation,
            scheduled_at,
            due_at: self.spec.due_at(&Firing { at: scheduled_at, wall: None }),
            first_enqueued_at: now,
            scheduler: "requeue".into(),
            trace: None,
        })
    }

    fn runs_by_hand(&self) -> Result<(), ChangeError> {
        let instead = match self.state {
            JobState::Active | JobState::Done => return Ok(()),
            JobState::Paused => "resume it first",
            JobState::Cancelled => "create it again",
            JobState::Quarantined => "release or edit it first",
        };
        Err(ChangeError::State { state: self.state, instead })
    }
}

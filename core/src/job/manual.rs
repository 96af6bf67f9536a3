//! Step 1, *job*: a run that a person asks for, besides those of the timetable.

use super::{ChangeError, Job, JobState};
use crate::message::{MESSAGE_VERSION, Message};
use crate::run::RunKey;
use chrono::{DateTime, Utc};

impl Job {
    /// The message of run `run_key`, made by hand at `at` (whole seconds): the same for every repeat of one request, so that
    /// the row tells them for repeats. Neither the timetable nor the count of firings that are left is touched.
    ///
    /// # Errors
    /// When the job's runs would not be run; says what to do first.
    pub fn run_by_hand(&self, run_key: RunKey, at: DateTime<Utc>) -> Result<Message, ChangeError> {
        let instead = match self.state {
            JobState::Active | JobState::Done => {
                return Ok(Message {
                    v: MESSAGE_VERSION,
                    job_key: self.spec.key.clone(),
                    run_key,
                    generation: self.generation,
                    scheduled_at: at,
                    due_at: at,
                    first_enqueued_at: at,
                    scheduler: "by hand".into(),
                });
            }
            JobState::Paused => "resume it first",
            JobState::Cancelled => "create it again",
            JobState::Quarantined => "release or edit it first",
        };
        Err(ChangeError::State { state: self.state, instead })
    }
}

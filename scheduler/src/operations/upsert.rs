//! Upserts: a job is made, or made to be what is asked for.

use super::{Created, OperationError, Outcome, change_job, create_job, read};
use punctual_core::clock::Clock;
use punctual_core::job::{Change, Job, JobSpec, JobState, Timetable};
use punctual_core::ports::{JobRead, JobStore};

/// What came of an upsert.
#[derive(Clone, Debug, PartialEq)]
pub enum Upsert {
    /// It was made.
    Created(Box<Job>),
    /// It was there, and is what was asked for now.
    Changed(Box<Job>),
    /// It was this already; nothing was written.
    Same(Box<Job>),
    /// It has another version than the one that was asked to be changed; nothing was written.
    Conflict {
        /// The version it has; none = it is not there.
        version: Option<u64>,
    },
    /// Its schedule has no firing left: it was not made.
    Over,
}

/// Makes a job, or makes the one that is there what `spec` says, if its version is `if_version` where one is given. A
/// cancelled or done one is made again.
///
/// # Errors
/// When the specification or the clock is refused, or the store still fails after several tries.
pub async fn put_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: JobSpec,
    if_version: Option<u64>,
    by: &str,
) -> Result<Upsert, OperationError> {
    for _ in 0..super::change::TRIES {
        let found = read(jobs, &spec.key).await.map_err(|e| OperationError::Store(spec.key.to_string(), e))?;
        let there = match found {
            Some(JobRead::Job(job)) => Some(job),
            Some(JobRead::Unreadable(reason)) => {
                return Err(OperationError::Unreadable(spec.key.to_string(), reason));
            }
            None => None,
        };
        let version = there.as_ref().filter(|job| !job.is_erased).map(|job| job.version);
        if if_version.is_some_and(|asked| version != Some(asked)) {
            return Ok(Upsert::Conflict { version });
        }
        let live = there.filter(|job| job.state != JobState::Cancelled);
        let Some(job) = live else {
            match create_job(jobs, clock, world, spec.clone(), by).await? {
                Created::New(job) => return Ok(Upsert::Created(job)),
                Created::Over => return Ok(Upsert::Over),
                Created::Same(job) | Created::Before(job) => return Ok(Upsert::Same(job)),
                // Somebody else made another one meanwhile.
                Created::Different => continue,
            }
        };
        // Edited as it was read: what became of it meanwhile is looked at anew.
        let edit = Change::Edit(Box::new(spec.clone()));
        match change_job(jobs, clock, world, &spec.key, &edit, Some(job.version), by).await? {
            Outcome::Changed(job) => return Ok(Upsert::Changed(job)),
            Outcome::Same(job) => return Ok(Upsert::Same(job)),
            Outcome::Conflict { .. } | Outcome::Missing => {}
        }
    }
    Err(OperationError::Busy(spec.key.to_string()))
}

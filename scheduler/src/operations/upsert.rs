//! Upserts: a job is made, or made to be what is asked for.

use super::{Created, OperationError, Outcome, change_job, create_job, read};
use punctual_core::clock::Clock;
use punctual_core::job::{Change, Job, JobKey, JobSpec, JobState, Timetable};
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
    /// It is there already, and was to be new; nothing was written.
    Exists,
    /// Its schedule has no firing left: it was not made.
    Over,
}

/// What is asked of the job that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// It has this version.
    pub version: Option<u64>,
    /// It is there.
    pub is_there: bool,
    /// It is not.
    pub is_new: bool,
}

/// Makes a job, or makes the one that is there what it is to be: `spec` reads that off the one that is there, again whenever it
/// changed meanwhile. A cancelled one is made again.
///
/// # Errors
/// When the specification or the clock is refused, or the store still fails after several tries.
pub async fn put_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    key: &JobKey,
    spec: &(dyn Fn(Option<&JobSpec>) -> Result<JobSpec, String> + Send + Sync),
    expected: Expected,
    by: &str,
) -> Result<Upsert, OperationError> {
    for _ in 0..super::change::TRIES {
        let found = read(jobs, key).await.map_err(|e| OperationError::Store(key.to_string(), e))?;
        let there = match found {
            Some(JobRead::Job(job)) => Some(job),
            Some(JobRead::Unreadable(reason)) => {
                return Err(OperationError::Unreadable(key.to_string(), reason));
            }
            None => None,
        };
        let shown = there.filter(|job| !job.is_erased);
        let version = shown.as_ref().map(|job| job.version);
        let is_missing = expected.is_there && version.is_none();
        if is_missing || expected.version.is_some_and(|asked| version != Some(asked)) {
            return Ok(Upsert::Conflict { version });
        }
        if expected.is_new && version.is_some() {
            return Ok(Upsert::Exists);
        }
        let wrong = |problem| OperationError::Input(key.to_string(), problem);
        let spec = spec(shown.as_ref().map(|job| &job.spec)).map_err(wrong)?;
        let live = shown.filter(|job| job.state != JobState::Cancelled);
        let Some(job) = live else {
            match create_job(jobs, clock, world, spec.clone(), by).await? {
                Created::New(job) => return Ok(Upsert::Created(job)),
                Created::Over => return Ok(Upsert::Over),
                Created::Same(_) | Created::Before(_) if expected.is_new => return Ok(Upsert::Exists),
                Created::Same(job) | Created::Before(job) => return Ok(Upsert::Same(job)),
                // Somebody else made another one meanwhile.
                Created::Different | Created::Erased => continue,
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
    Err(OperationError::Busy(key.to_string()))
}

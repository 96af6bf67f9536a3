//! What people do to jobs, over the ports: the command line uses it, and every later surface will.

use punctual_core::clock::Clock;
use punctual_core::due::{DueBucket, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job, JobError, JobSpec, JobState, NextFiring};
use punctual_core::ports::{AdvanceFrom, Create, JobRead, JobStore};
use punctual_core::process::random_token;

/// Why an operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// What was asked for cannot be.
    #[error("job {0}: {1}")]
    Refused(String, JobError),
    /// The store failed.
    #[error("job {0}: {1}")]
    Store(String, PortError),
}

/// What came of making a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// It is there now.
    New(Box<Job>),
    /// A job with this key and the same content was there already.
    Same,
    /// A job with this key but another content is there; it was left as it is.
    Different,
}

/// Makes a job; the first run time is worked out before this returns. Making it twice makes it once.
///
/// # Errors
/// When the specification is refused, or the store fails.
pub async fn create_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    shards: &Shards,
    spec: JobSpec,
    by: &str,
) -> Result<Created, OperationError> {
    let key = spec.key.to_string();
    let store = |error| OperationError::Store(key.clone(), error);
    let began = clock.monotonic();
    let job = Job::create(spec, clock.now(), shards, None, random_token(), by)
        .map_err(|error| OperationError::Refused(key.clone(), error))?;
    match jobs.create(&job).await.map_err(store)? {
        Create::Created => {}
        Create::Exists(existing) => {
            return Ok(match *existing {
                JobRead::Job(existing) if existing.spec == job.spec => Created::Same,
                _ => Created::Different,
            });
        }
    }
    if DueBucket::is_stale_after(clock.monotonic() - began) {
        put_into_present_bucket(jobs, clock, &job).await.map_err(store)?;
    }
    Ok(Created::New(Box::new(job)))
}

/// The process stood still during the write: the job's minute may have been left behind by its reader.
async fn put_into_present_bucket(jobs: &dyn JobStore, clock: &dyn Clock, job: &Job) -> Result<(), PortError> {
    let (Some(scheduled_at), Some(due_at), Some(bucket)) = (job.next_scheduled_at, job.next_due_at, job.due_bucket)
    else {
        return Ok(());
    };
    let bucket = DueBucket::for_write(due_at, clock.now(), bucket.shard);
    let next = NextFiring { scheduled_at, due_at, bucket };
    let to = Advanced { state: JobState::Active, next: Some(next), expires_at: None };
    let from = AdvanceFrom { next_scheduled_at: scheduled_at, version: job.version };
    jobs.advance(&job.spec.key, &from, &to).await.map(|_| ())
}

//! Changes of a job that is there: read, decide, write if it still stands where it was read.

use super::{OperationError, insist, may_be_left_behind, put_into_present_bucket, read};
use punctual_core::clock::{Clock, Stopwatch};
use punctual_core::due::DueBucket;
use punctual_core::job::{Change, Changed, Job, JobKey, JobSpec, Timetable, VERSIONS_KEPT};
use punctual_core::ports::{JobRead, JobStore, PortResult, Replace, ReplaceIf};
use punctual_core::process::random_token;

/// How often a change is decided anew because the job moved meanwhile: it advances once a minute at most.
pub(super) const TRIES: u32 = 8;

/// What came of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The job is this now.
    Changed(Box<Job>),
    /// It was this already; nothing was written.
    Same(Box<Job>),
    /// It has another version than the one that was asked to be changed; nothing was written.
    Conflict {
        /// The version it has.
        version: u64,
    },
    /// There is no such job.
    Missing,
}

/// Changes a job, if its version is `if_version`, where one is given. Decided anew whenever the job advances meanwhile.
///
/// # Errors
/// When the change cannot be, or the store still fails after several tries.
pub async fn change_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    key: &JobKey,
    change: &Change,
    if_version: Option<u64>,
    by: &str,
) -> Result<Outcome, OperationError> {
    change_as(jobs, clock, world, key, &|_| Ok(change.clone()), None, if_version, by).await
}

/// Makes a job again over what is left of one, for the request of this token.
pub(super) async fn recreate_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: &JobSpec,
    made_for: Option<&str>,
    over_version: u64,
    by: &str,
) -> Result<Outcome, OperationError> {
    let again = |_: &Job| Ok(Change::Recreate(Box::new(spec.clone())));
    change_as(jobs, clock, world, &spec.key, &again, made_for, Some(over_version), by).await
}

/// Edits a job: `patch` makes the new specification of the present one, again whenever somebody else changes the job
/// meanwhile, so that nothing is overwritten that it does not mean.
///
/// # Errors
/// As [`change_job`], and what the patch refuses.
pub async fn edit_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    key: &JobKey,
    patch: &(dyn Fn(&JobSpec) -> Result<JobSpec, String> + Send + Sync),
    if_version: Option<u64>,
    by: &str,
) -> Result<Outcome, OperationError> {
    let edit = |job: &Job| match patch(&job.spec) {
        Ok(spec) => Ok(Change::Edit(Box::new(spec))),
        Err(problem) => Err(OperationError::Input(key.to_string(), problem)),
    };
    change_as(jobs, clock, world, key, &edit, None, if_version, by).await
}

#[expect(clippy::too_many_arguments, reason = "its callers name what they mean")]
async fn change_as(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    key: &JobKey,
    plan: &(dyn Fn(&Job) -> Result<Change, OperationError> + Send + Sync),
    made_for: Option<&str>,
    if_version: Option<u64>,
    by: &str,
) -> Result<Outcome, OperationError> {
    let store = |error| OperationError::Store(key.to_string(), error);
    for _ in 0..TRIES {
        clock.check().map_err(|off| OperationError::Clock(key.to_string(), off))?;
        let watch = Stopwatch::start(clock);
        let job = match read(jobs, key).await.map_err(store)? {
            None => return Ok(Outcome::Missing),
            Some(JobRead::Unreadable(reason)) => return Err(OperationError::Unreadable(key.to_string(), reason)),
            Some(JobRead::Job(job)) => job,
        };
        let change = plan(&job);
        if job.is_erased && !matches!(change, Ok(Change::Recreate(_))) {
            // Also what this very change, or another that came too late, kept of it meanwhile.
            erase_versions(jobs, &job).await.map_err(store)?;
            return Ok(Outcome::Missing);
        }
        let change = change?;
        if if_version.is_some_and(|version| version != job.version) {
            return Ok(Outcome::Conflict { version: job.version });
        }
        let changed = job.change(&change, clock.now(), world, random_token(), by);
        let next = match changed.map_err(|error| OperationError::NotAllowed(key.to_string(), error))? {
            Changed::To(next) => match made_for {
                None => next,
                made_for => Box::new(Job { made_for: made_for.map(str::to_owned), ..*next }),
            },
            Changed::Same => {
                // Whoever made it so may have died before it was where its reader looks.
                if may_be_left_behind(&job, clock.now()) {
                    put_into_present_bucket(jobs, clock, &job).await.map_err(store)?;
                }
                return Ok(Outcome::Same(job));
            }
        };
        // Whatever becomes of this change, what it overwrites can be read later.
        if next.is_erased {
            erase_versions(jobs, &job).await.map_err(store)?;
        } else {
            insist(|| jobs.keep_version(&job, clock.now() + VERSIONS_KEPT)).await.map_err(store)?;
        }
        // Always the same write: its edit token tells one whose answer was lost from somebody else's.
        let read_as = ReplaceIf::from(&*job);
        match insist(|| jobs.replace(&next, &read_as)).await.map_err(store)? {
            Replace::Changed => {}
            Replace::Replaced => {
                if next.is_erased {
                    // Once more: a change that was under way may have kept a version since.
                    erase_versions(jobs, &next).await.map_err(store)?;
                }
                if DueBucket::is_stale_after(watch.elapsed(clock)) {
                    put_into_present_bucket(jobs, clock, &next).await.map_err(store)?;
                }
                return Ok(Outcome::Changed(next));
            }
        }
    }
    Err(OperationError::Busy(key.to_string()))
}

/// Forgets the former versions of a job that is to be erased, or was.
async fn erase_versions(jobs: &dyn JobStore, job: &Job) -> PortResult<()> {
    insist(|| jobs.forget_versions(&job.spec.key, 1..=job.version)).await
}

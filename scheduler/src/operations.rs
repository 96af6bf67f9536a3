//! What people do to jobs, over the ports: the command line uses it, and every later surface will.

mod audit;
mod change;
mod manual;
mod quarantine;
mod replay;
mod upsert;

pub use audit::{Sources, Span, audit_job, requeue, scheduled_instant};
pub use change::{Outcome, change_job, edit_job};
pub use manual::{RunNow, run_now};
pub use quarantine::quarantined;
pub use replay::{Planned, Replay, ReplayPlan, perform_replay, plan_replay, replay};
pub use upsert::{Expected, Upsert, put_job};

use chrono::{DateTime, Utc};
use punctual_core::clock::{Clock, ClockOff, Stopwatch};
use punctual_core::due::{DueBucket, Minute, SETTLE};
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, ChangeError, Job, JobError, JobKey, JobSpec, JobState, NextFiring, Timetable};
use punctual_core::ports::{AdvanceFrom, Create, JobRead, JobStore, PortResult};
use punctual_core::process::random_token;
use std::future::Future;
use std::time::Duration;

/// Tries of a call after its first.
const RETRIES: u32 = 5;
/// Pause before the first of them; each further pause is twice the one before, 6.2 s in all.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Why an operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// What was asked for cannot be.
    #[error("job {0}: {1}")]
    Refused(String, JobError),
    /// The job as it is does not allow it.
    #[error("job {0}: {1}")]
    NotAllowed(String, ChangeError),
    /// What was said about the job cannot be taken.
    #[error("job {0}: {1}")]
    Input(String, String),
    /// The job is there, but in a form that this program does not know.
    #[error("job {0} cannot be read: {1}; use the version that wrote it, or mend its item")]
    Unreadable(String, String),
    /// A row is there, but in a form that this program does not know.
    #[error("run {0} cannot be read: {1}; use the version that wrote it, or mend its row")]
    UnreadableRun(String, String),
    /// Others changed the job faster.
    #[error("job {0} is being changed by others: try again")]
    Busy(String),
    /// The store failed.
    #[error("job {0}: {1}")]
    Store(String, PortError),
    /// Nothing may be written by this host's clock.
    #[error("job {0}: {1}")]
    Clock(String, ClockOff),
}

/// What came of making a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// It is there now.
    New(Box<Job>),
    /// The same request made it before; it may have been changed since.
    Before(Box<Job>),
    /// The same request made it before; it was erased since.
    Erased,
    /// A job with this key and the same content was there already.
    Same(Box<Job>),
    /// A job with this key but another content is there; it was left as it is.
    Different,
    /// Its schedule has no firing left: it was not made.
    Over,
}

/// Makes a job; the first run time is worked out before this returns. Making it twice makes it once, also where the
/// anchor of its interval follows from the time of making: the first one stays. Over a cancelled job it is made again.
///
/// # Errors
/// When the specification or the clock is refused, or the store still fails after several tries.
pub async fn create_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: JobSpec,
    by: &str,
) -> Result<Created, OperationError> {
    create_job_for(jobs, clock, world, spec, None, by).await
}

/// Makes a job as [`create_job`] does, for the request of this token: a repeat of that request finds the job it made,
/// whatever became of it since.
///
/// # Errors
/// As [`create_job`].
pub async fn create_job_for(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: JobSpec,
    made_for: Option<&str>,
    by: &str,
) -> Result<Created, OperationError> {
    for _ in 0..change::TRIES {
        let cancelled = match make(jobs, clock, world, &spec, made_for, by).await? {
            Made::Created(created) => return Ok(created),
            Made::Met(job) if made_for.is_some() && job.made_for.as_deref() == made_for => {
                return Ok(if job.is_erased { Created::Erased } else { Created::Before(job) });
            }
            Made::Met(job) if job.state == JobState::Cancelled => job,
            Made::Met(job) => return there_already(jobs, clock, &spec, job).await,
        };
        match change::recreate_job(jobs, clock, world, &spec, made_for, cancelled.version, by).await? {
            Outcome::Changed(job) => return Ok(Created::New(job)),
            // Made again by somebody else, or forgotten: that is found by another look.
            Outcome::Same(_) | Outcome::Conflict { .. } | Outcome::Missing => {}
        }
    }
    Err(OperationError::Busy(spec.key.to_string()))
}

/// Makes a job as [`create_job`] does, if nothing is there: a cancelled one stays cancelled. For files that are imported
/// again and again: they know nothing of what was cancelled since.
///
/// # Errors
/// As [`create_job`].
pub async fn create_missing_job(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: JobSpec,
    by: &str,
) -> Result<Created, OperationError> {
    match make(jobs, clock, world, &spec, None, by).await? {
        Made::Created(created) => Ok(created),
        Made::Met(job) => there_already(jobs, clock, &spec, job).await,
    }
}

/// What came of a first try to make a job.
enum Made {
    Created(Created),
    /// This one is there.
    Met(Box<Job>),
}

async fn make(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    spec: &JobSpec,
    made_for: Option<&str>,
    by: &str,
) -> Result<Made, OperationError> {
    let store = |error| OperationError::Store(spec.key.to_string(), error);
    clock.check().map_err(|off| OperationError::Clock(spec.key.to_string(), off))?;
    let watch = Stopwatch::start(clock);
    let job = match Job::create(spec.clone(), watch.started_at, world, None, random_token(), by) {
        Ok(job) => Job { made_for: made_for.map(str::to_owned), ..job },
        Err(JobError::Over(_)) => return made_before(jobs, spec).await.map_err(store),
        Err(error) => return Err(OperationError::Refused(spec.key.to_string(), error)),
    };
    // Always the same job: its edit token tells a write whose answer was lost from somebody else's.
    match insist(|| jobs.create(&job)).await.map_err(store)? {
        Create::Created => {
            if DueBucket::is_stale_after(watch.elapsed(clock)) {
                put_into_present_bucket(jobs, clock, &job).await.map_err(store)?;
            }
            Ok(Made::Created(Created::New(Box::new(job))))
        }
        Create::Exists(existing) => Ok(met(*existing)),
    }
}

/// What there is of a job that has no firing left. It may have been made when it had some, and is still what was asked for.
async fn made_before(jobs: &dyn JobStore, asked: &JobSpec) -> PortResult<Made> {
    Ok(match read(jobs, &asked.key).await? {
        None => Made::Created(Created::Over),
        Some(JobRead::Job(job)) if job.state == JobState::Cancelled => Made::Created(Created::Over),
        Some(existing) => met(existing),
    })
}

fn met(existing: JobRead) -> Made {
    match existing {
        JobRead::Job(job) => Made::Met(job),
        JobRead::Unreadable(_) => Made::Created(Created::Different),
    }
}

/// Reads one job.
async fn read(jobs: &dyn JobStore, key: &JobKey) -> PortResult<Option<JobRead>> {
    let mut found = insist(|| jobs.get_many(std::slice::from_ref(key))).await?;
    Ok(found.remove(key))
}

/// Compares what is there with what was asked for, and puts it right if who made it died in between.
async fn there_already(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    asked: &JobSpec,
    existing: Box<Job>,
) -> Result<Created, OperationError> {
    if !asked.is_met_by(&existing.spec) {
        return Ok(Created::Different);
    }
    if may_be_left_behind(&existing, clock.now()) {
        let put = put_into_present_bucket(jobs, clock, &existing).await;
        put.map_err(|error| OperationError::Store(asked.key.to_string(), error))?;
    }
    Ok(Created::Same(existing))
}

/// Makes a call until it is answered: up to six times, with growing pauses, where another try can help. A throttled or
/// restarting store comes back within seconds, and a file of 100,000 jobs should not end at one lost answer.
async fn insist<T, C>(call: impl Fn() -> C) -> PortResult<T>
where
    C: Future<Output = PortResult<T>>,
{
    for pause in pauses() {
        match call().await {
            Err(error) if error.may_pass() => {
                tracing::debug!(class = error.class(), %error, "the store failed; the call is made again");
                tokio::time::sleep(pause).await;
            }
            answer => return answer,
        }
    }
    call().await
}

fn pauses() -> impl Iterator<Item = Duration> {
    (0..RETRIES).map(|n| FIRST_PAUSE * 2u32.pow(n))
}

/// Whether a job that was made before may sit in a minute that its reader has passed: who made it may have died between
/// a slow write and the second one that puts it into the present minute. Moving a job that is only late does no harm.
fn may_be_left_behind(job: &Job, now: DateTime<Utc>) -> bool {
    let oldest_safe = Minute::of(now - SETTLE / 2);
    job.state == JobState::Active && job.due_bucket.is_some_and(|bucket| bucket.minute < oldest_safe)
}

/// Puts a job whose minute may have been left behind by its reader where readers look. Whoever moved it since has done
/// so already.
async fn put_into_present_bucket(jobs: &dyn JobStore, clock: &dyn Clock, job: &Job) -> Result<(), PortError> {
    let Some(next) = job.standing() else { return Ok(()) };
    let from = AdvanceFrom { next_scheduled_at: next.scheduled_at, version: job.version };
    let bucket = DueBucket::for_write(next.due_at, clock.now(), next.bucket.shard);
    let to = Advanced::at(NextFiring { bucket, ..next });
    insist(|| jobs.advance(&job.spec.key, &from, &to)).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;
    use punctual_core::due::Shards;
    use punctual_core::missed::MissedRule;
    use punctual_core::payload::Payload;
    use punctual_core::priority::Priority;
    use punctual_core::retry::RetryRule;
    use punctual_core::schedule::ScheduleText;
    use punctual_core::zone::Zones;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + s, 0).unwrap()
    }

    fn spec(schedule: &str, read_at: DateTime<Utc>) -> JobSpec {
        let text = ScheduleText { when: schedule, ..ScheduleText::default() };
        let (schedule, anchor) = text.read(read_at, &Zones::embedded()).unwrap();
        JobSpec {
            key: JobKey::new("bank", "c-1/bill").unwrap(),
            name: None,
            schedule,
            anchor,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill is due"),
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        }
    }

    #[test]
    fn an_interval_without_an_anchor_is_the_same_job_whenever_it_is_read() {
        let first = spec("every 24h", at(0));
        let again = spec("every 24h", at(5_000));
        assert_ne!(first.schedule, again.schedule);
        assert!(again.is_met_by(&first));
        assert!(!spec("every 12h", at(0)).is_met_by(&first));
        assert!(!spec("cron 0 9 * * *", at(0)).is_met_by(&first));
        let mut other_text = again.clone();
        other_text.payload = other_text.payload.with_text("Your last bill is due");
        assert!(!other_text.is_met_by(&first));
    }

    #[test]
    fn a_stated_anchor_is_part_of_the_job() {
        let first = spec("every 24h from 2026-12-05T09:00:00Z", at(0));
        assert!(spec("every 24h from 2026-12-05T09:00:00Z", at(5_000)).is_met_by(&first));
        assert!(!spec("every 24h from 2026-12-05T10:00:00Z", at(0)).is_met_by(&first));
        assert!(spec("every 24h", at(0)).is_met_by(&first), "who states no anchor takes any");
    }

    #[test]
    fn only_an_active_job_in_a_minute_long_past_may_be_left_behind() {
        let world = Timetable { shards: &Shards::default(), zones: &Zones::embedded() };
        let mut job = Job::create(spec("every 1h", at(0)), at(0), &world, None, "t".into(), "test").unwrap();
        let minute = job.due_bucket.unwrap().minute.start();
        assert!(!may_be_left_behind(&job, at(0)));
        assert!(!may_be_left_behind(&job, minute + SETTLE / 2 + TimeDelta::seconds(59)));
        let late = minute + SETTLE / 2 + TimeDelta::seconds(60);
        assert!(may_be_left_behind(&job, late));
        job.state = JobState::Paused;
        assert!(!may_be_left_behind(&job, late));
    }

    #[test]
    fn a_call_is_made_again_five_times_with_growing_pauses() {
        let ms: Vec<_> = pauses().map(|pause| pause.as_millis()).collect();
        assert_eq!(ms, [200, 400, 800, 1_600, 3_200]);
    }
}

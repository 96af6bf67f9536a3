//! Step 1, *job*: the standing instruction, its identity, and what a change to it does to runs already queued.
//!
//! A job advances by itself from firing to firing; people change it. `version` counts people's changes only,
//! `generation` rises with the changes that void queued runs. Nothing here reads a clock or knows the store.

mod change;
mod key;
mod manual;
mod voids;

pub(crate) use change::decides_from;
pub use change::{Change, ChangeError, Changed};
pub use key::{JobKey, check_tenant};
pub use manual::request_token;
pub use voids::{Void, Voids};

use crate::due::{DueBucket, Shards};
use crate::missed::MissedRule;
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::run::RunKey;
use crate::schedule::{Anchor, Firing, Schedule, ScheduleError, whole_second};
use crate::spread::Spread;
use crate::zone::{TzVersion, Zones};
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long finished jobs and run rows are kept: 14 days in the queue, 14 as a dead letter, 14 for its replay, and a
/// margin. Until then a row is the proof that a run was done.
pub const RETENTION: Duration = Duration::from_secs(60 * 86_400);

/// For how long former versions of a job are kept: a year, and a margin for whoever looks back at the whole of it.
pub const VERSIONS_KEPT: Duration = Duration::from_secs(400 * 86_400);

/// Whether a job fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It fires.
    Active,
    /// A hold on this one job: nothing is sent, nothing is lost.
    Paused,
    /// Its schedule is over; what is queued still runs.
    Done,
    /// A person ended it; what is queued does not run.
    Cancelled,
    /// Dispatch cannot understand it; a person must look.
    Quarantined,
}

impl JobState {
    /// The word for tables and files.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Active => "active",
            JobState::Paused => "paused",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
            JobState::Quarantined => "quarantined",
        }
    }
}

/// What a person says of a job.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Its identity.
    pub key: JobKey,
    /// A name for people.
    pub name: Option<String>,
    /// When.
    pub schedule: Schedule,
    /// Whether the schedule's anchor was stated; neither stored nor compared.
    pub anchor: Anchor,
    /// Which queue.
    pub priority: Priority,
    /// Who does the work, and with what.
    pub payload: Payload,
    /// How often it is tried.
    pub retry: RetryRule,
    /// Where its runs start behind their nominal instants; none = at them.
    pub spread: Option<Spread>,
    /// What becomes of firings that were missed, and how late a run may start.
    pub missed: MissedRule,
}

/// A job as it stands in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What a person said.
    pub spec: JobSpec,
    /// Whether it fires.
    pub state: JobState,
    /// The next firing's nominal instant; none when nothing is to come.
    pub next_scheduled_at: Option<DateTime<Utc>>,
    /// What that firing asks the zone's clock to show; none when its schedule follows no clock.
    pub next_wall: Option<NaiveDateTime>,
    /// The zone rules by which the two belong together.
    pub tzdb: Option<TzVersion>,
    /// How many firings are left, that one included; none = no bound.
    pub runs_left: Option<u32>,
    /// Since when the schedule decides: what follows that firing lies after this. None = it always did.
    pub decided_at: Option<DateTime<Utc>>,
    /// The last firing that dispatch was done with, since the schedule decides. It may lie ahead, sent with a delay.
    pub passed: Option<Passed>,
    /// When that firing should start.
    pub next_due_at: Option<DateTime<Utc>>,
    /// Where the due index holds it; none when nothing is to come.
    pub due_bucket: Option<DueBucket>,
    /// Rises with each change that voids queued runs.
    pub generation: u64,
    /// What each such change voided.
    pub voids: Voids,
    /// People's changes so far.
    pub version: u64,
    /// Marks the write that made this version, so that its writer knows it again after a lost answer.
    pub edit_token: String,
    /// Who changed it last.
    pub updated_by: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When a person changed it last, or made it.
    pub updated_at: DateTime<Utc>,
    /// The token of the request that made it, so that a repeat of that request finds its job; none = it had none.
    pub made_for: Option<String>,
    /// Whether what it was to do is erased, and only its place is kept.
    pub is_erased: bool,
    /// Why it is quarantined.
    pub error: Option<String>,
    /// When it may be forgotten, if it is done or cancelled.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Why a job cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The schedule cannot be taken.
    #[error("schedule: {0}")]
    Schedule(#[from] ScheduleError),
    /// The schedule has no firing left.
    #[error("schedule: `{0}` has no firing left: its time is over, its bounds leave none, or a clock change skips it")]
    Over(String),
    /// The retry rule is out of range.
    #[error("retry: {0}")]
    Retry(String),
    /// The payload cannot be delivered.
    #[error("{0}")]
    Payload(String),
    /// The spread window is out of range, or does not fit.
    #[error("spread: {0}")]
    Spread(String),
    /// The deadline is too short to be met.
    #[error("missed: {0}")]
    Missed(String),
}

impl PartialEq for JobSpec {
    /// Compares what is stored.
    fn eq(&self, other: &Self) -> bool {
        let Self { key, name, schedule, anchor: _, priority, payload, retry, spread, missed } = self;
        (key, name, schedule, priority) == (&other.key, &other.name, &other.schedule, &other.priority)
            && (payload, retry) == (&other.payload, &other.retry)
            && (spread, missed) == (&other.spread, &other.missed)
    }
}

impl JobSpec {
    /// Whether `existing` is what this asks for. Where no anchor was stated, any will do.
    pub fn is_met_by(&self, existing: &JobSpec) -> bool {
        let mut asked = self.clone();
        if asked.anchor == Anchor::Implied {
            asked.schedule = asked.schedule.anchored_as(&existing.schedule);
        }
        asked == *existing
    }

    /// Checks everything a job must satisfy before it is stored.
    ///
    /// # Errors
    /// The first thing that is wrong, and what is allowed.
    pub fn check(&self) -> Result<(), JobError> {
        self.check_ranges()?;
        crate::render::check(self).map_err(JobError::Payload)?;
        let Some(spread) = &self.spread else { return Ok(()) };
        if self.priority == Priority::Urgent {
            let problem = "urgent jobs are never spread: leave the window out, or take another priority";
            return Err(JobError::Spread(problem.into()));
        }
        spread.check_fit(self.schedule.shortest_interval_s()).map_err(JobError::Spread)
    }

    /// Checks what would do harm wherever a stored job is worked with: numbers out of their range.
    ///
    /// # Errors
    /// The first thing that is wrong, and what is allowed.
    pub fn check_ranges(&self) -> Result<(), JobError> {
        self.check_timing_ranges()?;
        self.retry.check().map_err(JobError::Retry)?;
        self.payload.check().map_err(JobError::Payload)
    }

    /// Of [`Self::check_ranges`] what concerns when a job fires.
    ///
    /// # Errors
    /// The first thing that is wrong, and what is allowed.
    pub fn check_timing_ranges(&self) -> Result<(), JobError> {
        self.schedule.check()?;
        self.spread.as_ref().map_or(Ok(()), Spread::check_range).map_err(JobError::Spread)?;
        self.missed.start.check().map_err(JobError::Missed)
    }

    /// What is allowed but probably not meant.
    pub fn warnings(&self) -> Vec<String> {
        self.missed.start.warning().into_iter().chain(self.schedule.warning()).collect()
    }

    /// When a firing should start.
    pub fn due_at(&self, firing: &Firing) -> DateTime<Utc> {
        self.spread.as_ref().map_or(firing.at, |spread| firing.at + spread.offset())
    }

    /// Until when a run due at `due_at` may start; none = however late.
    pub fn deadline(&self, due_at: DateTime<Utc>, zones: &Zones) -> Option<DateTime<Utc>> {
        self.missed.start.deadline(due_at, self.schedule.tz, zones)
    }
}

/// A firing that a job has passed: its run is in a queue, or its skip is a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The firing.
    pub firing: Firing,
    /// How many firings were left, that one included; none = no bound.
    pub runs_left: Option<u32>,
}

/// Where a job goes when a firing is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// Active, or done when nothing is to come.
    pub state: JobState,
    /// The next firing.
    pub next: Option<NextFiring>,
    /// The last firing that is passed by this; none = it passes none.
    pub passed: Option<Passed>,
    /// When a done job may be forgotten.
    pub expires_at: Option<DateTime<Utc>>,
}

/// What firings are placed by: which shards there are, and what the clocks show.
#[derive(Clone, Copy, Debug)]
pub struct Timetable<'a> {
    /// The shards in force.
    pub shards: &'a Shards,
    /// The zone rules of this process.
    pub zones: &'a Zones,
}

/// A firing to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextFiring {
    /// Its nominal instant, the identity of the run.
    pub scheduled_at: DateTime<Utc>,
    /// What it asks the zone's clock to show.
    pub wall: Option<NaiveDateTime>,
    /// The zone rules by which the two belong together.
    pub tzdb: Option<TzVersion>,
    /// How many firings are left, this one included; none = no bound.
    pub runs_left: Option<u32>,
    /// When it should start.
    pub due_at: DateTime<Utc>,
    /// Where the due index holds it.
    pub bucket: DueBucket,
}

impl Advanced {
    /// Active at this firing, with none passed.
    pub fn at(next: NextFiring) -> Self {
        Advanced { state: JobState::Active, next: Some(next), passed: None, expires_at: None }
    }
}

impl Job {
    /// Makes a job at `now`. `edit_token` is fresh and random; `previous_generation` is that of a job that had this key
    /// before, if any.
    ///
    /// # Errors
    /// What is wrong with the specification.
    pub fn create(
        spec: JobSpec,
        now: DateTime<Utc>,
        world: &Timetable<'_>,
        previous_generation: Option<u64>,
        edit_token: String,
        by: &str,
    ) -> Result<Job, JobError> {
        spec.check()?;
        let first = spec.schedule.first(now, world.zones);
        let first = first.ok_or_else(|| JobError::Over(spec.schedule.to_string()))?;
        let generation = next_generation(previous_generation, now);
        let mut job = Job {
            state: JobState::Active,
            next_scheduled_at: None,
            next_wall: None,
            tzdb: None,
            runs_left: spec.schedule.max_runs,
            decided_at: None,
            passed: None,
            next_due_at: None,
            due_bucket: None,
            generation,
            voids: Voids::new(generation),
            version: 1,
            edit_token,
            updated_by: by.to_owned(),
            created_at: now,
            updated_at: now,
            made_for: None,
            is_erased: false,
            error: None,
            expires_at: None,
            spec,
        };
        // An instant already past is due from the moment that made it due.
        let due_at = job.spec.due_at(&first).max(whole_second(now));
        let next = NextFiring { due_at, ..job.to_fire(&first, job.runs_left, now, world) };
        job.advance(&Advanced::at(next));
        Ok(job)
    }

    /// The firing that the job stands at.
    pub fn next(&self) -> Option<Firing> {
        Some(Firing { at: self.next_scheduled_at?, wall: self.next_wall })
    }

    /// Where the job stands, as a firing to come.
    pub fn standing(&self) -> Option<NextFiring> {
        Some(NextFiring {
            scheduled_at: self.next_scheduled_at?,
            wall: self.next_wall,
            tzdb: self.tzdb.clone(),
            runs_left: self.runs_left,
            due_at: self.next_due_at?,
            bucket: self.due_bucket?,
        })
    }

    /// Where the job goes at `now` when `count` firings are done with, `last` being the last of them: from the nominal
    /// time, never from when it was done.
    pub fn after_firings(&self, last: &Firing, count: u32, now: DateTime<Utc>, world: &Timetable<'_>) -> Advanced {
        let following = self.following(last, self.left_after(count), world.zones);
        self.behind(last, count, following.as_ref(), now, world)
    }

    /// Where the job goes at `now` when `count` firings are done with, `last` being the last of them and `next` the one to
    /// follow, if any.
    pub fn behind(
        &self,
        last: &Firing,
        count: u32,
        next: Option<&Firing>,
        now: DateTime<Utc>,
        world: &Timetable<'_>,
    ) -> Advanced {
        let to = match next {
            Some(next) => Advanced::at(self.to_fire(next, self.left_after(count), now, world)),
            None => Advanced { state: JobState::Done, next: None, passed: None, expires_at: Some(now + RETENTION) },
        };
        Advanced { passed: Some(Passed { firing: *last, runs_left: self.left_after(count.saturating_sub(1)) }), ..to }
    }

    fn left_after(&self, count: u32) -> Option<u32> {
        self.runs_left.map(|left| left.saturating_sub(count))
    }

    /// The firing after `previous`, if `left` allows one.
    pub fn following(&self, previous: &Firing, left: Option<u32>, zones: &Zones) -> Option<Firing> {
        let after = self.decided_at.map_or(previous.at, |decided_at| previous.at.max(decided_at));
        if left == Some(0) { None } else { self.spec.schedule.next_firing(&Firing { at: after, ..*previous }, zones) }
    }

    fn to_fire(&self, firing: &Firing, left: Option<u32>, now: DateTime<Utc>, world: &Timetable<'_>) -> NextFiring {
        let due_at = self.spec.due_at(firing);
        NextFiring {
            scheduled_at: firing.at,
            wall: firing.wall,
            tzdb: self.spec.schedule.follows(world.zones),
            runs_left: left,
            due_at,
            bucket: DueBucket::for_write(due_at, now, world.shards.of(&self.spec.key, self.spec.priority)),
        }
    }

    /// Puts the job where `to` says.
    pub fn advance(&mut self, to: &Advanced) {
        self.state = to.state;
        let next = to.next.clone();
        self.next_scheduled_at = next.as_ref().map(|n| n.scheduled_at);
        self.next_due_at = next.as_ref().map(|n| n.due_at);
        self.due_bucket = next.as_ref().map(|n| n.bucket);
        self.next_wall = next.as_ref().and_then(|n| n.wall);
        self.runs_left = next.as_ref().and_then(|n| n.runs_left);
        self.tzdb = next.and_then(|n| n.tzdb);
        self.expires_at = to.expires_at;
        self.passed = to.passed.clone().or(self.passed.take());
    }

    /// The generation that voids a message of `generation` for this run of the firing at `scheduled_at`, if it is void. No
    /// change of the timetable decides about a run made by hand: only a cancel voids it, or a later life of the key.
    pub fn void_of(&self, run: &RunKey, scheduled_at: DateTime<Utc>, generation: u64) -> Option<u64> {
        let deciding = if run.is_manual() { self.voids.life() } else { self.voids.deciding(scheduled_at) };
        (self.state == JobState::Cancelled || generation < deciding).then_some(deciding)
    }
}

/// A new generation: above the previous one, and above all that a deleted job of this key can have had.
pub fn next_generation(previous: Option<u64>, now: DateTime<Utc>) -> u64 {
    (now.timestamp_millis().max(0) as u64).max(previous.map_or(0, |g| g + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(s, 0).unwrap()
    }

    fn spec(schedule: &str, now: DateTime<Utc>) -> JobSpec {
        JobSpec {
            key: JobKey::new("bank", "c-1/bill").unwrap(),
            name: None,
            schedule: Schedule::parse(schedule, now).unwrap(),
            anchor: Anchor::Stated,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill is due"),
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        }
    }

    fn job(schedule: &str, now: DateTime<Utc>) -> Job {
        made(spec(schedule, now), now, None).unwrap()
    }

    fn made(spec: JobSpec, now: DateTime<Utc>, previous_generation: Option<u64>) -> Result<Job, JobError> {
        let world = Timetable { shards: &Shards::default(), zones: &Zones::embedded() };
        Job::create(spec, now, &world, previous_generation, "t".into(), "test")
    }

    fn after(job: &Job, s: i64, now: DateTime<Utc>) -> Advanced {
        let world = Timetable { shards: &Shards::default(), zones: &Zones::embedded() };
        job.after_firings(&Firing { at: at(s), wall: None }, 1, now, &world)
    }

    fn void(job: &Job, scheduled_at: DateTime<Utc>, generation: u64) -> Option<u64> {
        job.void_of(&RunKey::scheduled(scheduled_at), scheduled_at, generation)
    }

    #[test]
    fn a_new_job_has_its_first_firing_and_bucket() {
        let now = at(1_000_000_000);
        let job = job("every 1h from 2001-09-09T03:00:00Z", now);
        assert_eq!(job.next_scheduled_at, Some(at(1_000_004_400)));
        assert_eq!(job.due_bucket.unwrap().minute.start(), at(1_000_004_400));
    }

    #[test]
    fn an_instant_already_past_is_due_at_once_and_keeps_its_identity() {
        let now = at(1_000_000_000);
        let job = job("at 2001-09-01T00:00:00Z", now);
        assert_eq!(job.next_scheduled_at, Some(at(999_302_400)));
        assert_eq!(job.next_due_at, Some(now));
    }

    #[test]
    fn a_job_advances_from_the_nominal_time_however_late_it_is() {
        let now = at(1_000_000_000);
        let mut job = job("every 1h from 2001-09-09T03:00:00Z", now);
        let late = at(1_000_004_400 + 9_999);
        let to = after(&job, 1_000_004_400, late);
        job.advance(&to);
        assert_eq!(job.next_scheduled_at, Some(at(1_000_008_000)));
        assert_eq!(
            job.due_bucket.unwrap().minute,
            crate::due::Minute::of(late),
            "an overdue firing goes where readers look"
        );
        let once = self::job("at 2001-09-10T00:00:00Z", now);
        assert_eq!(after(&once, 1_000_080_000, now).state, JobState::Done);
    }

    #[test]
    fn a_cancel_voids_everything_and_an_edit_only_what_it_decided() {
        let mut job = job("every 1h from 2001-09-09T03:00:00Z", at(1_000_000_000));
        let first = job.generation;
        assert_eq!(void(&job, at(1_000_004_400), first), None);
        job.voids.push(first + 1, at(1_000_005_000)); // an edit after the first firing
        assert_eq!(void(&job, at(1_000_004_400), first), None, "the run still queued stays");
        assert_eq!(void(&job, at(1_000_008_000), first), Some(first + 1));
        assert_eq!(void(&job, at(1_000_008_000), first + 1), None);
        job.state = JobState::Cancelled;
        assert!(void(&job, at(1_000_004_400), first + 1).is_some());
    }

    #[test]
    fn a_job_made_again_voids_what_its_former_life_queued() {
        let now = at(1_000_000_000);
        let old = job("every 1h", now);
        let new = made(spec("every 1h", now), now, Some(old.generation)).unwrap();
        assert!(new.generation > old.generation, "even within one millisecond");
        assert_eq!(void(&new, at(1_000_004_400), old.generation), Some(new.generation));
    }
}

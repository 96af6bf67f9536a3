//! Step 1, *job*: the standing instruction, its identity, and what a change to it does to runs already queued.
//!
//! A job advances by itself from firing to firing; people change it. `version` counts people's changes only,
//! `generation` rises with the changes that void queued runs. Nothing here reads a clock or knows the store.

use crate::due::{DueBucket, Shards};
use crate::payload::{Handler, SmsPayload};
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::schedule::{Anchor, Schedule, ScheduleError, whole_second};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How long finished jobs and run rows are kept: 14 days in the queue, 14 as a dead letter, 14 for its replay, and a
/// margin. Until then a row is the proof that a run was done.
pub const RETENTION: Duration = Duration::from_secs(60 * 86_400);

const LONGEST_ID_BYTES: usize = 128;
const LONGEST_TENANT_BYTES: usize = 64;
const VOIDS_KEPT: usize = 8;

/// Identity of a job over all tenants: `tenant/id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKey(String);

impl JobKey {
    /// Builds the key of job `id` of `tenant`.
    ///
    /// # Errors
    /// Names the part that is wrong and what is allowed.
    pub fn new(tenant: &str, id: &str) -> Result<Self, String> {
        check_name(tenant, "tenant", LONGEST_TENANT_BYTES, "._-")?;
        check_name(id, "job id", LONGEST_ID_BYTES, "._-/")?;
        if id.starts_with('/') || id.ends_with('/') || id.contains("//") {
            return Err(format!("job id `{id}` has an empty part: write `a/b`, with no `/` at either end"));
        }
        Ok(JobKey(format!("{tenant}/{id}")))
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        self.0.split_once('/').map_or("", |(tenant, _)| tenant)
    }

    /// The id within the tenant.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }
}

fn check_name(text: &str, what: &str, longest: usize, extra: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > longest {
        return Err(format!("{what} has {} bytes: 1 to {longest} are allowed", text.len()));
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !extra.contains(*c)) {
        Some(c) => {
            Err(format!("{what} `{text}` holds `{}`: allowed are letters, digits and `{extra}`", c.escape_debug()))
        }
        None => Ok(()),
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for JobKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (tenant, id) =
            text.split_once('/').ok_or_else(|| format!("`{text}` is not a job key: expected `tenant/id`"))?;
        JobKey::new(tenant, id)
    }
}

impl From<JobKey> for String {
    fn from(key: JobKey) -> String {
        key.0
    }
}

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
    /// Who does the work.
    pub handler: Handler,
    /// With what.
    pub payload: SmsPayload,
    /// How often it is tried.
    pub retry: RetryRule,
    /// How late a run may still start, in seconds after it was due; none = however late.
    pub start_within_s: Option<u32>,
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
    /// Why it is quarantined.
    pub error: Option<String>,
}

/// Why a job cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The schedule cannot be taken.
    #[error("schedule: {0}")]
    Schedule(#[from] ScheduleError),
    /// The schedule has no firing left.
    #[error("schedule: `{0}` has no firing left")]
    Over(String),
    /// The retry rule is out of range.
    #[error("retry: {0}")]
    Retry(String),
    /// The payload cannot be delivered.
    #[error("{0}")]
    Payload(String),
    /// The deadline is too short to be met.
    #[error("start_within_s {0} is too short: a run needs at least {SHORTEST_START_WITHIN_S} s to start")]
    StartWithin(u32),
}

/// The shortest time a run may be given to start.
pub const SHORTEST_START_WITHIN_S: u32 = 10;

impl PartialEq for JobSpec {
    /// Compares what is stored.
    fn eq(&self, other: &Self) -> bool {
        let Self { key, name, schedule, anchor: _, priority, handler, payload, retry, start_within_s } = self;
        (key, name, schedule, priority) == (&other.key, &other.name, &other.schedule, &other.priority)
            && (handler, payload, retry) == (&other.handler, &other.payload, &other.retry)
            && *start_within_s == other.start_within_s
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
        self.schedule.check()?;
        self.retry.check().map_err(JobError::Retry)?;
        self.payload.check().map_err(JobError::Payload)?;
        match self.start_within_s {
            Some(s) if s < SHORTEST_START_WITHIN_S => Err(JobError::StartWithin(s)),
            _ => Ok(()),
        }
    }
}

/// Where a job goes when a firing is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advanced {
    /// Active, or done when nothing is to come.
    pub state: JobState,
    /// The next firing.
    pub next: Option<NextFiring>,
    /// When a done job may be forgotten.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A firing to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextFiring {
    /// Its nominal instant, the identity of the run.
    pub scheduled_at: DateTime<Utc>,
    /// When it should start.
    pub due_at: DateTime<Utc>,
    /// Where the due index holds it.
    pub bucket: DueBucket,
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
        shards: &Shards,
        previous_generation: Option<u64>,
        edit_token: String,
        by: &str,
    ) -> Result<Job, JobError> {
        spec.check()?;
        let scheduled_at = spec.schedule.first(now).ok_or_else(|| JobError::Over(spec.schedule.to_string()))?;
        // An instant already past is due from the moment that made it due.
        let due_at = scheduled_at.max(whole_second(now));
        let generation = next_generation(previous_generation, now);
        let shard = shards.of(&spec.key, spec.priority);
        Ok(Job {
            state: JobState::Active,
            next_scheduled_at: Some(scheduled_at),
            next_due_at: Some(due_at),
            due_bucket: Some(DueBucket::for_write(due_at, now, shard)),
            generation,
            voids: Voids::new(generation),
            version: 1,
            edit_token,
            updated_by: by.to_owned(),
            created_at: now,
            error: None,
            spec,
        })
    }

    /// Where the job goes after the firing at `scheduled_at`, at `now`: from the nominal time, never from when it was
    /// done.
    pub fn after_firing(&self, scheduled_at: DateTime<Utc>, now: DateTime<Utc>, shards: &Shards) -> Advanced {
        let next = self.spec.schedule.next_after(scheduled_at).map(|next| NextFiring {
            scheduled_at: next,
            due_at: next,
            bucket: DueBucket::for_write(next, now, shards.of(&self.spec.key, self.spec.priority)),
        });
        match next {
            Some(next) => Advanced { state: JobState::Active, next: Some(next), expires_at: None },
            None => Advanced { state: JobState::Done, next: None, expires_at: Some(now + RETENTION) },
        }
    }

    /// Puts the job where `to` says.
    pub fn advance(&mut self, to: &Advanced) {
        self.state = to.state;
        self.next_scheduled_at = to.next.map(|n| n.scheduled_at);
        self.next_due_at = to.next.map(|n| n.due_at);
        self.due_bucket = to.next.map(|n| n.bucket);
    }

    /// The latest instant at which a run due at `due_at` may still start.
    pub fn deadline(&self, due_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.spec.start_within_s.and_then(|s| due_at.checked_add_signed(TimeDelta::seconds(i64::from(s))))
    }

    /// The generation that voids a message of `generation` for the firing at `scheduled_at`, if it is void.
    pub fn void_of(&self, scheduled_at: DateTime<Utc>, generation: u64) -> Option<u64> {
        let deciding = self.voids.deciding(scheduled_at);
        (self.state == JobState::Cancelled || generation < deciding).then_some(deciding)
    }
}

/// A new generation: above the previous one, and above all that a deleted job of this key can have had.
pub fn next_generation(previous: Option<u64>, now: DateTime<Utc>) -> u64 {
    (now.timestamp_millis().max(0) as u64).max(previous.map_or(0, |g| g + 1))
}

/// Which generation decides each instant: the last changes that voided queued runs, each with the instant from which on
/// it decided anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Voids(Vec<Void>);

/// One change that decided anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Void {
    /// The generation that the change made.
    pub generation: u64,
    /// The first instant it decides, in Unix seconds.
    pub from: i64,
}

impl Voids {
    /// A new job decides all instants.
    pub fn new(generation: u64) -> Self {
        Voids(vec![Void { generation, from: 0 }])
    }

    /// Adds a change. Pairs that it makes redundant go; of the rest, eight are kept.
    pub fn push(&mut self, generation: u64, from: DateTime<Utc>) {
        let from = from.timestamp();
        // An older pair that starts no earlier can never be the highest one again.
        self.0.retain(|older| older.from < from);
        self.0.push(Void { generation, from });
        if self.0.len() > VOIDS_KEPT {
            // The first pair guards against a former life of the key: it stays, the oldest edit goes.
            self.0.remove(1);
        }
    }

    /// G(i): the highest generation whose boundary is not after the instant.
    pub fn deciding(&self, scheduled_at: DateTime<Utc>) -> u64 {
        let instant = scheduled_at.timestamp();
        self.0.iter().filter(|v| v.from <= instant).map(|v| v.generation).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            handler: Handler::Sms,
            payload: SmsPayload { to: "+447700900123".into(), text: "Your bill is due".into() },
            retry: RetryRule::default(),
            start_within_s: None,
        }
    }

    fn job(schedule: &str, now: DateTime<Utc>) -> Job {
        Job::create(spec(schedule, now), now, &Shards::default(), None, "t".into(), "test").unwrap()
    }

    #[test]
    fn a_key_refuses_what_would_break_run_ids_and_prefixes() {
        assert_eq!(JobKey::new("bank", "48213/bill").unwrap().as_str(), "bank/48213/bill");
        assert_eq!(JobKey::new("bank", "48213/bill").unwrap().id(), "48213/bill");
        for (tenant, id) in
            [("", "1"), ("a/b", "1"), ("a", ""), ("a", "1:2"), ("a", "/1"), ("a", "1/"), ("a", "1//2"), ("a", "é")]
        {
            assert!(JobKey::new(tenant, id).is_err(), "{tenant} {id}");
        }
        assert!(JobKey::new("a", &"x".repeat(129)).is_err());
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
        let to = job.after_firing(at(1_000_004_400), late, &Shards::default());
        job.advance(&to);
        assert_eq!(job.next_scheduled_at, Some(at(1_000_008_000)));
        assert_eq!(
            job.due_bucket.unwrap().minute,
            crate::due::Minute::of(late),
            "an overdue firing goes where readers look"
        );
        let once = self::job("at 2001-09-10T00:00:00Z", now);
        assert_eq!(once.after_firing(at(1_000_080_000), now, &Shards::default()).state, JobState::Done);
    }

    #[test]
    fn a_cancel_voids_everything_and_an_edit_only_what_it_decided() {
        let mut job = job("every 1h from 2001-09-09T03:00:00Z", at(1_000_000_000));
        let first = job.generation;
        assert_eq!(job.void_of(at(1_000_004_400), first), None);
        job.voids.push(first + 1, at(1_000_005_000)); // an edit after the first firing
        assert_eq!(job.void_of(at(1_000_004_400), first), None, "the run still queued stays");
        assert_eq!(job.void_of(at(1_000_008_000), first), Some(first + 1));
        assert_eq!(job.void_of(at(1_000_008_000), first + 1), None);
        job.state = JobState::Cancelled;
        assert!(job.void_of(at(1_000_004_400), first + 1).is_some());
    }

    #[test]
    fn a_job_made_again_voids_what_its_former_life_queued() {
        let now = at(1_000_000_000);
        let old = job("every 1h", now);
        let new =
            Job::create(spec("every 1h", now), now, &Shards::default(), Some(old.generation), "t".into(), "x").unwrap();
        assert!(new.generation > old.generation, "even within one millisecond");
        assert_eq!(new.void_of(at(1_000_004_400), old.generation), Some(new.generation));
    }

    proptest! {
        // Dropping redundant pairs must not change any answer.
        #[test]
        fn eight_pairs_answer_as_the_whole_history(edits in prop::collection::vec(1i64..50, 1..7), instant in 0i64..60) {
            let mut voids = Voids::new(1);
            let mut all = vec![(1u64, 0i64)];
            for (n, from) in edits.iter().enumerate() {
                voids.push(n as u64 + 2, at(*from));
                all.push((n as u64 + 2, *from));
            }
            let expected = all.iter().filter(|(_, f)| *f <= instant).map(|(g, _)| *g).max().unwrap();
            prop_assert_eq!(voids.deciding(at(instant)), expected);
        }
    }
}

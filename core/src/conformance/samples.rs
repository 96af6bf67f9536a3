//! Jobs and rows to try a store with, under random names.

use crate::deadline::StartRule;
use crate::due::{DueBucket, Minute, ShardClass, ShardId};
use crate::job::{Advanced, Job, JobKey, JobSpec, JobState, NextFiring, Passed, Voids};
use crate::missed::{Many, MissedRule};
use crate::payload::Payload;
use crate::ports::{AdvanceFrom, Create, JobRead, Ports};
use crate::priority::Priority;
use crate::retry::{OutcomeClass, RetryRule};
use crate::run::{Attempt, RunId, RunKey, RunRow, RunStatus, SkipReason, SkippedRange};
use crate::schedule::{DstGap, DstRepeat, Firing, Schedule, ScheduleText, Timing};
use crate::spread::Spread;
use crate::zone::{TzVersion, Zones};
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use rand::Rng;

/// The year 2100: no clock that a case could meet has come this far.
const FAR_AHEAD: i64 = 4_102_444_800;

/// A name that nobody else uses.
pub(super) fn random_name() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// Seconds after some instant far ahead.
pub(super) fn at(s: i64) -> DateTime<Utc> {
    at_ms(s * 1_000)
}

/// Milliseconds after the same instant.
pub(super) fn at_ms(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(FAR_AHEAD * 1_000 + ms).expect("instants of cases are in range")
}

/// A bucket that nobody else uses, in the two decades after that instant.
pub(super) fn random_bucket() -> DueBucket {
    let mut random = rand::rng();
    let class = if random.random() { ShardClass::Urgent } else { ShardClass::Standard };
    DueBucket {
        minute: Minute(FAR_AHEAD / 60 + random.random_range(0..10_000_000)),
        shard: ShardId { class, number: random.random_range(0..1_000) },
    }
}

/// An active job in `bucket`, due `s` seconds into its minute.
pub(super) fn job_in(bucket: DueBucket, s: i64) -> Job {
    let due_at = bucket.minute.start() + TimeDelta::seconds(s);
    Job {
        next_scheduled_at: Some(due_at),
        next_due_at: Some(due_at),
        due_bucket: Some(bucket),
        ..job(&format!("t{}", random_name()), "c-1/bill")
    }
}

/// An active job that has every field, except an error and an end.
pub(super) fn job(tenant: &str, id: &str) -> Job {
    let mut voids = Voids::new(7);
    voids.push(u64::MAX / 2, at(60));
    let bucket = random_bucket();
    Job {
        spec: JobSpec {
            key: JobKey::new(tenant, id).expect("keys of cases are well formed"),
            name: Some("Rechnung für Zoë".into()),
            schedule: every_kind_of_bound(),
            anchor: crate::schedule::Anchor::Stated,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill of £12.50 is due ✓"),
            retry: RetryRule { max_attempts: 3, base_s: 7, cap_s: 77, waits_s: None },
            spread: Some(Spread { key: "c-1 ✓".into(), window_s: 1_800 }),
            missed: MissedRule { many: Many::All, start: StartRule::WithinS(3_600) },
        },
        state: JobState::Active,
        next_scheduled_at: Some(bucket.minute.start()),
        next_wall: Some(wall()),
        tzdb: Some(TzVersion::new("2099z")),
        runs_left: Some(u32::MAX),
        decided_at: Some(at(-3_600)),
        passed: Some(Passed { firing: Firing { at: at(-60), wall: Some(wall()) }, runs_left: Some(9) }),
        next_due_at: Some(bucket.minute.start() + TimeDelta::seconds(59)),
        due_bucket: Some(bucket),
        generation: u64::MAX / 2,
        voids,
        version: 1,
        edit_token: random_name(),
        updated_by: "ann@bank.example".into(),
        created_at: at_ms(-1),
        updated_at: at_ms(7),
        made_for: Some(random_name()),
        is_erased: false,
        error: None,
        expires_at: None,
    }
}

/// A schedule that has every bound and no default.
fn every_kind_of_bound() -> Schedule {
    let text = ScheduleText {
        when: "cron H 9 L * *",
        tz: Some("Australia/Lord_Howe"),
        dst_gap: DstGap::Skip,
        dst_repeat: DstRepeat::Both,
        start_at: Some("2099-01-01T00:00:01Z"),
        end_at: Some("2100-12-31T23:59:59Z"),
        max_runs: Some(u32::MAX),
        key: Some("c-1"),
    };
    text.read(at(0), &Zones::embedded()).expect("the schedule is well formed").0
}

fn wall() -> NaiveDateTime {
    at(30_600).naive_utc()
}

/// Jobs that between them have every variant and both sides of every option.
pub(super) fn all_kinds_of_jobs(tenant: &str) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut add = |change: &dyn Fn(&mut Job)| {
        let mut job = job(tenant, &format!("kind/{}", jobs.len()));
        change(&mut job);
        jobs.push(job);
    };
    add(&|_| ());
    add(&|job| {
        job.spec.name = None;
        job.spec.spread = None;
        job.spec.missed = MissedRule::default();
        job.spec.schedule = Schedule::utc(Timing::Every { interval_s: 86_400, anchor: at(0) });
        job.next_wall = None;
        job.tzdb = None;
        job.runs_left = None;
        job.decided_at = None;
        job.passed = None;
        job.next_scheduled_at = None;
        job.next_due_at = None;
        job.due_bucket = None;
        job.voids = Voids::new(1);
    });
    for (many, start) in [
        (Many::Latest, StartRule::WithinS(u32::MAX)),
        (Many::None, StartRule::UntilLocal(chrono::NaiveTime::MIN)),
        (Many::Latest, StartRule::Always),
    ] {
        add(&|job| job.spec.missed = MissedRule { many, start });
    }
    add(&|job| job.error = Some("`30 2 31 2 *` never fires".into()));
    add(&|job| job.created_at = at_ms(-1_001));
    for state in [JobState::Paused, JobState::Done, JobState::Cancelled, JobState::Quarantined] {
        add(&|job| {
            job.state = state;
            job.due_bucket = None;
            let ends = matches!(state, JobState::Done | JobState::Cancelled);
            job.expires_at = ends.then(|| at(86_400));
        });
    }
    for priority in [Priority::Urgent, Priority::Bulk] {
        add(&|job| job.spec.priority = priority);
    }
    for when in ["at 2100-01-01T00:00:01Z", "at 2100-01-01T00:00:01", "every 24h", "cron @daily", "cron H 8 * * 1-5"] {
        let text = ScheduleText { when, tz: Some("Asia/Kathmandu"), key: Some("c-1"), ..ScheduleText::default() };
        let (schedule, _) = text.read(at(0), &Zones::embedded()).expect("the schedule is well formed");
        add(&|job| job.spec.schedule = schedule.clone());
    }
    jobs
}

/// Where a job stands.
pub(super) fn standing(job: &Job) -> AdvanceFrom {
    AdvanceFrom {
        next_scheduled_at: job.next_scheduled_at.expect("the sample has a firing to come"),
        version: job.version,
    }
}

/// A firing in `bucket`.
pub(super) fn on_to(bucket: DueBucket) -> Advanced {
    let due_at = bucket.minute.start() + TimeDelta::seconds(1);
    let (next_wall, tzdb) = (Some(wall() + TimeDelta::days(1)), Some(TzVersion::new("2099za")));
    let next =
        NextFiring { scheduled_at: bucket.minute.start(), wall: next_wall, tzdb, runs_left: Some(7), due_at, bucket };
    let passed = Passed { firing: Firing { at: at(0), wall: Some(wall()) }, runs_left: Some(8) };
    Advanced { passed: Some(passed), ..Advanced::at(next) }
}

/// The end of a schedule.
pub(super) fn to_the_end() -> Advanced {
    let passed = Passed { firing: Firing { at: at(60), wall: Some(wall()) }, runs_left: Some(1) };
    Advanced { state: JobState::Done, next: None, passed: Some(passed), expires_at: Some(at(86_400)) }
}

/// Stores a new job.
pub(super) async fn stored(ports: &Ports, job: Job) -> Job {
    let created = ports.jobs.create(&job).await.expect("a job can be created");
    assert_eq!(created, Create::Created, "a new key is free");
    job
}

/// Reads a job that must be there.
pub(super) async fn read(ports: &Ports, key: &JobKey) -> Job {
    let mut jobs = ports.jobs.get_many(std::slice::from_ref(key)).await.expect("jobs can be read");
    match jobs.remove(key) {
        Some(JobRead::Job(job)) => *job,
        Some(JobRead::Unreadable(why)) => panic!("{key} cannot be read: {why}"),
        None => panic!("{key} is not there"),
    }
}

/// A row in its first revision that has every field.
pub(super) fn row(job_key: &JobKey, scheduled_at: DateTime<Utc>) -> RunRow {
    RunRow {
        id: RunId { job_key: job_key.clone(), run_key: RunKey::scheduled(scheduled_at) },
        status: RunStatus::Running,
        attempt: 2,
        owner: Some(random_name()),
        lease_until: Some(at_ms(61_001)),
        not_before: Some(at_ms(1_999)),
        generation: u64::MAX / 2,
        void_gen: Some(3),
        due_at: at(1),
        first_enqueued_at: at_ms(1_234),
        started_at: Some(at_ms(-1)),
        completed_at: Some(at_ms(999)),
        attempts: vec![attempt(1, Some(OutcomeClass::Temporary)), attempt(2, None)],
        error: Some("503 „Wartung“".into()),
        gateway_ref: Some("gw-1".into()),
        reason: Some(SkipReason::Cancelled),
        range: Some(SkippedRange { to: at(86_400), count: u32::MAX }),
        revision: 1,
        write_token: random_name(),
    }
}

/// A row key's job that nobody else uses.
pub(super) fn random_job_key() -> JobKey {
    JobKey::new(&format!("t{}", random_name()), "c-1/bill").expect("keys of cases are well formed")
}

fn attempt(n: u32, class: Option<OutcomeClass>) -> Attempt {
    Attempt {
        n,
        started_at: at_ms(i64::from(n) * 1_001),
        ended_at: class.map(|_| at_ms(i64::from(n) * 1_001 + 7)),
        worker: format!("worker-{n}"),
        job_version: u64::from(n),
        class,
        detail: class.map(|_| "connection refused".to_owned()),
    }
}

/// Changes that between them give a row every variant and both sides of every option.
pub(super) fn all_kinds_of_rows(job_key: &JobKey) -> Vec<RunRow> {
    let mut rows = Vec::new();
    let mut add = |change: &dyn Fn(&mut RunRow)| {
        let mut row = row(job_key, at(rows.len() as i64));
        change(&mut row);
        rows.push(row);
    };
    add(&|_| ());
    add(&|row| {
        row.attempt = 0;
        row.owner = None;
        row.lease_until = None;
        row.not_before = None;
        row.void_gen = None;
        row.started_at = None;
        row.completed_at = None;
        row.attempts = Vec::new();
        row.error = None;
        row.gateway_ref = None;
        row.reason = None;
        row.range = None;
    });
    for status in [RunStatus::Retrying, RunStatus::Succeeded, RunStatus::Failed, RunStatus::Skipped] {
        add(&|row| row.status = status);
    }
    for status in [RunStatus::Dead, RunStatus::Indeterminate] {
        add(&|row| row.status = status);
    }
    for reason in [SkipReason::Superseded, SkipReason::Deadline, SkipReason::Missed] {
        add(&|row| row.reason = Some(reason));
    }
    for class in [OutcomeClass::Delivered, OutcomeClass::Permanent, OutcomeClass::Unknown, OutcomeClass::Lost] {
        add(&|row| row.attempts = vec![attempt(1, Some(class))]);
    }
    add(&|row| row.attempts = (1..=20).map(|n| attempt(n, Some(OutcomeClass::Temporary))).collect());
    rows
}

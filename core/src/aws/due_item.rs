//! What dispatch reads of a job's item: what its firings depend on. Payloads stay in the store: there is less to parse, and no
//! phone number is in a scheduler's memory.

use super::error::without_quotes;
use super::job_item::{Item, bucket_of};
use super::schedule_item::{MissedItem, ScheduleItem};
use crate::job::{Job, JobKey, JobSpec, JobState, Voids};
use crate::payload::{Handler, Payload};
use crate::ports::JobRead;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::schedule::Anchor;
use crate::spread::Spread;
use crate::zone::TzVersion;
use chrono::serde::ts_seconds_option;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Deserialize;

/// The attributes that [`DueItem`] has.
pub(super) const DUE_ATTRIBUTES: [&str; 16] = [
    "job_key",
    "state",
    "schedule",
    "spread",
    "priority",
    "handler",
    "missed",
    "next_scheduled_at",
    "next_wall",
    "tzdb",
    "runs_left",
    "decided_at",
    "next_due_at",
    "due_bucket",
    "generation",
    "version",
];

#[derive(Deserialize)]
struct DueItem {
    job_key: JobKey,
    state: JobState,
    schedule: ScheduleItem,
    #[serde(default)]
    spread: Option<Spread>,
    priority: Priority,
    handler: Handler,
    #[serde(default)]
    missed: MissedItem,
    #[serde(default, with = "ts_seconds_option")]
    next_scheduled_at: Option<DateTime<Utc>>,
    #[serde(default)]
    next_wall: Option<NaiveDateTime>,
    #[serde(default)]
    tzdb: Option<String>,
    #[serde(default)]
    runs_left: Option<u32>,
    #[serde(default, with = "ts_seconds_option")]
    decided_at: Option<DateTime<Utc>>,
    #[serde(default, with = "ts_seconds_option")]
    next_due_at: Option<DateTime<Utc>>,
    #[serde(default)]
    due_bucket: Option<String>,
    generation: u64,
    version: u64,
}

/// The job of an item that was read in part.
pub(super) fn from_due_item(item: Item) -> JobRead {
    let read = serde_dynamo::aws_sdk_dynamodb_1::from_item::<DueItem>(item)
        .map_err(|e| without_quotes(&e.to_string()))
        .and_then(job_of);
    match read {
        Ok(job) => JobRead::Job(Box::new(job)),
        Err(reason) => JobRead::Unreadable(reason),
    }
}

fn job_of(item: DueItem) -> Result<Job, String> {
    let spec = JobSpec {
        key: item.job_key,
        name: None,
        schedule: item.schedule.schedule()?,
        anchor: Anchor::Stated,
        priority: item.priority,
        payload: Payload::Unread(item.handler),
        retry: RetryRule::default(),
        spread: item.spread,
        missed: item.missed.rule()?,
    };
    // Whatever wrote it: what is out of range would panic or never end where it is worked with.
    spec.check_timing_ranges().map_err(|e| e.to_string())?;
    Ok(Job {
        spec,
        state: item.state,
        next_scheduled_at: item.next_scheduled_at,
        next_wall: item.next_wall,
        tzdb: item.tzdb.as_deref().map(TzVersion::new),
        runs_left: item.runs_left,
        decided_at: item.decided_at,
        passed: None,
        next_due_at: item.next_due_at,
        due_bucket: bucket_of(item.due_bucket.as_deref())?,
        generation: item.generation,
        voids: Voids::new(item.generation),
        version: item.version,
        edit_token: String::new(),
        updated_by: String::new(),
        created_at: DateTime::UNIX_EPOCH,
        updated_at: DateTime::UNIX_EPOCH,
        made_for: None,
        is_erased: false,
        error: None,
        expires_at: None,
    })
}

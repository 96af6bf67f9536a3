//! How a job is laid out as a DynamoDB item.

use super::error::without_quotes;
use super::payload_item::PayloadItem;
use super::schedule_item::{MissedItem, ScheduleItem, is_default};
use crate::due::{DueBucket, ShardId};
use crate::job::{Job, JobKey, JobSpec, JobState, Passed, Voids};
use crate::payload::Handler;
use crate::ports::JobRead;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::schedule::{Anchor, Firing};
use crate::spread::Spread;
use crate::zone::TzVersion;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

pub(super) type Item = HashMap<String, AttributeValue>;

/// Partitions of the index that lists a tenant's jobs.
pub(super) const TENANT_PARTITIONS: u8 = 16;

/// Where quarantined jobs sit in the due index, in place of a minute.
const QUARANTINE: &str = "quarantine/";

#[derive(Serialize, Deserialize)]
struct JobItem {
    job_key: JobKey,
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    name: Option<String>,
    state: JobState,
    schedule: ScheduleItem,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    spread: Option<Spread>,
    priority: Priority,
    handler: Handler,
    #[serde(deserialize_with = "discreet", default)]
    payload: PayloadItem,
    retry: RetryRule,
    #[serde(skip_serializing_if = "is_default", default)]
    missed: MissedItem,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    next_scheduled_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    next_wall: Option<NaiveDateTime>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tzdb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    runs_left: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    decided_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    passed_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    passed_wall: Option<NaiveDateTime>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    passed_left: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    next_due_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    due_bucket: Option<String>,
    generation: u64,
    voids: Voids,
    version: u64,
    edit_token: String,
    updated_by: String,
    #[serde(rename = "created_at_ms", with = "chrono::serde::ts_milliseconds")]
    created_at: DateTime<Utc>,
    /// Left out where it was made only.
    #[serde(
        rename = "updated_at_ms",
        skip_serializing_if = "Option::is_none",
        default,
        with = "chrono::serde::ts_milliseconds_option"
    )]
    updated_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    made_for: Option<String>,
    #[serde(rename = "erased", skip_serializing_if = "is_default", default)]
    is_erased: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    expires_at: Option<DateTime<Utc>>,
}

/// Reads a payload; what it could not read is personal data, so the error says nothing of it.
fn discreet<'de, D: Deserializer<'de>>(stored: D) -> Result<PayloadItem, D::Error> {
    PayloadItem::deserialize(stored).map_err(|_| D::Error::custom("the payload cannot be read: it is no map of texts"))
}

/// The item of a job.
pub(super) fn to_item(job: &Job) -> Item {
    let (spec, passed) = (job.spec.clone(), job.passed.as_ref());
    let item = JobItem {
        tenant: tenant_partition(spec.key.tenant(), partition_of(&spec.key)),
        job_key: spec.key,
        name: spec.name,
        state: job.state,
        schedule: ScheduleItem::of(&spec.schedule),
        spread: spec.spread,
        priority: spec.priority,
        handler: spec.payload.handler(),
        payload: PayloadItem::of(spec.payload),
        retry: spec.retry,
        missed: MissedItem::of(spec.missed),
        next_scheduled_at: job.next_scheduled_at,
        next_wall: job.next_wall,
        tzdb: job.tzdb.as_ref().map(|version| version.as_str().to_owned()),
        runs_left: job.runs_left,
        decided_at: job.decided_at,
        passed_at: passed.map(|passed| passed.firing.at),
        passed_wall: passed.and_then(|passed| passed.firing.wall),
        passed_left: passed.and_then(|passed| passed.runs_left),
        next_due_at: job.next_due_at,
        due_bucket: job.due_bucket.map(|b| b.to_string()),
        generation: job.generation,
        voids: job.voids.clone(),
        version: job.version,
        edit_token: job.edit_token.clone(),
        updated_by: job.updated_by.clone(),
        created_at: job.created_at,
        updated_at: Some(job.updated_at).filter(|at| *at != job.created_at),
        made_for: job.made_for.clone(),
        is_erased: job.is_erased,
        error: job.error.clone(),
        expires_at: job.expires_at,
    };
    serde_dynamo::aws_sdk_dynamodb_1::to_item(item).expect("a job has only string keys and plain values")
}

/// The job of an item.
pub(super) fn from_item(item: Item) -> JobRead {
    let read = serde_dynamo::aws_sdk_dynamodb_1::from_item::<JobItem>(item)
        .map_err(|e| without_quotes(&e.to_string()))
        .and_then(job_of);
    match read {
        Ok(job) => JobRead::Job(Box::new(job)),
        Err(reason) => JobRead::Unreadable(reason),
    }
}

fn job_of(item: JobItem) -> Result<Job, String> {
    let due_bucket = bucket_of(item.due_bucket.as_deref())?;
    let spec = JobSpec {
        key: item.job_key,
        name: item.name,
        schedule: item.schedule.schedule()?,
        anchor: Anchor::Stated,
        priority: item.priority,
        payload: item.payload.payload(item.handler)?,
        retry: item.retry,
        spread: item.spread,
        missed: item.missed.rule()?,
    };
    // Whatever wrote it: what is out of range would panic or never end where it is worked with.
    spec.check_ranges().map_err(|e| e.to_string())?;
    Ok(Job {
        spec,
        state: item.state,
        next_scheduled_at: item.next_scheduled_at,
        next_wall: item.next_wall,
        tzdb: item.tzdb.as_deref().map(TzVersion::new),
        runs_left: item.runs_left,
        decided_at: item.decided_at,
        passed: item
            .passed_at
            .map(|at| Passed { firing: Firing { at, wall: item.passed_wall }, runs_left: item.passed_left }),
        next_due_at: item.next_due_at,
        due_bucket,
        generation: item.generation,
        voids: item.voids,
        version: item.version,
        edit_token: item.edit_token,
        updated_by: item.updated_by,
        created_at: item.created_at,
        updated_at: item.updated_at.unwrap_or(item.created_at),
        made_for: item.made_for,
        is_erased: item.is_erased,
        error: item.error,
        expires_at: item.expires_at,
    })
}

/// The bucket of a job that is in one; a quarantined one is in none.
pub(super) fn bucket_of(stored: Option<&str>) -> Result<Option<DueBucket>, String> {
    stored.filter(|bucket| !bucket.starts_with(QUARANTINE)).map(str::parse).transpose()
}

/// A wall time as an item has it.
pub(super) fn wall_text(wall: NaiveDateTime) -> String {
    wall.format("%Y-%m-%dT%H:%M:%S").to_string()
}

/// Where the quarantined jobs of a shard sit.
pub(super) fn quarantine_bucket(shard: ShardId) -> String {
    format!("{QUARANTINE}{shard}")
}

/// The partition of the tenant index that lists a job.
fn partition_of(key: &JobKey) -> u8 {
    Sha256::digest(key.as_str().as_bytes())[31] % TENANT_PARTITIONS
}

/// The partition key of that index: `bank#07`.
pub(super) fn tenant_partition(tenant: &str, partition: u8) -> String {
    format!("{tenant}#{partition:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::due::Shards;
    use crate::job::Timetable;
    use crate::missed::MissedRule;
    use crate::payload::{Payload, Secret};
    use crate::schedule::Schedule;
    use crate::zone::Zones;

    const PHONE: &str = "+447700900123";
    const TEXT: &str = "Your \"final\" bill is due";

    fn item() -> Item {
        item_with(Payload::sms(PHONE, TEXT))
    }

    fn item_with(payload: Payload) -> Item {
        let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
        let spec = JobSpec {
            key: JobKey::new("bank", "c-1/bill").unwrap(),
            name: None,
            schedule: Schedule::parse("every 24h", now).unwrap(),
            anchor: Anchor::Stated,
            priority: Priority::Normal,
            payload,
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        };
        let world = Timetable { shards: &Shards::default(), zones: &Zones::embedded() };
        to_item(&Job::create(spec, now, &world, None, "t".into(), "test").unwrap())
    }

    /// Sets the value at `path` and returns why the item cannot be read.
    fn reason_with(path: &[&str], value: AttributeValue) -> String {
        let mut item = item();
        let (last, parents) = path.split_last().unwrap();
        let mut map = &mut item;
        for parent in parents {
            let Some(AttributeValue::M(inner)) = map.get_mut(*parent) else { panic!("{parent} is no map") };
            map = inner;
        }
        map.insert((*last).to_owned(), value);
        match from_item(item) {
            JobRead::Unreadable(reason) => reason,
            JobRead::Job(job) => panic!("{path:?}: read as {job:?}"),
        }
    }

    #[test]
    fn a_job_reads_back_from_its_item() {
        assert!(from_item(item()).job().is_some_and(|job| job.spec.payload.text() == Some(TEXT)));
    }

    #[test]
    fn every_payload_reads_back_from_its_item() {
        let vars = || [("amount".to_owned(), "12.50".to_owned())].into();
        let url = || "https://hooks.example.com/bills".to_owned();
        for payload in [
            Payload::Sms { to: PHONE.into(), text: "{{ vars.amount }} is due".into(), vars: vars() },
            Payload::Email { to: "ana@example.com".into(), subject: "Bill".into(), text: TEXT.into(), vars: vars() },
            Payload::Webhook {
                url: url(),
                body: "[1]".into(),
                vars: vars(),
                secret: Some(Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
            },
            Payload::Webhook { url: url(), body: "[1]".into(), vars: Default::default(), secret: None },
            Payload::Queue { url: url(), body: "bill".into(), vars: vars() },
            Payload::Noop,
        ] {
            let read = from_item(item_with(payload.clone()));
            assert!(read.job().is_some_and(|job| job.spec.payload == payload), "{read:?}");
        }
    }

    #[test]
    fn an_item_from_before_there_were_other_handlers_reads_as_a_text_message() {
        let mut item = item();
        let text = |text: &str| AttributeValue::S(text.into());
        item.insert(
            "payload".into(),
            AttributeValue::M([("to".into(), text(PHONE)), ("text".into(), text(TEXT))].into()),
        );
        assert_eq!(item["handler"], text("sms"));
        assert!(from_item(item).job().is_some_and(|job| job.spec.payload == Payload::sms(PHONE, TEXT)));
    }

    #[test]
    fn a_stored_value_out_of_range_makes_a_job_unreadable() {
        let number = |n: i64| AttributeValue::N(n.to_string());
        for interval in [0, -60, i64::MIN, 59] {
            let reason = reason_with(&["schedule", "every", "interval_s"], number(interval));
            assert!(reason.contains("too short"), "{reason}");
        }
        assert!(reason_with(&["retry", "max_attempts"], number(0)).contains("max_attempts 0"));
        assert!(
            reason_with(&["missed"], AttributeValue::M([("start_within_s".to_owned(), number(1))].into()))
                .contains("start_within_s 1")
        );
    }

    #[test]
    fn the_reason_shows_nothing_of_the_payload() {
        let text = |text: &str| AttributeValue::S(text.into());
        for (path, value) in [
            (&["payload"][..], text(TEXT)),
            (&["payload"], text(PHONE)),
            (&["payload", "to"], text(&PHONE[1..])),
            (&["payload", "to"], AttributeValue::N(PHONE[1..].into())),
            (&["payload", "to"], AttributeValue::L(vec![text(PHONE)])),
            (&["payload", "text"], AttributeValue::N(PHONE[1..].into())),
            (&["payload", "text"], text("")),
            (&["schedule", "every", "interval_s"], AttributeValue::N("0".into())),
        ] {
            let reason = reason_with(path, value);
            assert!(!reason.contains("7700") && !reason.contains("final") && !reason.contains("bill"), "{reason}");
        }
    }
}

//! How a job is laid out as a DynamoDB item.

use super::error::without_quotes;
use crate::due::DueBucket;
use crate::job::{Job, JobKey, JobSpec, JobState, Voids};
use crate::payload::{Handler, SmsPayload};
use crate::ports::JobRead;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::schedule::Schedule;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
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
    schedule: Schedule,
    priority: Priority,
    handler: Handler,
    payload: SmsPayload,
    retry: RetryRule,
    #[serde(skip_serializing_if = "MissedItem::is_default", default)]
    missed: MissedItem,
    #[serde(skip_serializing_if = "Option::is_none", default, with = "chrono::serde::ts_seconds_option")]
    next_scheduled_at: Option<DateTime<Utc>>,
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct MissedItem {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    start_within_s: Option<u32>,
}

impl MissedItem {
    fn is_default(&self) -> bool {
        *self == MissedItem::default()
    }
}

/// The item of a job.
pub(super) fn to_item(job: &Job) -> Item {
    let spec = job.spec.clone();
    let item = JobItem {
        tenant: tenant_partition(spec.key.tenant(), partition_of(&spec.key)),
        job_key: spec.key,
        name: spec.name,
        state: job.state,
        schedule: spec.schedule,
        priority: spec.priority,
        handler: spec.handler,
        payload: spec.payload,
        retry: spec.retry,
        missed: MissedItem { start_within_s: spec.start_within_s },
        next_scheduled_at: job.next_scheduled_at,
        next_due_at: job.next_due_at,
        due_bucket: job.due_bucket.map(|b| b.to_string()),
        generation: job.generation,
        voids: job.voids.clone(),
        version: job.version,
        edit_token: job.edit_token.clone(),
        updated_by: job.updated_by.clone(),
        created_at: job.created_at,
        error: job.error.clone(),
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
    let due_bucket: Option<DueBucket> = match item.due_bucket.as_deref() {
        None => None,
        Some(bucket) if bucket.starts_with(QUARANTINE) => None,
        Some(bucket) => Some(bucket.parse()?),
    };
    Ok(Job {
        spec: JobSpec {
            key: item.job_key,
            name: item.name,
            schedule: item.schedule,
            priority: item.priority,
            handler: item.handler,
            payload: item.payload,
            retry: item.retry,
            start_within_s: item.missed.start_within_s,
        },
        state: item.state,
        next_scheduled_at: item.next_scheduled_at,
        next_due_at: item.next_due_at,
        due_bucket,
        generation: item.generation,
        voids: item.voids,
        version: item.version,
        edit_token: item.edit_token,
        updated_by: item.updated_by,
        created_at: item.created_at,
        error: item.error,
    })
}

/// Where a quarantined job of a shard sits.
pub(super) fn quarantine_bucket(bucket: &DueBucket) -> String {
    format!("{QUARANTINE}{}", bucket.shard)
}

/// The partition of the tenant index that lists a job.
fn partition_of(key: &JobKey) -> u8 {
    Sha256::digest(key.as_str().as_bytes())[31] % TENANT_PARTITIONS
}

/// The partition key of that index: `bank#07`.
pub(super) fn tenant_partition(tenant: &str, partition: u8) -> String {
    format!("{tenant}#{partition:02}")
}

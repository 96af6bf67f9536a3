//! How a run row is laid out as a DynamoDB item.

use super::error::without_quotes;
use super::job_item::Item;
use crate::error::PortError;
use crate::job::{JobKey, RETENTION};
use crate::run::{Attempt, RunId, RunKey, RunRow, RunStatus, SkipReason, SkippedRange};
use chrono::serde::{ts_milliseconds, ts_milliseconds_option, ts_seconds, ts_seconds_option};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct RunItem {
    job_key: JobKey,
    run_key: RunKey,
    status: RunStatus,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    owner: Option<String>,
    #[serde(
        rename = "lease_until_ms",
        skip_serializing_if = "Option::is_none",
        default,
        with = "ts_milliseconds_option"
    )]
    lease_until: Option<DateTime<Utc>>,
    #[serde(
        rename = "not_before_ms",
        skip_serializing_if = "Option::is_none",
        default,
        with = "ts_milliseconds_option"
    )]
    not_before: Option<DateTime<Utc>>,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    void_gen: Option<u64>,
    #[serde(rename = "due_at_ms", with = "ts_milliseconds")]
    due_at: DateTime<Utc>,
    #[serde(rename = "first_enqueued_at_ms", with = "ts_milliseconds")]
    first_enqueued_at: DateTime<Utc>,
    #[serde(
        rename = "started_at_ms",
        skip_serializing_if = "Option::is_none",
        default,
        with = "ts_milliseconds_option"
    )]
    started_at: Option<DateTime<Utc>>,
    #[serde(
        rename = "completed_at_ms",
        skip_serializing_if = "Option::is_none",
        default,
        with = "ts_milliseconds_option"
    )]
    completed_at: Option<DateTime<Utc>>,
    attempts: Vec<AttemptItem>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    gateway_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reason: Option<SkipReason>,
    /// With `count`: the last firing that a skipped row stands for.
    #[serde(rename = "to", skip_serializing_if = "Option::is_none", default, with = "ts_seconds_option")]
    range_to: Option<DateTime<Utc>>,
    #[serde(rename = "count", skip_serializing_if = "Option::is_none", default)]
    range_count: Option<u32>,
    revision: u64,
    write_token: String,
    /// Set on dead and indeterminate rows only: they are listed for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    attention_tenant: Option<String>,
    /// For the table's TTL, in seconds.
    #[serde(with = "ts_seconds")]
    expires_at: DateTime<Utc>,
}

/// All attributes but the key, for writes that name them.
pub(super) const ATTRIBUTES: [&str; 21] = [
    "status",
    "attempt",
    "owner",
    "lease_until_ms",
    "not_before_ms",
    "generation",
    "void_gen",
    "due_at_ms",
    "first_enqueued_at_ms",
    "started_at_ms",
    "completed_at_ms",
    "attempts",
    "error",
    "gateway_ref",
    "reason",
    "to",
    "count",
    "revision",
    "write_token",
    "attention_tenant",
    "expires_at",
];

#[derive(Serialize, Deserialize)]
struct AttemptItem {
    n: u32,
    #[serde(rename = "started_at_ms", with = "ts_milliseconds")]
    started_at: DateTime<Utc>,
    #[serde(rename = "ended_at_ms", skip_serializing_if = "Option::is_none", default, with = "ts_milliseconds_option")]
    ended_at: Option<DateTime<Utc>>,
    worker: String,
    job_version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    class: Option<crate::retry::OutcomeClass>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    detail: Option<String>,
}

/// The item of a row.
pub(super) fn to_item(row: &RunRow) -> Item {
    let last_touched = [row.completed_at, row.not_before, row.lease_until, row.started_at, Some(row.first_enqueued_at)];
    let last_touched = last_touched.into_iter().flatten().max().unwrap_or(row.due_at);
    let item = RunItem {
        job_key: row.id.job_key.clone(),
        run_key: row.id.run_key.clone(),
        status: row.status,
        attempt: row.attempt,
        owner: row.owner.clone(),
        lease_until: row.lease_until,
        not_before: row.not_before,
        generation: row.generation,
        void_gen: row.void_gen,
        due_at: row.due_at,
        first_enqueued_at: row.first_enqueued_at,
        started_at: row.started_at,
        completed_at: row.completed_at,
        attempts: row.attempts.iter().map(AttemptItem::of).collect(),
        error: row.error.clone(),
        gateway_ref: row.gateway_ref.clone(),
        reason: row.reason,
        range_to: row.range.map(|range| range.to),
        range_count: row.range.map(|range| range.count),
        revision: row.revision,
        write_token: row.write_token.clone(),
        attention_tenant: row.status.has_letter().then(|| row.id.job_key.tenant().to_owned()),
        expires_at: crate::run::plus(last_touched, RETENTION),
    };
    serde_dynamo::aws_sdk_dynamodb_1::to_item(item).expect("a row has only string keys and plain values")
}

/// The row of an item.
pub(super) fn from_item(item: Item) -> Result<RunRow, PortError> {
    let item: RunItem = serde_dynamo::aws_sdk_dynamodb_1::from_item(item)
        .map_err(|e| PortError::Permanent(format!("a run row cannot be read: {}", without_quotes(&e.to_string()))))?;
    Ok(RunRow {
        id: RunId { job_key: item.job_key, run_key: item.run_key },
        status: item.status,
        attempt: item.attempt,
        owner: item.owner,
        lease_until: item.lease_until,
        not_before: item.not_before,
        generation: item.generation,
        void_gen: item.void_gen,
        due_at: item.due_at,
        first_enqueued_at: item.first_enqueued_at,
        started_at: item.started_at,
        completed_at: item.completed_at,
        attempts: item.attempts.into_iter().map(AttemptItem::attempt).collect(),
        error: item.error,
        gateway_ref: item.gateway_ref,
        reason: item.reason,
        range: item.range_to.zip(item.range_count).map(|(to, count)| SkippedRange { to, count }),
        revision: item.revision,
        write_token: item.write_token,
    })
}

impl AttemptItem {
    fn of(attempt: &Attempt) -> Self {
        AttemptItem {
            n: attempt.n,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            worker: attempt.worker.clone(),
            job_version: attempt.job_version,
            class: attempt.class,
            detail: attempt.detail.clone(),
        }
    }

    fn attempt(self) -> Attempt {
        Attempt {
            n: self.n,
            started_at: self.started_at,
            ended_at: self.ended_at,
            worker: self.worker,
            job_version: self.job_version,
            class: self.class,
            detail: self.detail,
        }
    }
}

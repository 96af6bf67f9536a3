//! Jobs, runs and firings as the API shows them.

use super::document;
use super::gate::Caller;
use super::state::Api;
use crate::listing::{instant, segment_count};
use chrono::{DateTime, SecondsFormat, Utc};
use punctual_core::job::{Job, JobKey};
use punctual_core::ports::{JobRead, UnreadableRow};
use punctual_core::run::RunRow;
use serde_json::{Map, Value, json};

/// A job, as far as the caller may see it.
pub(super) fn job(_: &Api, caller: &Caller, job: &Job) -> Value {
    let spec = &job.spec;
    let mut shown = document::without_payload(spec);
    let payload = match caller.sees_payloads() {
        true => document::payload(&spec.payload),
        false => json!({"handler": spec.payload.handler()}),
    };
    let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    put("payload", payload);
    put("tenant", json!(spec.key.tenant()));
    put("state", json!(job.state));
    put("target", json!(spec.payload.target().as_str()));
    put("segments", json!(segment_count(spec)));
    put("next_run_at", json!(job.next_scheduled_at.map(instant)));
    put("next_due_at", json!(job.next_due_at.map(instant)));
    put("next_wall", json!(job.next_wall.map(|wall| wall.format("%Y-%m-%dT%H:%M:%S").to_string())));
    put("runs_left", json!(job.runs_left));
    put("tzdb", json!(job.tzdb.as_ref().map(|version| version.as_str())));
    put("version", json!(job.version));
    put("generation", json!(job.generation));
    put("created_at", json!(exact(job.created_at)));
    put("updated_at", json!(exact(job.updated_at)));
    put("updated_by", json!(job.updated_by));
    put("expires_at", json!(job.expires_at.map(instant)));
    put("error", json!(job.error));
    put("warnings", json!(spec.warnings()));
    Value::Object(shown)
}

/// A job, or that it cannot be read.
pub(super) fn read(api: &Api, caller: &Caller, key: &JobKey, read: &JobRead) -> Value {
    match read {
        JobRead::Job(found) => job(api, caller, found),
        JobRead::Unreadable(reason) => {
            json!({"id": key.id(), "tenant": key.tenant(), "state": "unreadable", "error": reason, "next_run_at": null})
        }
    }
}

/// A run whose row cannot be read.
pub(super) fn unreadable_run(row: &UnreadableRow) -> Value {
    let run = row.id.rsplit_once(':').map_or(row.id.as_str(), |(_, run)| run);
    json!({"id": row.id, "run": run, "status": "unreadable", "error": row.problem})
}

/// An instant to the millisecond.
pub(super) fn exact(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A run.
pub(super) fn run(row: &RunRow) -> Map<String, Value> {
    let attempts = row.attempts.iter().map(|attempt| {
        json!({
            "n": attempt.n, "started_at": exact(attempt.started_at), "ended_at": attempt.ended_at.map(exact),
            "worker": attempt.worker, "job_version": attempt.job_version, "class": attempt.class,
            "detail": attempt.detail,
        })
    });
    let shown = json!({
        "id": row.id.to_string(), "job": row.id.job_key.id(), "run": row.id.run_key.as_str(), "status": row.status,
        "scheduled_at": row.id.run_key.instant().map(instant), "due_at": instant(row.due_at),
        "attempt": row.attempt, "attempts": attempts.collect::<Vec<_>>(), "started_at": row.started_at.map(exact),
        "completed_at": row.completed_at.map(exact), "not_before": row.not_before.map(exact), "error": row.error,
        "gateway_ref": row.gateway_ref, "reason": row.reason,
        "range": row.range.map(|range| json!({"to": instant(range.to), "count": range.count})),
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

//! Jobs and runs as tables for people and JSON lines for programs. Payloads are never shown.

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{Table, presets};
use punctual_core::job::JobKey;
use punctual_core::ports::JobRead;
use punctual_core::run::RunRow;
use serde_json::{Value, json};

/// Jobs as text.
pub fn jobs(jobs: &[(JobKey, JobRead)], as_json: bool) -> String {
    if as_json {
        return lines(jobs.iter().map(|(key, read)| match read {
            JobRead::Job(job) => json!({
                "job_key": key, "name": job.spec.name, "state": job.state, "priority": job.spec.priority,
                "schedule": job.spec.schedule.to_string(), "next_scheduled_at": job.next_scheduled_at.map(instant),
                "next_due_at": job.next_due_at.map(instant), "version": job.version, "generation": job.generation,
                "error": job.error,
            }),
            JobRead::Unreadable(reason) => json!({"job_key": key, "state": "unreadable", "error": reason}),
        }));
    }
    let mut table = table(&["job", "state", "priority", "schedule", "next"]);
    for (key, read) in jobs {
        match read {
            JobRead::Job(job) => table.add_row([
                key.id().to_owned(),
                job.state.as_str().to_owned(),
                job.spec.priority.to_string(),
                job.spec.schedule.to_string(),
                job.next_scheduled_at.map(instant).unwrap_or_default(),
            ]),
            JobRead::Unreadable(reason) => table.add_row([key.id(), "unreadable", "", reason, ""]),
        };
    }
    table.to_string()
}

/// Runs as text.
pub fn runs(rows: &[RunRow], as_json: bool) -> String {
    if as_json {
        return lines(rows.iter().map(|row| {
            let attempts = row.attempts.iter().map(|a| {
                json!({
                    "n": a.n, "started_at": instant(a.started_at), "ended_at": a.ended_at.map(instant), "worker": a.worker,
                    "outcome": a.class, "detail": a.detail,
                })
            });
            json!({
                "run_id": row.id.to_string(), "status": row.status, "attempt": row.attempt, "due_at": instant(row.due_at),
                "first_enqueued_at": instant(row.first_enqueued_at), "started_at": row.started_at.map(instant),
                "completed_at": row.completed_at.map(instant), "not_before": row.not_before.map(instant),
                "reason": row.reason, "error": row.error, "gateway_ref": row.gateway_ref,
                "attempts": attempts.collect::<Vec<_>>(),
            })
        }));
    }
    let mut table = table(&["run", "status", "due", "started", "attempts", "why"]);
    for row in rows {
        let reason = row.reason.map(|r| format!("{r:?}").to_lowercase());
        table.add_row([
            row.id.run_key.to_string(),
            row.status.as_str().to_owned(),
            instant(row.due_at),
            row.started_at.map(instant).unwrap_or_default(),
            row.attempt.to_string(),
            reason.or(row.error.clone()).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join("\n")
}

fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

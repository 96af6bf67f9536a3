//! Jobs, runs, limits and holds as tables for people and JSON lines for programs. Payloads are never shown.

mod circuits;
mod steering;

pub use circuits::{circuits_json, circuits_table};
pub use steering::{hold_json, holds, limits, limits_json, scope, shares_json, shares_table};

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{Table, presets};
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::payload::Handler;
use punctual_core::ports::JobRead;
use punctual_core::render::example;
use punctual_core::retry::RetryRule;
use punctual_core::run::RunRow;
use punctual_core::sms::{self, Encoding, Segments};
use serde::Serialize;
use serde_json::{Value, json};

/// Jobs as text.
pub fn jobs(jobs: &[(JobKey, JobRead)], as_json: bool) -> String {
    if as_json {
        return lines(jobs.iter().map(|(key, read)| match read {
            JobRead::Job(job) => json!({
                "job_key": key, "name": job.spec.name, "state": job.state, "priority": job.spec.priority,
                "handler": job.spec.payload.handler(), "target": job.spec.payload.target().as_str(),
                "segments": size(&job.spec).map(|size| size.count), "retry": job.spec.retry,
                "schedule": job.spec.schedule.to_string(), "tz": job.spec.schedule.tz.name(),
                "spread": job.spec.spread, "missed": job.spec.missed.many, "may_start": job.spec.missed.start.to_string(),
                "next_scheduled_at": job.next_scheduled_at.map(instant), "next_wall": job.next_wall,
                "next_due_at": job.next_due_at.map(instant), "runs_left": job.runs_left,
                "tzdb": job.tzdb.as_ref().map(|version| version.as_str()), "version": job.version,
                "generation": job.generation, "updated_by": job.updated_by, "created_at": instant(job.created_at),
                "expires_at": job.expires_at.map(instant), "error": job.error,
            }),
            JobRead::Unreadable(reason) => json!({"job_key": key, "state": "unreadable", "error": reason}),
        }));
    }
    let mut table = table(&["job", "state", "priority", "schedule", "next, local", "next due, UTC"]);
    for (key, read) in jobs {
        match read {
            JobRead::Job(job) => table.add_row([
                key.id().to_owned(),
                job.state.as_str().to_owned(),
                job.spec.priority.to_string(),
                job.spec.schedule.to_string(),
                job.next_wall.map(|wall| wall.format("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default(),
                job.next_due_at.map(instant).unwrap_or_default(),
            ]),
            JobRead::Unreadable(reason) => table.add_row([key.id(), "unreadable", "", reason, "", ""]),
        };
    }
    table.to_string()
}

/// One job as text.
pub fn job(key: &JobKey, read: &JobRead, as_json: bool) -> String {
    let job = match read {
        JobRead::Job(job) if !as_json => job,
        read => return jobs(&[(key.clone(), read.clone())], as_json),
    };
    let (spec, schedule) = (&job.spec, &job.spec.schedule);
    let window = spec.spread.as_ref().map(|spread| format!("{} s behind its time, by {}", spread.window_s, spread.key));
    let rows = [
        ("job", Some(key.to_string())),
        ("name", spec.name.clone()),
        ("state", Some(job.state.as_str().to_owned())),
        ("error", job.error.clone()),
        ("handler", Some(spec.payload.handler().as_str().to_owned())),
        ("target", Some(spec.payload.target().to_string())),
        ("segments", segments(spec)),
        ("retry", Some(retry(&spec.retry))),
        ("schedule", Some(schedule.to_string())),
        ("priority", Some(spec.priority.to_string())),
        ("window", window),
        ("missed", Some(format!("{}; a run may start {}", spec.missed.many, spec.missed.start))),
        ("next, local", job.next_wall.map(|wall| wall.format("%Y-%m-%d %H:%M:%S").to_string())),
        ("next, UTC", job.next_scheduled_at.map(instant)),
        ("next due, UTC", job.next_due_at.map(instant)),
        ("firings left", job.runs_left.map(|left| left.to_string())),
        ("version", Some(format!("{}, by {}", job.version, job.updated_by))),
        ("generation", Some(job.generation.to_string())),
        ("made", Some(instant(job.created_at))),
        ("kept until", job.expires_at.map(instant)),
    ];
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        if let Some(value) = value {
            table.add_row([name.to_owned(), value]);
        }
    }
    table.to_string()
}

/// How many messages a job's text is, as one of its runs would carry it; none for other handlers.
fn size(spec: &JobSpec) -> Option<Segments> {
    let payload = if spec.payload.handler() == Handler::Sms { example(spec)? } else { return None };
    payload.text().map(sms::segments)
}

/// How many messages a job's text is; none for other handlers.
pub(crate) fn segment_count(spec: &JobSpec) -> Option<usize> {
    size(spec).map(|size| size.count)
}

/// The same in words.
pub(crate) fn segments(spec: &JobSpec) -> Option<String> {
    let Segments { encoding, count } = size(spec)?;
    let encoding = match encoding {
        Encoding::Gsm => "GSM",
        Encoding::Ucs2 => "UCS-2",
    };
    let noun = if count == 1 { "segment" } else { "segments" };
    Some(format!("{count} SMS {noun} ({encoding})"))
}

fn retry(rule: &RetryRule) -> String {
    match &rule.waits_s {
        Some(waits) => {
            let waits: Vec<String> = waits.as_slice().iter().map(|s| format!("{s} s")).collect();
            format!("{} attempts, waits below {}", rule.max_attempts, waits.join(", "))
        }
        None => {
            format!("{} attempts, waits below {} s, doubling up to {} s", rule.max_attempts, rule.base_s, rule.cap_s)
        }
    }
}

/// Quarantined jobs as text: why each was set aside.
pub fn quarantined(found: &[(JobKey, JobRead)], as_json: bool) -> String {
    if as_json {
        return jobs(found, true);
    }
    let mut table = table(&["job", "next due, UTC", "why it was set aside"]);
    for (key, read) in found {
        let (due, why) = match read {
            JobRead::Job(job) => (job.next_due_at.map(instant), job.error.clone().unwrap_or_default()),
            JobRead::Unreadable(reason) => (None, format!("it cannot be read: {reason}")),
        };
        table.add_row([key.id().to_owned(), due.unwrap_or_default(), why]);
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
                "reason": row.reason, "skipped_to": row.range.map(|range| instant(range.to)),
                "skipped": row.range.map(|range| range.count), "error": row.error, "gateway_ref": row.gateway_ref,
                "attempts": attempts.collect::<Vec<_>>(),
            })
        }));
    }
    let mut table = table(&["run", "status", "due", "started", "attempts", "why"]);
    for row in rows {
        let several = row.range.map(|range| format!(", {} firings up to {}", range.count, instant(range.to)));
        let reason = row.reason.map(|reason| word(reason) + several.as_deref().unwrap_or_default());
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

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

pub(crate) fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join("\n")
}

/// The word by which a value goes in JSON: tables say the same.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// An instant as everything here shows it: `2026-12-05T09:00:00Z`.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::run::SkipReason;

    #[test]
    fn tables_say_the_words_of_json() {
        assert_eq!(word(SkipReason::Deadline), "deadline");
        assert_eq!(instant(DateTime::UNIX_EPOCH), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn an_empty_json_listing_is_empty() {
        assert_eq!(jobs(&[], true), "");
        assert_eq!(runs(&[], true), "");
        assert!(!jobs(&[], false).is_empty());
    }
}

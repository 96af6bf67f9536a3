//! Jobs as tables.

use super::{facts, given, list, said, segments_in_words, table, whole};
use chrono::NaiveTime;
use punctual_core::deadline::StartRule;
use punctual_core::payload::Handler;
use serde_json::Value;
use std::collections::BTreeSet;

/// Jobs as the API lists them.
pub fn jobs(jobs: &[Value]) -> String {
    let mut table = table(&["job", "state", "priority", "schedule", "next, local", "next due, UTC"]);
    for job in jobs {
        let schedule = match job["state"].as_str() {
            Some("unreadable") => said(job, "error"),
            _ => schedule(&job["schedule"], None),
        };
        table.add_row([
            said(job, "id"),
            said(job, "state"),
            said(job, "priority"),
            schedule,
            wall(job).unwrap_or_default(),
            said(job, "next_due_at"),
        ]);
    }
    table.to_string()
}

/// Quarantined jobs: why each was set aside.
pub fn quarantined(jobs: &[Value]) -> String {
    let mut table = table(&["job", "next due, UTC", "why it was set aside"]);
    for job in jobs {
        table.add_row([said(job, "id"), said(job, "next_due_at"), said(job, "error")]);
    }
    table.to_string()
}

/// One job.
pub fn job(job: &Value) -> String {
    let number = |name: &str| job[name].as_u64();
    let spread = &job["spread"];
    let window = spread
        .is_object()
        .then(|| format!("{} s behind its time, by {}", said(spread, "window_s"), said(spread, "key")));
    facts([
        ("job", Some(format!("{}/{}", said(job, "tenant"), said(job, "id")))),
        ("name", given(job, "name")),
        ("state", given(job, "state")),
        ("error", given(job, "error")),
        ("handler", given(&job["payload"], "handler")),
        ("target", given(job, "target")),
        ("segments", number("segments").map(segments_in_words)),
        ("retry", Some(retry(&job["retry"]))),
        ("schedule", Some(schedule(&job["schedule"], None))),
        ("priority", given(job, "priority")),
        ("window", window),
        ("missed", Some(format!("{}; a run may start {}", said(&job["missed"], "many"), start(&job["missed"])))),
        ("next, local", wall(job)),
        ("next, UTC", given(job, "next_run_at")),
        ("next due, UTC", given(job, "next_due_at")),
        ("firings left", number("runs_left").map(|left| left.to_string())),
        ("version", Some(format!("{}, by {}", said(job, "version"), said(job, "updated_by")))),
        ("generation", given(job, "generation")),
        ("made", given(job, "created_at")),
        ("kept until", given(job, "expires_at")),
    ])
}

/// What a job does, as far as the API shows it.
pub fn payload(job: &Value) -> String {
    let payload = &job["payload"];
    let vars = payload["vars"].as_object().map(|vars| {
        let vars = vars.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
        vars.collect::<Vec<_>>().join(", ")
    });
    facts([
        ("to", given(payload, "to")),
        ("subject", given(payload, "subject")),
        ("text", given(payload, "text")),
        ("url", given(payload, "url")),
        ("body", given(payload, "body")),
        ("secret", given(payload, "secret")),
        ("vars", vars),
    ])
}

/// Who changed a job, when, and which fields.
pub fn changes(changes: &[Value]) -> String {
    let mut table = table(&["version", "when, UTC", "who", "what changed"]);
    for change in changes {
        let fields = |side: &str| change[side].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let what = match &change["before"] {
            Value::Null => "made, or the oldest version that is kept".to_owned(),
            _ => fields("before")
                .chain(fields("after"))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", "),
        };
        table.add_row([said(change, "version"), whole(&said(change, "at")), said(change, "by"), what]);
    }
    table.to_string()
}

/// A schedule in one line; `written` is its cron expression as a person wrote it.
pub fn schedule(schedule: &Value, written: Option<&str>) -> String {
    let field = |name: &str| schedule[name].as_str();
    let mut text = match (field("cron"), field("every"), field("at")) {
        (Some(cron), ..) => match written {
            Some(written) if written != cron => format!("cron {cron} ({written})"),
            _ => format!("cron {cron}"),
        },
        (_, Some(every), _) => format!("every {every} from {}", field("from").unwrap_or("its making")),
        (.., Some(at)) => format!("at {at}"),
        _ => String::new(),
    };
    let parts =
        [("tz", ""), ("dst_gap", "gap "), ("dst_repeat", "repeat "), ("start_at", "from "), ("end_at", "until ")];
    for (name, word) in parts {
        if let Some(value) = field(name) {
            text += &format!(", {word}{value}");
        }
    }
    match schedule["max_runs"].as_u64() {
        Some(most) => format!("{text}, at most {most} runs"),
        None => text,
    }
}

fn wall(job: &Value) -> Option<String> {
    Some(job["next_wall"].as_str()?.replace('T', " "))
}

fn retry(rule: &Value) -> String {
    let waits = list(rule, "waits_s");
    if waits.is_empty() {
        return format!(
            "{} attempts, waits below {} s, doubling up to {} s",
            said(rule, "max_attempts"),
            said(rule, "base_s"),
            said(rule, "cap_s")
        );
    }
    let listed: Vec<String> = waits.iter().map(|wait| format!("{wait} s")).collect();
    format!("{} attempts, waits below {}", waits.len() + 1, listed.join(", "))
}

fn start(missed: &Value) -> StartRule {
    let until = missed["until_local"].as_str().and_then(|time| NaiveTime::parse_from_str(time, "%H:%M").ok());
    match (missed["start_within_s"].as_u64().and_then(|s| u32::try_from(s).ok()), until) {
        (Some(within), _) => StartRule::WithinS(within),
        (None, Some(time)) => StartRule::UntilLocal(time),
        (None, None) => StartRule::Always,
    }
}

/// Whether the document of a job leaves something out that it needs: its secret.
pub(crate) fn has_kept_secret(job: &Value) -> bool {
    job["payload"]["handler"] == Handler::Webhook.as_str() && job["payload"]["secret"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document;
    use punctual_core::schedule::ScheduleText;
    use punctual_core::zone::Zones;
    use serde_json::json;

    #[test]
    fn a_schedule_is_said_as_the_rules_themselves_say_it() {
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        for (when, tz, max_runs) in [
            ("cron 0 9 * * 1-5", None, None),
            ("cron 30 2 * * *", Some("America/New_York"), Some(12)),
            ("at 2027-01-01T09:00", Some("Asia/Kolkata"), None),
            ("at 2027-01-01T09:00:00Z", None, None),
            ("every 90m from 2026-12-05T09:00:00Z", Some("Asia/Kathmandu"), None),
        ] {
            let text = ScheduleText { when, tz, max_runs, end_at: Some("2028-01-01T00:00:00Z"), ..Default::default() };
            let (read, _) = text.read(now, &Zones::embedded()).unwrap();
            assert_eq!(schedule(&document::schedule(&read), None), read.to_string(), "{when}");
        }
        let hashed = schedule(&json!({"cron": "25 9 L * *", "tz": "Asia/Kathmandu"}), Some("H 9 L * *"));
        assert_eq!(hashed, "cron 25 9 L * * (H 9 L * *), Asia/Kathmandu");
    }

    #[test]
    fn a_job_is_shown_without_what_it_does() {
        let shown = json!({
            "id": "c-1/bill", "tenant": "bank", "state": "active", "segments": 2, "priority": "normal", "version": 3,
            "payload": {"handler": "sms", "to": "+447700900123", "text": "Due"}, "next_wall": "2026-12-05T09:00:00",
            "schedule": {"cron": "0 9 * * *"}, "retry": {"waits_s": [5, 30]}, "missed": {"many": "latest", "until_local": "20:00"},
        });
        let text = job(&shown);
        assert!(!text.contains("7700") && !text.contains("Due"), "{text}");
        for expected in [
            "bank/c-1/bill",
            "2 SMS segments",
            "3 attempts, waits below 5 s, 30 s",
            "latest; a run may start until 20:00",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(payload(&shown).contains("+447700900123"));
        assert!(jobs(&[shown]).contains("2026-12-05 09:00:00"));
    }

    #[test]
    fn a_change_names_the_fields_that_differ() {
        let change = json!({
            "version": 2, "by": "ann", "at": "2026-12-05T09:00:00.123Z", "before": {"priority": "normal"},
            "after": {"priority": "bulk", "spread": null},
        });
        let text = changes(&[change]);
        assert!(text.contains("priority, spread") && text.contains("2026-12-05T09:00:00Z"), "{text}");
    }
}

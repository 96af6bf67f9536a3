//! What callers are shown: jobs, runs, firings, changes, limits, holds and the state of the installation.
//!
//! Every field is there in every answer, null where there is nothing to say, unless a schema says otherwise.

use super::operation::reference;
use crate::api::document::KEPT_SECRET;
use serde_json::{Map, Value, json};

/// All that callers are shown, by name.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, schema: Value| all.insert(name.to_owned(), schema);
    put("Problem", problem());
    put("Job", job());
    put("ShownPayload", payload());
    put("UnreadableJob", unreadable());
    put("Jobs", page(json!({"anyOf": [reference("Job"), reference("UnreadableJob")]}), json!({})));
    put("ManyJobs", many());
    put("RunByHand", run_by_hand());
    put("Attempt", attempt());
    put("Run", run(false));
    put("RunInFull", run(true));
    put("UnreadableRun", unreadable_run());
    put("Runs", page(run_or_unreadable("Run"), json!({"next_run_at": instant("When the job fires next.")})));
    put("Firing", firing());
    put("NextFirings", next_firings());
    put("Preview", preview());
    put("Change", change());
    let kept = json!({"type": "integer", "description": "For so many days a version is kept."});
    put(
        "Changes",
        page(reference("Change"), json!({"next_run_at": instant("When the job fires next."), "kept_days": kept})),
    );
    put("ImportAnswer", import_answer());
    put("Hold", hold());
    put("Holds", page(reference("Hold"), json!({})));
    put("Released", all_of(json!({"released": text("What was held."), "holds_left": count("Holds that stand.")})));
    put("Rate", all_of(json!({"target": text("Whom calls go to."), "per_second": limit()})));
    let is_default = json!({"type": "boolean", "description": "Whether nobody set it."});
    let limited = json!({"target": text("Whom calls go to."), "per_second": limit(), "is_default": is_default});
    put("Rates", page(all_of(limited), json!({})));
    put("Up", all_of(json!({"status": {"type": "string", "const": "up"}})));
    put("Readiness", readiness());
    put("Status", super::status::schema());
    all
}

/// An object of which every field is shown.
pub(super) fn all_of(properties: Value) -> Value {
    let names: Vec<String> = properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    json!({"type": "object", "required": names, "properties": properties})
}

/// A text.
pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// A text, or nothing.
pub(super) fn some_text(description: &str) -> Value {
    json!({"type": ["string", "null"], "description": description})
}

/// An instant, or nothing.
pub(super) fn instant(description: &str) -> Value {
    json!({"type": ["string", "null"], "format": "date-time", "description": description})
}

/// How many.
pub(super) fn count(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "description": description})
}

pub(super) fn sure(instant: Value) -> Value {
    let mut instant = instant;
    instant["type"] = json!("string");
    instant
}

pub(super) fn words(words: &[&str], description: &str) -> Value {
    json!({"type": "string", "enum": words, "description": description})
}

fn some(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn wall(description: &str) -> Value {
    json!({
        "type": ["string", "null"], "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}$",
        "description": description,
    })
}

pub(super) fn page(item: Value, more: Value) -> Value {
    let mut properties = json!({
        "items": {"type": "array", "items": item},
        "next_cursor": some_text("Where the next page begins: give it as `cursor`. Null on the last page."),
    });
    for (name, schema) in more.as_object().into_iter().flatten() {
        properties[name] = schema.clone();
    }
    all_of(properties)
}

fn problem() -> Value {
    let mut field = all_of(json!({
        "pointer": text("A JSON pointer into the body (empty = all of it), or the name of a parameter or header."),
        "detail": text("What is wrong."),
    }));
    field["properties"]["hint"] = text("What to write instead, where there is something to say.");
    let mut schema = all_of(json!({
        "type": {"type": "string", "pattern": "^urn:punctual:problem:[a-z-]+$", "description": "The kind of problem."},
        "title": text("The kind in words."),
        "status": {"type": "integer", "description": "The status of the answer."},
        "detail": text("What it is about this time. Never shows what was sent."),
    }));
    schema["properties"]["errors"] = json!({"type": "array", "minItems": 1, "items": field, "description": "Each field that is wrong, where it is about fields."});
    schema["description"] = json!("Why a request was not done (RFC 9457).");
    schema["examples"] = json!([{
        "type": "urn:punctual:problem:invalid-body", "title": "What was asked for cannot be", "status": 422,
        "detail": "/spread/window_s: is missing",
        "errors": [{"pointer": "/spread/window_s", "detail": "is missing", "hint": "such as 1800, for half an hour"}],
    }]);
    schema
}

fn state() -> Value {
    words(
        &["active", "paused", "done", "cancelled", "quarantined"],
        "It fires; it is held back; its schedule is over; it was ended; nobody can understand it.",
    )
}

fn version() -> Value {
    json!({"type": "integer", "minimum": 1, "description": "People's changes so far; the `ETag` is this in quotes."})
}

/// What a job's document says, as it is shown.
fn said() -> Value {
    let one_line = |what: &str| json!({"type": "string", "description": what});
    json!({
        "id": one_line("The id."),
        "name": some_text("For people."),
        "schedule": reference("Schedule"),
        "priority": words(&["urgent", "normal", "bulk"], "Which queue its runs go to."),
        "payload": reference("ShownPayload"),
        "retry": reference("Retry"),
        "spread": some(reference("Spread")),
        "missed": reference("Missed"),
    })
}

fn job() -> Value {
    let mut properties = json!({
        "tenant": text("Whose it is."),
        "state": state(),
        "target": text("Whom its calls go to: what limits and holds are kept for."),
        "segments": {"type": ["integer", "null"], "minimum": 1, "description": "How many SMS segments its text is."},
        "next_run_at": instant("The next firing's nominal instant; null when nothing is to come."),
        "next_due_at": instant("When that one should start: later by the job's place in its spread window."),
        "next_wall": wall("What the clock of its zone shows then; null where it follows no clock."),
        "runs_left": {"type": ["integer", "null"], "minimum": 0, "description": "Firings left, that one included; null = no bound."},
        "tzdb": some_text("The zone rules by which the two belong together."),
        "version": version(),
        "generation": count("Rises with each change that voids queued runs."),
        "created_at": sure(instant("When it was made.")),
        "updated_at": sure(instant("When a person changed it last, or made it.")),
        "updated_by": text("Who did."),
        "expires_at": instant("When it is forgotten, if it is done or cancelled."),
        "error": some_text("Why it is quarantined."),
        "warnings": {"type": "array", "items": {"type": "string"}, "description": "What is allowed, but probably not meant."},
    });
    for (name, schema) in said().as_object().into_iter().flatten() {
        properties[name] = schema.clone();
    }
    let mut schema = all_of(properties);
    schema["description"] = json!("A job as it stands.");
    schema["examples"] = json!([example()]);
    schema
}

/// A job as it is shown to who made it.
fn example() -> Value {
    json!({
        "id": "c-1/bill", "tenant": "bank", "name": null, "state": "active", "priority": "normal",
        "schedule": {"cron": "0 9 * * 1-5", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill is due"}, "target": "sms", "segments": 1,
        "retry": {"max_attempts": 6, "base_s": 30, "cap_s": 600}, "spread": null, "missed": {"many": "latest"},
        "next_run_at": "2026-12-07T03:30:00Z", "next_due_at": "2026-12-07T03:30:00Z", "next_wall": "2026-12-07T09:00:00",
        "runs_left": null, "tzdb": "2026f", "version": 1, "generation": 1_796_428_800_000_u64,
        "created_at": "2026-12-05T00:00:00.250Z", "updated_at": "2026-12-05T00:00:00.250Z",
        "updated_by": "billing service (7f3a0c1d)", "expires_at": null, "error": null, "warnings": [],
    })
}

fn payload() -> Value {
    json!({
        "type": "object", "required": ["handler"],
        "properties": {
            "handler": words(&["sms", "email", "webhook", "queue", "noop"], "Who does the work."),
            "to": text("The phone number or mailbox."),
            "subject": text("The subject of an email."),
            "text": text("The text, variables and all."),
            "url": text("The address of a webhook or queue."),
            "body": text("The body for a webhook or queue."),
            "secret": {"type": ["string", "null"], "enum": [KEPT_SECRET, null], "description": "Whether requests are signed."},
            "vars": reference("Vars"),
        },
        "description": "What a run carries. A key with the role `read` is shown the handler alone.",
    })
}

fn unreadable() -> Value {
    all_of(json!({
        "id": text("The id."), "tenant": text("Whose it is."), "state": {"type": "string", "const": "unreadable"},
        "error": text("What cannot be read of it by this version."), "next_run_at": {"type": "null"},
    }))
}

fn unreadable_run() -> Value {
    all_of(json!({
        "id": text("What the row's key says."), "run": text("The part of it behind the job."),
        "status": {"type": "string", "const": "unreadable"},
        "error": text("What cannot be read of it by this version."),
    }))
}

/// A run of this form, or one that cannot be read.
pub(super) fn run_or_unreadable(form: &str) -> Value {
    json!({"anyOf": [reference(form), reference("UnreadableRun")]})
}

fn many() -> Value {
    let named = all_of(json!({"id": text("The job."), "detail": text("Why it was refused.")}));
    all_of(json!({
        "prefix": text("What all ids begin with."),
        "changed": count("Jobs to which it was done."), "unchanged": count("Jobs that were so already."),
        "refused": count("Jobs that do not allow it."),
        "problems": {"type": "array", "maxItems": 100, "items": named, "description": "Some of those."},
        "next_cursor": some_text("Set where there is more than one call does: call again with it as `cursor`."),
    }))
}

fn run_by_hand() -> Value {
    all_of(json!({
        "run_id": text("The run's whole id, which receivers are given."),
        "run": run_key(), "job": reference("Job"),
        "next_run_at": instant("When the job fires next by its timetable: a run by hand changes nothing of that."),
    }))
}

pub(super) fn run_key() -> Value {
    json!({
        "type": "string", "pattern": "^-?[0-9][0-9A-Za-z]*$", "maxLength": 64,
        "description": "The run within its job: Unix seconds, with a mark behind them where it was made by hand (`m`) or repeats one (`r`).",
    })
}

fn attempt() -> Value {
    all_of(json!({
        "n": {"type": "integer", "minimum": 1, "description": "Counted from 1."},
        "started_at": sure(instant("Start of the call.")), "ended_at": instant("Its end; null while it goes on."),
        "worker": text("Who made it."), "job_version": count("The job's version that it ran."),
        "class": {
            "type": ["string", "null"], "enum": ["delivered", "temporary", "permanent", "unknown", "lost", null],
            "description": "How it ended; null while it goes on.",
        },
        "detail": some_text("What happened, without personal data."),
    }))
}

pub(super) fn run(is_in_full: bool) -> Value {
    let statuses = ["running", "retrying", "succeeded", "failed", "dead", "indeterminate", "skipped"];
    let range = all_of(json!({"to": sure(instant("The last of them.")), "count": count("How many they are.")}));
    let mut properties = json!({
        "id": text("The run's whole id, which receivers are given."), "job": text("The job's id."), "run": run_key(),
        "status": words(&statuses, "Where it stands. Dead and indeterminate ones are dead letters: a person decides."),
        "scheduled_at": instant("Its nominal instant."), "due_at": sure(instant("When it should have started.")),
        "attempt": count("Attempts begun so far."),
        "attempts": {"type": "array", "items": reference("Attempt")},
        "started_at": instant("Start of its first attempt."), "completed_at": instant("When it ended."),
        "not_before": instant("Before this, no attempt."), "error": some_text("The last failure."),
        "gateway_ref": some_text("The receiver's own id of it."),
        "reason": {
            "type": ["string", "null"], "enum": ["cancelled", "superseded", "deadline", "missed", null],
            "description": "Why it was skipped.",
        },
        "range": some(range),
    });
    if is_in_full {
        let note = all_of(json!({
            "by": text("Who."), "at": sure(instant("When.")), "replay": some(run_key()),
            "why": some_text("Why it was left at that."),
        }));
        properties["attended"] = some(note);
        properties["next_run_at"] = instant("When its job fires next.");
    }
    all_of(properties)
}

fn firing() -> Value {
    let marks =
        ["moved", "dropped", "repeated_first_only", "repeated_second_only", "repeated_first", "repeated_second"];
    let marks: Vec<Value> = marks.iter().map(|mark| json!(mark)).chain([Value::Null]).collect();
    all_of(json!({
        "scheduled_at": instant("The instant; null where a clock change drops it."),
        "due_at": instant("When its run should start."),
        "local": instant("The same on the clock of the zone."),
        "wall": wall("The time that was asked for."),
        "mark": {"type": ["string", "null"], "enum": marks, "description": "What a clock change does to it."},
        "count": {"type": ["integer", "null"], "description": "How many firings fall together, or are dropped."},
    }))
}

fn next_firings() -> Value {
    all_of(json!({
        "id": text("The job."), "state": state(), "schedule": reference("Schedule"),
        "firings": {"type": "array", "items": reference("Firing"), "description": "None where nothing is to come."},
        "next_run_at": instant("When it fires next."),
    }))
}

fn preview() -> Value {
    all_of(json!({
        "schedule": reference("Schedule"), "warning": some_text("What is allowed, but probably not meant."),
        "firings": {"type": "array", "items": reference("Firing")},
        "next_run_at": instant("The first of them."),
    }))
}

fn change() -> Value {
    let mut properties = said();
    properties["state"] = state();
    let fields = json!({"type": "object", "properties": properties});
    all_of(json!({
        "version": version(), "by": text("Who."), "at": sure(instant("When.")),
        "before": some(fields.clone()), "after": fields,
    }))
}

fn import_answer() -> Value {
    let mut line = all_of(json!({
        "line": {"type": ["integer", "null"], "minimum": 1, "description": "Counted from 1."},
        "result": words(
            &["created", "changed", "same", "cancelled", "refused", "failed"],
            "What came of it. A job that was cancelled stays so; after `failed` send this line and those that follow again.",
        ),
    }));
    line["properties"]["id"] = some_text("The job, where the line names one.");
    line["properties"]["next_run_at"] = instant("When it fires next.");
    line["properties"]["detail"] = text("What to do after a failure.");
    line["properties"]["problem"] = reference("Problem");
    let counts = json!({"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}});
    let summary = all_of(json!({
        "complete": {"type": "boolean", "description": "Whether every line was read and answered."},
        "dry_run": {"type": "boolean", "description": "Whether nothing was written."},
        "counts": counts,
    }));
    json!({"anyOf": [line, all_of(json!({"summary": summary}))], "description": "One line of the answer; the last one is the summary."})
}

/// One hold.
pub(super) fn hold() -> Value {
    all_of(json!({
        "scope": text("What is held: `all`, or `tenant/`, `priority/` or `target/` and a name."), "by": text("Who holds it."),
        "why": text("Why."), "since": sure(instant("Since when.")),
    }))
}

fn limit() -> Value {
    json!({"type": ["integer", "null"], "minimum": 1, "description": "Calls a second over all workers; null = no limit."})
}

fn readiness() -> Value {
    let part = words(&["ok", "does not answer", "never set up", "off"], "How this part is.");
    let parts = json!({
        "store": part, "queue_urgent": part, "queue_normal": part, "queue_bulk": part, "clock": part,
    });
    all_of(json!({"status": words(&["ready", "not ready"], "Whether requests can be done."), "parts": all_of(parts)}))
}

//! What the routes for incidents take and answer: dead letters, and the audit.

use super::super::operation::{Operation, in_path, in_query, reference};
use super::super::shown::{
    all_of, count, instant, page, run, run_key, run_or_unreadable, some_text, sure, text, words,
};
use super::{INCIDENTS, cursor, id, limit};
use serde_json::{Map, Value, json};

const STATUSES: [&str; 2] = ["dead", "indeterminate"];
const CLASSES: [&str; 4] = ["temporary", "permanent", "unknown", "lost"];
const LONGEST_AGE_S: u32 = 60 * 86_400;
const LONGEST_GRACE_S: u32 = 14 * 86_400;

const STATUS: &str =
    "Only `dead` ones (attempts used up), or only `indeterminate` ones (nobody knows whether they went out).";
const CLASS: &str = "Only those whose last attempt ended like this.";
const OLDER: &str = "Only those that ended so many seconds ago, or earlier.";
const NEWER: &str = "Only those that ended within so many seconds.";
const PREFIX: &str =
    "Only one job's, by its id, or those of all jobs under a prefix that ends at `/`. All of the tenant's without it.";
const FROM: &str = "The first instant that is asked about; a day ago without it. Rows are kept for 60 days.";
const TO: &str = "Behind the last instant that is asked about; now without it.";
const GRACE: &str = "How many seconds after it was due a run may be in a queue without a row, before it counts as missing; 900 without it.";

fn prefix() -> Value {
    json!({"type": "string", "maxLength": 128, "pattern": "^([A-Za-z0-9._-][A-Za-z0-9._/-]*)?$"})
}

fn moment() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn age() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": LONGEST_AGE_S})
}

fn grace() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": LONGEST_GRACE_S})
}

pub(super) fn list_letters() -> Operation {
    Operation::new(INCIDENTS, "listDeadLetters", "List dead letters")
        .says("The rows that wait for a person, the oldest first: read from the rows, not from the queue. What was replayed or dropped is not among them any more.")
        .with(in_query("prefix", PREFIX, json!({"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9._/-]*$"})))
        .with(in_query("status", STATUS, json!({"type": "string", "enum": STATUSES})))
        .with(in_query("class", CLASS, json!({"type": "string", "enum": CLASSES})))
        .with(in_query("older_than_s", OLDER, age()))
        .with(in_query("newer_than_s", NEWER, age()))
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "DeadLetters")
}

pub(super) fn replay_letters() -> Operation {
    let examples = json!({
        "dry": {"value": {"prefix": "48213/", "class": "temporary", "dry_run": true}},
        "paced": {"value": {"older_than_s": 600, "per_second": 20}},
        "named": {"value": {"runs": ["bank/c-1/bill:1791171000"]}},
    });
    Operation::new(INCIDENTS, "replayDeadLetters", "Run dead letters once more")
        .says("Each replay is a run of its own, with the original's deadline, which is looked at again, and the original's id at the gateway. A call ends after 20 s, and gives a `next_cursor` to go on from. A repeat makes no second replay.")
        .takes("ReplayInput", examples)
        .shows(200, "What came of each.", "LettersDone")
}

pub(super) fn drop_letters() -> Operation {
    let examples =
        json!({"named": {"value": {"runs": ["bank/c-1/bill:1791171000"], "why": "the customer was called"}}});
    Operation::new(INCIDENTS, "dropDeadLetters", "Leave dead letters at that")
        .says("They wait for nobody any more; their rows stay as they are, with who decided so, and why.")
        .takes("DropInput", examples)
        .shows(200, "What came of each.", "LettersDone")
}

pub(super) fn audit() -> Operation {
    let shown = json!({"type": "string", "enum": ["missing", "problems", "all"]});
    Operation::new(INCIDENTS, "audit", "Hold the calendar against the rows")
        .says("Every instant that was due by the calendar, by what each job said at that time: succeeded, failed, skipped, dead, indeterminate, open, or missing, where no row shows what became of it. A call ends after 20 s, within a job if need be, and gives a `next_cursor` to go on from; its counts are of its own part.")
        .with(in_query("prefix", PREFIX, json!({"type": "string", "maxLength": 128, "pattern": "^([A-Za-z0-9._-][A-Za-z0-9._/-]*)?$"})))
        .with(in_query("from", FROM, moment()))
        .with(in_query("to", TO, moment()))
        .with(in_query("grace_s", GRACE, grace()))
        .with(in_query("show", "Which instants are named, and not just counted: the missing ones without it.", shown))
        .with(cursor())
        .shows(200, "What was due, and what became of it.", "Audit")
        .fails(&[404, 422])
}

pub(super) fn requeue_missing() -> Operation {
    let examples = json!({"day": {"value": {"prefix": "48213/", "grace_s": 900}}});
    Operation::new(INCIDENTS, "requeueMissing", "Enqueue what is missing")
        .says("What an audit of the same words finds missing is enqueued again, under the same ids: where a message or a row of it is found after all, it is not run twice.")
        .takes("RequeueInput", examples)
        .shows(200, "What was due, what became of it, and how many were enqueued.", "Requeued")
        .fails(&[404])
}

pub(super) fn requeue_run() -> Operation {
    let run = json!({"type": "string", "pattern": "^-?[0-9][0-9A-Za-z]{0,62}$", "examples": ["1791171000"]});
    Operation::new(INCIDENTS, "requeueRun", "Enqueue a run of the timetable again")
        .says("Only one that was due, and of which no row shows what became of it.")
        .with(id())
        .with(in_path("run", "The run within its job: Unix seconds.", run))
        .takes_as(&["application/json"], &reference("Nothing"), json!({"nothing": {"value": {}}}), false)
        .shows(202, "It is in its queue.", "RunByHand")
        .fails(&[409])
}

/// The schemas of these operations, by name.
pub(in super::super) fn schemas() -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, schema: Value| all.insert(name.to_owned(), schema);
    put("DeadLetter", letter());
    put("DeadLetters", page(run_or_unreadable("DeadLetter"), json!({})));
    let pace =
        json!({"type": "integer", "minimum": 1, "maximum": 1_000, "default": 50, "description": "Replays a second."});
    put("ReplayInput", letters_input(json!({"per_second": pace}), &[]));
    let why = json!({"type": "string", "minLength": 1, "maxLength": 50, "pattern": "\\S", "description": "Why, for whoever looks later. At most 200 bytes."});
    put("DropInput", letters_input(json!({"why": why}), &["why"]));
    put("LettersDone", done());
    put("RequeueInput", requeue_input());
    put("AuditSummary", summary());
    put("AuditedInstant", audited());
    put("Audit", audit_answer(json!({})));
    let refused = all_of(json!({"id": text("The job."), "detail": text("Why nothing of it is run.")}));
    put(
        "Requeued",
        audit_answer(json!({
            "requeued": count("Runs that were enqueued."),
            "refused": {"type": "array", "items": refused, "description": "Jobs whose runs would not be run."},
        })),
    );
    all
}

fn letter() -> Value {
    let mut schema = run(false);
    let classes: Vec<Value> =
        CLASSES.iter().map(|class| json!(class)).chain([json!("delivered"), Value::Null]).collect();
    schema["properties"]["class"] = json!({
        "type": ["string", "null"], "enum": classes, "description": "How its last attempt ended.",
    });
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(json!("class"));
    }
    schema
}

/// Which letters are meant, and what else is said of them.
fn letters_input(more: Value, required: &[&str]) -> Value {
    let id = r"^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*:-?[0-9][0-9A-Za-z]*$";
    let which = json!({
        "prefix": {"type": "string", "maxLength": 128, "description": PREFIX},
        "status": {"type": "string", "enum": STATUSES, "description": STATUS},
        "class": {"type": "string", "enum": CLASSES, "description": CLASS},
        "older_than_s": {"type": "integer", "minimum": 0, "maximum": LONGEST_AGE_S, "description": OLDER},
        "newer_than_s": {"type": "integer", "minimum": 0, "maximum": LONGEST_AGE_S, "description": NEWER},
        "runs": {
            "type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string", "maxLength": 260, "pattern": id},
            "description": "Just these runs, by their whole ids, in place of `prefix`, `status`, `class` and the ages.",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 1_000, "description": "At most so many in this call."},
        "cursor": {"type": "string", "minLength": 1, "description": "The `next_cursor` of the call before, of this very request."},
        "dry_run": {"type": "boolean", "default": false, "description": "Only say what would come of it."},
    });
    let mut properties = which;
    for (name, schema) in more.as_object().into_iter().flatten() {
        properties[name] = schema.clone();
    }
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

fn done() -> Value {
    let results = [
        "replayed",
        "would_be_replayed",
        "left",
        "dropped",
        "would_be_dropped",
        "too_late",
        "stands",
        "refused",
        "missing",
    ];
    let item = json!({
        "type": "object", "required": ["id", "result"],
        "properties": {
            "id": text("The run's whole id."),
            "result": words(&results, "What came of it. `stands`: it was seen to before, or its replay is no dead letter."),
            "replay": run_key(), "status": text("How its latest replay stands."), "detail": text("Why."),
        },
    });
    page(
        item,
        json!({
            "dry_run": {"type": "boolean", "description": "Whether nothing was done."},
            "counts": {"type": "object", "additionalProperties": count("How many."), "description": "How many of each result."},
        }),
    )
}

fn requeue_input() -> Value {
    let moment = |about: &str| json!({"type": "string", "format": "date-time", "description": about});
    let mut prefix = prefix();
    prefix["description"] = json!(PREFIX);
    let mut grace = grace();
    grace["description"] = json!(GRACE);
    json!({
        "type": "object", "additionalProperties": false,
        "properties": {
            "prefix": prefix, "from": moment(FROM), "to": moment(TO), "grace_s": grace,
            "cursor": {"type": "string", "minLength": 1, "description": "The `next_cursor` of the call before, of this very request."},
        },
    })
}

fn summary() -> Value {
    let by_word =
        |about: &str| json!({"type": "object", "additionalProperties": count("How many."), "description": about});
    all_of(json!({
        "due": count("Instants that were due by the calendar; all below but the last two add up to it."),
        "succeeded": count("Delivered."), "failed": count("Refused for good."),
        "skipped": by_word("Not run, by reason."), "dead": count("Attempts used up."),
        "indeterminate": count("Nobody knows whether they went out."), "open": by_word("Not ended, by where they are."),
        "missing": count("No row shows what became of them."),
        "replayed": count("Of the dead and indeterminate ones, those whose replay was delivered."),
        "beside": count("Runs of the timetable at instants that were not due."),
    }))
}

fn audited() -> Value {
    let standings =
        ["succeeded", "failed", "skipped", "dead", "indeterminate", "running", "retrying", "open", "missing"];
    all_of(json!({
        "job": text("The job."), "run": run_key(), "scheduled_at": sure(instant("The instant.")),
        "due_at": sure(instant("When its run should have started.")), "standing": words(&standings, "How it stands."),
        "reason": some_text("Why it was skipped, or where it is open."),
        "replayed": some_text("How its replay stands."),
    }))
}

fn audit_answer(more: Value) -> Value {
    page(
        reference("AuditedInstant"),
        [
            json!({
                "from": sure(instant("From when on.")), "to": sure(instant("Until when.")),
                "grace_s": count("The grace that was given, in seconds."), "jobs": count("Jobs that were looked at."),
                "unreadable": count("Jobs of which this version cannot read all: themselves, a former version, a row. Nothing else of them is counted."),
                "summary": reference("AuditSummary"),
                "items_cut": {"type": "boolean", "description": "Whether a job has more instants than are named."},
            }),
            more,
        ]
        .into_iter()
        .fold(json!({}), |mut all, some| {
            for (name, schema) in some.as_object().into_iter().flatten() {
                all[name] = schema.clone();
            }
            all
        }),
    )
}

//! What callers send: the document of a job and the other bodies, with the limits that the core holds them to.
//!
//! A schema says no more than what is refused in every case. What depends on the content (whether a cron expression ever
//! fires, what a template holds) is said in words.

use super::operation::reference;
use crate::api::document::{KEPT_SECRET, LONGEST_KEY_BYTES, LONGEST_NAME_BYTES};
use punctual_core::address::LONGEST_URL_BYTES;
use punctual_core::deadline::SHORTEST_START_WITHIN_S;
use punctual_core::payload::{LONGEST_PAYLOAD_BYTES, LONGEST_SUBJECT_BYTES, LONGEST_TEXT_BYTES};
use punctual_core::retry::{LONGEST_WAIT_S, MOST_ATTEMPTS};
use punctual_core::schedule::LONGEST_CRON_BYTES;
use punctual_core::spread::LONGEST_WINDOW_S;
use punctual_core::steering::{LARGEST_LIMIT, LONGEST_WHY_BYTES};
use punctual_core::template::{LONGEST_VAR_BYTES, MOST_VARS};
use serde_json::{Map, Value, json};

/// One part of an id: anything of its characters but `.` and `..`.
const ID_PART: &str = r"(\.{3,}|\.{0,2}[A-Za-z0-9_-][A-Za-z0-9._-]*)";
const MOMENT: &str =
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?$";

/// Said of every text whose limit is in bytes.
fn bytes(most: usize) -> String {
    format!("at most {most} bytes of UTF-8")
}

/// The id of a job.
pub(super) fn job_id() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": format!("^{ID_PART}(/{ID_PART})*$"),
        "not": {"const": "import"}, "examples": ["c-1/bill"],
        "description": "Letters, digits and `._-/`, no empty part, no part `.` or `..`; not `import`.",
    })
}

/// The id of a job, or a prefix of ids that ends in `/`.
pub(super) fn job_id_or_prefix() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": 128, "pattern": format!("^{ID_PART}(/{ID_PART})*/?$"),
        "examples": ["c-1/bill", "c-1/"],
    })
}

/// All bodies that callers send, by name.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    let mut put = |name: &str, schema: Value| all.insert(name.to_owned(), schema);
    put("JobInput", job(job_id(), false));
    put("JobLine", job(job_id(), true));
    put("JobPatch", patch());
    put("Schedule", schedule());
    for (name, _, schema) in schedules() {
        put(name, schema);
    }
    put("Payload", payload());
    for (name, _, schema) in payloads() {
        put(name, schema);
    }
    put("Retry", retry());
    put("Spread", spread());
    put("Missed", missed());
    put("Vars", vars());
    put(
        "Nothing",
        json!({"type": "object", "maxProperties": 0, "description": "Nothing is read: leave the body out."}),
    );
    put("PreviewInput", preview());
    put("HoldInput", hold());
    put("RateInput", rate());
    all
}

/// An object that takes these fields and no others.
fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// A schema that also takes null, which is the same as leaving the field out.
fn or_null(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn text(longest: usize, description: &str) -> Value {
    let description = format!("{description} ({}).", bytes(longest));
    json!({"type": "string", "minLength": 1, "maxLength": longest, "description": description})
}

/// The same, where it may be null.
fn some_text(longest: usize, description: &str) -> Value {
    let mut schema = text(longest, description);
    schema["type"] = json!(["string", "null"]);
    schema
}

fn number(least: u32, most: u32, description: &str) -> Value {
    json!({"type": ["integer", "null"], "minimum": least, "maximum": most, "description": description})
}

fn word(words: &[&str], default: &str, description: &str) -> Value {
    let words: Vec<Value> = words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
    json!({"type": ["string", "null"], "enum": words, "default": default, "description": description})
}

fn moment(description: &str) -> Value {
    json!({
        "type": ["string", "null"], "format": "punctual-moment", "pattern": MOMENT, "maxLength": 64,
        "description": format!(
            "{description} An instant in whole seconds (`2026-12-05T09:00:00Z`), or a wall time on the clock of `tz` \
             (`2026-12-05T09:00`); before 2101."
        ),
    })
}

fn job(id: Value, is_id_needed: bool) -> Value {
    let id = match is_id_needed {
        true => id,
        false => {
            let mut id = or_null(id);
            id["description"] =
                json!("`POST` makes one up where there is none; with an id in the address it is the same or left out.");
            id
        }
    };
    let required: &[&str] = if is_id_needed { &["id", "schedule", "payload"] } else { &["schedule", "payload"] };
    let mut schema = object(
        required,
        json!({
            "id": id,
            "name": name(),
            "schedule": reference("Schedule"),
            "priority": priority(),
            "payload": reference("Payload"),
            "retry": or_null(reference("Retry")),
            "spread": or_null(reference("Spread")),
            "missed": or_null(reference("Missed")),
        }),
    );
    schema["description"] = json!("What a job is to do, and when. A field that is null counts as left out.");
    schema
}

fn name() -> Value {
    json!({
        "type": ["string", "null"], "maxLength": LONGEST_NAME_BYTES,
        "description": format!("For people: one line ({}).", bytes(LONGEST_NAME_BYTES)),
    })
}

fn priority() -> Value {
    word(&["urgent", "normal", "bulk"], "normal", "Which queue its runs go to. Urgent jobs are never spread.")
}

/// The fields of a schedule by name, as far as more than one kind of it takes them.
fn timing(name: &str) -> Value {
    match name {
        "tz" => json!({
            "type": ["string", "null"], "format": "punctual-tz", "maxLength": 64, "default": "UTC",
            "description": "The clock it goes by: an IANA name.", "examples": ["Asia/Kolkata"],
        }),
        "dst_gap" => word(
            &["next-valid", "skip"],
            "next-valid",
            "What becomes of a wall time that does not exist: it fires right after the gap, or not.",
        ),
        "dst_repeat" => word(&["first", "second", "both"], "first", "Which of two equal wall times fires."),
        "start_at" => moment("The first moment at which it may fire."),
        "end_at" => moment("The last moment at which it may fire."),
        "max_runs" => number(1, u32::MAX, "How many firings there are in all, skipped ones included."),
        _ => some_text(
            LONGEST_KEY_BYTES,
            "What chooses the values of hashed cron fields; else the spread key or the job",
        ),
    }
}

const BOUNDS: [&str; 7] = ["tz", "dst_gap", "dst_repeat", "start_at", "end_at", "max_runs", "hash_key"];

/// The kinds of a schedule: name, the field that tells it, its schema.
fn schedules() -> [(&'static str, &'static str, Value); 3] {
    let kind = |own: &str, schema: Value, more: Option<(&str, Value)>, description: &str| {
        let mut properties = Map::from_iter(BOUNDS.map(|name| (name.to_owned(), timing(name))));
        for other in ["cron", "every", "at", "from"] {
            properties.insert(other.to_owned(), json!({"type": "null"}));
        }
        properties.insert(own.to_owned(), schema);
        properties.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
        let mut schema = object(&[own], Value::Object(properties));
        schema["description"] = json!(description);
        schema
    };
    let cron = json!({
        "type": "string", "format": "punctual-cron", "minLength": 1, "maxLength": LONGEST_CRON_BYTES,
        "examples": ["0 9 * * 1-5"],
        "description": "Minute, hour, day of month, month, weekday, or `@daily` and the like; `L`, `H` and names are known.",
    });
    let every = json!({
        "type": "string", "format": "punctual-interval", "pattern": "^[0-9]+[smhd]$", "maxLength": 20, "examples": ["24h"],
        "description": "A number and `s`, `m`, `h` or `d`; a minute to a hundred years.",
    });
    let mut at = moment("When.");
    at["type"] = json!("string");
    let from = moment("What the intervals are counted from; else `start_at`, or one interval from now.");
    [
        ("CronSchedule", "cron", kind("cron", cron, None, "Whenever the clock shows it.")),
        (
            "IntervalSchedule",
            "every",
            kind("every", every, Some(("from", from)), "In steps of real time, without drift."),
        ),
        ("OnceSchedule", "at", kind("at", at, None, "Once.")),
    ]
}

fn schedule() -> Value {
    let kinds: Vec<Value> = schedules().iter().map(|(name, ..)| reference(name)).collect();
    json!({"oneOf": kinds, "description": "When a job fires: one of `cron`, `every` and `at`."})
}

fn to() -> Value {
    json!({
        "type": "string", "pattern": r"^\+[1-9][0-9]{7,14}$", "examples": ["+447700900123"],
        "description": "The phone number (E.164); of some countries the number of digits is checked too.",
    })
}

fn mailbox() -> Value {
    json!({
        "type": "string", "format": "email", "maxLength": 254, "examples": ["ana@example.com"],
        "description": "One mailbox in ASCII.",
    })
}

fn url(description: &str, example: &str) -> Value {
    json!({
        "type": "string", "format": "punctual-url", "minLength": 1, "maxLength": LONGEST_URL_BYTES,
        "description": description, "examples": [example],
    })
}

fn secret() -> Value {
    json!({
        "type": ["string", "null"], "pattern": r"^(whsec_[A-Za-z0-9+/]{32,86}={0,2}|\(kept\))$",
        "description": format!(
            "What requests are signed by (Standard Webhooks): `whsec_` and 24 to 64 bytes in base64. Never shown; \
             `{KEPT_SECRET}` stands for the one that the job has."
        ),
    })
}

/// What a template may hold, said where one may stand.
const TEMPLATE: &str = "May hold `{{ vars.name }}` and the other variables";

/// The kinds of a payload: name, handler, schema.
fn payloads() -> [(&'static str, &'static str, Value); 5] {
    let kind = |handler: &str, own: Vec<(&str, Value)>, needed: &[&str]| {
        let mut properties = Map::from_iter([("handler".to_owned(), json!({"type": "string", "const": handler}))]);
        for other in ["to", "subject", "text", "url", "body", "secret", "vars"] {
            properties.insert(other.to_owned(), json!({"type": "null"}));
        }
        properties.extend(own.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
        let required: Vec<&str> = std::iter::once("handler").chain(needed.iter().copied()).collect();
        object(&required, Value::Object(properties))
    };
    let vars = || ("vars", or_null(reference("Vars")));
    let body = |what: &str| ("body", text(LONGEST_PAYLOAD_BYTES, what));
    let hook = url("Where to: `https`, and no private address.", "https://hooks.example.com/bills");
    let queue = url(
        "The queue: standard, and not one of Punctual's own.",
        "https://sqs.eu-west-1.amazonaws.com/123456789012/bills",
    );
    let sms = text(LONGEST_TEXT_BYTES, &format!("The text, ten SMS segments at most. {TEMPLATE}"));
    let subject = text(LONGEST_SUBJECT_BYTES, &format!("One line. {TEMPLATE}"));
    let mail = text(LONGEST_PAYLOAD_BYTES, &format!("Plain text. {TEMPLATE}"));
    let json_body = format!("JSON, sent by `POST`. {TEMPLATE}, with `tojson`");
    [
        ("SmsPayload", "sms", kind("sms", vec![("to", to()), ("text", sms), vars()], &["to", "text"])),
        (
            "EmailPayload",
            "email",
            kind(
                "email",
                vec![("to", mailbox()), ("subject", subject), ("text", mail), vars()],
                &["to", "subject", "text"],
            ),
        ),
        (
            "WebhookPayload",
            "webhook",
            kind("webhook", vec![("url", hook), body(&json_body), ("secret", secret()), vars()], &["url", "body"]),
        ),
        (
            "QueuePayload",
            "queue",
            kind("queue", vec![("url", queue), body(&format!("The message. {TEMPLATE}")), vars()], &["url", "body"]),
        ),
        ("NoopPayload", "noop", kind("noop", vec![], &[])),
    ]
}

fn payload() -> Value {
    let kinds: Vec<Value> = payloads().iter().map(|(name, ..)| reference(name)).collect();
    let mapping =
        payloads().map(|(name, handler, _)| (handler.to_owned(), json!(format!("#/components/schemas/{name}"))));
    json!({
        "oneOf": kinds, "discriminator": {"propertyName": "handler", "mapping": Map::from_iter(mapping)},
        "description": "What a run carries, and to which handler. Shown to keys that may write it, and to no other.",
    })
}

fn vars() -> Value {
    json!({
        "type": "object", "maxProperties": MOST_VARS,
        "propertyNames": {"pattern": "^[a-z][a-z0-9_]{0,31}$"},
        "additionalProperties": {"type": "string", "maxLength": LONGEST_VAR_BYTES},
        "examples": [{"amount": "12.50"}],
        "description": format!("Values for its texts, as `vars.` and a name ({} each).", bytes(LONGEST_VAR_BYTES)),
    })
}

fn retry() -> Value {
    let bound = "Bound of the first wait in seconds; each further one is twice as long. At most `cap_s`.";
    let attempts = number(1, MOST_ATTEMPTS, "Attempts in all.");
    let doubling = json!({
        "max_attempts": attempts, "base_s": number(1, 3_600, bound),
        "cap_s": number(1, 3_600, "Highest bound of a wait in seconds."), "waits_s": {"type": "null"},
    });
    let list = json!({
        "max_attempts": {"type": "null"}, "base_s": {"type": "null"}, "cap_s": {"type": "null"},
        "waits_s": {
            "type": "array", "minItems": 1, "maxItems": MOST_ATTEMPTS - 1, "examples": [[30, 120]],
            "items": {"type": "integer", "minimum": 1, "maximum": LONGEST_WAIT_S},
            "description": "The bound of each wait in seconds, seven days in all; one attempt more than waits.",
        },
    });
    json!({
        "oneOf": [object(&[], doubling), object(&["waits_s"], list)],
        "description": "How often a failed call is made again: bounds that double, or a list of them. Six attempts below 30, \
                        60, 120, 240 and 480 s where nothing is said.",
    })
}

fn spread() -> Value {
    let mut window =
        number(1, LONGEST_WINDOW_S, "Length of the window in seconds; at most the time between two firings.");
    window["type"] = json!("integer");
    let mut schema = object(
        &["window_s"],
        json!({"window_s": window, "key": some_text(LONGEST_KEY_BYTES, "What chooses the place in it; else the job")}),
    );
    schema["description"] =
        json!("A window behind each firing in which its run starts: the same key, the same second.");
    schema
}

fn missed() -> Value {
    let many = word(&["latest", "all", "none"], "latest", "Which of several missed firings are run.");
    let within = number(SHORTEST_START_WITHIN_S, u32::MAX, "For how many seconds after it was due a run may start.");
    let until = json!({
        "type": ["string", "null"], "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "examples": ["20:00"],
        "description": "Until which time of day a run may start, on the job's clock.",
    });
    let none = || json!({"type": "null"});
    let kind = |within: Value, until: Value| {
        object(&[], json!({"many": many, "start_within_s": within, "until_local": until}))
    };
    json!({
        "anyOf": [kind(within, none()), kind(none(), until)],
        "description": "What becomes of firings that were missed, and how late a run may start: one of the two bounds, or none.",
    })
}

/// A merge patch: what is there changes a field, null takes it away.
fn patch() -> Value {
    let loose = |schema: Value| {
        let mut schema = schema;
        schema.as_object_mut().map(|schema| schema.remove("required"));
        schema
    };
    // What is merged may come from any kind: which fields go together is seen when all is merged.
    let joined = |kinds: Vec<Value>| {
        let mut properties: Map<String, Value> = Map::new();
        for kind in kinds {
            let fields = kind["properties"].as_object().cloned().unwrap_or_default();
            for (name, schema) in fields.into_iter().filter(|(_, schema)| schema["type"] != "null") {
                let known = properties.remove(&name);
                let both = match known {
                    Some(known) if known != schema => json!({"anyOf": [known, schema]}),
                    _ => schema,
                };
                properties.insert(name, both);
            }
        }
        properties
    };
    let nullable = |properties: Map<String, Value>| -> Value {
        let fields = properties.into_iter().map(|(name, schema)| {
            let takes_null = schema["type"].as_array().is_some_and(|kinds| kinds.contains(&json!("null")));
            (name, if takes_null { schema } else { or_null(schema) })
        });
        Value::Object(fields.collect())
    };
    let schedule = joined(schedules().into_iter().map(|(.., schema)| schema).collect());
    let mut payload = joined(payloads().into_iter().map(|(.., schema)| schema).collect());
    let handlers: Vec<&str> = payloads().iter().map(|(_, handler, _)| *handler).collect();
    payload.insert("handler".into(), json!({"type": "string", "enum": handlers}));
    let mut payload = nullable(payload);
    payload["handler"] = json!({"type": "string", "enum": handlers});
    let retry: Vec<Value> = retry()["oneOf"].as_array().cloned().unwrap_or_default();
    let missed: Vec<Value> = missed()["anyOf"].as_array().cloned().unwrap_or_default();
    let part = |properties: Value| loose(object(&[], properties));
    let mut schema = object(
        &[],
        json!({
            "id": or_null(job_id()),
            "name": name(),
            "schedule": part(nullable(schedule)),
            "priority": priority(),
            "payload": part(payload),
            "retry": or_null(part(nullable(joined(retry)))),
            "spread": or_null(part(nullable(joined(vec![spread()])))),
            "missed": or_null(part(nullable(joined(missed)))),
        }),
    );
    schema["description"] = json!(
        "A merge patch (RFC 7396) of the job's document: what is there is changed, null takes a field away, the rest stays."
    );
    schema
}

fn preview() -> Value {
    let most = number(1, 1_000, "How many firings are shown; 10 where nothing is said.");
    let mut schema = object(
        &["schedule"],
        json!({
            "schedule": reference("Schedule"), "spread": or_null(reference("Spread")),
            "after": moment("Firings after this are shown; else after now."), "count": most,
        }),
    );
    schema["description"] = json!("A schedule to be tried.");
    schema
}

fn hold() -> Value {
    object(&["why"], json!({"why": text(LONGEST_WHY_BYTES, "Why, for whoever asks later")}))
}

fn rate() -> Value {
    let mut per_second = number(1, LARGEST_LIMIT, "Calls a second, over all workers together.");
    per_second["type"] = json!("integer");
    object(&["per_second"], json!({"per_second": per_second}))
}

//! A job as the API and files of lines say it: one JSON object, read into a specification and written from one.
//!
//! Reading notes all that is wrong, each with a pointer. Reading what was written gives the same specification.

use super::fields::Fields;
use super::problem::{FieldProblem, field_of};
use crate::listing::instant;
use chrono::{DateTime, Utc};
use punctual_core::address::AllowList;
use punctual_core::deadline::{StartRule, parse_time_of_day};
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::missed::MissedRule;
use punctual_core::payload::{Payload, Secret};
use punctual_core::priority::Priority;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::{Anchor, DstGap, DstRepeat, Schedule, ScheduleText, Timing};
use punctual_core::spread::Spread;
use punctual_core::template::Vars;
use punctual_core::zone::{Tz, Zones};
use serde_json::{Map, Value, json};

/// The longest name, in bytes.
pub const LONGEST_NAME_BYTES: usize = 200;
/// The longest key of a spread window or of hashed fields, in bytes.
pub const LONGEST_KEY_BYTES: usize = 256;
/// Stands for a secret where a job is shown, and for the one that is there where a job is changed.
pub const KEPT_SECRET: &str = "(kept)";

/// The fields of a job's document.
pub const FIELDS: [&str; 8] = ["id", "name", "schedule", "priority", "payload", "retry", "spread", "missed"];
const SCHEDULE_FIELDS: [&str; 11] =
    ["cron", "every", "from", "at", "tz", "dst_gap", "dst_repeat", "start_at", "end_at", "max_runs", "hash_key"];
const PAYLOAD_FIELDS: [&str; 8] = ["handler", "to", "subject", "text", "url", "body", "secret", "vars"];
const RETRY_FIELDS: [&str; 4] = ["max_attempts", "base_s", "cap_s", "waits_s"];
const SPREAD_FIELDS: [&str; 2] = ["window_s", "key"];
const MISSED_FIELDS: [&str; 3] = ["many", "start_within_s", "until_local"];

/// What reading a document depends on.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Whose job it is.
    pub tenant: &'a str,
    /// What is counted from where nothing else is said.
    pub now: DateTime<Utc>,
    /// The zone rules.
    pub zones: &'a Zones,
    /// Hosts that webhooks and queues may name whatever their addresses are.
    pub allowed: &'a AllowList,
    /// What the job is, if it is there: its secret can be kept.
    pub old: Option<&'a JobSpec>,
}

/// Reads the specification of job `id` from a document; the document's own id, if it has one, must be the same.
///
/// # Errors
/// All that is wrong.
pub fn read(document: &Value, id: &str, reading: &Reading<'_>) -> Result<JobSpec, Vec<FieldProblem>> {
    let mut problems = Vec::new();
    let spec = read_noting(document, id, reading, &mut problems);
    match spec {
        Some(spec) if problems.is_empty() => {
            spec.check().map_err(|error| vec![field_of(&error)])?;
            if reading.old.is_none_or(|old| old.payload != spec.payload) {
                let checked = spec.payload.check_address(reading.allowed);
                checked.map_err(|problem| vec![FieldProblem::new("/payload/url", problem)])?;
            }
            Ok(spec)
        }
        _ => Err(problems),
    }
}

/// Reads a job as the API shows it, all of its fields.
///
/// # Errors
/// All that cannot be read.
pub fn read_shown(
    shown: &Value,
    tenant: &str,
    now: DateTime<Utc>,
    zones: &Zones,
) -> Result<JobSpec, Vec<FieldProblem>> {
    let document: Map<String, Value> =
        FIELDS.iter().map(|field| ((*field).to_owned(), shown[*field].clone())).collect();
    let id = shown["id"].as_str().unwrap_or_default();
    read_with_kept_secret(&Value::Object(document), id, tenant, now, zones)
}

/// Reads a document far from its job: a secret that is to be kept is none here, and whether what it says is allowed is not
/// judged.
///
/// # Errors
/// All that cannot be read.
pub fn read_with_kept_secret(
    document: &Value,
    id: &str,
    tenant: &str,
    now: DateTime<Utc>,
    zones: &Zones,
) -> Result<JobSpec, Vec<FieldProblem>> {
    let mut document = document.clone();
    if document["payload"]["secret"] == KEPT_SECRET {
        document["payload"]["secret"] = Value::Null;
    }
    let mut problems = Vec::new();
    let reading = Reading { tenant, now, zones, allowed: &AllowList::default(), old: None };
    let read = read_noting(&document, id, &reading, &mut problems);
    read.filter(|_| problems.is_empty()).ok_or(problems)
}

fn read_noting(document: &Value, id: &str, reading: &Reading<'_>, problems: &mut Vec<FieldProblem>) -> Option<JobSpec> {
    let fields = Fields::of(document, "", &FIELDS, problems)?;
    if let Some(said) = fields.text("id", problems)
        && said != id
    {
        problems.push(FieldProblem::new("/id", "is another id than the address says").hint("leave it out"));
    }
    let key = JobKey::new(reading.tenant, id).map_err(|problem| problems.push(FieldProblem::new("/id", problem))).ok();
    let name = fields.text("name", problems).map(str::to_owned);
    if name.as_ref().is_some_and(|name| name.len() > LONGEST_NAME_BYTES || name.chars().any(char::is_control)) {
        let detail = format!("a name is one line of at most {LONGEST_NAME_BYTES} bytes");
        problems.push(FieldProblem::new("/name", detail));
    }
    let priority: Option<Priority> = fields.word("priority", problems);
    let spread = fields.get("spread").and_then(|spread| read_spread(spread, problems));
    let spread_key = spread.as_ref().and_then(|(_, key)| key.clone());
    let default_key = key.as_ref().map_or("", JobKey::as_str);
    let schedule = match fields.get("schedule") {
        None => {
            let hint = "such as {\"cron\": \"0 9 * * 1-5\", \"tz\": \"Asia/Kolkata\"}";
            problems.push(FieldProblem::new("/schedule", "is missing").hint(hint));
            None
        }
        Some(schedule) => {
            let key = spread_key.as_deref().unwrap_or(default_key);
            read_schedule(schedule, "/schedule", key, reading.now, reading.zones, problems)
        }
    };
    let payload = match fields.get("payload") {
        None => {
            let hint = "such as {\"handler\": \"sms\", \"to\": \"+447700900123\", \"text\": \"Your bill is due\"}";
            problems.push(FieldProblem::new("/payload", "is missing").hint(hint));
            None
        }
        Some(payload) => read_payload(payload, reading.old.map(|old| &old.payload), problems),
    };
    let retry = fields.get("retry").map_or(Some(RetryRule::default()), |retry| read_retry(retry, problems));
    let missed = fields.get("missed").map_or(Some(MissedRule::default()), |missed| read_missed(missed, problems));
    let (schedule, anchor) = schedule?;
    Some(JobSpec {
        spread: spread
            .map(|(window_s, given)| Spread { key: given.unwrap_or_else(|| default_key.to_owned()), window_s }),
        key: key.clone()?,
        name,
        schedule,
        anchor,
        priority: priority.unwrap_or(Priority::Normal),
        payload: payload?,
        retry: retry?,
        missed: missed?,
    })
}

/// Reads a schedule; `key` chooses the values of hashed fields where it names none.
pub(crate) fn read_schedule(
    value: &Value,
    pointer: &str,
    key: &str,
    now: DateTime<Utc>,
    zones: &Zones,
    problems: &mut Vec<FieldProblem>,
) -> Option<(Schedule, Anchor)> {
    let fields = Fields::of(value, pointer, &SCHEDULE_FIELDS, problems)?;
    let before = problems.len();
    let [cron, every, from, at] = ["cron", "every", "from", "at"].map(|name| fields.text(name, problems));
    let when = match (cron, every, at) {
        (Some(cron), None, None) => format!("cron {cron}"),
        (None, Some(every), None) => match from {
            Some(from) => format!("every {every} from {from}"),
            None => format!("every {every}"),
        },
        (None, None, Some(at)) => format!("at {at}"),
        _ => {
            if problems.len() == before {
                let detail = "must say one of cron, every and at";
                let hint = "such as {\"every\": \"24h\"} or {\"at\": \"2026-12-05T09:00:00Z\"}";
                problems.push(FieldProblem::new(pointer, detail).hint(hint));
            }
            return None;
        }
    };
    let is_one_word =
        |text: Option<&str>| text.is_none_or(|text| !text.is_empty() && !text.contains(char::is_whitespace));
    for (name, text) in [("every", every), ("from", from), ("at", at)] {
        if !is_one_word(text) {
            problems.push(FieldProblem::new(fields.at(name), "must be one word without blanks"));
        }
    }
    if from.is_some() && every.is_none() {
        problems.push(FieldProblem::new(fields.at("from"), "goes with `every` only"));
    }
    let [tz, start_at, end_at, hash_key] =
        ["tz", "start_at", "end_at", "hash_key"].map(|name| fields.text(name, problems));
    check_key(&fields.at("hash_key"), hash_key, problems);
    let text = ScheduleText {
        when: &when,
        tz,
        dst_gap: fields.word("dst_gap", problems).unwrap_or(DstGap::default()),
        dst_repeat: fields.word("dst_repeat", problems).unwrap_or(DstRepeat::default()),
        start_at,
        end_at,
        max_runs: fields.number("max_runs", 1..=u64::from(u32::MAX), problems),
        key: Some(hash_key.unwrap_or(key)),
    };
    if problems.len() > before {
        return None;
    }
    let read = text.read(now, zones);
    read.map_err(|error| {
        let part = match error.part {
            "schedule" => ["cron", "every", "at"].into_iter().find(|name| fields.get(name).is_some()).unwrap_or("cron"),
            part => part,
        };
        problems.push(FieldProblem::new(fields.at(part), error.problem));
    })
    .ok()
}

fn check_key(pointer: &str, key: Option<&str>, problems: &mut Vec<FieldProblem>) {
    if key.is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY_BYTES) {
        problems.push(FieldProblem::new(pointer, format!("must have 1 to {LONGEST_KEY_BYTES} bytes")));
    }
}

/// The window and its key, if one is named.
pub(crate) fn read_spread(value: &Value, problems: &mut Vec<FieldProblem>) -> Option<(u32, Option<String>)> {
    let fields = Fields::of(value, "/spread", &SPREAD_FIELDS, problems)?;
    let key = fields.text("key", problems);
    check_key("/spread/key", key, problems);
    if fields.get("window_s").is_none() {
        problems.push(FieldProblem::new("/spread/window_s", "is missing").hint("such as 1800, for half an hour"));
    }
    let window_s = fields.number("window_s", 1..=604_800, problems)?;
    Some((window_s, key.map(str::to_owned)))
}

fn read_retry(value: &Value, problems: &mut Vec<FieldProblem>) -> Option<RetryRule> {
    let fields = Fields::of(value, "/retry", &RETRY_FIELDS, problems)?;
    let default = RetryRule::default();
    let mut number = |name, default| match fields.get(name) {
        None => Some(default),
        Some(_) => fields.number(name, 1..=86_400, problems),
    };
    let (max_attempts, base_s, cap_s) = (
        number("max_attempts", default.max_attempts)?,
        number("base_s", default.base_s)?,
        number("cap_s", default.cap_s)?,
    );
    let Some(waits) = fields.get("waits_s") else {
        return Some(RetryRule { max_attempts, base_s, cap_s, waits_s: None });
    };
    if ["max_attempts", "base_s", "cap_s"].iter().any(|name| fields.get(name).is_some()) {
        problems.push(FieldProblem::new("/retry", "a list of waits says all: leave the other fields out"));
        return None;
    }
    let waits: Option<Vec<u32>> = waits
        .as_array()
        .and_then(|waits| waits.iter().map(|wait| wait.as_u64().and_then(|wait| wait.try_into().ok())).collect());
    let Some(waits) = waits else {
        problems.push(FieldProblem::new("/retry/waits_s", "must be a list of whole seconds").hint("such as [30, 120]"));
        return None;
    };
    RetryRule::with_waits(&waits).map_err(|problem| problems.push(FieldProblem::new("/retry/waits_s", problem))).ok()
}

fn read_missed(value: &Value, problems: &mut Vec<FieldProblem>) -> Option<MissedRule> {
    let fields = Fields::of(value, "/missed", &MISSED_FIELDS, problems)?;
    let many = fields.word("many", problems);
    let within = fields.number("start_within_s", 1..=u64::from(u32::MAX), problems);
    let until = fields.text("until_local", problems).map(parse_time_of_day);
    let start = match (within, until) {
        (None, None) => StartRule::Always,
        (Some(within), None) => StartRule::WithinS(within),
        (None, Some(Ok(time))) => StartRule::UntilLocal(time),
        (_, Some(Err(expected))) => {
            problems.push(FieldProblem::new("/missed/until_local", expected));
            return None;
        }
        (Some(_), Some(Ok(_))) => {
            let detail = "start_within_s is there as well: write one of them";
            problems.push(FieldProblem::new("/missed/until_local", detail));
            return None;
        }
    };
    Some(MissedRule { many: many.unwrap_or_default(), start })
}

fn read_payload(value: &Value, old: Option<&Payload>, problems: &mut Vec<FieldProblem>) -> Option<Payload> {
    let fields = Fields::of(value, "/payload", &PAYLOAD_FIELDS, problems)?;
    let handler = fields.need("handler", "`sms`", problems)?;
    let takes: &[&str] = match handler {
        "sms" => &["to", "text", "vars"],
        "email" => &["to", "subject", "text", "vars"],
        "webhook" => &["url", "body", "secret", "vars"],
        "queue" => &["url", "body", "vars"],
        "noop" => &[],
        _ => {
            let detail = "must be sms, email, webhook, queue or noop";
            problems.push(FieldProblem::new("/payload/handler", detail));
            return None;
        }
    };
    for name in PAYLOAD_FIELDS.iter().skip(1).filter(|name| fields.get(name).is_some() && !takes.contains(name)) {
        problems.push(FieldProblem::new(fields.at(name), format!("goes not with handler {handler}: leave it out")));
    }
    let vars = fields.get("vars").map_or(Some(Vars::new()), |vars| read_vars(vars, problems));
    let mut need = |name: &str, example: &str| fields.need(name, example, problems).map(str::to_owned);
    match handler {
        "sms" => {
            let (to, text) = (need("to", "`+447700900123`"), need("text", "`Your bill is due`"));
            Some(Payload::Sms { to: to?, text: text?, vars: vars? })
        }
        "email" => {
            let (to, subject) = (need("to", "`ana@example.com`"), need("subject", "`Your bill`"));
            let text = need("text", "`It is due.`");
            Some(Payload::Email { to: to?, subject: subject?, text: text?, vars: vars? })
        }
        "webhook" => {
            let (url, body) = (need("url", "`https://hooks.example.com/bills`"), need("body", "`{}`"));
            let secret = match fields.text("secret", problems) {
                None => None,
                Some(KEPT_SECRET) => Some(kept_secret(old, problems)?),
                Some(text) => Some(Secret::new(text)),
            };
            Some(Payload::Webhook { url: url?, body: body?, vars: vars?, secret })
        }
        "queue" => {
            let url = need("url", "`https://sqs.eu-west-1.amazonaws.com/123456789012/bills`");
            let body = need("body", "`c-1`");
            Some(Payload::Queue { url: url?, body: body?, vars: vars? })
        }
        _ => Some(Payload::Noop),
    }
}

fn kept_secret(old: Option<&Payload>, problems: &mut Vec<FieldProblem>) -> Option<Secret> {
    if let Some(Payload::Webhook { secret: Some(secret), .. }) = old {
        return Some(secret.clone());
    }
    let detail = format!("{KEPT_SECRET} stands for the secret that the job has, and it has none");
    problems.push(FieldProblem::new("/payload/secret", detail).hint("give the secret itself, `whsec_…`"));
    None
}

fn read_vars(value: &Value, problems: &mut Vec<FieldProblem>) -> Option<Vars> {
    let Value::Object(object) = value else {
        problems.push(FieldProblem::new("/payload/vars", "must be a JSON object of texts"));
        return None;
    };
    let vars = object.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let vars: Option<Vars> = vars.collect();
    if vars.is_none() {
        problems
            .push(FieldProblem::new("/payload/vars", "must hold texts only").hint("such as {\"amount\": \"12.50\"}"));
    }
    vars
}

/// The document of a job, without its payload.
pub fn without_payload(spec: &JobSpec) -> Map<String, Value> {
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("id", json!(spec.key.id()));
    put("name", json!(spec.name));
    put("schedule", schedule(&spec.schedule));
    put("priority", json!(spec.priority));
    put("retry", retry(&spec.retry));
    put("spread", spec.spread.as_ref().map_or(Value::Null, |one| json!({"window_s": one.window_s, "key": one.key})));
    put("missed", missed(&spec.missed));
    document
}

/// The document of a job. A secret is not shown.
pub fn write(spec: &JobSpec) -> Map<String, Value> {
    let mut document = without_payload(spec);
    document.insert("payload".to_owned(), payload(&spec.payload));
    document
}

/// A schedule as a document says it, with numbers in place of hashed fields.
pub fn schedule(schedule: &Schedule) -> Value {
    let mut said = match &schedule.timing {
        Timing::At(at) => json!({"at": instant(*at)}),
        Timing::AtLocal(wall) => json!({"at": wall.format("%Y-%m-%dT%H:%M:%S").to_string()}),
        Timing::Every { interval_s, anchor } => json!({"every": format!("{interval_s}s"), "from": instant(*anchor)}),
        Timing::Cron(cron) => json!({"cron": cron.resolved()}),
    };
    if schedule.tz != Tz::UTC {
        said["tz"] = json!(schedule.tz.name());
    }
    if schedule.dst_gap != DstGap::default() {
        said["dst_gap"] = json!(schedule.dst_gap.to_string());
    }
    if schedule.dst_repeat != DstRepeat::default() {
        said["dst_repeat"] = json!(schedule.dst_repeat.to_string());
    }
    for (name, at) in [("start_at", schedule.start_at), ("end_at", schedule.end_at)] {
        if let Some(at) = at {
            said[name] = json!(instant(at));
        }
    }
    if let Some(most) = schedule.max_runs {
        said["max_runs"] = json!(most);
    }
    said
}

fn retry(rule: &RetryRule) -> Value {
    match &rule.waits_s {
        Some(waits) => json!({"waits_s": waits}),
        None => json!({"max_attempts": rule.max_attempts, "base_s": rule.base_s, "cap_s": rule.cap_s}),
    }
}

fn missed(rule: &MissedRule) -> Value {
    let many = rule.many.as_str();
    match rule.start {
        StartRule::Always => json!({"many": many}),
        StartRule::WithinS(s) => json!({"many": many, "start_within_s": s}),
        StartRule::UntilLocal(time) => json!({"many": many, "until_local": time.format("%H:%M").to_string()}),
    }
}

/// A payload as a document says it. A secret is not shown.
pub fn payload(payload: &Payload) -> Value {
    let mut said = match payload {
        Payload::Sms { to, text, .. } => json!({"to": to, "text": text}),
        Payload::Email { to, subject, text, .. } => json!({"to": to, "subject": subject, "text": text}),
        Payload::Webhook { url, body, secret, .. } => {
            json!({"url": url, "body": body, "secret": secret.as_ref().map(|_| KEPT_SECRET)})
        }
        Payload::Queue { url, body, .. } => json!({"url": url, "body": body}),
        Payload::Noop | Payload::Unread(_) => json!({}),
    };
    said["handler"] = json!(payload.handler());
    if let Some(vars) = payload.vars().filter(|vars| !vars.is_empty()) {
        said["vars"] = json!(vars);
    }
    said
}

/// The names in a merge patch that no document has. Merging would drop those that are null, and with them a slip of the pen.
pub fn unknown_in(patch: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let parts: [(&str, &[&str]); 6] = [
        ("", &FIELDS),
        ("/schedule", &SCHEDULE_FIELDS),
        ("/payload", &PAYLOAD_FIELDS),
        ("/retry", &RETRY_FIELDS),
        ("/spread", &SPREAD_FIELDS),
        ("/missed", &MISSED_FIELDS),
    ];
    for (pointer, known) in parts {
        if let Some(part) = patch.pointer(pointer).filter(|part| part.is_object()) {
            Fields::of(part, pointer, known, &mut problems);
        }
    }
    problems
}

/// A document with a merge patch applied (RFC 7396).
pub fn merged(document: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut object = match document {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    for (name, value) in patch {
        match value {
            Value::Null => drop(object.remove(name)),
            value => {
                let old = object.remove(name).unwrap_or(Value::Null);
                object.insert(name.clone(), merged(old, value));
            }
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests;

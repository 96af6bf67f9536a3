//! Changing jobs: one by its id, or all whose ids begin with what ends at `/`.

use super::ask::{Asker, asked, due_next, progress};
use super::jobs::{SOMEBODY, as_said, name_of};
use super::payload::{read_over, read_secret_file};
use super::{CommandError, bad, failed, in_option, print};
use crate::api::document::{self, FIELDS};
use crate::api::path_of;
use crate::cli::{ChangeArgs, EditArgs, RunNowArgs};
use crate::client::{Ask, Client};
use crate::listing::{list, said};
use crate::timetable::given_or;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use punctual_core::job::JobSpec;
use punctual_core::process::random_token;
use punctual_core::zone::Zones;
use serde_json::{Map, Value, json};

/// Tries of an edit while others edit the same job.
const TRIES: u32 = 5;
/// Jobs named one by one where many could be.
const SHOWN: usize = 20;

/// What is done to jobs, by the API's word for it.
pub(super) async fn change(asker: &Asker, args: ChangeArgs, verb: &str) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let tenant = args.tenant.as_deref();
    let path = format!("{}/{verb}", path_of(&args.id));
    if args.id.ends_with('/') {
        if args.if_version.is_some() {
            return Err(bad("--if-version goes with one job, not with all under a prefix"));
        }
        let ask = Ask::post(path).tenant(tenant).repeatable();
        return many(&client, &ask, &args.id, "changed", args.json).await;
    }
    let before = client.request(&Ask::get(path_of(&args.id)).tenant(tenant)).await.map_err(asked)?;
    let ask = Ask::post(path).tenant(tenant).if_version(args.if_version);
    // Without a version, a repeat finds the job as it is asked to be.
    let ask = if args.if_version.is_none() { ask.repeatable() } else { ask };
    let after = client.request(&ask).await.map_err(asked)?;
    tell(&after.json, before.version() != after.version(), args.json, &asker.zones)
}

pub(super) async fn delete(asker: &Asker, args: ChangeArgs) -> Result<(), CommandError> {
    if args.id.ends_with('/') {
        return Err(bad("delete takes one job: `punctual jobs cancel` takes all under a prefix"));
    }
    let client = asker.client().await?;
    let ask = Ask::delete(path_of(&args.id)).tenant(args.tenant.as_deref()).if_version(args.if_version);
    let job = client.request(&ask).await.map_err(asked)?.json;
    if args.json {
        return print(job);
    }
    print(format_args!("job {} has ended, and what it was to do is erased", name_of(&job)))
}

pub(super) async fn run_now(asker: &Asker, args: RunNowArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = Ask::post(format!("{}/run", path_of(&args.id))).tenant(args.tenant.as_deref());
    if args.id.ends_with('/') {
        let key = args.idempotency_key.unwrap_or_else(random_token);
        let done = many(&client, &ask.idempotency_key(Some(&key)), &args.id, "in their queues", args.json).await;
        if matches!(done, Err(CommandError::Failed(_))) {
            eprintln!("with --idempotency-key {key} the command goes on where it ended");
        }
        return done;
    }
    let ask = ask.idempotency_key(args.idempotency_key.as_deref());
    let answer = client.request(&ask).await.map_err(asked)?.json;
    if args.json {
        return print(answer);
    }
    print(format_args!("run {} is in its queue", said(&answer, "run_id")))
}

/// Asks on until all under a prefix is done, and says what came of it.
async fn many(client: &Client, ask: &Ask, prefix: &str, done: &str, as_json: bool) -> Result<(), CommandError> {
    let (mut changed, mut unchanged, mut refused, mut problems) = (0, 0, 0, Vec::new());
    let mut cursor: Option<String> = None;
    let bar = progress(None, "jobs");
    loop {
        let ask = match &cursor {
            Some(cursor) => ask.clone().query("cursor", cursor),
            None => ask.clone(),
        };
        let answer = client.request(&ask).await.map_err(|error| match asked(error) {
            CommandError::Failed(problem) => {
                failed(format!("{problem}; {changed} jobs are {done}: run the command again to go on"))
            }
            other => other,
        })?;
        let count = |name: &str| answer.json[name].as_u64().unwrap_or_default();
        changed += count("changed");
        unchanged += count("unchanged");
        refused += count("refused");
        problems.extend(list(&answer.json, "problems").iter().cloned());
        bar.set_position(changed + unchanged + refused);
        cursor = answer.json["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    if as_json {
        let counts = json!({"prefix": prefix, "changed": changed, "unchanged": unchanged, "refused": refused});
        let mut counts = counts;
        counts["problems"] = json!(problems);
        print(counts)?;
    } else {
        print(format_args!("under {prefix}: {changed} {done}, {unchanged} as asked already, {refused} refused"))?;
        for problem in problems.iter().take(SHOWN) {
            eprintln!("refused: {}: {}", said(problem, "id"), said(problem, "detail"));
        }
    }
    match refused {
        0 => Ok(()),
        1 => Err(CommandError::Partly("1 job was refused".into())),
        refused => Err(CommandError::Partly(format!("{refused} jobs were refused"))),
    }
}

pub(super) async fn edit(asker: &Asker, args: EditArgs) -> Result<(), CommandError> {
    let client = asker.client_allowing(&args.payload.webhook_allow).await?;
    let (tenant, path) = (args.job.tenant.as_deref(), path_of(&args.job.id));
    for tried in 1.. {
        let before = client.request(&Ask::get(&path).tenant(tenant)).await.map_err(asked)?;
        let patch = patch(&before.json, &args, client.now(), &asker.zones)?;
        let version = args.job.if_version.or(before.version());
        let ask = Ask::patch(&path).tenant(tenant).if_version(version).json(&patch);
        match client.request(&ask).await {
            // Somebody else was faster: what they made of it is edited.
            Err(error)
                if error.status() == Some(StatusCode::PRECONDITION_FAILED)
                    && args.job.if_version.is_none()
                    && tried < TRIES => {}
            Err(error) => return Err(asked(error)),
            Ok(after) => {
                return tell(&after.json, before.version() != after.version(), args.job.json, &asker.zones);
            }
        }
    }
    Err(failed("the job is being changed by others: try again"))
}

/// What the options given change of a job as the API shows it: a merge patch.
fn patch(shown: &Value, args: &EditArgs, now: DateTime<Utc>, zones: &Zones) -> Result<Value, CommandError> {
    let tenant = shown["tenant"].as_str().unwrap_or(SOMEBODY);
    let old = document::read_shown(shown, tenant, now, zones).map_err(|problems| {
        let first = problems.first().map(|problem| format!("{}: {}", problem.pointer, problem.detail));
        failed(format!("the job as the API shows it cannot be edited here: {}", first.unwrap_or_default()))
    })?;
    let new = patched(&old, args, now, zones)?;
    let secret = read_secret_file(&args.payload)?;
    let before: Map<String, Value> = FIELDS.iter().map(|name| ((*name).to_owned(), shown[*name].clone())).collect();
    let mut after = if args.schedule.is_some() {
        let spread_key = new.spread.as_ref().map(|spread| spread.key.as_str());
        as_said(&new, None, args.runs.spread_key.as_deref().or(spread_key))
    } else {
        document::write(&new)
    };
    let is_as_before = after["payload"]["handler"] == before["payload"]["handler"];
    after["payload"]["secret"] = match secret {
        Some(secret) => json!(secret.map(|secret| secret.reveal().to_owned())),
        None if is_as_before => before["payload"]["secret"].clone(),
        None => Value::Null,
    };
    Ok(difference(&Value::Object(before), &Value::Object(after)))
}

/// The merge patch that makes `new` of `old` (RFC 7396), both being objects.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(was), Value::Object(is)) = (old, new) else { return new.clone() };
    // A null is as good as nothing, on both sides.
    let mut patch = Map::new();
    for (name, value) in is {
        match was.get(name) {
            Some(old) if old == value => {}
            Some(old) if old.is_object() && value.is_object() => {
                let inner = difference(old, value);
                if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                    patch.insert(name.clone(), inner);
                }
            }
            Some(_) => drop(patch.insert(name.clone(), value.clone())),
            None if value.is_null() => {}
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in was.iter().filter(|(name, old)| !is.contains_key(*name) && !old.is_null()).map(|(name, _)| name) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// What the options given make of a specification.
fn patched(old: &JobSpec, args: &EditArgs, now: DateTime<Utc>, zones: &Zones) -> Result<JobSpec, CommandError> {
    let read = args.runs.read_over(&args.clock, args.schedule.as_deref(), old, now, zones).map_err(in_option)?;
    Ok(JobSpec {
        key: old.key.clone(),
        name: given_or(args.name.as_deref(), old.name.clone()),
        schedule: read.schedule,
        anchor: read.anchor,
        priority: args.priority.as_deref().map_or(Ok(old.priority), str::parse).map_err(bad)?,
        payload: read_over(&args.payload, Some(&old.payload), None)?,
        retry: args.retry.read_over(old.retry).map_err(in_option)?,
        spread: read.spread,
        missed: read.missed,
    })
}

/// Says what came of a change.
fn tell(job: &Value, has_changed: bool, as_json: bool, zones: &Zones) -> Result<(), CommandError> {
    if as_json {
        return print(job);
    }
    let what = if has_changed { "changed" } else { "is as asked already" };
    let next = due_next(job, zones).map(|due| format!(", its next run is due at {due}")).unwrap_or_default();
    let (state, version) = (said(job, "state"), said(job, "version"));
    print(format_args!("job {} {what}: {state}, version {version}{next}", name_of(job)))
}

#[cfg(test)]
mod tests;

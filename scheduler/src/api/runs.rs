//! Runs, firings to come and changes of a job, shown.

use super::ask::{self, Query, answer, none_wrong};
use super::document;
use super::fields::Fields;
use super::gate::Caller;
use super::jobs::{PAGE_BYTES, find, key_of, page};
use super::problem::{FieldProblem, Problem};
use super::state::Api;
use super::view;
use crate::listing::instant;
use crate::next;
use crate::operations::OperationError;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::job::{Job, JobKey, VERSIONS_KEPT};
use punctual_core::ports::{Attended, JobRead, PageToken, RowRead, RowSpan, VERSIONS};
use punctual_core::run::{RunId, RunKey};
use punctual_core::schedule::{Schedule, parse_moment};
use punctual_core::spread::Spread;
use punctual_core::zone::Zones;
use serde_json::{Map, Value, json};

/// The most firings that are shown.
const MOST_FIRINGS: u64 = 1_000;
/// The firings that are shown where nothing else is asked for.
const FIRINGS: u64 = 10;
/// The most firings that are counted to find where a limited series stands at another time.
const MOST_COUNTED: u32 = 10_000;

/// Lists a job's runs.
pub(super) async fn list(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &["from", "to", "limit", "cursor"])?;
    let key = key_of(caller, id)?;
    let all = RowSpan::newest_first();
    let span = RowSpan {
        from: query.instant("from")?.unwrap_or(all.from),
        until: query.instant("to")?.unwrap_or(all.until),
        ..all
    };
    let listing = format!("runs/{key}/{}/{}", span.from, span.until);
    let (limit, after) = (query.limit()?, query.cursor(&listing)?);
    let job = find(api, &key).await?;
    let rows = api.ports.history.rows(&key, span, after, limit).await?;
    let items = rows.rows.iter().map(|read| match read {
        RowRead::Row(row) => Value::Object(view::run(row)),
        RowRead::Unreadable(row) => view::unreadable_run(row),
    });
    let items = items.collect();
    let mut shown = page(items, &listing, rows.next.as_ref());
    shown["next_run_at"] = json!(job.next_scheduled_at.map(instant));
    Ok(answer(StatusCode::OK, &shown))
}

/// The run of an id: job key, `:`, run key.
pub(super) fn run_id(text: &str) -> Option<RunId> {
    let (job_key, run_key) = text.rsplit_once(':')?;
    let (job_key, run_key) = (JobKey::try_from(job_key.to_owned()).ok()?, RunKey::try_from(run_key.to_owned()).ok()?);
    Some(RunId { job_key, run_key })
}

/// The run that an address names.
pub(super) fn run_of(caller: &Caller, id: &str, run: &str) -> Result<RunId, Problem> {
    let run_key = RunKey::try_from(run.to_owned());
    let run_key = run_key.map_err(|problem| Problem::missing(format!("there is no such run: {problem}")))?;
    Ok(RunId { job_key: key_of(caller, id)?, run_key })
}

/// Shows a run.
pub(super) async fn get(
    api: &Api,
    caller: &Caller,
    id: &str,
    run: &str,
    request: Request,
) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let run = run_of(caller, id, run)?;
    let row = match api.ports.history.row(&run).await? {
        Some(RowRead::Row(row)) => row,
        Some(RowRead::Unreadable(row)) => return Err(OperationError::UnreadableRun(row.id, row.problem).into()),
        None => return Err(Problem::missing(format!("there is no run {run}, or it has no row yet"))),
    };
    let job = api.ports.jobs.get_many(std::slice::from_ref(&run.job_key)).await?.remove(&run.job_key);
    let next = job.as_ref().and_then(JobRead::job).and_then(|job| job.next_scheduled_at);
    let mut shown = view::run(&row);
    let note = match row.status.has_letter() {
        true => api.ports.history.attended(&run).await?,
        false => None,
    };
    shown.insert("attended".into(), note.as_ref().map_or(Value::Null, attended));
    shown.insert("next_run_at".into(), json!(next.map(instant)));
    Ok(answer(StatusCode::OK, &Value::Object(shown)))
}

/// Who saw to a dead letter.
pub(super) fn attended(note: &Attended) -> Value {
    json!({
        "by": note.by, "at": view::exact(note.at), "replay": note.replay.as_ref().map(RunKey::as_str), "why": note.why,
    })
}

/// Shows when a job fires next.
pub(super) async fn next_firings(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &["count", "after"])?;
    let count = query.number("count", 1..=MOST_FIRINGS)?.unwrap_or(FIRINGS);
    let after = query.instant("after")?;
    let job = find(api, &key_of(caller, id)?).await?;
    let (schedule, spread) = (&job.spec.schedule, job.spec.spread.as_ref());
    // What is owed comes first: the job stands there.
    let stands = job.next_scheduled_at.map(|next| next - TimeDelta::seconds(1));
    let limited = Schedule { max_runs: job.runs_left.or(schedule.max_runs), ..schedule.clone() };
    // The runs that are left of a series are those from there on.
    let after = if limited.max_runs.is_some() { after.max(after.and(stands)) } else { after };
    let from = after.or(stands).unwrap_or_else(|| api.now());
    let firings = match (job.next_scheduled_at, after, limited.max_runs) {
        (None, ..) => Vec::new(),
        (Some(next), Some(after), Some(left)) if after >= next => {
            let left = left_after(&limited, next, after, left, &api.zones)?;
            next::json(&Schedule { max_runs: Some(left), ..limited }, spread, after, count as usize, &api.zones)
        }
        _ => next::json(&limited, spread, from, count as usize, &api.zones),
    };
    let shown = json!({
        "id": job.spec.key.id(), "state": job.state, "schedule": document::schedule(schedule), "firings": firings,
        "next_run_at": job.next_scheduled_at.map(instant),
    });
    Ok(answer(StatusCode::OK, &shown))
}

/// How many firings of `left`, the first of which is at `next`, are left after another instant.
fn left_after(
    schedule: &Schedule,
    next: DateTime<Utc>,
    after: DateTime<Utc>,
    left: u32,
    zones: &Zones,
) -> Result<u32, Problem> {
    let before = next - TimeDelta::seconds(1);
    let firings =
        std::iter::successors(schedule.next_after(before, zones), |firing| schedule.next_firing(firing, zones));
    let until_then = firings.take(left.min(MOST_COUNTED + 1) as usize);
    let used = until_then.take_while(|firing| firing.at <= after).count() as u32;
    if used > MOST_COUNTED {
        let detail = format!("lies more than {MOST_COUNTED} firings ahead, and those of a limited series are counted");
        return Err(Problem::parameter("after", detail));
    }
    Ok(left.saturating_sub(used))
}

/// Shows when a schedule would fire.
pub(super) async fn preview(api: &Api, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let body = ask::json(request, None).await?;
    let mut problems = Vec::new();
    let read = read_preview(api, &body, &mut problems);
    none_wrong(problems)?;
    let Some((schedule, spread, after, count)) = read else {
        return Err(Problem::fields(vec![FieldProblem::new("/schedule", "cannot be read")]));
    };
    let shown = json!({
        "schedule": document::schedule(&schedule), "warning": schedule.warning(),
        "firings": next::json(&schedule, spread.as_ref(), after, count, &api.zones),
        "next_run_at": schedule.next_after(after, &api.zones).map(|firing| instant(firing.at)),
    });
    Ok(answer(StatusCode::OK, &shown))
}

fn read_preview(
    api: &Api,
    body: &Value,
    problems: &mut Vec<FieldProblem>,
) -> Option<(Schedule, Option<Spread>, DateTime<Utc>, usize)> {
    let fields = Fields::of(body, "", &["schedule", "spread", "after", "count"], problems)?;
    let spread = fields.get("spread").and_then(|spread| document::read_spread(spread, problems));
    let spread = spread.map(|(window_s, key)| Spread { key: key.unwrap_or_else(|| "preview".into()), window_s });
    let Some(schedule) = fields.get("schedule") else {
        problems.push(FieldProblem::new("/schedule", "is missing").hint("such as {\"cron\": \"0 9 * * 1-5\"}"));
        return None;
    };
    let key = spread.as_ref().map_or("preview", |spread| &spread.key);
    let (schedule, _) = document::read_schedule(schedule, "/schedule", key, api.now(), &api.zones, problems)?;
    let after = fields.text("after", problems).map(|text| parse_moment(text, schedule.tz, &api.zones));
    let after = match after {
        None => api.now(),
        Some(Ok(after)) => after,
        Some(Err(error)) => {
            problems.push(FieldProblem::new("/after", error.to_string()));
            return None;
        }
    };
    if let Some(spread) = &spread
        && let Err(problem) = spread.check_range().and_then(|()| spread.check_fit(schedule.shortest_interval_s()))
    {
        problems.push(FieldProblem::new("/spread", problem));
    }
    let count = match fields.get("count") {
        None => FIRINGS as u32,
        Some(_) => fields.number("count", 1..=MOST_FIRINGS, problems)?,
    };
    Some((schedule, spread, after, count as usize))
}

/// Shows who changed a job, when, and what, the latest first.
pub(super) async fn changes(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &["limit", "cursor"])?;
    let key = key_of(caller, id)?;
    let listing = format!("changes/{key}");
    let limit = query.limit()?.min(VERSIONS as usize - 1) as u64;
    let before = query.cursor(&listing)?;
    let job = find(api, &key).await?;
    let before = before.map(|token| token.0.parse::<u64>().ok().filter(|before| (2..=job.version).contains(before)));
    let wrong = || Problem::parameter("cursor", "is no `next_cursor` of this very listing: begin without one");
    let last = match before {
        None => job.version,
        Some(before) => before.ok_or_else(wrong)? - 1,
    };
    let first = last.saturating_sub(limit - 1).max(1);
    let mut versions = api.ports.jobs.versions(&key, first.saturating_sub(1).max(1)..=last).await?;
    versions.insert(job.version, JobRead::Job(job.clone()));
    let (mut items, mut bytes, mut next) = (Vec::new(), 0, (first > 1).then(|| PageToken(first.to_string())));
    for number in (first..=last).rev() {
        let of_this_life = |number: u64| match versions.get(&number) {
            Some(JobRead::Job(version)) => Some(&**version),
            _ => None,
        };
        let Some(after) = of_this_life(number) else { continue };
        let before = number.checked_sub(1).and_then(of_this_life);
        let item = change(caller, before, after);
        bytes += ask::length_in_answer(&item);
        items.push(item);
        if bytes >= PAGE_BYTES && number > first {
            next = Some(PageToken(number.to_string()));
            break;
        }
    }
    let mut shown = page(items, &listing, next.as_ref());
    shown["next_run_at"] = json!(job.next_scheduled_at.map(instant));
    shown["kept_days"] = json!(VERSIONS_KEPT.as_secs() / 86_400);
    Ok(answer(StatusCode::OK, &shown))
}

/// What a version changed of the one before it: the fields that differ, as they were and as they are.
fn change(caller: &Caller, before: Option<&Job>, after: &Job) -> Value {
    let said = |job: &Job| -> Map<String, Value> {
        let mut document = document::without_payload(&job.spec);
        let payload = match caller.sees_payloads() {
            true => document::payload(&job.spec.payload),
            false => json!({"handler": job.spec.payload.handler()}),
        };
        document.insert("payload".into(), payload);
        document.insert("state".into(), json!(job.state));
        document
    };
    let (old, new) = (before.map(said), said(after));
    let differs = |name: &str| old.as_ref().is_none_or(|old| old.get(name) != new.get(name));
    let pick = |of: &Map<String, Value>| {
        let fields = of.iter().filter(|(name, _)| differs(name)).map(|(name, value)| (name.clone(), value.clone()));
        Value::Object(fields.collect())
    };
    json!({
        "version": after.version, "by": after.updated_by, "at": view::exact(after.updated_at),
        "before": old.as_ref().map(pick), "after": pick(&new),
    })
}

//! Dead letters by the API: the rows that wait for a person, listed, run once more, or left at that.

use super::ask::{self, Query, answer, none_wrong};
use super::fields::Fields;
use super::gate::Caller;
use super::jobs::page;
use super::problem::{FieldProblem, Problem};
use super::runs::run_id;
use super::state::Api;
use super::view;
use crate::operations::{OperationError, Replay, ReplayPlan, perform_replay, plan_replay};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::ports::{Attended, PageToken, RowRead, UnreadableRow, place_in_attention};
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{RunId, RunRow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Pages of the store that one page of the API looks through for what was asked for.
const PAGES_LOOKED_THROUGH: usize = 20;
/// Rows read at a time.
const PAGE: usize = 100;
/// Runs that one call names.
const MOST_NAMED: usize = 100;
/// Letters that one call replays or drops; a cursor leads to the others.
const MOST_AT_ONCE: u64 = 1_000;
/// Replays a second where nothing else is asked for.
const PACE_PER_S: u32 = 50;
/// A call ends after this time, and gives a cursor: load balancers and callers wait no longer.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// The longest reason, in bytes.
const LONGEST_WHY_BYTES: usize = 200;
/// The longest age, in seconds: rows are kept for 60 days.
const LONGEST_AGE_S: u64 = 60 * 86_400;

const STATUSES: [&str; 2] = ["dead", "indeterminate"];
const CLASSES: [&str; 4] = ["temporary", "permanent", "unknown", "lost"];

/// Which letters are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Filter {
    prefix: String,
    status: Option<String>,
    class: Option<String>,
    ended_before: Option<DateTime<Utc>>,
    ended_after: Option<DateTime<Utc>>,
}

impl Filter {
    fn covers(&self, row: &RunRow) -> bool {
        let ended = row.completed_at.unwrap_or(row.due_at);
        self.is_over(row.id.job_key.id())
            && self.status.as_deref().is_none_or(|status| status == row.status.as_str())
            && self.class.as_deref().is_none_or(|class| class_of(row).is_some_and(|of| of.as_str() == class))
            && self.ended_before.is_none_or(|before| ended <= before)
            && self.ended_after.is_none_or(|after| ended >= after)
    }

    /// A prefix that is an id means that job, and no other that begins so.
    fn is_over(&self, id: &str) -> bool {
        self.prefix.is_empty() || id == self.prefix || (self.prefix.ends_with('/') && id.starts_with(&self.prefix))
    }

    /// Whether a row is meant, or may be: of one that cannot be read nothing is known but what its key says.
    fn covers_read(&self, tenant: &str, read: &RowRead) -> bool {
        let row = match read {
            RowRead::Row(row) => return self.covers(row),
            RowRead::Unreadable(row) => row,
        };
        let job = row.id.rsplit_once(':').map_or(row.id.as_str(), |(job, _)| job);
        let id = job.strip_prefix(tenant).and_then(|job| job.strip_prefix('/')).unwrap_or_default();
        *self == Filter { prefix: self.prefix.clone(), ..Filter::default() } && self.is_over(id)
    }

    /// Names the listing, for cursors.
    fn listing(&self, tenant: &str) -> String {
        format!("letters/{tenant}/{}/{:?}/{:?}", self.prefix, self.status, self.class)
    }
}

/// How the last attempt ended.
fn class_of(row: &RunRow) -> Option<OutcomeClass> {
    row.attempts.last().and_then(|attempt| attempt.class)
}

fn letter(row: &RunRow) -> Value {
    let mut shown = view::run(row);
    shown.insert("class".into(), json!(class_of(row)));
    Value::Object(shown)
}

/// Lists dead letters, the oldest first.
pub(super) async fn list(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    let known = ["prefix", "status", "class", "older_than_s", "newer_than_s", "limit", "cursor"];
    let query = Query::of(&request, &known)?;
    let now = api.now();
    let ago = |name| -> Result<Option<DateTime<Utc>>, Problem> {
        Ok(query.number(name, 0..=LONGEST_AGE_S)?.map(|s| now - TimeDelta::seconds(s as i64)))
    };
    let filter = Filter {
        prefix: query.text("prefix").unwrap_or_default().to_owned(),
        status: query.one_of("status", &STATUSES)?.map(str::to_owned),
        class: query.one_of("class", &CLASSES)?.map(str::to_owned),
        ended_before: ago("older_than_s")?,
        ended_after: ago("newer_than_s")?,
    };
    let tenant = caller.tenant()?;
    let listing = filter.listing(tenant);
    let (limit, mut after) = (query.limit()?, query.cursor(&listing)?);
    let mut items = Vec::new();
    for _ in 0..PAGES_LOOKED_THROUGH {
        let found = api.ports.history.attention(tenant, after, limit - items.len()).await?;
        items.extend(found.rows.iter().filter(|read| filter.covers_read(tenant, read)).map(|read| match read {
            RowRead::Row(row) => letter(row),
            RowRead::Unreadable(row) => view::unreadable_run(row),
        }));
        after = found.next;
        if after.is_none() || items.len() >= limit {
            break;
        }
    }
    Ok(answer(StatusCode::OK, &page(items, &listing, after.as_ref())))
}

/// What is asked of dead letters.
struct Asked {
    runs: Option<Vec<RunId>>,
    filter: Filter,
    is_dry: bool,
    per_second: u32,
    most: u64,
    why: Option<String>,
    after: Option<PageToken>,
}

const REPLAY_FIELDS: [&str; 10] =
    ["runs", "prefix", "status", "class", "older_than_s", "newer_than_s", "limit", "cursor", "dry_run", "per_second"];
const DROP_FIELDS: [&str; 10] =
    ["runs", "prefix", "status", "class", "older_than_s", "newer_than_s", "limit", "cursor", "dry_run", "why"];

impl Asked {
    fn read(body: &Value, known: &[&str], tenant: &str, now: DateTime<Utc>) -> Result<Self, Problem> {
        let mut problems = Vec::new();
        let asked = Self::noting(body, known, tenant, now, &mut problems);
        none_wrong(problems)?;
        asked.ok_or_else(|| Problem::fields(vec![FieldProblem::new("", "must be a JSON object")]))
    }

    fn noting(
        body: &Value,
        known: &[&str],
        tenant: &str,
        now: DateTime<Utc>,
        problems: &mut Vec<FieldProblem>,
    ) -> Option<Self> {
        let fields = Fields::of(body, "", known, problems)?;
        let one_of = |name: &str, words: &[&str], problems: &mut Vec<FieldProblem>| {
            let given = fields.text(name, problems)?;
            if !words.contains(&given) {
                problems.push(FieldProblem::new(fields.at(name), format!("is one of {}", words.join(", "))));
            }
            Some(given.to_owned())
        };
        let ago = |name: &str, problems: &mut Vec<FieldProblem>| {
            let seconds = fields.number(name, 0..=LONGEST_AGE_S, problems)?;
            Some(now - TimeDelta::seconds(i64::from(seconds)))
        };
        let filter = Filter {
            prefix: fields.text("prefix", problems).unwrap_or_default().to_owned(),
            status: one_of("status", &STATUSES, problems),
            class: one_of("class", &CLASSES, problems),
            ended_before: ago("older_than_s", problems),
            ended_after: ago("newer_than_s", problems),
        };
        let runs = fields.get("runs").and_then(|runs| read_runs(runs, tenant, problems));
        if fields.get("runs").is_some() && filter != Filter::default() {
            let detail = "name runs, or say which by the other fields: not both";
            problems.push(FieldProblem::new("/runs", detail));
        }
        let why = fields.text("why", problems).map(str::to_owned);
        if why.as_ref().is_some_and(|why| why.trim().is_empty() || why.len() > LONGEST_WHY_BYTES) {
            problems.push(FieldProblem::new("/why", format!("has 1 to {LONGEST_WHY_BYTES} bytes")));
        }
        let after = fields.text("cursor", problems).map(|cursor| {
            ask::read_cursor(&filter.listing(tenant), cursor).ok_or("is no `next_cursor` of this very request")
        });
        let after = after.transpose().map_err(|wrong| problems.push(FieldProblem::new("/cursor", wrong))).ok()?;
        Some(Asked {
            runs,
            is_dry: fields.flag("dry_run", problems).unwrap_or(false),
            per_second: fields.number("per_second", 1..=1_000, problems).unwrap_or(PACE_PER_S),
            most: fields.number("limit", 1..=MOST_AT_ONCE, problems).map_or(MOST_AT_ONCE, u64::from),
            filter,
            why,
            after,
        })
    }
}

fn read_runs(value: &Value, tenant: &str, problems: &mut Vec<FieldProblem>) -> Option<Vec<RunId>> {
    let hint = "such as [\"bank/c-1/bill:1791171000\"], as the list of dead letters names them";
    let ids: Option<Vec<&str>> = value.as_array().and_then(|runs| runs.iter().map(Value::as_str).collect());
    let ids = ids.filter(|ids| (1..=MOST_NAMED).contains(&ids.len()));
    let runs: Option<Vec<RunId>> = ids.and_then(|ids| ids.into_iter().map(run_id).collect());
    // Another tenant's run is none that is there.
    let runs = runs.filter(|runs| runs.iter().all(|run| run.job_key.tenant() == tenant));
    if runs.is_none() {
        let detail = format!("must be 1 to {MOST_NAMED} ids of runs of this tenant");
        problems.push(FieldProblem::new("/runs", detail).hint(hint));
    }
    runs
}

/// What came of one letter: a word, and more.
type Done = (&'static str, Value);

/// Runs dead letters once more.
pub(super) async fn replay(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let body = ask::json(request, None).await?;
    let asked = Asked::read(&body, &REPLAY_FIELDS, caller.tenant()?, api.now())?;
    each(api, caller, &asked, &Deed::Replay).await
}

/// What is done to a letter.
enum Deed {
    /// It is run once more.
    Replay,
    /// It is left at that, for this reason.
    Drop(String),
}

async fn do_one(api: &Api, caller: &Caller, asked: &Asked, deed: &Deed, run: &RunId) -> Result<Done, Problem> {
    match deed {
        Deed::Replay => {
            let done = replay_one(api, caller, run, asked.is_dry).await?;
            if done.0 == "replayed" {
                tokio::time::sleep(Duration::from_secs(1) / asked.per_second).await;
            }
            Ok(done)
        }
        Deed::Drop(_) if asked.is_dry => Ok(("would_be_dropped", json!({}))),
        Deed::Drop(why) => {
            let note = Attended { by: caller.by.clone(), at: api.now(), replay: None, why: Some(why.clone()) };
            let is_noted = api.ports.history.attend(run, &note).await?;
            Ok((if is_noted { "dropped" } else { "stands" }, json!({})))
        }
    }
}

async fn replay_one(api: &Api, caller: &Caller, run: &RunId, is_dry: bool) -> Result<Done, Problem> {
    let planned = match plan_replay(&api.ports, &*api.clock, &api.zones, run).await {
        Ok(ReplayPlan::Enqueue(planned)) => planned,
        Ok(ReplayPlan::Nothing(Replay::TooLate)) => return Ok(("too_late", json!({"detail": "its deadline is over"}))),
        Ok(ReplayPlan::Nothing(Replay::Stands(latest, status))) => {
            return Ok(("stands", json!({"replay": latest.run_key.as_str(), "status": status})));
        }
        Ok(ReplayPlan::Nothing(Replay::Missing | Replay::Enqueued(_))) => return Ok(("missing", json!({}))),
        Err(
            error @ (OperationError::NotAllowed(..)
            | OperationError::Input(..)
            | OperationError::Unreadable(..)
            | OperationError::UnreadableRun(..)),
        ) => return Ok(("refused", json!({"detail": error.to_string()}))),
        Err(error) => return Err(error.into()),
    };
    let key = planned.run().run_key;
    if is_dry {
        return Ok(("would_be_replayed", json!({"replay": key.as_str()})));
    }
    perform_replay(&api.ports, &*api.clock, planned, &caller.by, caller.trace).await?;
    Ok(("replayed", json!({"replay": key.as_str()})))
}

/// Leaves dead letters at that.
pub(super) async fn drop_letters(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let body = ask::json(request, None).await?;
    let asked = Asked::read(&body, &DROP_FIELDS, caller.tenant()?, api.now())?;
    let Some(why) = asked.why.clone() else {
        let problem = FieldProblem::new("/why", "is missing").hint("such as `the customers were called`");
        return Err(Problem::fields(vec![problem]));
    };
    each(api, caller, &asked, &Deed::Drop(why)).await
}

/// Does something to each letter that is meant, and tells what came of it.
async fn each(api: &Api, caller: &Caller, asked: &Asked, deed: &Deed) -> Result<Response, Problem> {
    let tenant = caller.tenant()?;
    let listing = asked.filter.listing(tenant);
    let ends_at = api.clock.monotonic() + LONGEST_CALL;
    let (mut counts, mut items) = (BTreeMap::<&str, u64>::new(), Vec::new());
    let mut next: Option<PageToken> = None;
    let mut tell = |run: &str, (word, more): Done| {
        *counts.entry(word).or_default() += 1;
        let mut item = json!({"id": run, "result": word});
        if let (Some(item), Value::Object(more)) = (item.as_object_mut(), more) {
            item.extend(more);
        }
        items.push(item);
    };
    if let Some(runs) = &asked.runs {
        for run in runs {
            if api.clock.monotonic() >= ends_at {
                tell(&run.to_string(), ("left", json!({"detail": "the call took too long: ask for it again"})));
                continue;
            }
            let done = match api.ports.history.row(run).await? {
                Some(RowRead::Row(row)) if row.status.has_letter() => do_one(api, caller, asked, deed, run).await?,
                Some(RowRead::Unreadable(row)) => unreadable(&row),
                Some(RowRead::Row(_)) | None => ("missing", json!({})),
            };
            tell(&run.to_string(), done);
        }
        return Ok(told(asked, counts, items, None));
    }
    let (mut after, mut done, mut looked_at) = (asked.after.clone(), 0, 0);
    'pages: loop {
        let found = api.ports.history.attention(tenant, after.clone(), PAGE).await?;
        for read in &found.rows {
            // However slow the store is, each call gets on.
            if done >= asked.most || (looked_at > 0 && api.clock.monotonic() >= ends_at) {
                next = after;
                break 'pages;
            }
            if asked.filter.covers_read(tenant, read) {
                let outcome = match read {
                    RowRead::Row(row) => do_one(api, caller, asked, deed, &row.id).await?,
                    RowRead::Unreadable(row) => unreadable(row),
                };
                tell(&read.id(), outcome);
                done += 1;
            }
            looked_at += 1;
            after = Some(place_in_attention(read));
        }
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    let next = next.map(|token| ask::cursor(&listing, &token));
    Ok(told(asked, counts, items, next))
}

fn unreadable(row: &UnreadableRow) -> Done {
    ("refused", json!({"detail": format!("this version cannot read it: {}", row.problem)}))
}

fn told(asked: &Asked, counts: BTreeMap<&str, u64>, items: Vec<Value>, next: Option<String>) -> Response {
    let body = json!({"dry_run": asked.is_dry, "counts": counts, "items": items, "next_cursor": next});
    answer(StatusCode::OK, &body)
}

//! The audit by the API: what was due by the calendar, held against the rows; and what is missing, enqueued again.
//!
//! A call goes over the jobs of a tenant, of a prefix, or one; it ends after a while, and gives a cursor to go on from.

use super::ask::{self, Query, answer, none_wrong};
use super::fields::Fields;
use super::gate::Caller;
use super::jobs::{find, key_of};
use super::problem::{FieldProblem, Problem};
use super::runs::run_of;
use super::state::Api;
use super::view;
use crate::listing::instant;
use crate::operations::{OperationError, Span, audit_job, requeue, scheduled_instant};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use punctual_core::audit::{Instant, Open, Standing, Summary};
use punctual_core::job::{Job, JobKey, RETENTION};
use punctual_core::ports::{JobRead, JobsUnder, PageToken};
use punctual_core::schedule::parse_instant;
use punctual_core::steering::Steering;
use serde_json::{Value, json};
use std::time::Duration;

/// How long after it was due a run may be in a queue without a row, where nothing else is asked for.
const GRACE_S: u32 = 900;
/// The longest grace that is taken, in seconds: a queue keeps a message for 14 days.
const LONGEST_GRACE_S: u64 = 14 * 86_400;
/// Jobs listed at a time.
const PAGE: usize = 10;
/// Jobs looked at at the same time.
const JOBS_AT_ONCE: usize = 8;
/// Instants that one call names, of one job.
const MOST_NAMED_OF_A_JOB: usize = 1_000;
/// Instants of one job that one call enqueues again; a repeat goes on when these have their rows.
const MOST_REQUEUED_OF_A_JOB: usize = 10_000;
/// Instants that one call names, before it ends with a cursor.
const MOST_NAMED: usize = 5_000;
/// A call ends after this time, and gives a cursor.
const LONGEST_CALL: Duration = Duration::from_secs(20);

/// Which instants are named, and not just counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Missing,
    NotFine,
    All,
}

/// What is asked.
struct Asked {
    prefix: String,
    span: Span,
    shown: Shown,
    after: Option<PageToken>,
    now: DateTime<Utc>,
}

const FIELDS: [&str; 6] = ["prefix", "from", "to", "grace_s", "show", "cursor"];

impl Asked {
    /// Checks the span: older rows are gone, and nothing is known of them.
    fn of(
        prefix: &str,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
        grace_s: u32,
        now: DateTime<Utc>,
    ) -> Result<Self, (&'static str, String)> {
        let retention = TimeDelta::from_std(RETENTION).unwrap_or(TimeDelta::MAX);
        let oldest = now - retention;
        let (from, to) = (from.unwrap_or(now - TimeDelta::days(1)), to.unwrap_or(now));
        if from < oldest {
            let days = retention.num_days();
            return Err((
                "from",
                format!("rows are kept for {days} days: nothing is known before {}", instant(oldest)),
            ));
        }
        if to <= from {
            return Err(("to", "lies not behind `from`".into()));
        }
        let is_prefix = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
        if prefix.len() > 128 || !is_prefix || prefix.starts_with('/') {
            return Err(("prefix", "is an id, or the beginning of ids and ends at `/`".into()));
        }
        let span = Span { from, to, grace: Duration::from_secs(grace_s.into()) };
        Ok(Asked { prefix: prefix.to_owned(), span, shown: Shown::Missing, after: None, now })
    }

    fn listing(&self, tenant: &str) -> String {
        format!("audit/{tenant}/{}", self.prefix)
    }

    /// One job is asked about, and no other that begins so.
    fn is_one_job(&self) -> bool {
        !self.prefix.is_empty() && !self.prefix.ends_with('/')
    }

    fn shows(&self, standing: &Standing) -> bool {
        match self.shown {
            Shown::Missing => *standing == Standing::Missing,
            Shown::NotFine => !standing.is_fine(),
            Shown::All => true,
        }
    }
}

fn shown_of(word: &str) -> Option<Shown> {
    match word {
        "missing" => Some(Shown::Missing),
        "problems" => Some(Shown::NotFine),
        "all" => Some(Shown::All),
        _ => None,
    }
}

/// Holds the calendar against the rows.
pub(super) async fn audit(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &FIELDS)?;
    let grace = query.number("grace_s", 0..=LONGEST_GRACE_S)?.map_or(GRACE_S, |s| s as u32);
    let (from, to) = (query.instant("from")?, query.instant("to")?);
    let prefix = query.text("prefix").unwrap_or_default();
    let asked = Asked::of(prefix, from, to, grace, api.now());
    let mut asked = asked.map_err(|(name, problem)| Problem::fields(vec![FieldProblem::new(name, problem)]))?;
    let shown = query.one_of("show", &["missing", "problems", "all"])?;
    asked.shown = shown.and_then(shown_of).unwrap_or(Shown::Missing);
    asked.after = query.cursor(&asked.listing(caller.tenant()?))?;
    over_jobs(api, caller, &asked, false).await
}

/// Enqueues again what is missing.
pub(super) async fn requeue_missing(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let body = ask::json(request, None).await?;
    let tenant = caller.tenant()?;
    let mut problems = Vec::new();
    let asked = read_asked(&body, tenant, api.now(), &mut problems);
    none_wrong(problems)?;
    let asked = asked.ok_or_else(|| Problem::fields(vec![FieldProblem::new("", "must be a JSON object")]))?;
    over_jobs(api, caller, &asked, true).await
}

fn read_asked(body: &Value, tenant: &str, now: DateTime<Utc>, problems: &mut Vec<FieldProblem>) -> Option<Asked> {
    let fields = Fields::of(body, "", &["prefix", "from", "to", "grace_s", "cursor"], problems)?;
    let moment = |name: &str, problems: &mut Vec<FieldProblem>| {
        let read = parse_instant(fields.text(name, problems)?).ok();
        if read.is_none() {
            problems.push(FieldProblem::new(fields.at(name), "is an instant such as 2026-12-05T09:00:00Z"));
        }
        read
    };
    let (from, to) = (moment("from", problems), moment("to", problems));
    let grace = fields.number("grace_s", 0..=LONGEST_GRACE_S, problems).unwrap_or(GRACE_S);
    let prefix = fields.text("prefix", problems).unwrap_or_default();
    let asked = Asked::of(prefix, from, to, grace, now);
    let mut asked = asked.map_err(|(name, problem)| problems.push(FieldProblem::new(fields.at(name), problem))).ok()?;
    if let Some(cursor) = fields.text("cursor", problems) {
        asked.after = ask::read_cursor(&asked.listing(tenant), cursor);
        if asked.after.is_none() {
            problems.push(FieldProblem::new("/cursor", "is no `next_cursor` of this very request"));
        }
    }
    Some(asked)
}

/// What was found of one job.
struct Found {
    summary: Summary,
    named: Vec<Value>,
    is_cut: bool,
    requeued: u64,
    refused: Option<String>,
}

async fn over_jobs(api: &Api, caller: &Caller, asked: &Asked, requeues: bool) -> Result<Response, Problem> {
    let tenant = caller.tenant()?;
    let listing = asked.listing(tenant);
    let steering = &api.ports.control.steering().await?;
    let of = JobsUnder { tenant: tenant.to_owned(), prefix: asked.prefix.clone() };
    let ends_at = api.clock.monotonic() + LONGEST_CALL;
    let mut total = Totals::default();
    let mut after = asked.after.clone();
    if asked.is_one_job() {
        let job = find(api, &key_of(caller, &asked.prefix)?).await?;
        match look_at(api, steering, &job, asked, requeues).await? {
            Some(found) => total.add(&job.spec.key, found),
            None => total.unreadable += 1,
        }
        after = None;
    } else {
        loop {
            let page = api.ports.jobs.list(&of, after, PAGE).await?;
            let living = page.jobs.into_iter().filter(|(_, read)| read.job().is_none_or(|job| !job.is_erased));
            let one = |(key, read): (JobKey, JobRead)| async move {
                match read {
                    JobRead::Job(job) => look_at(api, steering, &job, asked, requeues).await.map(|found| (key, found)),
                    JobRead::Unreadable(_) => Ok::<_, Problem>((key, None)),
                }
            };
            let mut found = stream::iter(living.map(one)).buffered(JOBS_AT_ONCE);
            while let Some(found) = found.next().await {
                match found? {
                    (key, Some(found)) => total.add(&key, found),
                    (_, None) => total.unreadable += 1,
                }
            }
            drop(found);
            after = page.next;
            if after.is_none() || total.named.len() >= MOST_NAMED || api.clock.monotonic() >= ends_at {
                break;
            }
        }
    }
    let mut shown = json!({
        "from": instant(asked.span.from), "to": instant(asked.span.to), "grace_s": asked.span.grace.as_secs(),
        "jobs": total.jobs, "unreadable": total.unreadable, "summary": summary_json(&total.summary),
        "items": total.named, "items_cut": total.is_cut,
        "next_cursor": after.map(|token| ask::cursor(&listing, &token)),
    });
    if requeues {
        shown["requeued"] = json!(total.requeued);
        shown["refused"] = json!(total.refused);
    }
    Ok(answer(StatusCode::OK, &shown))
}

#[derive(Default)]
struct Totals {
    jobs: u64,
    unreadable: u64,
    summary: Summary,
    named: Vec<Value>,
    is_cut: bool,
    requeued: u64,
    refused: Vec<Value>,
}

impl Totals {
    fn add(&mut self, key: &JobKey, found: Found) {
        self.jobs += 1;
        self.summary.add(&found.summary);
        self.named.extend(found.named);
        self.is_cut |= found.is_cut;
        self.requeued += found.requeued;
        self.refused.extend(found.refused.map(|detail| json!({"id": key.id(), "detail": detail})));
    }
}

async fn look_at(
    api: &Api,
    steering: &Steering,
    job: &Job,
    asked: &Asked,
    requeues: bool,
) -> Result<Option<Found>, Problem> {
    let (mut named, mut missing, mut is_cut) = (Vec::new(), Vec::new(), false);
    let id = job.spec.key.id();
    let mut tell = |one: &Instant| {
        if one.standing == Standing::Missing && requeues && missing.len() < MOST_REQUEUED_OF_A_JOB {
            missing.push(one.scheduled_at);
        }
        if asked.shows(&one.standing) {
            match named.len() < MOST_NAMED_OF_A_JOB {
                true => named.push(instant_json(id, one)),
                false => is_cut = true,
            }
        }
    };
    let audited = audit_job(&api.ports, asked.now, &api.zones, steering, job, asked.span, &mut tell).await;
    let summary = match audited {
        Ok(summary) => summary,
        Err(OperationError::Unreadable(key, reason)) => {
            tracing::error!(job.id = key, reason, "a former version of a job cannot be read: it is not audited");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = Found { summary, named, is_cut, requeued: 0, refused: None };
    if !missing.is_empty() {
        match requeue(&api.ports, &*api.clock, job, &missing).await {
            Ok(sent) => found.requeued = sent,
            Err(OperationError::NotAllowed(_, error)) => found.refused = Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(found))
}

fn instant_json(id: &str, one: &Instant) -> Value {
    let (standing, reason, replayed) = words(&one.standing);
    json!({
        "job": id, "run": one.scheduled_at.timestamp().to_string(), "scheduled_at": instant(one.scheduled_at),
        "due_at": instant(one.due_at), "standing": standing, "reason": reason, "replayed": replayed,
    })
}

/// How an instant stands, why, and what became of its replay.
fn words(standing: &Standing) -> (&'static str, Option<&'static str>, Option<&'static str>) {
    match standing {
        Standing::Row { status, reason, replayed } => (
            status.as_str(),
            reason.map(punctual_core::run::SkipReason::as_str),
            replayed.map(punctual_core::run::RunStatus::as_str),
        ),
        Standing::Cancelled => ("skipped", Some("cancelled"), None),
        Standing::Open(open) => ("open", Some(open.as_str()), None),
        Standing::Missing => ("missing", None, None),
    }
}

fn summary_json(summary: &Summary) -> Value {
    let open: serde_json::Map<String, Value> =
        summary.open.iter().map(|(open, count)| (open.as_str().to_owned(), json!(count))).collect();
    json!({
        "due": summary.due, "succeeded": summary.succeeded, "failed": summary.failed, "skipped": summary.skipped,
        "dead": summary.dead, "indeterminate": summary.indeterminate, "open": open, "missing": summary.missing,
        "replayed": summary.replayed, "beside": summary.beside,
    })
}

/// Enqueues one run of a job's timetable again, if it was due and nothing shows what became of it.
pub(super) async fn requeue_run(
    api: &Api,
    caller: &Caller,
    id: &str,
    run: &str,
    request: Request,
) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    if ask::optional_json(request).await?.is_some_and(|body| body.as_object().is_none_or(|body| !body.is_empty())) {
        return Err(Problem::fields(vec![FieldProblem::new("", "nothing is read here: send no body")]));
    }
    let run = run_of(caller, id, run)?;
    let job = find(api, &run.job_key).await?;
    let not_scheduled = || Problem::conflict("not-scheduled", "the run is by hand or a replay: ask for it again there");
    let at = scheduled_instant(&run.run_key).ok_or_else(not_scheduled)?;
    let steering = api.ports.control.steering().await?;
    let span = Span { from: at, to: at + TimeDelta::seconds(1), grace: Duration::ZERO };
    let mut standing = None;
    let mut tell = |one: &Instant| standing = Some(one.standing);
    audit_job(&api.ports, api.now(), &api.zones, &steering, &job, span, &mut tell).await?;
    let why_not = match standing {
        None => "the job's timetable had no firing then, or it lies ahead, or too long ago".to_owned(),
        Some(Standing::Missing | Standing::Open(Open::Queued)) => {
            requeue(&api.ports, &*api.clock, &job, &[at]).await?;
            let shown = json!({
                "run_id": run.to_string(), "run": run.run_key.as_str(), "job": view::job(api, caller, &job),
                "next_run_at": job.next_scheduled_at.map(instant),
            });
            return Ok(answer(StatusCode::ACCEPTED, &shown));
        }
        Some(Standing::Open(open)) => format!("it is open ({}): it needs no second message", open.as_str()),
        Some(standing) => format!("it is {} already", words(&standing).0),
    };
    Err(Problem::conflict("not-missing", why_not))
}

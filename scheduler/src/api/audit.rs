//! The audit by the API: what was due by the calendar, held against the rows; and what is missing, enqueued again.
//!
//! A call goes over the jobs of a tenant, of a prefix, or one; it ends after a while, in the middle of a job if need be, and
//! gives a cursor to go on from.

mod place;

use super::ask::{self, Query, answer, none_wrong};
use super::fields::Fields;
use super::gate::Caller;
use super::jobs::{find, key_of};
use super::problem::{FieldProblem, Problem};
use super::runs::run_of;
use super::state::Api;
use super::view;
use crate::listing::instant;
use crate::operations::{OperationError, Sources, Span, audit_job, requeue, scheduled_instant};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use place::Place;
use punctual_core::audit::{Instant, Open, Standing, Summary};
use punctual_core::job::{Job, JobKey, RETENTION};
use punctual_core::ports::{JobRead, JobsUnder, PageToken};
use punctual_core::schedule::parse_instant;
use punctual_core::steering::Steering;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
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
/// Instants of one job from which on a call that enqueues them again looks no further.
const ENOUGH_MISSING_OF_A_JOB: usize = 5_000;
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

/// The first and the last instant, as far as they are given.
type Given = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// What is asked.
struct Asked {
    prefix: String,
    span: Span,
    shown: Shown,
    place: Place,
    now: DateTime<Utc>,
}

const NO_CURSOR: &str = "is no `next_cursor` of this very request: begin without one";

const FIELDS: [&str; 6] = ["prefix", "from", "to", "grace_s", "show", "cursor"];

impl Asked {
    /// What is asked of the last day.
    fn of(prefix: &str, grace_s: u32, now: DateTime<Utc>) -> Result<Self, (&'static str, String)> {
        let is_prefix = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
        if prefix.len() > 128 || !is_prefix || prefix.starts_with('/') {
            return Err(("prefix", "is an id, or the beginning of ids and ends at `/`".into()));
        }
        let span = Span { from: now - TimeDelta::days(1), to: now, grace: Duration::from_secs(grace_s.into()) };
        Ok(Asked { prefix: prefix.to_owned(), span, shown: Shown::Missing, place: Place::default(), now })
    }

    /// Begins with this span, as far as it is given: older rows are gone, and nothing is known of them.
    fn begin(&mut self, (from, to): Given) -> Result<(), (&'static str, String)> {
        let retention = TimeDelta::from_std(RETENTION).unwrap_or(TimeDelta::MAX);
        let oldest = self.now - retention;
        let (from, to) = (from.unwrap_or(self.span.from), to.unwrap_or(self.span.to));
        if from < oldest {
            let (days, oldest) = (retention.num_days(), instant(oldest));
            return Err(("from", format!("rows are kept for {days} days: nothing is known before {oldest}")));
        }
        if to <= from {
            return Err(("to", "lies not behind `from`".into()));
        }
        (self.span.from, self.span.to) = (from, to);
        Ok(())
    }

    /// Goes on where a call ended, over the span of the first call. None where another span is given.
    fn go_on(&mut self, token: &PageToken, given: Given) -> Option<()> {
        let place = Place::read(token)?;
        let (from, to) = place.span?;
        if given.0.is_some_and(|given| given != from) || given.1.is_some_and(|given| given != to) {
            return None;
        }
        (self.span.from, self.span.to, self.place) = (from, to, place);
        Some(())
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
    let given = (query.instant("from")?, query.instant("to")?);
    let wrong = |(name, problem)| Problem::fields(vec![FieldProblem::new(name, problem)]);
    let mut asked = Asked::of(query.text("prefix").unwrap_or_default(), grace, api.now()).map_err(wrong)?;
    let shown = query.one_of("show", &["missing", "problems", "all"])?;
    asked.shown = shown.and_then(shown_of).unwrap_or(Shown::Missing);
    match query.cursor(&asked.listing(caller.tenant()?))? {
        Some(token) => asked.go_on(&token, given).ok_or_else(|| Problem::parameter("cursor", NO_CURSOR))?,
        None => asked.begin(given).map_err(wrong)?,
    }
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
    let cursor = fields.text("cursor", problems);
    let mut wrong = |(name, problem): (&str, String)| problems.push(FieldProblem::new(fields.at(name), problem));
    let mut asked = Asked::of(prefix, grace, now).map_err(&mut wrong).ok()?;
    match cursor {
        None => asked.begin((from, to)).map_err(&mut wrong).ok()?,
        Some(cursor) => {
            let token = ask::read_cursor(&asked.listing(tenant), cursor);
            let goes_on = token.and_then(|token| asked.go_on(&token, (from, to)));
            goes_on.ok_or(("cursor", NO_CURSOR.to_owned())).map_err(&mut wrong).ok()?;
        }
    }
    Some(asked)
}

/// What was found of one job.
struct Found {
    summary: Summary,
    /// The first instant that there was no time for.
    left_from: Option<DateTime<Utc>>,
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
    let is_over = || api.clock.monotonic() >= ends_at;
    let call = Call { api, steering, asked, requeues, is_over: &is_over };
    let mut total = Totals::default();
    // Where the next call begins.
    let span = Some((asked.span.from, asked.span.to));
    let mut next: Option<Place> = None;
    if asked.is_one_job() {
        let job = find(api, &key_of(caller, &asked.prefix)?).await?;
        let key = &job.spec.key;
        if let Some(left_from) = total.add(key, call.look_at(&job).await?) {
            next = Some(Place { span, left: [(key.id().to_owned(), left_from)].into(), ..Place::default() });
        }
    } else {
        let mut page = asked.place.page.clone().map(PageToken);
        loop {
            let listed = api.ports.jobs.list(&of, page.clone(), PAGE).await?;
            let living = listed.jobs.into_iter().filter(|(_, read)| read.job().is_none_or(|job| !job.is_erased));
            let one = |(key, read): (JobKey, JobRead)| async move {
                match read {
                    JobRead::Job(job) => call.look_at(&job).await.map(|found| (key, found)),
                    JobRead::Unreadable(_) if asked.place.done.contains(key.id()) => Ok((key, Looked::Done)),
                    JobRead::Unreadable(_) => Ok::<_, Problem>((key, Looked::Unreadable)),
                }
            };
            let mut found = stream::iter(living.map(one)).buffered(JOBS_AT_ONCE);
            let page_text = page.map(|page| page.0);
            let mut place = match page_text == asked.place.page {
                true => Place { span, ..asked.place.clone() },
                false => Place { span, page: page_text, ..Place::default() },
            };
            let mut is_left = false;
            while let Some(found) = found.next().await {
                let (key, found) = found?;
                let id = key.id().to_owned();
                match total.add(&key, found) {
                    Some(left_from) => {
                        is_left = true;
                        place.left.insert(id, left_from);
                    }
                    None => {
                        place.left.remove(&id);
                        place.done.insert(id);
                    }
                }
            }
            drop(found);
            page = listed.next;
            if is_left {
                next = Some(place);
                break;
            }
            if page.is_none() {
                break;
            }
            if total.named.len() >= MOST_NAMED || is_over() {
                next = Some(Place { span, page: page.map(|page| page.0), ..Place::default() });
                break;
            }
        }
    }
    let mut shown = json!({
        "from": instant(asked.span.from), "to": instant(asked.span.to), "grace_s": asked.span.grace.as_secs(),
        "jobs": total.jobs, "unreadable": total.unreadable, "summary": summary_json(&total.summary),
        "items": total.named, "items_cut": total.is_cut,
        "next_cursor": next.map(|place| ask::cursor(&listing, &place.token())),
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

/// What came of looking at one job.
enum Looked {
    /// It was looked at.
    Found(Box<Found>),
    /// It, a former version of it or one of its rows cannot be read.
    Unreadable,
    /// A call before this one did.
    Done,
}

impl Totals {
    /// Counts one job; returns from which instant on there was no time for it.
    fn add(&mut self, key: &JobKey, looked: Looked) -> Option<DateTime<Utc>> {
        let found = match looked {
            Looked::Done => return None,
            Looked::Unreadable => {
                self.unreadable += 1;
                return None;
            }
            Looked::Found(found) => found,
        };
        // A job over which several calls go counts in the last of them.
        self.jobs += u64::from(found.left_from.is_none());
        self.summary.add(&found.summary);
        self.named.extend(found.named);
        self.is_cut |= found.is_cut;
        self.requeued += found.requeued;
        self.refused.extend(found.refused.map(|detail| json!({"id": key.id(), "detail": detail})));
        found.left_from
    }
}

/// What a call asks of each job.
#[derive(Clone, Copy)]
struct Call<'a> {
    api: &'a Api,
    steering: &'a Steering,
    asked: &'a Asked,
    requeues: bool,
    is_over: &'a (dyn Fn() -> bool + Sync),
}

impl Call<'_> {
    async fn look_at(&self, job: &Job) -> Result<Looked, Problem> {
        let Call { api, steering, asked, requeues, is_over } = *self;
        let Some(from) = asked.place.from(job.spec.key.id(), asked.span.from) else { return Ok(Looked::Done) };
        let (mut named, mut missing, mut is_cut) = (Vec::new(), Vec::new(), false);
        let id = job.spec.key.id();
        // What is to be enqueued again is in memory: behind the step that finds enough, the next call goes on.
        let is_enough = AtomicBool::new(false);
        let is_over = || is_over() || is_enough.load(Ordering::Relaxed);
        let mut tell = |one: &Instant| {
            if one.standing == Standing::Missing && requeues {
                missing.push(one.scheduled_at);
                is_enough.store(missing.len() >= ENOUGH_MISSING_OF_A_JOB, Ordering::Relaxed);
            }
            if asked.shows(&one.standing) {
                match named.len() < MOST_NAMED_OF_A_JOB {
                    true => named.push(instant_json(id, one)),
                    false => is_cut = true,
                }
            }
        };
        let (ports, zones, is_over) = (&api.ports, &*api.zones, &is_over);
        let sources = Sources { ports, now: asked.now, zones, steering, is_over };
        let (summary, left_from) = match audit_job(sources, job, Span { from, ..asked.span }, &mut tell).await {
            Ok(audited) => (audited.summary, audited.left_from),
            Err(OperationError::Unreadable(what, reason) | OperationError::UnreadableRun(what, reason)) => {
                tracing::error!(job.id = %job.spec.key, what, reason, "not all of a job can be read: it is not audited");
                return Ok(Looked::Unreadable);
            }
            Err(error) => return Err(error.into()),
        };
        let mut found = Found { summary, left_from, named, is_cut, requeued: 0, refused: None };
        if !missing.is_empty() {
            match requeue(&api.ports, &*api.clock, job, &missing).await {
                Ok(sent) => found.requeued = sent,
                Err(OperationError::NotAllowed(_, error)) => found.refused = Some(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Looked::Found(Box::new(found)))
    }
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
    let sources =
        Sources { ports: &api.ports, now: api.now(), zones: &api.zones, steering: &steering, is_over: &|| false };
    audit_job(sources, &job, span, &mut tell).await?;
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

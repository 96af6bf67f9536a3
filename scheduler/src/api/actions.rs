//! Pause, resume, cancel, release and run: of one job by its id, or of all under a prefix that ends at `/`.
//!
//! A call on a prefix does what the index lists, page by page, and looks once more for what was being made meanwhile. It
//! says what came of it; where there is more than one call should do, it gives a cursor to go on from.

use super::ask::{self, Conditions, Query, answer};
use super::gate::Caller;
use super::jobs::{IDEMPOTENCY_KEY, changed, key_of, no_job};
use super::problem::Problem;
use super::state::Api;
use super::view;
use crate::listing::instant;
use crate::operations::{OperationError, Outcome, RunNow, change_job, run_now};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use futures::stream::{self, StreamExt};
use punctual_core::job::{Change, ChangeError, JobKey, JobState};
use punctual_core::ports::{JobRead, JobsUnder, PageToken};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// Jobs of a prefix that one call works on; a cursor leads to the others.
const MOST_AT_ONCE: usize = 10_000;
/// A call ends after this time, and gives a cursor.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// Keys listed at a time.
const PAGE: usize = 200;
/// Jobs being changed at the same time.
const WRITES_AT_ONCE: usize = 32;
/// Time between the two looks: the index shows what was written mostly within this.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(500);
/// Jobs that an answer names one by one.
const MOST_NAMED: usize = 100;

/// What is done to jobs.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A change of the jobs.
    Change(Change),
    /// A run besides the timetable.
    Run,
}

/// Does something to a job, or to all under a prefix.
pub(super) async fn act(
    api: &Api,
    caller: &Caller,
    id: &str,
    action: Action,
    request: Request,
) -> Result<Response, Problem> {
    let is_prefix = id.ends_with('/');
    let query = Query::of(&request, if is_prefix { &["cursor"] } else { &[] })?;
    let conditions = Conditions::of(request.headers())?;
    let idempotency_key = ask::header(request.headers(), &IDEMPOTENCY_KEY)?.map(str::to_owned);
    let listing = format!("act/{}/{id}", caller.tenant()?);
    let cursor = query.cursor(&listing)?;
    if let Some(body) = ask::optional_json(request).await?
        && body.as_object().is_none_or(|body| !body.is_empty())
    {
        return Err(Problem::fields(vec![super::problem::FieldProblem::new("", "nothing is read here: send no body")]));
    }
    if is_prefix {
        if conditions.version.is_some() {
            return Err(Problem::parameter("if-match", "goes with one job, not with a prefix"));
        }
        let of = JobsUnder { tenant: caller.tenant()?.to_owned(), prefix: id.to_owned() };
        // What no id begins with is a prefix of nothing.
        key_of(caller, &format!("{id}x"))?;
        let key = idempotency_key.as_deref();
        if matches!(action, Action::Run) && key.is_none() {
            let detail = "is needed for a prefix: it makes a repeat of the call run each job once";
            return Err(Problem::parameter(IDEMPOTENCY_KEY.as_str(), detail));
        }
        return all_under(api, caller, &of, &action, key, cursor, &listing).await;
    }
    let key = key_of(caller, id)?;
    match action {
        Action::Change(change) => {
            let shards = api.shards().await?;
            let world = api.timetable(&shards);
            let version = conditions.version;
            let outcome = change_job(&*api.ports.jobs, &*api.clock, &world, &key, &change, version, &caller.by).await?;
            changed(api, caller, &key, outcome)
        }
        Action::Run => {
            let job = super::jobs::find(api, &key).await?;
            if conditions.version.is_some_and(|version| version != job.version) {
                return Err(Problem::changed(job.version));
            }
            match run_now(&api.ports, &*api.clock, &api.zones, &key, idempotency_key.as_deref(), caller.trace).await? {
                RunNow::Missing => Err(no_job(&key)),
                RunNow::Enqueued(run) => {
                    let shown = json!({
                        "run_id": run.to_string(), "run": run.run_key.as_str(), "job": view::job(api, caller, &job),
                        "next_run_at": job.next_scheduled_at.map(instant),
                    });
                    Ok(answer(StatusCode::ACCEPTED, &shown))
                }
            }
        }
    }
}

/// What came of one job of many.
enum Done {
    Changed,
    Same,
    Refused(String),
}

/// Counts what came of jobs, and names some that were refused.
#[derive(Default)]
struct Tally {
    changed: u64,
    unchanged: u64,
    refused: u64,
    named: Vec<Value>,
}

impl Tally {
    fn add(&mut self, key: &JobKey, done: Done) {
        match done {
            Done::Changed => self.changed += 1,
            Done::Same => self.unchanged += 1,
            Done::Refused(why) => {
                self.refused += 1;
                if self.named.len() < MOST_NAMED {
                    self.named.push(json!({"id": key.id(), "detail": why}));
                }
            }
        }
    }
}

async fn all_under(
    api: &Api,
    caller: &Caller,
    of: &JobsUnder,
    action: &Action,
    idempotency_key: Option<&str>,
    began_at: Option<PageToken>,
    listing: &str,
) -> Result<Response, Problem> {
    let shards = api.shards().await?;
    let world = api.timetable(&shards);
    let world = &world;
    let mut tally = Tally::default();
    let (mut after, mut is_second_look) = (began_at.clone(), false);
    let mut seen = HashSet::new();
    let ends_at = api.clock.monotonic() + LONGEST_CALL;
    loop {
        let page = api.ports.jobs.list(of, after.clone(), PAGE).await?;
        // On the second look only what is new counts: all else stands as the first one left it.
        let new = page.jobs.into_iter().filter(|(key, _)| !seen.contains(key)).collect::<Vec<_>>();
        seen.extend(new.iter().map(|(key, _)| key.clone()));
        let one = |(key, read): (JobKey, JobRead)| async move {
            let done = do_one(api, caller, world, &key, &read, action, idempotency_key).await;
            done.map(|done| (key, done))
        };
        let mut done = stream::iter(new.into_iter().map(one)).buffer_unordered(WRITES_AT_ONCE);
        while let Some(one) = done.next().await {
            if let (key, Some(one)) = one? {
                tally.add(&key, one);
            }
        }
        after = page.next;
        let is_enough = seen.len() >= MOST_AT_ONCE || api.clock.monotonic() >= ends_at;
        if after.is_some() && is_enough || after.is_none() && is_second_look {
            break;
        }
        if after.is_none() {
            // The index lags, and jobs may have been made while it was read.
            is_second_look = true;
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            after = began_at.clone();
        }
    }
    Ok(answer(
        StatusCode::OK,
        &json!({
            "prefix": of.prefix, "changed": tally.changed, "unchanged": tally.unchanged, "refused": tally.refused,
            "problems": tally.named, "next_cursor": after.map(|after| ask::cursor(listing, &after)),
        }),
    ))
}

/// Does it to one; none where there is nothing that it could be done to.
async fn do_one(
    api: &Api,
    caller: &Caller,
    world: &punctual_core::job::Timetable<'_>,
    key: &JobKey,
    read: &JobRead,
    action: &Action,
    idempotency_key: Option<&str>,
) -> Result<Option<Done>, Problem> {
    let JobRead::Job(job) = read else {
        return Ok(Some(Done::Refused("the job cannot be read by this version".into())));
    };
    // What ended is not concerned: a pause of a prefix is about what runs.
    let has_ended = job.is_erased || job.state == JobState::Cancelled;
    let is_cancel = matches!(action, Action::Change(Change::Cancel));
    if has_ended || (job.state == JobState::Done && !is_cancel && !matches!(action, Action::Change(Change::Pause))) {
        return Ok(None);
    }
    let done = match action {
        Action::Change(change) => {
            let jobs = &*api.ports.jobs;
            match change_job(jobs, &*api.clock, world, key, change, None, &caller.by).await {
                Ok(Outcome::Changed(_)) => Done::Changed,
                Ok(Outcome::Same(_)) => Done::Same,
                Ok(Outcome::Missing | Outcome::Conflict { .. }) => return Ok(None),
                Err(error) => refused(error)?,
            }
        }
        Action::Run => match run_now(&api.ports, &*api.clock, &api.zones, key, idempotency_key, caller.trace).await {
            Ok(RunNow::Enqueued(_)) => Done::Changed,
            Ok(RunNow::Missing) => return Ok(None),
            Err(error) => refused(error)?,
        },
    };
    Ok(Some(done))
}

/// Why one job was refused; what is no matter of the job ends the call.
fn refused(error: OperationError) -> Result<Done, Problem> {
    match error {
        OperationError::NotAllowed(_, error @ ChangeError::State { .. }) => Ok(Done::Refused(error.to_string())),
        OperationError::NotAllowed(_, error) => Ok(Done::Refused(error.to_string())),
        OperationError::Unreadable(..) => Ok(Done::Refused("the job cannot be read by this version".into())),
        OperationError::Input(_, problem) => Ok(Done::Refused(problem)),
        error @ OperationError::Busy(_) => Ok(Done::Refused(error.to_string())),
        error => Err(error.into()),
    }
}

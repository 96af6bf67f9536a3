//! Jobs by the API: made, shown, changed, ended.

use super::ask::{self, Conditions, MERGE_PATCH, Query, answer, versioned};
use super::document::{self, Reading};
use super::gate::Caller;
use super::problem::{FieldProblem, Problem};
use super::state::Api;
use super::view;
use crate::operations::{
    Created, Expected, OperationError, Outcome, Upsert, change_job, create_job_for, edit_job, put_job,
};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HeaderName, HeaderValue, LOCATION};
use axum::response::Response;
use chrono::TimeDelta;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use punctual_core::job::{Change, Job, JobKey, JobSpec, JobState};
use punctual_core::ports::{JobRead, JobsUnder, PageToken};
use punctual_core::process::random_token;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Mutex, PoisonError};

/// The header that makes a repeat of a request the same request.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest of its values, in bytes.
const LONGEST_IDEMPOTENCY_KEY_BYTES: usize = 255;
/// For how long a repeat is told for one.
const REQUEST_KEPT: TimeDelta = TimeDelta::days(7);
/// Says that the answer is to a repeat.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// An id that would be taken for a word of the API.
const TAKEN_ID: &str = "import";
/// Pages of the store that one page of the API looks through for what was asked for.
const PAGES_LOOKED_THROUGH: usize = 20;
/// Jobs of one page of the store: with 16 KiB of quotes each, 3.2 MB as a function answers them.
const JOBS_OF_A_READ: usize = 50;
/// A page that holds so many bytes takes no more: a Lambda function answers 6 MB at most.
pub(super) const PAGE_BYTES: usize = 2_000_000;

/// Makes a job.
pub(super) async fn create(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    let tenant = caller.tenant()?;
    Query::of(&request, &[])?;
    let idempotency_key = idempotency_key(&request)?;
    let body = ask::json(request, None).await?;
    let given = body.get("id").and_then(Value::as_str).map(str::to_owned);
    let id = given.unwrap_or_else(|| format!("j-{}", random_token()));
    let reading = Reading { tenant, now: api.now(), zones: &api.zones, allowed: &api.allowed, old: None };
    let mut spec = read_new(&body, &id, &reading)?;
    let mut made_for = None;
    // Only what can be made uses a key up: a request that was refused may be mended and sent again.
    if let Some(key) = idempotency_key {
        let (first_id, token) = first_asked(api, tenant, &key, &body, &id).await?;
        if first_id != id {
            spec = read_new(&body, &first_id, &reading)?;
        }
        made_for = Some(token);
    }
    let (shards, jobs) = (api.shards().await?, &*api.ports.jobs);
    let world = api.timetable(&shards);
    let key = spec.key.clone();
    match create_job_for(jobs, &*api.clock, &world, spec, made_for.as_deref(), &caller.by).await? {
        Created::New(job) => {
            Ok(located(versioned(StatusCode::CREATED, job.version, &view::job(api, caller, &job)), &job))
        }
        Created::Before(job) => {
            let response = versioned(StatusCode::CREATED, job.version, &view::job(api, caller, &job));
            let mut response = located(response, &job);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Created::Same(job) => Ok(located(versioned(StatusCode::OK, job.version, &view::job(api, caller, &job)), &job)),
        Created::Different => {
            let detail =
                format!("job {} is there already, with another content: change it, or take another id", key.id());
            Err(Problem::conflict("job-exists", detail))
        }
        Created::Erased => {
            let detail = "the job that this idempotency key made was deleted since: take another key to make one anew";
            Err(Problem::conflict("job-erased", detail))
        }
        Created::Over => Err(over()),
    }
}

/// Reads a document under an id that the API can name.
pub(super) fn read_new(body: &Value, id: &str, reading: &Reading<'_>) -> Result<JobSpec, Problem> {
    if let Some(problem) = unreachable_id(id) {
        return Err(Problem::fields(vec![FieldProblem::new("/id", problem)]));
    }
    document::read(body, id, reading).map_err(Problem::fields)
}

/// Why an id could not be reached by an address.
pub(super) fn unreachable_id(id: &str) -> Option<String> {
    if id == TAKEN_ID {
        return Some(format!("`{TAKEN_ID}` is a word of the API: choose another id"));
    }
    let is_dots = |part: &str| part == "." || part == "..";
    id.split('/').any(is_dots).then(|| "a part of an id cannot be `.` or `..`: addresses leave them out".into())
}

fn over() -> Problem {
    let detail = "has no firing left: its time is over, its bounds leave none, or a clock change skips it";
    Problem::fields(vec![FieldProblem::new("/schedule", detail).hint("the job was not made; give a time to come")])
}

fn idempotency_key(request: &Request) -> Result<Option<String>, Problem> {
    let Some(key) = ask::header(request.headers(), &IDEMPOTENCY_KEY)? else { return Ok(None) };
    if !(1..=LONGEST_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) {
        let detail = format!("has {} bytes: 1 to {LONGEST_IDEMPOTENCY_KEY_BYTES} are allowed", key.len());
        return Err(Problem::parameter(IDEMPOTENCY_KEY.as_str(), detail));
    }
    Ok(Some(key.to_owned()))
}

/// The id for which the first request with this key asked, and the key's token. What is kept of a request comes before the
/// job: a repeat after a crash in between makes the same job.
async fn first_asked(api: &Api, tenant: &str, key: &str, body: &Value, id: &str) -> Result<(String, String), Problem> {
    let token = digest(&["create-job/v1", tenant, key]);
    let asked = format!("{} {id}", digest(&[&canonical(body)]));
    let kept = api.ports.control.once(&format!("create/{token}"), &asked, api.now() + REQUEST_KEPT).await?;
    match (kept.split_once(' '), asked.split_once(' ')) {
        (Some((first, id)), Some((now, _))) if first == now => Ok((id.to_owned(), token)),
        _ => {
            let detail = "this idempotency key belongs to a request with another body: take another key";
            Err(Problem::conflict("idempotency-key-reused", detail))
        }
    }
}

fn digest(parts: &[&str]) -> String {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part).chain_update("\0"));
    digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON as text, with the names of each object in order: the same for bodies that say the same.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<_> = object.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.into_iter().map(|(name, value)| format!("{}:{}", json!(name), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(array) => format!("[{}]", array.iter().map(canonical).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// What is written as it is in a part of an address.
const PART: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'/').add(b'<').add(b'>').add(b'?');

/// The address of a job.
pub fn path_of(id: &str) -> String {
    format!("/v1/jobs/{}", utf8_percent_encode(id, PART))
}

fn located(mut response: Response, job: &Job) -> Response {
    if let Ok(path) = HeaderValue::from_str(&path_of(job.spec.key.id())) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Reads one job; none where it was erased.
pub(super) async fn find(api: &Api, key: &JobKey) -> Result<Box<Job>, Problem> {
    let found = api.ports.jobs.get_many(std::slice::from_ref(key)).await?.remove(key);
    match found {
        Some(JobRead::Job(job)) if !job.is_erased => Ok(job),
        Some(JobRead::Unreadable(reason)) => Err(OperationError::Unreadable(key.to_string(), reason).into()),
        _ => Err(no_job(key)),
    }
}

pub(super) fn no_job(key: &JobKey) -> Problem {
    Problem::missing(format!("there is no job {}", key.id()))
}

/// The key of the job that an address names.
pub(super) fn key_of(caller: &Caller, id: &str) -> Result<JobKey, Problem> {
    let tenant = caller.tenant()?;
    // What cannot be an id is none that is there.
    JobKey::new(tenant, id).map_err(|problem| Problem::missing(format!("there is no such job: {problem}")))
}

/// Shows a job.
pub(super) async fn get(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let job = find(api, &key_of(caller, id)?).await?;
    Ok(versioned(StatusCode::OK, job.version, &view::job(api, caller, &job)))
}

/// Lists jobs.
pub(super) async fn list(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &["prefix", "state", "limit", "cursor"])?;
    let states = [JobState::Active, JobState::Paused, JobState::Done, JobState::Cancelled, JobState::Quarantined];
    let state = query.one_of("state", &states.map(JobState::as_str))?;
    let prefix = query.text("prefix").unwrap_or_default();
    check_prefix(prefix)?;
    let of = JobsUnder { tenant: caller.tenant()?.to_owned(), prefix: prefix.to_owned() };
    let listing = format!("jobs/{}/{prefix}", of.tenant);
    let (limit, mut after) = (query.limit()?, query.cursor(&listing)?);
    let (mut shown, mut bytes) = (Vec::new(), 0);
    // The index is in parts, and a filter may leave little of each: a page goes on over a few of them, not for ever.
    for _ in 0..PAGES_LOOKED_THROUGH {
        let page = api.ports.jobs.list(&of, after, (limit - shown.len()).min(JOBS_OF_A_READ)).await?;
        let wanted = page.jobs.into_iter().filter(|(_, read)| match read {
            JobRead::Job(job) => !job.is_erased && state.is_none_or(|state| state == job.state.as_str()),
            JobRead::Unreadable(_) => state.is_none(),
        });
        let wanted = wanted.map(|(key, read)| view::read(api, caller, &key, &read));
        shown.extend(wanted.inspect(|job| bytes += ask::length_in_answer(job)));
        after = page.next;
        if after.is_none() || shown.len() >= limit || bytes >= PAGE_BYTES {
            break;
        }
    }
    Ok(answer(StatusCode::OK, &page(shown, &listing, after.as_ref())))
}

fn check_prefix(prefix: &str) -> Result<(), Problem> {
    let is_id = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    if prefix.len() > 128 || !is_id(prefix) || prefix.starts_with('/') {
        return Err(Problem::parameter("prefix", "is the beginning of an id: letters, digits and `._/-`, 128 at most"));
    }
    Ok(())
}

/// A page of a listing.
pub(super) fn page(items: Vec<Value>, listing: &str, next: Option<&PageToken>) -> Value {
    json!({"items": items, "next_cursor": next.map(|token| ask::cursor(listing, token))})
}

/// Makes a job, or makes it what is said.
pub(super) async fn put(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let conditions = Conditions::of(request.headers())?;
    let body = ask::json(request, None).await?;
    if let Some(problem) = unreachable_id(id) {
        return Err(Problem::fields(vec![FieldProblem::new("/id", problem)]));
    }
    let tenant = caller.tenant()?;
    let key = JobKey::new(tenant, id).map_err(|problem| Problem::fields(vec![FieldProblem::new("/id", problem)]))?;
    let expected =
        Expected { version: conditions.version, is_there: conditions.must_exist, is_new: conditions.must_be_new };
    let now = api.now();
    let wrong: Mutex<Vec<FieldProblem>> = Mutex::default();
    let spec = |old: Option<&JobSpec>| {
        let reading = Reading { tenant, now, zones: &api.zones, allowed: &api.allowed, old };
        document::read(&body, id, &reading).map_err(|problems| noted(&wrong, problems))
    };
    let shards = api.shards().await?;
    let world = api.timetable(&shards);
    let done = put_job(&*api.ports.jobs, &*api.clock, &world, &key, &spec, expected, &caller.by).await;
    let done = or_fields(done, wrong)?;
    match done {
        Upsert::Exists => Err(Problem::precondition(format!("job {id} is there already"))),
        Upsert::Created(job) => {
            Ok(located(versioned(StatusCode::CREATED, job.version, &view::job(api, caller, &job)), &job))
        }
        Upsert::Changed(job) | Upsert::Same(job) => {
            Ok(versioned(StatusCode::OK, job.version, &view::job(api, caller, &job)))
        }
        Upsert::Conflict { version: Some(version) } => Err(Problem::changed(version)),
        Upsert::Conflict { version: None } => Err(Problem::precondition(format!("job {id} is not there"))),
        Upsert::Over => Err(over()),
    }
}

/// Changes what is given of a job.
pub(super) async fn patch(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let conditions = Conditions::of(request.headers())?;
    let patch = ask::json(request, Some(MERGE_PATCH)).await?;
    if !patch.is_object() {
        return Err(Problem::fields(vec![FieldProblem::new("", "must be a JSON object")]));
    }
    // Also those that are null: merged, nothing would be left of them.
    let unknown = document::unknown_in(&patch);
    let key = key_of(caller, id)?;
    let now = api.now();
    let wrong: Mutex<Vec<FieldProblem>> = Mutex::default();
    let patched = |old: &JobSpec| {
        let document = document::merged(Value::Object(document::write(old)), &patch);
        let reading = Reading { tenant: key.tenant(), now, zones: &api.zones, allowed: &api.allowed, old: Some(old) };
        let mut problems = unknown.clone();
        match document::read(&document, id, &reading) {
            Ok(spec) if problems.is_empty() => return Ok(spec),
            Ok(_) => {}
            Err(others) => problems.extend(others.into_iter().filter(|other| !unknown.contains(other))),
        }
        Err(noted(&wrong, problems))
    };
    let shards = api.shards().await?;
    let world = api.timetable(&shards);
    let edited = edit_job(&*api.ports.jobs, &*api.clock, &world, &key, &patched, conditions.version, &caller.by).await;
    changed(api, caller, &key, or_fields(edited, wrong)?)
}

/// Keeps what is wrong with a document for the answer: operations know no fields.
fn noted(wrong: &Mutex<Vec<FieldProblem>>, problems: Vec<FieldProblem>) -> String {
    *wrong.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    String::new()
}

/// What came of an operation; where it failed by what was noted, that.
fn or_fields<T>(done: Result<T, OperationError>, wrong: Mutex<Vec<FieldProblem>>) -> Result<T, Problem> {
    let problems = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    match done {
        Err(OperationError::Input(..)) if !problems.is_empty() => Err(Problem::fields(problems)),
        done => Ok(done?),
    }
}

/// What came of a change, as an answer.
pub(super) fn changed(api: &Api, caller: &Caller, key: &JobKey, outcome: Outcome) -> Result<Response, Problem> {
    match outcome {
        Outcome::Changed(job) | Outcome::Same(job) => {
            Ok(versioned(StatusCode::OK, job.version, &view::job(api, caller, &job)))
        }
        Outcome::Conflict { version } => Err(Problem::changed(version)),
        Outcome::Missing => Err(no_job(key)),
    }
}

/// Ends a job and erases what it was to do.
pub(super) async fn delete(api: &Api, caller: &Caller, id: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let conditions = Conditions::of(request.headers())?;
    let key = key_of(caller, id)?;
    let shards = api.shards().await?;
    let world = api.timetable(&shards);
    let (jobs, version) = (&*api.ports.jobs, conditions.version);
    let erased = change_job(jobs, &*api.clock, &world, &key, &Change::Erase, version, &caller.by).await?;
    changed(api, caller, &key, erased)
}

//! Imports: a stream of lines, each a job's document, answered line by line.
//!
//! Each job is made, or made what its line says; a repeat of a line that was done changes nothing, so an import that was
//! cut off is simply sent again. A job that was cancelled or erased stays so: files know nothing of what ended since.
//! However long the stream is, only a few hundred lines of it are in memory.

use super::ask::{LONGEST_BODY_BYTES, Query, media_type};
use super::document::{self, Reading};
use super::gate::Caller;
use super::jobs::unreachable_id;
use super::problem::{FieldProblem, Problem};
use super::state::Api;
use crate::listing::instant;
use crate::operations::{Created, OperationError, Outcome, change_job, create_missing_job};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::Response;
use bytes::BytesMut;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use punctual_core::due::Shards;
use punctual_core::job::{Change, Job, JobKey, JobSpec, JobState, Timetable};
use punctual_core::ports::JobRead;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

/// What a stream of lines is sent as.
pub const NDJSON: &str = "application/x-ndjson";
/// Lines that are read and looked up together.
const BATCH: usize = 200;
/// Bytes of lines that are held together, roughly.
const BATCH_BYTES: usize = 1_024 * 1_024;
/// Jobs being written at the same time.
const WRITES_AT_ONCE: usize = 48;

/// Answers a stream of lines.
pub(super) async fn import(api: Arc<Api>, caller: &Caller, request: Request) -> Result<Response, Problem> {
    let query = Query::of(&request, &["dry_run"])?;
    let is_dry = query.flag("dry_run")?;
    let tenant = caller.tenant()?.to_owned();
    if media_type(request.headers()).as_deref() != Some(NDJSON) {
        return Err(Problem::media_type(NDJSON));
    }
    let shards = api.shards().await?;
    if !is_dry {
        api.clock.check().map_err(|off| OperationError::Clock("import".into(), off))?;
    }
    let import = Import { api, tenant, caller: caller.clone(), is_dry, shards };
    let lines = Lines {
        body: request.into_body().into_data_stream().boxed(),
        held: BytesMut::new(),
        looked_at: 0,
        number: 0,
        skips: false,
    };
    let mut response = Response::new(Body::from_stream(answers(import, lines)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

struct Import {
    api: Arc<Api>,
    tenant: String,
    caller: Caller,
    is_dry: bool,
    shards: Shards,
}

/// The answers to all lines, and what they come to.
fn answers(import: Import, lines: Lines) -> impl Stream<Item = Result<Bytes, Infallible>> {
    struct State {
        import: Import,
        lines: Lines,
        tally: BTreeMap<&'static str, u64>,
        has_ended: bool,
    }
    let state = State { import, lines, tally: BTreeMap::new(), has_ended: false };
    stream::unfold(state, |mut state| async move {
        if state.has_ended {
            return None;
        }
        let batch = state.lines.batch().await;
        let mut answers = Vec::new();
        let mut is_complete = !batch.is_cut;
        if !batch.lines.is_empty() {
            match state.import.take(&batch.lines).await {
                Ok(taken) => answers = taken,
                Err(problem) => {
                    let line = batch.lines.first().map(|line| line.number);
                    let detail = "this line and those that follow may not be done: send them again";
                    answers.push((
                        "failed",
                        json!({"line": line, "result": "failed", "detail": detail, "problem": problem.json()}),
                    ));
                    is_complete = false;
                }
            }
        }
        for (word, _) in &answers {
            *state.tally.entry(word).or_default() += 1;
        }
        let mut text: String = answers.into_iter().map(|(_, answer)| format!("{answer}\n")).collect();
        if batch.is_last || !is_complete {
            state.has_ended = true;
            let summary = json!({"complete": is_complete, "dry_run": state.import.is_dry, "counts": state.tally});
            text.push_str(&format!("{}\n", json!({"summary": summary})));
        }
        Some((Ok(Bytes::from(text)), state))
    })
}

/// A line as it came.
struct Line {
    number: u64,
    /// None = it is too long.
    text: Option<BytesMut>,
}

/// Lines that came together.
struct Batch {
    lines: Vec<Line>,
    is_last: bool,
    /// The stream broke off.
    is_cut: bool,
}

/// The lines of a body.
struct Lines {
    body: BoxStream<'static, Result<Bytes, axum::Error>>,
    held: BytesMut,
    /// So much of it holds no end of a line.
    looked_at: usize,
    number: u64,
    /// The rest of a line that is too long is not kept.
    skips: bool,
}

impl Lines {
    /// The next lines, as many as are looked up together, or fewer at the end.
    async fn batch(&mut self) -> Batch {
        let (mut lines, mut ends, mut bytes) = (Vec::new(), 0, 0);
        loop {
            while let Some(end) = self.held[self.looked_at..].iter().position(|byte| *byte == b'\n') {
                let line = self.held.split_to(self.looked_at + end + 1);
                self.looked_at = 0;
                ends += 1;
                bytes += line.len();
                self.push(line, &mut lines);
                // Blank lines count too: nobody else may wait for the end of them.
                if ends >= BATCH || bytes >= BATCH_BYTES {
                    return Batch { lines, is_last: false, is_cut: false };
                }
            }
            self.looked_at = self.held.len();
            if self.held.len() > LONGEST_BODY_BYTES {
                self.held.clear();
                self.looked_at = 0;
                self.skips = true;
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.held.extend_from_slice(&bytes),
                Some(Err(_)) => return Batch { lines, is_last: true, is_cut: true },
                None => {
                    let line = std::mem::take(&mut self.held);
                    if !line.is_empty() || self.skips {
                        self.push(line, &mut lines);
                    }
                    return Batch { lines, is_last: true, is_cut: false };
                }
            }
        }
    }

    fn push(&mut self, line: BytesMut, lines: &mut Vec<Line>) {
        self.number += 1;
        let is_too_long = std::mem::take(&mut self.skips) || line.len() > LONGEST_BODY_BYTES;
        if is_too_long {
            lines.push(Line { number: self.number, text: None });
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            lines.push(Line { number: self.number, text: Some(line) });
        }
    }
}

/// An answer: its word, and all of it.
type Answer = (&'static str, Value);

impl Import {
    /// Does some lines, and answers each, in order.
    async fn take(&self, lines: &[Line]) -> Result<Vec<Answer>, Problem> {
        self.caller.still_may(&self.api).await?;
        let mut answers: Vec<Option<Answer>> = lines.iter().map(|_| None).collect();
        let mut asked: Vec<(usize, JobKey)> = Vec::new();
        let mut seen: HashMap<JobKey, u64> = HashMap::new();
        for (at, line) in lines.iter().enumerate() {
            match self.document_of(line) {
                Err(problem) => answers[at] = Some(refused(line.number, None, problem)),
                Ok((key, _)) => match seen.insert(key.clone(), line.number) {
                    // Its document is read again when its turn comes: parsed, it may be many times as large.
                    None => asked.push((at, key)),
                    Some(first) => {
                        let detail = format!("is in line {first} as well: each job has one line");
                        let problem = Problem::fields(vec![FieldProblem::new("/id", detail)]);
                        answers[at] = Some(refused(line.number, Some(&key), problem));
                    }
                },
            }
        }
        let keys: Vec<JobKey> = asked.iter().map(|(_, key)| key.clone()).collect();
        let there = self.api.ports.jobs.get_many(&keys).await?;
        let there = &there;
        let one = |(at, key): (usize, JobKey)| async move {
            let done = match self.document_of(&lines[at]) {
                Ok((_, document)) => self.one(&key, &document, there.get(&key)).await,
                Err(problem) => Err(problem),
            };
            (at, key, done)
        };
        let mut done = stream::iter(asked.into_iter().map(one)).buffer_unordered(WRITES_AT_ONCE);
        while let Some((at, key, done)) = done.next().await {
            let number = lines[at].number;
            answers[at] = Some(match done {
                Ok((word, job)) => answered(number, &key, word, job.as_deref()),
                Err(problem) if problem.status.is_server_error() => return Err(problem),
                Err(problem) => refused(number, Some(&key), problem),
            });
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// The document of a line, and the job that it names.
    fn document_of(&self, line: &Line) -> Result<(JobKey, Value), Problem> {
        let text = line.text.as_ref().ok_or_else(|| Problem::too_large(LONGEST_BODY_BYTES))?;
        let document: Value = serde_json::from_slice(text).map_err(|e| {
            Problem::malformed(format!("the line is not JSON: it cannot be read beyond column {}", e.column()))
        })?;
        let wrong = |detail: String| Problem::fields(vec![FieldProblem::new("/id", detail)]);
        let id = document.get("id").and_then(Value::as_str);
        let id = id.ok_or_else(|| wrong("is missing: in an import each job has an id of its own".into()))?;
        if let Some(problem) = unreachable_id(id) {
            return Err(wrong(problem));
        }
        let key = JobKey::new(&self.tenant, id).map_err(wrong)?;
        Ok((key, document))
    }

    /// Makes or changes one job.
    async fn one(
        &self,
        key: &JobKey,
        document: &Value,
        there: Option<&JobRead>,
    ) -> Result<(&'static str, Option<Box<Job>>), Problem> {
        let api = &self.api;
        let there = match there {
            Some(JobRead::Job(job)) => Some(job),
            Some(JobRead::Unreadable(reason)) => {
                return Err(OperationError::Unreadable(key.to_string(), reason.clone()).into());
            }
            None => None,
        };
        let (tenant, now) = (self.tenant.as_str(), api.now());
        let old = there.map(|job| &job.spec);
        let reading = Reading { tenant, now, zones: &api.zones, allowed: &api.allowed, old };
        let spec = document::read(document, key.id(), &reading).map_err(Problem::fields)?;
        match there {
            Some(job) if job.state == JobState::Cancelled => Ok(("cancelled", None)),
            Some(job) if spec.is_met_by(&job.spec) && job.state != JobState::Quarantined => {
                Ok(("same", Some(job.clone())))
            }
            Some(job) => self.change(key, spec, job).await,
            None => self.create(spec).await,
        }
    }

    async fn create(&self, spec: JobSpec) -> Result<(&'static str, Option<Box<Job>>), Problem> {
        let api = &self.api;
        let world = Timetable { shards: &self.shards, zones: &api.zones };
        if self.is_dry {
            let made = Job::create(spec.clone(), api.now(), &world, None, String::new(), &self.caller.by);
            let made = made.map_err(|error| OperationError::Refused(spec.key.to_string(), error))?;
            return Ok(("created", Some(Box::new(made))));
        }
        match create_missing_job(&*api.ports.jobs, &*api.clock, &world, spec.clone(), &self.caller.by).await? {
            Created::New(job) => Ok(("created", Some(job))),
            // The answer to an earlier line, or to this one, was lost.
            Created::Same(job) | Created::Before(job) => Ok(("same", Some(job))),
            Created::Over => {
                let detail = "has no firing left: the job was not made";
                Err(Problem::fields(vec![FieldProblem::new("/schedule", detail)]))
            }
            Created::Different | Created::Erased => {
                let found = api.ports.jobs.get_many(std::slice::from_ref(&spec.key)).await?.remove(&spec.key);
                match found {
                    Some(JobRead::Job(job)) if job.state == JobState::Cancelled => Ok(("cancelled", None)),
                    Some(JobRead::Job(job)) => self.change(&spec.key.clone(), spec, &job).await,
                    _ => Err(Problem::conflict("unreadable", "the job cannot be read by this version")),
                }
            }
        }
    }

    async fn change(
        &self,
        key: &JobKey,
        spec: JobSpec,
        there: &Job,
    ) -> Result<(&'static str, Option<Box<Job>>), Problem> {
        let api = &self.api;
        let world = Timetable { shards: &self.shards, zones: &api.zones };
        let edit = Change::Edit(Box::new(spec));
        if self.is_dry {
            let changed = there.change(&edit, api.now(), &world, String::new(), &self.caller.by);
            return match changed.map_err(|error| OperationError::NotAllowed(key.to_string(), error))? {
                punctual_core::job::Changed::Same => Ok(("same", Some(Box::new(there.clone())))),
                punctual_core::job::Changed::To(job) => Ok(("changed", Some(job))),
            };
        }
        match change_job(&*api.ports.jobs, &*api.clock, &world, key, &edit, None, &self.caller.by).await? {
            Outcome::Changed(job) => Ok(("changed", Some(job))),
            Outcome::Same(job) => Ok(("same", Some(job))),
            Outcome::Missing | Outcome::Conflict { .. } => Ok(("cancelled", None)),
        }
    }
}

fn answered(line: u64, key: &JobKey, word: &'static str, job: Option<&Job>) -> Answer {
    let next = job.and_then(|job| job.next_scheduled_at).map(instant);
    (word, json!({"line": line, "id": key.id(), "result": word, "next_run_at": next}))
}

fn refused(line: u64, key: Option<&JobKey>, problem: Problem) -> Answer {
    let id = key.map(JobKey::id);
    ("refused", json!({"line": line, "id": id, "result": "refused", "problem": problem.json()}))
}

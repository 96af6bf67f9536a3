//! What each route takes and answers: one function for each thing that can be asked for, found by [`of`].

mod incidents;
mod jobs;
mod runs;
mod service;
mod steering;

use super::operation::{Operation, in_path, in_query};
use super::schemas::job_id;
use crate::api::ask::{DEFAULT_PAGE, LARGEST_PAGE};
use crate::api::routes::Op;
use serde_json::{Value, json};

pub(super) use incidents::schemas as incident_schemas;

/// The names of the groups of operations, and what they are about.
pub(super) const TAGS: [(&str, &str); 6] = [
    (JOBS, "Standing instructions: what to do, when, and to whom."),
    (RUNS, "What became of each firing, what is to come, and who changed what."),
    (MANY, "Thousands of jobs at once."),
    (INCIDENTS, "What needs a person: dead letters, and what the calendar asked for and no row shows."),
    (STEERING, "Holds, limits, and the state of the installation."),
    (SERVICE, "Whether the API is up, and what it is. Needs no key."),
];
const JOBS: &str = "Jobs";
const RUNS: &str = "Runs";
const MANY: &str = "Import";
const INCIDENTS: &str = "Incidents";
const STEERING: &str = "Steering";
const SERVICE: &str = "Service";

/// What is taken and answered where this is asked for.
pub(super) fn of(op: Op) -> Operation {
    match op {
        Op::CreateJob => jobs::create_job(),
        Op::ListJobs => jobs::list_jobs(),
        Op::GetJob => jobs::get_job(),
        Op::PutJob => jobs::put_job(),
        Op::PatchJob => jobs::patch_job(),
        Op::DeleteJob => jobs::delete_job(),
        Op::PauseJobs => jobs::act("pauseJobs", "Hold a job back", jobs::PAUSE),
        Op::ResumeJobs => jobs::act("resumeJobs", "End a pause", jobs::RESUME),
        Op::CancelJobs => jobs::act("cancelJobs", "End a job for good", jobs::CANCEL),
        Op::ReleaseJobs => jobs::act("releaseJobs", "Let a quarantined job fire again", jobs::RELEASE),
        Op::RunJobs => jobs::run_jobs(),
        Op::ListRuns => runs::list_runs(),
        Op::GetRun => runs::get_run(),
        Op::NextFirings => runs::next_firings(),
        Op::ListChanges => runs::list_changes(),
        Op::PreviewSchedule => runs::preview_schedule(),
        Op::ImportJobs => jobs::import_jobs(),
        Op::RequeueRun => incidents::requeue_run(),
        Op::ListDeadLetters => incidents::list_letters(),
        Op::ReplayDeadLetters => incidents::replay_letters(),
        Op::DropDeadLetters => incidents::drop_letters(),
        Op::Audit => incidents::audit(),
        Op::RequeueMissing => incidents::requeue_missing(),
        Op::ListHolds => steering::list_holds(),
        Op::PutHold => steering::put_hold(),
        Op::DeleteHold => steering::delete_hold(),
        Op::ListRates => steering::list_rates(),
        Op::PutRate => steering::put_rate(),
        Op::DeleteRate => steering::delete_rate(),
        Op::Status => steering::status(),
        Op::Healthz => service::healthz(),
        Op::Readyz => service::readyz(),
        Op::OpenApi => service::contract(),
        Op::Docs => service::docs(),
    }
}

fn id() -> Value {
    in_path("id", "The job's id. A `/` in it is written `%2F`, or as it is.", job_id())
}

fn limit() -> Value {
    let about = format!("How many entries a page has at most; {DEFAULT_PAGE} where nothing is said.");
    in_query("limit", &about, json!({"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE}))
}

fn cursor() -> Value {
    let schema = json!({"type": "string", "minLength": 1, "maxLength": 4_096, "pattern": "^[A-Za-z0-9_-]+$"});
    in_query("cursor", "The `next_cursor` of the page before, of this very listing.", schema)
}

/// What can be asked for with one value of the answer.
fn to(operation: &str, parameter: &str, field: &str) -> Value {
    json!({operation: {"operationId": operation, "parameters": {parameter: format!("$response.body#/{field}")}}})
}

/// The run that an answer names.
fn to_the_run(id: &str, run: &str) -> Value {
    let of = |field: &str| format!("$response.body#/{field}");
    json!({"getRun": {"operationId": "getRun", "parameters": {"id": of(id), "run": of(run)}}})
}

/// The page that follows.
fn next_page(operation: &str) -> Value {
    json!({"nextPage": {"operationId": operation, "parameters": {"cursor": "$response.body#/next_cursor"},
        "description": "Where `next_cursor` is not null."}})
}

fn joined(links: Value, more: Value) -> Value {
    let all = [links, more].into_iter().filter_map(|links| links.as_object().cloned()).flatten();
    Value::Object(all.collect())
}

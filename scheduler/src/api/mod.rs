//! The Jobs API: what callers ask for over HTTP, and what the command line asks for by the same router.
//!
//! Every request goes through the gate before anything is read or written for it. Handlers decide nothing by themselves:
//! what a change does is [`crate::operations`]'s, what a job may be is the core's.

mod actions;
mod ask;
mod audit;
pub mod document;
mod fields;
mod gate;
pub mod import;
mod jobs;
mod letters;
mod openapi;
mod page;
pub mod problem;
mod routes;
mod runs;
pub mod server;
mod state;
mod steering;
mod view;

pub use ask::{LARGEST_PAGE, LONGEST_BODY_BYTES, MERGE_PATCH};
pub use gate::{Caller, TENANT_HEADER, Trusted};
pub use jobs::path_of;
pub use routes::{Op, ROUTES, Route};
pub use state::{Api, ApiSettings, KEYS_READ_EVERY};

use actions::Action;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use percent_encoding::percent_decode_str;
use problem::Problem;
use punctual_core::job::Change;
use punctual_core::priority::Priority;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// All routes over one state, with their gate.
pub fn router(api: &Arc<Api>) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        let filter = MethodFilter::try_from(route.method.clone()).expect("every route has a method that axum knows");
        let handler = on(filter, move |State(api): State<Arc<Api>>, request: Request| answer(api, route.op, request));
        let gate = middleware::from_fn_with_state((api.clone(), route), gate::pass);
        router = router.route(route.path, handler.layer(gate));
    }
    router.method_not_allowed_fallback(wrong_method).fallback(no_route).with_state(api.clone())
}

/// Puts a request onto its route: see [`routes::routed_path`]. Goes around the router, before it looks for a route.
pub fn route_by_id(mut request: Request) -> Request {
    if let Some(path) = routes::routed_path(request.uri().path()) {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = format!("{path}{query}").parse().ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

async fn no_route(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(100).collect();
    Problem::missing(format!("there is nothing at {path}: /openapi.json and /docs say what there is"))
}

async fn wrong_method(uri: Uri) -> Problem {
    Problem::method(&allowed_at(uri.path()).join(", "))
}

/// What may be done at a path.
fn allowed_at(path: &str) -> Vec<&'static str> {
    let fits = |pattern: &str| {
        let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
        pattern.len() == path.len() && pattern.iter().zip(&path).all(|(p, part)| p.starts_with('{') || p == part)
    };
    // A path without a variable goes before one with.
    let exact: Vec<&str> = ROUTES.iter().filter(|r| r.path == path).map(|r| method_name(&r.method)).collect();
    if exact.is_empty() {
        return ROUTES.iter().filter(|route| fits(route.path)).map(|route| method_name(&route.method)).collect();
    }
    exact
}

fn method_name(method: &Method) -> &'static str {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let names = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    known.iter().position(|known| known == method).map_or("GET", |at| names[at])
}

async fn answer(api: Arc<Api>, op: Op, mut request: Request) -> Response {
    let caller = request.extensions_mut().remove::<Caller>();
    match perform(&api, op, caller, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// The variable parts of a path, decoded: what stands third and fifth.
fn named_parts(request: &Request) -> Result<(String, String), Problem> {
    let parts: Vec<&str> = request.uri().path().split('/').skip(3).collect();
    let decoded = |part: Option<&&str>| {
        let part = percent_decode_str(part.copied().unwrap_or_default()).decode_utf8();
        part.map(|part| part.into_owned()).map_err(|_| Problem::missing("the address is not UTF-8"))
    };
    Ok((decoded(parts.first())?, decoded(parts.get(2))?))
}

async fn perform(api: &Arc<Api>, op: Op, caller: Option<Caller>, request: Request) -> Result<Response, Problem> {
    match op {
        Op::Healthz => return Ok(ask::answer(StatusCode::OK, &json!({"status": "up"}))),
        Op::Readyz => return ready(api).await,
        Op::OpenApi => return Ok(ask::answer(StatusCode::OK, &openapi::DOCUMENT)),
        Op::Docs => return Ok(page::show()),
        _ => {}
    }
    // The gate lets nobody to these without one.
    let caller = &caller.ok_or_else(|| Problem::unauthenticated("a key is needed"))?;
    let (id, run) = &named_parts(&request)?;
    let change = |change| Action::Change(change);
    match op {
        Op::CreateJob => jobs::create(api, caller, request).await,
        Op::ListJobs => jobs::list(api, caller, request).await,
        Op::GetJob => jobs::get(api, caller, id, request).await,
        Op::PutJob => jobs::put(api, caller, id, request).await,
        Op::PatchJob => jobs::patch(api, caller, id, request).await,
        Op::DeleteJob => jobs::delete(api, caller, id, request).await,
        Op::PauseJobs => actions::act(api, caller, id, change(Change::Pause), request).await,
        Op::ResumeJobs => actions::act(api, caller, id, change(Change::Resume), request).await,
        Op::CancelJobs => actions::act(api, caller, id, change(Change::Cancel), request).await,
        Op::ReleaseJobs => actions::act(api, caller, id, change(Change::Release), request).await,
        Op::RunJobs => actions::act(api, caller, id, Action::Run, request).await,
        Op::ListRuns => runs::list(api, caller, id, request).await,
        Op::GetRun => runs::get(api, caller, id, run, request).await,
        Op::NextFirings => runs::next_firings(api, caller, id, request).await,
        Op::ListChanges => runs::changes(api, caller, id, request).await,
        Op::PreviewSchedule => runs::preview(api, request).await,
        Op::ImportJobs => import::import(api.clone(), caller, request).await,
        Op::ListHolds => steering::holds(api, caller, request).await,
        Op::PutHold => steering::hold(api, caller, id, request).await,
        Op::DeleteHold => steering::release(api, caller, id, request).await,
        Op::ListRates => steering::rates(api, caller, request).await,
        Op::PutRate => steering::set_rate(api, caller, id, request).await,
        Op::DeleteRate => steering::unset_rate(api, caller, id, request).await,
        Op::RequeueRun => audit::requeue_run(api, caller, id, run, request).await,
        Op::ListDeadLetters => letters::list(api, caller, request).await,
        Op::ReplayDeadLetters => letters::replay(api, caller, request).await,
        Op::DropDeadLetters => letters::drop_letters(api, caller, request).await,
        Op::Audit => audit::audit(api, caller, request).await,
        Op::RequeueMissing => audit::requeue_missing(api, caller, request).await,
        Op::Status => steering::show_status(api, caller, request).await,
        Op::Healthz | Op::Readyz | Op::OpenApi | Op::Docs => Err(Problem::missing("it was answered before")),
    }
}

/// What was said of the readiness is said again for this long: nobody is asked for a key, and each look costs four calls.
const READINESS_HOLDS: Duration = Duration::from_secs(1);

/// Whether store and queues can be reached.
async fn ready(api: &Api) -> Result<Response, Problem> {
    let mut said = api.readiness.lock().await;
    let now = api.clock.boottime();
    let known = said.clone().filter(|(at, ..)| now < *at + READINESS_HOLDS);
    let (_, is_ready, body) = match known {
        Some(known) => known,
        None => {
            let (is_ready, body) = look_at_readiness(api).await;
            said.insert((now, is_ready, body)).clone()
        }
    };
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(ask::answer(status, &body))
}

async fn look_at_readiness(api: &Api) -> (bool, Value) {
    let store = api.ports.control.layout().await;
    let mut parts = BTreeMap::from([("store", word(&store))]);
    let is_set_up = store.is_ok_and(|layout| layout.is_some());
    if !is_set_up && parts["store"] == "ok" {
        parts.insert("store", "never set up");
    }
    for priority in Priority::ALL {
        let depth = api.ports.queue.depth(priority).await;
        let name = match priority {
            Priority::Urgent => "queue_urgent",
            Priority::Normal => "queue_normal",
            Priority::Bulk => "queue_bulk",
        };
        parts.insert(name, word(&depth));
    }
    let clock = if api.clock.check().is_ok() { "ok" } else { "off" };
    parts.insert("clock", clock);
    let is_ready = parts.values().all(|part| *part == "ok");
    let word = if is_ready { "ready" } else { "not ready" };
    (is_ready, json!({"status": word, "parts": parts}))
}

fn word<T>(answer: &punctual_core::ports::PortResult<T>) -> &'static str {
    if answer.is_ok() { "ok" } else { "does not answer" }
}

//! All routes: what can be asked for, where, and by whom. Router, gate, contract and the table of rights are made from this.

use axum::http::Method;
use punctual_core::access::Role;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Make a job.
    CreateJob,
    /// List jobs.
    ListJobs,
    /// Show a job.
    GetJob,
    /// Make a job, or make it what is said.
    PutJob,
    /// Change what is given of a job.
    PatchJob,
    /// End a job and erase what it was to do.
    DeleteJob,
    /// Hold a job, or all under a prefix, back.
    PauseJobs,
    /// End a pause.
    ResumeJobs,
    /// End jobs for good.
    CancelJobs,
    /// Run jobs now.
    RunJobs,
    /// Let a quarantined job fire again.
    ReleaseJobs,
    /// List a job's runs.
    ListRuns,
    /// Show a run.
    GetRun,
    /// Enqueue a run of the timetable again.
    RequeueRun,
    /// Show when a job fires next.
    NextFirings,
    /// Show who changed a job.
    ListChanges,
    /// Show when a schedule would fire.
    PreviewSchedule,
    /// Make or change the jobs of a stream of lines.
    ImportJobs,
    /// List dead letters.
    ListDeadLetters,
    /// Run dead letters once more.
    ReplayDeadLetters,
    /// Leave dead letters at that.
    DropDeadLetters,
    /// List holds.
    ListHolds,
    /// Hold.
    PutHold,
    /// End a hold.
    DeleteHold,
    /// List limits.
    ListRates,
    /// Limit the calls to a target.
    PutRate,
    /// Take the limit of a target away.
    DeleteRate,
    /// Hold the calendar against the rows.
    Audit,
    /// Enqueue what is missing.
    RequeueMissing,
    /// Show shards, queues and workers.
    Status,
    /// Whether the process is up.
    Healthz,
    /// Whether store and queues can be reached.
    Readyz,
    /// Show the contract.
    OpenApi,
    /// Show the contract as a page.
    Docs,
}

/// A route.
#[derive(Clone, Debug)]
pub struct Route {
    /// What is asked for.
    pub op: Op,
    /// How.
    pub method: Method,
    /// Where.
    pub path: &'static str,
    /// The least role whose keys open it; none = nobody is asked for a key.
    pub role: Option<Role>,
}

const fn route(op: Op, method: Method, path: &'static str, role: Role) -> Route {
    Route { op, method, path, role: Some(role) }
}

const fn open(op: Op, path: &'static str) -> Route {
    Route { op, method: Method::GET, path, role: None }
}

/// The routes, in the order of the contract.
pub static ROUTES: [Route; 34] = [
    route(Op::CreateJob, Method::POST, "/v1/jobs", Role::Write),
    route(Op::ListJobs, Method::GET, "/v1/jobs", Role::Read),
    route(Op::GetJob, Method::GET, "/v1/jobs/{id}", Role::Read),
    route(Op::PutJob, Method::PUT, "/v1/jobs/{id}", Role::Write),
    route(Op::PatchJob, Method::PATCH, "/v1/jobs/{id}", Role::Write),
    route(Op::DeleteJob, Method::DELETE, "/v1/jobs/{id}", Role::Write),
    route(Op::PauseJobs, Method::POST, "/v1/jobs/{id}/pause", Role::Write),
    route(Op::ResumeJobs, Method::POST, "/v1/jobs/{id}/resume", Role::Write),
    route(Op::CancelJobs, Method::POST, "/v1/jobs/{id}/cancel", Role::Write),
    route(Op::RunJobs, Method::POST, "/v1/jobs/{id}/run", Role::Write),
    route(Op::ReleaseJobs, Method::POST, "/v1/jobs/{id}/release", Role::Write),
    route(Op::ListRuns, Method::GET, "/v1/jobs/{id}/runs", Role::Read),
    route(Op::GetRun, Method::GET, "/v1/jobs/{id}/runs/{run}", Role::Read),
    route(Op::RequeueRun, Method::POST, "/v1/jobs/{id}/runs/{run}/requeue", Role::Operate),
    route(Op::NextFirings, Method::GET, "/v1/jobs/{id}/next", Role::Read),
    route(Op::ListChanges, Method::GET, "/v1/jobs/{id}/changes", Role::Read),
    route(Op::PreviewSchedule, Method::POST, "/v1/schedules/preview", Role::Read),
    route(Op::ImportJobs, Method::POST, "/v1/jobs/import", Role::Write),
    route(Op::ListDeadLetters, Method::GET, "/v1/dead-letters", Role::Read),
    route(Op::ReplayDeadLetters, Method::POST, "/v1/dead-letters/replay", Role::Operate),
    route(Op::DropDeadLetters, Method::POST, "/v1/dead-letters/drop", Role::Operate),
    route(Op::ListHolds, Method::GET, "/v1/holds", Role::Read),
    route(Op::PutHold, Method::PUT, "/v1/holds/{scope}", Role::Operate),
    route(Op::DeleteHold, Method::DELETE, "/v1/holds/{scope}", Role::Operate),
    route(Op::ListRates, Method::GET, "/v1/rates", Role::Read),
    route(Op::PutRate, Method::PUT, "/v1/rates/{target}", Role::Operate),
    route(Op::DeleteRate, Method::DELETE, "/v1/rates/{target}", Role::Operate),
    route(Op::Audit, Method::GET, "/v1/audit", Role::Read),
    route(Op::RequeueMissing, Method::POST, "/v1/audit/requeue", Role::Operate),
    route(Op::Status, Method::GET, "/v1/status", Role::Read),
    open(Op::Healthz, "/healthz"),
    open(Op::Readyz, "/readyz"),
    open(Op::OpenApi, "/openapi.json"),
    open(Op::Docs, "/docs"),
];

/// The words that may stand behind an id.
const VERBS: [&str; 8] = ["pause", "resume", "cancel", "run", "release", "runs", "next", "changes"];
const JOBS: &str = "/v1/jobs/";
/// What stands behind these is one name.
const NAMED: [&str; 2] = ["/v1/holds/", "/v1/rates/"];

/// The path by which a request is routed: an id whose slashes are written as they are is taken for one part. What ends in a
/// word of the API is that word behind an id; an id that ends so must have its slashes written as `%2F`.
pub fn routed_path(path: &str) -> Option<String> {
    for named in NAMED {
        if let Some(rest) = path.strip_prefix(named).filter(|rest| rest.contains('/')) {
            return Some(format!("{named}{}", rest.replace('/', "%2F")));
        }
    }
    let rest = path.strip_prefix(JOBS)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let behind = match parts.as_slice() {
        [.., "runs", _, "requeue"] if parts.len() > 4 => 3,
        [.., "runs", _] if parts.len() > 3 => 2,
        [.., verb] if VERBS.contains(verb) && parts.len() > 2 => 1,
        [.., "runs", _, "requeue"] | [.., "runs", _] => return None,
        [_, verb] if VERBS.contains(verb) => return None,
        [_] => return None,
        _ => 0,
    };
    let (id, behind) = parts.split_at(parts.len() - behind);
    let path = std::iter::once(id.join("%2F")).chain(behind.iter().map(|part| (*part).to_owned()));
    Some(format!("{JOBS}{}", path.collect::<Vec<_>>().join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_there_once() {
        let places: BTreeSet<_> = ROUTES.iter().map(|route| (route.path, route.method.as_str())).collect();
        assert_eq!(places.len(), ROUTES.len());
    }

    #[test]
    fn an_id_may_be_written_with_its_slashes() {
        for (path, expected) in [
            ("/v1/jobs/c-1/bill", Some("/v1/jobs/c-1%2Fbill")),
            ("/v1/jobs/c-1/bill/pause", Some("/v1/jobs/c-1%2Fbill/pause")),
            ("/v1/jobs/a/b/c/runs", Some("/v1/jobs/a%2Fb%2Fc/runs")),
            ("/v1/jobs/a/b/runs/1791171000", Some("/v1/jobs/a%2Fb/runs/1791171000")),
            ("/v1/jobs/a/b/runs/1791171000/requeue", Some("/v1/jobs/a%2Fb/runs/1791171000/requeue")),
            ("/v1/jobs/48213//cancel", Some("/v1/jobs/48213%2F/cancel")),
            ("/v1/jobs/48213/", Some("/v1/jobs/48213%2F")),
            ("/v1/jobs/c-1", None),
            ("/v1/jobs/c-1%2Fbill", None),
            ("/v1/jobs/c-1%2Fbill/pause", None),
            ("/v1/jobs/c-1/runs/1791171000", None),
            ("/v1/jobs/c-1/runs/1791171000/requeue", None),
            ("/v1/jobs", None),
            ("/v1/holds/tenant/bank", Some("/v1/holds/tenant%2Fbank")),
            ("/v1/rates/webhook/hooks.example.com", Some("/v1/rates/webhook%2Fhooks.example.com")),
            ("/v1/rates/sms", None),
        ] {
            assert_eq!(routed_path(path).as_deref(), expected, "{path}");
        }
    }
}

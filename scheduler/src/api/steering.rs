//! Limits, holds and the state of the installation by the API.

use super::ask::{self, Query, answer};
use super::fields::Fields;
use super::gate::Caller;
use super::problem::{FieldProblem, Problem};
use super::state::Api;
use crate::listing::{hold_json, limits_json};
use crate::operator::{self, OperatorError};
use crate::status;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use punctual_core::access::Reach;
use punctual_core::schedule::whole_second;
use punctual_core::steering::{Hold, LARGEST_LIMIT, Scope};
use punctual_core::target::Target;
use serde_json::json;

/// The scope that an address names, if the caller may hold it: a tenant's key, its tenant alone.
fn scope_of(caller: &Caller, scope: &str) -> Result<Scope, Problem> {
    let scope: Scope = scope.parse().map_err(|problem| Problem::parameter("scope", problem))?;
    match (&scope, &caller.reach) {
        (Scope::Tenant(held), Reach::Tenant(own)) if held == own => Ok(scope),
        (_, Reach::Everyone) => Ok(scope),
        _ => caller.everyone().map(|()| scope),
    }
}

/// Whether a tenant's key may know of a target: whose webhooks another tenant calls is nobody's business.
fn concerns_all(caller: &Caller, target: &Target) -> bool {
    caller.reach == Reach::Everyone || !target.is_webhook()
}

/// Lists the holds that concern a caller: all, or those over its tenant and over what everybody shares.
pub(super) async fn holds(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let steering = api.ports.control.steering().await?;
    let concerns = |hold: &&Hold| match &hold.scope {
        Scope::Tenant(tenant) => caller.reach.covers(tenant),
        Scope::All | Scope::Priority(_) => true,
        Scope::Target(target) => concerns_all(caller, target),
    };
    let items: Vec<_> = steering.holds.iter().filter(concerns).map(hold_json).collect();
    Ok(answer(StatusCode::OK, &json!({"items": items, "next_cursor": null})))
}

/// Holds.
pub(super) async fn hold(api: &Api, caller: &Caller, scope: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let scope = scope_of(caller, scope)?;
    let body = ask::json(request, None).await?;
    let mut problems = Vec::new();
    let fields = Fields::of(&body, "", &["why"], &mut problems);
    let why = fields.and_then(|fields| fields.need("why", "`the gateway is being mended`", &mut problems));
    ask::none_wrong(problems)?;
    let why = why.unwrap_or_default().to_owned();
    api.clock.check().map_err(|_| Problem::unavailable("the clock of this host is off: nothing is written by it"))?;
    let hold = Hold { scope, by: caller.by.clone(), why, since: whole_second(api.now()) };
    let held = operator::steer(&*api.ports.control, |from| from.with_hold(hold.clone())).await;
    let (steering, _) = held.map_err(|error| steered(error, "/why"))?;
    let stands = steering.holds.iter().find(|stands| stands.scope == hold.scope).unwrap_or(&hold);
    Ok(answer(StatusCode::OK, &hold_json(stands)))
}

/// Ends a hold.
pub(super) async fn release(api: &Api, caller: &Caller, scope: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let scope = scope_of(caller, scope)?;
    let released = operator::steer(&*api.ports.control, |from| Ok(from.without_hold(&scope))).await;
    let (steering, has_changed) = released.map_err(|error| steered(error, "scope"))?;
    if !has_changed {
        return Err(Problem::missing(format!("{scope} is not held")));
    }
    Ok(answer(StatusCode::OK, &json!({"released": scope.to_string(), "holds_left": steering.holds.len()})))
}

fn steered(error: OperatorError, pointer: &str) -> Problem {
    match error {
        OperatorError::Refused(problem) => Problem::fields(vec![FieldProblem::new(pointer, problem)]),
        OperatorError::NotNow(problem) => Problem::unavailable(problem),
        OperatorError::Store(error) => error.into(),
    }
}

/// Lists limits.
pub(super) async fn rates(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    let mut steering = api.ports.control.steering().await?;
    steering.limits.retain(|target, _| concerns_all(caller, target));
    let limits = limits_json(&steering);
    Ok(answer(StatusCode::OK, &json!({"items": limits, "next_cursor": null})))
}

fn target_of(target: &str) -> Result<Target, Problem> {
    target.parse().map_err(|problem: String| Problem::parameter("target", problem))
}

/// Limits the calls to a target.
pub(super) async fn set_rate(api: &Api, caller: &Caller, target: &str, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    caller.everyone()?;
    let target = target_of(target)?;
    let body = ask::json(request, None).await?;
    let mut problems = Vec::new();
    let fields = Fields::of(&body, "", &["per_second"], &mut problems);
    let per_second = fields.and_then(|fields| {
        if fields.get("per_second").is_none() {
            problems.push(FieldProblem::new("/per_second", "is missing").hint("such as 450"));
        }
        fields.number("per_second", 1..=u64::from(LARGEST_LIMIT), &mut problems)
    });
    ask::none_wrong(problems)?;
    let per_second = per_second.unwrap_or_default();
    let set = operator::steer(&*api.ports.control, |from| from.with_limit(target.clone(), per_second)).await;
    let (steering, _) = set.map_err(|error| steered(error, "/per_second"))?;
    Ok(answer(StatusCode::OK, &json!({"target": target.as_str(), "per_second": steering.limit(&target)})))
}

/// Takes the limit of a target away.
pub(super) async fn unset_rate(
    api: &Api,
    caller: &Caller,
    target: &str,
    request: Request,
) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    caller.everyone()?;
    let target = target_of(target)?;
    let unset = operator::steer(&*api.ports.control, |from| Ok(from.without_limit(&target))).await;
    let (steering, _) = unset.map_err(|error| steered(error, "target"))?;
    Ok(answer(StatusCode::OK, &json!({"target": target.as_str(), "per_second": steering.limit(&target)})))
}

/// Shows shards, queues and workers.
pub(super) async fn show_status(api: &Api, caller: &Caller, request: Request) -> Result<Response, Problem> {
    Query::of(&request, &[])?;
    caller.everyone()?;
    let layout = api.ports.control.layout().await?;
    let layout = layout.ok_or_else(|| Problem::unavailable("the store was never set up: run `punctual setup`"))?;
    let status = status::Status::read(&api.ports, layout, &*api.clock).await?;
    Ok(answer(StatusCode::OK, &status.json()))
}

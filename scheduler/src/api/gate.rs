//! Who may ask: reads the key of a request, says whose it is, and refuses what it does not open, before anything is read or
//! written for it.

use super::problem::Problem;
use super::routes::{Op, ROUTES, Route};
use super::state::Api;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use punctual_core::access::{ApiKey, Reach, Role};
use punctual_core::job::check_tenant;
use punctual_core::process::random_number;
use punctual_core::telemetry::table;
use punctual_core::telemetry::traces::{self, KeyValue, Span, SpanKind};
use punctual_core::trace::{SpanKey, TRACEPARENT, TraceContext};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The header by which a key that opens every tenant says whose jobs are meant.
pub const TENANT_HEADER: &str = "punctual-tenant";

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose jobs may be reached.
    pub reach: Reach,
    /// What may be done.
    pub role: Role,
    /// Who it is, for change logs.
    pub by: String,
    /// Whose jobs are meant, if that is said.
    tenant: Option<String>,
    /// The key by which they ask; none = none is needed.
    key: Option<String>,
    /// The span of the request, in which runs that it makes go on.
    pub(super) trace: Option<TraceContext>,
}

impl Caller {
    /// Somebody who runs the installation, in this very process.
    pub fn operator(by: &str) -> Self {
        Caller { reach: Reach::Everyone, role: Role::Operate, by: by.to_owned(), tenant: None, key: None, trace: None }
    }

    fn of(key: &ApiKey) -> Self {
        let by = format!("{} ({})", key.label, key.id);
        Caller { reach: key.reach.clone(), role: key.role, by, tenant: None, key: Some(key.id.clone()), trace: None }
    }

    /// With the tenant that the request names.
    fn asking(self, headers: &HeaderMap) -> Result<Self, Problem> {
        let named = headers.get(TENANT_HEADER).map(|named| named.to_str().unwrap_or_default());
        let tenant = match (&self.reach, named) {
            (Reach::Tenant(own), None) => Some(own.clone()),
            (Reach::Everyone, None) => None,
            (reach, Some(named)) => {
                check_tenant(named).map_err(|problem| Problem::parameter(TENANT_HEADER, problem))?;
                if !reach.covers(named) {
                    return Err(Problem::forbidden(format!("this key is for the tenant {reach}")));
                }
                Some(named.to_owned())
            }
        };
        Ok(Caller { tenant, ..self })
    }

    /// Whose jobs are meant.
    ///
    /// # Errors
    /// When the key opens every tenant, and the request names none.
    pub fn tenant(&self) -> Result<&str, Problem> {
        let problem = || Problem::parameter(TENANT_HEADER, "this key opens every tenant: name one by this header");
        self.tenant.as_deref().ok_or_else(problem)
    }

    /// Whether what was opened when the request came still is: its key may be revoked while it lasts.
    ///
    /// # Errors
    /// When it is, or keys cannot be checked.
    pub(super) async fn still_may(&self, api: &Api) -> Result<(), Problem> {
        match &self.key {
            Some(key) => api.keys.is_in_force(key).await,
            None => Ok(()),
        }
    }

    /// Whether what concerns all tenants is open.
    ///
    /// # Errors
    /// When the key is one tenant's.
    pub fn everyone(&self) -> Result<(), Problem> {
        match &self.reach {
            Reach::Everyone => Ok(()),
            Reach::Tenant(tenant) => Err(Problem::forbidden(format!(
                "this concerns all tenants, and the key is for the tenant {tenant} alone"
            ))),
        }
    }

    /// Whether payloads are shown: to those who may write them.
    pub fn sees_payloads(&self) -> bool {
        self.role >= Role::Write
    }
}

/// Lets a request through to its route, or says why not.
pub(super) async fn pass(
    State((api, route)): State<(Arc<Api>, &'static Route)>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = api.clock.monotonic();
    let (given, began_at) = (trace_of(request.headers()), api.now());
    let trace = route.role.and_then(|_| span_of(route, given));
    let mut response = match admit(&api, route, &mut request, trace).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    count(route, response.status(), api.clock.monotonic().saturating_sub(began));
    if let Some(context) = trace {
        record(route, context, given, (began_at, api.now()), response.status());
    }
    tracing::debug!(op = ?route.op, status = response.status().as_u16(), "answered");
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if route.role.is_some() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The name of an operation, as a label.
fn name_of(op: Op) -> &'static str {
    static NAMES: OnceLock<HashMap<Op, &'static str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        // Once, and as many as there are routes.
        ROUTES.iter().map(|route| (route.op, &*format!("{:?}", route.op).leak())).collect()
    });
    names.get(&op).copied().unwrap_or("unknown")
}

fn count(route: &'static Route, status: StatusCode, took: Duration) {
    let class = match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    let labels = [("op", name_of(route.op)), ("status", class)];
    table::API_REQUESTS.counter(&labels).increment(1);
    if status.is_server_error() {
        table::API_FAILURES.counter(&[]).increment(1);
    }
    table::API_REQUEST.histogram(&[]).record(took.as_secs_f64());
}

/// The trace that a request says it belongs to.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}

/// The span of a request; without a record of spans here, the one that it names.
fn span_of(route: &Route, given: Option<TraceContext>) -> Option<TraceContext> {
    if !traces::are_recorded() {
        return given;
    }
    // A client that asks again names the same span again.
    let key = SpanKey { what: name_of(route.op), by: "api", nth: random_number() };
    let trace_id = || u128::from(random_number()) << 64 | u128::from(random_number());
    Some(given.map_or_else(|| TraceContext::first(trace_id(), key, traces::ratio()), |given| given.child(key)))
}

fn record(
    route: &Route,
    context: TraceContext,
    parent: Option<TraceContext>,
    time: (DateTime<Utc>, DateTime<Utc>),
    status: StatusCode,
) {
    let failure = status.is_server_error().then_some("server error");
    traces::record(Span { name: name_of(route.op), kind: SpanKind::Server, context, parent, time, failure }, || {
        vec![KeyValue::new("http.response.status_code", i64::from(status.as_u16()))]
    });
}

async fn admit(api: &Api, route: &Route, request: &mut Request, trace: Option<TraceContext>) -> Result<(), Problem> {
    let Some(role) = route.role else { return Ok(()) };
    let trusted = request.extensions_mut().remove::<Trusted>();
    let caller = match trusted {
        Some(Trusted(caller)) => caller,
        None => {
            let key = api.keys.holder(bearer(request.headers())?).await?;
            api.limits.admit(&key.id)?;
            Caller::of(&key)
        }
    };
    if caller.role < role {
        return Err(Problem::forbidden(format!("this needs the role {role}, and the key has {}", caller.role)));
    }
    let caller = Caller { trace, ..caller.asking(request.headers())? };
    request.extensions_mut().insert(caller);
    Ok(())
}

/// Marks a request that was made in this process and needs no key. It cannot come over a network: it is no header.
#[derive(Clone, Debug)]
pub struct Trusted(pub Caller);

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing =
        || Problem::unauthenticated("send `Authorization: Bearer punctual_…`; `punctual keys add` makes keys");
    let given = headers.get(AUTHORIZATION).ok_or_else(missing)?.to_str().map_err(|_| missing())?;
    let (scheme, key) = given.split_once(' ').ok_or_else(missing)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(missing()) }
}

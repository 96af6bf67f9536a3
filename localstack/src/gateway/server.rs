//! The gateway's HTTP: `POST /v1/sms` for its callers, `POST /script`, `GET /stats` and `GET /healthz` for us.

use super::state::{Answer, Reply, SmsRequest};
use super::{Behaviour, Gateway, GatewayStats};
use crate::listener;
use crate::stack::StackError;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use std::collections::BTreeMap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const SERVICE: &str = "the SMS gateway";

/// Names the worker that calls.
const WORKER_HEADER: &str = "x-punctual-worker";

/// A gateway endpoint that runs until the stop.
pub(crate) struct GatewayServer {
    port: u16,
    gateway: Gateway,
    task: JoinHandle<()>,
}

impl GatewayServer {
    /// Serves `gateway` on 127.0.0.1.
    pub(crate) fn start(port: u16, gateway: Gateway, stop: watch::Receiver<bool>) -> Result<Self, StackError> {
        let listener = listener::bind(SERVICE, port)?;
        let port = listener::port_of(SERVICE, &listener)?;
        let task = tokio::spawn(serve(listener, gateway.clone(), stop));
        Ok(Self { port, gateway, task })
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The gateway it serves.
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Resolves when the listener and every connection are closed.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the SMS gateway failed");
        }
    }
}

/// Marks an answer that must not be given.
#[derive(Clone)]
struct Unanswered;

/// Makes hyper close the connection without a byte of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the script closes this connection without an answer")]
struct ConnectionClosed;

async fn serve(listener: TcpListener, gateway: Gateway, stop: watch::Receiver<bool>) {
    let routes = TowerToHyperService::new(routes(gateway));
    let service = service_fn(move |request: Request<Incoming>| {
        let call = routes.call(request);
        async move {
            match call.await {
                Ok(response) if response.extensions().get::<Unanswered>().is_some() => Err(ConnectionClosed),
                Ok(response) => Ok(response),
                Err(never) => match never {},
            }
        }
    });
    listener::serve(listener, service, stop).await;
}

fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/v1/sms", post(send_sms))
        .route("/script", post(set_script))
        .route("/stats", get(stats))
        .route("/healthz", get(async || "ok"))
        .with_state(gateway)
}

async fn send_sms(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
    request: Result<Json<SmsRequest>, JsonRejection>,
) -> Response {
    let worker = headers.get(WORKER_HEADER).and_then(|name| name.to_str().ok()).unwrap_or("unknown");
    let Reply { answer, after } = match request {
        Ok(Json(request)) => gateway.take(&request, worker),
        Err(_) => gateway.take_unreadable(),
    };
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    respond(answer)
}

async fn set_script(
    State(gateway): State<Gateway>,
    Json(script): Json<BTreeMap<String, Vec<Behaviour>>>,
) -> StatusCode {
    gateway.set_script(script);
    StatusCode::NO_CONTENT
}

async fn stats(State(gateway): State<Gateway>) -> Json<GatewayStats> {
    Json(gateway.stats())
}

fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Accepted { id, repeat } => Json(json!({ "id": id, "repeat": repeat })).into_response(),
        Answer::BadRequest => refusal(StatusCode::BAD_REQUEST, "bad_request", None),
        Answer::BadNumber => refusal(StatusCode::BAD_REQUEST, "bad_number", None),
        Answer::OptedOut => refusal(StatusCode::FORBIDDEN, "opted_out", None),
        Answer::Throttled { retry_after_s } => {
            refusal(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", Some(retry_after_s))
        }
        Answer::Unavailable { retry_after_s } => refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", retry_after_s),
        Answer::ConnectionClosed => {
            let mut response = Response::default();
            response.extensions_mut().insert(Unanswered);
            response
        }
    }
}

fn refusal(status: StatusCode, error: &str, retry_after_s: Option<u32>) -> Response {
    let mut response = (status, Json(json!({ "error": error }))).into_response();
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

//! A small server with Lambda's Runtime API, on which the real binary runs as a function.

use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ports::Delivery;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// The server; it ends with this.
pub struct RuntimeApi {
    /// Where it listens: what `AWS_LAMBDA_RUNTIME_API` says.
    pub address: SocketAddr,
    invocations: mpsc::UnboundedSender<Invocation>,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Invocation {
    id: String,
    deadline_ms: i64,
    event: Value,
}

struct Shared {
    waiting: tokio::sync::Mutex<mpsc::UnboundedReceiver<Invocation>>,
    answers: Mutex<BTreeMap<String, oneshot::Sender<Result<Value, Value>>>>,
}

impl Shared {
    fn answers(&self) -> MutexGuard<'_, BTreeMap<String, oneshot::Sender<Result<Value, Value>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, id: &str, answer: Result<Value, Value>) -> StatusCode {
        if let Some(sender) = self.answers().remove(id) {
            // Whoever invoked it may have given up by now.
            let _ = sender.send(answer);
        }
        StatusCode::ACCEPTED
    }
}

impl RuntimeApi {
    /// Starts it on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (invocations, waiting) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { waiting: tokio::sync::Mutex::new(waiting), answers: Mutex::default() });
        let routes = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .with_state(shared.clone());
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, routes).await.expect("a listener that is open serves");
        });
        Ok(RuntimeApi { address, invocations, shared, _server: server })
    }

    /// Invokes the function with an event; its answer.
    ///
    /// # Errors
    /// When the function fails, or does not answer before its deadline.
    pub async fn invoke_with(&self, id: &str, event: Value, timeout: Duration) -> anyhow::Result<Value> {
        let (sender, answer) = oneshot::channel();
        self.shared.answers().insert(id.to_owned(), sender);
        let deadline_ms = SystemClock::new().now().timestamp_millis() + timeout.as_millis() as i64;
        self.invocations.send(Invocation { id: id.to_owned(), deadline_ms, event })?;
        let answer = tokio::time::timeout(timeout, answer).await.context("no answer before the deadline")??;
        answer.map_err(|error| anyhow::anyhow!("the function failed: {error}"))
    }

    /// Invokes the function with these messages of the queue `queue`; the receipts of those that it does not report as
    /// failed.
    ///
    /// # Errors
    /// When the function fails, or does not answer before its deadline.
    pub async fn invoke(
        &self,
        id: &str,
        queue: &str,
        batch: &[Delivery],
        timeout: Duration,
    ) -> anyhow::Result<BTreeSet<String>> {
        let records: Vec<Value> = batch.iter().enumerate().map(|(n, delivery)| record(n, queue, delivery)).collect();
        let answer = self.invoke_with(id, json!({ "Records": records }), timeout).await?;
        let failures = answer["batchItemFailures"].as_array().context("no list of failures")?;
        let failed: BTreeSet<&str> = failures.iter().filter_map(|failure| failure["itemIdentifier"].as_str()).collect();
        let done = batch.iter().enumerate().filter(|(n, _)| !failed.contains(format!("m-{n}").as_str()));
        Ok(done.map(|(_, delivery)| delivery.receipt.clone()).collect())
    }
}

/// A message as Lambda hands it in.
fn record(n: usize, queue: &str, delivery: &Delivery) -> Value {
    json!({
        "messageId": format!("m-{n}"),
        "receiptHandle": delivery.receipt,
        "body": delivery.body,
        "attributes": { "ApproximateReceiveCount": delivery.receive_count.to_string() },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": format!("arn:aws:sqs:us-east-1:000000000000:{queue}"),
        "awsRegion": "us-east-1",
    })
}

async fn next(State(shared): State<Arc<Shared>>) -> Response {
    let Some(Invocation { id, deadline_ms, event }) = shared.waiting.lock().await.recv().await else {
        return StatusCode::GONE.into_response();
    };
    let mut headers = HeaderMap::new();
    let arn = "arn:aws:lambda:us-east-1:000000000000:function:punctual-worker";
    for (name, value) in [
        ("lambda-runtime-aws-request-id", id),
        ("lambda-runtime-deadline-ms", deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", arn.into()),
    ] {
        headers.insert(name, HeaderValue::from_str(&value).expect("plain text"));
    }
    (headers, Json(event)).into_response()
}

// A function's runtime names no content type.

async fn response(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: String) -> StatusCode {
    shared.answer(&id, Ok(serde_json::from_str(&body).unwrap_or_default()))
}

async fn error(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: String) -> StatusCode {
    shared.answer(&id, Err(serde_json::from_str(&body).unwrap_or_default()))
}

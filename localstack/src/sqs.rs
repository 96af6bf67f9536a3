//! SQS, embedded: rustack behind a tap that reports every message the queue accepted.
//!
//! The tap counts what the queue said it accepted, never what a sender meant to send: a batch's rejected entries are
//! left out, and a sender that goes away after its request was read is counted all the same, because its messages are
//! in the queue.

use crate::listener::{self, stopped};
use crate::stack::{AcceptedMessage, MessageObserver, StackError};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use punctual_core::clock::{Clock, SystemClock};
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::body::SqsResponseBody;
use rustack_sqs_http::dispatch::dispatch_operation;
use rustack_sqs_http::response::error_to_response;
use rustack_sqs_http::router::resolve_operation;
use rustack_sqs_http::service::{SqsHttpConfig, SqsHttpService};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const SERVICE: &str = "SQS";

/// Largest request body read, in bytes: rustack's own limit. SQS's limit on a batch (1 MiB) is far below it.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Request id of the errors the tap writes itself; nobody looks these up.
const REQUEST_ID: &str = "punctual-local";

/// Carries an error's code to SDKs, over what the body says.
const QUERY_ERROR_HEADER: &str = "x-amzn-query-error";

/// An SQS endpoint that runs until the stop. Messages live in memory only.
pub(crate) struct Sqs {
    port: u16,
    task: JoinHandle<()>,
}

impl Sqs {
    /// Serves an SQS without queues on 127.0.0.1.
    pub(crate) fn start(
        port: u16,
        on_message: Option<MessageObserver>,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, StackError> {
        let listener = listener::bind(SERVICE, port)?;
        let port = listener::port_of(SERVICE, &listener)?;
        let provider =
            Arc::new(RustackSqs::new(SqsConfig { host: "127.0.0.1".to_owned(), port, ..SqsConfig::default() }));
        let handler = Arc::new(RustackSqsHandler::new(provider.clone()));
        let service = Tap {
            inner: SqsHttpService::new(handler.clone(), SqsHttpConfig::default()),
            handler,
            on_message,
            clock: SystemClock::new(),
        };
        let task = tokio::spawn(async move {
            let queues_end = async {
                stopped(stop.clone()).await;
                // Answers the long polls, which would otherwise hold their connections open.
                provider.shutdown_all().await;
            };
            tokio::join!(listener::serve(listener, service, stop.clone()), queues_end);
        });
        Ok(Self { port, task })
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Resolves when the listener, every connection and every queue are closed.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the SQS endpoint failed");
        }
    }
}

/// The service hyper calls: sends are observed, other bodies go through untouched.
#[derive(Clone)]
struct Tap {
    inner: SqsHttpService<RustackSqsHandler>,
    handler: Arc<RustackSqsHandler>,
    on_message: Option<MessageObserver>,
    clock: SystemClock,
}

impl Service<Request<Incoming>> for Tap {
    type Response = Response<SqsResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        match (&self.on_message, SendAction::of(request.headers())) {
            (Some(on_message), Some(action)) => {
                let (handler, on_message, clock) = (self.handler.clone(), on_message.clone(), self.clock);
                Box::pin(async move { Ok(observe(request, action, handler, on_message, clock).await) })
            }
            _ => {
                let call = self.inner.call(request);
                Box::pin(async move { call.await.map(with_aws_error_code) })
            }
        }
    }
}

/// The two actions that put messages on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendAction {
    One,
    Batch,
}

impl SendAction {
    fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("x-amz-target")?.to_str().ok()? {
            "AmazonSQS.SendMessage" => Some(Self::One),
            "AmazonSQS.SendMessageBatch" => Some(Self::Batch),
            _ => None,
        }
    }
}

async fn observe(
    request: Request<Incoming>,
    action: SendAction,
    handler: Arc<RustackSqsHandler>,
    on_message: MessageObserver,
    clock: SystemClock,
) -> Response<SqsResponseBody> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE);
    };
    let body = body.to_bytes();
    // A task of its own: hyper drops this future when the sender goes away, and what the queue has accepted by then
    // must still be counted.
    let call = tokio::spawn(async move {
        let response = send_on(&handler, &head.headers, body.clone()).await;
        let (head, answer) = response.into_parts();
        let answer = answer.collect().await.map(|answer| answer.to_bytes()).unwrap_or_default();
        if head.status == StatusCode::OK {
            for message in accepted_messages(action, &body, &answer, clock.now()) {
                on_message(message);
            }
        }
        Response::from_parts(head, SqsResponseBody::from_bytes(answer))
    });
    match call.await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(%error, "the message observer failed");
            refusal(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

async fn send_on(handler: &RustackSqsHandler, headers: &HeaderMap, body: Bytes) -> Response<SqsResponseBody> {
    let operation = match resolve_operation(headers) {
        Ok(operation) => operation,
        Err(error) => return error_to_response(&error, REQUEST_ID),
    };
    match dispatch_operation(handler, operation, body).await {
        Ok(response) => response,
        Err(error) => error_to_response(&error, REQUEST_ID),
    }
}

/// Gives an error the code that SQS gives it, by which the SDK tells it from others: rustack leaves a prefix out.
fn with_aws_error_code(mut response: Response<SqsResponseBody>) -> Response<SqsResponseBody> {
    if let Some(code) = response.headers_mut().get_mut(QUERY_ERROR_HEADER)
        && code == "MessageNotInflight;Sender"
    {
        *code = HeaderValue::from_static("AWS.SimpleQueueService.MessageNotInflight;Sender");
    }
    response
}

fn refusal(status: StatusCode) -> Response<SqsResponseBody> {
    let mut response = Response::new(SqsResponseBody::empty());
    *response.status_mut() = status;
    response
}

/// What the tap reads of a `SendMessage` request, and of one entry of a batch.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(default)]
    id: String,
    message_body: String,
    delay_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Target {
    queue_url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entries {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchAnswer {
    #[serde(default)]
    successful: Vec<Accepted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Accepted {
    id: String,
}

/// The messages of `request` that the queue accepted by its `answer`, an answer with status 200. Bodies that cannot be
/// read yield none.
fn accepted_messages(
    action: SendAction,
    request: &[u8],
    answer: &[u8],
    accepted_at: DateTime<Utc>,
) -> Vec<AcceptedMessage> {
    read_accepted(action, request, answer, accepted_at).unwrap_or_else(|error| {
        tracing::warn!(%error, "a send was accepted that the tap cannot read: it is missing from the figures");
        Vec::new()
    })
}

fn read_accepted(
    action: SendAction,
    request: &[u8],
    answer: &[u8],
    accepted_at: DateTime<Utc>,
) -> serde_json::Result<Vec<AcceptedMessage>> {
    let target: Target = serde_json::from_slice(request)?;
    let queue = target.queue_url.rsplit('/').next().unwrap_or_default();
    let entries: Vec<Entry> = match action {
        SendAction::One => vec![serde_json::from_slice(request)?],
        SendAction::Batch => {
            let answer: BatchAnswer = serde_json::from_slice(answer)?;
            let accepted: BTreeSet<String> = answer.successful.into_iter().map(|entry| entry.id).collect();
            let request: Entries = serde_json::from_slice(request)?;
            request.entries.into_iter().filter(|entry| accepted.contains(&entry.id)).collect()
        }
    };
    let message = |entry: Entry| AcceptedMessage {
        queue: queue.to_owned(),
        body: entry.message_body,
        delay: Duration::from_secs(entry.delay_seconds.and_then(|delay| u64::try_from(delay).ok()).unwrap_or(0)),
        accepted_at,
    };
    Ok(entries.into_iter().map(message).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: &[u8] = br#"{"QueueUrl":"http://127.0.0.1:1/000000000000/runs-normal","Entries":[
        {"Id":"a","MessageBody":"first"},
        {"Id":"b","MessageBody":"second","DelaySeconds":7},
        {"Id":"c","MessageBody":"third","DelaySeconds":-1}]}"#;

    fn bodies(messages: &[AcceptedMessage]) -> Vec<&str> {
        messages.iter().map(|message| message.body.as_str()).collect()
    }

    #[test]
    fn only_entries_the_queue_accepted_are_reported() {
        let answer = br#"{"Successful":[{"Id":"c"},{"Id":"b"}],"Failed":[{"Id":"a"}]}"#;
        let messages = accepted_messages(SendAction::Batch, BATCH, answer, DateTime::UNIX_EPOCH);
        assert_eq!(bodies(&messages), ["second", "third"]);
        assert_eq!(messages[0].queue, "runs-normal");
        assert_eq!(messages[0].delay, Duration::from_secs(7));
        assert_eq!(messages[1].delay, Duration::ZERO);
    }

    #[test]
    fn a_batch_refused_entry_by_entry_reports_nothing() {
        let messages = accepted_messages(SendAction::Batch, BATCH, br#"{"Failed":[{"Id":"a"}]}"#, DateTime::UNIX_EPOCH);
        assert!(messages.is_empty());
    }

    #[test]
    fn a_single_message_is_reported_whatever_the_answer_says() {
        let request = br#"{"QueueUrl":"http://127.0.0.1:1/0/q","MessageBody":"one","DelaySeconds":900}"#;
        let messages = accepted_messages(SendAction::One, request, b"{}", DateTime::UNIX_EPOCH);
        assert_eq!(bodies(&messages), ["one"]);
        assert_eq!(messages[0].delay, Duration::from_secs(900));
    }

    #[test]
    fn unreadable_bodies_report_nothing() {
        for request in [&b""[..], b"{", b"[]", b"{\"QueueUrl\":3}", b"\xff\xfe", b"{\"QueueUrl\":\"q\"}"] {
            assert!(accepted_messages(SendAction::One, request, b"{}", DateTime::UNIX_EPOCH).is_empty());
            assert!(accepted_messages(SendAction::Batch, request, b"{}", DateTime::UNIX_EPOCH).is_empty());
        }
        assert!(accepted_messages(SendAction::Batch, BATCH, b"<html>", DateTime::UNIX_EPOCH).is_empty());
    }
}

//! What stands around Punctual when its traces are looked at: a collector of spans that speaks OTLP, and, at the same
//! address, an SMS gateway and a receiver of webhooks that keep the `traceparent` of each call.

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use prost::Message;
use punctual_core::trace::{TRACEPARENT, TraceContext};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// A span as it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The service that told it.
    pub service: String,
    /// What was done.
    pub name: String,
    /// The trace, in hexadecimal digits.
    pub trace_id: String,
    /// The span, in hexadecimal digits.
    pub span_id: String,
    /// The span that led to it; empty if none did.
    pub parent_id: String,
    /// What is said of it.
    pub attributes: BTreeMap<String, String>,
}

/// How spans are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Takes,
    /// Never: requests are accepted, and not answered.
    Hangs,
}

/// The collector, and those who are called.
#[derive(Clone)]
pub struct Collector {
    /// Where it is.
    pub address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    manner: Manner,
    asked: AtomicUsize,
    spans: Mutex<Vec<Told>>,
    called: Mutex<Vec<Option<TraceContext>>>,
}

impl Collector {
    /// Starts on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start(manner: Manner) -> anyhow::Result<Self> {
        let inner = Arc::new(Inner {
            manner,
            asked: AtomicUsize::default(),
            spans: Mutex::default(),
            called: Mutex::default(),
        });
        let app = Router::new()
            .route("/v1/traces", post(take_spans))
            .route("/v1/sms", post(take_call))
            .route("/hook", post(take_call))
            .with_state(inner.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr().context("its address")?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Collector { address, inner })
    }

    /// The address of `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests with spans.
    pub fn asked(&self) -> usize {
        self.inner.asked.load(Ordering::Relaxed)
    }

    /// All spans that were told.
    pub fn spans(&self) -> Vec<Told> {
        self.inner.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The traces of all calls, in order.
    pub fn called(&self) -> Vec<Option<TraceContext>> {
        self.inner.called.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn take_spans(State(inner): State<Arc<Inner>>, body: Bytes) -> Response {
    inner.asked.fetch_add(1, Ordering::Relaxed);
    if inner.manner == Manner::Hangs {
        std::future::pending::<()>().await;
    }
    let Ok(told) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST.into_response() };
    let spans = told.resource_spans.into_iter().flat_map(|resource| {
        let mut of = attributes(resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        let service = of.remove("service.name").unwrap_or_default();
        let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| Told {
            service: service.clone(),
            name: span.name,
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_id: hex(&span.parent_span_id),
            attributes: attributes(span.attributes),
        })
    });
    inner.spans.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    StatusCode::OK.into_response()
}

async fn take_call(State(inner): State<Arc<Inner>>, headers: HeaderMap) -> Response {
    let said = headers.get(TRACEPARENT).and_then(|said| said.to_str().ok());
    inner.called.lock().unwrap_or_else(PoisonError::into_inner).push(said.and_then(TraceContext::parse));
    axum::Json(serde_json::json!({"id": "m-1"})).into_response()
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        other => format!("{other:?}"),
    };
    all.into_iter().map(|KeyValue { key, value, .. }| (key, text(value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The way to the collector. Spans are gathered and sent by a thread of their own, and that thread alone waits: a collector
//! that is gone, slow or full costs spans and nothing else.

use super::super::table::Service;
use super::Span;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A collector answers within this, or not at all.
const ANSWER: Duration = Duration::from_secs(5);
const LONGEST_ANSWER_BYTES: usize = 64 * 1_024;
/// So long the end of an invocation waits for its spans to be sent.
const FLUSH: Duration = Duration::from_secs(1);
/// So long the end of a process does.
const STOP: Duration = Duration::from_secs(5);

/// Spans on their way to a collector.
pub(crate) struct Otlp {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
    is_flushing: Arc<AtomicBool>,
}

impl Otlp {
    /// Begins; must be called inside a runtime.
    ///
    /// # Errors
    /// Says what is wrong with the settings.
    pub(super) fn start(service: Service) -> Result<Self, String> {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER)
            .build()
            .map_err(|error| format!("no HTTP client can be made: {error}"))?;
        let collector = Collector { http, runtime: Handle::current(), is_missing: Arc::default() };
        let exporter = SpanExporter::builder().with_http().with_http_client(collector).build();
        let mut processor = BatchSpanProcessor::builder(exporter.map_err(|error| error.to_string())?).build();
        processor.set_resource(&resource(service));
        let scope = InstrumentationScope::builder("punctual").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Otlp { processor: Arc::new(processor), scope, is_flushing: Arc::default() })
    }

    pub(super) fn take(&self, span: Span, attributes: Vec<KeyValue>) {
        let Span { name, kind, context, parent, time, failure } = span;
        self.processor.on_end(SpanData {
            span_context: SpanContext::new(
                TraceId::from(context.trace_id()),
                SpanId::from(context.span_id()),
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span_id())),
            parent_span_is_remote: parent.is_some(),
            span_kind: kind,
            name: name.into(),
            start_time: time.0.into(),
            end_time: time.1.max(time.0).into(),
            attributes,
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: failure.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        });
    }

    /// Has what was gathered sent, and waits for that a moment. While a former flush goes on, it is left to that one.
    pub(crate) async fn flush(&self) {
        if self.is_flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (processor, is_flushing) = (self.processor.clone(), self.is_flushing.clone());
        let flushed = tokio::task::spawn_blocking(move || {
            let flushed = processor.force_flush();
            is_flushing.store(false, Ordering::Release);
            flushed
        });
        match timeout(FLUSH, flushed).await {
            Ok(Ok(Ok(()))) => {}
            // Told by the collector's client, once.
            failed => tracing::debug!(?failed, "spans were not all sent"),
        }
    }

    /// Sends what was gathered, if that goes quickly, and takes no more.
    pub(crate) async fn stop(&self) {
        let processor = self.processor.clone();
        let stopped = tokio::task::spawn_blocking(move || processor.shutdown_with_timeout(STOP)).await;
        tracing::debug!(?stopped, "no more spans are sent");
    }
}

/// Who tells it. `OTEL_SERVICE_NAME` gives another name, and `OTEL_RESOURCE_ATTRIBUTES` adds to it.
fn resource(service: Service) -> Resource {
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    Resource::builder()
        .with_service_name(name.unwrap_or_else(|| format!("punctual-{}", service.as_str())))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// The collector, asked on the process's runtime in the name of the thread that waits for it.
#[derive(Debug)]
struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    is_missing: Arc<AtomicBool>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(ask(self.http.clone(), request)).await;
        let answer = sent.map_err(HttpError::from).and_then(|answer| answer);
        let problem = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        // Once, when it changes: it may go on for days.
        match (self.is_missing.swap(problem.is_some(), Ordering::Relaxed), problem) {
            (false, Some(problem)) => tracing::warn!(problem, "the collector takes no spans: they are lost meanwhile"),
            (true, None) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
        answer
    }
}

async fn ask(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    // Its address may hold a password.
    let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
    let answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
    let body = Limited::new(body, LONGEST_ANSWER_BYTES).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

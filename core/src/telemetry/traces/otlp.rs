//! The way to the collector. Spans are gathered and sent by a thread of their own, and that thread alone waits: a collector
//! that is gone, slow or full costs spans, which are counted.

use super::super::table::{SPANS_LOST, Service};
use super::Span;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{RetryPolicy, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A collector answers within this, or not at all.
const ANSWER: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(1);
/// An idle connection is closed before the collector does so, or a function's freeze breaks it.
const IDLE: Duration = Duration::from_secs(15);
const LONGEST_ANSWER_BYTES: usize = 64 * 1_024;
/// Spans that wait to be sent, at most: some 8 MB.
const QUEUE: usize = 8_192;
/// So long the end of a process waits for its spans to be sent.
const STOP: Duration = Duration::from_secs(5);
/// How the name begins that a process has unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` give one.
const UNNAMED: &str = "unknown_service";

/// Spans on their way to a collector.
pub(crate) struct Otlp {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
    state: Arc<State>,
    is_flushing: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    /// Spans that were taken and not handed to the exporter yet.
    waiting: AtomicUsize,
    /// The collector took nothing the last time.
    is_missing: AtomicBool,
}

impl Otlp {
    /// Begins; must be called inside a runtime.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(super) fn start(service: Service) -> Result<Self, String> {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .pool_idle_timeout(IDLE)
            .build()
            .map_err(|error| format!("no HTTP client can be made: {error}"))?;
        let state = Arc::new(State::default());
        let collector = Collector { http, runtime: Handle::current(), state: state.clone() };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            // Between two tries the thread would sleep, and a flush with it.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        // What it says names the address, which may hold a key.
        let exporter = exporter.map_err(|_| "the variables OTEL_EXPORTER_OTLP_… are not understood".to_owned())?;
        let batches = BatchConfigBuilder::default().with_max_queue_size(QUEUE).build();
        let counted = Counted { exporter, state: state.clone() };
        let mut processor = BatchSpanProcessor::builder(counted).with_batch_config(batches).build();
        processor.set_resource(&resource(service));
        let scope = InstrumentationScope::builder("punctual").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Otlp { processor: Arc::new(processor), scope, state, is_flushing: Arc::default() })
    }

    pub(super) fn take(&self, span: Span, attributes: Vec<KeyValue>) {
        if self.state.waiting.fetch_add(1, Ordering::AcqRel) >= QUEUE {
            self.state.waiting.fetch_sub(1, Ordering::AcqRel);
            return SPANS_LOST.counter(&[]).increment(1);
        }
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
            // A call is made by the process that took the message; all else goes from process to process.
            parent_span_is_remote: parent.is_some() && kind != SpanKind::Client,
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

    /// Has what was gathered sent, and waits for that so long at most; not at all while the collector is missing. Spans that
    /// end while a former flush goes on wait for the next one.
    pub(crate) async fn flush(&self, at_most: Duration) {
        if self.is_flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (processor, is_flushing) = (self.processor.clone(), self.is_flushing.clone());
        let flushed = tokio::task::spawn_blocking(move || {
            let flushed = processor.force_flush();
            is_flushing.store(false, Ordering::Release);
            flushed
        });
        if self.state.is_missing.load(Ordering::Relaxed) {
            return;
        }
        match timeout(at_most, flushed).await {
            Ok(Ok(Ok(()))) => {}
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

/// Who tells it.
fn resource(service: Service) -> Resource {
    let said = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
    let name = said.get(&"service.name".into()).map(|name| name.to_string());
    if name.is_some_and(|name| !name.is_empty() && !name.starts_with(UNNAMED)) {
        return said;
    }
    let attributes = said.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let attributes = attributes.collect::<Vec<_>>();
    Resource::builder_empty()
        .with_attributes(attributes)
        .with_service_name(format!("punctual-{}", service.as_str()))
        .build()
}

/// An exporter that counts what it could not send.
#[derive(Debug)]
struct Counted {
    exporter: opentelemetry_otlp::SpanExporter,
    state: Arc<State>,
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.state.waiting.fetch_sub(spans, Ordering::AcqRel);
        let sent = self.exporter.export(batch).await;
        if sent.is_err() {
            SPANS_LOST.counter(&[]).increment(spans as u64);
        }
        sent
    }

    fn shutdown_with_timeout(&self, at_most: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(at_most)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// The collector, asked on the process's runtime in the name of the thread that waits for it.
#[derive(Debug)]
struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    state: Arc<State>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = match self.runtime.spawn(ask(self.http.clone(), request)).await {
            Ok(answer) => answer,
            // The process ends, and its runtime before this thread: nothing is known of the collector.
            Err(ended) => return Err(ended.into()),
        };
        let problem = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(all_of(&**error)),
        };
        // Once, when it changes: it may go on for days.
        match (self.state.is_missing.swap(problem.is_some(), Ordering::Relaxed), problem) {
            (false, Some(problem)) => tracing::warn!(problem, "the collector takes no spans: they are lost meanwhile"),
            (true, None) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
        answer
    }
}

async fn ask(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    // Its address may hold a key.
    let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
    let answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
    // The status says whether it took them. A body that is broken off, or too long, is no reason to think otherwise.
    let body = Limited::new(body, LONGEST_ANSWER_BYTES).collect().await;
    Ok(Response::from_parts(head, body.map(|body| body.to_bytes()).unwrap_or_default()))
}

/// An error with what led to it: `connection refused` is no part of its own words.
fn all_of(error: &(dyn Error + 'static)) -> String {
    let (mut words, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

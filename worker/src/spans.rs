//! What a worker tells of a run's trace: each delivery of its message, and in it each attempt.

use crate::lease::Held;
use crate::pipeline::{Context, Step};
use chrono::{DateTime, Utc};
use punctual_core::message::Message;
use punctual_core::payload::Handler;
use punctual_core::ports::{Call, Delivery};
use punctual_core::retry::OutcomeClass;
use punctual_core::telemetry::traces::{self, KeyValue, Span, SpanKind};
use punctual_core::trace::{SpanKey, TraceContext};

/// The span of a delivery: under the one that enqueued it, or first in its run's own trace.
pub(crate) fn delivery(message: &Message, delivery: &Delivery) -> TraceContext {
    let key = SpanKey { what: "process", by: &delivery.receipt, nth: delivery.receive_count.into() };
    match message.trace {
        Some(parent) => parent.child(key),
        None => TraceContext::of_run(&message.run_id(), key, traces::ratio()),
    }
}

/// The span of an attempt in a delivery; none where nobody records the run, nor asked for it. A receiver that is told of a
/// trace that is not recorded records none of its own.
pub(crate) fn attempt(context: &Context, held: &Held, message: &Message, attempt: u32) -> Option<TraceContext> {
    let key = SpanKey { what: "attempt", by: &context.id, nth: attempt.into() };
    let is_somebodys = message.trace.is_some() || traces::are_recorded();
    held.trace.filter(|_| is_somebodys).map(|delivery| delivery.child(key))
}

/// Records the span of a delivery that ends now with `step`.
pub(crate) fn record_delivery(context: &Context, held: &Held, message: &Message, step: &Step) {
    let Some(delivery) = held.trace else { return };
    let time = (held.taken_at, context.clock.now());
    let span = Span {
        name: "process",
        kind: SpanKind::Consumer,
        context: delivery,
        parent: message.trace,
        time,
        failure: None,
    };
    traces::record(span, || {
        let mut attributes = traces::of_run(&message.run_id(), held.delivery.priority);
        attributes.push(KeyValue::new("worker.id", context.id.clone()));
        attributes.push(KeyValue::new("receive_count", i64::from(held.delivery.receive_count)));
        attributes.push(KeyValue::new("step", step.word()));
        attributes
    });
}

/// Records the span of a call that went out at `began` and ends now.
pub(crate) fn record_attempt(
    context: &Context,
    held: &Held,
    call: &Call,
    handler: Handler,
    began: DateTime<Utc>,
    outcome: OutcomeClass,
) {
    let (Some(trace), Ok(message)) = (call.trace, &held.message) else { return };
    let failure = (outcome != OutcomeClass::Delivered).then_some(outcome.as_str());
    let time = (began, context.clock.now());
    let span = Span { name: "attempt", kind: SpanKind::Client, context: trace, parent: held.trace, time, failure };
    traces::record(span, || {
        let mut attributes = traces::of_run(&message.run_id(), held.delivery.priority);
        attributes.push(KeyValue::new("worker.id", context.id.clone()));
        attributes.push(KeyValue::new("attempt", i64::from(call.attempt)));
        attributes.push(KeyValue::new("handler", handler.as_str()));
        attributes.push(KeyValue::new("outcome", outcome.as_str()));
        attributes
    });
}

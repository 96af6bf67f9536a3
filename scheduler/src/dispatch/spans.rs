//! What dispatch tells of a run's trace: the send of its message, the first span of it.

use super::fire::Firing;
use super::pass::Dispatcher;
use chrono::{DateTime, Utc};
use punctual_core::error::PortError;
use punctual_core::message::Message;
use punctual_core::ports::{PortResult, SendResult};
use punctual_core::priority::Priority;
use punctual_core::telemetry::traces::{self, KeyValue, Span, SpanKind};
use punctual_core::trace::{SpanKey, TraceContext};

impl Dispatcher {
    /// The span of a send begun at `at`, where this process records spans. Elsewhere the run's own trace is meant, and needs
    /// no word.
    pub(super) fn span_of_send(&self, message: &Message, at: DateTime<Utc>) -> Option<TraceContext> {
        let nth = at.timestamp_millis().cast_unsigned();
        let key = SpanKey { what: "send", by: &self.id, nth };
        traces::are_recorded().then(|| TraceContext::of_run(&message.run_id(), key, traces::ratio()))
    }

    /// Records the spans of sends that end now, also of those of which nobody knows whether they reached the queue.
    pub(super) fn record_sends(
        &self,
        priority: Priority,
        firings: &[Firing],
        at: DateTime<Utc>,
        sent: &PortResult<Vec<SendResult>>,
    ) {
        for (n, Firing { message, .. }) in firings.iter().enumerate() {
            let Some(context) = self.span_of_send(message, at) else { return };
            let failure = match sent {
                Ok(results) => results.get(n).and_then(|result| result.as_ref().err()),
                Err(error) => Some(error),
            };
            let (time, failure) = ((at, self.clock.now()), failure.map(PortError::class));
            traces::record(
                Span { name: "send", kind: SpanKind::Producer, context, parent: None, time, failure },
                || {
                    let mut attributes = traces::of_run(&message.run_id(), priority);
                    attributes.push(KeyValue::new("run.due_at", message.due_at.to_rfc3339()));
                    attributes.push(KeyValue::new("scheduler.id", self.id.clone()));
                    attributes
                },
            );
        }
    }
}

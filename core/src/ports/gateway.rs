//! Step 8: whoever does the work of a run.

use crate::payload::{Handler, Payload};
use crate::retry::Outcome;
use crate::run::RunId;
use crate::trace::TraceContext;
use async_trait::async_trait;
use std::time::Duration;

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The run's id: the same for every attempt, so that a receiver that can will drop repeats.
    pub reference: RunId,
    /// Which attempt it is; the first is 1.
    pub attempt: u32,
    /// What it carries, its texts finished.
    pub payload: Payload,
    /// The span that it is, for whoever is called to go on from; none if nobody records it.
    pub trace: Option<TraceContext>,
    /// How long its caller waits, counted from when it is made: an outcome that is known must be handed over before.
    pub time: Duration,
}

/// Does the work of runs: sends texts and emails, calls webhooks, puts messages on queues. Every end of a call is an
/// [`Outcome`]; whoever cannot tell whether the request went out must say [`Outcome::Unknown`]. The caller bounds the time:
/// a call that is dropped counts as unknown.
#[async_trait]
pub trait Gateway: Send + Sync {
    /// Makes one call.
    async fn send(&self, call: &Call) -> Outcome;

    /// Whether this worker has what it takes to do such work. Runs that it cannot do are put back for one that can.
    fn serves(&self, handler: Handler) -> bool;
}

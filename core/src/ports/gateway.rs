//! Step 8: the SMS gateway.

use crate::payload::SmsPayload;
use crate::retry::Outcome;
use crate::run::RunId;
use async_trait::async_trait;

/// What goes to the gateway.
#[derive(Clone, Debug)]
pub struct SmsRequest {
    /// The run's id: the same for every attempt, so that a gateway that can will drop repeats.
    pub reference: RunId,
    /// Number and text.
    pub payload: SmsPayload,
}

/// Sends text messages. Every end of a call is an [`Outcome`]; whoever cannot tell whether the request went out must say
/// [`Outcome::Unknown`]. The caller bounds the time: a call that is dropped counts as unknown.
#[async_trait]
pub trait Gateway: Send + Sync {
    /// Sends one message.
    async fn send(&self, request: &SmsRequest) -> Outcome;
}

//! Step 8, *deliver*: one bounded call to whoever does the work of a run, and what its answer means.
//!
//! | handler | delivered | temporary | permanent | unknown |
//! |---|---|---|---|---|
//! | `sms` | 2xx | 408, 429, 5xx, refused connection; every other 4xx, and 3xx: address, key or contract are wrong, the message is not | 400 or 422 with an `error` code, 403 with `opted_out` | 502, 504, 520, 524, lost connection |
//! | `email` | accepted after its text | 4yz, refused connection, trouble with TLS, login or sender, silence before the text; every other 5yz | 5yz that blames recipient, size or content | connection lost, or silence, once the text goes out |
//! | `webhook` | 2xx | 408, 425, 429, 5xx, every other 4xx, refused connection | 3xx; a refused address; 410, which also pauses the job | 502, 504, 520, 524, lost connection |
//! | `queue` | taken | throttled, no such queue, no right to it, no connection | a body that SQS does not take; one of Punctual's own queues | no answer, 5xx |
//! | `noop` | always | | | |
//!
//! A 4xx of a webhook is retried and then becomes a dead letter: receivers answer 401 or 404 while they are being changed,
//! and a run that fails for good leaves no letter. Of 5xx, those are unknown by which a proxy says that it asked, and got no
//! answer or none that makes sense. No answer within the attempt's time is unknown everywhere. `Retry-After`,
//! in seconds or as a date, is handed on with what is temporary. No reason holds anything of a payload or an answer's text.

mod email;
mod guard;
mod http;
mod queue;
mod sms;
mod webhook;

pub use email::Mail;
pub use guard::{Lookup, SystemLookup};
pub use queue::Queues;
pub use sms::{Adapter, JsonAdapter, SmsGateway, TextMessage};
pub use webhook::Webhooks;

use async_trait::async_trait;
use punctual_core::clock::Clock;
use punctual_core::payload::{Handler, Payload};
use punctual_core::ports::{Call, Gateway};
use punctual_core::retry::Outcome;
use std::time::Duration;

/// So long before its caller stops waiting a handler hands over what it knows.
const HAND_OVER: Duration = Duration::from_millis(100);

/// All that this worker can do.
pub struct Handlers {
    /// None = it has no SMS gateway.
    pub sms: Option<SmsGateway>,
    /// None = it has no mail server.
    pub mail: Option<Mail>,
    /// Calls of the jobs' own addresses.
    pub webhooks: Webhooks,
    /// Other queues.
    pub queues: Queues,
}

#[async_trait]
impl Gateway for Handlers {
    async fn send(&self, call: &Call) -> Outcome {
        match (&call.payload, &self.sms, &self.mail) {
            (Payload::Sms { to, text, .. }, Some(sms), _) => sms.send(call, to, text).await,
            (Payload::Email { to, subject, text, .. }, _, Some(mail)) => mail.send(call, to, subject, text).await,
            (Payload::Webhook { url, body, secret, .. }, ..) => {
                self.webhooks.send(call, url, body, secret.as_ref()).await
            }
            (Payload::Queue { url, body, .. }, ..) => self.queues.send(call, url, body).await,
            (Payload::Noop, ..) => Outcome::Delivered { gateway_ref: String::new() },
            (payload, ..) => {
                let reason = format!("this worker has nothing configured for {}", payload.handler().as_str());
                Outcome::Temporary { reason, retry_after: None }
            }
        }
    }

    fn serves(&self, handler: Handler) -> bool {
        match handler {
            Handler::Sms => self.sms.is_some(),
            Handler::Email => self.mail.is_some(),
            Handler::Webhook | Handler::Queue | Handler::Noop => true,
        }
    }
}

/// What is left of the time of one call: what comes after its outcome is known takes no more than that.
#[derive(Clone, Copy)]
struct TimeLeft<'a> {
    clock: &'a dyn Clock,
    /// By the clock's monotonic time.
    until: Duration,
}

impl<'a> TimeLeft<'a> {
    /// All that a call has which is made now.
    fn of(call: &Call, clock: &'a dyn Clock) -> Self {
        TimeLeft { clock, until: clock.monotonic() + call.time.saturating_sub(HAND_OVER) }
    }

    /// Half of it.
    fn half(self) -> Self {
        TimeLeft { clock: self.clock, until: self.clock.monotonic() + self.now() / 2 }
    }

    /// As it is now.
    fn now(self) -> Duration {
        self.until.saturating_sub(self.clock.monotonic())
    }
}

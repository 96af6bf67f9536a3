//! The `webhook` handler: a POST to an address that a job names, by Standard Webhooks.
//!
//! The address is somebody else's choice, and is called from inside the operator's network. It is judged as it is written,
//! and again by what its name stands for, at the moment it is called; no redirect is followed and no proxy asked.

use super::TimeLeft;
use super::guard::{Guard, Judge, Lookup, refused};
use super::http::{build, client, failed, read, retry_after, traced};
use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, Mac};
use punctual_core::address::{self, AllowList, check_url};
use punctual_core::clock::Clock;
use punctual_core::payload::Secret;
use punctual_core::ports::Call;
use punctual_core::retry::Outcome;
use punctual_core::run::RunId;
use reqwest::{Client, Url};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;

/// Secrets are written with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Calls webhooks.
pub struct Webhooks {
    /// For addresses of which nothing is known.
    guarded: Client,
    /// For those that the operator named.
    open: Client,
    allowed: AllowList,
    clock: Arc<dyn Clock>,
}

impl Webhooks {
    /// Calls bounded by `attempt_timeout`; what `allowed` names is called whatever its address is.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        allowed: AllowList,
        lookup: Arc<dyn Lookup>,
        attempt_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        Webhooks::judging(address::forbidden, allowed, lookup, attempt_timeout, clock)
    }

    fn judging(
        judge: Judge,
        allowed: AllowList,
        lookup: Arc<dyn Lookup>,
        attempt_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let client_with =
            |judge| build(client(attempt_timeout).dns_resolver(Arc::new(Guard { lookup: lookup.clone(), judge })));
        Ok(Webhooks { guarded: client_with(judge)?, open: client_with(|_| None)?, allowed, clock })
    }

    pub(super) async fn send(&self, call: &Call, url: &str, body: &str, secret: Option<&Secret>) -> Outcome {
        let url = match check_url(url, &self.allowed) {
            Ok(url) => url,
            Err(reason) => return Outcome::Permanent { reason },
        };
        let client = if self.allowed.allows(&url) { &self.open } else { &self.guarded };
        self.post(client, url, call, body, secret).await
    }

    async fn post(&self, client: &Client, url: Url, call: &Call, body: &str, secret: Option<&Secret>) -> Outcome {
        let left = TimeLeft::of(call, &*self.clock);
        let (id, timestamp) = (webhook_id(&call.reference), self.clock.now().timestamp());
        let mut request = client
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", timestamp)
            .header("idempotency-key", &id)
            .header("punctual-attempt", call.attempt);
        if let Some(secret) = secret {
            match signature(secret, &id, timestamp, body) {
                Some(signature) => request = request.header("webhook-signature", signature),
                None => return Outcome::Permanent { reason: "its signing secret cannot be read".into() },
            }
        }
        match traced(request, call).body(body.to_owned()).send().await {
            Ok(answer) => {
                let outcome = judge(answer.status().as_u16(), retry_after(answer.headers(), self.clock.now()));
                // Nothing of it is needed, but a connection whose answer was read can serve the next call.
                read(answer, left.now()).await;
                outcome
            }
            Err(error) => match refused(&error) {
                Some(refused) => Outcome::Permanent { reason: refused.to_string() },
                None => failed(&error, "the receiver"),
            },
        }
    }
}

/// A run's id as `webhook-id`. Full stops divide what is signed, so one in a job's id is written as `=2E`, which no id holds.
fn webhook_id(run: &RunId) -> String {
    run.to_string().replace('.', "=2E")
}

/// `v1,` and the signature of what is sent (Standard Webhooks, "Signature scheme"); none when the secret holds no key.
fn signature(secret: &Secret, id: &str, timestamp: i64, body: &str) -> Option<String> {
    let key = LENIENT.decode(secret.key_text()).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

/// What a status means.
fn judge(status: u16, retry_after: Option<Duration>) -> Outcome {
    let temporary = |reason| Outcome::Temporary { reason, retry_after };
    match status {
        200..=299 => Outcome::Delivered { gateway_ref: format!("HTTP {status}") },
        300..=399 => Outcome::Permanent {
            reason: format!(
                "the receiver answered {status}: redirects are not followed, write its new address into the job"
            ),
        },
        410 => Outcome::Gone { reason: "the receiver is gone (410): its job is paused".into() },
        // 520 and 524 are a proxy's that got no sense, or nothing, out of whom it had asked (Cloudflare's codes).
        502 | 504 | 520 | 524 => {
            Outcome::Unknown { reason: format!("the receiver got no answer behind it ({status})") }
        }
        408 | 425 | 429 | 500.. => temporary(format!("the receiver answered {status}")),
        _ => temporary(format!("the receiver answered {status}: check address, secret and body")),
    }
}

#[cfg(test)]
mod tests;

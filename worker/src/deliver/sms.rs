//! The `sms` handler: a text message through a gateway over HTTP.
//!
//! What differs from gateway to gateway is an [`Adapter`]: how it is asked, and what its answers mean.

use super::http::{build, client, failed, read, retry_after};
use punctual_core::clock::Clock;
use punctual_core::retry::Outcome;
use punctual_core::run::RunId;
use reqwest::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const LONGEST_REF: usize = 100;

/// One message.
#[derive(Clone, Copy)]
pub struct TextMessage<'a> {
    /// The same for every attempt of a run.
    pub reference: &'a str,
    /// The phone number.
    pub to: &'a str,
    /// The text.
    pub text: &'a str,
}

/// The way of one kind of gateway.
pub trait Adapter: Send + Sync {
    /// The JSON that asks it to send a message.
    fn body(&self, message: TextMessage<'_>) -> Value;

    /// What its answer means. A reason holds nothing of number or text.
    fn judge(&self, status: u16, retry_after: Option<Duration>, body: &[u8]) -> Outcome;
}

/// A gateway that takes `{reference, to, text}` and answers `{id}` or `{error}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonAdapter;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    id: String,
    error: String,
}

impl Adapter for JsonAdapter {
    fn body(&self, message: TextMessage<'_>) -> Value {
        json!({"reference": message.reference, "to": message.to, "text": message.text})
    }

    fn judge(&self, status: u16, retry_after: Option<Duration>, body: &[u8]) -> Outcome {
        judge(status, retry_after, &serde_json::from_slice(body).unwrap_or_default())
    }
}

/// The gateway of this worker.
pub struct SmsGateway {
    client: Client,
    url: String,
    worker: String,
    adapter: Box<dyn Adapter>,
    clock: Arc<dyn Clock>,
}

impl SmsGateway {
    /// A gateway at `url`, called in the name of `worker`, with calls bounded by `attempt_timeout`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        url: String,
        worker: String,
        adapter: Box<dyn Adapter>,
        attempt_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        Ok(SmsGateway { client: build(client(attempt_timeout))?, url, worker, adapter, clock })
    }

    pub(super) async fn send(&self, reference: &RunId, to: &str, text: &str) -> Outcome {
        let body = self.adapter.body(TextMessage { reference: &reference.to_string(), to, text });
        let call = self.client.post(&self.url).header("x-punctual-worker", &self.worker).json(&body);
        match call.send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let retry_after = retry_after(answer.headers(), self.clock.now());
                self.adapter.judge(status, retry_after, &read(answer).await)
            }
            Err(error) => failed(&error, "the gateway"),
        }
    }
}

/// What a status, a `Retry-After` and a body mean.
fn judge(status: u16, retry_after: Option<Duration>, answer: &Answer) -> Outcome {
    let temporary = |reason| Outcome::Temporary { reason, retry_after };
    let permanent = |code: &str| Outcome::Permanent { reason: format!("the gateway refused it: {code} ({status})") };
    match (status, error_code(&answer.error)) {
        (200..=299, _) => Outcome::Delivered { gateway_ref: plain(&answer.id) },
        (504, _) => Outcome::Unknown { reason: "the gateway got no answer behind it (504)".into() },
        (400 | 422, Some(code)) => permanent(code),
        (403, Some("opted_out")) => permanent("opted_out"),
        (408 | 429 | 500.., _) => temporary(format!("the gateway answered {status}")),
        _ => temporary(format!("the gateway answered {status}: check its address and key")),
    }
}

/// A gateway's error code, if it looks like one; anything else might quote the phone number.
fn error_code(text: &str) -> Option<&str> {
    let is_code = !text.is_empty() && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_code.then_some(text)
}

/// A gateway's id, as far as it is plain; phone numbers are digits and `+`, so an id of these alone is not kept.
fn plain(id: &str) -> String {
    let is_number = id.bytes().all(|b| b.is_ascii_digit() || b == b'+') && (8..=16).contains(&id.len());
    if is_number {
        return String::new();
    }
    id.chars().filter(char::is_ascii_graphic).take(LONGEST_REF).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::retry::OutcomeClass::{self, Delivered, Permanent, Temporary, Unknown};

    #[test]
    fn each_answer_means_what_the_table_says() {
        let answers: [(u16, &str, OutcomeClass); 21] = [
            (200, "", Delivered),
            (202, "bad_number", Delivered),
            (302, "", Temporary),
            (400, "bad_number", Permanent),
            (400, "", Temporary),
            (400, "+447700900123 is bad", Temporary),
            (401, "invalid_token", Temporary),
            (402, "no_credit", Temporary),
            (403, "opted_out", Permanent),
            (403, "forbidden", Temporary),
            (403, "", Temporary),
            (404, "not_found", Temporary),
            (408, "", Temporary),
            (409, "in_progress", Temporary),
            (422, "bad_number", Permanent),
            (429, "slow_down", Temporary),
            (500, "", Temporary),
            (502, "", Temporary),
            (503, "", Temporary),
            (504, "", Unknown),
            (599, "", Temporary),
        ];
        for (status, error, expected) in answers {
            let answer = Answer { id: "id-1".into(), error: error.into() };
            let outcome = judge(status, Some(Duration::from_secs(7)), &answer);
            assert_eq!(outcome.class(), expected, "{status} {error}");
            assert!(!outcome.reason().unwrap_or_default().contains("7700"), "{outcome:?}");
            if let Outcome::Temporary { retry_after, .. } = outcome {
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
            }
        }
    }

    #[test]
    fn a_gateways_id_is_kept_only_as_far_as_it_is_plain() {
        assert_eq!(plain("sms-00000001"), "sms-00000001");
        assert_eq!(plain("a\nb é"), "ab");
        assert_eq!(plain(&"x".repeat(5_000)).len(), LONGEST_REF);
        assert_eq!(plain("+447700900123"), "");
    }
}

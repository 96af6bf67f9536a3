//! The `sms` handler: a text message through a gateway over HTTP.
//!
//! What differs from gateway to gateway is an [`Adapter`]: how it is asked, and what its answers mean.

use super::TimeLeft;
use super::http::{build, client, failed, read, retry_after, traced};
use punctual_core::clock::Clock;
use punctual_core::ports::Call;
use punctual_core::retry::Outcome;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const LONGEST_REF: usize = 100;
/// The last digits of a number by which a person is found.
const TELLING_DIGITS: usize = 7;

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

    /// What its answer to a message means. Neither a reason nor an id holds anything of number or text.
    fn judge(&self, message: TextMessage<'_>, status: u16, retry_after: Option<Duration>, body: &[u8]) -> Outcome;
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

    fn judge(&self, message: TextMessage<'_>, status: u16, retry_after: Option<Duration>, body: &[u8]) -> Outcome {
        judge(message.to, status, retry_after, &serde_json::from_slice(body).unwrap_or_default())
    }
}

/// The gateway of this worker.
pub struct SmsGateway {
    client: Client,
    url: Url,
    worker: String,
    adapter: Box<dyn Adapter>,
    clock: Arc<dyn Clock>,
}

impl SmsGateway {
    /// A gateway at `url`, called in the name of `worker`, with calls bounded by `attempt_timeout`.
    ///
    /// # Errors
    /// When this is no address, or no HTTP client can be made.
    pub fn new(
        url: &str,
        worker: String,
        adapter: Box<dyn Adapter>,
        attempt_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|e| format!("the address of the SMS gateway cannot be read: {e}"))?;
        Ok(SmsGateway { client: build(client(attempt_timeout))?, url, worker, adapter, clock })
    }

    pub(super) async fn send(&self, call: &Call, to: &str, text: &str) -> Outcome {
        let left = TimeLeft::of(call, &*self.clock);
        let message = TextMessage { reference: &call.reference.to_string(), to, text };
        let body = self.adapter.body(message);
        let request = self.client.post(self.url.clone()).header("x-punctual-worker", &self.worker).json(&body);
        let request = traced(request, call);
        match request.send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let retry_after = retry_after(answer.headers(), self.clock.now());
                self.adapter.judge(message, status, retry_after, &read(answer, left.now()).await)
            }
            Err(error) => failed(&error, "the gateway"),
        }
    }
}

/// What a status, a `Retry-After` and a body mean where a message to `to` was asked for.
fn judge(to: &str, status: u16, retry_after: Option<Duration>, answer: &Answer) -> Outcome {
    let temporary = |reason| Outcome::Temporary { reason, retry_after };
    let permanent = |code: &str| Outcome::Permanent { reason: format!("the gateway refused it: {code} ({status})") };
    match (status, error_code(&answer.error)) {
        (200..=299, _) => Outcome::Delivered { gateway_ref: plain(&answer.id, to) },
        // 520 and 524 are a proxy's that got no sense, or nothing, out of whom it had asked (Cloudflare's codes).
        (502 | 504 | 520 | 524, _) => {
            Outcome::Unknown { reason: format!("the gateway got no answer behind it ({status})") }
        }
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

/// A gateway's id, as far as it is plain. One with the number in it, or with its last digits, however they are set apart, is
/// not kept.
fn plain(id: &str, to: &str) -> String {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let number = digits(to);
    let telling = &number[number.len().saturating_sub(TELLING_DIGITS)..];
    if !telling.is_empty() && digits(id).contains(telling) {
        return String::new();
    }
    id.chars().filter(char::is_ascii_graphic).take(LONGEST_REF).collect()
}

#[cfg(test)]
mod tests {
    use super::super::http::tests::server_without_body;
    use super::*;
    use chrono::DateTime;
    use punctual_core::clock::TokioClock;
    use punctual_core::job::JobKey;
    use punctual_core::payload::Payload;
    use punctual_core::retry::OutcomeClass::{self, Delivered, Permanent, Temporary, Unknown};
    use punctual_core::run::{RunId, RunKey};

    const TO: &str = "+447700900123";

    #[tokio::test]
    async fn a_known_outcome_comes_in_time_although_no_body_does() {
        // Shorter than a body is waited for.
        let time = Duration::from_millis(900);
        let at = DateTime::from_timestamp(1_796_441_400, 0).unwrap();
        let reference = RunId { job_key: JobKey::new("bank", "c-1/bill").unwrap(), run_key: RunKey::scheduled(at) };
        let call = Call { reference, attempt: 1, payload: Payload::Noop, trace: None, time };
        let (url, clock) = (server_without_body().await, Arc::new(TokioClock::new(at)));
        let gateway = SmsGateway::new(&url, "w1".into(), Box::new(JsonAdapter), time, clock).unwrap();
        let outcome = tokio::time::timeout(time, gateway.send(&call, TO, "Your bill is due")).await;
        assert_eq!(outcome, Ok(Outcome::Delivered { gateway_ref: String::new() }));
    }

    #[test]
    fn each_answer_means_what_the_table_says() {
        let answers: [(u16, &str, OutcomeClass); 26] = [
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
            (502, "bad_number", Unknown),
            (503, "", Temporary),
            (504, "", Unknown),
            (520, "", Unknown),
            (521, "", Temporary),
            (522, "", Temporary),
            (523, "", Temporary),
            (524, "", Unknown),
            (599, "", Temporary),
        ];
        for (status, error, expected) in answers {
            let answer = Answer { id: "id-1".into(), error: error.into() };
            let outcome = judge(TO, status, Some(Duration::from_secs(7)), &answer);
            assert_eq!(outcome.class(), expected, "{status} {error}");
            assert!(!outcome.reason().unwrap_or_default().contains("7700"), "{outcome:?}");
            if let Outcome::Temporary { retry_after, .. } = outcome {
                assert_eq!(retry_after, Some(Duration::from_secs(7)));
            }
        }
    }

    #[test]
    fn a_gateways_id_is_kept_only_as_far_as_it_is_plain() {
        assert_eq!(plain("sms-00000001", TO), "sms-00000001");
        assert_eq!(plain("1234567890123456", TO), "1234567890123456", "a number, and nobody's");
        assert_eq!(plain("a\nb é", TO), "ab");
        assert_eq!(plain(&"x".repeat(5_000), TO).len(), LONGEST_REF);
        assert_eq!(plain("sms-1", ""), "sms-1");
    }

    #[test]
    fn an_id_with_the_number_in_it_is_not_kept() {
        for id in [
            "+447700900123",
            "+44 7700 900123",
            "+44-(0)7700-900.123",
            "msg-447700900123",
            "tel:+447700900123",
            "07700900123/1",
            "0900123",
            "+44770\u{a0}0900123",
        ] {
            assert_eq!(plain(id, TO), "", "{id}");
        }
        let behind = format!("{}447700900123", "x".repeat(LONGEST_REF));
        assert_eq!(plain(&behind, TO), "");
    }
}

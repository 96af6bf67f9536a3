//! Step 8, *deliver*: one bounded call to the SMS gateway over HTTP, and what its answer means.
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | delivered |
//! | 429, 408, 5xx, connection refused | temporary; `Retry-After` in seconds is handed on |
//! | 400 or 422 with an `error` code in its body, 403 with `opted_out` | permanent: the gateway judged this message |
//! | every other 4xx, and 3xx | temporary: address, key or contract are wrong, the message is not |
//! | 504, no answer in time, connection lost | unknown |

use async_trait::async_trait;
use punctual_core::ports::{Gateway, SmsRequest};
use punctual_core::retry::Outcome;
use reqwest::{Client, Response};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An idle connection is closed before most gateways close it: a request that meets a closing one gets no answer.
const IDLE: Duration = Duration::from_secs(15);
/// The status says what happened; its body is not waited for longer, nor read further.
const BODY_TIME: Duration = Duration::from_secs(1);
const BODY_BYTES: usize = 16 * 1_024;
const LONGEST_REF: usize = 100;

/// The gateway over HTTP and JSON.
pub struct HttpGateway {
    client: Client,
    url: String,
    worker: String,
}

#[derive(Serialize)]
struct Body<'a> {
    reference: String,
    to: &'a str,
    text: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    id: String,
    error: String,
}

impl HttpGateway {
    /// A gateway at `url`, called in the name of `worker`, with calls bounded by `attempt_timeout`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(url: String, worker: String, attempt_timeout: Duration) -> Result<Self, String> {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            // Never connected must be told from never answered.
            .connect_timeout((attempt_timeout / 2).min(Duration::from_secs(3)))
            .pool_idle_timeout(IDLE)
            .build()
            .map_err(|e| format!("no HTTP client can be made: {e}"))?;
        Ok(HttpGateway { client, url, worker })
    }
}

#[async_trait]
impl Gateway for HttpGateway {
    async fn send(&self, request: &SmsRequest) -> Outcome {
        let body =
            Body { reference: request.reference.to_string(), to: &request.payload.to, text: &request.payload.text };
        let call = self.client.post(&self.url).header("x-punctual-worker", &self.worker).json(&body);
        match call.send().await {
            Ok(answer) => {
                let (status, retry_after) = (answer.status().as_u16(), retry_after(&answer));
                judge(status, retry_after, &read(answer).await)
            }
            Err(error) => failed(&error),
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

fn retry_after(answer: &Response) -> Option<Duration> {
    let value = answer.headers().get("retry-after")?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// What can be read of a body in a moment; nothing of it is needed to know what happened.
async fn read(mut answer: Response) -> Answer {
    let mut body = Vec::new();
    let all = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > BODY_BYTES {
                break;
            }
        }
    };
    // A body cut off by the time is read as far as it came.
    let _ = tokio::time::timeout(BODY_TIME, all).await;
    serde_json::from_slice(&body).unwrap_or_default()
}

fn failed(error: &reqwest::Error) -> Outcome {
    if error.is_builder() || error.is_connect() {
        return Outcome::Temporary { reason: "the gateway cannot be reached".into(), retry_after: None };
    }
    Outcome::Unknown { reason: "the connection to the gateway was lost after the request went out".into() }
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

//! Step 8, *deliver*: one bounded call to the SMS gateway over HTTP, and what its answer means.
//!
//! | answer | outcome |
//! |---|---|
//! | 2xx | delivered |
//! | 429, 5xx, connection refused | temporary; `Retry-After` is handed on |
//! | 4xx with an `error` in its body | permanent: the gateway judged this message |
//! | 401, 404 and other 4xx without one | temporary: address or key are wrong, the message is not |
//! | 504, no answer in time, connection lost | unknown |

use async_trait::async_trait;
use punctual_core::ports::{Gateway, SmsRequest};
use punctual_core::retry::Outcome;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The gateway over HTTP and JSON.
pub struct HttpGateway {
    client: reqwest::Client,
    url: String,
    worker: String,
}

#[derive(Serialize)]
struct Body<'a> {
    reference: String,
    to: &'a str,
    text: &'a str,
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl HttpGateway {
    /// A gateway at `url`, called in the name of `worker`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(url: String, worker: String) -> Result<Self, String> {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(3))
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
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => return failed(&error),
        };
        let status = answer.status().as_u16();
        let retry_after = answer
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs);
        match status {
            // The status alone says that the gateway has it; a lost body loses only the gateway's own id.
            200..=299 => {
                let gateway_ref = answer.json::<Accepted>().await.map(|accepted| accepted.id).unwrap_or_default();
                Outcome::Delivered { gateway_ref }
            }
            504 => Outcome::Unknown { reason: "the gateway got no answer behind it (504)".into() },
            429 | 408 | 500.. => Outcome::Temporary { reason: format!("the gateway answered {status}"), retry_after },
            _ => match answer.json::<Refused>().await.ok().and_then(|refused| error_code(&refused.error)) {
                Some(code) => Outcome::Permanent { reason: format!("the gateway refused it: {code} ({status})") },
                None => {
                    let reason = format!("the gateway answered {status}: check its address and key");
                    Outcome::Temporary { reason, retry_after }
                }
            },
        }
    }
}

fn failed(error: &reqwest::Error) -> Outcome {
    if error.is_builder() {
        return Outcome::Temporary { reason: "the gateway's address cannot be called".into(), retry_after: None };
    }
    if error.is_connect() {
        return Outcome::Temporary { reason: "the gateway cannot be reached".into(), retry_after: None };
    }
    Outcome::Unknown { reason: "the connection to the gateway was lost after the request went out".into() }
}

/// A gateway's error code, if it looks like one; anything else might quote the phone number.
fn error_code(text: &str) -> Option<String> {
    let is_code = !text.is_empty() && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_code.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_words_are_shown_only_if_they_are_a_code() {
        assert_eq!(error_code("bad_number").as_deref(), Some("bad_number"));
        assert_eq!(error_code("+447700900123 is bad"), None);
        assert_eq!(error_code(""), None);
    }
}

//! What all calls over HTTP share.

use chrono::{DateTime, Utc};
use punctual_core::ports::Call;
use punctual_core::retry::Outcome;
use punctual_core::trace::TRACEPARENT;
use reqwest::header::HeaderMap;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};
use std::time::Duration;

/// An idle connection is closed before most servers close it: a request that meets a closing one gets no answer.
const IDLE: Duration = Duration::from_secs(15);
/// The status says what happened; its body is not waited for longer, nor read further.
const BODY_TIME: Duration = Duration::from_secs(1);
const BODY_BYTES: usize = 16 * 1_024;

/// A client that follows no redirect and asks no proxy, whatever the environment says.
pub(super) fn client(attempt_timeout: Duration) -> ClientBuilder {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true)
        // Never connected must be told from never answered.
        .connect_timeout((attempt_timeout / 2).min(Duration::from_secs(3)))
        .pool_idle_timeout(IDLE)
}

/// A made client.
///
/// # Errors
/// When none can be made.
pub(super) fn build(client: ClientBuilder) -> Result<Client, String> {
    client.build().map_err(|e| format!("no HTTP client can be made: {e}"))
}

/// A request that says of which trace it is.
pub(super) fn traced(request: RequestBuilder, call: &Call) -> RequestBuilder {
    match call.trace {
        Some(trace) => request.header(TRACEPARENT, trace.to_string()),
        None => request,
    }
}

/// What an answer asks for: seconds, or a date, counted from `now`.
pub(super) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get("retry-after")?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => (DateTime::parse_from_rfc2822(value).ok()?.to_utc() - now).to_std().ok(),
    }
}

/// What can be read of a body in a moment, and within `left`; nothing of it is needed to know what happened.
pub(super) async fn read(mut answer: Response, left: Duration) -> Vec<u8> {
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
    let _ = tokio::time::timeout(BODY_TIME.min(left), all).await;
    body
}

/// What a request without an answer means; `whom` is what was called.
pub(super) fn failed(error: &reqwest::Error, whom: &str) -> Outcome {
    if error.is_builder() || error.is_connect() {
        return Outcome::Temporary { reason: format!("{whom} cannot be reached"), retry_after: None };
    }
    Outcome::Unknown { reason: format!("the connection to {whom} was lost after the request went out") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// The URL of a server that takes one request, answers 200, and then has nothing of the body that it promised.
    pub(in super::super) async fn server_without_body() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4_096]).await.unwrap(), 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        url
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        let now = "2026-12-05T09:00:00Z".parse().unwrap();
        let after = |value: &str| {
            let headers: HeaderMap = [("retry-after".parse().unwrap(), value.parse().unwrap())].into_iter().collect();
            retry_after(&headers, now)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(after("Sat, 05 Dec 2026 09:01:30 GMT"), Some(Duration::from_secs(90)));
        for nothing in ["Sat, 05 Dec 2026 08:00:00 GMT", "soon", "-1", ""] {
            assert_eq!(after(nothing), None, "{nothing}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}

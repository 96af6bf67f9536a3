//! The command line's way to the API: over HTTP where `PUNCTUAL_API_URL` names one, and otherwise by the same router in this
//! very process, on the store.
//!
//! Decides how a request travels and when it is made again. What an answer means is its caller's matter; it never shows a
//! key, and nothing of a body but what the API says of it.

mod error;
mod http;
mod store;

pub use error::{ClientError, Refusal};
pub use store::OnStore;

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode};
use chrono::{DateTime, Utc};
use http::OverHttp;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::process::random_fraction;
use serde_json::Value;
use std::time::Duration;

use crate::api::TENANT_HEADER;
use crate::api::import::NDJSON;

/// Tries of a request in all.
const TRIES: u32 = 5;
/// The bound of the pause before the second; each further one is twice that.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest that the API may ask to wait for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Option<Bytes>,
    /// Whether a repeat does no more than the request did.
    is_repeatable: bool,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it ended.
    pub status: StatusCode,
    /// What is said beside the body.
    pub headers: HeaderMap,
    /// The body; null where there is none.
    pub json: Value,
}

impl Answer {
    /// The version of the job that is shown.
    pub fn version(&self) -> Option<u64> {
        self.headers.get(ETAG)?.to_str().ok()?.trim_matches('"').parse().ok()
    }
}

/// An answer as it came.
struct Raw {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    fn new(method: Method, path: impl Into<String>, is_repeatable: bool) -> Self {
        let (query, headers) = (Vec::new(), HeaderMap::new());
        Ask { method, path: path.into(), query, headers, body: None, is_repeatable }
    }

    /// A look at what is there.
    pub fn get(path: impl Into<String>) -> Self {
        Ask::new(Method::GET, path, true)
    }

    /// What makes something what it says.
    pub fn put(path: impl Into<String>) -> Self {
        Ask::new(Method::PUT, path, true)
    }

    /// A change; repeatable once it has a version.
    pub fn patch(path: impl Into<String>) -> Self {
        Ask::new(Method::PATCH, path, false)
    }

    /// What does something: repeatable once it has an idempotency key.
    pub fn post(path: impl Into<String>) -> Self {
        Ask::new(Method::POST, path, false)
    }

    /// What takes something away.
    pub fn delete(path: impl Into<String>) -> Self {
        Ask::new(Method::DELETE, path, true)
    }

    /// About this tenant; the key's own where none is named.
    #[must_use]
    pub fn tenant(self, tenant: Option<&str>) -> Self {
        match tenant {
            Some(tenant) => self.header(HeaderName::from_static(TENANT_HEADER), tenant),
            None => self,
        }
    }

    /// With a parameter.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// Only if the job has this version.
    #[must_use]
    pub fn if_version(mut self, version: Option<u64>) -> Self {
        let Some(version) = version else { return self };
        self.is_repeatable |= self.method == Method::PATCH;
        self.header(IF_MATCH, &format!("\"{version}\""))
    }

    /// With what makes a repeat the same request.
    #[must_use]
    pub fn idempotency_key(mut self, key: Option<&str>) -> Self {
        let Some(key) = key else { return self };
        self.is_repeatable = true;
        self.header(HeaderName::from_static("idempotency-key"), key)
    }

    /// A repeat of which does no more than the request did.
    #[must_use]
    pub fn repeatable(self) -> Self {
        Ask { is_repeatable: true, ..self }
    }

    /// With a body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        let kind = if self.method == Method::PATCH { crate::api::MERGE_PATCH } else { "application/json" };
        Ask { body: Some(body.to_string().into()), ..self.header(CONTENT_TYPE, kind) }
    }

    /// With lines as its body.
    #[must_use]
    pub fn lines(self, lines: Bytes) -> Self {
        Ask { body: Some(lines), ..self.header(CONTENT_TYPE, NDJSON) }
    }

    fn header(mut self, name: HeaderName, value: &str) -> Self {
        // What no header can hold is refused by the API as one that is empty: nothing is asked for in its place.
        let value = HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(""));
        self.headers.insert(name, value);
        self
    }

    /// Path and query.
    fn target(&self) -> String {
        if self.query.is_empty() {
            return self.path.clone();
        }
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        format!("{}?{query}", self.path)
    }
}

/// Who is asked.
pub struct Client {
    transport: Transport,
}

enum Transport {
    Http(OverHttp),
    Store(Box<OnStore>),
}

impl Client {
    /// The API at this address, with this key.
    ///
    /// # Errors
    /// When the address or the key cannot be one.
    pub fn over_http(url: &str, key: &str) -> Result<Self, ClientError> {
        Ok(Client { transport: Transport::Http(OverHttp::new(url, key)?) })
    }

    /// The store itself.
    pub fn on_store(store: OnStore) -> Self {
        Client { transport: Transport::Store(Box::new(store)) }
    }

    /// The store's time, or this host's where the store is far.
    pub fn now(&self) -> DateTime<Utc> {
        match &self.transport {
            Transport::Http(_) => SystemClock::new().now(),
            Transport::Store(store) => store.now(),
        }
    }

    /// Asks, until there is an answer or it is no use to ask again, and reads the answer as JSON.
    ///
    /// # Errors
    /// When the API refuses, cannot be reached, or answers what no API answers.
    pub async fn request(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let Raw { status, headers, body } = self.insist(ask).await?;
        if body.is_empty() {
            return Ok(Answer { status, headers, json: Value::Null });
        }
        let json = serde_json::from_slice(&body).map_err(|_| ClientError::strange(status))?;
        Ok(Answer { status, headers, json })
    }

    /// Asks once, and takes any answer in JSON for one, whatever its status is.
    ///
    /// # Errors
    /// When the API cannot be reached, or answers what no API answers.
    pub async fn look(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let Raw { status, headers, body } = self.send(ask).await?;
        let json = serde_json::from_slice(&body).map_err(|_| ClientError::strange(status))?;
        Ok(Answer { status, headers, json })
    }

    /// Asks as [`Client::request`] does, and reads the lines of the answer.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub async fn request_lines(&self, ask: &Ask) -> Result<Vec<Value>, ClientError> {
        let Raw { status, body, .. } = self.insist(ask).await?;
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(serde_json::from_slice).collect::<Result<_, _>>().map_err(|_| ClientError::strange(status))
    }

    async fn insist(&self, ask: &Ask) -> Result<Raw, ClientError> {
        let (mut tried, mut may_be_done) = (1, false);
        loop {
            let answer = match self.send(ask).await {
                Ok(raw) if raw.status.is_success() => return Ok(raw),
                Ok(raw) => Err(ClientError::of_answer(raw.status, retry_after(&raw.headers), &raw.body)),
                Err(error) => Err(error),
            };
            let Err(error) = answer else { return answer };
            if tried == TRIES || !error.may_pass(ask.is_repeatable) {
                return Err(if may_be_done { error.after_a_lost_answer() } else { error });
            }
            may_be_done |= error.leaves_open();
            let pause = pause(tried, random_fraction(), error.retry_after());
            tracing::debug!(%error, "asked again after a pause");
            tokio::time::sleep(pause).await;
            tried += 1;
        }
    }

    async fn send(&self, ask: &Ask) -> Result<Raw, ClientError> {
        match &self.transport {
            Transport::Http(http) => http.send(ask).await,
            Transport::Store(store) => store.send(ask).await,
        }
    }
}

/// The pause after so many tries: what was asked for, at least, and a random part of a bound that doubles.
pub(crate) fn pause(tried: u32, fraction: f64, asked_for: Option<Duration>) -> Duration {
    let bound = FIRST_PAUSE * 2u32.saturating_pow(tried.saturating_sub(1));
    let asked_for = asked_for.unwrap_or_default();
    (asked_for + bound.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0)).min(LONGEST_PAUSE)
}

/// So many seconds; the API says no dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_and_is_as_long_as_the_api_asks() {
        let ms =
            |tried, fraction, asked: Option<u64>| pause(tried, fraction, asked.map(Duration::from_secs)).as_millis();
        assert_eq!([1, 2, 3, 4].map(|tried| ms(tried, 1.0, None)), [500, 1_000, 2_000, 4_000]);
        assert_eq!(ms(1, 0.0, None), 250);
        assert_eq!(ms(1, 0.0, Some(7)), 7_250);
        assert_eq!(ms(40, 1.0, Some(3_600)), 30_000);
    }

    #[test]
    fn only_what_a_repeat_does_not_do_twice_is_repeatable() {
        assert!(Ask::get("/").is_repeatable && Ask::put("/").is_repeatable && Ask::delete("/").is_repeatable);
        assert!(!Ask::post("/").is_repeatable && !Ask::patch("/").is_repeatable);
        assert!(Ask::patch("/").if_version(Some(3)).is_repeatable);
        assert!(!Ask::post("/").if_version(Some(3)).is_repeatable, "a repeat of what was done would be refused");
        assert!(Ask::post("/").idempotency_key(Some("k")).is_repeatable);
        assert!(!Ask::post("/").idempotency_key(None).is_repeatable);
    }

    #[test]
    fn a_query_is_written_so_that_it_can_be_read() {
        let ask = Ask::get("/v1/jobs").query("prefix", "c-1/").query("cursor", "a+b&c=");
        assert_eq!(ask.target(), "/v1/jobs?prefix=c-1%2F&cursor=a%2Bb%26c%3D");
        assert_eq!(Ask::get("/v1/jobs").target(), "/v1/jobs");
    }
}

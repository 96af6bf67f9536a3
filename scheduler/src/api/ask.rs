//! What a request says besides its body's fields: parameters, cursors, conditions, and the body as JSON.

use super::problem::{FieldProblem, Problem};
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use punctual_core::ports::PageToken;
use punctual_core::schedule::parse_instant;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The longest body of a request that is not a stream, in bytes: a job's texts have at most 16 KiB, escapes included.
pub const LONGEST_BODY_BYTES: usize = 256 * 1_024;
/// The most entries of a page.
pub const LARGEST_PAGE: usize = 500;
/// The entries of a page where nothing else is asked for.
pub const DEFAULT_PAGE: usize = 50;

const JSON: &str = "application/json";
/// What a merge patch may be sent as besides.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// The parameters of a request's query.
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// The parameters, of which only these are known.
    pub(super) fn of(request: &Request, known: &[&str]) -> Result<Self, Problem> {
        let mut query = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()) {
            let name = name.into_owned();
            if !known.contains(&name.as_str()) {
                let shown: String = name.chars().take(60).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::parameter(&shown, format!("is unknown; known here: {known}")));
            }
            if value.contains('\0') {
                return Err(Problem::parameter(&name, "holds a NUL character"));
            }
            if query.insert(name.clone(), value.into_owned()).is_some() {
                return Err(Problem::parameter(&name, "is there twice"));
            }
        }
        Ok(Query(query))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// One of some words.
    pub(super) fn one_of<'a>(&self, name: &str, words: &[&'a str]) -> Result<Option<&'a str>, Problem> {
        let Some(given) = self.text(name) else { return Ok(None) };
        let word = words.iter().find(|word| **word == given);
        word.map(|word| Some(*word)).ok_or_else(|| Problem::parameter(name, format!("is one of {}", words.join(", "))))
    }

    /// A whole number of a range.
    pub(super) fn number(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        let Some(given) = self.text(name) else { return Ok(None) };
        let is_plain = given.bytes().all(|b| b.is_ascii_digit());
        let number = given.parse().ok().filter(|number| is_plain && range.contains(number));
        let expected = || format!("is a whole number, {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Problem::parameter(name, expected()))
    }

    /// Yes or no.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        Ok(self.one_of(name, &["true", "false"])? == Some("true"))
    }

    /// An instant.
    pub(super) fn instant(&self, name: &str) -> Result<Option<DateTime<Utc>>, Problem> {
        let instant = self.text(name).map(parse_instant).transpose();
        instant.map_err(|_| Problem::parameter(name, "is an instant such as 2026-12-05T09:00:00Z"))
    }

    /// How many entries a page has.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        let limit = self.number("limit", 1..=LARGEST_PAGE as u64)?;
        Ok(limit.map_or(DEFAULT_PAGE, |limit| limit as usize))
    }

    /// Where a page starts, in the listing of this name.
    pub(super) fn cursor(&self, listing: &str) -> Result<Option<PageToken>, Problem> {
        let Some(cursor) = self.text("cursor") else { return Ok(None) };
        let token = read_cursor(listing, cursor);
        let wrong = || Problem::parameter("cursor", "is no `next_cursor` of this very listing: begin without one");
        token.map(Some).ok_or_else(wrong)
    }
}

/// Bytes of a cursor that tell a whole one of this listing from others.
const CHECK_BYTES: usize = 6;

/// A place in a listing as callers see it.
pub(super) fn cursor(listing: &str, token: &PageToken) -> String {
    let mut bytes = check_of(listing, &token.0).to_vec();
    bytes.extend(token.0.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place that a cursor stands for, if it is one of this listing.
pub(super) fn read_cursor(listing: &str, cursor: &str) -> Option<PageToken> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (check, token) = bytes.split_at_checked(CHECK_BYTES)?;
    let token = std::str::from_utf8(token).ok()?;
    (check == check_of(listing, token)).then(|| PageToken(token.to_owned()))
}

fn check_of(listing: &str, token: &str) -> [u8; CHECK_BYTES] {
    let digest = Sha256::new().chain_update(listing).chain_update("\0").chain_update(token).finalize();
    std::array::from_fn(|n| digest[n])
}

/// The body as JSON.
pub(super) async fn json(request: Request, also: Option<&str>) -> Result<Value, Problem> {
    let kind = media_type(request.headers());
    if kind.as_deref() != Some(JSON) && (also.is_none() || kind.as_deref() != also) {
        return Err(Problem::media_type(also.unwrap_or(JSON)));
    }
    parsed(&bytes(request.into_body()).await?)
}

/// The body as JSON, or nothing where there is none.
pub(super) async fn optional_json(request: Request) -> Result<Option<Value>, Problem> {
    let kind = media_type(request.headers());
    let body = bytes(request.into_body()).await?;
    match kind.as_deref() {
        _ if body.is_empty() => Ok(None),
        Some(JSON) => parsed(&body).map(Some),
        _ => Err(Problem::media_type(JSON)),
    }
}

fn parsed(body: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(body).map_err(|e| {
        let place = format!("line {}, column {}", e.line(), e.column());
        Problem::malformed(format!("the body is not JSON: it cannot be read beyond {place}"))
    })
}

async fn bytes(body: Body) -> Result<axum::body::Bytes, Problem> {
    to_bytes(body, LONGEST_BODY_BYTES).await.map_err(|error| {
        let is_too_long = std::error::Error::source(&error).is_some_and(|e| e.to_string().contains("length limit"));
        match is_too_long {
            true => Problem::too_large(LONGEST_BODY_BYTES),
            false => Problem::malformed("the body ended before it was whole"),
        }
    })
}

/// The media type of the body, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("unreadable");
    Some(kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// What a request asks of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The version it must have.
    pub(super) version: Option<u64>,
    /// Whether it must be there, in whatever version.
    pub(super) must_exist: bool,
    /// Whether it must not be there.
    pub(super) must_be_new: bool,
}

impl Conditions {
    /// Reads `If-Match`, and `If-None-Match: *`.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let if_match = header(headers, &IF_MATCH)?;
        let (version, must_exist) = match if_match {
            None => (None, false),
            Some("*") => (None, true),
            Some(tag) => {
                let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(plain_number);
                let wrong = || Problem::parameter("if-match", "is one `ETag` of the job, such as \"3\", or *");
                (Some(number.ok_or_else(wrong)?), true)
            }
        };
        let must_be_new = match header(headers, &IF_NONE_MATCH)? {
            None => false,
            Some("*") => true,
            Some(_) => {
                return Err(Problem::parameter("if-none-match", "can only be * here: make it only if it is new"));
            }
        };
        Ok(Conditions { version, must_exist, must_be_new })
    }
}

fn plain_number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A header that is there once, as text.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(Problem::parameter(name.as_str(), "is there twice"));
    }
    let text = first.map(HeaderValue::to_str).transpose();
    text.map_err(|_| Problem::parameter(name.as_str(), "must be ASCII"))
}

/// How many bytes a part of an answer takes within the JSON in which a Lambda function hands the answer on.
pub(super) fn length_in_answer(part: &Value) -> usize {
    let text = part.to_string();
    text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// An answer in JSON.
pub(super) fn answer(status: StatusCode, body: &Value) -> Response {
    let mut response = (status, body.to_string()).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// The same with the version of what it shows.
pub(super) fn versioned(status: StatusCode, version: u64, body: &Value) -> Response {
    let mut response = answer(status, body);
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Problems of fields, if there are any.
pub(super) fn none_wrong(problems: Vec<FieldProblem>) -> Result<(), Problem> {
    if problems.is_empty() { Ok(()) } else { Err(Problem::fields(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(query: &str) -> Result<Query, Problem> {
        let request = Request::builder().uri(format!("/v1/jobs?{query}")).body(Body::empty()).unwrap();
        Query::of(&request, &["limit", "cursor", "state", "from"])
    }

    #[test]
    fn a_cursor_is_of_its_own_listing_and_whole() {
        let token = PageToken("07|bank/c-1/bill".into());
        let shown = cursor("jobs/bank/", &token);
        assert_eq!(read_cursor("jobs/bank/", &shown), Some(token));
        assert_eq!(read_cursor("jobs/bank2/", &shown), None);
        for wrong in ["", "x", "%", &shown[1..], &shown[..shown.len() - 2]] {
            assert_eq!(read_cursor("jobs/bank/", wrong), None, "{wrong}");
        }
        assert!(query("cursor=abc").unwrap().cursor("jobs").is_err());
    }

    #[test]
    fn parameters_are_known_and_in_range() {
        assert!(query("").is_ok() && query("limit=500").unwrap().limit().is_ok_and(|limit| limit == 500));
        for wrong in ["limit=0", "limit=501", "limit=-1", "limit=+5", "limit=x", "limit=1e2", "limit="] {
            assert!(query(wrong).unwrap().limit().is_err(), "{wrong}");
        }
        for wrong in ["lmit=5", "limit=1&limit=2", "state=%00"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        assert!(query("from=yesterday").unwrap().instant("from").is_err());
        assert!(query("state=x").unwrap().one_of("state", &["active"]).is_err());
    }

    #[test]
    fn conditions_are_versions_or_a_star() {
        let read = |name: &'static str, value: &'static str| {
            Conditions::of(&HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]))
        };
        let none = Conditions { version: None, must_exist: false, must_be_new: false };
        assert_eq!(Conditions::of(&HeaderMap::new()), Ok(none));
        assert_eq!(read("if-match", "\"3\""), Ok(Conditions { version: Some(3), must_exist: true, ..none }));
        assert_eq!(read("if-match", "*"), Ok(Conditions { must_exist: true, ..none }));
        assert_eq!(read("if-none-match", "*"), Ok(Conditions { must_be_new: true, ..none }));
        for wrong in ["3", "W/\"3\"", "\"x\"", "\"3\", \"4\"", "\"-3\"", ""] {
            assert!(read("if-match", wrong).is_err(), "{wrong}");
        }
        assert!(read("if-none-match", "\"3\"").is_err());
    }
}

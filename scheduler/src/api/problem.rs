//! What the API says when it does not do what was asked: problems by RFC 9457, with a pointer to each field that is wrong.
//!
//! A problem never shows what was found in a payload, and nothing of the store's own errors.

use crate::operations::OperationError;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_core::error::PortError;
use punctual_core::job::{ChangeError, JobError};
use serde::{Deserialize, Serialize};

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Fields that one problem names.
const MOST_ERRORS: usize = 50;

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldProblem {
    /// Where: a JSON pointer into the body, or the name of a parameter or header.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

impl FieldProblem {
    /// A problem at a place.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldProblem { pointer: pointer.into(), detail: detail.into(), hint: None }
    }

    /// With what to write instead.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        FieldProblem { hint: Some(hint.into()), ..self }
    }
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// The kind of problem, one word a kind: the end of its `type`.
    pub kind: &'static str,
    /// What it is, in a few words; the same for each of its kind.
    pub title: &'static str,
    /// What it is about this time.
    pub detail: String,
    /// The fields that are wrong.
    pub errors: Vec<FieldProblem>,
    /// After how many seconds to ask again.
    pub retry_after_s: Option<u32>,
    /// What may be done here instead.
    pub allow: Option<Box<str>>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Problem { status, kind, title, detail: detail.into(), errors: Vec::new(), retry_after_s: None, allow: None }
    }

    /// The request cannot be read.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "malformed-request", "The request cannot be read", detail)
    }

    /// A parameter or header is wrong.
    pub fn parameter(name: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Problem {
            errors: vec![FieldProblem::new(name, detail.clone())],
            ..Problem::malformed(format!("{name}: {detail}"))
        }
    }

    /// Fields of the body are wrong.
    pub fn fields(mut errors: Vec<FieldProblem>) -> Self {
        let all = errors.len();
        errors.truncate(MOST_ERRORS);
        let detail = match errors.as_slice() {
            [] => "the body cannot be taken".to_owned(),
            [one] => format!("{}: {}", place(&one.pointer), one.detail),
            [first, ..] => format!("{}: {}; and {} more", place(&first.pointer), first.detail, all - 1),
        };
        let title = "What was asked for cannot be";
        Problem { errors, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-body", title, detail) }
    }

    /// No key, or none that opens.
    pub fn unauthenticated(detail: &str) -> Self {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "A key is needed", detail)
    }

    /// The key does not open this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", "The key does not open this", detail)
    }

    /// There is no such thing, or it is another tenant's.
    pub fn missing(detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "not-found", "There is no such thing", detail)
    }

    /// What is there does not allow it.
    pub fn conflict(kind: &'static str, detail: impl Into<String>) -> Self {
        Problem::new(StatusCode::CONFLICT, kind, "What is there does not allow it", detail)
    }

    /// It was changed by somebody else first.
    pub fn changed(version: u64) -> Self {
        let detail = format!("it has version {version} by now: look at it and decide again");
        Problem::new(StatusCode::PRECONDITION_FAILED, "changed", "Somebody else changed it first", detail)
    }

    /// A condition of the request does not hold.
    pub fn precondition(detail: impl Into<String>) -> Self {
        let title = "A condition of the request does not hold";
        Problem::new(StatusCode::PRECONDITION_FAILED, "precondition", title, detail)
    }

    /// The body is too long.
    pub fn too_large(longest: usize) -> Self {
        let detail = format!("a body of at most {longest} bytes is taken here");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too long", detail)
    }

    /// The body is of another kind.
    pub fn media_type(expected: &str) -> Self {
        let detail = format!("send the body with `Content-Type: {expected}`");
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", "The body is of another kind", detail)
    }

    /// What may not be done here.
    pub fn method(allowed: &str) -> Self {
        let detail = format!("allowed here: {allowed}");
        let allow = Some(allowed.into());
        let title = "That cannot be done here";
        Problem { allow, ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", title, detail) }
    }

    /// The key is used too often.
    pub fn too_many(per_s: u32) -> Self {
        let detail = format!("this key is good for {per_s} requests a second here: ask again in a second");
        let title = "The key is used too often";
        Problem {
            retry_after_s: Some(1),
            ..Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", title, detail)
        }
    }

    /// It cannot be done now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        let title = "It cannot be done now";
        Problem {
            retry_after_s: Some(1),
            ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", title, detail)
        }
    }

    fn internal() -> Self {
        let detail = "it was noted in the log of the API; nothing is known to be done";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something is broken here", detail)
    }

    /// The problem as JSON.
    pub fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({
            "type": format!("urn:punctual:problem:{}", self.kind), "title": self.title,
            "status": self.status.as_u16(), "detail": self.detail,
        });
        if !self.errors.is_empty() {
            json["errors"] = serde_json::json!(self.errors);
        }
        json
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the body" } else { pointer }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<PortError> for Problem {
    fn from(error: PortError) -> Self {
        if error.may_pass() {
            tracing::warn!(class = error.class(), %error, "a request could not be done: the store or a queue failed");
            return Problem::unavailable(
                "the store or a queue does not answer: ask again; nothing is known to be done",
            );
        }
        tracing::error!(class = error.class(), %error, "a request could not be done");
        Problem::internal()
    }
}

impl From<OperationError> for Problem {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Refused(_, error) => Problem::fields(vec![field_of(&error)]),
            OperationError::NotAllowed(_, ChangeError::Invalid(error)) => Problem::fields(vec![field_of(&error)]),
            OperationError::NotAllowed(_, error) => Problem::conflict("state", error.to_string()),
            OperationError::Input(_, problem) => Problem::fields(vec![FieldProblem::new("", problem)]),
            OperationError::Unreadable(key, reason) => {
                tracing::error!(job.id = key, reason, "a job cannot be read");
                let detail = "the job is there, but in a form that this version cannot read";
                Problem::conflict("unreadable", detail)
            }
            OperationError::UnreadableRun(run, reason) => {
                tracing::error!(run.id = run, reason, "a row cannot be read");
                let detail = format!("the row of run {run} is there, but in a form that this version cannot read");
                Problem::conflict("unreadable", detail)
            }
            OperationError::Busy(_) => Problem::unavailable("the job is being changed by others: ask again"),
            OperationError::Store(_, error) => error.into(),
            OperationError::Clock(_, off) => {
                tracing::error!(%off, "nothing is written by this host's clock");
                Problem::unavailable("the clock of this host is off: nothing is written until it is right")
            }
        }
    }
}

/// Where in a job's document an error is.
pub fn field_of(error: &JobError) -> FieldProblem {
    let (pointer, detail) = match error {
        JobError::Schedule(error) => {
            let part = if error.part == "schedule" { String::new() } else { format!("/{}", error.part) };
            (format!("/schedule{part}"), error.problem.clone())
        }
        JobError::Over(_) => ("/schedule".into(), error.to_string()),
        JobError::Retry(problem) => ("/retry".into(), problem.clone()),
        JobError::Payload(problem) => ("/payload".into(), problem.clone()),
        JobError::Spread(problem) => ("/spread".into(), problem.clone()),
        JobError::Missed(problem) => ("/missed".into(), problem.clone()),
    };
    FieldProblem::new(pointer, detail)
}

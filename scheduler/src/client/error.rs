//! Why a request came to nothing, as people read it.

use crate::api::problem::FieldProblem;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use std::time::Duration;

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Address or key cannot be one.
    #[error("{0}")]
    Setting(String),
    /// The API said why not.
    #[error("{}", .0.text(|_| None))]
    Refused(Refusal),
    /// Nobody was there: nothing was asked.
    #[error("{0}")]
    Unreachable(String),
    /// It was asked, and there is no answer.
    #[error("{0}")]
    Lost(String),
    /// What answered is no API.
    #[error("what answered with {0} is not the API of Punctual, or not alone: look at PUNCTUAL_API_URL")]
    Strange(StatusCode, Option<Duration>),
}

/// What the API said when it did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// What it is about.
    pub detail: String,
    /// What is wrong, place by place.
    pub errors: Vec<FieldProblem>,
    /// After which time to ask again.
    pub retry_after: Option<Duration>,
}

#[derive(Deserialize)]
struct Said {
    detail: String,
    #[serde(default)]
    errors: Vec<FieldProblem>,
}

impl ClientError {
    pub(super) fn of_answer(status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let Ok(said) = serde_json::from_slice::<Said>(body) else { return ClientError::Strange(status, retry_after) };
        ClientError::Refused(Refusal { status, detail: said.detail, errors: said.errors, retry_after })
    }

    pub(super) fn strange(status: StatusCode) -> Self {
        ClientError::Strange(status, None)
    }

    /// The status of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            ClientError::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// Whether what was asked for is wrong, and not the moment.
    pub fn is_input(&self) -> bool {
        let wrong = [
            StatusCode::BAD_REQUEST,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ];
        match self {
            ClientError::Setting(_) => true,
            ClientError::Refused(refusal) => wrong.contains(&refusal.status),
            _ => false,
        }
    }

    /// Whether another try may help and does no harm.
    pub(super) fn may_pass(&self, is_repeatable: bool) -> bool {
        match self {
            ClientError::Setting(_) => false,
            ClientError::Unreachable(_) => true,
            ClientError::Lost(_) => is_repeatable,
            ClientError::Refused(Refusal { status, .. }) | ClientError::Strange(status, _) => {
                // Too many requests: this one was not taken at all.
                *status == StatusCode::TOO_MANY_REQUESTS
                    || (is_repeatable && *status == StatusCode::SERVICE_UNAVAILABLE)
            }
        }
    }

    /// Whether what was asked may have been done all the same.
    pub(super) fn leaves_open(&self) -> bool {
        match self {
            ClientError::Lost(_) => true,
            ClientError::Refused(Refusal { status, .. }) | ClientError::Strange(status, _) => status.is_server_error(),
            ClientError::Setting(_) | ClientError::Unreachable(_) => false,
        }
    }

    /// The same, where an earlier try may have been done: then its own work stands in the way of a repeat.
    pub(super) fn after_a_lost_answer(self) -> Self {
        let may_be_own_work = [StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::PRECONDITION_FAILED];
        match self {
            ClientError::Refused(refusal) if may_be_own_work.contains(&refusal.status) => {
                let detail =
                    format!("{}; the answer to a first try was lost: this may be its own work", refusal.detail);
                ClientError::Refused(Refusal { detail, ..refusal })
            }
            error => error,
        }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            ClientError::Refused(refusal) => refusal.retry_after,
            ClientError::Strange(_, retry_after) => *retry_after,
            _ => None,
        }
    }

    /// The text, with places named as `option_of` names them: an option for the pointer into a body.
    pub fn text(&self, option_of: impl Fn(&str) -> Option<&'static str>) -> String {
        match self {
            ClientError::Refused(refusal) => refusal.text(option_of),
            error => error.to_string(),
        }
    }
}

impl Refusal {
    /// What a problem says that stands in an answer.
    pub fn of_problem(problem: &Value) -> Self {
        let said = Said::deserialize(problem)
            .unwrap_or_else(|_| Said { detail: "the API did not say why".into(), errors: Vec::new() });
        let status =
            problem["status"].as_u64().and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
        let status = status.unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
        Refusal { status, detail: said.detail, errors: said.errors, retry_after: None }
    }

    /// Each place that is wrong: in one line where it is one, and otherwise below what is said of all.
    pub fn text(&self, option_of: impl Fn(&str) -> Option<&'static str>) -> String {
        let line = |error: &FieldProblem| {
            let hint = error.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            match (option_of(&error.pointer), error.pointer.as_str()) {
                // All that the options say together.
                (Some(""), _) | (None, "") => format!("{}{hint}", error.detail),
                (Some(option), _) => format!("{option}: {}{hint}", error.detail),
                (None, pointer) => format!("{pointer}: {}{hint}", error.detail),
            }
        };
        match self.errors.as_slice() {
            [] => self.detail.clone(),
            [one] => line(one),
            several => {
                let mut text = format!("{} things are wrong:", several.len());
                for error in several {
                    let _ = write!(text, "\n  {}", line(error));
                }
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::Problem;

    fn of(problem: &Problem) -> ClientError {
        ClientError::of_answer(problem.status, None, problem.json().to_string().as_bytes())
    }

    fn option(pointer: &str) -> Option<&'static str> {
        match pointer {
            "/schedule/cron" => Some("--schedule"),
            "/payload" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn one_wrong_field_is_one_line_that_names_its_option() {
        let wrong =
            |pointer: &str| of(&Problem::fields(vec![FieldProblem::new(pointer, "is wrong").hint("such as x")]));
        assert_eq!(wrong("/schedule/cron").text(option), "--schedule: is wrong (such as x)");
        assert_eq!(wrong("/retry/cap_s").text(option), "/retry/cap_s: is wrong (such as x)");
        assert_eq!(wrong("/payload").text(option), "is wrong (such as x)");
        assert_eq!(wrong("").text(option), "is wrong (such as x)");
    }

    #[test]
    fn several_wrong_fields_are_a_line_each() {
        let errors =
            vec![FieldProblem::new("/schedule/cron", "is wrong"), FieldProblem::new("/name", "is long").hint("h")];
        let text = of(&Problem::fields(errors)).text(option);
        assert_eq!(text, "2 things are wrong:\n  --schedule: is wrong\n  /name: is long (h)");
    }

    #[test]
    fn what_is_no_problem_of_the_api_says_so() {
        let strange = ClientError::of_answer(StatusCode::BAD_GATEWAY, None, b"<html>bad gateway</html>");
        assert!(strange.to_string().contains("502") && strange.to_string().contains("PUNCTUAL_API_URL"), "{strange}");
        assert!(!strange.is_input() && !strange.may_pass(true));
    }

    #[test]
    fn wrong_input_is_told_from_what_may_be_done_another_time() {
        assert!(of(&Problem::fields(Vec::new())).is_input());
        assert!(of(&Problem::malformed("x")).is_input() && of(&Problem::too_large(1)).is_input());
        assert!(of(&Problem::media_type("x")).is_input());
        for problem in [
            Problem::unauthenticated("x"),
            Problem::forbidden("x"),
            Problem::missing("x"),
            Problem::conflict("state", "x"),
            Problem::changed(3),
            Problem::too_many(5),
            Problem::unavailable("x"),
        ] {
            assert!(!of(&problem).is_input(), "{problem:?}");
        }
        assert_eq!(of(&Problem::changed(3)).status(), Some(StatusCode::PRECONDITION_FAILED));
    }

    #[test]
    fn what_was_not_taken_may_be_asked_again_and_what_may_have_been_done_only_if_a_repeat_is_harmless() {
        assert!(of(&Problem::too_many(5)).may_pass(false));
        assert!(ClientError::Unreachable("x".into()).may_pass(false));
        for error in [of(&Problem::unavailable("x")), ClientError::Lost("x".into())] {
            assert!(error.may_pass(true) && !error.may_pass(false), "{error}");
        }
        for error in [of(&Problem::missing("x")), of(&Problem::changed(1)), ClientError::Setting("x".into())] {
            assert!(!error.may_pass(true), "{error}");
        }
    }
}

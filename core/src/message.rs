//! Step 4, *queue*: what is said of a run on its way from scheduler to worker, in a versioned format.
//!
//! A message names a run; it carries no payload, so that no personal data lies in a queue and a late edit of a text is
//! seen. Readers know this version and refuse newer ones, which an older worker puts back for a newer one to take.

use crate::job::JobKey;
use crate::run::{RunFacts, RunId, RunKey};
use crate::trace::{TraceContext, lenient};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// The version written, and the newest one read.
pub const MESSAGE_VERSION: u32 = 1;

/// One message of a priority queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// [`MESSAGE_VERSION`].
    pub v: u32,
    /// The job.
    pub job_key: JobKey,
    /// The firing.
    pub run_key: RunKey,
    /// The job's generation when it was enqueued.
    pub generation: u64,
    /// The firing's nominal instant.
    #[serde(with = "chrono::serde::ts_seconds")]
    pub scheduled_at: DateTime<Utc>,
    /// When the run should start.
    #[serde(with = "chrono::serde::ts_seconds")]
    pub due_at: DateTime<Utc>,
    /// When a message for this run was first put in the queue; kept when it is sent again.
    #[serde(rename = "first_enqueued_at_ms", with = "chrono::serde::ts_milliseconds")]
    pub first_enqueued_at: DateTime<Utc>,
    /// The scheduler that enqueued it.
    pub scheduler: String,
    /// The span that enqueued it, if somebody records it or a request named one. Without it the run's own trace is meant.
    #[serde(rename = "traceparent", default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// Why a message's body cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableMessage {
    /// Written by a newer version: leave it for a newer worker.
    #[error("message version {0} is newer than {MESSAGE_VERSION}, the newest that is known here")]
    Newer(u32),
    /// Nobody will ever read it.
    #[error("the message cannot be parsed: {0}")]
    Malformed(String),
}

impl Message {
    /// Which run it is about.
    pub fn run_id(&self) -> RunId {
        RunId { job_key: self.job_key.clone(), run_key: self.run_key.clone() }
    }

    /// What a new row takes from it.
    pub fn facts(&self) -> RunFacts {
        RunFacts {
            id: self.run_id(),
            generation: self.generation,
            due_at: self.due_at,
            first_enqueued_at: self.first_enqueued_at,
        }
    }

    /// The body as sent.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a message has string keys and no maps that could fail to serialise")
    }

    /// Reads a body.
    ///
    /// # Errors
    /// Says whether a newer worker could read it, or nobody; never quotes the body.
    pub fn decode(body: &str) -> Result<Self, UnreadableMessage> {
        #[derive(Deserialize)]
        struct Versioned {
            v: u32,
        }
        // serde_json quotes offending values in some errors; the class and the place are enough for the reason.
        let malformed = |e: serde_json::Error| {
            UnreadableMessage::Malformed(format!("{:?} error at line {} column {}", e.classify(), e.line(), e.column()))
        };
        let message = serde_json::from_str::<Message>(body).map_err(malformed);
        if message.as_ref().is_ok_and(|message| message.v == MESSAGE_VERSION) {
            return message;
        }
        // A newer one may look otherwise, and all that is told of it is its version.
        let Versioned { v } = serde_json::from_str(body).map_err(malformed)?;
        match v {
            MESSAGE_VERSION => message,
            v if v > MESSAGE_VERSION => Err(UnreadableMessage::Newer(v)),
            v => Err(UnreadableMessage::Malformed(format!("version {v} was never written"))),
        }
    }
}

/// What goes to the dead letters: the alarm and the safety copy of a run, or of a message that is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Version of this format.
    pub letter_v: u32,
    /// Why, in words for a person.
    pub reason: String,
    /// The run's id; none when the message could not be read.
    pub run_id: Option<String>,
    /// When the letter was written.
    #[serde(rename = "at_ms", with = "chrono::serde::ts_milliseconds")]
    pub at: DateTime<Utc>,
    /// The message as it was received, cut if it is too long for a letter.
    pub body: String,
    /// Length of the message as it was received.
    pub body_bytes: usize,
}

/// The longest body that a letter carries: escaped as JSON it takes six times as much at worst, and a letter must fit into
/// 256 KiB. Messages of ours are below 1 KiB.
const LONGEST_LETTER_BODY_BYTES: usize = 40_000;

impl DeadLetter {
    /// A letter of the present version.
    pub fn new(reason: String, run: Option<&RunId>, body: &str, now: DateTime<Utc>) -> Self {
        let cut = body.floor_char_boundary(LONGEST_LETTER_BODY_BYTES);
        DeadLetter {
            letter_v: 1,
            reason,
            run_id: run.map(RunId::to_string),
            at: now,
            body: body[..cut].to_owned(),
            body_bytes: body.len(),
        }
    }

    /// The body as sent.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a dead letter has string keys and no maps that could fail to serialise")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let scheduled_at = DateTime::from_timestamp(1_791_171_000, 0).unwrap();
        Message {
            v: MESSAGE_VERSION,
            job_key: JobKey::new("bank", "1").unwrap(),
            run_key: RunKey::scheduled(scheduled_at),
            generation: 7,
            scheduled_at,
            due_at: scheduled_at,
            first_enqueued_at: scheduled_at,
            scheduler: "s1".into(),
            trace: None,
        }
    }

    #[test]
    fn a_message_reads_back_and_names_its_run() {
        let message = message();
        assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        assert_eq!(message.run_id().to_string(), "bank/1:1791171000");
    }

    #[test]
    fn the_format_on_the_wire_stays_as_it_is() {
        assert_eq!(
            message().encode(),
            r#"{"v":1,"job_key":"bank/1","run_key":"1791171000","generation":7,"scheduled_at":1791171000,"due_at":1791171000,"first_enqueued_at_ms":1791171000000,"scheduler":"s1"}"#
        );
    }

    #[test]
    fn a_trace_is_carried_and_one_that_cannot_be_read_costs_no_run() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = Message { trace: TraceContext::parse(given), ..message() };
        assert!(traced.encode().ends_with(&format!(r#","traceparent":"{given}"}}"#)));
        assert_eq!(Message::decode(&traced.encode()).unwrap(), traced);
        for nonsense in [r#""00-""#, "7", "null", "{}"] {
            let body = traced.encode().replace(&format!(r#""{given}""#), nonsense);
            assert_eq!(Message::decode(&body).unwrap(), message(), "{nonsense}");
        }
    }

    #[test]
    fn a_foreign_body_of_any_size_fits_into_a_letter() {
        let body = "\u{1}".repeat(250_000);
        let letter = DeadLetter::new("unreadable".into(), None, &body, DateTime::UNIX_EPOCH);
        assert!(letter.encode().len() < 256 * 1_024);
        assert_eq!(letter.body_bytes, 250_000);
        assert_eq!(DeadLetter::new(String::new(), None, "é", DateTime::UNIX_EPOCH).body, "é");
    }

    #[test]
    fn an_unreadable_body_says_who_could_read_it_and_is_never_quoted() {
        assert_eq!(Message::decode(r#"{"v":2,"anything":1}"#), Err(UnreadableMessage::Newer(2)));
        for body in [
            "",
            "+447700900123",
            "{}",
            r#"{"v":"+447700900123"}"#,
            r#"{"v":1,"job_key":"+447700900123"}"#,
            r#"{"v":0}"#,
        ] {
            let error = Message::decode(body).unwrap_err();
            assert!(matches!(error, UnreadableMessage::Malformed(_)), "{body}");
            assert!(!error.to_string().contains("7700"), "{error}");
        }
    }
}

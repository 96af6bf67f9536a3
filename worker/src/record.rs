//! Step 9, *record*: a known outcome is written until the row takes or refuses it, and only then the message goes.

use crate::pipeline::{Context, Step};
use punctual_core::job::Job;
use punctual_core::message::{DeadLetter, Message};
use punctual_core::ports::Put;
use punctual_core::process::random_token;
use punctual_core::retry::Outcome;
use punctual_core::run::{Event, Record, RunId, RunRow, RunStatus, Transition, apply};
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Tries of a dead letter before the message is left to come again.
const LETTER_TRIES: u32 = 4;

/// Writes the outcome of an attempt that began with `token`.
pub(crate) async fn record(
    context: &Context,
    message: &Message,
    job: &Job,
    begun: RunRow,
    token: &str,
    outcome: &Outcome,
) -> Step {
    let event = Event::Record(Record {
        token,
        outcome,
        rule: job.spec.retry,
        gateway: context.settings.gateway,
        random: rand::random(),
    });
    let write_token = random_token();
    let mut row = Some(begun);
    let mut failures = 0;
    loop {
        let new = match apply(row.as_ref(), &message.facts(), &event, context.clock.now(), &write_token) {
            Transition::Write(new) => new,
            Transition::Refused(status) => {
                context.metrics.fenced.increment(1);
                tracing::warn!(status = status.as_str(), "the run was taken over: its outcome here is not recorded");
                return Step::Fenced;
            }
            Transition::LookLater { .. } => return Step::Fenced,
        };
        match context.ports.runs.put(&new).await {
            Ok(Put::Written) => {
                if new.status != RunStatus::Retrying {
                    context.metrics.ended(new.status);
                }
                return match new.not_before {
                    Some(at) if new.status == RunStatus::Retrying => {
                        let wait = (at - context.clock.now()).to_std().unwrap_or_default();
                        Step::PutBack { wait, why: "to be retried".into() }
                    }
                    _ => Step::Settle(new.status, new.error),
                };
            }
            Ok(Put::Conflict(current)) => row = current.map(|row| *row),
            Err(error) => {
                // The outcome is known: giving up now would repeat a delivery.
                if failures == 0 {
                    tracing::warn!(class = error.class(), %error, "an outcome could not be recorded; it is tried until it is");
                }
                tokio::time::sleep((FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF)).await;
                failures = (failures + 1).min(6);
            }
        }
    }
}

/// Sends a dead letter; false when it could not be sent and the message must come again for it.
pub(crate) async fn send_letter(context: &Context, reason: String, run: Option<&RunId>, body: &str) -> bool {
    let letter = DeadLetter::new(reason, run, body, context.clock.now());
    for failures in 0..LETTER_TRIES {
        match context.ports.queue.send_dead_letter(&letter).await {
            Ok(()) => return true,
            Err(error) => {
                tracing::warn!(class = error.class(), %error, "a dead letter could not be sent");
                tokio::time::sleep(FIRST_BACKOFF * 2u32.pow(failures)).await;
            }
        }
    }
    false
}

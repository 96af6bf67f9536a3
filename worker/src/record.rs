//! Step 9, *record*: a known outcome is written until the row takes or refuses it, and only then the message goes.

use crate::pipeline::{Context, Step};
use punctual_core::job::Job;
use punctual_core::lease::Wait;
use punctual_core::message::{DeadLetter, Message};
use punctual_core::ports::Put;
use punctual_core::process::{random_fraction, random_token};
use punctual_core::retry::Outcome;
use punctual_core::run::{Event, Record, RunId, RunRow, RunStatus, Transition, apply};
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Tries of a write that the store refuses outright, over ten minutes: rights are mended by then, and a row that never fits
/// does not keep its message in hand for ever.
const REFUSALS: u32 = 120;
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
        gateway: context.settings.policy(&job.spec.payload),
        random: random_fraction(),
    });
    let write_token = random_token();
    let mut row = Some(begun);
    let (mut failures, mut refusals) = (0, 0);
    loop {
        let new = match apply(row.as_ref(), &message.facts(), &event, context.clock.now(), &write_token) {
            Transition::Write(new) => new,
            Transition::Refused(_) | Transition::LookLater { .. } => {
                context.metrics.fenced.increment(1);
                tracing::warn!("the run was taken over: its outcome here is not recorded");
                return Step::Fenced;
            }
        };
        match context.ports.runs.put(&new).await {
            Ok(Put::Written) => return written(context, *new),
            Ok(Put::Conflict(current)) => row = current.map(|row| *row),
            Err(error) => {
                refusals += u32::from(!error.may_pass());
                if refusals == REFUSALS {
                    let outcome = outcome.class().as_str();
                    tracing::error!(%error, outcome, "an outcome cannot be recorded: its run will be taken over");
                    return Step::Fenced;
                }
                // The outcome is known: giving up would repeat a delivery.
                if failures == 0 {
                    tracing::warn!(class = error.class(), %error, "an outcome could not be recorded; it is tried until it is");
                }
                tokio::time::sleep((FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF)).await;
                failures = (failures + 1).min(6);
            }
        }
    }
}

fn written(context: &Context, row: RunRow) -> Step {
    match row.not_before {
        Some(at) if row.status == RunStatus::Retrying => {
            let wait = (at - context.clock.now()).to_std().unwrap_or_default();
            Step::PutBack { wait: Wait::For(wait), why: "to be retried" }
        }
        _ => {
            context.metrics.ended(row.status);
            Step::Settle(row.status, row.error)
        }
    }
}

/// Sends a dead letter; false when it could not be sent and the message must come again for it.
pub(crate) async fn send_letter(context: &Context, reason: &str, run: Option<&RunId>, body: &str) -> bool {
    let letter = DeadLetter::new(reason.to_owned(), run, body, context.clock.now());
    for tries in 0..LETTER_TRIES {
        if tries > 0 {
            tokio::time::sleep(FIRST_BACKOFF * 2u32.pow(tries)).await;
        }
        match context.ports.queue.send_dead_letter(&letter).await {
            Ok(()) => return true,
            Err(error) => tracing::warn!(class = error.class(), %error, "a dead letter could not be sent"),
        }
    }
    false
}

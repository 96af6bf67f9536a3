//! The way of one message through a worker: lease → idempotency → rate → deliver → record.
//!
//! Each station either hands on or says what becomes of the message ([`Step`]). Only [`finish`] acts on that: **row
//! first, then dead letter, then delete**, so that a crash on any line makes the message come again and find its row.

use crate::idempotency::{Screened, begin, look};
use crate::lease::{Hands, Held};
use crate::metrics::Metrics;
use crate::rate::Permits;
use crate::record::{record, send_letter};
use crate::settings::WorkSettings;
use punctual_core::clock::Clock;
use punctual_core::message::{Message, UnreadableMessage};
use punctual_core::ports::{Gateway, Ports, SmsRequest};
use punctual_core::process::random_token;
use punctual_core::retry::Outcome;
use punctual_core::run::RunStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tracing::Instrument;

/// A screen older than this when the call is about to start is made again.
const SCREEN_VALID: Duration = Duration::from_secs(2);
const FIRST_PUT_BACK: Duration = Duration::from_secs(1);
const LONGEST_PUT_BACK: Duration = Duration::from_secs(600);
const NEWER_MESSAGE_WAIT: Duration = Duration::from_secs(60);

/// What all messages of a worker share.
pub(crate) struct Context {
    pub(crate) ports: Ports,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: WorkSettings,
    pub(crate) id: String,
    pub(crate) hands: Arc<Hands>,
    pub(crate) slots: Semaphore,
    pub(crate) permits: Permits,
    pub(crate) metrics: Metrics,
}

/// What becomes of a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Its row has this status: delete, or first the dead letter.
    Settle(RunStatus, Option<String>),
    /// To the dead letters, then delete.
    Letter { reason: String },
    /// Hide it for this long.
    PutBack { wait: Duration, why: String },
    /// Give it back at once: the worker stops.
    GiveBack,
    /// It is another worker's by now: touch nothing.
    Fenced,
}

/// Takes one message all the way.
pub(crate) async fn handle(context: Arc<Context>, held: Arc<Held>, stop: watch::Receiver<bool>) {
    context.metrics.received.increment(1);
    let message = match Message::decode(&held.delivery.body) {
        Ok(message) => message,
        Err(UnreadableMessage::Newer(v)) => {
            tracing::warn!(v, "a message of a newer version is left for a newer worker");
            return context.hands.hide(&held, NEWER_MESSAGE_WAIT).await;
        }
        Err(error) => {
            tracing::error!(%error, "a message cannot be read and goes to the dead letters");
            let step = Step::Letter { reason: error.to_string() };
            return finish(&context, &held, None, step).await;
        }
    };
    let span = tracing::info_span!(
        "run",
        job.id = %message.job_key,
        run.id = %message.run_id(),
        tenant = message.job_key.tenant(),
        queue = %held.delivery.priority,
        worker.id = context.id,
    );
    async {
        let step = work(&context, &held, &message, stop).await;
        finish(&context, &held, Some(&message), step).await;
    }
    .instrument(span)
    .await;
}

async fn work(context: &Context, held: &Held, message: &Message, mut stop: watch::Receiver<bool>) -> Step {
    let unavailable = |error: punctual_core::error::PortError| {
        tracing::warn!(class = error.class(), %error, "the store failed; the message is put back");
        Step::PutBack { wait: growing(FIRST_PUT_BACK, held.delivery.receive_count), why: "the store failed".into() }
    };
    let mut screened = match look(context, message).await {
        Ok(Ok(screened)) => screened,
        Ok(Err(step)) => return step,
        Err(error) => return unavailable(error),
    };
    let waits_from = context.clock.monotonic();
    let permit = async {
        let slot = context.slots.acquire().await.expect("the semaphore is never closed");
        context.permits.next().await;
        slot
    };
    let _slot = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return Step::GiveBack,
        slot = permit => slot,
    };
    let now = context.clock.monotonic();
    context.metrics.limiter_wait.record(now.saturating_sub(waits_from).as_secs_f64());
    if now.saturating_sub(screened.at) > SCREEN_VALID {
        screened = match look(context, message).await {
            Ok(Ok(screened)) => screened,
            Ok(Err(step)) => return step,
            Err(error) => return unavailable(error),
        };
    }
    if !context.hands.trusts(held) {
        return Step::Fenced;
    }
    let token = random_token();
    let begun = match begin(context, message, &screened, &token).await {
        Ok(Ok(row)) => row,
        Ok(Err(step)) => return step,
        Err(error) => return unavailable(error),
    };
    if begun.attempt == 1 {
        let lag = (context.clock.now() - message.due_at).as_seconds_f64();
        context.metrics.start_lag.record(lag.max(0.0));
    }
    let outcome = call(context, held, message, &screened).await;
    context.metrics.attempt(outcome.class());
    record(context, message, &screened.job, begun, &token, &outcome).await
}

/// The call itself, inside its time. After begin nothing but a lost lease keeps it from going out.
async fn call(context: &Context, held: &Held, message: &Message, screened: &Screened) -> Outcome {
    if !context.hands.trusts(held) {
        return Outcome::Temporary { reason: "the message's lease was lost before the call".into(), retry_after: None };
    }
    let request = SmsRequest { reference: message.run_id(), payload: screened.job.spec.payload.clone() };
    let began = context.clock.monotonic();
    let answer = tokio::time::timeout(context.settings.attempt_timeout, context.gateway.send(&request)).await;
    context.metrics.attempt_duration.record((context.clock.monotonic() - began).as_secs_f64());
    answer.unwrap_or_else(|_| Outcome::Unknown {
        reason: format!("no answer within {} s", context.settings.attempt_timeout.as_secs()),
    })
}

/// Does what a step says.
async fn finish(context: &Context, held: &Held, message: Option<&Message>, step: Step) {
    let letter = match step {
        Step::Settle(RunStatus::Dead, error) => Some(format!("attempts used up: {}", error.unwrap_or_default())),
        Step::Settle(RunStatus::Indeterminate, error) => {
            Some(format!("nobody knows whether it went out: {}", error.unwrap_or_default()))
        }
        // The row is somebody's, or waits: this delivery has nothing more to do with it.
        Step::Settle(RunStatus::Running | RunStatus::Retrying, _) | Step::Fenced => return context.hands.let_go(held),
        Step::Settle(RunStatus::Succeeded | RunStatus::Failed | RunStatus::Skipped, _) => {
            return context.hands.delete(held);
        }
        Step::PutBack { wait, why } => {
            tracing::debug!(wait_ms = wait.as_millis() as u64, why, "put back");
            return context.hands.hide(held, wait.min(LONGEST_PUT_BACK)).await;
        }
        Step::GiveBack => return context.hands.hide(held, Duration::ZERO).await,
        Step::Letter { reason } => Some(reason),
    };
    let reason = letter.unwrap_or_default();
    let run = message.map(Message::run_id);
    tracing::error!(reason, "a run goes to the dead letters: a person must look at it");
    context.metrics.dead_letter(if run.is_some() { "run" } else { "unreadable" });
    if send_letter(context, reason, run.as_ref(), &held.delivery.body).await {
        context.hands.delete(held);
    } else {
        context.hands.hide(held, growing(FIRST_PUT_BACK, held.delivery.receive_count)).await;
    }
}

/// A wait that doubles with each delivery.
fn growing(first: Duration, receive_count: u32) -> Duration {
    (first * 2u32.pow(receive_count.saturating_sub(1).min(16))).min(LONGEST_PUT_BACK)
}

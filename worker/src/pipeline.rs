//! The way of one message through a worker: lease → idempotency (screen) → rate → idempotency (begin) → deliver → record.
//!
//! Each station either hands on or says what becomes of the message ([`Step`]). Only [`finish`] acts on that: **row
//! first, then dead letter, then delete**, so that a crash on any line makes the message come again and find its row.
//! While the store is in trouble a message stays in hand and is tried again: what is in hand bounds what is taken.

use crate::gone::pause_job;
use crate::idempotency::{Begun, Look, Screened, begin, look};
use crate::lease::{Hands, Held};
use crate::metrics::Metrics;
use crate::rate::Permits;
use crate::record::{record, send_letter};
use crate::settings::{RECORD_MARGIN, WorkSettings};
use punctual_core::clock::Clock;
use punctual_core::message::{Message, UnreadableMessage};
use punctual_core::ports::{Call, Gateway, PortResult, Ports};
use punctual_core::process::random_token;
use punctual_core::render::render;
use punctual_core::retry::Outcome;
use punctual_core::run::{RunRow, RunStatus};
use punctual_core::zone::Zones;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::Instrument;

/// A screen older than this when the call is about to start is made again.
const SCREEN_VALID: Duration = Duration::from_secs(2);
/// A permit older than this when the call is about to start is taken again: the limit holds where calls leave.
const PERMIT_VALID: Duration = Duration::from_millis(100);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(3);
const FIRST_PUT_BACK: Duration = Duration::from_secs(5);
const LONGEST_PUT_BACK: Duration = Duration::from_secs(600);
const NEWER_MESSAGE_WAIT: Duration = Duration::from_secs(60);

/// What all messages of a worker share.
pub(crate) struct Context {
    pub(crate) ports: Ports,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) zones: Arc<Zones>,
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
    /// Hide it for this long, longer with each delivery if it `grows`.
    PutBack { wait: Duration, why: &'static str, grows: bool },
    /// Give it back at once: the worker stops, or its clock is off.
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
            let step = Step::PutBack { wait: NEWER_MESSAGE_WAIT, why: "of a newer version", grows: true };
            return finish(&context, &held, None, step).await;
        }
        Err(error) => return finish(&context, &held, None, Step::Letter { reason: error.to_string() }).await,
    };
    let span = tracing::info_span!(
        "run",
        job.id = %message.job_key,
        run.id = %message.run_id(),
        tenant = message.job_key.tenant(),
        queue = %held.delivery.priority,
        worker.id = context.id,
        attempt = tracing::field::Empty,
    );
    async {
        let step = work(&context, &held, &message, stop).await.unwrap_or_else(|step| step);
        finish(&context, &held, Some(&message), step).await;
    }
    .instrument(span)
    .await;
}

/// What is due sooner than this is looked at again after this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The stations in order. An early end is an `Err`, so that `?` takes it.
async fn work(
    context: &Context,
    held: &Held,
    message: &Message,
    mut stop: watch::Receiver<bool>,
) -> Result<Step, Step> {
    let mut screened = screen(context, held, message, &mut stop).await?;
    let _slot = permit(context, &mut stop).await?;
    let mut permit_at = context.clock.monotonic();
    if screened.age.elapsed(&*context.clock) > SCREEN_VALID {
        screened = screen(context, held, message, &mut stop).await?;
    }
    let token = random_token();
    let begun = loop {
        may_go_on(context, &stop)?;
        if !context.hands.trusts(held) {
            return Err(Step::Fenced);
        }
        let began = begin(context, message, &screened, &token).await;
        match insist(context, held, &mut stop, began).await? {
            Some(Begun::Mine(row)) => break row,
            Some(Begun::Do(step)) => return Err(step),
            // Whatever stands in the row by now is found by a new look.
            None => screened = screen(context, held, message, &mut stop).await?,
        }
    };
    tracing::Span::current().record("attempt", begun.attempt);
    if context.clock.monotonic().saturating_sub(permit_at) > PERMIT_VALID {
        context.permits.next().await;
        permit_at = context.clock.monotonic();
    }
    let outcome = call(context, held, message, &screened, &begun).await;
    context.metrics.attempt(outcome.class());
    context.metrics.attempt_duration.record((context.clock.monotonic() - permit_at).as_secs_f64());
    let step = record(context, message, &screened.job, *begun, &token, &outcome).await;
    if matches!(outcome, Outcome::Gone { .. }) {
        pause_job(context, &screened.job).await;
    }
    Ok(step)
}

/// Looks at job and row until the store has answered.
async fn screen(
    context: &Context,
    held: &Held,
    message: &Message,
    stop: &mut watch::Receiver<bool>,
) -> Result<Box<Screened>, Step> {
    let mut failures = 0;
    loop {
        may_go_on(context, stop)?;
        let looked = look(context, message).await;
        match insist(context, held, stop, looked).await? {
            Some(Look::Run(screened)) => return Ok(screened),
            // Timers count milliseconds: for less than one nothing would pass.
            Some(Look::Soon(wait)) => pause(stop, wait.max(SHORTEST_PAUSE)).await,
            Some(Look::Do(step)) => return Err(step),
            None => {
                pause(stop, (FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF)).await;
                failures = (failures + 1).min(6);
            }
        }
    }
}

/// Whether anything may still be written or begun for a message: not while the worker stops, nor while its clock is off.
fn may_go_on(context: &Context, stop: &watch::Receiver<bool>) -> Result<(), Step> {
    if *stop.borrow() || context.clock.check().is_err() { Err(Step::GiveBack) } else { Ok(()) }
}

/// The answer of a call to the store; none when it failed and is to be made again.
async fn insist<T>(
    context: &Context,
    held: &Held,
    stop: &mut watch::Receiver<bool>,
    answer: PortResult<T>,
) -> Result<Option<T>, Step> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.may_pass() => {
            tracing::debug!(class = error.class(), %error, "the store failed; the call is made again");
            context.metrics.store_failures.increment(1);
            if !context.hands.trusts(held) {
                return Err(Step::Fenced);
            }
            pause(stop, FIRST_BACKOFF).await;
            Ok(None)
        }
        Err(error) => {
            tracing::error!(%error, "the store refuses a call; the message is put back");
            Err(Step::PutBack { wait: FIRST_PUT_BACK, why: "the store refuses a call", grows: true })
        }
    }
}

/// Waits, or less if the worker is told to stop.
pub(crate) async fn pause(stop: &mut watch::Receiver<bool>, wait: Duration) {
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => {}
        () = tokio::time::sleep(wait) => {}
    }
}

/// Waits for a slot, and then for a permit.
async fn permit<'a>(context: &'a Context, stop: &mut watch::Receiver<bool>) -> Result<SemaphorePermit<'a>, Step> {
    let slot_and_permit = async {
        let slot = context.slots.acquire().await.expect("the semaphore is never closed");
        let waits_from = context.clock.monotonic();
        context.permits.next().await;
        context.metrics.limiter_wait.record((context.clock.monotonic() - waits_from).as_secs_f64());
        slot
    };
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => Err(Step::GiveBack),
        slot = slot_and_permit => Ok(slot),
    }
}

/// The call itself, inside its time and inside its row's lease. After begin nothing but a lost lease or a clock gone
/// wrong keeps it from going out.
async fn call(context: &Context, held: &Held, message: &Message, screened: &Screened, begun: &RunRow) -> Outcome {
    let now = context.clock.now();
    if begun.attempt == 1 {
        context.metrics.start_lag.record((now - message.due_at).as_seconds_f64().max(0.0));
    }
    let leased = begun.lease_until.and_then(|until| (until - now).to_std().ok()).unwrap_or_default();
    let time = context.settings.attempt_timeout.min(leased.saturating_sub(RECORD_MARGIN));
    if !context.hands.trusts(held) || time.is_zero() {
        return Outcome::Temporary { reason: "its lease was lost before the call".into(), retry_after: None };
    }
    if let Err(off) = context.clock.check() {
        return Outcome::Temporary { reason: off.to_string(), retry_after: None };
    }
    let payload = match render(&screened.job.spec, message, begun.attempt, &context.zones) {
        Ok(payload) => payload,
        Err(reason) => return Outcome::Permanent { reason },
    };
    let request = Call { reference: message.run_id(), attempt: begun.attempt, payload };
    let answer = tokio::time::timeout(time, context.gateway.send(&request)).await;
    answer.unwrap_or_else(|_| Outcome::Unknown { reason: format!("no answer within {:.1} s", time.as_secs_f64()) })
}

/// Does what a step says.
async fn finish(context: &Context, held: &Held, message: Option<&Message>, step: Step) {
    let reason = match step {
        Step::Settle(RunStatus::Dead, error) => format!("attempts used up: {}", error.unwrap_or_default()),
        Step::Settle(RunStatus::Indeterminate, error) => {
            format!("nobody knows whether it went out: {}", error.unwrap_or_default())
        }
        Step::Letter { reason } => reason,
        Step::Settle(RunStatus::Succeeded | RunStatus::Failed | RunStatus::Skipped, _) => {
            return context.hands.delete(held);
        }
        // The row is somebody's, or waits: this delivery has nothing more to do with it.
        Step::Settle(RunStatus::Running | RunStatus::Retrying, _) | Step::Fenced => return context.hands.let_go(held),
        Step::PutBack { wait, why, grows } => {
            let wait = if grows { growing(wait, held.delivery.receive_count) } else { wait.min(LONGEST_PUT_BACK) };
            tracing::debug!(wait_ms = wait.as_millis() as u64, why, "put back");
            return context.hands.hide(held, wait).await;
        }
        Step::GiveBack => return context.hands.hide(held, Duration::ZERO).await,
    };
    let run = message.map(Message::run_id);
    if send_letter(context, &reason, run.as_ref(), &held.delivery.body).await {
        tracing::error!(reason, "a message went to the dead letters: a person must look at it");
        context.metrics.dead_letter(if run.is_some() { "run" } else { "unreadable" });
        context.hands.delete(held);
    } else {
        context.hands.hide(held, growing(FIRST_PUT_BACK, held.delivery.receive_count)).await;
    }
}

/// A wait that doubles with each delivery, up to ten minutes: SQS gives up a message after 1,000 deliveries.
fn growing(first: Duration, receive_count: u32) -> Duration {
    (first * 2u32.pow(receive_count.saturating_sub(1).min(16))).min(LONGEST_PUT_BACK)
}

//! The way of one message through a worker: lease → idempotency (screen) → rate (permit and pick) → idempotency (begin) →
//! deliver → record.
//!
//! Each station either hands on or says what becomes of the message ([`Step`]). Only [`finish`] acts on that: **row
//! first, then dead letter, then delete**, so that a crash on any line makes the message come again and find its row.
//! While the store is in trouble a message stays in hand and is tried again: what is in hand bounds what is taken.

use crate::begin::{give_up, own};
use crate::gone::pause_job;
use crate::idempotency::{JobAsRead, Look, Screened, look, on_hold};
use crate::lease::{Hands, Held};
use crate::metrics::Metrics;
use crate::rate::Permits;
use crate::record::{record, send_letter};
use crate::returns::Returns;
use crate::settings::{RECORD_MARGIN, WorkSettings};
use crate::slots::{Granted, SentAway, Slots};
use crate::spans;
use crate::steering::Steered;
use crate::tenants::Tenants;
use futures::FutureExt;
use punctual_core::circuit::Gate;
use punctual_core::clock::Clock;
use punctual_core::heartbeat::is_heartbeat;
use punctual_core::lease::{LONGEST_HIDE, Wait, growing};
use punctual_core::message::{Message, UnreadableMessage};
use punctual_core::payload::Handler;
use punctual_core::ports::{Call, Gateway, PortResult, Ports};
use punctual_core::render::render;
use punctual_core::retry::{Outcome, OutcomeClass};
use punctual_core::run::{RunRow, RunStatus};
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::Instrument;

/// A screen older than this when the call is about to start is made again.
pub(crate) const SCREEN_VALID: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(3);
const FIRST_PUT_BACK: Duration = Duration::from_secs(5);
const NEWER_MESSAGE_WAIT: Duration = Duration::from_secs(60);
/// Time between two looks of a run that waits for its turn at whether waiting is of use.
const LOOK_UP: Duration = Duration::from_secs(1);
/// A run whose attempt was given back is looked at again after this.
pub(crate) const GIVEN_UP_FOR: Duration = Duration::from_secs(1);
/// So long a run waits with a worker that has no share of its target's limit: longer than shares take to change hands.
const WITHOUT_SHARES: Duration = Duration::from_secs(20);

/// What all messages of a worker share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) ports: Ports,
    pub(crate) gateway: Arc<dyn Gateway>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) zones: Arc<Zones>,
    pub(crate) settings: WorkSettings,
    pub(crate) id: String,
    pub(crate) hands: Arc<Hands>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) permits: Arc<Permits>,
    pub(crate) steered: Arc<Steered>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Context {
    /// The same with empty hands that trust their messages for so long, and what those let go of.
    pub(crate) fn with_hands(&self, trust: Duration) -> (Context, Returns) {
        let (queue, settings) = (self.ports.queue.clone(), &self.settings);
        let (hands, returns) = Hands::new(queue, self.clock.clone(), settings.visibility, settings.heartbeat, trust);
        (Context { hands: Arc::new(hands), ..self.clone() }, returns)
    }
}

/// What becomes of a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Its row has this status: delete, or first the dead letter.
    Settle(RunStatus, Option<String>),
    /// To the dead letters, then delete.
    Letter { word: &'static str, reason: String },
    /// Put it back: for what its row says, for what may take long, or as long as it takes.
    PutBack { wait: Wait, why: &'static str },
    /// Give it back at once: the worker stops, or its clock is off.
    GiveBack,
    /// It is another worker's by now: touch nothing.
    Fenced,
}

impl Step {
    /// For traces.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Step::Settle(status, _) => status.as_str(),
            Step::Letter { .. } => "dead_letter",
            Step::PutBack { .. } => "put_back",
            Step::GiveBack => "given_back",
            Step::Fenced => "fenced",
        }
    }
}

/// Takes one message all the way; says whether it was put back with nothing done for it. Its job may have been read already.
pub(crate) async fn handle(
    context: Arc<Context>,
    held: Arc<Held>,
    job: Option<JobAsRead>,
    stop: watch::Receiver<bool>,
) -> bool {
    context.metrics.received.increment(1);
    let message = match &held.message {
        Ok(message) => {
            if held.delivery.receive_count <= 1 {
                // What is sent early is kept back by the queue until it is due.
                let latency = context.clock.now() - message.first_enqueued_at.max(message.due_at);
                context.metrics.waited_in_queue(held.delivery.priority, latency.as_seconds_f64());
            }
            message
        }
        Err(UnreadableMessage::Newer(v)) => {
            tracing::warn!(v, "a message of a newer version is left for a newer worker");
            let step = Step::PutBack { wait: Wait::Growing(NEWER_MESSAGE_WAIT), why: "of a newer version" };
            finish(&context, &held, None, step).await;
            return true;
        }
        Err(error) => {
            finish(&context, &held, None, Step::Letter { word: "unreadable", reason: error.to_string() }).await;
            return false;
        }
    };
    let span = tracing::info_span!(
        "run",
        job.id = %message.job_key,
        run.id = %message.run_id(),
        tenant = message.job_key.tenant(),
        queue = %held.delivery.priority,
        worker.id = context.id,
        trace_id = held.trace.map(|trace| tracing::field::display(trace.id())),
        attempt = tracing::field::Empty,
    );
    async {
        let worked = work(&context, &held, message, job, stop).await;
        let is_put_back = matches!(worked, Err(Step::PutBack { .. }));
        let step = worked.unwrap_or_else(|step| step);
        spans::record_delivery(&context, &held, message, &step);
        finish(&context, &held, Some(message), step).await;
        is_put_back
    }
    .instrument(span)
    .await
}

/// What is due sooner than this is looked at again after this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The stations in order. An early end is an `Err`, so that `?` takes it.
async fn work(
    context: &Context,
    held: &Held,
    message: &Message,
    job: Option<JobAsRead>,
    mut stop: watch::Receiver<bool>,
) -> Result<Step, Step> {
    may_go_on(context, &stop)?;
    let in_hand = match context.tenants.enter(held.delivery.priority, message.job_key.tenant(), LONGEST_HIDE) {
        Ok(in_hand) => in_hand,
        Err(wait) => return Err(Step::PutBack { wait: Wait::For(wait), why: "its tenant has its part in hand" }),
    };
    let mut screened = screen(context, held, message, job, &mut stop).await?;
    let (target, granted) = loop {
        let target = screened.job.spec.payload.target();
        if screened.has_tried() && context.slots.spares_the_tried(&target) {
            return Err(circuit_is_open(context, held, &target));
        }
        let granted = turn(context, held, message, &target, &mut stop).await?;
        if screened.age.elapsed(&*context.clock) > SCREEN_VALID {
            screened = screen(context, held, message, None, &mut stop).await?;
        }
        // Where an edit sent it elsewhere, another limit and another line are meant for it.
        if screened.job.spec.payload.target() == target {
            break (target, granted);
        }
    };
    let (begun, token) = own(context, held, message, &target, &mut screened, &mut stop).await?;
    let (handler, attempt) = (screened.job.spec.payload.handler(), begun.attempt);
    let _in_flight = context.metrics.begun(screened.takes_over());
    tracing::Span::current().record("attempt", begun.attempt);
    let prepared = match depart(context, &target, &begun, &mut stop).await {
        Ok(()) => prepare(context, held, message, &target, &screened, &begun),
        Err(unmade) => Err(unmade),
    };
    let outcome = match prepared {
        Ok((request, time)) => {
            tracing::debug!("its call goes out");
            call(context, held, &target, &request, time, handler).await
        }
        Err(Unmade::Impossible(outcome)) => outcome,
        Err(Unmade::NotNow(why)) => {
            tracing::debug!(why, "a call that was begun is not made");
            drop(granted);
            return Ok(match give_up(context, message, Some(*begun), &token).await {
                Ok(()) => {
                    Step::PutBack { wait: Wait::For(GIVEN_UP_FOR), why: "its call was begun and could not be made" }
                }
                // It is taken over when its lease is over, and counts.
                Err(_) => Step::Fenced,
            });
        }
    };
    context.metrics.attempt(handler, attempt, outcome.class());
    if is_heartbeat(&message.job_key) && outcome.class() == OutcomeClass::Delivered {
        context.metrics.beat(message.due_at, context.clock.now());
    }
    // The slot is for the call. What is recorded and for how long is no reason to call nobody else.
    drop(granted);
    in_hand.worked_off();
    let step = record(context, message, &screened.job, *begun, &token, &outcome).await;
    if matches!(outcome, Outcome::Gone { .. }) {
        pause_job(context, &screened.job).await;
    }
    Ok(step)
}

/// Looks at job and row until the store has answered.
pub(crate) async fn screen(
    context: &Context,
    held: &Held,
    message: &Message,
    mut job: Option<JobAsRead>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Box<Screened>, Step> {
    let mut failures = 0;
    loop {
        may_go_on(context, stop)?;
        let looked = look(context, held, message, job.take()).await;
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
pub(crate) fn may_go_on(context: &Context, stop: &watch::Receiver<bool>) -> Result<(), Step> {
    if *stop.borrow() || context.clock.check().is_err() { Err(Step::GiveBack) } else { Ok(()) }
}

/// The answer of a call to the store; none when it failed and is to be made again.
pub(crate) async fn insist<T>(
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
            Err(Step::PutBack { wait: Wait::Growing(FIRST_PUT_BACK), why: "the store refuses a call" })
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

/// Waits until it is this run's turn: a permit for its target, a slot, and nobody before it by weight.
async fn turn(
    context: &Context,
    held: &Held,
    message: &Message,
    target: &Target,
    stop: &mut watch::Receiver<bool>,
) -> Result<Granted, Step> {
    let waits_from = context.clock.monotonic();
    if context.slots.is_crowded(held.delivery.priority, target) {
        return Err(has_its_part(context, held, target));
    }
    let turn = context.slots.turn(held.delivery.priority, target, message.job_key.tenant());
    tokio::pin!(turn);
    loop {
        let turn = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return Err(Step::GiveBack),
            turn = &mut turn => Some(turn),
            () = tokio::time::sleep(LOOK_UP) => None,
        };
        match turn {
            Some(Ok(granted)) => {
                context.metrics.limiter_wait.record((context.clock.monotonic() - waits_from).as_secs_f64());
                return Ok(granted);
            }
            Some(Err(SentAway)) => return Err(circuit_is_open(context, held, target)),
            None => is_worth_waiting(context, held, message, target, waits_from, stop)?,
        }
    }
}

/// Whether waiting on is of use, and not only in the way of others.
fn is_worth_waiting(
    context: &Context,
    held: &Held,
    message: &Message,
    target: &Target,
    waits_from: Duration,
    stop: &watch::Receiver<bool>,
) -> Result<(), Step> {
    may_go_on(context, stop)?;
    if !context.hands.trusts(held) {
        return Err(Step::Fenced);
    }
    let Some(steering) = context.steered.current() else { return Ok(()) };
    if steering.hold(message.job_key.tenant(), held.delivery.priority, target).is_some() {
        return Err(on_hold(context));
    }
    if context.slots.is_in_excess(held.delivery.priority, target) {
        return Err(has_its_part(context, held, target));
    }
    let waits_for = context.clock.monotonic().saturating_sub(waits_from);
    if waits_for >= WITHOUT_SHARES && !context.permits.still_valid(target) {
        // More workers than shares, or shares that cannot be kept: others may be able to.
        return Err(Step::PutBack { wait: Wait::Growing(FIRST_PUT_BACK), why: "no share of its target's limit" });
    }
    Ok(())
}

/// Its target answers slowly: those behind it in the queue are not to wait for that.
fn has_its_part(context: &Context, held: &Held, target: &Target) -> Step {
    let wait = Wait::For(context.slots.put_back(held.delivery.priority, target, Duration::ZERO, LONGEST_HIDE));
    Step::PutBack { wait, why: "its target has its part of the slots" }
}

/// No attempt is counted. It comes again when calls may be tried once more, and behind those that were put back before it.
pub(crate) fn circuit_is_open(context: &Context, held: &Held, target: &Target) -> Step {
    let closed_for = match context.slots.gate(target) {
        Gate::Open { until } => until.saturating_sub(context.clock.monotonic()),
        Gate::Closed | Gate::HalfOpen => Duration::ZERO,
    };
    let wait = Wait::For(context.slots.put_back(held.delivery.priority, target, closed_for, LONGEST_HIDE));
    Step::PutBack { wait, why: "the circuit of its target is open" }
}

/// Why a call that was begun does not go out.
enum Unmade {
    /// It cannot be made now, by this worker.
    NotNow(String),
    /// It can never be made.
    Impossible(Outcome),
}

/// Waits at the door, where the calls that were let in leave one after the other; not beyond the row's lease, nor a stop.
async fn depart(
    context: &Context,
    target: &Target,
    begun: &RunRow,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), Unmade> {
    let leased = time_in_lease(context, begun).saturating_sub(least_time(context));
    tokio::select! {
        biased;
        () = context.permits.depart(target) => Ok(()),
        _ = stop.wait_for(|stop| *stop) => Err(Unmade::NotNow("the worker stops".into())),
        () = tokio::time::sleep(leased) => Err(Unmade::NotNow("its target's limit let nobody out for too long".into())),
    }
}

/// How long a call may take that has to end, and be recorded, inside its row's lease.
fn time_in_lease(context: &Context, begun: &RunRow) -> Duration {
    let leased = begun.lease_until.and_then(|until| (until - context.clock.now()).to_std().ok());
    leased.unwrap_or_default().saturating_sub(RECORD_MARGIN)
}

/// A call that has less time than this is not made: one that is cut off leaves nobody knowing what it did.
fn least_time(context: &Context) -> Duration {
    context.settings.attempt_timeout / 2
}

/// What goes out, and the time that it may take. After begin nothing keeps it from going out but a lost lease or share, a
/// clock gone wrong, or a text that cannot be made.
fn prepare(
    context: &Context,
    held: &Held,
    message: &Message,
    target: &Target,
    screened: &Screened,
    begun: &RunRow,
) -> Result<(Call, Duration), Unmade> {
    let not_now = |why: &str| Err(Unmade::NotNow(why.to_owned()));
    let time = context.settings.attempt_timeout.min(time_in_lease(context, begun));
    if !context.hands.trusts(held) {
        return not_now("its lease was lost before the call");
    }
    if time < least_time(context) {
        return not_now("too little of its lease is left for a call");
    }
    if let Err(off) = context.clock.check() {
        return not_now(&off.to_string());
    }
    if !context.permits.still_valid(target) {
        return not_now("its rate share was lost before the call");
    }
    let payload = render(&screened.job.spec, message, begun.attempt, &context.zones);
    let payload = payload.map_err(|reason| Unmade::Impossible(Outcome::Permanent { reason }))?;
    if begun.attempt == 1 {
        let lag = context.clock.now() - message.due_at;
        context.metrics.started(held.delivery.priority, lag.as_seconds_f64());
    }
    let (reference, trace) = (message.run_id().original(), spans::attempt(context, held, message, begun.attempt));
    Ok((Call { reference, attempt: begun.attempt, payload, trace, time }, time))
}

/// The call itself.
async fn call(
    context: &Context,
    held: &Held,
    target: &Target,
    request: &Call,
    time: Duration,
    handler: Handler,
) -> Outcome {
    let (called_at, began) = (context.clock.monotonic(), context.clock.now());
    let answer = AssertUnwindSafe(context.gateway.send(request)).catch_unwind();
    let outcome = match tokio::time::timeout(time, answer).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            tracing::error!(%target, "a handler broke off: this is a defect of the program");
            Outcome::Temporary { reason: "its handler broke off".into(), retry_after: None }
        }
        Err(_) => Outcome::Unknown { reason: format!("no answer within {:.1} s", time.as_secs_f64()) },
    };
    context.metrics.call(handler, context.clock.monotonic() - called_at);
    spans::record_attempt(context, held, request, handler, began, outcome.class());
    context.slots.ended(held.delivery.priority, target, outcome.class(), called_at);
    outcome
}

/// Does what a step says.
async fn finish(context: &Context, held: &Held, message: Option<&Message>, step: Step) {
    let (word, reason) = match step {
        Step::Settle(RunStatus::Dead, error) => {
            ("exhausted", format!("attempts used up: {}", error.unwrap_or_default()))
        }
        Step::Settle(RunStatus::Indeterminate, error) => {
            ("indeterminate", format!("nobody knows whether it went out: {}", error.unwrap_or_default()))
        }
        Step::Letter { word, reason } => (word, reason),
        Step::Settle(RunStatus::Succeeded | RunStatus::Failed | RunStatus::Skipped, _) => {
            return context.hands.delete(held);
        }
        // The row is somebody's, or waits: this delivery has nothing more to do with it.
        Step::Settle(RunStatus::Running | RunStatus::Retrying, _) | Step::Fenced => return context.hands.let_go(held),
        Step::PutBack { wait, why } => {
            let age = message.and_then(|m| (context.clock.now() - m.first_enqueued_at).to_std().ok());
            tracing::debug!(?wait, why, "put back");
            return context.hands.put_back(held, wait, age.unwrap_or_default());
        }
        Step::GiveBack => return context.hands.hide(held, Duration::ZERO),
    };
    let run = message.map(Message::run_id);
    if send_letter(context, &reason, run.as_ref(), &held.delivery.body).await {
        tracing::error!(reason, "a message went to the dead letters: a person must look at it");
        context.metrics.dead_letter(word);
        context.hands.delete(held);
    } else {
        context.hands.hide(held, growing(FIRST_PUT_BACK, held.delivery.receive_count));
    }
}

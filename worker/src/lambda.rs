//! The worker as a Lambda function: the same way for each message, with a batch that is handed in instead of loops that
//! receive, and an end that is set from outside.
//!
//! The function's deadline takes the place of heartbeats: the queue hides a batch for longer than the function may run
//! (six times as long, as AWS asks). No call is begun that could not end and be recorded before the deadline; what is not
//! begun by then is given back. What is done with is reported as done, and Lambda deletes it; all else is reported as
//! failed, after its visibility was set. A frozen environment can renew nothing, so its part of a rate limit is fixed.

use crate::gauges;
use crate::pipeline::Context;
use crate::receive::start;
use crate::returns;
use crate::service::Equipment;
use crate::settings::RECORD_MARGIN;
use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use lambda_runtime::{LambdaEvent, service_fn};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, Stopwatch};
use punctual_core::lease::Wait;
use punctual_core::ports::Delivery;
use punctual_core::priority::Priority;
use punctual_core::telemetry::Telemetry;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinSet;

/// Left over before the deadline, to answer in.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);
/// Of that, what stays after metrics and spans are sent.
const FLUSH_MARGIN: Duration = Duration::from_millis(250);
/// For so long a batch is put back at first of which nothing may be begun.
const CANNOT_WORK: Duration = Duration::from_secs(5);
/// The longest read of limits and holds. After a thaw the connection may be dead.
const REFRESH_TIME: Duration = Duration::from_secs(3);

/// Whether this process was started as a Lambda function.
pub fn is_function() -> bool {
    std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some()
}

/// Serves invocations until the environment ends.
///
/// # Errors
/// When the runtime cannot be reached.
pub async fn serve(equipment: Equipment, names: Names, telemetry: Telemetry) -> Result<(), String> {
    let function = Arc::new(Function::new(equipment));
    let (working, telemetry) = (function.clone(), Arc::new(telemetry));
    let service = service_fn(move |event: LambdaEvent<SqsEvent>| {
        let (function, names, telemetry) = (working.clone(), names.clone(), telemetry.clone());
        async move {
            let clock = function.context.clock.clone();
            let (left, began) = (time_left(event.context.deadline, &*clock), clock.monotonic());
            let (messages, deliveries) = read(event.payload, &names);
            let done = function.work(deliveries, left).await;
            // What is not told now is told after a thaw, if there is one.
            gauges::tell(&function.context);
            let left = left.saturating_sub(clock.monotonic() - began).saturating_sub(FLUSH_MARGIN);
            telemetry.flush(left).await;
            Ok::<_, lambda_runtime::Error>(answer(&messages, &done))
        }
    });
    tokio::select! {
        ended = lambda_runtime::run(service) => ended.map_err(|e| e.to_string()),
        () = function.broke() => Err("the environment broke".into()),
    }
}

/// The deadline is wall time, in milliseconds; how long it is until then is worked out once.
fn time_left(deadline_ms: u64, clock: &dyn Clock) -> Duration {
    Duration::from_millis(deadline_ms.saturating_sub(clock.wall().timestamp_millis().try_into().unwrap_or_default()))
}

/// The messages of an event by their receipts, and what the worker takes of them. A message from a queue that is none of
/// ours is left to fail: somebody wired the function wrongly.
fn read(event: SqsEvent, names: &Names) -> (Vec<(String, Option<String>)>, Vec<Delivery>) {
    let mut messages = Vec::new();
    let mut deliveries = Vec::new();
    for message in event.records {
        let id = message.message_id.clone().unwrap_or_default();
        let delivery = delivery(message, names);
        if delivery.is_none() {
            tracing::error!(
                "a message came from a queue that is none of this installation's: check the function's event sources"
            );
        }
        messages.push((id, delivery.as_ref().map(|delivery| delivery.receipt.clone())));
        deliveries.extend(delivery);
    }
    (messages, deliveries)
}

fn delivery(message: SqsMessage, names: &Names) -> Option<Delivery> {
    let queue = message.event_source_arn.as_deref()?.rsplit(':').next()?;
    let priority = Priority::ALL.into_iter().find(|priority| names.queue(*priority) == queue)?;
    let count = message.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse().ok());
    Some(Delivery {
        priority,
        receipt: message.receipt_handle?,
        body: message.body.unwrap_or_default(),
        receive_count: count.unwrap_or(1),
    })
}

/// All that is not done with comes again.
fn answer(messages: &[(String, Option<String>)], done: &BTreeSet<String>) -> SqsBatchResponse {
    let comes_again = |receipt: &Option<String>| receipt.as_ref().is_none_or(|receipt| !done.contains(receipt));
    let failures = messages.iter().filter(|(_, receipt)| comes_again(receipt)).map(|(id, _)| {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier.clone_from(id);
        failure
    });
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failures.collect();
    response
}

/// One environment, through all of its invocations.
pub struct Function {
    context: Context,
    // What goes on beside the invocations ends with it.
    beside: Mutex<JoinSet<()>>,
}

impl Function {
    /// Starts what goes on beside the invocations.
    pub fn new(equipment: Equipment) -> Self {
        let trust = equipment.settings.trust;
        let (context, _) = equipment.context(trust);
        let mut beside = JoinSet::new();
        beside.spawn(context.slots.clone().deal());
        let (steered, control) = (context.steered.clone(), context.ports.control.clone());
        beside.spawn(async move { steered.keep(&*control).await });
        let (steered, permits) = (context.steered.clone(), context.permits.clone());
        beside.spawn(async move { permits.follow(&steered).await });
        Function { context, beside: Mutex::new(beside) }
    }

    /// Returns when something that goes on beside the invocations has ended, which it must not.
    pub async fn broke(&self) {
        let ended = self.beside.lock().await.join_next().await;
        tracing::error!(?ended, "a loop that must not end has ended: the environment ends too");
    }

    /// Works on a batch for at most `left`; the receipts of what is done with, which the caller deletes. The rest comes
    /// again: its visibility says when.
    pub async fn work(&self, batch: Vec<Delivery>, left: Duration) -> BTreeSet<String> {
        let asked = Stopwatch::start(&*self.context.clock);
        let settings = &self.context.settings;
        let from_now = |time: Duration| time.saturating_sub(asked.elapsed(&*self.context.clock));
        // A call that begins at the last moment may take its whole time.
        let may_begin = left.saturating_sub(settings.attempt_timeout + RECORD_MARGIN + ANSWER_MARGIN);
        // It ends by the stop below, and not by a clock that differs from that one a little.
        let (context, mut returns) = self.context.with_hands(may_begin + ANSWER_MARGIN);
        let context = Arc::new(context);
        let held: Vec<_> = batch.into_iter().map(|delivery| context.hands.take(delivery, asked)).collect();
        if self.can_work(from_now(may_begin)).await {
            let room = Arc::new(Semaphore::new(held.len()));
            let permits = (0..held.len()).map(|_| room.clone().try_acquire_owned().expect("there is room for all"));
            let (stopping, stop) = watch::channel(false);
            let work = start(context.clone(), held, permits.collect(), stop);
            tokio::pin!(work);
            let in_time = async {
                tokio::select! {
                    biased;
                    _ = &mut work => return,
                    () = tokio::time::sleep(from_now(may_begin)) => {}
                }
                stopping.send_replace(true);
                work.await;
            };
            if tokio::time::timeout(from_now(left.saturating_sub(ANSWER_MARGIN)), in_time).await.is_err() {
                tracing::warn!(
                    "calls under way did not end within the function's time; their runs are taken over later"
                );
            }
        } else {
            // Given back at once, it would be here again at once.
            for held in held {
                context.hands.put_back(&held, Wait::Growing(CANNOT_WORK), Duration::ZERO);
            }
        }
        let mut returned = Vec::new();
        while let Ok(one) = returns.try_recv() {
            returned.push(one);
        }
        let (queue, clock) = (context.ports.queue.clone(), context.clock.clone());
        returns::settle(queue, clock, returned, from_now(left.saturating_sub(ANSWER_MARGIN / 2))).await
    }

    /// Whether anything may be begun: there is time for a call, the clock is right, and limits and holds are known.
    async fn can_work(&self, may_begin: Duration) -> bool {
        let Context { steered, ports, clock, .. } = &self.context;
        if may_begin.is_zero() {
            tracing::error!("the function's timeout is too short for an attempt and its record: nothing is begun");
            return false;
        }
        // What was known before the environment was frozen may be long over.
        match tokio::time::timeout(may_begin.min(REFRESH_TIME), steered.refresh(&*ports.control)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(class = error.class(), %error, "limits and holds cannot be read"),
            Err(_) => tracing::warn!("limits and holds cannot be read in time"),
        }
        if let Err(off) = clock.check() {
            tracing::error!(%off, "nothing is begun by this clock");
            return false;
        }
        steered.current().is_some()
    }
}

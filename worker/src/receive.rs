//! Step 5, *lease*: what is received, and how much of it at once.
//!
//! One receive follows the other, each as soon as there is room for what it may bring. A backlog that all goes back — held,
//! paused, behind an open circuit — stands before everybody else's runs until each of it was seen once: there, receives go
//! side by side, as many as the hands have room for, and one by one again after one that brought something to work on.

use crate::alive::Alive;
use crate::idempotency::read_jobs;
use crate::lease::Held;
use crate::pipeline::{Context, handle, pause};
use crate::service::CALL_TIME;
use futures::stream::{FuturesUnordered, StreamExt};
use punctual_core::clock::Stopwatch;
use punctual_core::ports::{BATCH, PortResult};
use punctual_core::priority::Priority;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);
/// Time until a worker whose clock was refused looks at it again.
const CLOCK_PAUSE: Duration = Duration::from_secs(1);
/// Time until a worker looks again whether a queue that is held, or of which that is not known, is free.
const HELD_PAUSE: Duration = Duration::from_secs(1);
/// So long at most, receives that go side by side wait for what came to be put back: that makes room.
const MOMENT: Duration = Duration::from_millis(5);

/// What came of the messages of one receive.
#[derive(Clone, Copy)]
pub(crate) struct Batch {
    asked_for: usize,
    received: usize,
    /// Of these, put back with nothing done for them.
    put_back: usize,
}

/// How many receives go side by side, as far as there is room for what they may bring.
struct SideBySide(usize);

impl SideBySide {
    /// Twice as many after a full batch of which nothing could be worked on, one after any other.
    fn ended(&mut self, batch: Batch) {
        let Batch { asked_for, received, put_back } = batch;
        self.0 = if received == asked_for && put_back == asked_for { 2 * self.0.min(usize::MAX / 2) } else { 1 };
    }
}

/// Receives one priority's messages and works on them; ends when told to stop and all its messages are done with.
pub(crate) async fn receive(
    context: Arc<Context>,
    alive: Arc<Alive>,
    priority: Priority,
    mut stop: watch::Receiver<bool>,
) {
    let batch = BATCH.min(context.settings.prefetch.div_ceil(2));
    let room = Arc::new(Semaphore::new(context.settings.prefetch));
    let mut side_by_side = SideBySide(1);
    let mut work = JoinSet::new();
    let mut failures = 0;
    while !*stop.borrow() {
        loop {
            let ended = match side_by_side.0 {
                1 => work.try_join_next(),
                _ => timeout(MOMENT, work.join_next()).await.ok().flatten(),
            };
            match ended {
                Some(Ok(batch)) => side_by_side.ended(batch),
                Some(Err(error)) => tell_panic(error),
                None => break,
            }
        }
        let permits = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            permits = room_for_batch(&room, batch) => permits,
        };
        if context.clock.check().is_err() {
            pause(&mut stop, CLOCK_PAUSE).await;
            continue;
        }
        let changed = context.steered.changed();
        if context.steered.current().is_none_or(|steering| steering.holds_queue(priority)) {
            // A queue that is held as a whole keeps its messages best itself.
            tokio::select! {
                biased;
                () = changed => {}
                () = pause(&mut stop, HELD_PAUSE) => {}
            }
            continue;
        }
        let beside = (1..side_by_side.0).map_while(|_| room_now(&room, batch));
        let rooms: Vec<_> = std::iter::once(permits).chain(beside).collect();
        let receives = rooms.into_iter().map(|permits| take(&context, &alive, priority, permits));
        let mut receives: FuturesUnordered<_> = receives.collect();
        let mut failed = None;
        // A receive that is cut off may have taken messages: it is always waited for. One that finds nothing for long stands
        // in nobody's way: it takes what comes.
        while let Some(received) = receives.next().await {
            match received {
                Ok((held, permits)) => drop(work.spawn(start(context.clone(), held, permits, stop.clone()))),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => failures = 0,
            Some(error) => {
                if failures == 0 {
                    tracing::warn!(queue = %priority, class = error.class(), %error, "a queue cannot be read; it is tried again");
                }
                side_by_side = SideBySide(1);
                let wait = (FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF);
                failures = (failures + 1).min(6);
                pause(&mut stop, wait).await;
            }
        }
    }
    while let Some(ended) = work.join_next().await {
        ended.map_or_else(tell_panic, drop);
    }
}

/// Receives as many messages as there is room for. They are in hand then: reading their jobs takes time, and heartbeats begin
/// at the receipt.
async fn take(
    context: &Context,
    alive: &Alive,
    priority: Priority,
    permits: Vec<OwnedSemaphorePermit>,
) -> PortResult<(Vec<Arc<Held>>, Vec<OwnedSemaphorePermit>)> {
    let asked = Stopwatch::start(&*context.clock);
    let (poll, visibility) = (context.settings.poll, context.settings.visibility);
    let _under_way = alive.begin("a receive", poll + CALL_TIME);
    let deliveries = context.ports.queue.receive(priority, permits.len(), poll, visibility).await?;
    Ok((deliveries.into_iter().map(|delivery| context.hands.take(delivery, asked)).collect(), permits))
}

/// Works on the messages of one receive, each by itself, with their jobs read together.
pub(crate) async fn start(
    context: Arc<Context>,
    held: Vec<Arc<Held>>,
    permits: Vec<OwnedSemaphorePermit>,
    stop: watch::Receiver<bool>,
) -> Batch {
    let mut work = JoinSet::new();
    let mut batch = Batch { asked_for: permits.len(), received: held.len(), put_back: 0 };
    // Lets go even if the work panics: otherwise its heartbeats would hide the message for hours.
    let in_hand: Vec<_> = held.iter().map(|held| InHand(context.clone(), held.clone())).collect();
    let mut jobs = read_jobs(&context, &held).await.into_iter();
    for ((held, permit), in_hand) in held.into_iter().zip(permits).zip(in_hand) {
        let (context, stop, job) = (context.clone(), stop.clone(), jobs.next().flatten());
        work.spawn(async move {
            let _in_hand = in_hand;
            let is_put_back = handle(context, held, job, stop).await;
            drop(permit);
            is_put_back
        });
    }
    while let Some(ended) = work.join_next().await {
        match ended {
            Ok(is_put_back) => batch.put_back += usize::from(is_put_back),
            Err(error) => tell_panic(error),
        }
    }
    batch
}

struct InHand(Arc<Context>, Arc<Held>);

impl Drop for InHand {
    fn drop(&mut self) {
        // Only a panic leaves it in hand here. A task that is cut off at the end of a stop stays in hand, to be given back.
        if std::thread::panicking() {
            self.0.hands.let_go(&self.1);
        }
    }
}

fn tell_panic(error: JoinError) {
    tracing::error!(%error, "work on a message broke off: the message comes again");
}

/// Room for a batch: a receive that can take one message only costs as much as one that takes ten.
async fn room_for_batch(room: &Arc<Semaphore>, batch: usize) -> Vec<OwnedSemaphorePermit> {
    let mut permits = Vec::with_capacity(batch);
    for _ in 0..batch {
        permits.push(room.clone().acquire_owned().await.expect("the semaphore is never closed"));
    }
    permits
}

/// Room for a batch, if there is.
fn room_now(room: &Arc<Semaphore>, batch: usize) -> Option<Vec<OwnedSemaphorePermit>> {
    (0..batch).map(|_| room.clone().try_acquire_owned().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_go_side_by_side_while_nothing_can_be_worked_on() {
        let mut side_by_side = SideBySide(1);
        let mut after = |asked_for, received, put_back| {
            side_by_side.ended(Batch { asked_for, received, put_back });
            side_by_side.0
        };
        assert_eq!([10, 10, 4].map(|all| after(all, all, all)), [2, 4, 8]);
        assert_eq!([after(10, 10, 9), after(10, 10, 10), after(10, 9, 9), after(10, 0, 0)], [1, 2, 1, 1]);
        for _ in 0..100 {
            after(10, 10, 10);
        }
        assert!(after(10, 10, 10) > 1_000, "room is what bounds them");
    }
}

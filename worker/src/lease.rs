//! Step 5, *lease*, on the worker's side: messages in hand, kept by heartbeats, given back or deleted.
//!
//! A message is a lease from the moment it is received. As long as it is in hand its invisibility is extended; a lost
//! extension forbids *starting* a call and nothing else. What is let go of goes its way in [`crate::returns`].

use crate::alive::Alive;
use crate::returns::{Return, Returned, Returns};
use crate::service::CALL_TIME;
use crate::spans;
use chrono::{DateTime, Utc};
use futures::future::join_all;
use punctual_core::clock::{Clock, Stopwatch, Trust};
use punctual_core::error::PortError;
use punctual_core::lease::{LONGEST_HIDE, Wait, extension};
use punctual_core::message::{Message, UnreadableMessage};
use punctual_core::ports::{BATCH, Delivery, RunQueue};
use punctual_core::priority::Priority;
use punctual_core::trace::TraceContext;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// One message in hand.
pub struct Held {
    /// The delivery.
    pub delivery: Delivery,
    /// What it holds.
    pub message: Result<Message, UnreadableMessage>,
    /// The span of the delivery, if its message can be read.
    pub(crate) trace: Option<TraceContext>,
    /// When it came.
    pub(crate) taken_at: DateTime<Utc>,
    received: Stopwatch,
    trust: Mutex<Trust>,
    is_lost: AtomicBool,
}

impl Held {
    /// Trust from the receipt or the last extension on.
    fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All messages in hand.
pub struct Hands {
    queue: Arc<dyn RunQueue>,
    clock: Arc<dyn Clock>,
    visibility: Duration,
    heartbeat: Duration,
    trust: Duration,
    held: Mutex<BTreeMap<String, Arc<Held>>>,
    returns: mpsc::UnboundedSender<Returned>,
}

impl Hands {
    /// Empty hands, and what they let go of.
    pub fn new(
        queue: Arc<dyn RunQueue>,
        clock: Arc<dyn Clock>,
        visibility: Duration,
        heartbeat: Duration,
        trust: Duration,
    ) -> (Self, Returns) {
        let (returns, receiver) = mpsc::unbounded_channel();
        (Self { queue, clock, visibility, heartbeat, trust, held: Mutex::default(), returns }, receiver)
    }

    /// Takes a message that a receive begun at `asked` brought: its invisibility began then or later.
    pub fn take(&self, delivery: Delivery, asked: Stopwatch) -> Arc<Held> {
        let trust = Mutex::new(Trust { since: asked, lasts: self.trust });
        let message = Message::decode(&delivery.body);
        let trace = message.as_ref().ok().map(|message| spans::delivery(message, &delivery));
        let is_lost = AtomicBool::new(false);
        let held =
            Arc::new(Held { delivery, message, trace, taken_at: self.clock.now(), received: asked, trust, is_lost });
        self.lock().insert(held.delivery.receipt.clone(), held.clone());
        held
    }

    /// Whether a call for this message may still be started.
    pub fn trusts(&self, held: &Held) -> bool {
        !held.is_lost.load(Ordering::Acquire) && !held.trust().is_over(&*self.clock)
    }

    /// Lets go of a message without touching it: it is somebody else's, or comes back by itself.
    pub fn let_go(&self, held: &Held) {
        self.lock().remove(&held.delivery.receipt);
    }

    /// Lets go of a message for good.
    pub fn delete(&self, held: &Held) {
        self.give(held, Return::Delete);
    }

    /// Lets go of a message and hides it for `wait`, rounded up to whole seconds.
    pub fn hide(&self, held: &Held, wait: Duration) {
        let wait = whole_seconds(wait);
        self.give(held, Return::Hide(self.extension(held, wait).unwrap_or_default()));
    }

    /// Lets go of a message whose run was first enqueued so long ago, and that waits for something that may take long.
    pub fn put_back(&self, held: &Held, wait: Wait, age: Duration) {
        let longest_hide = self.extension(held, LONGEST_HIDE).unwrap_or_default();
        let (receive_count, body) = (held.delivery.receive_count, held.delivery.body.clone());
        self.give(held, Return::PutBack { wait, longest_hide, receive_count, age, body });
    }

    fn give(&self, held: &Held, what: Return) {
        self.let_go(held);
        let (priority, receipt) = (held.delivery.priority, held.delivery.receipt.clone());
        // The receiver is gone only when the worker ends; the message then comes again by itself.
        let _ = self.returns.send(Returned { priority, receipt, what });
    }

    /// Gives back all that is still in hand, at once.
    pub async fn give_back_all(&self) {
        let left: Vec<Arc<Held>> = std::mem::take(&mut *self.lock()).into_values().collect();
        let batches = Priority::ALL.into_iter().flat_map(|priority| {
            let of_one = left.iter().filter(move |held| held.delivery.priority == priority);
            let receipts: Vec<_> = of_one.map(|held| (held.delivery.receipt.clone(), Duration::ZERO)).collect();
            receipts.chunks(BATCH).map(|some| (priority, some.to_vec())).collect::<Vec<_>>()
        });
        let calls = batches.map(|(priority, some)| async move {
            if let Err(error) = self.queue.extend(priority, &some).await {
                tracing::warn!(class = error.class(), %error, "messages could not be given back; they come back later");
            }
        });
        join_all(calls).await;
    }

    /// Extends what is in hand, for ever.
    pub async fn keep(&self, alive: &Alive) {
        loop {
            tokio::time::sleep(self.heartbeat / 4).await;
            let _under_way = alive.begin("a round of heartbeats", CALL_TIME);
            let is_due = |held: &&Arc<Held>| {
                !held.is_lost.load(Ordering::Acquire) && held.trust().since.elapsed(&*self.clock) >= self.heartbeat
            };
            let due: Vec<Arc<Held>> = self.lock().values().filter(is_due).cloned().collect();
            let batches = Priority::ALL.into_iter().flat_map(|priority| {
                let of_one = due.iter().filter(move |held| held.delivery.priority == priority);
                let of_one: Vec<Arc<Held>> = of_one.cloned().collect();
                of_one.chunks(BATCH).map(|some| (priority, some.to_vec())).collect::<Vec<_>>()
            });
            // Side by side: a slow batch must not cost the others their trust.
            join_all(batches.map(|(priority, some)| async move { self.extend(priority, &some).await })).await;
        }
    }

    /// For how long from now a message may be hidden, if `wanted`; none when its time in hand is used up.
    fn extension(&self, held: &Held, wanted: Duration) -> Option<Duration> {
        extension(Duration::ZERO, held.received.elapsed(&*self.clock), wanted)
    }

    async fn extend(&self, priority: Priority, batch: &[Arc<Held>]) {
        let started = Stopwatch::start(&*self.clock);
        let mut entries = Vec::with_capacity(batch.len());
        let mut extended = Vec::with_capacity(batch.len());
        for held in batch {
            match self.extension(held, self.visibility) {
                Some(visibility) => {
                    entries.push((held.delivery.receipt.clone(), visibility));
                    extended.push(held);
                }
                None => held.is_lost.store(true, Ordering::Release),
            }
        }
        if entries.is_empty() {
            return;
        }
        match self.queue.extend(priority, &entries).await {
            Ok(results) => {
                for (held, result) in extended.into_iter().zip(results) {
                    match result {
                        Ok(()) => held.trust().since = started,
                        // The receipt is not ours any more.
                        Err(PortError::Permanent(_)) => held.is_lost.store(true, Ordering::Release),
                        Err(_) => {}
                    }
                }
            }
            Err(error) => tracing::warn!(class = error.class(), %error, "a heartbeat failed; it is repeated"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole_seconds(wait: Duration) -> Duration {
    Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

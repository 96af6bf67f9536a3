//! What the queues took, counted where they took it.

use crate::stack::AcceptedMessage;
use chrono::{DateTime, Utc};
use punctual_core::message::Message;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Counts every message that a queue accepts.
#[derive(Clone)]
pub(super) struct Ledger {
    book: Arc<Mutex<Book>>,
    distinct: watch::Sender<u64>,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// Messages that name a run.
    pub(super) enqueued: u64,
    /// Messages by the scheduler that sent them.
    pub(super) by_scheduler: BTreeMap<String, u64>,
    /// Each run, and when its first message could be received.
    pub(super) runs: HashMap<String, Enqueued>,
    /// Dead letters.
    pub(super) dead_letters: u64,
}

/// The first message of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enqueued {
    pub(super) due_at: DateTime<Utc>,
    pub(super) visible_at: DateTime<Utc>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Ledger { book: Arc::default(), distinct: watch::Sender::new(0) }
    }

    /// Notes one message.
    pub(super) fn note(&self, accepted: &AcceptedMessage) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.queue.ends_with("dead-letters") {
            book.dead_letters += 1;
            return;
        }
        let Ok(message) = Message::decode(&accepted.body) else { return };
        book.enqueued += 1;
        *book.by_scheduler.entry(message.scheduler.clone()).or_default() += 1;
        let visible_at = accepted.accepted_at + accepted.delay;
        let first = Enqueued { due_at: message.due_at, visible_at };
        book.runs.entry(message.run_id().to_string()).or_insert(first);
        self.distinct.send_replace(book.runs.len() as u64);
    }

    pub(super) fn book(&self) -> Book {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of distinct runs so far.
    pub(super) fn distinct(&self) -> watch::Receiver<u64> {
        self.distinct.subscribe()
    }
}

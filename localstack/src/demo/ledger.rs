//! What the queues took, counted where they took it.

use super::lags::{Lag, Lags};
use crate::stack::AcceptedMessage;
use chrono::{DateTime, Utc};
use punctual_core::message::Message;
use std::collections::hash_map::Entry;
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
    /// How late these were, from due to when their first message could be received.
    pub(super) lags: Lags,
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
        let book = &mut *self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if accepted.queue.ends_with("dead-letters") {
            book.dead_letters += 1;
            return;
        }
        let Ok(message) = Message::decode(&accepted.body) else { return };
        book.enqueued += 1;
        *book.by_scheduler.entry(message.scheduler.clone()).or_default() += 1;
        let visible_at = accepted.accepted_at + accepted.delay;
        let first = Enqueued { due_at: message.due_at, visible_at };
        if let Entry::Vacant(entry) = book.runs.entry(message.run_id().to_string()) {
            entry.insert(first);
            book.lags.note(visible_at - message.due_at);
        }
        self.distinct.send_replace(book.runs.len() as u64);
    }

    pub(super) fn book(&self) -> Book {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How late the runs so far were, without looking at each.
    pub(super) fn dispatch_lag(&self) -> Option<Lag> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).lags.lag()
    }

    /// The number of distinct runs so far.
    pub(super) fn distinct(&self) -> watch::Receiver<u64> {
        self.distinct.subscribe()
    }
}

//! What the queues took, noted where they took it.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::message::Message;
use punctual_localstack::stack::AcceptedMessage;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Every message since the last [`Queue::clear`]. Bodies are kept as they are and read afterwards: what notes them runs
/// beside what is measured.
#[derive(Clone, Default)]
pub struct Queue {
    messages: Arc<Mutex<Vec<AcceptedMessage>>>,
    count: Arc<AtomicUsize>,
}

/// What they come to.
pub struct Book {
    /// Messages.
    pub enqueued: usize,
    /// Different runs.
    pub distinct: usize,
    /// When the first one was accepted.
    pub first_at: DateTime<Utc>,
    /// Dispatch lag of each run, in milliseconds, the smallest first: from due to visible in its queue.
    pub lags_ms: Vec<i64>,
    /// Messages of each scheduler copy.
    pub split: BTreeMap<String, usize>,
}

impl Queue {
    /// Notes a message.
    pub fn note(&self, message: AcceptedMessage) {
        self.lock().push(message);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.lock().clear();
        self.count.store(0, Ordering::Release);
    }

    /// What is there comes to.
    ///
    /// # Errors
    /// When a message cannot be read, or there is none.
    pub fn book(&self) -> anyhow::Result<Book> {
        let messages = self.lock();
        let first_at = messages.iter().map(|message| message.accepted_at).min();
        let first_at = first_at.ok_or_else(|| anyhow::anyhow!("nothing was enqueued"))?;
        let (mut runs, mut lags_ms, mut split) = (HashSet::new(), Vec::new(), BTreeMap::new());
        for accepted in messages.iter() {
            let message = Message::decode(&accepted.body)?;
            let visible_at = accepted.accepted_at + TimeDelta::from_std(accepted.delay)?;
            let lag = (visible_at - message.due_at).num_milliseconds();
            if runs.insert(message.run_id()) {
                lags_ms.push(lag);
            }
            *split.entry(message.scheduler).or_default() += 1;
        }
        lags_ms.sort_unstable();
        Ok(Book { enqueued: messages.len(), distinct: runs.len(), first_at, lags_ms, split })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AcceptedMessage>> {
        // A message is pushed whole or not at all.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What the queues took, noted where they took it.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::message::Message;
use punctual_localstack::stack::AcceptedMessage;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Every message since the last [`Queue::clear`]. Bodies are kept as they are and read afterwards: what notes them runs
/// beside what is measured.
#[derive(Clone, Default)]
pub struct Queue {
    messages: Arc<Mutex<Vec<AcceptedMessage>>>,
    count: Arc<AtomicUsize>,
    dead_letters: Arc<AtomicUsize>,
}

/// How a run lay in its queue.
#[derive(Clone, Debug)]
pub struct Visible {
    /// Name of the queue.
    pub queue: String,
    /// When the run was due.
    pub due_at: DateTime<Utc>,
    /// When a worker could receive it first.
    pub visible_at: DateTime<Utc>,
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
    /// Notes a message. Dead letters are only counted.
    pub fn note(&self, message: AcceptedMessage) {
        if message.queue.ends_with("dead-letters") {
            self.dead_letters.fetch_add(1, Ordering::Release);
            return;
        }
        self.lock().push(message);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// How many dead letters there are.
    pub fn dead_letters(&self) -> usize {
        self.dead_letters.load(Ordering::Acquire)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.lock().clear();
        self.count.store(0, Ordering::Release);
        self.dead_letters.store(0, Ordering::Release);
    }

    /// Each run by its id, at its earliest.
    ///
    /// # Errors
    /// When a message cannot be read.
    pub fn visible(&self) -> anyhow::Result<HashMap<String, Visible>> {
        let mut runs: HashMap<String, Visible> = HashMap::new();
        for accepted in self.lock().iter() {
            let message = Message::decode(&accepted.body)?;
            let visible_at = visible_at(accepted)?;
            let new = || Visible { queue: accepted.queue.clone(), due_at: message.due_at, visible_at };
            let run = runs.entry(message.run_id().to_string()).or_insert_with(new);
            run.visible_at = run.visible_at.min(visible_at);
        }
        Ok(runs)
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
            let lag = (visible_at(accepted)? - message.due_at).num_milliseconds();
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

fn visible_at(accepted: &AcceptedMessage) -> anyhow::Result<DateTime<Utc>> {
    Ok(accepted.accepted_at + TimeDelta::from_std(accepted.delay)?)
}

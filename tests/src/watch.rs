//! Ports that write down what passes through them, and change nothing.

use crate::PortChange;
use async_trait::async_trait;
use punctual_core::due::{DueBucket, ShardId};
use punctual_core::message::DeadLetter;
use punctual_core::ports::{
    Delivery, DueIndex, DuePage, DueSpan, PageToken, PortResult, Ports, QueueDepth, RunQueue, SendResult,
};
use punctual_core::priority::Priority;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What passed so far, in order.
pub struct Notes<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Notes<T> {
    fn clone(&self) -> Self {
        Notes(self.0.clone())
    }
}

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Notes(Arc::default())
    }
}

impl<T: Clone> Notes<T> {
    fn add(&self, one: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }

    /// All of it.
    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets all of it.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Notes each bucket of the due index that is read.
pub fn due_reads() -> (PortChange, Notes<DueBucket>) {
    let notes = Notes::default();
    let seen = notes.clone();
    let change = move |ports: Ports| {
        let due = Arc::new(Watched { port: ports.due.clone(), notes: seen.clone() });
        Ports { due, ..ports }
    };
    (Arc::new(change), notes)
}

/// Notes each message that a worker receives.
pub fn receives() -> (PortChange, Notes<Delivery>) {
    let notes = Notes::default();
    let seen = notes.clone();
    let change = move |ports: Ports| {
        let queue = Arc::new(Watched { port: ports.queue.clone(), notes: seen.clone() });
        Ports { queue, ..ports }
    };
    (Arc::new(change), notes)
}

/// What a worker does with a message that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Its invisibility ends so long from then on: a heartbeat, a hide, or a give-back.
    Extended(Duration),
    /// It is deleted.
    Deleted,
}

/// Notes what is done with each receipt, whether or not the queue takes it.
pub fn touches() -> (PortChange, Notes<(String, Touch)>) {
    let notes = Notes::default();
    let seen = notes.clone();
    let change = move |ports: Ports| {
        let queue = Arc::new(Watched { port: ports.queue.clone(), notes: seen.clone() });
        Ports { queue, ..ports }
    };
    (Arc::new(change), notes)
}

struct Watched<P: ?Sized, T> {
    port: Arc<P>,
    notes: Notes<T>,
}

#[async_trait]
impl DueIndex for Watched<dyn DueIndex, DueBucket> {
    async fn page(
        &self,
        bucket: DueBucket,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
    ) -> PortResult<DuePage> {
        self.notes.add(bucket);
        self.port.page(bucket, span, after, limit).await
    }
    async fn quarantined(&self, shard: ShardId, after: Option<PageToken>, limit: usize) -> PortResult<DuePage> {
        self.port.quarantined(shard, after, limit).await
    }
}

#[async_trait]
impl RunQueue for Watched<dyn RunQueue, Delivery> {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        self.port.send_after(priority, bodies, delay).await
    }
    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        let deliveries = self.port.receive(priority, max, wait, visibility).await?;
        deliveries.iter().for_each(|delivery| self.notes.add(delivery.clone()));
        Ok(deliveries)
    }
    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        self.port.extend(priority, receipts).await
    }
    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        self.port.delete(priority, receipts).await
    }
    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        self.port.send_dead_letter(letter).await
    }
    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        self.port.depth(priority).await
    }
}

#[async_trait]
impl RunQueue for Watched<dyn RunQueue, (String, Touch)> {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        self.port.send_after(priority, bodies, delay).await
    }
    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        self.port.receive(priority, max, wait, visibility).await
    }
    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        receipts.iter().for_each(|(receipt, by)| self.notes.add((receipt.clone(), Touch::Extended(*by))));
        self.port.extend(priority, receipts).await
    }
    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        receipts.iter().for_each(|receipt| self.notes.add((receipt.clone(), Touch::Deleted)));
        self.port.delete(priority, receipts).await
    }
    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        self.port.send_dead_letter(letter).await
    }
    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        self.port.depth(priority).await
    }
}

//! Ports of which a part does not work for a while: the queue of one priority, the rows of one job.

use crate::PortChange;
use async_trait::async_trait;
use punctual_core::error::PortError;
use punctual_core::job::JobKey;
use punctual_core::message::DeadLetter;
use punctual_core::ports::{Delivery, PortResult, Ports, Put, QueueDepth, RunQueue, RunStore, SendResult};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunRow};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How something fails now; none = it works. Clones are one.
#[derive(Clone, Default)]
pub struct Breakage(Arc<Mutex<Option<PortError>>>);

impl Breakage {
    /// From now on calls fail like this.
    pub fn set(&self, error: PortError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// From now on calls work.
    pub fn mend(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn check(&self) -> PortResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// Sends to the queue of one priority that can fail.
pub fn sends_of(priority: Priority) -> (PortChange, Breakage) {
    let breakage = Breakage::default();
    let breaks = breakage.clone();
    let change = move |ports: Ports| {
        let queue = Arc::new(BrokenSends { port: ports.queue.clone(), priority, breakage: breaks.clone() });
        Ports { queue, ..ports }
    };
    (Arc::new(change), breakage)
}

/// Rows of one job that can be out of reach.
pub fn rows_of(job: JobKey) -> (PortChange, Breakage) {
    let breakage = Breakage::default();
    let breaks = breakage.clone();
    let change = move |ports: Ports| {
        let runs = Arc::new(BrokenRows { port: ports.runs.clone(), job: job.clone(), breakage: breaks.clone() });
        Ports { runs, ..ports }
    };
    (Arc::new(change), breakage)
}

struct BrokenSends {
    port: Arc<dyn RunQueue>,
    priority: Priority,
    breakage: Breakage,
}

#[async_trait]
impl RunQueue for BrokenSends {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        if priority == self.priority {
            self.breakage.check()?;
        }
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

struct BrokenRows {
    port: Arc<dyn RunStore>,
    job: JobKey,
    breakage: Breakage,
}

impl BrokenRows {
    fn check(&self, of: &RunId) -> PortResult<()> {
        if of.job_key == self.job { self.breakage.check() } else { Ok(()) }
    }
}

#[async_trait]
impl RunStore for BrokenRows {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        self.check(id)?;
        self.port.get(id).await
    }
    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        self.check(&row.id)?;
        self.port.put(row).await
    }
    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        self.port.list(key, limit).await
    }
}

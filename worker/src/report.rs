//! What this worker says of itself in the store: which of its circuits are not closed.
//!
//! For operators' eyes: no work waits for it, and a report that cannot be written is tried again at the next turn. A worker
//! whose circuits are all closed makes no call here.

use crate::slots::Slots;
use punctual_core::clock::Clock;
use punctual_core::ports::{PortResult, ReportStore};
use punctual_core::report::{CircuitReport, REPORT_EVERY, REPORT_LEFT, WorkerReport, circuit_reports};
use punctual_core::target::Target;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Least time between two turns: many hosts that fail one after the other cost one write a second.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Writes one worker's reports.
pub(crate) struct Reporter {
    slots: Arc<Slots>,
    store: Arc<dyn ReportStore>,
    clock: Arc<dyn Clock>,
    me: String,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    circuits: BTreeMap<Target, CircuitReport>,
    /// The store may have a report of this worker.
    is_there: bool,
}

impl Reporter {
    pub(crate) fn new(slots: Arc<Slots>, store: Arc<dyn ReportStore>, clock: Arc<dyn Clock>, me: &str) -> Self {
        Reporter { slots, store, clock, me: me.to_owned(), told: Mutex::default() }
    }

    /// Keeps the report as the circuits are, for ever.
    pub(crate) async fn keep(&self) {
        loop {
            self.slots.circuits_changed().await;
            while self.turn().await {
                tokio::time::sleep(SHORTEST_WAIT).await;
                // The end of the time is as good as a change.
                let _ = tokio::time::timeout(REPORT_EVERY - SHORTEST_WAIT, self.slots.circuits_changed()).await;
            }
        }
    }

    /// Removes the report: this worker ends.
    pub(crate) async fn leave(&self) {
        let mut told = self.told.lock().await;
        if told.is_there
            && let Err(error) = self.store.remove(&self.me).await
        {
            tracing::debug!(class = error.class(), %error, "the report on circuits stays for a minute");
        }
        *told = Told::default();
    }

    /// Writes or removes the report; says whether there is to be another turn.
    async fn turn(&self) -> bool {
        let mut told = self.told.lock().await;
        if let Err(error) = self.try_turn(&mut told).await {
            tracing::debug!(class = error.class(), %error, "the circuits could not be reported");
        }
        told.is_there || !told.circuits.is_empty()
    }

    async fn try_turn(&self, told: &mut Told) -> PortResult<()> {
        let now = self.clock.now();
        told.circuits = circuit_reports(&told.circuits, &self.slots.open_circuits(), now);
        if told.circuits.is_empty() {
            if told.is_there {
                self.store.remove(&self.me).await?;
                told.is_there = false;
            }
            return Ok(());
        }
        // By a clock that may be off a report would not count when it should, or for too long.
        if self.clock.check().is_err() {
            return Ok(());
        }
        let is_first = !told.is_there;
        // Also if the answer is lost.
        told.is_there = true;
        self.store.put(&WorkerReport { worker: self.me.clone(), at: now, circuits: told.circuits.clone() }).await?;
        if is_first { self.clear().await } else { Ok(()) }
    }

    /// Removes what workers left that died. Done by whoever begins to report: so leftovers never outgrow the trouble they tell
    /// of, and nobody else is at the expense of a list.
    async fn clear(&self) -> PortResult<()> {
        let now = self.clock.now();
        let reports = self.store.list().await?;
        for left in reports.iter().filter(|report| now - report.at > REPORT_LEFT) {
            self.store.remove(&left.worker).await?;
        }
        Ok(())
    }
}

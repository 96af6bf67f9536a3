//! What workers say of themselves, in memory.

use super::{World, to_ms};
use crate::ports::{PortResult, ReportStore};
use crate::report::WorkerReport;
use async_trait::async_trait;

#[async_trait]
impl ReportStore for World {
    async fn put(&self, report: &WorkerReport) -> PortResult<()> {
        let mut report = report.clone();
        report.at = to_ms(report.at);
        report.circuits.values_mut().for_each(|circuit| circuit.since = to_ms(circuit.since));
        self.state().reports.insert(report.worker.clone(), report);
        Ok(())
    }

    async fn remove(&self, worker: &str) -> PortResult<()> {
        self.state().reports.remove(worker);
        Ok(())
    }

    async fn list(&self) -> PortResult<Vec<WorkerReport>> {
        Ok(self.reports())
    }
}

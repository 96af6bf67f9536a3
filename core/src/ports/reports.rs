//! Step 8: what workers say of themselves.

use super::PortResult;
use crate::report::WorkerReport;
use async_trait::async_trait;

/// Reports, one item a worker.
#[async_trait]
pub trait ReportStore: Send + Sync {
    /// Stores a worker's report in place of its last one.
    async fn put(&self, report: &WorkerReport) -> PortResult<()>;

    /// Removes a worker's report, if there is one.
    async fn remove(&self, worker: &str) -> PortResult<()>;

    /// Reads all reports consistently, old ones too. What cannot be read is left out: a newer worker may have written it.
    async fn list(&self) -> PortResult<Vec<WorkerReport>>;
}

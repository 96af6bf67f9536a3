//! Step 5: leases on slices of the timetable, and the registrations of scheduler copies.

use super::PortResult;
use crate::due::Minute;
use crate::lease::{Lease, LeaseId};
use async_trait::async_trait;

/// Leases. All writes are conditional on owner and counter.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// All leases, read consistently. Their number is that of shards and copies.
    async fn list(&self) -> PortResult<Vec<Lease>>;

    /// Makes a free lease with a cursor, unless there is one.
    async fn init(&self, id: &LeaseId, cursor: Minute) -> PortResult<()>;

    /// Makes a lease `owner`'s if it is still as `observed` (none = there is none). The cursor stays.
    async fn take(&self, id: &LeaseId, observed: Option<&Lease>, owner: &str) -> PortResult<Claim>;

    /// Raises the counter of a lease that is `owner`'s at `counter`, and stores the cursor, if one is given.
    async fn renew(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<Claim>;

    /// Frees a lease that is `owner`'s at `counter`; does nothing if it is not. Stores the cursor, if one is given.
    async fn release(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<()>;

    /// Notes on a lease that `by` would take it over from `owner`, if it is still `owner`'s; does nothing if it is not.
    /// The note goes with the next take or release.
    async fn ask(&self, id: &LeaseId, owner: &str, by: &str) -> PortResult<()>;

    /// Removes a lease that is still as `observed`; does nothing if it is not.
    async fn remove(&self, observed: &Lease) -> PortResult<()>;
}

/// What came of a take or a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This call raised the counter to this value: trust counts from the call's start.
    Held {
        /// The counter now.
        counter: u64,
    },
    /// The lease is the caller's already, by an earlier call whose answer was lost. When that was is unknown, so no
    /// trust follows from it: renew with this counter.
    Mine {
        /// The counter now.
        counter: u64,
    },
    /// It is somebody else's, or free, or gone.
    Lost,
}

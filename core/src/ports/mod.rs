//! What the services need of the world: one small trait a step. Adapters are in `aws` and `memory`; the suites in
//! `conformance` say what each must do.
//!
//! A lost race is a value. An error means that the call itself failed, and how (see [`PortError`]).

mod gateway;
mod history;
mod leases;
mod queue;
mod reports;
mod shares;
mod store;

pub use gateway::{Call, Gateway};
pub use history::{Attended, RowPage, RowRead, RowSpan, RunHistory, UnreadableRow, Waiting, place_in_attention};
pub use leases::{Claim, LeaseStore};
pub use queue::{
    BATCH, Delivery, LONGEST_BODY_BYTES, LONGEST_DELAY, LONGEST_WAIT, QueueDepth, RunQueue, SendResult, check_batch,
    check_body, check_delay, check_visibility,
};
pub use reports::ReportStore;
pub use shares::{Beat, ShareStore};
pub use store::{
    ADVANCES, Advance, AdvanceFrom, Control, Create, DueEntry, DueIndex, DuePage, DueSpan, JobPage, JobRead, JobStore,
    JobsUnder, Move, PageToken, Put, Replace, ReplaceIf, RunStore, VERSIONS,
};

use crate::error::PortError;
use std::sync::Arc;

/// The result of a call to a port.
pub type PortResult<T> = Result<T, PortError>;

/// All ports to the store and the queues, as one set.
#[derive(Clone)]
pub struct Ports {
    /// Jobs.
    pub jobs: Arc<dyn JobStore>,
    /// The due index.
    pub due: Arc<dyn DueIndex>,
    /// Run rows.
    pub runs: Arc<dyn RunStore>,
    /// Run rows as people look at them.
    pub history: Arc<dyn RunHistory>,
    /// Leases.
    pub leases: Arc<dyn LeaseStore>,
    /// Rate shares.
    pub shares: Arc<dyn ShareStore>,
    /// What workers say of themselves.
    pub reports: Arc<dyn ReportStore>,
    /// Settings that live in the store.
    pub control: Arc<dyn Control>,
    /// The priority queues and the dead letters.
    pub queue: Arc<dyn RunQueue>,
}

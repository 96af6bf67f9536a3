//! Step 7: who holds how many shares of a target's limit.

use super::PortResult;
use crate::rate::Shares;
use crate::target::Target;
use async_trait::async_trait;

/// Rate shares, one item a target. Every write raises its revision.
#[async_trait]
pub trait ShareStore: Send + Sync {
    /// Reads a target's shares consistently; those of a target that has none are empty, of revision 0.
    async fn get(&self, target: &Target) -> PortResult<Shares>;

    /// Sets the beat of a holder to `beat`, if it is a holder and its last beat has a lower number.
    async fn beat(&self, target: &Target, worker: &str, beat: u64) -> PortResult<Beat>;

    /// Stores `to` if the shares still have revision `from`; returns those in force. A change whose answer was lost is
    /// found among them.
    async fn change(&self, target: &Target, from: u64, to: &Shares) -> PortResult<Shares>;
}

/// What came of a beat, and the shares then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// This call, or an earlier try of it whose answer was lost, has set the beat: trust counts from the call's start.
    Held(Shares),
    /// The worker is no holder any more, or a later beat of it was first.
    Lost(Shares),
}

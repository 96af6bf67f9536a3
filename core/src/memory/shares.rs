//! Rate shares in memory.

use super::World;
use crate::ports::{Beat, PortResult, ShareStore};
use crate::rate::Shares;
use crate::target::Target;
use async_trait::async_trait;

#[async_trait]
impl ShareStore for World {
    async fn get(&self, target: &Target) -> PortResult<Shares> {
        Ok(self.shares(target))
    }

    async fn beat(&self, target: &Target, worker: &str, beat: u64) -> PortResult<Beat> {
        let mut state = self.state();
        let Some(shares) = state.shares.get_mut(target) else { return Ok(Beat::Lost(Shares::default())) };
        match shares.holders.get_mut(worker) {
            Some(holder) if holder.beat < beat => {
                holder.beat = beat;
                shares.revision += 1;
                Ok(Beat::Held(shares.clone()))
            }
            Some(holder) if holder.beat == beat => Ok(Beat::Held(shares.clone())),
            _ => Ok(Beat::Lost(shares.clone())),
        }
    }

    async fn change(&self, target: &Target, from: u64, to: &Shares) -> PortResult<Shares> {
        let mut state = self.state();
        let shares = state.shares.entry(target.clone()).or_default();
        if shares.revision == from {
            *shares = to.clone();
        }
        Ok(shares.clone())
    }
}

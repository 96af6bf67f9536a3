//! Settings in memory.

use super::World;
use crate::due::Shards;
use crate::ports::{Control, PortResult};
use async_trait::async_trait;

#[async_trait]
impl Control for World {
    async fn shards(&self) -> PortResult<Option<Shards>> {
        Ok(self.state().shards)
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        Ok(*self.state().shards.get_or_insert(shards))
    }
}

//! Settings in memory.

use super::World;
use crate::due::Shards;
use crate::ports::{Control, PortResult};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

#[async_trait]
impl Control for World {
    async fn shards(&self) -> PortResult<Option<Shards>> {
        Ok(self.state().shards)
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        Ok(*self.state().shards.get_or_insert(shards))
    }

    async fn once(&self, id: &str, value: &str, _: DateTime<Utc>) -> PortResult<String> {
        Ok(self.state().kept_once.entry(id.to_owned()).or_insert_with(|| value.to_owned()).clone())
    }
}

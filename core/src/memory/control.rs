//! Settings in memory.

use super::World;
use crate::access::ApiKeys;
use crate::due::{Layout, Shards};
use crate::error::PortError;
use crate::ports::{Control, PortResult};
use crate::steering::Steering;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

#[async_trait]
impl Control for World {
    async fn layout(&self) -> PortResult<Option<Layout>> {
        Ok(self.state().layout)
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        Ok(self.state().layout.get_or_insert(Layout::of(shards)).write)
    }

    async fn change_layout(&self, from: Layout, to: Layout) -> PortResult<Layout> {
        let mut state = self.state();
        match state.layout {
            Some(layout) if layout == from => Ok(*state.layout.insert(to)),
            Some(layout) => Ok(layout),
            None => Err(PortError::Permanent("the store was never set up".into())),
        }
    }

    async fn once(&self, id: &str, value: &str, _: DateTime<Utc>) -> PortResult<String> {
        Ok(self.state().kept_once.entry(id.to_owned()).or_insert_with(|| value.to_owned()).clone())
    }

    async fn steering(&self) -> PortResult<Steering> {
        Ok(self.state().steering.clone())
    }

    async fn change_steering(&self, from: u64, to: &Steering) -> PortResult<Steering> {
        let mut state = self.state();
        if state.steering.revision == from {
            state.steering = to.clone();
        }
        Ok(state.steering.clone())
    }

    async fn api_keys(&self) -> PortResult<ApiKeys> {
        Ok(self.state().api_keys.clone())
    }

    async fn change_api_keys(&self, from: u64, to: &ApiKeys) -> PortResult<ApiKeys> {
        let mut state = self.state();
        if state.api_keys.revision == from {
            state.api_keys = to.clone();
        }
        Ok(state.api_keys.clone())
    }

    async fn kept(&self, id: &str) -> PortResult<Option<String>> {
        Ok(self.state().kept_once.get(id).cloned())
    }
}

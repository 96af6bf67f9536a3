//! Run rows in memory.

use super::inspect::Effect;
use super::{World, to_ms};
use crate::error::PortError;
use crate::job::JobKey;
use crate::ports::{PortResult, Put, RunStore};
use crate::run::{RunId, RunKey, RunRow};
use async_trait::async_trait;
use std::collections::BTreeMap;

/// Rows by job, then by run key as text, as the table sorts them.
#[derive(Default)]
pub(super) struct Rows(pub(super) BTreeMap<JobKey, BTreeMap<RunKey, RunRow>>);

impl Rows {
    pub(super) fn get(&self, id: &RunId) -> Option<&RunRow> {
        self.0.get(&id.job_key)?.get(&id.run_key)
    }
}

#[async_trait]
impl RunStore for World {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        Ok(self.row(id))
    }

    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        if row.revision == 0 {
            return Err(PortError::Permanent(format!("row {} has revision 0: the first one is 1", row.id)));
        }
        let at = self.now();
        let mut state = self.state();
        let current = state.rows.get(&row.id);
        match current {
            Some(current) if current.write_token == row.write_token => return Ok(Put::Written),
            _ if current.map_or(0, |c| c.revision) + 1 == row.revision => {}
            _ => return Ok(Put::Conflict(current.cloned().map(Box::new))),
        }
        let row = as_kept(row.clone());
        state.record(at, Effect::Row(Box::new(row.clone())));
        let RunId { job_key, run_key } = row.id.clone();
        state.rows.0.entry(job_key).or_default().insert(run_key, row);
        Ok(Put::Written)
    }

    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        let state = self.state();
        let rows = state.rows.0.get(key);
        Ok(rows.into_iter().flat_map(|rows| rows.values().rev()).take(limit).cloned().collect())
    }
}

fn as_kept(mut row: RunRow) -> RunRow {
    for at in [&mut row.due_at, &mut row.first_enqueued_at] {
        *at = to_ms(*at);
    }
    for at in [&mut row.lease_until, &mut row.not_before, &mut row.started_at, &mut row.completed_at] {
        *at = at.map(to_ms);
    }
    for attempt in &mut row.attempts {
        attempt.started_at = to_ms(attempt.started_at);
        attempt.ended_at = attempt.ended_at.map(to_ms);
    }
    row
}

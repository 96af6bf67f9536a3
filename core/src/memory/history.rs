//! Run rows as people look at them, in memory.

use super::{State, World, to_ms};
use crate::error::PortError;
use crate::job::JobKey;
use crate::ports::{
    Attended, PageToken, PortResult, RowPage, RowRead, RowSpan, RunHistory, UnreadableRow, Waiting, place_in_attention,
};
use crate::run::{RunId, RunKey, RunRow};
use async_trait::async_trait;

#[async_trait]
impl RunHistory for World {
    async fn rows(&self, key: &JobKey, span: RowSpan, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let after = after.map(|token| RunKey::try_from(token.0)).transpose().map_err(PortError::Permanent)?;
        let state = self.state();
        let rows = state.rows.0.get(key).into_iter().flat_map(|rows| rows.values());
        let mut rows: Vec<RunRow> = rows.filter(|row| span.covers(&row.id.run_key)).cloned().collect();
        if span.newest_first {
            rows.reverse();
        }
        if let Some(after) = after {
            let is_before = |row: &RunRow| match span.newest_first {
                true => row.id.run_key >= after,
                false => row.id.run_key <= after,
            };
            rows.retain(|row| !is_before(row));
        }
        rows.truncate(limit);
        let last = rows.last().filter(|_| rows.len() == limit);
        let next = last.map(|row| PageToken(row.id.run_key.to_string()));
        Ok(RowPage { rows: rows.into_iter().map(|row| state.read(row)).collect(), next })
    }

    async fn row(&self, id: &RunId) -> PortResult<Option<RowRead>> {
        let state = self.state();
        Ok(state.rows.get(id).map(|row| state.read(row.clone())))
    }

    async fn attention(&self, tenant: &str, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let state = self.state();
        let of_tenant =
            state.rows.0.iter().filter(|(key, _)| key.tenant() == tenant).flat_map(|(_, rows)| rows.values());
        let waits = |row: &&RunRow| row.status.has_letter() && !state.attended.contains_key(&row.id);
        let mut rows: Vec<RunRow> = of_tenant.filter(waits).cloned().collect();
        let place = |row: &RunRow| place_in_attention(&RowRead::Row(Box::new(row.clone()))).0;
        rows.sort_by_key(place);
        if let Some(PageToken(after)) = after {
            rows.retain(|row| place(row) > after);
        }
        rows.truncate(limit);
        let rows: Vec<RowRead> = rows.into_iter().map(|row| state.read(row)).collect();
        let last = rows.last().filter(|_| rows.len() == limit);
        Ok(RowPage { next: last.map(place_in_attention), rows })
    }

    async fn waiting(&self, most: usize) -> PortResult<Waiting> {
        let state = self.state();
        let waits = |row: &&RunRow| row.status.has_letter() && !state.attended.contains_key(&row.id);
        let rows: Vec<&RunRow> =
            state.rows.0.values().flat_map(|rows| rows.values()).filter(waits).take(most).collect();
        Ok(Waiting { rows: rows.len(), oldest: rows.iter().filter_map(|row| row.completed_at).min() })
    }

    async fn attend(&self, id: &RunId, note: &Attended) -> PortResult<bool> {
        let note = Attended { at: to_ms(note.at), ..note.clone() };
        let mut state = self.state();
        if !state.rows.get(id).is_some_and(|row| row.status.has_letter()) {
            return Ok(false);
        }
        Ok(*state.attended.entry(id.clone()).or_insert_with(|| note.clone()) == note)
    }

    async fn attended(&self, id: &RunId) -> PortResult<Option<Attended>> {
        Ok(self.state().attended.get(id).cloned())
    }
}

impl State {
    /// A row as whoever looks at rows finds it.
    fn read(&self, row: RunRow) -> RowRead {
        if !self.unreadable_rows.contains(&row.id) {
            return RowRead::Row(Box::new(row));
        }
        let completed_at_ms = row.completed_at.map_or(0, |at| at.timestamp_millis());
        RowRead::Unreadable(UnreadableRow {
            id: row.id.to_string(),
            completed_at_ms,
            problem: "a field is missing".into(),
        })
    }
}

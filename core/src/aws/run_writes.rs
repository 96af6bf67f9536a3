//! Steps 6 and 9: rows that are written at the same time go together, for a call costs a worker more than all else.
//!
//! A row that comes while no write is under way goes at once and alone. Those that come meanwhile wait until it ends, until
//! they fill a batch, or for [`LINGER`], and go as one batch of statements, each with its own condition and outcome. A
//! statement that is refused may not say what it met: its row is then put alone, which is refused too and says so.

use super::error::{is_refused, met_by_put, port_error, statement_error};
use super::job_item::Item;
use super::jobs::{number, text};
use super::run_item::{ATTRIBUTES, from_item, to_item};
use crate::error::PortError;
use crate::ports::{PortResult, Put};
use crate::run::RunRow;
use aws_sdk_dynamodb::types::{BatchStatementRequest, ReturnValuesOnConditionCheckFailure};
use futures::future::join_all;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The longest wait for the end of another call: one that stalls holds up nobody else.
const LINGER: Duration = Duration::from_millis(10);
/// The most calls under way at once.
const MOST_CALLS: usize = 8;
/// The most statements of one batch.
const STATEMENTS: usize = 25;

/// The writes of one process. Clones are one.
#[derive(Clone)]
pub(super) struct Writes(Arc<Inner>);

struct Inner {
    client: aws_sdk_dynamodb::Client,
    table: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

impl State {
    /// Whether a call is to begin beside so many others: if there are none, if what waits fills a batch, or has waited for long.
    fn is_time(&self, others: usize) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let is_urgent = || first.since.elapsed() >= LINGER || self.waiting.len() >= STATEMENTS;
        others == 0 || others < MOST_CALLS && is_urgent()
    }
}

struct Waiting {
    row: RunRow,
    since: Instant,
    answer: oneshot::Sender<PortResult<Put>>,
}

impl Writes {
    pub(super) fn new(client: aws_sdk_dynamodb::Client, table: String) -> Self {
        Writes(Arc::new(Inner { client, table, state: Mutex::default() }))
    }

    /// Writes a row under its condition, with others if there are any. What nobody waits for any more is not written, unless it
    /// is under way.
    pub(super) async fn put(&self, row: &RunRow) -> PortResult<Put> {
        let (answer, mut answered) = oneshot::channel();
        self.lock().waiting.push_back(Waiting { row: row.clone(), since: now(), answer });
        loop {
            self.start();
            if let Ok(answer) = timeout(LINGER, &mut answered).await {
                let broke_off = || PortError::Unknown(format!("a write to {} broke off", self.0.table));
                return answer.unwrap_or_else(|_| Err(broke_off()));
            }
        }
    }

    /// Begins a call with what waits, if it is time.
    fn start(&self) {
        let mut state = self.lock();
        if state.is_time(state.calls) {
            state.calls += 1;
            drop(state);
            let mut call = Call { writes: self.clone(), is_over: false };
            tokio::spawn(async move { call.work_off().await });
        }
    }

    async fn put_together(&self, batch: Vec<Waiting>) {
        let Inner { client, table, .. } = &*self.0;
        let statements = batch.iter().map(|one| statement(table, &one.row)).collect();
        let answer = client.batch_execute_statement().set_statements(Some(statements)).send().await;
        let mut responses = match answer {
            Ok(answer) => answer.responses.unwrap_or_default().into_iter(),
            Err(error) => {
                let error = port_error(table, error);
                batch.into_iter().for_each(|one| drop(one.answer.send(Err(error.clone()))));
                return;
            }
        };
        let answers = batch.into_iter().map(|Waiting { row, answer, .. }| {
            let response = responses.next();
            async move {
                let result = match response.map(|response| response.error) {
                    None => Err(PortError::Unknown(format!("{table} did not say what came of a write"))),
                    Some(None) => Ok(Put::Written),
                    Some(Some(error)) if is_refused(&error) => match error.item {
                        Some(old) if !old.is_empty() => refused(&row, old),
                        _ => self.put_alone(&row).await,
                    },
                    Some(Some(error)) => Err(statement_error(table, error)),
                };
                let _ = answer.send(result);
            }
        });
        join_all(answers).await;
    }

    async fn put_alone(&self, row: &RunRow) -> PortResult<Put> {
        let Inner { client, table, .. } = &*self.0;
        let put = client
            .put_item()
            .table_name(table)
            .set_item(Some(to_item(row)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match row.revision {
            1 => put.condition_expression("attribute_not_exists(job_key)"),
            revision => put
                .condition_expression("revision = :previous")
                .expression_attribute_values(":previous", number(revision - 1)),
        };
        let Err(error) = put.send().await else { return Ok(Put::Written) };
        match met_by_put(&error) {
            Some(old) => refused(row, old),
            None => Err(port_error(table, error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "by the timer's own clock; no decision about a run is made by it")]
fn now() -> Instant {
    Instant::now()
}

/// A call under way, and those that follow it at once.
struct Call {
    writes: Writes,
    is_over: bool,
}

impl Call {
    async fn work_off(&mut self) {
        let mut batch = self.next(true);
        while let Some(rows) = batch {
            match <[Waiting; 1]>::try_from(rows) {
                // Who does not wait any more has no use for the answer.
                Ok([Waiting { row, answer, .. }]) => drop(answer.send(self.writes.put_alone(&row).await)),
                Err(rows) => self.writes.put_together(rows).await,
            }
            batch = self.next(false);
        }
    }

    /// The next that may go together: a batch takes each row once. None when this call is over.
    fn next(&mut self, is_time: bool) -> Option<Vec<Waiting>> {
        let mut state = self.writes.lock();
        let (mut batch, mut later, mut ids) = (Vec::new(), VecDeque::new(), BTreeSet::new());
        if is_time || state.is_time(state.calls - 1) {
            while batch.len() < STATEMENTS {
                match state.waiting.pop_front() {
                    Some(one) if one.answer.is_closed() => drop(one),
                    Some(one) if ids.insert(one.row.id.clone()) => batch.push(one),
                    Some(one) => later.push_back(one),
                    None => break,
                }
            }
            later.append(&mut state.waiting);
            state.waiting = later;
        }
        if batch.is_empty() {
            state.calls -= 1;
            self.is_over = true;
            return None;
        }
        Some(batch)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // It broke off. Those who wait begin another.
        if !self.is_over {
            self.writes.lock().calls -= 1;
        }
    }
}

/// What it means that a write was refused by this item; empty = there is none.
fn refused(row: &RunRow, old: Item) -> PortResult<Put> {
    let current = if old.is_empty() { None } else { Some(from_item(old)?) };
    let is_mine = current.as_ref().is_some_and(|current| current.write_token == row.write_token);
    Ok(if is_mine { Put::Written } else { Put::Conflict(current.map(Box::new)) })
}

/// One conditional write as PartiQL: the whole row, as a put writes it.
fn statement(table: &str, row: &RunRow) -> BatchStatementRequest {
    let mut item = to_item(row);
    let (statement, values) = if row.revision == 1 {
        let (names, values): (Vec<_>, Vec<_>) =
            item.into_iter().map(|(name, value)| (format!("'{name}': ?"), value)).unzip();
        (format!("INSERT INTO \"{table}\" VALUE {{{}}}", names.join(", ")), values)
    } else {
        let mut values = Vec::with_capacity(ATTRIBUTES.len() + 3);
        let changes = ATTRIBUTES.map(|name| match item.remove(name) {
            Some(value) => {
                values.push(value);
                format!("SET \"{name}\" = ?")
            }
            None => format!("REMOVE \"{name}\""),
        });
        debug_assert_eq!(item.len(), 2, "only the key is left");
        values.extend([text(row.id.job_key.as_str()), text(row.id.run_key.as_str()), number(row.revision - 1)]);
        let place = "job_key = ? AND run_key = ? AND revision = ?";
        (format!("UPDATE \"{table}\" {} WHERE {place}", changes.join(" ")), values)
    };
    let statement = BatchStatementRequest::builder()
        .statement(statement)
        .set_parameters(Some(values))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    statement.build().expect("a statement is given")
}

//! Step 9, read: rows by time, and those that wait for a person.

use super::Aws;
use super::error::{met_by_update, port_error};
use super::job_item::Item;
use super::jobs::{number, pause_before, text};
use super::run_item::from_item;
use super::schema::ATTENTION_INDEX;
use super::shares::number_in;
use crate::error::PortError;
use crate::job::JobKey;
use crate::ports::{Attended, PageToken, PortResult, RowPage, RowRead, RowSpan, RunHistory, UnreadableRow, Waiting};
use crate::run::{RunId, RunKey, RunStatus};
use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, ReturnValuesOnConditionCheckFailure};
use chrono::DateTime;
use std::collections::HashMap;

/// The most keys that one BatchGetItem takes.
const KEYS_PER_READ: usize = 100;
/// Rounds in which keys are read that DynamoDB left unprocessed.
const ROUNDS: u32 = 8;

pub(super) struct DynamoHistory {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoHistory {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.runs() }
    }

    async fn read(&self, ids: &[RunId]) -> PortResult<HashMap<String, RowRead>> {
        let mut found: HashMap<String, RowRead> = HashMap::new();
        for ids in ids.chunks(KEYS_PER_READ) {
            let mut left: Vec<Item> = ids.iter().map(key_item).collect();
            for round in 0..ROUNDS {
                if left.is_empty() {
                    break;
                }
                pause_before(round).await;
                let wanted = KeysAndAttributes::builder().set_keys(Some(left)).consistent_read(true).build();
                let wanted = wanted.expect("a list of keys is given");
                let answer = self.client.batch_get_item().request_items(&self.table, wanted).send().await;
                let answer = answer.map_err(|e| port_error(&self.table, e))?;
                let items = answer.responses.into_iter().flat_map(|mut tables| tables.remove(&self.table)).flatten();
                found.extend(items.map(|item| (name_of(&item), row_read(item))));
                let unprocessed = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
                left = unprocessed.map(|unprocessed| unprocessed.keys).unwrap_or_default();
            }
            if !left.is_empty() {
                return Err(PortError::Throttled(format!("{} left {} keys unread", self.table, left.len())));
            }
        }
        Ok(found)
    }
}

/// The row of an item, or why it cannot be read.
fn row_read(item: Item) -> RowRead {
    let (id, completed_at_ms) = (name_of(&item), number_in(&item, "completed_at_ms").unwrap_or(0));
    match from_item(item) {
        Ok(row) => RowRead::Row(Box::new(row)),
        Err(error) => RowRead::Unreadable(UnreadableRow { id, completed_at_ms, problem: error.to_string() }),
    }
}

#[async_trait]
impl RunHistory for DynamoHistory {
    async fn rows(&self, key: &JobKey, span: RowSpan, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let (first, last) = span.keys();
        if first > last {
            return Ok(RowPage::default());
        }
        let mut query = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("job_key = :job AND run_key BETWEEN :first AND :last")
            .expression_attribute_values(":job", text(key.as_str()))
            .expression_attribute_values(":first", text(&first))
            .expression_attribute_values(":last", text(&last))
            .consistent_read(true)
            .scan_index_forward(!span.newest_first)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        if let Some(PageToken(after)) = &after {
            query =
                query.exclusive_start_key("job_key", text(key.as_str())).exclusive_start_key("run_key", text(after));
        }
        let answer = query.send().await.map_err(|e| port_error(&self.table, e))?;
        let next = answer.last_evaluated_key.as_ref().and_then(|last| text_in(last, "run_key"));
        let rows = answer.items.unwrap_or_default().into_iter().map(row_read).collect();
        Ok(RowPage { rows, next: next.map(PageToken) })
    }

    async fn row(&self, id: &RunId) -> PortResult<Option<RowRead>> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key_item(id))).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        Ok(answer.item.map(row_read))
    }

    async fn attention(&self, tenant: &str, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let mut query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(ATTENTION_INDEX)
            .key_condition_expression("attention_tenant = :tenant")
            .expression_attribute_values(":tenant", text(tenant))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        if let Some(token) = &after {
            let (at_ms, job_key, run_key) = place_of(token)?;
            query = query
                .exclusive_start_key("attention_tenant", text(tenant))
                .exclusive_start_key("completed_at_ms", number(at_ms))
                .exclusive_start_key("job_key", text(job_key))
                .exclusive_start_key("run_key", text(run_key));
        }
        let answer = query.send().await.map_err(|e| port_error(&self.table, e))?;
        let next = answer.last_evaluated_key.as_ref().and_then(token_of);
        let items = answer.items.unwrap_or_default();
        let ids: Vec<RunId> = items.iter().filter_map(id_of).collect();
        let mut found = self.read(&ids).await?;
        let rows = items.into_iter().filter_map(|item| match id_of(&item) {
            // The index lags: who saw to a row a moment ago has taken it from there.
            Some(_) => found.remove(&name_of(&item)),
            // What is no key cannot be read by it: what the index has of the row shows that.
            None => Some(row_read(item)),
        });
        let rows = rows.filter(|read| read.row().is_none_or(|row| row.status.has_letter())).collect();
        Ok(RowPage { rows, next })
    }

    async fn waiting(&self, most: usize) -> PortResult<Waiting> {
        let (mut waiting, mut after) = (Waiting::default(), None);
        loop {
            // The index holds nothing but what waits.
            let scan = self.client.scan().table_name(&self.table).index_name(ATTENTION_INDEX);
            let left = i32::try_from(most - waiting.rows).unwrap_or(i32::MAX);
            let scan = scan.limit(left).set_exclusive_start_key(after);
            let answer = scan.send().await.map_err(|e| port_error(&self.table, e))?;
            for item in answer.items.unwrap_or_default() {
                waiting.rows += 1;
                let ended = number_in(&item, "completed_at_ms").and_then(DateTime::from_timestamp_millis);
                waiting.oldest = waiting.oldest.into_iter().chain(ended).min();
            }
            after = answer.last_evaluated_key;
            if after.is_none() || waiting.rows >= most {
                return Ok(waiting);
            }
        }
    }

    async fn attend(&self, id: &RunId, note: &Attended) -> PortResult<bool> {
        let mut update = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key_item(id)))
            .condition_expression("#status IN (:dead, :indeterminate) AND attribute_exists(attention_tenant)")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":dead", text(RunStatus::Dead.as_str()))
            .expression_attribute_values(":indeterminate", text(RunStatus::Indeterminate.as_str()))
            .expression_attribute_values(":by", text(&note.by))
            .expression_attribute_values(":at", number(note.at.timestamp_millis()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let mut change = "SET attended_by = :by, attended_at_ms = :at".to_owned();
        if let Some(replay) = &note.replay {
            change.push_str(", attended_replay = :replay");
            update = update.expression_attribute_values(":replay", text(replay.as_str()));
        }
        if let Some(why) = &note.why {
            change.push_str(", attended_why = :why");
            update = update.expression_attribute_values(":why", text(why));
        }
        change.push_str(" REMOVE attention_tenant");
        let Err(error) = update.update_expression(change).send().await else { return Ok(true) };
        let met = met_by_update(&error).ok_or_else(|| port_error(&self.table, error))?;
        // A repeat of a note whose answer was lost.
        let kept = Attended {
            at: DateTime::from_timestamp_millis(note.at.timestamp_millis()).unwrap_or(note.at),
            ..note.clone()
        };
        Ok(note_in(&met) == Some(kept))
    }

    async fn attended(&self, id: &RunId) -> PortResult<Option<Attended>> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key_item(id))).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        Ok(answer.item.as_ref().and_then(note_in))
    }
}

fn key_item(id: &RunId) -> Item {
    HashMap::from([
        ("job_key".to_owned(), text(id.job_key.as_str())),
        ("run_key".to_owned(), text(id.run_key.as_str())),
    ])
}

fn text_in(item: &Item, name: &str) -> Option<String> {
    item.get(name)?.as_s().ok().cloned()
}

fn id_of(item: &Item) -> Option<RunId> {
    let (job_key, run_key) = (text_in(item, "job_key")?, text_in(item, "run_key")?);
    Some(RunId { job_key: job_key.try_into().ok()?, run_key: RunKey::try_from(run_key).ok()? })
}

/// What the key of an item says.
fn name_of(item: &Item) -> String {
    format!("{}:{}", text_in(item, "job_key").unwrap_or_default(), text_in(item, "run_key").unwrap_or_default())
}

fn note_in(item: &Item) -> Option<Attended> {
    Some(Attended {
        by: text_in(item, "attended_by")?,
        at: DateTime::from_timestamp_millis(number_in(item, "attended_at_ms")?)?,
        replay: text_in(item, "attended_replay").and_then(|key| RunKey::try_from(key).ok()),
        why: text_in(item, "attended_why"),
    })
}

fn token_of(last: &HashMap<String, AttributeValue>) -> Option<PageToken> {
    let at_ms: i64 = number_in(last, "completed_at_ms")?;
    Some(PageToken(format!("{at_ms}|{}", name_of(last))))
}

/// What a token says: keys as they are in the table, which may be none of runs.
fn place_of(PageToken(token): &PageToken) -> PortResult<(i64, &str, &str)> {
    let place = token.split_once('|').and_then(|(at_ms, id)| {
        let (job_key, run_key) =
            id.rsplit_once(':').filter(|(job_key, run_key)| !job_key.is_empty() && !run_key.is_empty())?;
        Some((at_ms.parse().ok()?, job_key, run_key))
    });
    place.ok_or_else(|| PortError::Permanent("not a page token of this listing".into()))
}

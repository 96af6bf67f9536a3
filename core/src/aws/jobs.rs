//! Step 1: the jobs table.

use super::Aws;
use super::due_item::{DUE_ATTRIBUTES, from_due_item};
use super::error::{is_refused, met_by_put, met_by_update, port_error, statement_error};
use super::job_item::{Item, TENANT_PARTITIONS, from_item, quarantine_bucket, tenant_partition, to_item, wall_text};
use super::schema::TENANT_INDEX;
use super::versions::Versions;
use crate::due::DueBucket;
use crate::error::PortError;
use crate::job::{Job, JobKey, JobState, Passed};
use crate::ports::{
    ADVANCES, Advance, Create, JobPage, JobRead, JobStore, JobsUnder, Move, PageToken, PortResult, Replace, ReplaceIf,
};
use async_trait::async_trait;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::builders::KeysAndAttributesBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, BatchStatementResponse, KeysAndAttributes,
    ReturnValuesOnConditionCheckFailure,
};
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most keys that one BatchGetItem takes.
const KEYS_PER_READ: usize = 100;
const READS_IN_FLIGHT: usize = 4;
/// Rounds in which keys are read that DynamoDB left unprocessed, which is a sign of throttling.
const UNPROCESSED_ROUNDS: u32 = 8;
/// Pause before the second of these rounds; each further pause is twice the one before, 6.4 s in all.
const UNPROCESSED_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct DynamoJobs {
    client: aws_sdk_dynamodb::Client,
    table: String,
    versions: Versions,
}

impl DynamoJobs {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.jobs(), versions: Versions::new(aws) }
    }

    fn update(&self, key: &JobKey) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .key("job_key", text(key.as_str()))
            .expression_attribute_names("#state", "state")
    }

    /// Reads items in batches, of which `reads` says what.
    async fn read(&self, keys: &[JobKey], reads: fn() -> KeysAndAttributesBuilder) -> PortResult<Vec<Item>> {
        // BatchGetItem refuses a key that is named twice.
        let keys: Vec<JobKey> = keys.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let batches: Vec<_> = keys.chunks(KEYS_PER_READ).map(|chunk| self.read_some(chunk, reads)).collect();
        let items: Vec<Vec<Item>> = stream::iter(batches).buffered(READS_IN_FLIGHT).try_collect().await?;
        Ok(items.into_iter().flatten().collect())
    }

    async fn read_some(&self, keys: &[JobKey], reads: fn() -> KeysAndAttributesBuilder) -> PortResult<Vec<Item>> {
        let mut items = Vec::with_capacity(keys.len());
        let mut left: Vec<Item> =
            keys.iter().map(|k| HashMap::from([("job_key".to_owned(), text(k.as_str()))])).collect();
        for round in 0..UNPROCESSED_ROUNDS {
            if left.is_empty() {
                return Ok(items);
            }
            pause_before(round).await;
            let wanted = reads().set_keys(Some(left)).consistent_read(true).build();
            let wanted = wanted.expect("a list of keys is given");
            let answer = self.client.batch_get_item().request_items(&self.table, wanted).send().await;
            let answer = answer.map_err(|e| port_error(&self.table, e))?;
            items.extend(answer.responses.into_iter().flat_map(|mut tables| tables.remove(&self.table)).flatten());
            left = answer
                .unprocessed_keys
                .and_then(|mut tables| tables.remove(&self.table))
                .map(|unprocessed| unprocessed.keys)
                .unwrap_or_default();
        }
        if left.is_empty() {
            return Ok(items);
        }
        Err(PortError::Throttled(format!(
            "{} left {} keys unread in each of {UNPROCESSED_ROUNDS} rounds",
            self.table,
            left.len()
        )))
    }

    /// One conditional update as PartiQL: 25 of them go in one request, each with its own condition and outcome.
    fn advance_statement(&self, Move { key, from, to }: &Move) -> BatchStatementRequest {
        let (mut change, mut values) = (Vec::new(), Vec::new());
        let mut set = |name, value| {
            change.push(format!("SET {name} = ?"));
            values.push(value);
        };
        if let Some(Passed { firing, runs_left }) = &to.passed {
            set("passed_at", number(firing.at.timestamp()));
            // With the first one that it passes a job has these, or never; a change of its schedule begins anew.
            if let Some(wall) = firing.wall {
                set("passed_wall", text(&wall_text(wall)));
            }
            if let Some(left) = runs_left {
                set("passed_left", number(left));
            }
        }
        match &to.next {
            Some(next) => {
                set("next_scheduled_at", number(next.scheduled_at.timestamp()));
                set("next_due_at", number(next.due_at.timestamp()));
                set("due_bucket", text(&next.bucket.to_string()));
                // A job has these from its beginning, or never.
                if let Some(wall) = next.wall {
                    set("next_wall", text(&wall_text(wall)));
                }
                if let Some(tzdb) = &next.tzdb {
                    set("tzdb", text(tzdb.as_str()));
                }
                if let Some(left) = next.runs_left {
                    set("runs_left", number(left));
                }
            }
            None => {
                set("\"state\"", text(to.state.as_str()));
                set("expires_at", number(to.expires_at.map_or(i64::MAX, |at| at.timestamp())));
                let gone = ["next_scheduled_at", "next_wall", "tzdb", "runs_left", "next_due_at", "due_bucket"];
                change.extend(gone.map(|name| format!("REMOVE {name}")));
            }
        }
        let change = change.join(" ");
        let place = "job_key = ? AND next_scheduled_at = ? AND version = ? AND \"state\" = ?";
        values.extend([
            text(key.as_str()),
            number(from.next_scheduled_at.timestamp()),
            number(from.version),
            text(JobState::Active.as_str()),
        ]);
        BatchStatementRequest::builder()
            .statement(format!("UPDATE \"{}\" {change} WHERE {place}", self.table))
            .set_parameters(Some(values))
            .build()
            .expect("a statement is given")
    }

    fn advanced(&self, response: BatchStatementResponse) -> PortResult<Advance> {
        match response.error {
            None => Ok(Advance::Advanced),
            Some(error) if is_refused(&error) => Ok(Advance::Changed),
            Some(error) => Err(statement_error(&self.table, error)),
        }
    }

    /// A conditional update whose failed condition means that there is nothing to do.
    async fn if_still_there(&self, update: UpdateItemFluentBuilder) -> PortResult<()> {
        match update.send().await {
            Ok(_) => Ok(()),
            Err(error) if met_by_update(&error).is_some() => Ok(()),
            Err(error) => Err(port_error(&self.table, error)),
        }
    }
}

#[async_trait]
impl JobStore for DynamoJobs {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        refuse_if_unread(job)?;
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(to_item(job)))
            .condition_expression("attribute_not_exists(job_key)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else { return Ok(Create::Created) };
        match met_by_put(&error) {
            Some(old) => {
                let old = from_item(old);
                let is_mine = old.job().is_some_and(|old| old.edit_token == job.edit_token);
                Ok(if is_mine { Create::Created } else { Create::Exists(Box::new(old)) })
            }
            None => Err(port_error(&self.table, error)),
        }
    }

    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let items = self.read(keys, KeysAndAttributes::builder).await?;
        Ok(items.into_iter().filter_map(|item| Some((key_of(&item)?, from_item(item)))).collect())
    }

    async fn get_due(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let items = self.read(keys, due_attributes).await?;
        Ok(items.into_iter().filter_map(|item| Some((key_of(&item)?, from_due_item(item)))).collect())
    }

    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        refuse_if_unread(job)?;
        let stands = match if_still.next_scheduled_at {
            Some(_) => "next_scheduled_at = :next",
            None => "attribute_not_exists(next_scheduled_at)",
        };
        let mut put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(to_item(job)))
            .condition_expression(format!("version = :version AND #state = :state AND {stands}"))
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":version", number(if_still.version))
            .expression_attribute_values(":state", text(if_still.state.as_str()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        if let Some(next) = if_still.next_scheduled_at {
            put = put.expression_attribute_values(":next", number(next.timestamp()));
        }
        let Err(error) = put.send().await else { return Ok(Replace::Replaced) };
        match met_by_put(&error) {
            Some(old) => {
                let token = old.get("edit_token").and_then(|t| t.as_s().ok());
                Ok(if token == Some(&job.edit_token) { Replace::Replaced } else { Replace::Changed })
            }
            None => Err(port_error(&self.table, error)),
        }
    }

    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        if moves.len() > ADVANCES {
            return Err(PortError::Permanent(format!(
                "{} moves in one call: at most {ADVANCES} are allowed",
                moves.len()
            )));
        }
        let statements = moves.iter().map(|one| self.advance_statement(one)).collect();
        let call = self.client.batch_execute_statement().set_statements(Some(statements));
        let answer = call.send().await.map_err(|e| port_error(&self.table, e))?;
        let mut results: Vec<PortResult<Advance>> =
            answer.responses.unwrap_or_default().into_iter().map(|response| self.advanced(response)).collect();
        let unsaid = || Err(PortError::Unknown(format!("{} did not say what came of an advance", self.table)));
        results.resize_with(moves.len(), unsaid);
        Ok(results)
    }

    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        let update = self
            .update(key)
            .condition_expression("due_bucket = :bucket AND #state <> :active")
            .update_expression("REMOVE due_bucket")
            .expression_attribute_values(":bucket", text(&bucket.to_string()))
            .expression_attribute_values(":active", text(JobState::Active.as_str()));
        self.if_still_there(update).await
    }

    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        let update = self
            .update(key)
            .condition_expression("due_bucket = :bucket")
            .update_expression("SET #state = :quarantined, #error = :error, due_bucket = :quarantine")
            .expression_attribute_names("#error", "error")
            .expression_attribute_values(":bucket", text(&bucket.to_string()))
            .expression_attribute_values(":quarantined", text(JobState::Quarantined.as_str()))
            .expression_attribute_values(":error", text(error))
            .expression_attribute_values(":quarantine", text(&quarantine_bucket(bucket.shard)));
        self.if_still_there(update).await
    }

    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let mut scan = self.client.scan().table_name(&self.table).limit(limit);
        if let Some(PageToken(last)) = &after {
            scan = scan.exclusive_start_key("job_key", text(last));
        }
        let answer = scan.send().await.map_err(|e| port_error(&self.table, e))?;
        let next = answer.last_evaluated_key.as_ref().and_then(key_of).map(|key| PageToken(key.to_string()));
        let keyed = answer.items.into_iter().flatten().filter_map(|item| Some((key_of(&item)?, from_item(item))));
        Ok(JobPage { jobs: keyed.collect(), next })
    }

    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        let (partition, last) = place_in_listing(after.as_ref())?;
        let name = tenant_partition(&of.tenant, partition);
        let mut query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(TENANT_INDEX)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .key_condition_expression(match of.prefix.as_str() {
                "" => "tenant = :tenant",
                _ => "tenant = :tenant AND begins_with(job_key, :prefix)",
            })
            .expression_attribute_values(":tenant", text(&name));
        if !of.prefix.is_empty() {
            let prefix = format!("{}/{}", of.tenant, of.prefix);
            query = query.expression_attribute_values(":prefix", text(&prefix));
        }
        if !last.is_empty() {
            query = query.exclusive_start_key("tenant", text(&name)).exclusive_start_key("job_key", text(last));
        }
        let answer = query.send().await.map_err(|e| port_error(&self.table, e))?;
        let keys: Vec<JobKey> = answer.items.iter().flatten().filter_map(key_of).collect();
        let next = match answer.last_evaluated_key.as_ref().and_then(key_of) {
            Some(key) => Some(PageToken(format!("{partition}|{key}"))),
            None if partition + 1 < TENANT_PARTITIONS => Some(PageToken(format!("{}|", partition + 1))),
            None => None,
        };
        Ok(JobPage { jobs: self.get_many(&keys).await?, next })
    }

    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        refuse_if_unread(job)?;
        self.versions.keep(job, expires_at).await
    }

    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        self.versions.read(key, numbers).await
    }

    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        self.versions.forget(key, numbers).await
    }
}

/// The partition and the last key of a listing's token.
fn place_in_listing(after: Option<&PageToken>) -> PortResult<(u8, &str)> {
    let Some(PageToken(token)) = after else { return Ok((0, "")) };
    let place = token.split_once('|').and_then(|(partition, key)| Some((partition.parse().ok()?, key)));
    let place = place.filter(|(partition, _)| *partition < TENANT_PARTITIONS);
    place.ok_or_else(|| PortError::Permanent("not a page token of this listing".into()))
}

/// A job that was read in part would lose what was left out.
fn refuse_if_unread(job: &Job) -> PortResult<()> {
    if job.spec.payload.is_unread() {
        return Err(PortError::Permanent("a job without its payload cannot be written: read all of it".into()));
    }
    Ok(())
}

/// Reads that leave out what dispatch has no use for. Some names are reserved words.
fn due_attributes() -> KeysAndAttributesBuilder {
    let names = DUE_ATTRIBUTES.iter().map(|name| (format!("#{name}"), (*name).to_owned()));
    let projection = DUE_ATTRIBUTES.map(|name| format!("#{name}")).join(",");
    KeysAndAttributes::builder().projection_expression(projection).set_expression_attribute_names(Some(names.collect()))
}

/// Waits before what DynamoDB left undone is asked for again; the first time not at all.
pub(super) async fn pause_before(round: u32) {
    if round > 0 {
        tokio::time::sleep(UNPROCESSED_PAUSE * 2u32.pow(round - 1)).await;
    }
}

fn key_of(item: &Item) -> Option<JobKey> {
    item.get("job_key")?.as_s().ok()?.clone().try_into().ok()
}

pub(super) fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

//! Step 1: former versions of jobs, in the control table. Each is the job's item as it was, under the job's key and its version.

use super::Aws;
use super::error::{met_by_put, port_error};
use super::job_item::{Item, from_item, to_item};
use super::jobs::{number, pause_before, text};
use super::schema::TTL_ATTRIBUTE;
use crate::error::PortError;
use crate::job::{Job, JobKey};
use crate::ports::{JobRead, PortResult, VERSIONS};
use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, KeysAndAttributes, WriteRequest};
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// The most deletions that one call takes.
const DELETIONS: u64 = 25;
/// Rounds in which what DynamoDB left undone is asked for again.
const ROUNDS: u32 = 8;

pub(super) struct Versions {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

fn id_of(key: &JobKey, number: u64) -> String {
    format!("version/{key}/{number}")
}

/// How far a version had come: it only goes on.
fn place_of(job: &Job) -> i64 {
    job.next_scheduled_at.map_or(i64::MAX, |next| next.timestamp())
}

fn key_of(key: &JobKey, number: u64) -> Item {
    HashMap::from([("control_id".to_owned(), text(&id_of(key, number)))])
}

impl Versions {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.control() }
    }

    pub(super) async fn keep(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("control_id", text(&id_of(&job.spec.key, job.version)))
            .item("job", AttributeValue::M(to_item(job)))
            .item("place", number(place_of(job)))
            .item(TTL_ATTRIBUTE, number(expires_at.timestamp()))
            .condition_expression("attribute_not_exists(control_id) OR #place <= :place")
            .expression_attribute_names("#place", "place")
            .expression_attribute_values(":place", number(place_of(job)));
        match put.send().await {
            Ok(_) => Ok(()),
            Err(error) if met_by_put(&error).is_some() => Ok(()),
            Err(error) => Err(port_error(&self.table, error)),
        }
    }

    pub(super) async fn read(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        let asked = numbers.clone().count() as u64;
        if asked > VERSIONS {
            return Err(PortError::Permanent(format!("{asked} versions in one call: at most {VERSIONS} are allowed")));
        }
        let mut found = BTreeMap::new();
        let mut left: Vec<Item> = numbers.map(|number| key_of(key, number)).collect();
        for round in 0..ROUNDS {
            if left.is_empty() {
                return Ok(found);
            }
            pause_before(round).await;
            let wanted = KeysAndAttributes::builder().set_keys(Some(left)).consistent_read(true).build();
            let wanted = wanted.expect("a list of keys is given");
            let answer = self.client.batch_get_item().request_items(&self.table, wanted).send().await;
            let answer = answer.map_err(|e| port_error(&self.table, e))?;
            let items = answer.responses.into_iter().flat_map(|mut tables| tables.remove(&self.table)).flatten();
            found.extend(items.filter_map(version_of));
            let unprocessed = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.table));
            left = unprocessed.map(|unprocessed| unprocessed.keys).unwrap_or_default();
        }
        if left.is_empty() { Ok(found) } else { Err(self.left_undone(left.len())) }
    }

    pub(super) async fn forget(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        let mut from = *numbers.start();
        while from <= *numbers.end() {
            let until = numbers.end().saturating_add(1).min(from + DELETIONS);
            self.forget_some(key, from..until).await?;
            from = until;
        }
        Ok(())
    }

    async fn forget_some(&self, key: &JobKey, numbers: std::ops::Range<u64>) -> PortResult<()> {
        let deletion = |number| {
            let key = DeleteRequest::builder().set_key(Some(key_of(key, number))).build();
            WriteRequest::builder().delete_request(key.expect("a key is given")).build()
        };
        let mut left: Vec<WriteRequest> = numbers.map(deletion).collect();
        for round in 0..ROUNDS {
            if left.is_empty() {
                return Ok(());
            }
            pause_before(round).await;
            let answer = self.client.batch_write_item().request_items(&self.table, left).send().await;
            let answer = answer.map_err(|e| port_error(&self.table, e))?;
            left = answer.unprocessed_items.and_then(|mut tables| tables.remove(&self.table)).unwrap_or_default();
        }
        if left.is_empty() { Ok(()) } else { Err(self.left_undone(left.len())) }
    }

    fn left_undone(&self, items: usize) -> PortError {
        PortError::Throttled(format!("{} left {items} items undone in each of {ROUNDS} rounds", self.table))
    }
}

fn version_of(mut item: Item) -> Option<(u64, JobRead)> {
    let (_, number) = item.get("control_id")?.as_s().ok()?.rsplit_once('/')?;
    let number = number.parse().ok()?;
    match item.remove("job") {
        Some(AttributeValue::M(job)) => Some((number, from_item(job))),
        _ => Some((number, JobRead::Unreadable("the version has no job".into()))),
    }
}

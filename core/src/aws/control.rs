//! Settings that live in the store.

use super::Aws;
use super::error::{met_by_put, port_error};
use super::job_item::Item;
use super::jobs::{number, text};
use super::schema::TTL_ATTRIBUTE;
use crate::due::Shards;
use crate::error::PortError;
use crate::ports::{Control, PortResult};
use async_trait::async_trait;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use chrono::{DateTime, Utc};

const SHARDS: &str = "shards";

pub(super) struct DynamoControl {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoControl {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.control() }
    }

    fn shards_of(&self, item: &Item) -> PortResult<Shards> {
        let count = |name: &str| item.get(name).and_then(|n| n.as_n().ok()).and_then(|n| n.parse().ok());
        match (count("urgent"), count("standard")) {
            (Some(urgent), Some(standard)) => Ok(Shards { urgent, standard }),
            _ => Err(PortError::Permanent(format!("the item `{SHARDS}` in {} cannot be read", self.table))),
        }
    }
}

#[async_trait]
impl Control for DynamoControl {
    async fn shards(&self) -> PortResult<Option<Shards>> {
        let get = self.client.get_item().table_name(&self.table).key("control_id", text(SHARDS)).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.item.map(|item| self.shards_of(&item)).transpose()
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("control_id", text(SHARDS))
            .item("urgent", number(shards.urgent))
            .item("standard", number(shards.standard))
            .condition_expression("attribute_not_exists(control_id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else { return Ok(shards) };
        match met_by_put(&error) {
            Some(old) => self.shards_of(&old),
            None => Err(port_error(&self.table, error)),
        }
    }

    async fn once(&self, id: &str, value: &str, expires_at: DateTime<Utc>) -> PortResult<String> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("control_id", text(id))
            .item("value", text(value))
            .item(TTL_ATTRIBUTE, number(expires_at.timestamp()))
            .condition_expression("attribute_not_exists(control_id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = put.send().await else { return Ok(value.to_owned()) };
        let old = met_by_put(&error).ok_or_else(|| port_error(&self.table, error))?;
        let first = old.get("value").and_then(|value| value.as_s().ok());
        let unreadable = || PortError::Permanent(format!("the item `{id}` in {} cannot be read", self.table));
        first.cloned().ok_or_else(unreadable)
    }
}

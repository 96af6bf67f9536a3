//! Settings that live in the store.

use super::Aws;
use super::access_item::{self, API_KEYS};
use super::error::{met_by_put, port_error};
use super::job_item::Item;
use super::jobs::{number, text};
use super::schema::TTL_ATTRIBUTE;
use super::steering_item::{self, STEERING};
use crate::access::ApiKeys;
use crate::due::{Layout, Shards};
use crate::error::PortError;
use crate::ports::{Control, PortResult};
use crate::steering::Steering;
use async_trait::async_trait;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
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

    fn layout_of(&self, item: &Item) -> PortResult<Layout> {
        let count = |name: &str| item.get(name).and_then(|n| n.as_n().ok()).and_then(|n| n.parse().ok());
        let (Some(urgent), Some(standard)) = (count("urgent"), count("standard")) else {
            return Err(PortError::Permanent(format!("the item `{SHARDS}` in {} cannot be read", self.table)));
        };
        let read = Shards {
            urgent: count("read_urgent").unwrap_or(urgent),
            standard: count("read_standard").unwrap_or(standard),
        };
        Ok(Layout { read, write: Shards { urgent, standard } })
    }

    fn steering_of(&self, item: &Item) -> PortResult<Steering> {
        let unreadable = || PortError::Permanent(format!("the item `{STEERING}` in {} cannot be read", self.table));
        steering_item::from_item(item).ok_or_else(unreadable)
    }

    fn put(&self, layout: Layout) -> PutItemFluentBuilder {
        let Layout { read, write } = layout;
        self.client
            .put_item()
            .table_name(&self.table)
            .item("control_id", text(SHARDS))
            .item("urgent", number(write.urgent))
            .item("standard", number(write.standard))
            .item("read_urgent", number(read.urgent))
            .item("read_standard", number(read.standard))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    fn api_keys_of(&self, item: &Item) -> PortResult<ApiKeys> {
        let unreadable = || PortError::Permanent(format!("the item `{API_KEYS}` in {} cannot be read", self.table));
        access_item::from_item(item).ok_or_else(unreadable)
    }

    /// A put over revision `from` of an item; 0 = there must be none.
    fn put_revision(&self, item: Item, from: u64) -> PutItemFluentBuilder {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match from {
            0 => put.condition_expression("attribute_not_exists(control_id)"),
            _ => put.condition_expression("revision = :from").expression_attribute_values(":from", number(from)),
        }
    }

    /// The layout that a put leaves, whether it went through or not.
    async fn settle(&self, put: PutItemFluentBuilder, wanted: Layout) -> PortResult<Layout> {
        let Err(error) = put.send().await else { return Ok(wanted) };
        match met_by_put(&error) {
            Some(old) => self.layout_of(&old),
            None => Err(port_error(&self.table, error)),
        }
    }
}

#[async_trait]
impl Control for DynamoControl {
    async fn layout(&self) -> PortResult<Option<Layout>> {
        let get = self.client.get_item().table_name(&self.table).key("control_id", text(SHARDS)).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.item.map(|item| self.layout_of(&item)).transpose()
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        let layout = Layout::of(shards);
        let put = self.put(layout).condition_expression("attribute_not_exists(control_id)");
        Ok(self.settle(put, layout).await?.write)
    }

    async fn change_layout(&self, from: Layout, to: Layout) -> PortResult<Layout> {
        // The counts to read were not written by every version: where they are missing, they are those to write.
        let put = self
            .put(to)
            .condition_expression(
                "urgent = :urgent AND standard = :standard \
                 AND (read_urgent = :read_urgent OR attribute_not_exists(read_urgent)) \
                 AND (read_standard = :read_standard OR attribute_not_exists(read_standard))",
            )
            .expression_attribute_values(":urgent", number(from.write.urgent))
            .expression_attribute_values(":standard", number(from.write.standard))
            .expression_attribute_values(":read_urgent", number(from.read.urgent))
            .expression_attribute_values(":read_standard", number(from.read.standard));
        self.settle(put, to).await
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

    async fn steering(&self) -> PortResult<Steering> {
        let get =
            self.client.get_item().table_name(&self.table).key("control_id", text(STEERING)).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.item.map_or_else(|| Ok(Steering::default()), |item| self.steering_of(&item))
    }

    async fn api_keys(&self) -> PortResult<ApiKeys> {
        let get =
            self.client.get_item().table_name(&self.table).key("control_id", text(API_KEYS)).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.item.map_or_else(|| Ok(ApiKeys::default()), |item| self.api_keys_of(&item))
    }

    async fn change_api_keys(&self, from: u64, to: &ApiKeys) -> PortResult<ApiKeys> {
        let put = self.put_revision(access_item::to_item(to), from);
        let Err(error) = put.send().await else { return Ok(to.clone()) };
        match met_by_put(&error) {
            Some(old) => self.api_keys_of(&old),
            None => Err(port_error(&self.table, error)),
        }
    }

    async fn kept(&self, id: &str) -> PortResult<Option<String>> {
        let get = self.client.get_item().table_name(&self.table).key("control_id", text(id)).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        Ok(answer.item.as_ref().and_then(|item| item.get("value")?.as_s().ok()).cloned())
    }

    async fn change_steering(&self, from: u64, to: &Steering) -> PortResult<Steering> {
        let put = self.put_revision(steering_item::to_item(to), from);
        let Err(error) = put.send().await else { return Ok(to.clone()) };
        match met_by_put(&error) {
            Some(old) => self.steering_of(&old),
            None => Err(port_error(&self.table, error)),
        }
    }
}

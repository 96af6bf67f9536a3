//! Step 7: rate shares, in the lease table beside the leases. One item a target, `rate/` and the target's name, which no
//! lease's id looks like; every write is conditional.

use super::Aws;
use super::error::{met_by_put, met_by_update, port_error};
use super::job_item::Item;
use super::jobs::{number, text};
use crate::error::PortError;
use crate::ports::{Beat, PortResult, ShareStore};
use crate::rate::{Holder, Shares};
use crate::target::Target;
use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use std::collections::HashMap;

pub(super) struct DynamoShares {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoShares {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.leases() }
    }

    /// What an item says; one that is not there is empty.
    fn read(&self, target: &Target, item: &Item) -> PortResult<Shares> {
        let unreadable = || PortError::Permanent(format!("the item `{}` in {} cannot be read", id(target), self.table));
        if item.is_empty() { Ok(Shares::default()) } else { shares_of(item).ok_or_else(unreadable) }
    }
}

#[async_trait]
impl ShareStore for DynamoShares {
    async fn get(&self, target: &Target) -> PortResult<Shares> {
        let get =
            self.client.get_item().table_name(&self.table).key("lease_id", text(&id(target))).consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        self.read(target, &answer.item.unwrap_or_default())
    }

    async fn beat(&self, target: &Target, worker: &str, beat: u64) -> PortResult<Beat> {
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("lease_id", text(&id(target)))
            .update_expression("SET holders.#me.beat = :beat, revision = revision + :one")
            .condition_expression("holders.#me.beat < :beat")
            .expression_attribute_names("#me", worker)
            .expression_attribute_values(":beat", number(beat))
            .expression_attribute_values(":one", number(1))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let error = match update.send().await {
            Ok(answer) => return Ok(Beat::Held(self.read(target, &answer.attributes.unwrap_or_default())?)),
            Err(error) => error,
        };
        let Some(old) = met_by_update(&error) else { return Err(port_error(&self.table, error)) };
        let now = self.read(target, &old)?;
        let is_mine = now.holders.get(worker).is_some_and(|holder| holder.beat == beat);
        Ok(if is_mine { Beat::Held(now) } else { Beat::Lost(now) })
    }

    async fn change(&self, target: &Target, from: u64, to: &Shares) -> PortResult<Shares> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item_of(target, to)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match from {
            0 => put.condition_expression("attribute_not_exists(lease_id)"),
            _ => put.condition_expression("revision = :from").expression_attribute_values(":from", number(from)),
        };
        let Err(error) = put.send().await else { return Ok(to.clone()) };
        match met_by_put(&error) {
            Some(old) => self.read(target, &old),
            None => Err(port_error(&self.table, error)),
        }
    }
}

fn id(target: &Target) -> String {
    format!("rate/{target}")
}

fn item_of(target: &Target, shares: &Shares) -> Item {
    let holder = |holder: &Holder| {
        let fields = [("shares".into(), number(holder.shares)), ("beat".into(), number(holder.beat))];
        AttributeValue::M(HashMap::from(fields))
    };
    let holders = shares.holders.iter().map(|(id, of)| (id.clone(), holder(of))).collect();
    HashMap::from([
        ("lease_id".into(), text(&id(target))),
        ("revision".into(), number(shares.revision)),
        ("holders".into(), AttributeValue::M(holders)),
    ])
}

fn shares_of(item: &Item) -> Option<Shares> {
    let holder = |value: &AttributeValue| {
        let fields = value.as_m().ok()?;
        Some(Holder { shares: number_in(fields, "shares")?, beat: number_in(fields, "beat")? })
    };
    let holders = item.get("holders")?.as_m().ok()?.iter();
    let holders = holders.map(|(id, value)| Some((id.clone(), holder(value)?)));
    Some(Shares { revision: number_in(item, "revision")?, holders: holders.collect::<Option<_>>()? })
}

pub(super) fn number_in<T: std::str::FromStr>(item: &Item, name: &str) -> Option<T> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

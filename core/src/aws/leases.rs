//! Step 5: the lease table. Every write is conditional on owner and counter; the owner is a random id made at process
//! start, so a refused write that finds one's own id was one's own.

use super::Aws;
use super::error::{met_by_put, met_by_update, port_error};
use super::job_item::Item;
use super::jobs::{number, text};
use crate::due::Minute;
use crate::lease::{Lease, LeaseId};
use crate::ports::{Claim, LeaseStore, PortResult};
use async_trait::async_trait;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

pub(super) struct DynamoLeases {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoLeases {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.leases() }
    }

    fn update(&self, id: &LeaseId) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .key("lease_id", text(&id.to_string()))
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#counter", "counter")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    async fn claim(
        &self,
        update: UpdateItemFluentBuilder,
        id: &LeaseId,
        owner: &str,
        counter: u64,
    ) -> PortResult<Claim> {
        let Err(error) = update.send().await else { return Ok(Claim::Held { counter }) };
        match met_by_update(&error) {
            Some(old) => Ok(match lease_of(&old, id) {
                Some(now) if now.owner.as_deref() == Some(owner) => Claim::Mine { counter: now.counter },
                _ => Claim::Lost,
            }),
            None => Err(port_error(&self.table, error)),
        }
    }
}

#[async_trait]
impl LeaseStore for DynamoLeases {
    async fn list(&self) -> PortResult<Vec<Lease>> {
        let mut leases = Vec::new();
        let mut start = None;
        loop {
            let scan = self.client.scan().table_name(&self.table).consistent_read(true).set_exclusive_start_key(start);
            let answer = scan.send().await.map_err(|e| port_error(&self.table, e))?;
            leases.extend(answer.items.iter().flatten().filter_map(|item| {
                let id: LeaseId = item.get("lease_id")?.as_s().ok()?.parse().ok()?;
                lease_of(item, &id)
            }));
            start = answer.last_evaluated_key;
            if start.is_none() {
                return Ok(leases);
            }
        }
    }

    async fn init(&self, id: &LeaseId, cursor: Minute) -> PortResult<()> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .item("lease_id", text(&id.to_string()))
            .item("counter", number(0))
            .item("cursor", number(cursor.0))
            .condition_expression("attribute_not_exists(lease_id)");
        match put.send().await {
            Ok(_) => Ok(()),
            Err(e) if met_by_put(&e).is_some() => Ok(()),
            Err(e) => Err(port_error(&self.table, e)),
        }
    }

    async fn take(&self, id: &LeaseId, observed: Option<&Lease>, owner: &str) -> PortResult<Claim> {
        let counter = observed.map_or(0, |lease| lease.counter) + 1;
        let update = self
            .update(id)
            .update_expression("SET #owner = :me, #counter = :next REMOVE wanted_by")
            .expression_attribute_values(":me", text(owner))
            .expression_attribute_values(":next", number(counter));
        let update = match observed {
            None => update.condition_expression("attribute_not_exists(lease_id)"),
            Some(lease) => {
                let update = update.expression_attribute_values(":seen", number(lease.counter));
                match &lease.owner {
                    None => update.condition_expression("attribute_not_exists(#owner) AND #counter = :seen"),
                    Some(other) => update
                        .condition_expression("#owner = :other AND #counter = :seen")
                        .expression_attribute_values(":other", text(other)),
                }
            }
        };
        self.claim(update, id, owner, counter).await
    }

    async fn renew(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<Claim> {
        let next = counter + 1;
        let update = self
            .update(id)
            .condition_expression("#owner = :me AND #counter = :counter")
            .expression_attribute_values(":me", text(owner))
            .expression_attribute_values(":counter", number(counter))
            .expression_attribute_values(":next", number(next));
        let update = with_cursor(update, "SET #counter = :next", "", cursor);
        self.claim(update, id, owner, next).await
    }

    async fn release(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<()> {
        let update = self
            .update(id)
            .condition_expression("#owner = :me AND #counter = :counter")
            .expression_attribute_values(":me", text(owner))
            .expression_attribute_values(":counter", number(counter))
            .expression_attribute_values(":next", number(counter + 1));
        let update = with_cursor(update, "SET #counter = :next", " REMOVE #owner, wanted_by", cursor);
        self.claim(update, id, owner, counter).await.map(|_| ())
    }

    async fn ask(&self, id: &LeaseId, owner: &str, by: &str) -> PortResult<()> {
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("lease_id", text(&id.to_string()))
            .expression_attribute_names("#owner", "owner")
            .condition_expression("#owner = :owner")
            .update_expression("SET wanted_by = :by")
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":by", text(by));
        match update.send().await {
            Ok(_) => Ok(()),
            Err(e) if met_by_update(&e).is_some() => Ok(()),
            Err(e) => Err(port_error(&self.table, e)),
        }
    }

    async fn remove(&self, observed: &Lease) -> PortResult<()> {
        let delete = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key("lease_id", text(&observed.id.to_string()))
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#counter", "counter")
            .expression_attribute_values(":counter", number(observed.counter));
        let delete = match &observed.owner {
            None => delete.condition_expression("attribute_not_exists(#owner) AND #counter = :counter"),
            Some(owner) => delete
                .condition_expression("#owner = :owner AND #counter = :counter")
                .expression_attribute_values(":owner", text(owner)),
        };
        match delete.send().await {
            Ok(_) => Ok(()),
            Err(e) if e.as_service_error().is_some_and(|e| e.is_conditional_check_failed_exception()) => Ok(()),
            Err(e) => Err(port_error(&self.table, e)),
        }
    }
}

fn with_cursor(
    update: UpdateItemFluentBuilder,
    set: &str,
    rest: &str,
    cursor: Option<Minute>,
) -> UpdateItemFluentBuilder {
    match cursor {
        None => update.update_expression(format!("{set}{rest}")),
        Some(cursor) => update
            .update_expression(format!("{set}, #cursor = :cursor{rest}"))
            .expression_attribute_names("#cursor", "cursor")
            .expression_attribute_values(":cursor", number(cursor.0)),
    }
}

fn lease_of(item: &Item, id: &LeaseId) -> Option<Lease> {
    Some(Lease {
        id: id.clone(),
        owner: item.get("owner").and_then(|o| o.as_s().ok()).cloned(),
        counter: item.get("counter")?.as_n().ok()?.parse().ok()?,
        cursor: item.get("cursor").and_then(|c| c.as_n().ok()).and_then(|c| c.parse().ok()).map(Minute),
        wanted_by: item.get("wanted_by").and_then(|o| o.as_s().ok()).cloned(),
    })
}

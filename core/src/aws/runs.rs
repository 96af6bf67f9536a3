//! Steps 6 and 9: the run rows.

use super::Aws;
use super::error::{met_by_put, port_error};
use super::jobs::{number, text};
use super::run_item::{from_item, to_item};
use crate::job::JobKey;
use crate::ports::{PortResult, Put, RunStore};
use crate::run::{RunId, RunRow};
use async_trait::async_trait;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

pub(super) struct DynamoRuns {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoRuns {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.runs() }
    }
}

#[async_trait]
impl RunStore for DynamoRuns {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        let get = self
            .client
            .get_item()
            .table_name(&self.table)
            .key("job_key", text(id.job_key.as_str()))
            .key("run_key", text(id.run_key.as_str()))
            .consistent_read(true);
        let answer = get.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.item.map(from_item).transpose()
    }

    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
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
            Some(old) => {
                let current = if old.is_empty() { None } else { Some(from_item(old)?) };
                let is_mine = current.as_ref().is_some_and(|current| current.write_token == row.write_token);
                Ok(if is_mine { Put::Written } else { Put::Conflict(current.map(Box::new)) })
            }
            None => Err(port_error(&self.table, error)),
        }
    }

    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("job_key = :job")
            .expression_attribute_values(":job", text(key.as_str()))
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = query.send().await.map_err(|e| port_error(&self.table, e))?;
        answer.items.unwrap_or_default().into_iter().map(from_item).collect()
    }
}

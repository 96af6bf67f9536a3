//! Steps 6 and 9: the run rows.

use super::Aws;
use super::error::port_error;
use super::jobs::text;
use super::run_item::from_item;
use super::run_writes::Writes;
use crate::job::JobKey;
use crate::ports::{PortResult, Put, RunStore};
use crate::run::{RunId, RunRow};
use async_trait::async_trait;

pub(super) struct DynamoRuns {
    client: aws_sdk_dynamodb::Client,
    table: String,
    writes: Writes,
}

impl DynamoRuns {
    pub(super) fn new(aws: &Aws) -> Self {
        let (client, table) = (aws.dynamodb.clone(), aws.names.runs());
        let writes = Writes::new(client.clone(), table.clone());
        Self { client, table, writes }
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
        self.writes.put(row).await
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

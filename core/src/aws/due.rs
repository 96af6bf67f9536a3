//! Step 2: the sparse index `due` of the jobs table.

use super::Aws;
use super::error::port_error;
use super::job_item::{Item, quarantine_bucket};
use super::jobs::{number, text};
use super::schema::DUE_INDEX;
use crate::due::{DueBucket, ShardId};
use crate::ports::{DueEntry, DueIndex, DuePage, DueSpan, PageToken, PortResult};
use async_trait::async_trait;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use chrono::DateTime;

pub(super) struct DynamoDueIndex {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoDueIndex {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.jobs() }
    }
}

#[async_trait]
impl DueIndex for DynamoDueIndex {
    async fn page(
        &self,
        bucket: DueBucket,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
    ) -> PortResult<DuePage> {
        let query = self.query(&bucket.to_string(), after, limit);
        let query = query.expression_attribute_values(":until", number(span.until.timestamp()));
        let due = match span.after {
            None => query.key_condition_expression("due_bucket = :bucket AND next_due_at <= :until"),
            // DynamoDB refuses a span that ends before it begins.
            Some(after) if after.timestamp() >= span.until.timestamp() => return Ok(DuePage::default()),
            Some(after) => query
                .key_condition_expression("due_bucket = :bucket AND next_due_at BETWEEN :from AND :until")
                .expression_attribute_values(":from", number(after.timestamp() + 1)),
        };
        self.page_of(due).await
    }

    async fn quarantined(&self, shard: ShardId, after: Option<PageToken>, limit: usize) -> PortResult<DuePage> {
        let query = self.query(&quarantine_bucket(shard), after, limit);
        self.page_of(query.key_condition_expression("due_bucket = :bucket")).await
    }
}

impl DynamoDueIndex {
    /// A query of one partition, without its condition.
    fn query(&self, partition: &str, after: Option<PageToken>, limit: usize) -> QueryFluentBuilder {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(DUE_INDEX)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .expression_attribute_values(":bucket", text(partition));
        // The token is the sort key and the job key of the last entry.
        match after.as_ref().and_then(|PageToken(token)| token.split_once('|')) {
            Some((due_at, key)) => query
                .exclusive_start_key("due_bucket", text(partition))
                .exclusive_start_key("next_due_at", number(due_at))
                .exclusive_start_key("job_key", text(key)),
            None => query,
        }
    }

    async fn page_of(&self, query: QueryFluentBuilder) -> PortResult<DuePage> {
        let answer = query.send().await.map_err(|e| port_error(&self.table, e))?;
        Ok(DuePage {
            entries: answer.items.iter().flatten().filter_map(entry_of).collect(),
            next: answer.last_evaluated_key.as_ref().and_then(token_of),
        })
    }
}

fn token_of(last: &Item) -> Option<PageToken> {
    let (due_at, key) = (last.get("next_due_at")?.as_n().ok()?, last.get("job_key")?.as_s().ok()?);
    Some(PageToken(format!("{due_at}|{key}")))
}

fn entry_of(item: &Item) -> Option<DueEntry> {
    let key = item.get("job_key")?.as_s().ok()?.clone().try_into().ok()?;
    let due_at = item.get("next_due_at")?.as_n().ok()?.parse().ok()?;
    Some(DueEntry { key, due_at: DateTime::from_timestamp(due_at, 0)? })
}

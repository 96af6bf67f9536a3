//! The one definition of all tables, indexes and queues, and their creation.
//!
//! `punctual setup` makes them in an account or on a local stack; an installation by other means must agree with it.

use super::Aws;
use super::error::{port_error, queue_error};
use crate::job::RETENTION;
use crate::ports::PortResult;
use crate::priority::Priority;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TimeToLiveSpecification, TimeToLiveStatus,
};
use aws_sdk_sqs::types::QueueAttributeName;
use std::collections::HashMap;
use std::time::Duration;

/// The sparse index of jobs by due bucket and due time.
pub const DUE_INDEX: &str = "due";
/// The index that lists a tenant's jobs.
pub const TENANT_INDEX: &str = "tenant";
/// The sparse index of dead and indeterminate rows.
pub const ATTENTION_INDEX: &str = "attention";
/// The attribute by which DynamoDB removes old jobs and rows, and settings that are kept for a while.
pub const TTL_ATTRIBUTE: &str = "expires_at";
/// How long every queue keeps a message: SQS's longest.
pub const QUEUE_RETENTION: Duration = Duration::from_secs(14 * 86_400);
/// Deliveries after which SQS itself moves a message to the dead letters. A net only: attempts are counted in the row.
pub const MAX_RECEIVE_COUNT: u32 = 1_000;
/// Visibility of a queue's messages where the receiver names none.
pub const DEFAULT_VISIBILITY: Duration = Duration::from_secs(60);

const _: () =
    assert!(RETENTION.as_secs() >= 3 * QUEUE_RETENTION.as_secs(), "a row must outlive queue, dead letter and replay");

/// Type of a key attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// String.
    S,
    /// Number.
    N,
}

/// Partition key and sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Partition key.
    pub partition: (&'static str, KeyKind),
    /// Sort key.
    pub sort: Option<(&'static str, KeyKind)>,
}

/// A secondary index; all project keys only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// Its keys.
    pub keys: Keys,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its keys.
    pub keys: Keys,
    /// Its indexes.
    pub indexes: &'static [Index],
    /// Whether old items are removed by [`TTL_ATTRIBUTE`].
    pub expires: bool,
}

const fn keys(partition: (&'static str, KeyKind), sort: Option<(&'static str, KeyKind)>) -> Keys {
    Keys { partition, sort }
}

const JOB_INDEXES: &[Index] = &[
    Index { name: DUE_INDEX, keys: keys(("due_bucket", KeyKind::S), Some(("next_due_at", KeyKind::N))) },
    Index { name: TENANT_INDEX, keys: keys(("tenant", KeyKind::S), Some(("job_key", KeyKind::S))) },
];
const RUN_INDEXES: &[Index] = &[Index {
    name: ATTENTION_INDEX,
    keys: keys(("attention_tenant", KeyKind::S), Some(("completed_at_ms", KeyKind::N))),
}];

/// All tables of an installation.
pub fn tables(names: &super::Names) -> [Table; 4] {
    let job_key = ("job_key", KeyKind::S);
    [
        Table { name: names.jobs(), keys: keys(job_key, None), indexes: JOB_INDEXES, expires: true },
        Table {
            name: names.runs(),
            keys: keys(job_key, Some(("run_key", KeyKind::S))),
            indexes: RUN_INDEXES,
            expires: true,
        },
        Table { name: names.leases(), keys: keys(("lease_id", KeyKind::S), None), indexes: &[], expires: false },
        Table { name: names.control(), keys: keys(("control_id", KeyKind::S), None), indexes: &[], expires: true },
    ]
}

/// Makes every table and queue that does not exist yet; returns the names of those it made.
///
/// # Errors
/// The first call that fails. Calling again goes on from there.
pub async fn setup(aws: &Aws) -> PortResult<Vec<String>> {
    let mut made = Vec::new();
    for table in tables(&aws.names) {
        if create_table(aws, &table).await? {
            made.push(table.name);
        }
    }
    let dead_letters = aws.names.dead_letters();
    let (url, is_new) = create_queue(aws, &dead_letters, None).await?;
    made.extend(is_new.then(|| dead_letters.clone()));
    let arn = queue_arn(aws, &dead_letters, &url).await?;
    for priority in Priority::ALL {
        let name = aws.names.queue(priority);
        let (_, is_new) = create_queue(aws, &name, Some(&arn)).await?;
        made.extend(is_new.then_some(name));
    }
    Ok(made)
}

async fn create_table(aws: &Aws, table: &Table) -> PortResult<bool> {
    let mut attributes = Vec::new();
    let schemas = std::iter::once(&table.keys).chain(table.indexes.iter().map(|i| &i.keys));
    for (name, kind) in schemas.flat_map(|k| [Some(k.partition), k.sort]).flatten() {
        if !attributes.contains(&(name, kind)) {
            attributes.push((name, kind));
        }
    }
    let attributes = attributes.into_iter().map(|(name, kind)| {
        let kind = if kind == KeyKind::S { ScalarAttributeType::S } else { ScalarAttributeType::N };
        AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(kind)
            .build()
            .expect("name and type are given")
    });
    let indexes = table.indexes.iter().map(|index| {
        GlobalSecondaryIndex::builder()
            .index_name(index.name)
            .set_key_schema(Some(key_schema(&index.keys)))
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
            .build()
            .expect("name, keys and projection are given")
    });
    let call = aws
        .dynamodb
        .create_table()
        .table_name(&table.name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(attributes.collect()))
        .set_key_schema(Some(key_schema(&table.keys)))
        .set_global_secondary_indexes((!table.indexes.is_empty()).then(|| indexes.collect()));
    let is_new = match call.send().await {
        Ok(_) => true,
        Err(e) if e.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => false,
        Err(e) => return Err(port_error(&table.name, e)),
    };
    wait_until_active(aws, &table.name).await?;
    if table.expires && !expires_already(aws, &table.name).await? {
        let ttl = TimeToLiveSpecification::builder().attribute_name(TTL_ATTRIBUTE).enabled(true).build();
        let ttl = ttl.expect("attribute and switch are given");
        let call = aws.dynamodb.update_time_to_live().table_name(&table.name).time_to_live_specification(ttl);
        match call.send().await {
            Ok(_) => {}
            // Another setup was faster.
            Err(e) if e.message().is_some_and(|message| message.ends_with("already enabled")) => {}
            Err(e) => return Err(port_error(&table.name, e)),
        }
    }
    Ok(is_new)
}

/// Whether old items are removed already. A table that exists does not prove it: a setup may have ended in between.
async fn expires_already(aws: &Aws, table: &str) -> PortResult<bool> {
    let description = match aws.dynamodb.describe_time_to_live().table_name(table).send().await {
        Ok(answer) => answer.time_to_live_description,
        // An emulator that cannot say: setting it again does no harm.
        Err(e) if e.code() == Some("UnknownOperationException") => None,
        Err(e) => return Err(port_error(table, e)),
    };
    Ok(description.is_some_and(|ttl| {
        let is_on = matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        is_on && ttl.attribute_name.as_deref() == Some(TTL_ATTRIBUTE)
    }))
}

async fn wait_until_active(aws: &Aws, table: &str) -> PortResult<()> {
    use aws_sdk_dynamodb::client::Waiters;
    let waiter = aws.dynamodb.wait_until_table_exists().table_name(table);
    waiter.wait(Duration::from_secs(120)).await.map(|_| ()).map_err(|e| {
        crate::error::PortError::Temporary(format!("{table} did not become ready within two minutes: {e}"))
    })
}

fn key_schema(keys: &Keys) -> Vec<KeySchemaElement> {
    let element = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("name and type are given")
    };
    let sort = keys.sort.map(|(name, _)| element(name, KeyType::Range));
    std::iter::once(element(keys.partition.0, KeyType::Hash)).chain(sort).collect()
}

async fn create_queue(aws: &Aws, name: &str, dead_letters: Option<&str>) -> PortResult<(String, bool)> {
    let existing = aws.sqs.get_queue_url().queue_name(name).send().await;
    if let Some(url) = existing.ok().and_then(|answer| answer.queue_url) {
        return Ok((url, false));
    }
    let mut attributes = HashMap::from([
        (QueueAttributeName::MessageRetentionPeriod, QUEUE_RETENTION.as_secs().to_string()),
        (QueueAttributeName::VisibilityTimeout, DEFAULT_VISIBILITY.as_secs().to_string()),
    ]);
    if let Some(arn) = dead_letters {
        let policy = serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVE_COUNT});
        attributes.insert(QueueAttributeName::RedrivePolicy, policy.to_string());
    }
    let call = aws.sqs.create_queue().queue_name(name).set_attributes(Some(attributes));
    let answer = call.send().await.map_err(|e| queue_error(&format!("queue {name}"), e))?;
    Ok((answer.queue_url.unwrap_or_default(), true))
}

async fn queue_arn(aws: &Aws, name: &str, url: &str) -> PortResult<String> {
    let call = aws.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::QueueArn);
    let answer = call.send().await.map_err(|e| queue_error(name, e))?;
    let arn = answer.attributes.and_then(|mut all| all.remove(&QueueAttributeName::QueueArn));
    arn.ok_or_else(|| crate::error::PortError::Temporary(format!("queue {name} has no ARN yet: try again")))
}

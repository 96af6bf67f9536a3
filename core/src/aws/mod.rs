//! The DynamoDB and SQS adapters. Item formats and names live here and nowhere else.
//!
//! One client serves both worlds: it speaks TLS (ring) to AWS and plain HTTP where the endpoint says `http://`. Nothing
//! here knows a local stack.

mod access_item;
mod client;
mod control;
mod due;
mod due_item;
mod error;
mod history;
mod job_item;
mod jobs;
mod leases;
mod payload_item;
mod queue;
mod reports;
mod run_item;
mod run_writes;
mod runs;
mod schedule_item;
pub mod schema;
mod shares;
mod steering_item;
mod store_time;
mod versions;

pub use client::{ConnectError, config_loader, connect};

use crate::clock::AnchoredClock;
use crate::ports::{PortResult, Ports};
use crate::priority::Priority;
use std::sync::Arc;

/// Names of all tables and queues of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// The names that begin with `prefix`.
    ///
    /// # Errors
    /// When the prefix is empty, too long, or holds a character that a table or queue name may not have.
    pub fn new(prefix: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if prefix.is_empty() || prefix.len() > 40 || !prefix.chars().all(allowed) {
            return Err(format!("prefix `{prefix}` must be 1 to 40 letters, digits, `-` or `_`"));
        }
        Ok(Names { prefix: prefix.to_owned() })
    }

    /// The jobs table.
    pub fn jobs(&self) -> String {
        format!("{}-jobs", self.prefix)
    }

    /// The run rows.
    pub fn runs(&self) -> String {
        format!("{}-runs", self.prefix)
    }

    /// The leases.
    pub fn leases(&self) -> String {
        format!("{}-leases", self.prefix)
    }

    /// The settings.
    pub fn control(&self) -> String {
        format!("{}-control", self.prefix)
    }

    /// The queue of one priority.
    pub fn queue(&self, priority: Priority) -> String {
        format!("{}-{priority}", self.prefix)
    }

    /// The dead letters.
    pub fn dead_letters(&self) -> String {
        format!("{}-dead-letters", self.prefix)
    }
}

/// The item of a job as the jobs table holds it, for whoever fills the table past the adapter.
#[cfg(feature = "test-util")]
pub fn item_of(job: &crate::job::Job) -> std::collections::HashMap<String, aws_sdk_dynamodb::types::AttributeValue> {
    job_item::to_item(job)
}

/// Connected clients, the names they use, and the clock that the store's answers set.
#[derive(Clone)]
pub struct Aws {
    /// DynamoDB.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// SQS.
    pub sqs: aws_sdk_sqs::Client,
    /// Tables and queues.
    pub names: Names,
    /// Shows the store's time as soon as the store has answered a call. The process goes by this clock alone.
    pub clock: Arc<AnchoredClock>,
    /// Whether messages of the priority queues carry their tenant as the group of SQS's fair queues.
    pub fair_queues: bool,
}

impl Aws {
    /// Clients made from these settings, without fair queues; what DynamoDB answers is heard by `clock`.
    pub fn new(
        dynamodb: aws_sdk_dynamodb::config::Builder,
        sqs: aws_sdk_sqs::config::Builder,
        names: Names,
        clock: Arc<AnchoredClock>,
    ) -> Self {
        let dynamodb = dynamodb.interceptor(store_time::StoreTime::new(clock.clone())).build();
        Aws {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb),
            sqs: aws_sdk_sqs::Client::from_conf(sqs.build()),
            names,
            clock,
            fair_queues: false,
        }
    }

    /// The ports on these clients.
    pub fn ports(&self) -> Ports {
        Ports {
            jobs: Arc::new(jobs::DynamoJobs::new(self)),
            due: Arc::new(due::DynamoDueIndex::new(self)),
            runs: Arc::new(runs::DynamoRuns::new(self)),
            history: Arc::new(history::DynamoHistory::new(self)),
            leases: Arc::new(leases::DynamoLeases::new(self)),
            shares: Arc::new(shares::DynamoShares::new(self)),
            reports: Arc::new(reports::DynamoReports::new(self)),
            control: Arc::new(control::DynamoControl::new(self)),
            queue: Arc::new(queue::SqsQueue::new(self)),
        }
    }

    /// Whether all queues can be found.
    ///
    /// # Errors
    /// Names the queue that is missing, or why SQS cannot be asked.
    pub async fn check_queues(&self) -> PortResult<()> {
        queue::SqsQueue::new(self).check().await
    }
}

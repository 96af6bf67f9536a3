//! What AWS asks for its units: inputs, with their date and region.

use super::Usage;
use serde::{Deserialize, Serialize};

/// Bytes of a gigabyte as billed. Should a bill count 2³⁰, storage is 7 % cheaper than said here.
const GIGABYTE: f64 = 1e9;

/// List prices in dollars, without free tiers, discounts and taxes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// When they were looked up.
    pub as_of: String,
    /// Where they hold.
    pub region: String,
    /// A million DynamoDB write request units on demand, in tables and indexes alike.
    pub write_units_per_million: f64,
    /// A million DynamoDB read request units on demand.
    pub read_units_per_million: f64,
    /// A gigabyte stored for a month (DynamoDB, standard class).
    pub storage_per_gb_month: f64,
    /// A million requests of SQS standard queues, below 100 billion a month.
    pub sqs_requests_per_million: f64,
}

impl Default for Prices {
    /// us-east-1. DynamoDB: the on-demand rates since November 2024, as quoted in public on 2026-07-30. SQS: as quoted in
    /// public in June 2026. Second-hand both: look them up at `aws.amazon.com/dynamodb/pricing/on-demand` and
    /// `aws.amazon.com/sqs/pricing` before money depends on them.
    fn default() -> Self {
        Prices {
            as_of: "2026-07-30".into(),
            region: "us-east-1".into(),
            write_units_per_million: 0.625,
            read_units_per_million: 0.125,
            storage_per_gb_month: 0.25,
            sqs_requests_per_million: 0.40,
        }
    }
}

impl Prices {
    /// Checks that each is a sum of money.
    ///
    /// # Errors
    /// Names the price that is none.
    pub fn check(&self) -> Result<(), String> {
        let all = [
            ("write_units_per_million", self.write_units_per_million),
            ("read_units_per_million", self.read_units_per_million),
            ("storage_per_gb_month", self.storage_per_gb_month),
            ("sqs_requests_per_million", self.sqs_requests_per_million),
        ];
        match all.into_iter().find(|(_, price)| !price.is_finite() || *price < 0.0) {
            Some((name, price)) => Err(format!("{name} is {price}: write dollars, 0 or more")),
            None => Ok(()),
        }
    }

    /// Dollars for some usage.
    pub fn dollars(&self, usage: &Usage) -> f64 {
        let dollars = usage.write_units * self.write_units_per_million
            + usage.read_units * self.read_units_per_million
            + usage.sqs_requests * self.sqs_requests_per_million;
        dollars / 1e6
    }

    /// Dollars a month for so many bytes stored.
    pub fn storage_dollars(&self, bytes: f64) -> f64 {
        bytes / GIGABYTE * self.storage_per_gb_month
    }
}

//! Step 8: what workers say of themselves, in the lease table beside the leases. One item a worker, `worker/` and its id,
//! which no lease's id looks like.

use super::Aws;
use super::error::port_error;
use super::job_item::Item;
use super::jobs::{number, text};
use super::shares::number_in;
use crate::ports::{PortResult, ReportStore};
use crate::report::{CircuitReport, WorkerReport};
use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::DateTime;
use std::collections::HashMap;

const PREFIX: &str = "worker/";

pub(super) struct DynamoReports {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

impl DynamoReports {
    pub(super) fn new(aws: &Aws) -> Self {
        Self { client: aws.dynamodb.clone(), table: aws.names.leases() }
    }
}

#[async_trait]
impl ReportStore for DynamoReports {
    async fn put(&self, report: &WorkerReport) -> PortResult<()> {
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item_of(report)));
        put.send().await.map(|_| ()).map_err(|e| port_error(&self.table, e))
    }

    async fn remove(&self, worker: &str) -> PortResult<()> {
        let delete = self.client.delete_item().table_name(&self.table).key("lease_id", text(&id(worker)));
        delete.send().await.map(|_| ()).map_err(|e| port_error(&self.table, e))
    }

    async fn list(&self) -> PortResult<Vec<WorkerReport>> {
        let mut reports = Vec::new();
        let mut start = None;
        loop {
            let scan = self
                .client
                .scan()
                .table_name(&self.table)
                .consistent_read(true)
                .filter_expression("begins_with(lease_id, :prefix)")
                .expression_attribute_values(":prefix", text(PREFIX))
                .set_exclusive_start_key(start);
            let answer = scan.send().await.map_err(|e| port_error(&self.table, e))?;
            reports.extend(answer.items.iter().flatten().filter_map(report_of));
            start = answer.last_evaluated_key;
            if start.is_none() {
                return Ok(reports);
            }
        }
    }
}

fn id(worker: &str) -> String {
    format!("{PREFIX}{worker}")
}

fn item_of(report: &WorkerReport) -> Item {
    let circuit = |circuit: &CircuitReport| {
        let since = number(circuit.since.timestamp_millis());
        AttributeValue::M(HashMap::from([("state".into(), text(circuit.state.as_str())), ("since_ms".into(), since)]))
    };
    let circuits = report.circuits.iter().map(|(target, of)| (target.to_string(), circuit(of))).collect();
    HashMap::from([
        ("lease_id".into(), text(&id(&report.worker))),
        ("at_ms".into(), number(report.at.timestamp_millis())),
        ("circuits".into(), AttributeValue::M(circuits)),
    ])
}

fn report_of(item: &Item) -> Option<WorkerReport> {
    let instant = |item: &Item, name| DateTime::from_timestamp_millis(number_in(item, name)?);
    let circuit = |value: &AttributeValue| {
        let fields = value.as_m().ok()?;
        let state = fields.get("state")?.as_s().ok()?.parse().ok()?;
        Some(CircuitReport { state, since: instant(fields, "since_ms")? })
    };
    let circuits = item.get("circuits")?.as_m().ok()?.iter();
    // What cannot be read of one target says nothing of the others.
    let circuits = circuits.filter_map(|(target, value)| Some((target.parse().ok()?, circuit(value)?)));
    Some(WorkerReport {
        worker: item.get("lease_id")?.as_s().ok()?.strip_prefix(PREFIX)?.to_owned(),
        at: instant(item, "at_ms")?,
        circuits: circuits.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CircuitState;
    use crate::target::Target;

    #[test]
    fn a_target_that_cannot_be_read_hides_no_other() {
        let at = DateTime::from_timestamp_millis(5_003).unwrap();
        let open = CircuitReport { state: CircuitState::Open, since: at };
        let report = WorkerReport { worker: "w1".into(), at, circuits: [(Target::sms(), open)].into() };
        let mut item = item_of(&report);
        let Some(AttributeValue::M(circuits)) = item.get_mut("circuits") else { panic!("it is a map") };
        circuits.insert("webhook/a!b".into(), circuits["sms"].clone());
        assert_eq!(report_of(&item), Some(report));
    }
}

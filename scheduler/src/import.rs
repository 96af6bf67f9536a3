//! `punctual jobs import`: a CSV file of reminders, read whole before the first job is made.
//!
//! A file with any unreadable row imports nothing. Importing a file twice, or again after an interruption, makes each
//! job once. No error ever shows a phone number or a text.

use crate::operations::{Created, create_job};
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::due::Shards;
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::payload::{Handler, SmsPayload, check_e164};
use punctual_core::ports::JobStore;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::Schedule;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Read;

/// Jobs being written at the same time.
const WRITES_AT_ONCE: usize = 32;
/// Problems shown of one file.
const PROBLEMS_SHOWN: usize = 20;

const COLUMNS: [&str; 6] = ["customer", "phone", "kind", "priority", "schedule", "template"];

#[derive(Deserialize)]
struct Row {
    customer: String,
    phone: String,
    kind: String,
    priority: String,
    schedule: String,
    template: String,
}

/// Reads the jobs of a file named `name` for `tenant`. A job's id is `customer/kind`.
///
/// # Errors
/// One line for each problem: file, line, column, and what was expected. At most twenty, and how many more there are.
pub fn read_jobs(name: &str, csv: impl Read, tenant: &str, now: DateTime<Utc>) -> Result<Vec<JobSpec>, Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(csv);
    let header =
        reader.headers().map_err(|e| vec![format!("{name}: the header cannot be read: {}", csv_problem(&e))])?;
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|column| !header.iter().any(|h| h == *column)).collect();
    if !missing.is_empty() {
        return Err(vec![format!(
            "{name}, line 1: column {} is missing: the header must name {}",
            missing.join(", "),
            COLUMNS.join(",")
        )]);
    }
    let (mut specs, mut problems) = (Vec::new(), Vec::new());
    let mut seen: HashMap<JobKey, u64> = HashMap::new();
    let header = header.clone();
    let mut record = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        let read = reader.read_record(&mut record);
        let line = record.position().map_or(line, csv::Position::line);
        match read {
            Ok(false) => break,
            Err(error) => {
                problems.push(format!("{name}, line {line}: {}", csv_problem(&error)));
                if error.is_io_error() {
                    break;
                }
                continue;
            }
            Ok(true) => {}
        }
        let spec = record
            .deserialize::<Row>(Some(&header))
            .map_err(|e| ("row", csv_problem(&e)))
            .and_then(|row| job_of(row, tenant, now));
        match spec {
            Ok(spec) => match seen.insert(spec.key.clone(), line) {
                None => specs.push(spec),
                Some(first) => problems.push(format!(
                    "{name}, line {line}, column customer: customer and kind are the same as in line {first}: each pair names \
                     one job"
                )),
            },
            Err((column, problem)) => problems.push(format!("{name}, line {line}, column {column}: {problem}")),
        }
    }
    if problems.is_empty() && specs.is_empty() {
        problems.push(format!("{name}: the file has no rows below its header"));
    }
    if problems.is_empty() {
        return Ok(specs);
    }
    let more = problems.len().saturating_sub(PROBLEMS_SHOWN);
    problems.truncate(PROBLEMS_SHOWN);
    if more > 0 {
        problems.push(format!("{name}: and {more} more"));
    }
    Err(problems)
}

fn job_of(row: Row, tenant: &str, now: DateTime<Utc>) -> Result<JobSpec, (&'static str, String)> {
    let customer = row.customer;
    if customer.is_empty() || row.kind.is_empty() {
        let column = if customer.is_empty() { "customer" } else { "kind" };
        return Err((column, "is empty: expected letters, digits and `._-`".into()));
    }
    let key = JobKey::new(tenant, &format!("{customer}/{}", row.kind)).map_err(|e| ("customer", e))?;
    check_e164(&row.phone).map_err(|e| ("phone", e))?;
    let priority = row.priority.parse().map_err(|e| ("priority", e))?;
    let schedule = Schedule::parse(&row.schedule, now).map_err(|e| ("schedule", e.to_string()))?;
    if row.template.contains("{{") || row.template.contains("{%") {
        return Err(("template", "holds a variable: write the finished text, variables are not supported yet".into()));
    }
    let spec = JobSpec {
        key,
        name: None,
        schedule,
        priority,
        handler: Handler::Sms,
        payload: SmsPayload { to: row.phone, text: row.template },
        retry: RetryRule::default(),
        start_within_s: None,
    };
    spec.check().map_err(|e| ("template", e.to_string()))?;
    Ok(spec)
}

/// A csv error without the data that it quotes.
fn csv_problem(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} columns: expected {expected_len}; a text with commas must be in double quotes")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8: save the file as UTF-8".into(),
        csv::ErrorKind::Io(error) => format!("cannot be read: {error}"),
        _ => format!("cannot be read: expected the columns {}", COLUMNS.join(",")),
    }
}

/// What an import came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Jobs made.
    pub created: u64,
    /// Jobs that were there already, the same.
    pub same: u64,
    /// Jobs that were there already with another content; left as they are.
    pub different: u64,
}

/// Makes the jobs; `done` is called after each.
///
/// # Errors
/// The first job that could not be stored. Those before it are; importing again goes on from there.
pub async fn import(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    shards: &Shards,
    specs: Vec<JobSpec>,
    by: &str,
    done: impl Fn(),
) -> Result<ImportReport, crate::operations::OperationError> {
    let mut writes = stream::iter(specs.into_iter().map(|spec| create_job(jobs, clock, shards, spec, by)))
        .buffer_unordered(WRITES_AT_ONCE);
    let mut report = ImportReport::default();
    while let Some(created) = writes.next().await {
        match created? {
            Created::New(_) => report.created += 1,
            Created::Same => report.same += 1,
            Created::Different => report.different += 1,
        }
        done();
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "customer,phone,kind,priority,schedule,template\n";

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000, 0).unwrap()
    }

    fn problems(rows: &str) -> Vec<String> {
        read_jobs("r.csv", format!("{HEADER}{rows}").as_bytes(), "bank", now()).unwrap_err()
    }

    #[test]
    fn a_row_becomes_a_job() {
        let row =
            "c-1,+447700900123,bill,normal,every 24h from 2026-12-05T09:00:00Z,\"Your bill, GBP 12.50, is due\"\n";
        let specs = read_jobs("r.csv", format!("{HEADER}{row}").as_bytes(), "bank", now()).unwrap();
        assert_eq!(specs[0].key.as_str(), "bank/c-1/bill");
        assert_eq!(specs[0].payload.text, "Your bill, GBP 12.50, is due");
    }

    #[test]
    fn each_problem_names_file_line_and_column_and_shows_no_personal_data() {
        let good = "c-1,+447700900123,bill,normal,every 24h,Due today\n";
        for (row, expected) in [
            ("c-2,07700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column phone: a phone number is"),
            ("c-2,+447700900123,bill,soon,every 24h,Due\n", "r.csv, line 3, column priority: `soon` is not a priority"),
            ("c-2,+447700900123,bill,normal,daily,Due\n", "r.csv, line 3, column schedule: `daily` is not a schedule"),
            ("c-2,+447700900123,bill,normal,every 24h,\n", "r.csv, line 3, column template: the text is empty"),
            (
                "c-2,+447700900123,bill,normal,every 24h,Dear {{ name }}\n",
                "r.csv, line 3, column template: holds a variable",
            ),
            (",+447700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column customer: is empty"),
            ("c 2,+447700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column customer: job id"),
            (
                "c-1,+447700900123,bill,normal,every 24h,Due\n",
                "r.csv, line 3, column customer: customer and kind are the same as in line 2",
            ),
            ("c-2,+447700900123,bill,normal,every 24h,Due, really\n", "r.csv, line 3: has 7 columns: expected 6"),
        ] {
            let found = problems(&format!("{good}{row}"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(expected), "{}", found[0]);
            assert!(!found[0].contains("7700"), "{}", found[0]);
        }
    }

    #[test]
    fn a_header_without_a_column_is_refused() {
        let found = read_jobs("r.csv", "customer,phone\n".as_bytes(), "bank", now()).unwrap_err();
        assert!(found[0].contains("kind, priority, schedule, template"), "{found:?}");
        assert!(read_jobs("r.csv", HEADER.as_bytes(), "bank", now()).unwrap_err()[0].contains("no rows"));
        assert!(
            read_jobs("r.csv", &b"customer,phone,kind,priority,schedule,template\n\xff,a,b,c,d,e\n"[..], "bank", now())
                .unwrap_err()[0]
                .contains("UTF-8")
        );
    }

    #[test]
    fn at_most_twenty_problems_are_shown() {
        let found = problems(&"c-2,0,bill,normal,every 24h,Due\n".repeat(50));
        assert_eq!(found.len(), 21);
        assert_eq!(found[20], "r.csv: and 30 more");
    }
}

//! `punctual jobs import`: a CSV file of reminders, read whole before the first job is made.
//!
//! A file with any unreadable row imports nothing. Importing a file twice, or again after an interruption, makes each
//! job once. An error says where something is wrong and what was expected, never what was found: where columns are
//! shifted, any of them may hold a phone number or a text.

use crate::operations::{Created, create_missing_job};
use crate::timetable::{ClockText, Problem, RunText};
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::job::{JobError, JobKey, JobSpec, Timetable};
use punctual_core::payload::Payload;
use punctual_core::ports::JobStore;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::SHORTEST_INTERVAL_S;
use punctual_core::sms::check_number;
use punctual_core::zone::Zones;
use std::collections::HashMap;
use std::io::Read;

/// Jobs being written at the same time.
const WRITES_AT_ONCE: usize = 32;
/// Problems shown of one file.
const PROBLEMS_SHOWN: usize = 20;

const COLUMNS: [&str; 6] = ["customer", "phone", "kind", "priority", "schedule", "template"];

/// Columns that may be left out, whole or in a row.
const MORE_COLUMNS: [&str; 11] = [
    "tz",
    "dst_gap",
    "dst_repeat",
    "start_at",
    "end_at",
    "max_runs",
    "spread",
    "spread_key",
    "missed",
    "start_within",
    "until_local",
];

struct Row {
    customer: String,
    phone: String,
    kind: String,
    priority: String,
    schedule: String,
    template: String,
    clock: ClockText,
    runs: RunText,
}

impl Row {
    /// A row by its header. Cells stay text: a customer `00123` is no number.
    fn of(header: &csv::StringRecord, record: &csv::StringRecord) -> Self {
        let given = |column: &str| {
            let index = header.iter().position(|name| name == column)?;
            record.get(index).filter(|cell| !cell.is_empty()).map(str::to_owned)
        };
        let cell = |column: &str| given(column).unwrap_or_default();
        Row {
            customer: cell("customer"),
            phone: cell("phone"),
            kind: cell("kind"),
            priority: cell("priority"),
            schedule: cell("schedule"),
            template: cell("template"),
            clock: ClockText {
                tz: given("tz"),
                dst_gap: given("dst_gap"),
                dst_repeat: given("dst_repeat"),
                start_at: given("start_at"),
                end_at: given("end_at"),
                max_runs: given("max_runs"),
            },
            runs: RunText {
                spread: given("spread"),
                spread_key: given("spread_key"),
                missed: given("missed"),
                start_within: given("start_within"),
                until_local: given("until_local"),
            },
        }
    }
}

/// Reads the jobs of a file named `name` for `tenant`. A job's id is `customer/kind`.
///
/// # Errors
/// One line for each problem: file, line, column, and what was expected. At most twenty, and how many more there are.
pub fn read_jobs(
    name: &str,
    csv: impl Read,
    tenant: &str,
    now: DateTime<Utc>,
    zones: &Zones,
) -> Result<Vec<JobSpec>, Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(csv);
    let header =
        reader.headers().map_err(|e| vec![format!("{name}: the header cannot be read: {}", csv_problem(&e))])?;
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|column| !header.iter().any(|h| h == *column)).collect();
    if !missing.is_empty() {
        let hint = if header.len() == 1 { "; separate the columns by commas" } else { "" };
        return Err(vec![format!(
            "{name}, line 1: column {} is missing: the header must name {}{hint}",
            missing.join(", "),
            COLUMNS.join(",")
        )]);
    }
    if let Some(twice) =
        COLUMNS.iter().chain(&MORE_COLUMNS).find(|name| header.iter().filter(|h| h == *name).count() > 1)
    {
        return Err(vec![format!("{name}, line 1: column {twice} is there twice: leave one out")]);
    }
    let is_known = |column: &&str| COLUMNS.contains(column) || MORE_COLUMNS.contains(column);
    let unknown = header.iter().filter(|column| !is_known(column)).count();
    if unknown > 0 {
        let columns = if unknown == 1 { "column has an unknown name" } else { "columns have unknown names" };
        return Err(vec![format!(
            "{name}, line 1: {unknown} {columns}: allowed are {},{}",
            COLUMNS.join(","),
            MORE_COLUMNS.join(",")
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
        match job_of(Row::of(&header, &record), tenant, now, zones) {
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

fn job_of(row: Row, tenant: &str, now: DateTime<Utc>, zones: &Zones) -> Result<JobSpec, (&'static str, String)> {
    let key = key_of(tenant, &row.customer, &row.kind)?;
    check_number(&row.phone).map_err(|expected| ("phone", expected))?;
    let priority =
        row.priority.parse().map_err(|_| ("priority", "expected `urgent`, `normal` or `bulk`".to_owned()))?;
    let timetable = row
        .runs
        .read(&row.clock, &row.schedule, &row.customer, now, zones)
        .map_err(|problem| discreet(problem, &row.schedule))?;
    if row.template.contains("{{") || row.template.contains("{%") {
        return Err((
            "template",
            "holds a variable: write the finished text; only `jobs add` takes variables, by --var".into(),
        ));
    }
    let payload = Payload::sms(row.phone, row.template);
    payload
        .check_finished()
        .map_err(|e| ("template", format!("{e}; expected a finished text, such as `Your bill is due`")))?;
    let spec = JobSpec {
        key,
        name: None,
        schedule: timetable.schedule,
        anchor: timetable.anchor,
        priority,
        payload,
        retry: RetryRule::default(),
        spread: timetable.spread,
        missed: timetable.missed,
    };
    // What these say holds numbers of the timetable only.
    spec.check().map_err(|error| match &error {
        JobError::Spread(problem) => ("spread", problem.clone()),
        JobError::Missed(problem) => ("start_within", problem.clone()),
        _ => ("row", error.to_string()),
    })?;
    Ok(spec)
}

/// What to say of a timetable in a file: never what was found there.
fn discreet(problem: Problem, schedule: &str) -> (&'static str, String) {
    if !problem.quotes {
        return (problem.column, problem.text);
    }
    let expected = match problem.column {
        "schedule" => expected_schedule(schedule),
        "tz" => "expected an IANA name, such as `Asia/Kolkata`, or `UTC`".into(),
        "start_at" | "end_at" => "expected an instant or a wall time of the zone, such as `2026-12-05T09:00:00Z` or \
                                  `2026-12-05T09:00`, and start_at before end_at"
            .into(),
        "max_runs" => "expected a whole number from 1 on".into(),
        // Only intervals are left.
        _ => "expected an interval, such as `90s`, `30m` or `2h`".into(),
    };
    (problem.column, expected)
}

fn key_of(tenant: &str, customer: &str, kind: &str) -> Result<JobKey, (&'static str, String)> {
    let expected = |column, example| {
        let text = format!(
            "expected letters, digits and `._-`, at most 127 in customer and kind together, such as `{example}`"
        );
        (column, text)
    };
    JobKey::new(tenant, customer).map_err(|_| expected("customer", "c-10001"))?;
    JobKey::new(tenant, kind).map_err(|_| expected("kind", "bill"))?;
    JobKey::new(tenant, &format!("{customer}/{kind}")).map_err(|_| expected("customer", "c-10001"))
}

/// What to write in place of a schedule that cannot be read. Looks at its first word only.
fn expected_schedule(found: &str) -> String {
    match found.split_whitespace().next() {
        Some("at") => "expected an instant with whole seconds and an offset, such as `at 2026-12-05T09:00:00Z`, or a wall time \
                       of the zone, such as `at 2026-12-05T09:00`"
            .into(),
        Some("every") => format!(
            "expected an interval of at least {SHORTEST_INTERVAL_S}s, such as `every 24h` or `every 24h from \
             2026-12-05T09:00:00Z`"
        ),
        Some("cron") => {
            "expected five Unix cron fields that fire at some time, such as `cron 0 9 * * 1-5`; `punctual next --cron` says \
             what is wrong with an expression"
                .into()
        }
        _ => "expected `at 2026-12-05T09:00:00Z`, `every 24h`, `every 24h from 2026-12-05T09:00:00Z` or `cron 0 9 * * \
              1-5`"
            .into(),
    }
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Jobs made.
    pub created: u64,
    /// Jobs that were there already, the same.
    pub same: u64,
    /// Jobs that were there already with another content; left as they are.
    pub different: u64,
    /// Jobs whose schedules have no firing left; not made.
    pub over: Vec<JobKey>,
}

/// Makes the jobs; `done` is called after each.
///
/// # Errors
/// The first job that could not be stored, after several tries. Those before it are; importing again goes on from there.
pub async fn import(
    jobs: &dyn JobStore,
    clock: &dyn Clock,
    world: &Timetable<'_>,
    specs: Vec<JobSpec>,
    by: &str,
    done: impl Fn(),
) -> Result<ImportReport, crate::operations::OperationError> {
    let create = async |spec: JobSpec| {
        let key = spec.key.clone();
        create_missing_job(jobs, clock, world, spec, by).await.map(|created| (key, created))
    };
    let mut writes = stream::iter(specs.into_iter().map(create)).buffer_unordered(WRITES_AT_ONCE);
    let mut report = ImportReport::default();
    while let Some(created) = writes.next().await {
        let (key, created) = created?;
        match created {
            Created::New(_) => report.created += 1,
            Created::Same(_) | Created::Before(_) => report.same += 1,
            Created::Different => report.different += 1,
            Created::Over => report.over.push(key),
        }
        done();
    }
    Ok(report)
}

#[cfg(test)]
mod tests;

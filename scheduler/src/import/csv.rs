//! CSV files of reminders: one row, one job.
//!
//! Decides what a row says. Importing a file twice, or again after an interruption, makes each job once. An error says where
//! something is wrong and what was expected, never what was found.

use super::{Line, LineProblem, Seen};
use crate::timetable::{ClockText, Problem, RunText};
use chrono::{DateTime, Utc};
use punctual_core::job::{JobError, JobKey, JobSpec};
use punctual_core::payload::Payload;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::SHORTEST_INTERVAL_S;
use punctual_core::sms::check_number;
use punctual_core::zone::Zones;
use std::io::Read;

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

/// The jobs of a CSV file, row by row. A job's id is `customer/kind`.
pub struct CsvLines<'a> {
    reader: csv::Reader<Box<dyn Read + 'a>>,
    tenant: &'a str,
    now: DateTime<Utc>,
    zones: &'a Zones,
    header: Option<csv::StringRecord>,
    record: csv::StringRecord,
    seen: Seen,
    has_rows: bool,
    is_over: bool,
}

impl<'a> CsvLines<'a> {
    /// Jobs for `tenant`, made at `now`.
    pub fn new(csv: impl Read + 'a, tenant: &'a str, now: DateTime<Utc>, zones: &'a Zones) -> Self {
        let csv: Box<dyn Read + 'a> = Box::new(csv);
        CsvLines {
            reader: csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(csv),
            tenant,
            now,
            zones,
            header: None,
            record: csv::StringRecord::new(),
            seen: Seen::default(),
            has_rows: false,
            is_over: false,
        }
    }

    /// The last line: nothing below it can be read.
    fn end_by(&mut self, line: Line) -> Option<Line> {
        self.is_over = true;
        Some(line)
    }

    fn read_row(&mut self, header: &csv::StringRecord) -> Option<Line> {
        let line = self.reader.position().line();
        let read = self.reader.read_record(&mut self.record);
        let number = self.record.position().map_or(line, csv::Position::line);
        match read {
            Ok(false) => {
                self.is_over = true;
                let empty = LineProblem::plain("the file has no rows below its header");
                return (!self.has_rows).then(|| Line::refused(0, empty));
            }
            Err(error) => {
                self.has_rows = true;
                // What cannot be read now could not be read for ever.
                self.is_over = error.is_io_error();
                return Some(Line::refused(number, LineProblem::plain(csv_problem(&error))));
            }
            Ok(true) => self.has_rows = true,
        }
        let row = Row::of(header, &self.record);
        let read = job_of(row, self.tenant, self.now, self.zones)
            .map_err(|(column, problem)| LineProblem::in_column(column, problem));
        let read = read.and_then(|spec| match self.seen.first(spec.key.as_str(), number) {
            None => Ok(spec),
            Some(first) => Err(LineProblem::in_column(
                "customer",
                format!("customer and kind are the same as in line {first}: each pair names one job"),
            )),
        });
        let notes = read.as_ref().map(JobSpec::warnings).unwrap_or_default();
        Some(Line { number, read, notes, document: None })
    }
}

impl Iterator for CsvLines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        if self.is_over {
            return None;
        }
        let header = match self.header.take() {
            Some(header) => header,
            None => match self.reader.headers() {
                Err(error) => {
                    let problem = format!("the header cannot be read: {}", csv_problem(&error));
                    return self.end_by(Line::refused(0, LineProblem::plain(problem)));
                }
                Ok(header) => match check_header(header) {
                    Err(problem) => return self.end_by(Line::refused(1, LineProblem::plain(problem))),
                    Ok(()) => header.clone(),
                },
            },
        };
        let line = self.read_row(&header);
        self.header = Some(header);
        line
    }
}

/// Reads the jobs of a file named `name` for `tenant`, all of them or none.
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
    let (mut specs, mut problems, mut more) = (Vec::new(), Vec::new(), 0_u64);
    for line in CsvLines::new(csv, tenant, now, zones) {
        match line.problem(name) {
            Some(_) if problems.len() == PROBLEMS_SHOWN => more += 1,
            Some(problem) => problems.push(problem),
            None => specs.extend(line.read),
        }
    }
    if more > 0 {
        problems.push(format!("{name}: and {more} more"));
    }
    if problems.is_empty() { Ok(specs) } else { Err(problems) }
}

fn check_header(header: &csv::StringRecord) -> Result<(), String> {
    let missing: Vec<&str> = COLUMNS.into_iter().filter(|column| !header.iter().any(|h| h == *column)).collect();
    if !missing.is_empty() {
        let hint = if header.len() == 1 { "; separate the columns by commas" } else { "" };
        let (missing, all) = (missing.join(", "), COLUMNS.join(","));
        return Err(format!("column {missing} is missing: the header must name {all}{hint}"));
    }
    if let Some(twice) =
        COLUMNS.iter().chain(&MORE_COLUMNS).find(|name| header.iter().filter(|h| h == *name).count() > 1)
    {
        return Err(format!("column {twice} is there twice: leave one out"));
    }
    let is_known = |column: &&str| COLUMNS.contains(column) || MORE_COLUMNS.contains(column);
    let unknown = header.iter().filter(|column| !is_known(column)).count();
    if unknown > 0 {
        let columns = if unknown == 1 { "column has an unknown name" } else { "columns have unknown names" };
        return Err(format!("{unknown} {columns}: allowed are {},{}", COLUMNS.join(","), MORE_COLUMNS.join(",")));
    }
    Ok(())
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

#[cfg(test)]
mod tests;

//! The reminders of the demo: the rows of `reminders.csv`, repeated, each due at one given instant.

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use std::path::Path;

const REMINDERS: &str = include_str!("../../demo/reminders.csv");

/// Writes a file of `jobs` reminders, all due at `due_at`: intervals begin there, single instants are moved there.
pub(super) fn write_csv(path: &Path, jobs: usize, due_at: DateTime<Utc>) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_reader(REMINDERS.as_bytes());
    let header = reader.headers().context("the demo's own reminders have no header")?.clone();
    let rows = reader.records().collect::<Result<Vec<_>, _>>().context("the demo's own reminders cannot be read")?;
    let column =
        |name: &str| header.iter().position(|h| h == name).with_context(|| format!("column {name} is missing"));
    let (customer, schedule) = (column("customer")?, column("schedule")?);
    let due_at = due_at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut writer = csv::Writer::from_path(path)?;
    writer.write_record(&header)?;
    for n in 0..jobs {
        let (row, copy) = (&rows[n % rows.len()], n / rows.len());
        writer.write_record(row.iter().enumerate().map(|(index, field)| match index {
            i if i == customer && copy > 0 => format!("{field}.{copy:04}"),
            i if i == schedule && field.starts_with("at ") => format!("at {due_at}"),
            i if i == schedule => format!("{field} from {due_at}"),
            _ => field.to_owned(),
        }))?;
    }
    Ok(writer.flush()?)
}

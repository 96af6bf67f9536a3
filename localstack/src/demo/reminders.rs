//! The reminders of the demo: the rows of `reminders.csv`, repeated, each due at one given instant.
//!
//! The instant is written on the clock of every customer's zone, so that only an import that maps all of these clocks
//! back rightly makes all jobs due in the same second.

use anyhow::{Context, bail};
use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use punctual_core::zone::{Zones, parse_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

const REMINDERS: &str = include_str!("../../demo/reminders.csv");

/// A row of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Reminder {
    customer: String,
    phone: String,
    kind: String,
    priority: String,
    schedule: String,
    tz: String,
    missed: String,
    template: String,
}

/// When `jobs` reminders that are imported from `now` on are due: after the import, even on a slow machine (a job made
/// after its instant would fire a day later), and on a whole minute, because cron knows nothing shorter.
pub(super) fn due_at(now: DateTime<Utc>, jobs: u64) -> DateTime<Utc> {
    let earliest = now + TimeDelta::seconds(10 + jobs as i64 / 800);
    earliest.duration_round_up(TimeDelta::minutes(1)).expect("the time of the clock is in the range of nanoseconds")
}

/// Writes a file of `jobs` reminders, all due at `due_at`; returns how many zones their customers live in.
pub(super) fn write_csv(path: &Path, jobs: usize, due_at: DateTime<Utc>, zones: &Zones) -> anyhow::Result<u64> {
    let rows = all_due_at(due_at, zones)?;
    let mut writer = csv::Writer::from_path(path)?;
    for n in 0..jobs {
        let (row, copy) = (&rows[n % rows.len()], n / rows.len());
        let customer = if copy > 0 { format!("{}.{copy:04}", row.customer) } else { row.customer.clone() };
        writer.serialize(Reminder { customer, ..row.clone() })?;
    }
    writer.flush()?;
    let zones: BTreeSet<&str> = rows.iter().take(jobs).map(|row| row.tz.as_str()).collect();
    Ok(zones.len() as u64)
}

/// The rows of the demo's file, each moved to `due_at`.
fn all_due_at(due_at: DateTime<Utc>, zones: &Zones) -> anyhow::Result<Vec<Reminder>> {
    let mut rows: Vec<Reminder> = csv::Reader::from_reader(REMINDERS.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .context("the demo's own reminders cannot be read")?;
    for row in &mut rows {
        row.schedule = schedule_due_at(&row.schedule, &row.tz, due_at, zones)?;
        // Of many jobs the last are dispatched more than two minutes late, which counts as missed: a customer who wants
        // nothing that was missed would get nothing, and the demo counts what arrives.
        if row.missed == "none" {
            row.missed = "latest".to_owned();
        }
    }
    Ok(rows)
}

/// A schedule of the same kind that is first due at `due_at`: what is written on the clock of the zone `tz` stays so.
fn schedule_due_at(schedule: &str, tz: &str, due_at: DateTime<Utc>, zones: &Zones) -> anyhow::Result<String> {
    let tz = parse_name(tz).map_err(anyhow::Error::msg)?;
    let wall = zones.wall(tz, due_at);
    let instant = due_at.to_rfc3339_opts(SecondsFormat::Secs, true);
    // In the night on which it is put back, the clock shows some times twice, and what is written on it is due the first
    // time: an hour too early, or not before tomorrow. Only an instant says which of the two is meant.
    let is_shown_once = zones.timeline(tz).instants_of(wall.and_utc().timestamp()).len() == 1;
    let kind = schedule.split(' ').next().unwrap_or_default();
    Ok(match kind {
        "cron" if is_shown_once => wall.format("cron %-M %-H * * *").to_string(),
        "cron" => format!("every 24h from {instant}"),
        "at" if is_shown_once && !schedule.ends_with('Z') => wall.format("at %Y-%m-%dT%H:%M:%S").to_string(),
        "at" => format!("at {instant}"),
        "every" => format!("{schedule} from {instant}"),
        _ => bail!("the demo's own reminders have a schedule that begins with `{kind}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::schedule::ScheduleText;

    fn instant(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// When a schedule is first due that is read and begun at `now`.
    fn first(schedule: &str, tz: &str, now: DateTime<Utc>, zones: &Zones) -> DateTime<Utc> {
        let text = ScheduleText { when: schedule, tz: Some(tz), ..ScheduleText::default() };
        let (schedule, _) = text.read(now, zones).unwrap();
        schedule.first(now, zones).unwrap().at
    }

    fn moved(schedule: &str, tz: &str, due_at: &str) -> String {
        schedule_due_at(schedule, tz, instant(due_at), &Zones::embedded()).unwrap()
    }

    /// Instants of every kind, most of them in nights on which clocks are changed.
    const INSTANTS: [&str; 14] = [
        "2026-06-30T09:00:00Z",
        "2026-12-31T23:59:00Z",
        "2028-02-29T00:00:00Z",
        "2026-10-25T00:30:00Z", // London, Paris, Berlin: the first pass
        "2026-10-25T01:00:00Z", // the change itself
        "2026-10-25T01:30:00Z", // London: the second pass
        "2026-11-01T05:30:00Z", // New York: the first pass
        "2026-11-01T06:30:00Z", // the second pass
        "2027-03-14T07:00:00Z", // New York: right after the gap
        "2027-03-28T01:00:00Z", // London: right after the gap
        "2027-04-03T14:45:00Z", // Lord Howe, put back by half an hour: the first pass
        "2027-04-03T15:15:00Z", // the second pass
        "2027-04-03T14:15:00Z", // Chatham, three quarters past: the second pass
        "2027-10-02T15:30:00Z", // Lord Howe: right after the gap
    ];

    #[test]
    fn every_reminder_is_first_due_at_the_given_instant_on_whatever_clock() {
        let zones = Zones::embedded();
        for due_at in INSTANTS.map(instant) {
            let rows = all_due_at(due_at, &zones).unwrap();
            // An import begins so many seconds before: that of as many as the demo takes, of a few, and of one row late.
            for lead_s in [22 * 60, 10, 1] {
                for row in &rows {
                    let found = first(&row.schedule, &row.tz, due_at - TimeDelta::seconds(lead_s), &zones);
                    assert_eq!(found, due_at, "{} in {}, read {lead_s} s before", row.schedule, row.tz);
                }
            }
        }
    }

    #[test]
    fn a_schedule_keeps_its_kind() {
        let due_at = "2027-03-04T09:00:00Z";
        for (schedule, tz, expected) in [
            ("cron 0 9 5 * *", "Asia/Kathmandu", "cron 45 14 * * *"),
            ("cron 0 9 L * *", "America/St_Johns", "cron 30 5 * * *"),
            ("at 2027-01-01T08:00", "Australia/Lord_Howe", "at 2027-03-04T20:00:00"),
            ("at 2027-01-01T08:00", "Pacific/Honolulu", "at 2027-03-03T23:00:00"),
            ("at 2027-01-01T08:00:00Z", "Asia/Tokyo", "at 2027-03-04T09:00:00Z"),
            ("every 24h", "Asia/Tokyo", "every 24h from 2027-03-04T09:00:00Z"),
        ] {
            assert_eq!(moved(schedule, tz, due_at), expected);
        }
    }

    #[test]
    fn a_wall_time_that_exists_twice_is_written_as_an_instant() {
        for due_at in ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"] {
            assert_eq!(moved("cron 0 9 * * *", "Europe/London", due_at), format!("every 24h from {due_at}"));
            assert_eq!(moved("at 2027-01-01T08:00", "Europe/London", due_at), format!("at {due_at}"));
            assert!(
                moved("cron 0 9 * * *", "Asia/Tokyo", due_at).starts_with("cron "),
                "Tokyo's clock is not put back"
            );
        }
        // What would be due instead of the second pass, were it written on the clock.
        let now = instant("2026-10-25T01:20:00Z");
        let on_the_clock = |schedule| first(schedule, "Europe/London", now, &Zones::embedded());
        assert_eq!(on_the_clock("at 2026-10-25T01:30:00"), instant("2026-10-25T00:30:00Z"));
        assert_eq!(on_the_clock("cron 30 1 * * *"), instant("2026-10-26T01:30:00Z"));
    }

    #[test]
    fn reminders_are_due_on_a_whole_minute_that_leaves_time_for_their_import() {
        for (now, jobs, expected) in [
            ("2026-12-05T09:00:00Z", 1, "2026-12-05T09:01:00Z"),
            ("2026-12-05T09:00:50Z", 799, "2026-12-05T09:01:00Z"),
            ("2026-12-05T09:00:50.001Z", 799, "2026-12-05T09:02:00Z"),
            ("2026-12-05T09:00:50Z", 800, "2026-12-05T09:02:00Z"),
            ("2026-12-05T09:00:00Z", 80_000, "2026-12-05T09:02:00Z"),
        ] {
            assert_eq!(due_at(instant(now), jobs), instant(expected), "{jobs} from {now}");
        }
    }

    #[test]
    fn rows_are_repeated_for_other_customers_and_none_is_left_out_when_it_comes_late() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reminders.csv");
        let due_at = instant("2027-03-04T09:00:00Z");
        let all = write_csv(&path, 450, due_at, &Zones::embedded()).unwrap();
        let rows: Vec<Reminder> =
            csv::Reader::from_path(&path).unwrap().deserialize().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), 450);
        let jobs: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row.customer.as_str(), row.kind.as_str())).collect();
        assert_eq!(jobs.len(), 450);
        assert!(rows.iter().all(|row| row.missed != "none"));
        assert_eq!(all, rows.iter().map(|row| &row.tz).collect::<BTreeSet<_>>().len() as u64);
        assert_eq!(write_csv(&path, 1, due_at, &Zones::embedded()).unwrap(), 1, "one customer, one zone");
    }
}

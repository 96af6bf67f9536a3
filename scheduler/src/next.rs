//! `punctual next`: what will happen, before it happens. Needs no server.

use crate::listing::{instant, lines, table};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::schedule::{Line, Mark, Pass, Schedule, preview};
use punctual_core::spread::Spread;
use punctual_core::zone::Zones;
use serde_json::{Value, json};
use std::str::FromStr;

/// How firings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One instant a line, and nothing else.
    Lines,
    /// For people.
    Table,
    /// One JSON object a line.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lines" => Ok(Format::Lines),
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            _ => Err("a format is `lines`, `table` or `json`".into()),
        }
    }
}

/// The next `count` firings after `after`, as text; empty when there are none.
pub fn show(
    schedule: &Schedule,
    spread: Option<&Spread>,
    after: DateTime<Utc>,
    count: usize,
    format: Format,
    zones: &Zones,
) -> String {
    let offset = spread.map_or(TimeDelta::zero(), Spread::offset);
    let shown = preview(schedule, after, count, zones);
    if shown.is_empty() {
        return String::new();
    }
    match format {
        Format::Lines => {
            let due = shown.iter().filter_map(|line| line.at).map(|at| instant(at + offset));
            due.collect::<Vec<_>>().join("\n")
        }
        Format::Json => lines(json(schedule, spread, after, count, zones).into_iter()),
        Format::Table => {
            let mut header = vec!["local time", "UTC"];
            header.extend(spread.map(|_| "due, UTC"));
            header.push("");
            let mut table = table(&header);
            for line in &shown {
                let mut row = vec![
                    match line.at {
                        Some(at) => local(schedule, at, zones).format("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
                        None => line.wall.format("%a %Y-%m-%d %H:%M:%S").to_string(),
                    },
                    line.at.map_or_else(|| "-".into(), instant),
                ];
                row.extend(spread.map(|_| line.at.map_or_else(|| "-".into(), |at| instant(at + offset))));
                row.push(line.mark.map(|mark| note(line, mark)).unwrap_or_default());
                table.add_row(row);
            }
            format!("{schedule}\n\n{table}")
        }
    }
}

/// The same for programs, one object a line of the preview.
pub fn json(
    schedule: &Schedule,
    spread: Option<&Spread>,
    after: DateTime<Utc>,
    count: usize,
    zones: &Zones,
) -> Vec<Value> {
    let offset = spread.map_or(TimeDelta::zero(), Spread::offset);
    let shown = preview(schedule, after, count, zones);
    let line = |line: &Line| {
        let (mark, count) = line.mark.map(mark_word).unzip();
        json!({
            "scheduled_at": line.at.map(instant), "due_at": line.at.map(|at| instant(at + offset)),
            "local": line.at.map(|at| local(schedule, at, zones).to_rfc3339()),
            "wall": line.wall.format("%Y-%m-%dT%H:%M:%S").to_string(), "mark": mark, "count": count.flatten(),
        })
    };
    shown.iter().map(line).collect()
}

fn local(schedule: &Schedule, at: DateTime<Utc>, zones: &Zones) -> DateTime<chrono::FixedOffset> {
    let seconds = (zones.wall(schedule.tz, at) - at.naive_utc()).num_seconds();
    let ahead = i32::try_from(seconds).ok().and_then(chrono::FixedOffset::east_opt);
    at.with_timezone(&ahead.expect("no clock is a day ahead of UTC"))
}

fn mark_word(mark: Mark) -> (&'static str, Option<usize>) {
    match mark {
        Mark::Moved { together } => ("moved", Some(together + 1)),
        Mark::Dropped { count } => ("dropped", Some(count)),
        Mark::Once(Pass::First) => ("repeated_first_only", None),
        Mark::Once(Pass::Second) => ("repeated_second_only", None),
        Mark::Twice(Pass::First) => ("repeated_first", None),
        Mark::Twice(Pass::Second) => ("repeated_second", None),
    }
}

fn note(line: &Line, mark: Mark) -> String {
    let wall = line.wall.format("%H:%M");
    match mark {
        Mark::Moved { together: 0 } => format!("moved: the clock skips {wall}"),
        Mark::Moved { together } => format!("moved: the clock skips {wall}; {together} more fall together with it"),
        Mark::Dropped { count: 1 } => format!("dropped: the clock skips {wall}"),
        Mark::Dropped { count } => format!("dropped: the clock skips {wall} and {} more", count - 1),
        Mark::Once(Pass::First) => {
            format!("repeated: the clock shows {wall} twice, this is the first; the second is left out")
        }
        Mark::Once(Pass::Second) => {
            format!("repeated: the clock shows {wall} twice, this is the second; the first is left out")
        }
        Mark::Twice(Pass::First) => format!("repeated: the clock shows {wall} twice, this is the first"),
        Mark::Twice(Pass::Second) => format!("repeated: the clock shows {wall} twice, this is the second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::schedule::ScheduleText;

    fn shown(text: ScheduleText<'_>, after: &str, count: usize, format: Format) -> String {
        let (zones, after) = (Zones::embedded(), after.parse().unwrap());
        let (schedule, _) = text.read(after, &zones).unwrap();
        show(&schedule, None, after, count, format, &zones)
    }

    fn in_new_york(when: &str) -> ScheduleText<'_> {
        ScheduleText { when, tz: Some("America/New_York"), ..ScheduleText::default() }
    }

    #[test]
    fn lines_are_instants_and_nothing_else() {
        let found = shown(in_new_york("cron 30 2 * * *"), "2026-03-08T06:00:00Z", 2, Format::Lines);
        assert_eq!(found, "2026-03-08T07:00:00Z\n2026-03-09T06:30:00Z");
        assert_eq!(shown(in_new_york("at 2026-03-08T02:30"), "2027-01-01T00:00:00Z", 2, Format::Lines), "");
    }

    #[test]
    fn a_table_shows_both_clocks_and_says_what_a_clock_change_does() {
        let found = shown(in_new_york("cron 30 2 * * *"), "2026-03-08T06:00:00Z", 1, Format::Table);
        assert!(found.starts_with("cron 30 2 * * *, America/New_York\n"), "{found}");
        assert!(found.contains("Sun 2026-03-08 03:00:00 -04:00"), "{found}");
        assert!(found.contains("2026-03-08T07:00:00Z"), "{found}");
        assert!(found.contains("moved: the clock skips 02:30"), "{found}");
        let found = shown(in_new_york("cron */15 * * * *"), "2026-03-08T06:45:00Z", 1, Format::Table);
        assert!(found.contains("dropped: the clock skips 02:00 and 3 more"), "{found}");
        let found = shown(in_new_york("cron 30 1 * * *"), "2026-11-01T00:00:00Z", 1, Format::Table);
        assert!(found.contains("shows 01:30 twice, this is the first; the second is left out"), "{found}");
    }

    #[test]
    fn json_says_the_same() {
        let found = shown(in_new_york("cron 30 2 * * *"), "2026-03-08T06:00:00Z", 1, Format::Json);
        let line: serde_json::Value = serde_json::from_str(&found).unwrap();
        assert_eq!(line["scheduled_at"], "2026-03-08T07:00:00Z");
        assert_eq!(line["local"], "2026-03-08T03:00:00-04:00");
        assert_eq!((&line["wall"], &line["mark"]), (&"2026-03-08T02:30:00".into(), &"moved".into()));
    }

    #[test]
    fn a_spread_firing_is_shown_when_it_is_due() {
        let (zones, after) = (Zones::embedded(), "2026-12-05T00:00:00Z".parse().unwrap());
        let text = ScheduleText { when: "cron 0 9 * * *", ..ScheduleText::default() };
        let (schedule, _) = text.read(after, &zones).unwrap();
        let spread = Spread { key: "c-10001".into(), window_s: 1_800 };
        let of = |format| show(&schedule, Some(&spread), after, 1, format, &zones);
        assert_eq!(of(Format::Lines), "2026-12-05T09:19:31Z");
        assert!(
            of(Format::Table).contains("2026-12-05T09:00:00Z") && of(Format::Table).contains("2026-12-05T09:19:31Z")
        );
    }
}

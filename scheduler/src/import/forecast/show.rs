//! A forecast as text for a terminal, and as JSON for programs.
//!
//! Decides what is shown of a forecast: readable without colour, as wide as it is told. Times are UTC.

use super::{Advice, Forecast, MINUTES, Peak};
use crate::cost::figure;
use crate::listing::instant;
use chrono::{DateTime, TimeDelta, Timelike, Utc};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Peaks shown to people.
const PEAKS_SHOWN: usize = 5;
/// Columns beside a bar: a time, a count, a mark, and the blanks between them.
const BESIDE_BAR: usize = 20;
/// The shortest bar.
const SHORTEST_BAR: usize = 10;
/// Minutes shown one by one around a peak: before it, and from it on.
const AROUND: (i64, i64) = (30, 90);

/// Minutes that are shown as one line.
struct Row {
    at: DateTime<Utc>,
    due: u64,
    is_over: bool,
}

impl Forecast<'_> {
    /// One bar an hour, and one a quarter of an hour around the longest peak. `!` marks where a limit is exceeded or something
    /// still waits. Not wider than `width`, but 30 columns at least.
    pub fn chart(&self, width: usize) -> String {
        self.chart_of(width, &self.peaks())
    }

    /// All of it, for people.
    pub fn text(&self, width: usize) -> String {
        let peaks = self.peaks();
        let due: u64 = self.all.iter().sum();
        let from = self.from.format("%Y-%m-%d %H:%M");
        let there = match self.there {
            0 => String::new(),
            there => format!(" and {} that are there", count(there)),
        };
        let mut text = format!(
            "{} jobs{there}; {} runs fall due in the 24 hours from {from} UTC on\n",
            count(self.jobs),
            count(due)
        );
        if due > 0 {
            text += &format!("\n{}\n", self.chart_of(width, &peaks));
        }
        for peak in peaks.iter().take(PEAKS_SHOWN) {
            text += &format!("\n! {peak}");
        }
        match peaks.len().saturating_sub(PEAKS_SHOWN) {
            0 if peaks.is_empty() && self.limited.is_empty() => text += "\nnone of their targets has a limit",
            0 if peaks.is_empty() => text += "\nno limit is exceeded",
            0 => {}
            1 => text += "\n  and 1 shorter peak",
            more => text += &format!("\n  and {more} shorter peaks"),
        }
        text
    }

    /// All of it, for programs.
    pub fn json(&self) -> Value {
        let peaks = self.peaks();
        let hours = self.rows(&peaks, 60, 0..MINUTES);
        let hours = hours.iter().map(|row| json!({"at": instant(row.at), "due": row.due, "over_limit": row.is_over}));
        let limited = self.limited.iter().map(|(target, series)| {
            json!({"target": target.as_str(), "limit_per_s": series.limit_per_s, "due": series.due.iter().sum::<u64>()})
        });
        let peaks = peaks.iter().map(|peak| {
            let (advice, spread_min) = match peak.advice {
                Advice::Spread(minutes) => ("spread", Some(minutes)),
                Advice::Move => ("move", None),
                Advice::Nothing => ("none", None),
            };
            json!({
                "target": peak.target.as_str(), "limit_per_s": peak.limit_per_s, "at": instant(peak.at), "due": peak.due,
                "begins_at": instant(peak.begins_at), "total": peak.total, "takes_s": peak.takes_s,
                "advice": advice, "spread_min": spread_min,
            })
        });
        json!({
            "from": instant(self.from), "jobs": self.jobs, "there": self.there, "due": self.all.iter().sum::<u64>(),
            "hours": hours.collect::<Vec<_>>(), "limited": limited.collect::<Vec<_>>(), "unlimited": self.unlimited,
            "peaks": peaks.collect::<Vec<_>>(),
        })
    }

    fn chart_of(&self, width: usize, peaks: &[Peak]) -> String {
        let hours = bars(&self.rows(peaks, 60, 0..MINUTES), width);
        let Some(longest) = peaks.first() else { return hours };
        let worst = (longest.at - self.from).num_minutes();
        let place = |minutes: i64| usize::try_from(minutes).unwrap_or(0).min(MINUTES);
        // From a whole quarter of an hour on.
        let first = worst - AROUND.0 - i64::from((longest.at - TimeDelta::minutes(AROUND.0)).minute() % 15);
        let quarters = self.rows(peaks, 15, place(first)..place(first + AROUND.0 + AROUND.1));
        let name = format!("around {}, {}", longest.at.format("%H:%M"), longest.target);
        let name: String = name.chars().take(width.max(BESIDE_BAR)).collect();
        format!("{hours}\n\n{name}\n{}", bars(&quarters, width))
    }

    /// Minutes put together by hours or parts of them, as clocks show them.
    fn rows(&self, peaks: &[Peak], minutes: u32, of: std::ops::Range<usize>) -> Vec<Row> {
        let ends = |peak: &Peak| peak.begins_at + TimeDelta::seconds(peak.takes_s as i64);
        let mut rows: BTreeMap<i64, Row> = BTreeMap::new();
        for minute in of {
            let at = self.minute(minute);
            let is_over = peaks.iter().any(|peak| peak.begins_at <= at && at < ends(peak));
            let place = at.timestamp().div_euclid(i64::from(minutes) * 60);
            let row = rows.entry(place).or_insert(Row { at, due: 0, is_over: false });
            row.due += self.all[minute];
            row.is_over |= is_over;
        }
        rows.into_values().collect()
    }
}

fn bars(rows: &[Row], width: usize) -> String {
    let most = rows.iter().map(|row| row.due).max().unwrap_or_default().max(1);
    let longest = width.saturating_sub(BESIDE_BAR).max(SHORTEST_BAR);
    let line = |row: &Row| {
        let bar = (u128::from(row.due) * longest as u128).div_ceil(u128::from(most)) as usize;
        let mark = if row.is_over { '!' } else { ' ' };
        let line = format!("{} {:>11} {mark} {}", row.at.format("%H:%M"), count(row.due), "#".repeat(bar));
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl std::fmt::Display for Peak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} holds {}", self.target, self.at.format("%H:%M"), count(self.due))?;
        if self.total > self.due {
            write!(f, ", and {} more fall due before all are sent", count(self.total - self.due))?;
        }
        write!(f, ": {} at {}/s", duration(self.takes_s), self.limit_per_s)?;
        match self.advice {
            Advice::Spread(minutes) => write!(f, "; spread over {minutes} min?"),
            Advice::Move => f.write_str("; no spread window is enough: move some to other times?"),
            Advice::Nothing => Ok(()),
        }
    }
}

fn count(number: u64) -> String {
    figure(number as f64)
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{:.1} min", seconds as f64 / 60.0),
        _ => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

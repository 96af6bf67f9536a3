//! Schedules as people write them, in files and on command lines.

use super::dialects;
use super::{
    CronExpression, DstGap, DstRepeat, Firing, LONGEST_CRON_BYTES, Schedule, ScheduleError, Timing, whole_second,
};
use crate::zone::{self, Zones};
use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use std::fmt;
use std::str::FromStr;

/// Whether a text states the anchor of its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anchor {
    /// It does, or its schedule needs none.
    #[default]
    Stated,
    /// It does not: the anchor follows from when it was read, so the same text read later has another one.
    Implied,
}

/// A schedule as written.
#[derive(Clone, Debug, Default)]
pub struct ScheduleText<'a> {
    /// `at MOMENT`, `every INTERVAL [from MOMENT]` or `cron FIVE FIELDS`; a moment is an instant or a wall time.
    pub when: &'a str,
    /// Name of the zone; UTC by default.
    pub tz: Option<&'a str>,
    /// What becomes of wall times in a gap.
    pub dst_gap: DstGap,
    /// What becomes of wall times in an overlap.
    pub dst_repeat: DstRepeat,
    /// The first moment at which it may fire.
    pub start_at: Option<&'a str>,
    /// The last moment at which it may fire.
    pub end_at: Option<&'a str>,
    /// How many firings there are in all.
    pub max_runs: Option<u32>,
    /// What chooses the values of hashed cron fields.
    pub key: Option<&'a str>,
}

impl ScheduleText<'_> {
    /// Reads it, and says whether it states the anchor of its interval. An interval without one is counted from `start_at`,
    /// or else starts one interval after `now`.
    ///
    /// # Errors
    /// Says what was found and what to write instead.
    pub fn read(&self, now: DateTime<Utc>, zones: &Zones) -> Result<(Schedule, Anchor), ScheduleError> {
        let tz = match self.tz {
            Some(name) => zone::parse_name(name).map_err(|problem| ScheduleError { part: "tz", problem })?,
            None => Tz::UTC,
        };
        let bound = |part, text: Option<&str>| {
            let moment = text.map(|text| parse_moment(text, tz, zones)).transpose();
            moment.map_err(|error| ScheduleError { part, ..error })
        };
        let mut schedule = Schedule {
            timing: Timing::At(now),
            tz,
            dst_gap: self.dst_gap,
            dst_repeat: self.dst_repeat,
            start_at: bound("start_at", self.start_at)?,
            end_at: bound("end_at", self.end_at)?,
            max_runs: self.max_runs,
        };
        let text = self.when.trim();
        let (kind, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let mut anchored = Anchor::Stated;
        schedule.timing = match kind {
            "at" => match parse_wall(rest) {
                Some(wall) => Timing::AtLocal(wall),
                None => Timing::At(parse_moment(rest, tz, zones)?),
            },
            "every" => {
                let (interval, from) = match rest.split_once(" from ") {
                    Some((interval, from)) => (interval, Some(parse_moment(from.trim(), tz, zones)?)),
                    None => (rest, None),
                };
                let interval_s = parse_interval(interval.trim())?;
                let anchor = match from.or(schedule.start_at) {
                    Some(anchor) => anchor,
                    None => {
                        anchored = Anchor::Implied;
                        let first = TimeDelta::try_seconds(interval_s)
                            .and_then(|interval| whole_second(now).checked_add_signed(interval));
                        first.ok_or_else(|| {
                            ScheduleError::in_schedule(format!("an interval of {interval_s}s is too long"))
                        })?
                    }
                };
                Timing::Every { interval_s, anchor }
            }
            "cron" => Timing::Cron(CronExpression::read(rest, self.key)?),
            _ => return Err(ScheduleError::in_schedule(no_schedule(text))),
        };
        schedule.check()?;
        Ok((schedule, anchored))
    }
}

impl Schedule {
    /// Reads a schedule in UTC.
    ///
    /// # Errors
    /// As [`ScheduleText::read`].
    #[cfg(any(test, feature = "test-util"))]
    pub fn parse(text: &str, now: DateTime<Utc>) -> Result<Self, ScheduleError> {
        ScheduleText { when: text, ..ScheduleText::default() }
            .read(now, &Zones::embedded())
            .map(|(schedule, _)| schedule)
    }
}

/// Reads an instant (RFC 3339), or a wall time on the clock of `tz`: in a gap the instant after it, in an overlap the
/// first of the two.
///
/// # Errors
/// Says what either looks like.
pub fn parse_moment(text: &str, tz: Tz, zones: &Zones) -> Result<DateTime<Utc>, ScheduleError> {
    if let Some(wall) = parse_wall(text) {
        let schedule = Schedule { tz, ..Schedule::utc(Timing::AtLocal(wall)) };
        let first: Option<Firing> = schedule.next_after(DateTime::<Utc>::MIN_UTC, zones);
        return first.map(|firing| firing.at).ok_or_else(|| no_moment(text));
    }
    DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc)).map_err(|_| no_moment(text))
}

/// Reads an RFC 3339 instant.
///
/// # Errors
/// Says what an instant looks like.
pub fn parse_instant(text: &str) -> Result<DateTime<Utc>, ScheduleError> {
    DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc)).map_err(|_| {
        ScheduleError::in_schedule(format!(
            "`{}` is not an instant: write date, time and offset as in `2026-12-05T09:00:00Z`",
            shorten(text)
        ))
    })
}

fn no_schedule(text: &str) -> String {
    let shown = shorten(text);
    let is_cron = |text: &str| CronExpression::read(text, Some("any")).is_ok();
    if is_cron(text) {
        return format!("`{shown}` lacks the word before it: write `cron {shown}`");
    }
    if text.starts_with("cron(") && text.len() <= LONGEST_CRON_BYTES {
        return dialects::count_advice(text, &[]);
    }
    if text.starts_with("rate(") {
        return format!("`{shown}` is another service's form: write an interval such as `every 5m`");
    }
    format!(
        "`{shown}` is not a schedule: write `at 2026-12-05T09:00`, `every 24h`, `every 24h from 2026-12-05T09:00:00Z` or \
         `cron 0 9 * * *`"
    )
}

fn no_moment(text: &str) -> ScheduleError {
    ScheduleError::in_schedule(format!(
        "`{}` is no moment: write an instant with its offset as in `2026-12-05T09:00:00Z`, or a wall time of the zone as in \
         `2026-12-05T09:00`",
        shorten(text)
    ))
}

fn parse_wall(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"].iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
}

/// Reads `90s`, `15m`, `24h`, `7d` as seconds.
///
/// # Errors
/// Says what an interval looks like.
pub fn parse_interval(text: &str) -> Result<i64, ScheduleError> {
    let refused = || {
        ScheduleError::in_schedule(format!("`{}` is not an interval: write `90s`, `15m`, `24h` or `7d`", shorten(text)))
    };
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => return Err(refused()),
    };
    let number = &text[..text.len() - 1];
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refused());
    }
    number.parse::<i64>().ok().and_then(|n| n.checked_mul(unit)).filter(|s| *s > 0).ok_or_else(refused)
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(60).chain(['…']).collect() }
}

impl FromStr for DstGap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "next-valid" => Ok(DstGap::NextValid),
            "skip" => Ok(DstGap::Skip),
            _ => Err("a rule for a wall time that does not exist is `next-valid` or `skip`".into()),
        }
    }
}

impl fmt::Display for DstGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DstGap::NextValid => "next-valid",
            DstGap::Skip => "skip",
        })
    }
}

impl FromStr for DstRepeat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "first" => Ok(DstRepeat::First),
            "second" => Ok(DstRepeat::Second),
            "both" => Ok(DstRepeat::Both),
            _ => Err("a rule for a wall time that exists twice is `first`, `second` or `both`".into()),
        }
    }
}

impl fmt::Display for DstRepeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DstRepeat::First => "first",
            DstRepeat::Second => "second",
            DstRepeat::Both => "both",
        })
    }
}

//! Step 1, *job*: the timetable of a job and its arithmetic. The only importer of `cron`.
//!
//! A schedule is evaluated from the nominal time, never from the time a run completed, so that it does not drift. Three
//! kinds exist: one instant (`at`), a fixed interval anchored to its first due time (`every`), and five-field Unix cron
//! in UTC. `cron` counts weekdays from Sunday = 1, takes a seconds field and ANDs day-of-month with day-of-week, so the
//! five fields are parsed here and handed to it as explicit lists of numbers.

mod fields;

use chrono::{DateTime, TimeDelta, Utc};
use fields::Fields;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The shortest interval of an `every` schedule: the due index has a resolution of seconds, a bucket is a minute.
pub const SHORTEST_INTERVAL_S: i64 = 60;

/// The longest cron expression that is read.
pub const LONGEST_CRON_BYTES: usize = 256;

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Once, at this instant (whole seconds).
    At(DateTime<Utc>),
    /// Again and again, `interval_s` seconds apart, counted from `anchor`.
    Every {
        /// Seconds between two firings.
        interval_s: i64,
        /// The first firing; all others are whole intervals away from it.
        anchor: DateTime<Utc>,
    },
    /// Five-field Unix cron, evaluated in UTC.
    Cron(CronExpression),
}

/// Whether a text states the anchor of its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anchor {
    /// It does, or its schedule needs none.
    #[default]
    Stated,
    /// It does not: the anchor follows from when it was read, so the same text read later has another one.
    Implied,
}

/// Why a schedule cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(pub String);

impl Schedule {
    /// The first firing strictly after `after`, or none when the schedule is over.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Schedule::At(at) => (*at > after).then_some(*at),
            Schedule::Every { interval_s, anchor } => {
                if after < *anchor {
                    return Some(*anchor);
                }
                let passed = (after - anchor).num_seconds() / interval_s + 1;
                anchor.checked_add_signed(TimeDelta::try_seconds(passed.checked_mul(*interval_s)?)?)
            }
            Schedule::Cron(cron) => cron.next_after(after),
        }
    }

    /// The first firing of a job made at `now`: an `at` in the past is due at once, everything else lies ahead.
    pub fn first(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Schedule::At(at) => Some(*at),
            Schedule::Every { anchor, .. } if *anchor >= now => Some(*anchor),
            _ => self.next_after(now),
        }
    }

    /// Checks what the type alone cannot: whole seconds, and an interval in range.
    ///
    /// # Errors
    /// Names the value and what is allowed.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let whole = |at: &DateTime<Utc>, what: &str| {
            if at.timestamp_subsec_nanos() != 0 {
                return Err(ScheduleError(format!("{what} {at:?} has a fraction of a second: write whole seconds")));
            }
            Ok(())
        };
        match self {
            Schedule::At(at) => whole(at, "the instant"),
            Schedule::Every { interval_s, anchor } => {
                whole(anchor, "the anchor")?;
                if *interval_s < SHORTEST_INTERVAL_S {
                    return Err(ScheduleError(format!(
                        "an interval of {interval_s}s is too short: the shortest is {SHORTEST_INTERVAL_S}s"
                    )));
                }
                Ok(())
            }
            Schedule::Cron(_) => Ok(()),
        }
    }

    /// Reads the text form of a file or a command line: `at INSTANT`, `every INTERVAL [from INSTANT]`,
    /// `cron FIVE FIELDS`. An interval without an anchor starts one interval after `now`.
    ///
    /// # Errors
    /// Says what was found and what to write instead.
    pub fn parse(text: &str, now: DateTime<Utc>) -> Result<Self, ScheduleError> {
        Self::parse_with_anchor(text, now).map(|(schedule, _)| schedule)
    }

    /// The same, and whether the text states the anchor.
    ///
    /// # Errors
    /// Says what was found and what to write instead.
    pub fn parse_with_anchor(text: &str, now: DateTime<Utc>) -> Result<(Self, Anchor), ScheduleError> {
        let text = text.trim();
        let (kind, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let mut anchored = Anchor::Stated;
        let schedule = match kind {
            "at" => Schedule::At(parse_instant(rest)?),
            "every" => {
                let (interval, anchor) = match rest.split_once(" from ") {
                    Some((interval, anchor)) => (interval, Some(parse_instant(anchor.trim())?)),
                    None => (rest, None),
                };
                let interval_s = parse_interval(interval.trim())?;
                let anchor = match anchor {
                    Some(anchor) => anchor,
                    None => {
                        anchored = Anchor::Implied;
                        TimeDelta::try_seconds(interval_s)
                            .and_then(|interval| whole_second(now).checked_add_signed(interval))
                            .ok_or_else(|| ScheduleError(format!("an interval of {interval_s}s is too long")))?
                    }
                };
                Schedule::Every { interval_s, anchor }
            }
            "cron" => Schedule::Cron(rest.parse()?),
            _ => {
                return Err(ScheduleError(format!(
                    "`{}` is not a schedule: write `at 2026-12-05T09:00:00Z`, `every 24h`, `every 24h from \
                     2026-12-05T09:00:00Z` or `cron 0 9 * * *`",
                    shorten(text)
                )));
            }
        };
        schedule.check()?;
        Ok((schedule, anchored))
    }

    /// This schedule, counted from the anchor of `other` where both have one.
    pub fn anchored_as(self, other: &Schedule) -> Schedule {
        match (self, other) {
            (Schedule::Every { interval_s, .. }, Schedule::Every { anchor, .. }) => {
                Schedule::Every { interval_s, anchor: *anchor }
            }
            (schedule, _) => schedule,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = |at: &DateTime<Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        match self {
            Schedule::At(at) => write!(f, "at {}", instant(at)),
            Schedule::Every { interval_s, anchor } => write!(f, "every {interval_s}s from {}", instant(anchor)),
            Schedule::Cron(cron) => write!(f, "cron {cron}"),
        }
    }
}

/// A checked five-field Unix cron expression in UTC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: String,
    // Day-of-month OR day-of-week is two schedules of the crate, which can only AND them.
    either: Vec<cron::Schedule>,
}

impl CronExpression {
    /// The first match strictly after `after`.
    fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.either.iter().filter_map(|s| s.after(&after).next()).min()
    }
}

impl FromStr for CronExpression {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > LONGEST_CRON_BYTES {
            return Err(ScheduleError(format!(
                "a cron expression of {} bytes is too long: {LONGEST_CRON_BYTES} are allowed",
                text.len()
            )));
        }
        let either = Fields::parse(text)
            .and_then(|fields| {
                if !fields.can_fire() {
                    return Err(format!("`{text}` never fires: no month it names has such a day"));
                }
                fields.for_the_crate().iter().map(|s| s.parse().map_err(|e| format!("`{text}`: {e}"))).collect()
            })
            .map_err(ScheduleError)?;
        Ok(Self { text: text.to_owned(), either })
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for CronExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl TryFrom<String> for CronExpression {
    type Error = ScheduleError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CronExpression> for String {
    fn from(cron: CronExpression) -> String {
        cron.text
    }
}

/// Cuts an instant down to its whole second.
pub fn whole_second(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp(at.timestamp(), 0).unwrap_or(at)
}

/// Reads an RFC 3339 instant.
///
/// # Errors
/// Says what an instant looks like.
pub fn parse_instant(text: &str) -> Result<DateTime<Utc>, ScheduleError> {
    DateTime::parse_from_rfc3339(text).map(|at| at.with_timezone(&Utc)).map_err(|_| {
        ScheduleError(format!(
            "`{}` is not an instant: write date, time and offset as in `2026-12-05T09:00:00Z`",
            shorten(text)
        ))
    })
}

/// Reads `90s`, `15m`, `24h`, `7d` as seconds.
///
/// # Errors
/// Says what an interval looks like.
pub fn parse_interval(text: &str) -> Result<i64, ScheduleError> {
    let refused =
        || ScheduleError(format!("`{}` is not an interval: write `90s`, `15m`, `24h` or `7d`", shorten(text)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> DateTime<Utc> {
        parse_instant(text).unwrap()
    }

    fn next(schedule: &str, after: &str) -> String {
        let next = Schedule::parse(schedule, at("2026-11-29T00:00:00Z")).unwrap().next_after(at(after)).unwrap();
        next.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    #[test]
    fn cron_follows_unix_and_not_the_crate() {
        // Monday is 1, as in Unix; the crate's 1 is Sunday. 2026-11-29 is a Sunday.
        assert_eq!(next("cron 0 9 * * 1", "2026-11-29T00:00:00Z"), "2026-11-30T09:00:00Z");
        assert_eq!(next("cron 0 9 * * 7", "2026-11-29T00:00:00Z"), "2026-11-29T09:00:00Z");
        assert_eq!(next("cron 0 9 * * sun", "2026-11-29T10:00:00Z"), "2026-12-06T09:00:00Z");
        // Both day fields restricted: either is enough.
        assert_eq!(next("cron 0 9 13 * 5", "2026-12-01T00:00:00Z"), "2026-12-04T09:00:00Z");
        assert_eq!(next("cron 0 9 13 * 5", "2026-12-12T00:00:00Z"), "2026-12-13T09:00:00Z");
        // A day field that starts with `*` restricts: both are needed.
        assert_eq!(next("cron 0 9 */2 * 1", "2026-12-01T00:00:00Z"), "2026-12-07T09:00:00Z");
        assert_eq!(next("cron */15 9-17 * * mon-fri", "2026-12-04T17:45:00Z"), "2026-12-07T09:00:00Z");
        assert_eq!(next("cron @daily", "2026-12-04T17:45:00Z"), "2026-12-05T00:00:00Z");
        assert_eq!(next("cron 0 0 29 2 *", "2026-12-04T17:45:00Z"), "2028-02-29T00:00:00Z");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_advice() {
        for (text, advice) in [
            ("cron 0 9 * * 8", "weekday 8 is out of range 0-7 in field 5 of `0 9 * * 8`"),
            ("cron 0 0 31 2 *", "never fires"),
            ("cron 0 0 9 * * *", "five fields"),
            ("cron ? 9 * * *", "write `H`"),
            ("cron 61 9 * * *", "minute 61 is out of range 0-59 in field 1"),
            ("cron 5-1 9 * * *", "range 5-1 runs backwards"),
            ("cron */0 9 * * *", "step 0"),
            ("cron @reboot", "@reboot"),
            ("cron 0 9 L * *", "`L`"),
            ("every 24", "write `90s`, `15m`, `24h` or `7d`"),
            ("every 5s", "too short"),
            ("every 24h from tomorrow", "is not an instant"),
            ("at 2026-12-05", "is not an instant"),
            ("at 2026-12-05T09:00:00.5Z", "whole seconds"),
            ("daily", "is not a schedule"),
            ("", "is not a schedule"),
        ] {
            let error = Schedule::parse(text, at("2026-11-29T00:00:00Z")).unwrap_err().to_string();
            assert!(error.contains(advice), "{text}: {error}");
        }
        assert!(Schedule::parse(&format!("cron {}", "1,".repeat(200)), at("2026-11-29T00:00:00Z")).is_err());
    }

    #[test]
    fn an_interval_is_counted_from_its_anchor() {
        assert_eq!(next("every 24h from 2026-12-05T09:00:00Z", "2026-12-01T00:00:00Z"), "2026-12-05T09:00:00Z");
        assert_eq!(next("every 24h from 2026-12-05T09:00:00Z", "2026-12-05T09:00:00Z"), "2026-12-06T09:00:00Z");
        assert_eq!(next("every 90m from 2026-12-05T09:00:00Z", "2026-12-05T11:59:59Z"), "2026-12-05T12:00:00Z");
    }

    #[test]
    fn only_an_interval_without_from_has_an_implied_anchor() {
        let anchor = |text| Schedule::parse_with_anchor(text, at("2026-11-29T00:00:00Z")).unwrap().1;
        assert_eq!(anchor("every 24h"), Anchor::Implied);
        for stated in ["every 24h from 2026-12-05T09:00:00Z", "at 2026-12-05T09:00:00Z", "cron 0 9 * * *"] {
            assert_eq!(anchor(stated), Anchor::Stated, "{stated}");
        }
    }

    proptest! {
        #[test]
        fn the_next_firing_is_always_later(start in 0i64..4_000_000_000, interval in 60i64..1_000_000, anchor in 0i64..4_000_000_000) {
            let instant = |s| DateTime::from_timestamp(s, 0).unwrap();
            let every = Schedule::Every { interval_s: interval, anchor: instant(anchor) };
            let next = every.next_after(instant(start)).unwrap();
            prop_assert!(next > instant(start));
            prop_assert_eq!((next.timestamp() - anchor) % interval, 0);
            prop_assert!(next == instant(anchor) || next.timestamp() - start <= interval);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _ = Schedule::parse(&text, DateTime::UNIX_EPOCH);
            let _ = text.parse::<CronExpression>();
        }

        #[test]
        fn a_schedule_survives_its_text(interval in 60i64..1_000_000, anchor in 0i64..4_000_000_000) {
            let every = Schedule::Every { interval_s: interval, anchor: DateTime::from_timestamp(anchor, 0).unwrap() };
            prop_assert_eq!(Schedule::parse(&every.to_string(), DateTime::UNIX_EPOCH).unwrap(), every);
        }
    }
}

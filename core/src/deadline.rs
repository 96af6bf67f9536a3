//! Step 6, *idempotency*: until when a run may still start. Asked at dispatch, and again before the call.
//!
//! A deadline counts from the instant at which the run is due, so that a spread or owed run has its full time.

use crate::zone::Zones;
use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The shortest time that a run may be given to start, in seconds.
pub const SHORTEST_START_WITHIN_S: u32 = 10;

/// Below this many seconds an ordinary delay may skip a run: a worker that died holds its message for 60 s.
pub const TIGHT_START_WITHIN_S: u32 = 60;

/// How late a run may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartRule {
    /// However late.
    #[default]
    Always,
    /// Within this many seconds after it was due.
    WithinS(u32),
    /// Until the first such time of day, on the clock of the job's zone, after it was due.
    UntilLocal(NaiveTime),
}

impl StartRule {
    /// The latest instant at which a run due at `due_at` may start; none = however late.
    pub fn deadline(self, due_at: DateTime<Utc>, tz: Tz, zones: &Zones) -> Option<DateTime<Utc>> {
        match self {
            StartRule::Always => None,
            StartRule::WithinS(s) => due_at.checked_add_signed(TimeDelta::seconds(i64::from(s))),
            StartRule::UntilLocal(time) => zones.timeline(tz).next_time_of_day(time, due_at),
        }
    }

    /// Checks the range.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn check(self) -> Result<(), String> {
        match self {
            StartRule::WithinS(s) if s < SHORTEST_START_WITHIN_S => Err(format!(
                "start_within_s {s} is too short: a run needs at least {SHORTEST_START_WITHIN_S} s to start"
            )),
            _ => Ok(()),
        }
    }

    /// What is allowed but probably not meant.
    pub fn warning(self) -> Option<String> {
        match self {
            StartRule::WithinS(s) if s < TIGHT_START_WITHIN_S => Some(format!(
                "start_within_s {s} is tight: a run whose worker dies waits up to {TIGHT_START_WITHIN_S} s for another one, \
                 and would be skipped"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for StartRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartRule::Always => f.write_str("however late"),
            StartRule::WithinS(s) => write!(f, "within {s}s"),
            StartRule::UntilLocal(time) => write!(f, "until {}", time.format("%H:%M")),
        }
    }
}

/// Reads a time of day, `20:00`.
///
/// # Errors
/// Says what one looks like.
pub fn parse_time_of_day(text: &str) -> Result<NaiveTime, String> {
    let is_plain =
        text.len() == 5 && text.bytes().enumerate().all(|(n, b)| if n == 2 { b == b':' } else { b.is_ascii_digit() });
    let time = is_plain.then(|| NaiveTime::parse_from_str(text, "%H:%M").ok()).flatten();
    time.ok_or_else(|| "a time of day is hours and minutes, from `00:00` to `23:59`, such as `20:00`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn until(time: &str, due_at: &str, tz: Tz) -> String {
        let rule = StartRule::UntilLocal(parse_time_of_day(time).unwrap());
        let deadline = rule.deadline(at(due_at), tz, &Zones::embedded()).unwrap();
        deadline.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    #[test]
    fn late_until_eight_in_the_evening_is_the_customers_evening() {
        // Due at 9:00 in Kolkata, and at 21:00: then it is the next evening.
        assert_eq!(until("20:00", "2026-12-05T03:30:00Z", Tz::Asia__Kolkata), "2026-12-05T14:30:00Z");
        assert_eq!(until("20:00", "2026-12-05T15:30:00Z", Tz::Asia__Kolkata), "2026-12-06T14:30:00Z");
        // Due at 23:30 and at 00:30, on both sides of midnight.
        assert_eq!(until("00:15", "2026-12-05T18:00:00Z", Tz::Asia__Kolkata), "2026-12-05T18:45:00Z");
        assert_eq!(until("00:15", "2026-12-05T19:00:00Z", Tz::Asia__Kolkata), "2026-12-06T18:45:00Z");
    }

    #[test]
    fn skip_after_noon_holds_across_a_clock_change() {
        // Due at 22:00 the evening before: 14 hours of clock, but 13 or 15 of time, until noon.
        assert_eq!(until("12:00", "2026-03-08T03:00:00Z", Tz::America__New_York), "2026-03-08T16:00:00Z");
        assert_eq!(until("12:00", "2026-11-01T02:00:00Z", Tz::America__New_York), "2026-11-01T17:00:00Z");
        // Due at noon itself: the next noon, not at once.
        assert_eq!(until("12:00", "2026-11-01T17:00:00Z", Tz::America__New_York), "2026-11-02T17:00:00Z");
    }

    #[test]
    fn an_age_counts_seconds_and_always_never_ends() {
        let zones = Zones::embedded();
        let due_at = at("2026-11-01T05:30:00Z");
        let within = StartRule::WithinS(3_600).deadline(due_at, Tz::America__New_York, &zones);
        assert_eq!(within, Some(at("2026-11-01T06:30:00Z")));
        assert_eq!(StartRule::Always.deadline(due_at, Tz::UTC, &zones), None);
    }

    #[test]
    fn what_is_too_short_is_refused_and_what_is_tight_is_warned_about() {
        assert!(StartRule::WithinS(9).check().unwrap_err().contains("at least 10 s"));
        for (s, is_tight) in [(10, true), (59, true), (60, false), (3_600, false)] {
            assert_eq!(StartRule::WithinS(s).check(), Ok(()));
            assert_eq!(StartRule::WithinS(s).warning().is_some(), is_tight, "{s}");
        }
        for text in ["24:00", "8", "8:00", " 1:30", "20:00:00", "20.00", "", "é0:00", "ab:cd"] {
            assert!(parse_time_of_day(text).is_err(), "{text}");
        }
    }
}

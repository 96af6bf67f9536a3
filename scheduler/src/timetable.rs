//! A job's timetable as people write it: the same words on the command line and in files.

use crate::listing::instant;
use chrono::{DateTime, Utc};
use clap::Args;
use punctual_core::deadline::{StartRule, parse_time_of_day};
use punctual_core::job::JobSpec;
use punctual_core::missed::{Many, MissedRule};
use punctual_core::schedule::{Anchor, DstGap, DstRepeat, Schedule, ScheduleText, parse_interval};
use punctual_core::spread::Spread;
use punctual_core::zone::{Tz, Zones, parse_name};

/// On whose clock, within which bounds.
#[derive(Clone, Debug, Default, Args)]
pub struct ClockText {
    /// Time zone of the customer: an IANA name such as `Asia/Kolkata`. UTC by default.
    #[arg(long)]
    pub tz: Option<String>,
    /// A wall time that does not exist on the day the clock goes forward: `next-valid` (right after the gap, the default)
    /// or `skip`.
    #[arg(long)]
    pub dst_gap: Option<String>,
    /// A wall time that exists twice on the day the clock goes back fires the `first` time (the default), the `second`, or
    /// `both` times.
    #[arg(long)]
    pub dst_repeat: Option<String>,
    /// No firing before this moment: an instant, or a wall time of the zone.
    #[arg(long)]
    pub start_at: Option<String>,
    /// No firing after this moment.
    #[arg(long)]
    pub end_at: Option<String>,
    /// How many firings there are in all, skipped ones included.
    #[arg(long)]
    pub max_runs: Option<String>,
}

/// Where runs start, and what becomes of those that could not.
#[derive(Clone, Debug, Default, Args)]
pub struct RunText {
    /// Start runs within this window behind their time, chosen by hash: `30m`. Not for urgent jobs.
    #[arg(long)]
    pub spread: Option<String>,
    /// What chooses the place in the window, and the values of hashed cron fields (`H`).
    #[arg(long)]
    pub spread_key: Option<String>,
    /// Of firings that dispatch comes to more than two minutes late: run the `latest` (the default), `all`, or `none`.
    #[arg(long)]
    pub missed: Option<String>,
    /// How late a run may start: `2h` after it was due. However late by default.
    #[arg(long)]
    pub start_within: Option<String>,
    /// How late a run may start: until this time of day on the customer's clock, `20:00`.
    #[arg(long)]
    pub until_local: Option<String>,
}

/// A timetable, read.
#[derive(Clone, Debug)]
pub struct Timetabled {
    /// When.
    pub schedule: Schedule,
    /// Whether its anchor was stated.
    pub anchor: Anchor,
    /// Where in a window.
    pub spread: Option<Spread>,
    /// What if not.
    pub missed: MissedRule,
}

/// What is wrong with a timetable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The column or option, with underscores.
    pub column: &'static str,
    /// What was found, and what to write instead.
    pub text: String,
    /// Whether the text quotes what was found.
    pub quotes: bool,
}

impl Problem {
    fn quoting(column: &'static str, text: impl ToString) -> Self {
        Problem { column, text: text.to_string(), quotes: true }
    }

    /// A problem whose text shows nothing of the input.
    pub fn plain(column: &'static str, text: impl ToString) -> Self {
        Problem { column, text: text.to_string(), quotes: false }
    }
}

impl ClockText {
    /// The zone.
    ///
    /// # Errors
    /// What a name looks like.
    pub fn zone(&self) -> Result<Tz, Problem> {
        let tz = self.tz.as_deref().map(parse_name).transpose();
        tz.map(|tz| tz.unwrap_or(Tz::UTC)).map_err(|error| Problem::quoting("tz", error))
    }

    /// Reads a schedule; `key` chooses the values of hashed fields.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub fn read(
        &self,
        when: &str,
        key: Option<&str>,
        now: DateTime<Utc>,
        zones: &Zones,
    ) -> Result<(Schedule, Anchor), Problem> {
        let max_runs = self.max_runs.as_deref().map(str::parse).transpose();
        let text = ScheduleText {
            when,
            tz: self.tz.as_deref(),
            dst_gap: word("dst_gap", self.dst_gap.as_deref())?.unwrap_or(DstGap::default()),
            dst_repeat: word("dst_repeat", self.dst_repeat.as_deref())?.unwrap_or(DstRepeat::default()),
            start_at: self.start_at.as_deref(),
            end_at: self.end_at.as_deref(),
            max_runs: max_runs.map_err(|_| Problem::plain("max_runs", "expected a whole number from 1 on"))?,
            key,
        };
        text.read(now, zones).map_err(|error| Problem::quoting(error.part, error.problem))
    }
}

/// What takes a value away where a job is changed.
pub const NONE: &str = "none";

/// What is given, or else what was there; nothing if [`NONE`] is given.
pub fn given_or(given: Option<&str>, old: Option<String>) -> Option<String> {
    match given {
        Some(NONE) => None,
        Some(given) => Some(given.to_owned()),
        None => old,
    }
}

impl ClockText {
    /// This text, and what `old` says where this says nothing.
    fn over(&self, old: &Schedule) -> ClockText {
        ClockText {
            tz: self.tz.clone().or_else(|| Some(old.tz.name().to_owned())),
            dst_gap: self.dst_gap.clone().or_else(|| Some(old.dst_gap.to_string())),
            dst_repeat: self.dst_repeat.clone().or_else(|| Some(old.dst_repeat.to_string())),
            start_at: given_or(self.start_at.as_deref(), old.start_at.map(instant)),
            end_at: given_or(self.end_at.as_deref(), old.end_at.map(instant)),
            max_runs: given_or(self.max_runs.as_deref(), old.max_runs.map(|most| most.to_string())),
        }
    }
}

impl RunText {
    /// Reads a change of the timetable of `old`: what is not given stays as it is. What was anchored or chosen by hash stays
    /// so too, unless `when` is given.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub fn read_over(
        &self,
        clock: &ClockText,
        when: Option<&str>,
        old: &JobSpec,
        now: DateTime<Utc>,
        zones: &Zones,
    ) -> Result<Timetabled, Problem> {
        let texts = self.over(old);
        if self.spread_key.is_some() && texts.spread.is_none() && when.is_none() {
            let problem = "there is nothing that it could choose: give a window or a schedule as well";
            return Err(Problem::plain("spread_key", problem));
        }
        // Bounds and rules need a schedule around them to be read; its timing does not count.
        let placeholder = "cron @hourly";
        let clock = clock.over(&old.schedule);
        let read = texts.read(&clock, when.unwrap_or(placeholder), old.key.as_str(), now, zones)?;
        if when.is_some() {
            return Ok(read);
        }
        let schedule = Schedule { timing: old.schedule.timing.clone(), ..read.schedule };
        Ok(Timetabled { schedule, anchor: Anchor::Stated, ..read })
    }

    /// This text, and what `old` says where this says nothing.
    fn over(&self, old: &JobSpec) -> RunText {
        let spread = old.spread.as_ref();
        let says_deadline = self.start_within.is_some() || self.until_local.is_some();
        let (within, until) = match old.missed.start {
            _ if says_deadline => (None, None),
            StartRule::Always => (None, None),
            StartRule::WithinS(s) => (Some(format!("{s}s")), None),
            StartRule::UntilLocal(time) => (None, Some(time.format("%H:%M").to_string())),
        };
        RunText {
            spread: given_or(self.spread.as_deref(), spread.map(|one| format!("{}s", one.window_s))),
            spread_key: self.spread_key.clone().or_else(|| spread.map(|one| one.key.clone())),
            missed: self.missed.clone().or_else(|| Some(old.missed.many.to_string())),
            start_within: given_or(self.start_within.as_deref(), within),
            until_local: given_or(self.until_local.as_deref(), until),
        }
    }

    /// Reads all of a timetable. `default_key` chooses where no key is given.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub fn read(
        &self,
        clock: &ClockText,
        when: &str,
        default_key: &str,
        now: DateTime<Utc>,
        zones: &Zones,
    ) -> Result<Timetabled, Problem> {
        let key = self.spread_key.as_deref().unwrap_or(default_key);
        let (schedule, anchor) = clock.read(when, Some(key), now, zones)?;
        let start = match (&self.start_within, &self.until_local) {
            (None, None) => StartRule::Always,
            (Some(within), None) => StartRule::WithinS(seconds("start_within", within)?),
            (None, Some(time)) => {
                StartRule::UntilLocal(parse_time_of_day(time).map_err(|e| Problem::plain("until_local", e))?)
            }
            (Some(_), Some(_)) => {
                return Err(Problem::plain("until_local", "start_within is there as well: write one of them"));
            }
        };
        let missed = MissedRule { many: word("missed", self.missed.as_deref())?.unwrap_or(Many::default()), start };
        Ok(Timetabled { schedule, anchor, spread: self.window(key)?, missed })
    }

    fn window(&self, key: &str) -> Result<Option<Spread>, Problem> {
        window(self.spread.as_deref(), key)
    }
}

/// Reads a spread window.
///
/// # Errors
/// What an interval looks like.
pub fn window(text: Option<&str>, key: &str) -> Result<Option<Spread>, Problem> {
    let window_s = text.map(|text| seconds("spread", text)).transpose()?;
    Ok(window_s.map(|window_s| Spread { key: key.to_owned(), window_s }))
}

fn seconds(column: &'static str, text: &str) -> Result<u32, Problem> {
    let seconds = parse_interval(text).map_err(|error| Problem::quoting(column, error))?;
    u32::try_from(seconds).map_err(|_| Problem::plain(column, "is longer than 136 years"))
}

fn word<T: std::str::FromStr<Err = String>>(column: &'static str, text: Option<&str>) -> Result<Option<T>, Problem> {
    text.map(str::parse).transpose().map_err(|expected| Problem::plain(column, expected))
}

//! Step 1, *job*: the timetable of a job and its arithmetic.
//!
//! A schedule is evaluated from the nominal time, never from the time a run completed, so that it does not drift. Three
//! kinds exist: once (`at`), a fixed interval anchored to its first due time (`every`), and five-field Unix cron. Cron and
//! wall times are evaluated on the clock of the schedule's zone, with explicit rules for the nights on which it is changed.
//! Everything here is a function of the schedule, an instant and the zone rules.

mod cron;
mod dialects;
mod fields;
mod preview;
mod text;
mod walk;

pub use cron::{CronExpression, LONGEST_CRON_BYTES};
pub use preview::{Line, Mark, Pass, preview};
pub use text::{Anchor, ScheduleText, parse_instant, parse_interval, parse_moment};

use crate::zone::{CALENDAR_END, TzVersion, Zones, naive};
use chrono::{DateTime, Datelike, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use std::fmt;
use walk::{Step, Walk};

/// The shortest interval of an `every` schedule: the due index has a resolution of seconds, a bucket is a minute.
pub const SHORTEST_INTERVAL_S: i64 = 60;

/// The longest interval: whatever is longer fires once.
pub const LONGEST_INTERVAL_S: i64 = 36_525 * 86_400;

/// When a job is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// What it says.
    pub timing: Timing,
    /// On whose clock.
    pub tz: Tz,
    /// What becomes of a wall time that a clock change leaves out.
    pub dst_gap: DstGap,
    /// What becomes of a wall time that a clock change repeats.
    pub dst_repeat: DstRepeat,
    /// No firing before this.
    pub start_at: Option<DateTime<Utc>>,
    /// No firing after this.
    pub end_at: Option<DateTime<Utc>>,
    /// How many firings there are in all, skipped ones included.
    pub max_runs: Option<u32>,
}

/// What a schedule says.
#[derive(Clone, Debug, PartialEq)]
pub enum Timing {
    /// Once, at this instant (whole seconds).
    At(DateTime<Utc>),
    /// Once, when the zone's clock shows this (whole seconds).
    AtLocal(NaiveDateTime),
    /// Again and again, `interval_s` seconds apart, counted from `anchor`.
    Every {
        /// Seconds between two firings.
        interval_s: i64,
        /// The first firing; all others are whole intervals away from it.
        anchor: DateTime<Utc>,
    },
    /// Five-field Unix cron on the zone's clock.
    Cron(CronExpression),
}

/// What becomes of a *fixed* wall time that does not exist because the clock goes forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstGap {
    /// It fires right after the gap.
    #[default]
    NextValid,
    /// It does not fire.
    Skip,
}

/// When a *fixed* wall time fires that exists twice because the clock goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstRepeat {
    /// The first time.
    #[default]
    First,
    /// The second time.
    Second,
    /// Both times.
    Both,
}

/// A firing of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Its nominal instant: the identity of its run.
    pub at: DateTime<Utc>,
    /// What the schedule asked the clock to show; none for instants and intervals, which follow no clock.
    pub wall: Option<NaiveDateTime>,
}

/// Why a schedule cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct ScheduleError {
    /// Which part of it: `schedule`, `tz`, `dst_gap`, `dst_repeat`, `start_at`, `end_at` or `max_runs`.
    pub part: &'static str,
    /// What was found, and what to write instead.
    pub problem: String,
}

impl ScheduleError {
    /// Control characters in what was found are shown as escapes, so that a refusal stays one line.
    fn in_schedule(problem: String) -> Self {
        let shown = problem.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() });
        ScheduleError { part: "schedule", problem: shown.collect() }
    }
}

impl Schedule {
    /// A schedule on UTC, without bounds.
    pub fn utc(timing: Timing) -> Self {
        Schedule {
            timing,
            tz: Tz::UTC,
            dst_gap: DstGap::default(),
            dst_repeat: DstRepeat::default(),
            start_at: None,
            end_at: None,
            max_runs: None,
        }
    }

    /// The first firing strictly after `after`, or none when the schedule is over. Does not count firings.
    pub fn next_after(&self, after: DateTime<Utc>, zones: &Zones) -> Option<Firing> {
        self.next(after, None, zones)
    }

    /// The firing that follows `previous`. A wall time that has fired does not fire again, even where other zone rules
    /// put the previous firing at another instant than these would: copies may differ in their data for a while.
    pub fn next_firing(&self, previous: &Firing, zones: &Zones) -> Option<Firing> {
        self.next(previous.at, previous.wall, zones)
    }

    /// The first firing of a job made at `now`: an `at` in the past is due at once, everything else lies ahead.
    pub fn first(&self, now: DateTime<Utc>, zones: &Zones) -> Option<Firing> {
        match self.timing {
            Timing::At(_) | Timing::AtLocal(_) => self.next_after(DateTime::<Utc>::MIN_UTC, zones),
            Timing::Every { anchor, .. } if anchor >= now => self.next_after(anchor - TimeDelta::seconds(1), zones),
            Timing::Every { .. } | Timing::Cron(_) => self.next_after(now, zones),
        }
    }

    fn next(&self, after: DateTime<Utc>, floor: Option<NaiveDateTime>, zones: &Zones) -> Option<Firing> {
        let after = self.start_at.map_or(after, |start| after.max(start - TimeDelta::seconds(1)));
        let next = match &self.timing {
            Timing::At(at) => (*at > after).then_some(Firing { at: *at, wall: None }),
            Timing::AtLocal(wall) => {
                // With a floor it has fired: only a second pass is left.
                let fired = usize::from(floor.is_some());
                self.instants_of(*wall, zones).into_iter().skip(fired).find(|firing| firing.at > after)
            }
            Timing::Every { interval_s, anchor } => {
                let at = if after < *anchor {
                    Some(*anchor)
                } else {
                    let passed = (after - anchor).num_seconds() / interval_s + 1;
                    let since = passed.checked_mul(*interval_s).and_then(TimeDelta::try_seconds);
                    since.and_then(|since| anchor.checked_add_signed(since))
                };
                at.filter(|at| *at < CALENDAR_END).map(|at| Firing { at, wall: None })
            }
            Timing::Cron(cron) => {
                let floor = floor.map(|wall| wall.and_utc().timestamp());
                self.walk(cron, zones).next(after.timestamp(), floor).and_then(firing)
            }
        };
        next.filter(|firing| self.end_at.is_none_or(|end| firing.at <= end))
    }

    /// The instants at which a single wall time fires: none, one or two.
    fn instants_of(&self, wall: NaiveDateTime, zones: &Zones) -> Vec<Firing> {
        let (line, seconds) = (zones.timeline(self.tz), wall.and_utc().timestamp());
        let mut instants = line.instants_of(seconds);
        match self.dst_repeat {
            DstRepeat::First => instants.truncate(1),
            DstRepeat::Second => drop(instants.drain(..instants.len().saturating_sub(1))),
            DstRepeat::Both => {}
        }
        if instants.is_empty() && self.dst_gap == DstGap::NextValid {
            instants.extend(line.after_gap(seconds));
        }
        instants.into_iter().filter_map(|at| firing(Step { at, wall: seconds })).collect()
    }

    /// Where other zone rules put the firing that asks for `wall` and stood at `old`; none when it has no place any more.
    /// A job that follows real time goes by `now` alone: each minute that the clock shows is a wall time of its own.
    pub fn placed_again(
        &self,
        wall: NaiveDateTime,
        old: DateTime<Utc>,
        now: DateTime<Utc>,
        zones: &Zones,
    ) -> Option<Firing> {
        let cron = match &self.timing {
            Timing::At(_) | Timing::Every { .. } => return None,
            Timing::AtLocal(_) => None,
            Timing::Cron(cron) if cron.is_wildcard() => return self.next_after(now, zones),
            Timing::Cron(cron) => Some(cron),
        };
        let in_bounds = |firing: &Firing| {
            self.start_at.is_none_or(|start| start <= firing.at) && self.end_at.is_none_or(|end| firing.at <= end)
        };
        // Of two passes it is the next one to come, or else the one that it stood at.
        let instants: Vec<Firing> = self.instants_of(wall, zones).into_iter().filter(in_bounds).collect();
        let ahead = instants.iter().find(|firing| firing.at > now);
        let same = ahead.or_else(|| instants.iter().min_by_key(|firing| (firing.at - old).abs())).copied();
        same.or_else(|| {
            cron?;
            let gap = zones.timeline(self.tz).after_gap(wall.and_utc().timestamp())?;
            self.next_after(DateTime::from_timestamp(gap - 1, 0)?, zones)
        })
    }

    fn walk<'a>(&self, cron: &'a CronExpression, zones: &'a Zones) -> Walk<'a> {
        Walk { cron, gap: self.dst_gap, repeat: self.dst_repeat, timeline: zones.timeline(self.tz) }
    }

    /// The shortest time between two firings where the clock runs evenly, in seconds; none when it fires once there.
    pub fn shortest_interval_s(&self) -> Option<i64> {
        match &self.timing {
            Timing::At(_) | Timing::AtLocal(_) => None,
            Timing::Every { interval_s, .. } => Some(*interval_s),
            Timing::Cron(cron) => cron.shortest_interval_s(),
        }
    }

    /// The zone rules that its firings follow from; none when they follow no clock.
    pub fn follows(&self, zones: &Zones) -> Option<TzVersion> {
        let has_clock = matches!(self.timing, Timing::AtLocal(_) | Timing::Cron(_));
        has_clock.then(|| zones.version_of(self.tz).clone())
    }

    /// Checks what the type alone cannot: whole seconds, and numbers in range.
    ///
    /// # Errors
    /// Names the value and what is allowed.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let refused = |part, problem| Err(ScheduleError { part, problem });
        let (at, anchor) = match &self.timing {
            Timing::At(at) => (Some(*at), None),
            Timing::AtLocal(wall) => (Some(wall.and_utc()), None),
            Timing::Every { anchor, .. } => (None, Some(*anchor)),
            Timing::Cron(_) => (None, None),
        };
        for (part, what, at) in [
            ("schedule", "the instant", at),
            ("schedule", "the anchor", anchor),
            ("start_at", "start_at", self.start_at),
            ("end_at", "end_at", self.end_at),
        ] {
            if at.is_some_and(|at| at.timestamp_subsec_nanos() != 0) {
                let problem =
                    format!("{what} has a fraction of a second, or a leap second: write whole seconds, 00 to 59");
                return refused(part, problem);
            }
            if at.is_some_and(|at| at.year() < 0 || at >= CALENDAR_END) {
                return refused(part, format!("{what} is out of range: the calendar ends with the year 2100"));
            }
        }
        match self.timing {
            Timing::Every { interval_s, .. } if interval_s < SHORTEST_INTERVAL_S => refused(
                "schedule",
                format!("an interval of {interval_s}s is too short: the shortest is {SHORTEST_INTERVAL_S}s"),
            ),
            Timing::Every { interval_s, .. } if interval_s > LONGEST_INTERVAL_S => refused(
                "schedule",
                format!(
                    "an interval of {interval_s}s is too long: the longest is {LONGEST_INTERVAL_S}s, a hundred years"
                ),
            ),
            _ if self.max_runs == Some(0) => refused("max_runs", "max_runs 0 never fires: write 1 or more".into()),
            _ if self.start_at.zip(self.end_at).is_some_and(|(start, end)| end < start) => {
                refused("end_at", "end_at is before start_at".into())
            }
            _ => Ok(()),
        }
    }

    /// What is allowed but probably not meant.
    pub fn warning(&self) -> Option<String> {
        match &self.timing {
            Timing::Cron(cron) => cron.warning(),
            _ => None,
        }
    }

    /// This schedule, counted from the anchor of `other` where both have one.
    pub fn anchored_as(mut self, other: &Schedule) -> Schedule {
        if let (Timing::Every { anchor, .. }, Timing::Every { anchor: theirs, .. }) = (&mut self.timing, &other.timing)
        {
            *anchor = *theirs;
        }
        self
    }
}

fn firing(step: Step) -> Option<Firing> {
    Some(Firing { at: DateTime::from_timestamp(step.at, 0)?, wall: Some(naive(step.wall)) })
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = |at: &DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        match &self.timing {
            Timing::At(at) => write!(f, "at {}", instant(at))?,
            Timing::AtLocal(wall) => write!(f, "at {}", wall.format("%Y-%m-%dT%H:%M:%S"))?,
            Timing::Every { interval_s, anchor } => write!(f, "every {interval_s}s from {}", instant(anchor))?,
            Timing::Cron(cron) => write!(f, "cron {cron}")?,
        }
        if self.tz != Tz::UTC {
            write!(f, ", {}", self.tz.name())?;
        }
        if self.dst_gap != DstGap::default() {
            write!(f, ", gap {}", self.dst_gap)?;
        }
        if self.dst_repeat != DstRepeat::default() {
            write!(f, ", repeat {}", self.dst_repeat)?;
        }
        for (word, at) in [("from", &self.start_at), ("until", &self.end_at)] {
            if let Some(at) = at {
                write!(f, ", {word} {}", instant(at))?;
            }
        }
        match self.max_runs {
            Some(most) => write!(f, ", at most {most} runs"),
            None => Ok(()),
        }
    }
}

/// Cuts an instant down to its whole second.
pub fn whole_second(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp(at.timestamp(), 0).unwrap_or(at)
}

#[cfg(test)]
mod tests;

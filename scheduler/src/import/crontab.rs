//! Crontabs: one entry, one job.
//!
//! Decides what an entry becomes: its schedule is read by the project's own rules, its command by the rules of whoever imports
//! it ([`MapRule`]), for nothing here runs commands. Each line that is not blank, a comment or an environment line comes out
//! as a job or as a problem: none is dropped in silence. Never shows a command: it may hold a password.

mod entry;
mod id;
mod map;
mod schedule;

pub use id::default_prefix;
pub use map::MapRule;

use super::raw::{RawLine, RawLines};
use super::{Line, LineProblem, Seen};
use chrono::{DateTime, Utc};
use entry::{Entry, Said};
use map::Told;
use punctual_core::address::AllowList;
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::missed::MissedRule;
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::ScheduleText;
use punctual_core::zone::{Tz, Zones, parse_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

/// The longest line that is read, in bytes.
pub const LONGEST_LINE_BYTES: usize = 65_536;
/// The most that is kept of the environment lines above an entry, in bytes.
const MOST_ENVIRONMENT_BYTES: usize = 65_536;

/// What no handler is told of the environment: whom cron writes to, on whose clock it goes, and how it finds and runs programs.
const NOT_TOLD: [&str; 8] = ["MAILTO", "CRON_TZ", "TZ", "PATH", "SHELL", "HOME", "LOGNAME", "USER"];

/// How a crontab is read.
#[derive(Clone, Debug)]
pub struct CrontabOptions {
    /// Whose jobs its entries become.
    pub tenant: String,
    /// On whose clock its entries fire where it does not say.
    pub tz: Tz,
    /// Whether a user stands between schedule and command, as in `/etc/crontab` and `/etc/cron.d`.
    pub with_user: bool,
    /// What commands become; the first rule that means a command counts.
    pub rules: Vec<MapRule>,
    /// What the ids of its jobs begin with; see [`default_prefix`].
    pub id_prefix: String,
    /// How soon its runs must start.
    pub priority: Priority,
    /// Addresses that may be called although they are inside the operator's network.
    pub allowed: AllowList,
}

impl Default for CrontabOptions {
    fn default() -> Self {
        CrontabOptions {
            tenant: "default".into(),
            tz: Tz::UTC,
            with_user: false,
            rules: Vec::new(),
            id_prefix: "cron/".into(),
            priority: Priority::Normal,
            allowed: AllowList::default(),
        }
    }
}

/// Lines that are neither jobs nor problems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Nothing but blanks.
    pub blank: u64,
    /// Comments.
    pub comments: u64,
    /// Environment lines.
    pub environment: u64,
}

impl Ignored {
    /// All of them.
    pub fn lines(&self) -> u64 {
        self.blank + self.comments + self.environment
    }
}

/// The entries of a crontab, one by one. What an environment line has no effect by is noted at the first entry below it.
pub struct CrontabLines<'a> {
    raw: RawLines<'a>,
    options: &'a CrontabOptions,
    now: DateTime<Utc>,
    zones: &'a Zones,
    environment: Environment,
    names: Seen,
    ignored: Ignored,
}

impl<'a> CrontabLines<'a> {
    /// Jobs made at `now`.
    pub fn new(crontab: impl Read + 'a, options: &'a CrontabOptions, now: DateTime<Utc>, zones: &'a Zones) -> Self {
        CrontabLines {
            raw: RawLines::new(crontab, LONGEST_LINE_BYTES),
            options,
            now,
            zones,
            environment: Environment::default(),
            names: Seen::default(),
            ignored: Ignored::default(),
        }
    }

    /// How many lines were read.
    pub fn lines(&self) -> u64 {
        self.raw.lines_read()
    }

    /// Those of them that are neither jobs nor problems.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// What a line says, with the notes that belong to it; none if it is to be ignored.
    fn read(&mut self, line: &RawLine) -> Option<(Result<JobSpec, LineProblem>, Vec<String>)> {
        let text = String::from_utf8_lossy(&line.bytes);
        let read = match entry::read(&text) {
            Said::Comment => {
                self.ignored.comments += 1;
                return None;
            }
            _ if line.is_cut => Err(format!("the line has more than {LONGEST_LINE_BYTES} bytes: shorten it")),
            _ if matches!(text, Cow::Owned(_)) => Err("the line is not UTF-8: save the file as UTF-8".into()),
            Said::Blank => {
                self.ignored.blank += 1;
                return None;
            }
            Said::Environment { name, value } => {
                self.ignored.environment += 1;
                self.environment.set(name, value, line.number);
                return None;
            }
            Said::Refused(problem) => Err(problem.into()),
            Said::Entry(text) => {
                let mut notes = self.environment.take_notes();
                let read = self.job(text, &mut notes);
                return Some((read.map_err(LineProblem::plain), notes));
            }
        };
        Some((read.map_err(LineProblem::plain), Vec::new()))
    }

    fn job(&mut self, text: &str, notes: &mut Vec<String>) -> Result<JobSpec, String> {
        let entry = Entry::cut(text, self.options.with_user)?;
        let taken = schedule::take(&entry.schedule)?;
        let tz = self.environment.zone(self.options.tz)?;
        let payload = self.payload(&entry)?;
        let name = id::name(entry.user, &entry.command);
        let first = format!("{}{name}", self.options.id_prefix);
        let key = JobKey::new(&self.options.tenant, &first)?;
        let when = ScheduleText { when: &taken.text, tz: Some(tz.name()), ..ScheduleText::default() };
        let (schedule, anchor) =
            ScheduleText { key: Some(key.as_str()), ..when }.read(self.now, self.zones).map_err(|error| {
                if schedule::can_be_shown(&entry.schedule) { error.problem } else { schedule::EXPECTED.into() }
            })?;
        let mut spec = JobSpec {
            key,
            name: None,
            schedule,
            anchor,
            priority: self.options.priority,
            payload,
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        };
        spec.check().map_err(|error| error.to_string())?;
        // Only what becomes a job is counted: a line that is taken out changes no other's id.
        if let again @ 2.. = self.names.count(&name) {
            spec.key = JobKey::new(&self.options.tenant, &format!("{first}-{again}"))?;
        }
        if entry.is_unlogged {
            notes.push("the `-` before the schedule has no effect: each run is recorded".into());
        }
        if taken.is_chosen {
            notes.push("`~` stands for one value that is chosen by hash, and stays".into());
        }
        notes.extend(spec.warnings());
        Ok(spec)
    }

    fn payload(&self, entry: &Entry<'_>) -> Result<Payload, String> {
        let Entry { command, stdin, user, .. } = entry;
        let env = self.environment.told()?;
        let told = Told { command, stdin: stdin.as_deref(), user: *user, env };
        let payload = self.options.rules.iter().find_map(|rule| rule.apply(&told)).ok_or_else(|| {
            "no rule says what becomes of the command, for none is run here: add one that means it, such as \
             `--map '*=>webhook:https://hooks.example.com/run'`"
                .to_owned()
        })??;
        payload.check_address(&self.options.allowed)?;
        Ok(payload)
    }
}

impl Iterator for CrontabLines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            let raw = match self.raw.next()? {
                Ok(raw) => raw,
                Err(error) => {
                    let problem = LineProblem::plain(format!("the file cannot be read further: {error}"));
                    return Some(Line::refused(self.raw.lines_read() + 1, problem));
                }
            };
            if let Some((read, notes)) = self.read(&raw) {
                return Some(Line { number: raw.number, read, notes, document: None });
            }
        }
    }
}

/// What the environment lines so far say.
#[derive(Default)]
struct Environment {
    told: BTreeMap<String, String>,
    told_bytes: usize,
    is_full: bool,
    /// The zone that `CRON_TZ` names, or what is wrong with it.
    cron_tz: Option<Result<Tz, String>>,
    /// The same of `TZ`.
    tz: Option<Result<Tz, String>>,
    /// By name, so that a line takes back the note of one before it.
    notes: BTreeMap<&'static str, String>,
}

impl Environment {
    fn set(&mut self, name: &str, value: &str, line: u64) {
        match name {
            "CRON_TZ" => self.cron_tz = named_zone(name, value, line),
            "TZ" => {
                self.tz = named_zone(name, value, line);
                let note =
                    format!("TZ in line {line} is taken as the zone of the schedules below it, as CRON_TZ would be");
                self.note("TZ", note, self.tz.is_some() && self.cron_tz.is_none());
            }
            "MAILTO" => {
                let note = format!(
                    "MAILTO in line {line} has no effect, no mail is sent: `punctual runs list` shows how runs ended"
                );
                self.note("MAILTO", note, !value.trim().is_empty());
            }
            "RANDOM_DELAY" => {
                let note = format!(
                    "RANDOM_DELAY in line {line} has no effect: `punctual jobs edit --spread` starts runs within a window"
                );
                self.note("RANDOM_DELAY", note, value.trim() != "0");
            }
            _ => {}
        }
        if NOT_TOLD.contains(&name) {
            return;
        }
        let old = self.told.get(name).map_or(0, |old| name.len() + old.len());
        let bytes = self.told_bytes - old + name.len() + value.len();
        if bytes > MOST_ENVIRONMENT_BYTES {
            self.is_full = true;
            return;
        }
        self.told_bytes = bytes;
        self.told.insert(name.to_owned(), value.to_owned());
    }

    fn note(&mut self, name: &'static str, note: String, is_due: bool) {
        if is_due {
            self.notes.insert(name, note);
        } else {
            self.notes.remove(name);
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes).into_values().collect()
    }

    /// The zone of an entry here.
    fn zone(&self, default: Tz) -> Result<Tz, String> {
        let named = self.cron_tz.as_ref().or(self.tz.as_ref());
        named.map_or(Ok(default), Clone::clone)
    }

    fn told(&self) -> Result<&BTreeMap<String, String>, String> {
        if self.is_full {
            return Err(format!(
                "the environment lines above have more than {MOST_ENVIRONMENT_BYTES} bytes: shorten them"
            ));
        }
        Ok(&self.told)
    }
}

/// The zone that an environment line names; none where its value is empty, and the zone is what it was without it.
fn named_zone(name: &str, value: &str, line: u64) -> Option<Result<Tz, String>> {
    let value = value.trim();
    let zone = value.strip_prefix(':').unwrap_or(value);
    let is_word = zone.len() <= 40 && zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_+-".contains(&b));
    let problem = |problem: String| {
        if is_word {
            return format!("{name} in line {line}: {problem}");
        }
        format!("{name} in line {line} is no time zone: write an IANA name, such as `Asia/Kolkata`, or `UTC`")
    };
    (!value.is_empty()).then(|| parse_name(zone).map_err(problem))
}

#[cfg(test)]
mod tests;

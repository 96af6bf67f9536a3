//! What is imported: a file of a kind, and how it is read. It is read line by line, as often as is needed.

use super::super::jobs::SOMEBODY;
use super::super::{CommandError, bad};
use crate::api::document;
use crate::cli::{ImportArgs, ImportFormat};
use crate::import::crontab::{CrontabLines, CrontabOptions, MapRule, default_prefix};
use crate::import::{CsvLines, Line, NdjsonLines};
use crate::timetable::window;
use chrono::{DateTime, Utc};
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::priority::Priority;
use punctual_core::schedule::{Anchor, Timing};
use punctual_core::spread::Spread;
use punctual_core::zone::Zones;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::path::PathBuf;

/// What ids of crontabs begin with that no file's name tells apart.
const ALL_CRONTABS: &str = "cron/";

/// A file, and how it is read.
pub(super) struct Source {
    path: PathBuf,
    /// What people call it.
    pub(super) name: String,
    pub(super) format: ImportFormat,
    /// Whose jobs they are.
    pub(super) tenant: String,
    crontab: CrontabOptions,
    /// The window for jobs that have none.
    window_s: Option<u32>,
    /// Jobs whose ids begin so and that the file does not name are gone.
    pub(super) gone_under: Option<String>,
    /// The tenant's other jobs count in the forecast.
    pub(super) with_stored: bool,
}

impl Source {
    /// The file that the options mean.
    pub(super) fn of(args: &ImportArgs, is_far: bool) -> Result<Self, CommandError> {
        let name = args.file.display().to_string();
        let format = format_of(args)?;
        check_fit(args, format)?;
        let tenant = match &args.tenant {
            Some(tenant) => tenant.clone(),
            None if !is_far => SOMEBODY.to_owned(),
            None => return Err(bad("--tenant: say whose jobs they are, here or by PUNCTUAL_TENANT")),
        };
        JobKey::new(&tenant, "x").map_err(bad)?;
        let about = std::fs::metadata(&args.file).map_err(|e| bad(format!("{name} cannot be opened: {e}")))?;
        if !about.is_file() {
            return Err(bad(format!("{name} is no plain file: it is read twice")));
        }
        let in_spread = |problem: String| bad(format!("--spread-over: {problem}"));
        let spread = window(args.spread_over.as_deref(), "x").map_err(|problem| in_spread(problem.text))?;
        spread.iter().try_for_each(Spread::check_range).map_err(in_spread)?;
        let id_prefix = args.id_prefix.clone().unwrap_or_else(|| default_prefix(&args.file));
        let gone_under = match &args.gone_under {
            Some(prefix) if !prefix.ends_with('/') => {
                return Err(bad("--gone-under: must end at `/`, such as `c-1/`"));
            }
            Some(prefix) => Some(prefix.clone()),
            // Other files have jobs there as well.
            None if format != ImportFormat::Crontab || id_prefix == ALL_CRONTABS || !id_prefix.ends_with('/') => None,
            None => Some(id_prefix.clone()),
        };
        if args.cancel_gone && gone_under.is_none() {
            return Err(bad("--cancel-gone: say under which prefix by --gone-under"));
        }
        let crontab = CrontabOptions {
            tenant: tenant.clone(),
            tz: args.tz.unwrap_or_default(),
            with_user: args.with_user,
            rules: rules(args)?,
            id_prefix,
            priority: args.priority.unwrap_or(Priority::Normal),
            allowed: args.webhook_allow.parse().map_err(|e| bad(format!("PUNCTUAL_WEBHOOK_ALLOW: {e}")))?,
        };
        let window_s = spread.map(|spread| spread.window_s);
        Ok(Source {
            path: args.file.clone(),
            name,
            format,
            tenant,
            crontab,
            window_s,
            gone_under,
            with_stored: args.with_stored,
        })
    }

    /// Its lines, from the first on.
    pub(super) fn lines<'a>(
        &'a self,
        now: DateTime<Utc>,
        zones: &'a Zones,
    ) -> Result<impl Iterator<Item = Line> + 'a, CommandError> {
        let file = File::open(&self.path).map_err(|e| bad(format!("{} cannot be opened: {e}", self.name)))?;
        let lines: Box<dyn Iterator<Item = Line> + 'a> = match self.format {
            ImportFormat::Csv => Box::new(CsvLines::new(file, &self.tenant, now, zones)),
            ImportFormat::Ndjson => Box::new(NdjsonLines::new(file, &self.tenant, now, zones)),
            ImportFormat::Crontab => Box::new(CrontabLines::new(file, &self.crontab, now, zones)),
        };
        Ok(lines.map(|line| match self.window_s {
            Some(window_s) => spread(line, window_s),
            None => line,
        }))
    }
}

/// What is sent of a line that is a job.
pub(super) fn document_of(spec: &JobSpec, as_in_the_file: Option<Map<String, Value>>) -> Map<String, Value> {
    as_in_the_file.unwrap_or_else(|| {
        let mut document = document::write(spec);
        // Where no anchor was stated, the job keeps the one that it has.
        if let (Timing::Every { .. }, Anchor::Implied) = (&spec.schedule.timing, spec.anchor)
            && let Some(schedule) = document["schedule"].as_object_mut()
        {
            schedule.remove("from");
        }
        document
    })
}

/// Gives a job this window where it can have one, and says where it cannot.
fn spread(mut line: Line, window_s: u32) -> Line {
    let Ok(spec) = &mut line.read else { return line };
    if spec.spread.is_some() || spec.priority == Priority::Urgent {
        return line;
    }
    let customer = spec.key.id().split('/').next().unwrap_or_default().to_owned();
    let window = Spread { key: customer, window_s };
    if window.check_fit(spec.schedule.shortest_interval_s()).is_err() {
        line.notes.push("fires too often for the window of --spread-over: left without one".into());
        return line;
    }
    if let Some(document) = &mut line.document {
        document.insert("spread".into(), json!({"window_s": window.window_s, "key": window.key}));
        // The key of a window would choose the values of hashed fields as well, and they are to stay.
        if let Some(schedule) = document.get_mut("schedule").filter(|schedule| schedule["cron"].is_string())
            && schedule["hash_key"].is_null()
        {
            schedule["hash_key"] = json!(spec.key.as_str());
        }
    }
    spec.spread = Some(window);
    line
}

fn format_of(args: &ImportArgs) -> Result<ImportFormat, CommandError> {
    if args.crontab {
        return Ok(ImportFormat::Crontab);
    }
    if let Some(format) = args.format {
        return Ok(format);
    }
    let extension = args.file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => Ok(ImportFormat::Csv),
        Some("ndjson" | "jsonl") => Ok(ImportFormat::Ndjson),
        Some("crontab") => Ok(ImportFormat::Crontab),
        _ => Err(bad(format!(
            "{}: its name does not say what it is: give --format csv, --format ndjson or --crontab",
            args.file.display()
        ))),
    }
}

/// Refuses what a kind of file has no use for: it would be forgotten in silence.
fn check_fit(args: &ImportArgs, format: ImportFormat) -> Result<(), CommandError> {
    if format == ImportFormat::Crontab {
        return Ok(());
    }
    let of_crontabs = [
        ("--tz", args.tz.is_some()),
        ("--map", !args.maps.is_empty()),
        ("--map-file", args.map_file.is_some()),
        ("--with-user", args.with_user),
        ("--id-prefix", args.id_prefix.is_some()),
        ("--priority", args.priority.is_some()),
    ];
    match of_crontabs.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(bad(format!("{option}: goes with a crontab only: leave it out, or give --crontab"))),
        None => Ok(()),
    }
}

/// The rules for commands, those of the command line first.
fn rules(args: &ImportArgs) -> Result<Vec<MapRule>, CommandError> {
    let given = args.maps.iter().enumerate().map(|(n, rule)| (format!("--map, the {}.", n + 1), rule.clone()));
    let mut rules: Vec<(String, String)> = given.collect();
    if let Some(path) = &args.map_file {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| bad(format!("--map-file: {name} cannot be read: {e}")))?;
        let is_rule = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let lines = text.lines().enumerate().filter(|(_, line)| is_rule(line));
        rules.extend(lines.map(|(n, line)| (format!("{name}, line {}", n + 1), line.to_owned())));
    }
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    for (place, rule) in rules {
        match rule.parse() {
            Ok(rule) => read.push(rule),
            Err(problem) => problems.push(format!("{place}: {problem}")),
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(CommandError::BadInput(problems)) }
}

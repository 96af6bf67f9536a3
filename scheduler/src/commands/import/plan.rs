//! What a file comes to, before anything of it is done.

use super::super::CommandError;
use super::super::ask::{Pages, asked, progress};
use super::super::jobs::listed;
use super::super::steer::limits;
use super::SHOWN;
use super::send::{Outcome, Result as Done, send};
use super::source::Source;
use crate::api::{LARGEST_PAGE, path_of};
use crate::client::{Ask, Client};
use crate::cost::{self, Counting};
use crate::import::forecast::Forecast;
use crate::import::stored::Stored;
use crate::import::{Line, fingerprint};
use crate::listing::{limit_of, said};
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt};
use indicatif::ProgressBar;
use punctual_core::cost::Prices;
use punctual_core::due::Shards;
use punctual_core::job::Timetable;
use punctual_core::steering::DEFAULT_SMS_LIMIT;
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Jobs being cancelled at the same time.
const CANCELS_AT_ONCE: usize = 16;
/// Columns of a chart where the terminal does not say how many it has.
const COLUMNS: usize = 100;

/// Jobs of which as many are named as are shown.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) count: u64,
    pub(super) examples: Vec<String>,
}

impl Group {
    fn add(&mut self, id: String) {
        self.count += 1;
        if self.examples.len() < SHOWN {
            self.examples.push(id);
        }
    }
}

/// What came of lines, or would.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) created: Group,
    pub(super) changed: Group,
    pub(super) same: Group,
    pub(super) cancelled: Group,
    pub(super) over: Group,
    pub(super) refused: u64,
    /// The first of those that were refused, by line.
    pub(super) problems: BTreeMap<u64, String>,
}

impl Tally {
    pub(super) fn add(&mut self, outcome: Outcome) {
        let Outcome { line, id, result } = outcome;
        match result {
            Done::Created => self.created.add(id),
            Done::Changed => self.changed.add(id),
            Done::Same => self.same.add(id),
            Done::Cancelled => self.cancelled.add(id),
            Done::Over => self.over.add(id),
            Done::Refused(problem) => {
                self.refused += 1;
                if self.problems.len() < SHOWN {
                    self.problems.insert(line, problem);
                }
            }
        }
    }

    /// All lines that were answered.
    pub(super) fn all(&self) -> u64 {
        let groups = [&self.created, &self.changed, &self.same, &self.cancelled, &self.over];
        groups.iter().map(|group| group.count).sum::<u64>() + self.refused
    }
}

/// What a file comes to.
pub(super) struct Plan {
    /// Lines that are jobs.
    pub(super) jobs: u64,
    /// Lines that the file itself shows to be wrong.
    pub(super) refused_by_file: u64,
    /// The first of them.
    pub(super) problems_of_file: BTreeMap<u64, String>,
    /// What is allowed but may not be meant, and how many lines it is about.
    pub(super) notes: BTreeMap<String, u64>,
    /// What the API would do.
    pub(super) tally: Tally,
    /// Jobs under the prefix that the file does not name.
    pub(super) gone: Group,
    /// Fingerprints of the ids that it names, where they are needed.
    pub(super) named: HashSet<u64>,
    /// When how many runs fall due, and what that costs; where it is to be shown.
    pub(super) outlook: Option<String>,
}

impl Plan {
    /// Lines that cannot be taken.
    pub(super) fn refused(&self) -> u64 {
        self.refused_by_file + self.tally.refused
    }

    /// The first of them, and how many more there are.
    pub(super) fn problems(&self, name: &str) -> Vec<String> {
        first_problems(name, [&self.problems_of_file, &self.tally.problems], self.refused())
    }
}

/// The first problems by line, with the name of the file, and how many more there are.
pub(super) fn first_problems(name: &str, problems: [&BTreeMap<u64, String>; 2], all: u64) -> Vec<String> {
    let [of_file, of_api] = problems;
    let of_api = of_api.iter().map(|(line, problem)| (*line, format!("{name}, line {line}: {problem}")));
    let both: BTreeMap<u64, String> =
        of_file.iter().map(|(line, problem)| (*line, problem.clone())).chain(of_api).collect();
    let mut shown: Vec<String> = both.into_values().take(SHOWN).collect();
    let more = all.saturating_sub(shown.len() as u64);
    if more > 0 {
        shown.push(format!("{name}: and {more} more"));
    }
    shown
}

/// What the file itself shows while it is read.
struct Reading<'a> {
    name: &'a str,
    zones: &'a Zones,
    jobs: u64,
    refused: u64,
    problems: BTreeMap<u64, String>,
    notes: BTreeMap<String, u64>,
    /// None where nobody asks which jobs are gone.
    named: Option<HashSet<u64>>,
    /// None where nothing is to be shown.
    outlook: Option<(Forecast<'a>, Counting<'a>)>,
}

impl Reading<'_> {
    fn note(&mut self, line: &Line) {
        for note in &line.notes {
            // A file says few different things, or its lines are not the same kind of lines.
            if self.notes.len() < SHOWN * SHOWN || self.notes.contains_key(note) {
                *self.notes.entry(note.clone()).or_default() += 1;
            }
        }
        if let Some(problem) = line.problem(self.name) {
            self.refused += 1;
            if self.problems.len() < SHOWN {
                self.problems.insert(line.number, problem);
            }
        }
        let Ok(spec) = &line.read else { return };
        self.jobs += 1;
        if let Some(named) = &mut self.named {
            named.insert(fingerprint(spec.key.id()));
        }
        if let Some((forecast, counting)) = &mut self.outlook {
            forecast.add(spec, self.zones);
            counting.add(spec);
        }
    }
}

/// Reads the file once, and asks the API what it would do with each line.
pub(super) async fn plan(
    client: &Client,
    source: &Source,
    now: DateTime<Utc>,
    zones: &Zones,
    is_look: bool,
    bar: &ProgressBar,
) -> Result<Plan, CommandError> {
    let shards = Shards::default();
    let outlook = if is_look {
        let limits = limits(client).await.ok();
        let limit_of = move |target: &Target| match &limits {
            Some(limits) => limit_of(limits, target.as_str()),
            None => (*target == Target::sms()).then_some(DEFAULT_SMS_LIMIT.get()),
        };
        Some((Forecast::new(now, limit_of), Counting::new(now, Timetable { shards: &shards, zones })))
    } else {
        None
    };
    let mut reading = Reading {
        name: &source.name,
        zones,
        jobs: 0,
        refused: 0,
        problems: BTreeMap::new(),
        notes: BTreeMap::new(),
        named: (source.gone_under.is_some() || (is_look && source.with_stored)).then(HashSet::new),
        outlook,
    };
    let mut tally = Tally::default();
    let lines = source.lines(now, zones)?.inspect(|line| reading.note(line));
    send(client, &source.tenant, lines, true, |outcome| {
        tally.add(outcome);
        bar.inc(1);
    })
    .await?;
    let named = reading.named.unwrap_or_default();
    let mut gone = Group::default();
    if let Some(prefix) = &source.gone_under {
        let mut pages = gone_pages(client, &source.tenant, prefix);
        while let Some(page) = next_gone(&mut pages, &named).await? {
            page.into_iter().for_each(|id| gone.add(id));
        }
    }
    let mut outlook = reading.outlook;
    if let Some((forecast, _)) = outlook.as_mut().filter(|_| source.with_stored) {
        add_stored(client, source, &named, forecast, now, zones).await?;
    }
    let outlook = outlook.map(|(forecast, counting)| {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let (load, _) = counting.load();
        format!("{}\n\n{}", forecast.text(columns.unwrap_or(COLUMNS)), cost::in_a_line(&load, &Prices::default()))
    });
    Ok(Plan {
        jobs: reading.jobs,
        refused_by_file: reading.refused,
        problems_of_file: reading.problems,
        notes: reading.notes,
        tally,
        gone,
        named,
        outlook,
    })
}

/// Counts the jobs that are there and that the file does not name.
async fn add_stored(
    client: &Client,
    source: &Source,
    named: &HashSet<u64>,
    forecast: &mut Forecast<'_>,
    now: DateTime<Utc>,
    zones: &Zones,
) -> Result<(), CommandError> {
    let bar = progress(None, "read of those that are there");
    let mut pages = Pages::of(client, listed(Some(&source.tenant), None, None));
    while let Some(page) = pages.next(LARGEST_PAGE).await? {
        let others = page.iter().filter(|job| !named.contains(&fingerprint(&said(job, "id"))));
        for job in others.filter_map(|job| Stored::of(job, now, zones)) {
            forecast.add_there(job.counted(), zones);
        }
        bar.inc(page.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

fn gone_pages<'a>(client: &'a Client, tenant: &str, prefix: &str) -> Pages<'a> {
    Pages::of(client, listed(Some(tenant), Some(prefix), None))
}

/// The ids of jobs of the next page that still have something to run and are not named.
async fn next_gone(pages: &mut Pages<'_>, named: &HashSet<u64>) -> Result<Option<Vec<String>>, CommandError> {
    let Some(page) = pages.next(LARGEST_PAGE).await? else { return Ok(None) };
    let runs_on = |job: &&Value| matches!(job["state"].as_str(), Some("active" | "paused" | "quarantined"));
    let ids = page.iter().filter(runs_on).map(|job| said(job, "id"));
    Ok(Some(ids.filter(|id| !named.contains(&fingerprint(id))).collect()))
}

/// Cancels the jobs under a prefix that are not named; returns how many are, and how many could not be.
pub(super) async fn cancel_gone(
    client: &Client,
    tenant: &str,
    prefix: &str,
    named: &HashSet<u64>,
) -> Result<(u64, u64), CommandError> {
    let (mut cancelled, mut left) = (0, 0);
    let mut pages = gone_pages(client, tenant, prefix);
    while let Some(page) = next_gone(&mut pages, named).await? {
        let cancel = |id: String| async move {
            let ask = Ask::post(format!("{}/cancel", path_of(&id))).tenant(Some(tenant)).repeatable();
            (client.request(&ask).await, id)
        };
        let mut done = stream::iter(page.into_iter().map(cancel)).buffer_unordered(CANCELS_AT_ONCE);
        while let Some((answer, id)) = done.next().await {
            match answer {
                Ok(_) => cancelled += 1,
                // The listing lags behind what others cancelled or erased.
                Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {}
                Err(error) if error.status() == Some(StatusCode::CONFLICT) => {
                    left += 1;
                    eprintln!("job {tenant}/{id}: {error}");
                }
                Err(error) => return Err(asked(error)),
            }
        }
    }
    Ok((cancelled, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_problems_are_named_by_line_and_the_others_counted() {
        let of_file = [(3, "f.csv, line 3, column phone: x".to_owned())].into();
        let of_api = [(2, "/schedule: y".to_owned())].into();
        let shown = first_problems("f.csv", [&of_file, &of_api], 7);
        assert_eq!(shown, ["f.csv, line 2: /schedule: y", "f.csv, line 3, column phone: x", "f.csv: and 5 more"]);
    }

    #[test]
    fn a_tally_counts_all_and_names_some() {
        let mut tally = Tally::default();
        for line in 0..50 {
            tally.add(Outcome { line, id: format!("c-{line}"), result: Done::Created });
            tally.add(Outcome { line, id: "x".into(), result: Done::Refused("no".into()) });
        }
        assert_eq!(
            (tally.all(), tally.created.count, tally.created.examples.len(), tally.problems.len()),
            (100, 50, 20, 20)
        );
    }
}

//! An outage: jobs fell due for 49 minutes while no scheduler was up. Then three copies start, and every firing that is
//! owed is enqueued once or stands in one row with its reason.
//!
//! The times are shifted: the outage ends with the minute in which the proof begins, and the jobs are made as they would
//! have been made before it. What is owed and until when it may start is worked out here by plain arithmetic, on zones
//! whose clocks never change, and shares no code with the schedules.

mod cases;
mod check;

pub use cases::{Case, Outage, Owed};
pub use check::Tally;

use crate::local::{Local, Process, eventually, seconds};
use anyhow::Context;
use chrono::{SecondsFormat, TimeDelta};
use clap::Args;
use futures::stream::{self, StreamExt, TryStreamExt};
use punctual_core::due::SETTLE;
use punctual_core::job::{Job, JobKey};
use punctual_core::message::Message;
use punctual_core::ports::JobRead;
use punctual_core::process::print_line;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

const COPIES: [&str; 3] = ["s1", "s2", "s3"];
const CALLS_AT_ONCE: usize = 64;
const KEYS_AT_ONCE: usize = 100;
/// Rows of one job that are looked at: more than an outage can make.
const ROWS: usize = 200;
/// Working off may take so long, and a second more for so many jobs.
const WORKING_OFF: Duration = Duration::from_secs(90);
const JOBS_A_SECOND: usize = 50;

/// Settings of the proof.
#[derive(Clone, Debug, Args)]
pub struct OutageArgs {
    /// Jobs that fell due.
    #[arg(long, default_value_t = 61_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub jobs: u32,
    /// Write the numbers to this file as JSON.
    #[arg(long)]
    pub report: Option<PathBuf>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Jobs that fell due.
    pub jobs: usize,
    /// Firings that they owed, and what became of them.
    pub tally: Tally,
    /// Jobs that still stood where they stood.
    pub left_due: usize,
    /// From the start of the copies until nothing was due.
    pub worked_off_in: TimeDelta,
    /// What did not hold, and what the copies said that a person must look at.
    pub problems: Vec<String>,
}

impl Outcome {
    /// One line.
    pub fn line(&self) -> String {
        let Tally { fired, missed, late, rows, .. } = self.tally;
        format!(
            "{} jobs owed {} firings after 49 minutes: {fired} enqueued late, {missed} skipped as missed and {late} past \
             their deadline in {rows} rows, {} left due, worked off in {} s",
            self.jobs,
            self.tally.owed,
            self.left_due,
            seconds(self.worked_off_in)
        )
    }
}

/// Plays the outage and prints what came of it; returns whether all of it held.
///
/// # Errors
/// When a part could not be started, ended by itself, or the backlog was not worked off in time.
pub async fn run(args: OutageArgs) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("this program does not know its own path")?;
    let outcome = play(program, args.jobs as usize).await?;
    if let Some(path) = &args.report {
        let Tally { owed, fired, missed, late, rows, .. } = outcome.tally;
        let report = json!({
            "jobs": outcome.jobs, "owed": owed, "enqueued": fired, "skipped_missed": missed, "skipped_deadline": late,
            "rows": rows, "left_due": outcome.left_due, "worked_off_in_s": seconds(outcome.worked_off_in),
            "problems": outcome.problems,
        });
        let written = std::fs::write(path, format!("{report:#}\n"));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print_line(&outcome.line())?;
    for problem in &outcome.problems {
        print_line(&format!("PROBLEM: {problem}"))?;
    }
    if outcome.problems.is_empty() {
        print_line("every firing is accounted for once, nothing is left")?;
    }
    Ok(outcome.problems.is_empty())
}

/// Plays the outage with copies of `program`.
///
/// # Errors
/// When a part could not be started, ended by itself, or the backlog was not worked off in time.
pub async fn play(program: impl Into<PathBuf>, jobs: usize) -> anyhow::Result<Outcome> {
    let local = Local::start(program, GatewayConfig::default(), &[]).await?;
    local.punctual(&["setup"]).await?;
    let (zones, outage) = (Zones::embedded(), Outage::ending_at(local.now()));
    // Where the cursors stood when the last copy went down.
    let cursor = outage.down - SETTLE;
    local.punctual(&["cursors", "rewind", "--to", &cursor.to_rfc3339_opts(SecondsFormat::Secs, true)]).await?;
    let cases: Vec<Case> = (0..jobs).map(|n| Case::nth(n, &outage, &zones)).collect();
    local.load(cases.iter().map(|case| case.spec.clone()), outage.made_at(), &zones).await?;

    let began = local.now();
    let start = |name| local.start_scheduler(name, &[]);
    let copies = COPIES.map(start).into_iter().collect::<Result<Vec<_>, _>>()?;
    let within = WORKING_OFF + Duration::from_secs((jobs / JOBS_A_SECOND) as u64);
    eventually("the backlog is worked off", within, async || {
        // A job that moves while the index is read may be seen nowhere: the jobs themselves decide.
        Ok(local.left_due(outage.down, 1).await? == 0 && standing_due(&local, &cases).await? == 0)
    })
    .await?;
    let worked_off_in = local.now() - began;
    let mut problems: Vec<String> = copies.iter().flat_map(Process::errors).collect();
    for copy in copies {
        copy.stop().await?;
    }
    let tally = check_all(&local, &cases, &mut problems).await?;
    let left_due = local.left_due(outage.down, usize::MAX).await?;
    if left_due > 0 {
        problems.push(format!("{left_due} jobs are still due"));
    }
    local.stack.stop().await;
    Ok(Outcome { jobs, tally, left_due, worked_off_in, problems })
}

async fn jobs_of(local: &Local, cases: &[Case]) -> anyhow::Result<BTreeMap<JobKey, JobRead>> {
    let keys: Vec<JobKey> = cases.iter().map(|case| case.spec.key.clone()).collect();
    let pages = keys.chunks(KEYS_AT_ONCE).map(|keys| local.ports.jobs.get_many(keys));
    let pages: Vec<_> = pages.collect();
    let pages: Vec<_> = stream::iter(pages).buffer_unordered(CALLS_AT_ONCE).try_collect().await?;
    Ok(pages.into_iter().flatten().collect())
}

/// Counts the jobs that stand at a firing which is due.
async fn standing_due(local: &Local, cases: &[Case]) -> anyhow::Result<usize> {
    let now = local.now();
    let is_due = |read: &JobRead| read.job().is_some_and(|job| job.next_due_at.is_some_and(|at| at <= now));
    Ok(jobs_of(local, cases).await?.values().filter(|read| is_due(read)).count())
}

async fn check_all(local: &Local, cases: &[Case], problems: &mut Vec<String>) -> anyhow::Result<Tally> {
    let mut fired: HashMap<JobKey, Vec<Message>> = HashMap::new();
    for sent in local.ledger.since(0) {
        fired.entry(sent.message.job_key.clone()).or_default().push(sent.message);
    }
    let jobs = jobs_of(local, cases).await?;
    let rows =
        cases.iter().map(|case| async move { anyhow::Ok((case, local.ports.runs.list(&case.spec.key, ROWS).await?)) });
    let rows: Vec<_> = rows.collect();
    let rows: Vec<_> = stream::iter(rows).buffer_unordered(CALLS_AT_ONCE).try_collect().await?;
    let mut tally = Tally::default();
    for (case, rows) in rows {
        let fired = fired.get(&case.spec.key).map(Vec::as_slice).unwrap_or_default();
        let job = jobs.get(&case.spec.key).and_then(JobRead::job);
        if let Err(problem) = check::account(case, fired, &rows, &mut tally).and_then(|()| stands_right(case, job)) {
            problems.push(format!("{} ({}, {}): {problem}", case.spec.key, case.spec.schedule, case.spec.missed.many));
        }
    }
    Ok(tally)
}

/// Whether the job stands where it stands when nothing is owed any more.
fn stands_right(case: &Case, job: Option<&Job>) -> Result<(), String> {
    let job = job.ok_or("the job is gone")?;
    if job.next_scheduled_at != case.then {
        return Err(format!("it stands at {:?} instead of {:?}", job.next_scheduled_at, case.then));
    }
    Ok(())
}

//! Three scheduler copies over jobs that are all due at one instant, round after round: each run is enqueued once, none is
//! left, and the copies share the work. The control takes the shared leases away, and each run is enqueued by every copy.
//!
//! The copies stay up over the rounds. In every other round the instant is still to come when its jobs are made, by more
//! than the look-ahead, so that the runs are read early and sent by the clock; in the others it has passed, and the passes
//! find them.

use crate::local::{Local, Process, Sent, eventually, name_of, seconds};
use crate::multicall::WITHOUT_LEASES;
use crate::reminder;
use anyhow::Context;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use punctual_core::job::JobSpec;
use punctual_core::priority::Priority;
use punctual_core::process::print_line;
use punctual_core::run::RunId;
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

const COPIES: [&str; 3] = ["s1", "s2", "s3"];
/// The share of a round that each copy enqueues, in per cent.
const SHARE: std::ops::RangeInclusive<f64> = 25.0..=45.0;
/// Without leases at least so many are enqueued for each that is due.
const DOUBLED: f64 = 1.5;
/// How long ago the jobs of every other round were due: the reader looks at that minute in full passes only.
const PASSED: TimeDelta = TimeDelta::seconds(90);
/// A round may take so long, and a second more for so many jobs.
const ROUND_TIME: Duration = Duration::from_secs(60);
const JOBS_A_SECOND: u64 = 100;
/// Jobs are loaded at this pace at least, on a quiet machine; those that come later are late.
const LOADED_A_SECOND: u64 = 700;
/// The same on a busy machine. Without leases only what every copy has read ahead is sure to meet: whoever passes over it
/// later finds it advanced.
const SLOWLY: u64 = 200;

/// Settings of the proof.
#[derive(Clone, Debug, Args)]
pub struct RoundsArgs {
    /// How many rounds.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Due jobs of a round.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub jobs: u64,
    /// Seconds by which the copies read ahead.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=50))]
    pub look_ahead_s: u64,
    /// Give each copy leases that no other sees: the control. Every round must double then; each is one to come.
    #[arg(long)]
    pub without_leases: bool,
    /// Write the numbers to this file as JSON.
    #[arg(long)]
    pub report: Option<PathBuf>,
}

/// What one round came to.
#[derive(Clone, Debug)]
pub struct Round {
    /// Its number, from 1.
    pub number: u32,
    /// Whether its instant was to come when its jobs were made.
    pub is_ahead: bool,
    /// Jobs that were due.
    pub due: usize,
    /// Messages that the queues took for them.
    pub enqueued: usize,
    /// Different runs among them.
    pub distinct: usize,
    /// Jobs that still stood where they stood.
    pub left_due: usize,
    /// Per cent of the messages, by copy.
    pub shares: BTreeMap<String, f64>,
    /// From the first message to the last.
    pub sent_in: TimeDelta,
    /// From the instant, or from the making of the first job, until the last message could be received.
    pub done_in: TimeDelta,
}

impl Round {
    /// Messages that the queues took in a second, from the first to the last.
    pub fn runs_per_s(&self) -> f64 {
        (self.enqueued as f64 / self.sent_in.as_seconds_f64().max(0.001)).round()
    }

    /// What did not hold of a round with leases.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let Round { due, enqueued, distinct, left_due, .. } = self;
        if (enqueued, distinct, *left_due) != (due, due, 0) {
            problems.push(format!("{due} due: {enqueued} enqueued, {distinct} of them distinct, {left_due} left due"));
        }
        for name in COPIES {
            let share = self.shares.get(name).copied().unwrap_or_default();
            if !SHARE.contains(&share) {
                problems.push(format!("{name} enqueued {share:.1} %"));
            }
        }
        problems
    }

    /// Whether a round without leases shows what they are for.
    pub fn is_doubled(&self) -> bool {
        self.enqueued as f64 >= DOUBLED * self.due as f64 && (self.distinct, self.left_due) == (self.due, 0)
    }

    /// One line.
    pub fn line(&self) -> String {
        let shares: Vec<String> = self.shares.values().map(|share| format!("{share:.1}")).collect();
        format!(
            "round {:>2}, {}: {} due, {} enqueued, {} distinct, {} left due, shares {} %, sent within {} s, done {} s \
             after it began, {} runs/s",
            self.number,
            if self.is_ahead { "to come" } else { "passed " },
            self.due,
            self.enqueued,
            self.distinct,
            self.left_due,
            shares.join(" "),
            seconds(self.sent_in),
            seconds(self.done_in),
            self.runs_per_s()
        )
    }

    fn json(&self) -> Value {
        json!({
            "round": self.number, "is_ahead": self.is_ahead, "due": self.due, "enqueued": self.enqueued,
            "distinct": self.distinct, "left_due": self.left_due, "shares_percent": self.shares,
            "sent_in_s": seconds(self.sent_in), "done_in_s": seconds(self.done_in), "runs_per_s": self.runs_per_s(),
        })
    }
}

/// What all rounds came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rounds.
    pub rounds: Vec<Round>,
    /// Messages that the queues took in all, counted when every copy had stopped.
    pub enqueued: usize,
    /// What the copies said that a person must look at.
    pub errors: Vec<String>,
}

impl Outcome {
    /// What did not hold.
    pub fn problems(&self, without_leases: bool) -> Vec<String> {
        let mut problems = self.errors.clone();
        for round in &self.rounds {
            let of_round = if !without_leases {
                round.problems()
            } else if round.is_doubled() {
                Vec::new()
            } else {
                vec![format!("without leases {} were enqueued for {} due", round.enqueued, round.due)]
            };
            problems.extend(of_round.into_iter().map(|problem| format!("round {}: {problem}", round.number)));
        }
        let due: usize = self.rounds.iter().map(|round| round.due).sum();
        if !without_leases && self.enqueued != due {
            problems.push(format!("{due} were due in all, {} were enqueued by the end", self.enqueued));
        }
        problems
    }
}

/// Plays all rounds and prints a line for each; returns whether all of them held.
///
/// # Errors
/// When a part could not be started, ended by itself, or a round did not end in time.
pub async fn run(args: RoundsArgs) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("this program does not know its own path")?;
    let outcome = play(program, &args, |round| print_line(&round.line())).await?;
    let problems = outcome.problems(args.without_leases);
    if let Some(path) = &args.report {
        let rounds: Vec<Value> = outcome.rounds.iter().map(Round::json).collect();
        let report = json!({"rounds": rounds, "enqueued": outcome.enqueued, "problems": problems});
        let written = std::fs::write(path, format!("{report:#}\n"));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    for problem in &problems {
        print_line(&format!("PROBLEM: {problem}"))?;
    }
    if problems.is_empty() {
        let rounds = outcome.rounds.len();
        print_line(&match args.without_leases {
            false => format!("{rounds} of {rounds} rounds: every run was enqueued once, none is left"),
            true => format!("{rounds} of {rounds} rounds: without leases runs are enqueued again and again"),
        })?;
    }
    Ok(problems.is_empty())
}

/// Plays all rounds with copies of `program`; each is told when it is over.
///
/// # Errors
/// When a part could not be started, ended by itself, or a round did not end in time.
pub async fn play(
    program: impl Into<PathBuf>,
    args: &RoundsArgs,
    mut told: impl FnMut(&Round) -> std::io::Result<()>,
) -> anyhow::Result<Outcome> {
    let local = Local::start(program, GatewayConfig::default(), &[]).await?;
    local.punctual(&["setup"]).await?;
    let mut copies = start_copies(&local, args).await?;
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let round = play_round(&local, number, args).await?;
        for copy in &mut copies {
            copy.check()?;
        }
        told(&round)?;
        rounds.push(round);
    }
    let errors = copies.iter().flat_map(Process::errors).collect();
    for copy in copies {
        copy.stop().await?;
    }
    let enqueued = local.ledger.len();
    local.stack.stop().await;
    Ok(Outcome { rounds, enqueued, errors })
}

async fn start_copies(local: &Local, args: &RoundsArgs) -> anyhow::Result<Vec<Process>> {
    let look_ahead_s = args.look_ahead_s.to_string();
    let options = ["--look-ahead-s", &look_ahead_s];
    let start = |name| match args.without_leases {
        false => local.start_scheduler(name, &options),
        true => local.start_process(name, WITHOUT_LEASES, &[&["--id", name], &options[..]].concat()),
    };
    let copies = COPIES.map(start).into_iter().collect::<Result<Vec<_>, _>>()?;
    if !args.without_leases {
        local.wait_for_even_shards(COPIES.len()).await?;
        return Ok(copies);
    }
    // Nobody but the copy itself sees its leases.
    eventually("every copy has taken shards", ROUND_TIME, async || {
        Ok(copies.iter().all(|copy| copy.log().contains("shards taken")))
    })
    .await?;
    Ok(copies)
}

async fn play_round(local: &Local, number: u32, args: &RoundsArgs) -> anyhow::Result<Round> {
    let (jobs, before, began) = (args.jobs, local.ledger.len(), whole_second(local.now()));
    let is_ahead = args.without_leases || number % 2 == 1;
    let (slack_s, loaded_a_second) = if args.without_leases { (8, SLOWLY) } else { (2, LOADED_A_SECOND) };
    let lead_s = args.look_ahead_s + slack_s + jobs / loaded_a_second;
    let due_at = if is_ahead { began + TimeDelta::seconds(lead_s as i64) } else { began - PASSED };
    let specs = (0..jobs).map(|n| due(&format!("r{number}/c-{n}"), due_at, n));
    local.load(specs, due_at - TimeDelta::minutes(1), &Zones::embedded()).await?;
    let within = ROUND_TIME + Duration::from_secs(args.look_ahead_s + jobs / JOBS_A_SECOND);
    let due = jobs as usize;
    eventually("every run of the round is enqueued", within, async || Ok(local.ledger.len() >= before + due)).await?;
    local.wait_until_nothing_is_due(due_at, within).await?;
    let sent = local.ledger.since(before);
    let first = sent.iter().map(|sent| sent.accepted_at).min().unwrap_or(began);
    let last = sent.iter().map(|sent| sent.accepted_at).max().unwrap_or(began);
    let visible = sent.iter().map(|sent| sent.visible_at).max().unwrap_or(began);
    let distinct: HashSet<RunId> = sent.iter().map(|sent| sent.message.run_id()).collect();
    Ok(Round {
        number,
        is_ahead,
        due,
        enqueued: sent.len(),
        distinct: distinct.len(),
        left_due: local.left_due(due_at, usize::MAX).await?,
        shares: shares(&sent),
        sent_in: last - first,
        done_in: visible - due_at.max(began),
    })
}

/// A job that is due at `due_at` and each day after that.
fn due(id: &str, due_at: DateTime<Utc>, n: u64) -> JobSpec {
    let schedule = format!("every 24h from {}", due_at.to_rfc3339_opts(SecondsFormat::Secs, true));
    let priority = match n % 10 {
        0 => Priority::Urgent,
        1 | 2 => Priority::Bulk,
        _ => Priority::Normal,
    };
    JobSpec { priority, ..reminder(id, &schedule) }
}

fn shares(sent: &[Sent]) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for sent in sent {
        *counts.entry(name_of(&sent.message.scheduler).to_owned()).or_default() += 1;
    }
    counts.into_iter().map(|(name, count)| (name, 100.0 * count as f64 / sent.len() as f64)).collect()
}

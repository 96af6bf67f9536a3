//! Many seeds one after the other, and one seed told in full: what `cargo sim` and the tests share.

use super::plan::Steer;
use super::processes::Sabotage;
use super::witness::What;
use super::{Played, play};
use chrono::{DateTime, Utc};
use punctual_core::job::JobKey;
use punctual_core::memory::Effect;
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{RunRow, RunStatus};
use punctual_core::steering::Scope;
use punctual_core::zone::Zones;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Seeds.
    pub seeds: u64,
    /// Runs with a row.
    pub rows: usize,
    /// Calls at the gateway.
    pub calls: usize,
    /// Changes that people were told of.
    pub changes: usize,
    /// Virtual time.
    pub time: Duration,
    /// How often each thing happened that the simulation is about.
    pub kinds: BTreeMap<String, usize>,
}

/// Plays seeds until one has a problem: its trace is the error.
///
/// # Errors
/// What went wrong with the first seed that has a problem.
pub fn play_all(seeds: Range<u64>, mut progress: impl FnMut(&Totals)) -> Result<Totals, String> {
    let zones = Arc::new(Zones::embedded());
    let mut totals = Totals::default();
    for seed in seeds {
        let played = play(seed, &zones, Sabotage::none());
        let problems = played.problems();
        if !problems.is_empty() {
            return Err(played.trace(&problems));
        }
        totals.add(&played);
        progress(&totals);
    }
    Ok(totals)
}

impl Totals {
    fn add(&mut self, played: &Played) {
        self.seeds += 1;
        self.rows += played.world.rows().len();
        self.calls += played.world.sends().len();
        self.changes += played.replies.len();
        for kind in played.kinds() {
            *self.kinds.entry(kind).or_default() += 1;
        }
        self.time += (played.ended_at - played.scenario.start).to_std().unwrap_or_default();
    }
}

/// `sim [--from N] [--seeds N] [--seed N] [--trace]`.
pub fn main(words: &[String]) -> ExitCode {
    match Words::read(words) {
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
        Ok(Words { seed: Some(seed), trace, .. }) => one(seed, trace),
        Ok(Words { from, seeds, .. }) => many(from, seeds),
    }
}

struct Words {
    from: u64,
    seeds: u64,
    seed: Option<u64>,
    trace: bool,
}

impl Words {
    fn read(words: &[String]) -> Result<Self, String> {
        let mut read = Words { from: 1, seeds: 10_000, seed: None, trace: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let next = words.next().and_then(|text| text.parse().ok());
                next.ok_or_else(|| format!("`{word}` needs a number behind it"))
            };
            match word.as_str() {
                "--from" => read.from = number()?,
                "--seeds" => read.seeds = number()?,
                "--seed" => read.seed = Some(number()?),
                "--trace" => read.trace = true,
                other => return Err(format!("`{other}` is unknown: write --from, --seeds, --seed or --trace")),
            }
        }
        Ok(read)
    }
}

fn one(seed: u64, trace: bool) -> ExitCode {
    let played = play(seed, &Arc::new(Zones::embedded()), Sabotage::none());
    let problems = played.problems();
    if trace {
        print!("{}", played.trace_all(&problems));
    }
    println!("seed {seed}: {} problems, digest {:016x}", problems.len(), played.digest());
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(from: u64, seeds: u64) -> ExitCode {
    let tell = |totals: &Totals| {
        if totals.seeds.is_multiple_of(500) {
            println!("{} seeds", totals.seeds);
        }
    };
    match play_all(from..from.saturating_add(seeds), tell) {
        Ok(totals) => {
            println!(
                "{} seeds, {} runs, {} calls, {} requests, {} hours of virtual time: nothing is wrong",
                totals.seeds,
                totals.rows,
                totals.calls,
                totals.changes,
                totals.time.as_secs() / 3_600
            );
            totals.kinds.iter().for_each(|(kind, count)| println!("{count:>9} {kind}"));
            ExitCode::SUCCESS
        }
        Err(trace) => {
            print!("{trace}");
            ExitCode::FAILURE
        }
    }
}

impl Played {
    /// What happened in it, one word for each time.
    fn kinds(&self) -> Vec<String> {
        let rows = self.world.rows().into_values();
        let of_row = rows.map(|row| match (row.reason, row.range) {
            (Some(_), Some(_)) => "skipped as a range".into(),
            (Some(reason), None) if row.status == RunStatus::Skipped => format!("skipped: {reason:?}").to_lowercase(),
            _ if row.attempt > 1 => format!("{} after several attempts", row.status.as_str()),
            _ => row.status.as_str().to_owned(),
        });
        let taken_over = |row: &RunRow| row.attempts.iter().any(|attempt| attempt.class == Some(OutcomeClass::Lost));
        let takeovers = self.world.rows().into_values().filter(taken_over).map(|_| "taken over".to_owned());
        let again = self.world.enqueued().len().saturating_sub(self.world.rows().len());
        let notes = self.notes.iter().filter_map(|note| match &note.what {
            What::Died => Some("a process died".to_owned()),
            What::Frozen(true) => Some("a process stood still".to_owned()),
            What::Called(_) if self.scenario.functions.contains(&note.process) => Some("a function called".to_owned()),
            What::Answered { given_back: 1.., .. } => Some("a function gave back".to_owned()),
            What::Steered(Steer::Hold(scope)) => Some(format!("held: {}", kind_of(scope))),
            What::Steered(Steer::Limit(1..=2)) => Some("a low limit".to_owned()),
            _ => None,
        });
        of_row.chain(takeovers).chain(notes).chain(vec!["enqueued again".to_owned(); again]).collect()
    }

    /// The trace of all jobs.
    pub fn trace_all(&self, problems: &[String]) -> String {
        let mut text = String::new();
        let all: Vec<JobKey> = self.scenario.jobs.iter().map(|job| job.spec.key.clone()).collect();
        self.tell(&mut text, &all);
        text + &self.trace(problems)
    }

    /// Writes down what happened to some jobs, and to all processes.
    pub(super) fn tell(&self, text: &mut String, keys: &[JobKey]) {
        let mut notes = self.notes.iter().peekable();
        for index in 0..=self.history.len() {
            while let Some(note) = notes.next_if(|note| note.after <= index) {
                let line = match &note.what {
                    What::Read(key) if keys.contains(key) => format!("looks at {key}"),
                    What::Called(run) if keys.contains(&run.job_key) => format!("calls for {run}"),
                    What::Answered { done, given_back } => format!("is done with {done}, gives {given_back} back"),
                    What::Steered(how) => format!("says {how:?}"),
                    What::Began => "begins".into(),
                    What::Died => "dies".into(),
                    What::Frozen(true) => "stands still".into(),
                    What::Frozen(false) => "goes on".into(),
                    _ => continue,
                };
                self.line(text, note.at, &format!("{} {line}", note.process));
            }
            for reply in self.replies.iter().filter(|reply| reply.after == index && keys.contains(&reply.key)) {
                let (key, ask, answer) = (&reply.key, &reply.ask, &reply.answer);
                self.line(text, reply.told_at, &format!("{key} {ask:?}: {answer:?}"));
            }
            if let Some(recorded) = self.history.get(index)
                && let Some(line) = effect(&recorded.effect, keys)
            {
                self.line(text, recorded.at, &line);
            }
        }
    }

    fn line(&self, text: &mut String, at: DateTime<Utc>, what: &str) {
        let since = (at - self.scenario.start).as_seconds_f64();
        let _ = writeln!(text, "{since:>9.3} {} {what}", at.format("%H:%M:%S"));
    }
}

fn kind_of(scope: &Scope) -> &'static str {
    match scope {
        Scope::All => "all",
        Scope::Tenant(_) => "a tenant",
        Scope::Priority(_) => "a priority",
        Scope::Target(_) => "a target",
    }
}

fn effect(effect: &Effect, keys: &[JobKey]) -> Option<String> {
    let clock = |at: &DateTime<Utc>| at.format("%H:%M:%S").to_string();
    match effect {
        Effect::Job(job) if keys.contains(&job.spec.key) => Some(format!(
            "{} is {:?} v{} g{}, next {:?}, {}, {:?}, spread {:?}, {:?}",
            job.spec.key,
            job.state,
            job.version,
            job.generation,
            job.next_scheduled_at.as_ref().map(clock),
            job.spec.schedule,
            job.spec.priority,
            job.spec.spread,
            job.spec.missed,
        )),
        Effect::Advanced { key, from, to } if keys.contains(key) => {
            Some(format!("{key} advances {} to {:?}", clock(from), to.as_ref().map(clock)))
        }
        Effect::Enqueued(sent) => {
            sent.message.as_ref().filter(|message| keys.contains(&message.job_key)).map(|message| {
                let (run, at, due) = (message.run_id(), clock(&message.scheduled_at), clock(&message.due_at));
                format!("{run} ({at}, due {due}) enqueued by {}, g{}", message.scheduler, message.generation)
            })
        }
        Effect::Row(row) if keys.contains(&row.id.job_key) => Some(format!(
            "{} row {:?} attempt {} {:?} {:?} g{} by {:?}",
            row.id,
            row.status,
            row.attempt,
            row.reason,
            row.range,
            row.generation,
            row.attempts.last().map(|attempt| (&attempt.worker, attempt.class)),
        )),
        Effect::Sent { reference } if keys.contains(&reference.job_key) => Some(format!("{reference} at the gateway")),
        Effect::DeadLetter { run_id: Some(run) } if keys.iter().any(|key| run.starts_with(key.as_str())) => {
            Some(format!("{run} dead letter"))
        }
        _ => None,
    }
}

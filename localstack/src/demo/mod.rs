//! `cargo demo`: a person with a fresh machine sees reminders go from a timetable to a gateway, while processes die.
//!
//! The stack runs in this process and counts; schedulers and workers are processes of their own that know only its
//! addresses. The demo fails if anything was lost, left, or sent twice outside the documented gap.

mod display;
mod lags;
mod ledger;
pub mod processes;
mod reminders;
mod report;
mod screen;

pub use report::{Killed, MaxRss, Percentiles, Report};

use crate::gateway::GatewayConfig;
use crate::multicall::{SCHEDULER, WORKER};
use crate::stack::{Stack, StackConfig};
use anyhow::{Context, bail};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use display::{Display, Looks};
use ledger::Ledger;
use processes::{Launcher, Process};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::due::{DueBucket, Minute, Shards};
use punctual_core::lease::LeaseId;
use punctual_core::ports::{DueSpan, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::{EXIT_FAILED, EXIT_OK, print_line};
use punctual_core::zone::Zones;
use rand::{Rng, SeedableRng};
use report::Expected;
use screen::Figures;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(100);
/// Calls a second that the workers make together, as it is where no other limit was set; the gateway takes 500.
const RATE_PER_S: u64 = 450;
/// Slots of a worker: the most calls that are in flight when it dies.
const SLOTS: u64 = 20;

/// Settings of the demo.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Reminders to send.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub jobs: u64,
    /// Scheduler processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub schedulers: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub workers: u64,
    /// Start the workers only when all is enqueued, to measure dispatch alone.
    #[arg(long)]
    pub dispatch_only: bool,
    /// Kill a scheduler and a worker in the middle, and start replacements.
    #[arg(long)]
    pub chaos: bool,
    /// Chooses whom to kill, and when.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The gateway sends a repeated reference again, instead of dropping it.
    #[arg(long)]
    pub gateway_sends_repeats: bool,
    /// Write the numbers to this file as JSON.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Keep the processes' logs in this folder.
    #[arg(long)]
    pub logs: Option<PathBuf>,
}

/// Runs the demo; returns the exit code.
///
/// # Errors
/// When a part could not be started or ended by itself. Broken promises are an exit code, after the summary.
pub async fn run(args: DemoArgs) -> anyhow::Result<u8> {
    let scratch = tempfile::tempdir()?;
    let logs = args.logs.clone().unwrap_or_else(|| scratch.path().join("logs"));
    std::fs::create_dir_all(&logs)?;
    let mut demo = Demo::start(args, logs).await?;
    let outcome = demo.play(&scratch.path().join("reminders.csv")).await;
    let code = match outcome {
        Ok(report) => demo.close(report).await?,
        Err(error) => {
            // The logs say why: they stay.
            let kept = scratch.keep();
            bail!("{error:#}; the logs are in {}", demo.args.logs.clone().unwrap_or(kept.join("logs")).display());
        }
    };
    demo.stack.stop().await;
    Ok(code)
}

struct Demo {
    args: DemoArgs,
    clock: SystemClock,
    stack: Stack,
    ports: Ports,
    ledger: Ledger,
    launcher: Launcher,
    schedulers: Vec<Process>,
    workers: Vec<Process>,
    /// Names of all schedulers ever started, and memory peaks of those that are gone.
    scheduler_names: Vec<String>,
    peaks: MaxRss,
    killed: Vec<Killed>,
    display: Display,
}

impl Demo {
    async fn start(args: DemoArgs, logs: PathBuf) -> anyhow::Result<Self> {
        let ledger = Ledger::new();
        let observer = ledger.clone();
        let stack = Stack::start(StackConfig {
            gateway: GatewayConfig { drops_repeats: !args.gateway_sends_repeats, ..GatewayConfig::default() },
            on_message: Some(Arc::new(move |message| observer.note(&message))),
            ..StackConfig::default()
        })?;
        let mut settings = stack.exports();
        let window = if args.gateway_sends_repeats { 0 } else { 86_400 };
        settings.extend([
            ("PUNCTUAL_TENANT", "demo".into()),
            ("PUNCTUAL_SMS_DEDUPE_WINDOW_S", window.to_string()),
            ("PUNCTUAL_WORK_SLOTS", SLOTS.to_string()),
        ]);
        if args.chaos {
            // What a dead worker held comes back when its leases end: 12 s here instead of 60 s, so that nobody waits.
            // One host has one clock, so a row may be taken over as soon as its lease is over.
            settings.extend(
                [
                    ("PUNCTUAL_WORK_VISIBILITY_S", "12"),
                    ("PUNCTUAL_WORK_TRUST_S", "9"),
                    ("PUNCTUAL_WORK_HEARTBEAT_S", "3"),
                    ("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "2"),
                    ("PUNCTUAL_WORK_TAKEOVER_GRACE_S", "1"),
                ]
                .map(|(name, value)| (name, value.to_owned())),
            );
        }
        let names = Names::new("punctual").map_err(anyhow::Error::msg)?;
        let ports = stack.aws(names).await.ports();
        Ok(Demo {
            launcher: Launcher { settings, logs },
            clock: SystemClock::new(),
            stack,
            ports,
            ledger,
            schedulers: Vec::new(),
            workers: Vec::new(),
            scheduler_names: Vec::new(),
            peaks: MaxRss::default(),
            killed: Vec::new(),
            display: Display::new(),
            args,
        })
    }

    async fn play(&mut self, csv: &std::path::Path) -> anyhow::Result<Report> {
        let began = self.clock.now();
        self.launcher.punctual(&["setup"]).await?;
        for _ in 0..self.args.schedulers {
            self.start_scheduler()?;
        }
        if !self.args.dispatch_only {
            for _ in 0..self.args.workers {
                self.start_worker()?;
            }
        }
        self.say("waiting until every scheduler holds shards");
        self.wait_for_shards().await?;
        let due_at = reminders::due_at(self.clock.now(), self.args.jobs);
        // The rules that the processes use as well: `PUNCTUAL_TZDIR` is not passed on to them.
        let zones = reminders::write_csv(csv, self.args.jobs as usize, due_at, &Zones::load(None)?)?;
        self.say("importing the reminders");
        self.launcher.punctual(&["jobs", "import", &csv.display().to_string(), "--yes"]).await?;
        if self.clock.now() >= due_at {
            bail!(
                "the import took until after the reminders were due: the machine is too slow for {} jobs",
                self.args.jobs
            );
        }
        let due = due_at.format("%H:%M:%S UTC");
        self.say(&format!("{} reminders are due at {due}, on the clocks of {zones} zones", self.args.jobs));
        self.watch(began, due_at).await?;
        let mut report = Report {
            jobs: self.args.jobs,
            zones,
            due: self.args.jobs,
            left_due: self.left_due(began).await?,
            ..Report::default()
        };
        for process in self.schedulers.iter_mut().chain(&mut self.workers) {
            process.stop().await?;
        }
        let (schedulers, workers) = (std::mem::take(&mut self.schedulers), std::mem::take(&mut self.workers));
        self.note_peaks(&schedulers, &workers);
        report.fill_queue(&self.ledger.book(), &self.scheduler_names);
        report.fill_gateway(&self.stack.gateway().stats(), &self.stack.gateway().arrivals());
        report.elapsed_s = (self.clock.now() - began).as_seconds_f64();
        report.max_rss_mb = self.peaks;
        report.killed = std::mem::take(&mut self.killed);
        Ok(report)
    }

    /// Watches until everything was delivered, the queues are empty and no job is due any more, or the time is over.
    async fn watch(&mut self, began: DateTime<Utc>, due_at: DateTime<Utc>) -> anyhow::Result<()> {
        let jobs = self.args.jobs;
        let time = jobs as i64 * 2 / RATE_PER_S as i64 + if self.args.chaos { 180 } else { 120 };
        let give_up_at = due_at + TimeDelta::seconds(time);
        let (mut enqueued, mut accepted) = (self.ledger.distinct(), self.stack.gateway().accepted_watch());
        let mut looks = Looks::begin(self.ports.queue.clone());
        let mut kills = if self.args.chaos { planned_kills(&self.args) } else { Vec::new() };
        loop {
            let counts = (*enqueued.borrow(), *accepted.borrow());
            self.show(&mut looks, counts, due_at);
            for process in self.schedulers.iter_mut().chain(&mut self.workers) {
                process.check()?;
            }
            if self.args.dispatch_only && self.workers.is_empty() && counts.0 >= jobs {
                for _ in 0..self.args.workers {
                    self.start_worker()?;
                }
            }
            for kill in kills.extract_if(.., |kill| kill.is_due(counts)) {
                self.kill(kill).await?;
            }
            // A scheduler killed between a send and its advance leaves jobs due until another one takes its shards.
            let is_delivered = counts.0 >= jobs && counts.1 >= jobs && kills.is_empty();
            if is_delivered && self.queues_are_empty().await? && self.left_due(began).await? == 0 {
                break;
            }
            if self.clock.now() > give_up_at {
                self.say("the time is over");
                break;
            }
            // A kill happens at its count and not at the next look.
            let (scheduler_at, worker_at) = (next_kill(&kills, Role::Scheduler), next_kill(&kills, Role::Worker));
            tokio::select! {
                _ = enqueued.wait_for(|n| *n >= scheduler_at) => {}
                _ = accepted.wait_for(|n| *n >= worker_at) => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        self.display.clear();
        Ok(())
    }

    fn show(&mut self, looks: &mut Looks, (enqueued, delivered): (u64, u64), due_at: DateTime<Utc>) {
        let now = self.clock.monotonic();
        if !self.display.is_due(now) {
            return;
        }
        let (enqueued_per_s, delivered_per_s) = looks.per_s(now, enqueued, delivered);
        let figures = Figures {
            jobs: self.args.jobs,
            since_due: self.clock.now() - due_at,
            enqueued,
            delivered,
            enqueued_per_s,
            delivered_per_s,
            dispatch_lag: self.ledger.dispatch_lag(),
            start_lag: looks.start_lag(self.stack.gateway()),
            queues: looks.queues(),
            schedulers: self.schedulers.len(),
            workers: self.workers.len(),
            killed: self.killed.iter().map(|killed| killed.process.clone()).collect(),
        };
        self.display.show(now, &figures);
    }

    async fn kill(&mut self, kill: Kill) -> anyhow::Result<()> {
        let (processes, counted, count) = match kill.role {
            Role::Scheduler => (&mut self.schedulers, "enqueued", self.ledger.distinct()),
            Role::Worker => (&mut self.workers, "accepted", self.stack.gateway().accepted_watch()),
        };
        let mut victim = processes.swap_remove(kill.victim % processes.len());
        let at = *count.borrow();
        victim.kill().await?;
        self.say(&format!("killed {} when {at} runs were {counted}; a replacement starts", victim.name));
        self.killed.push(Killed { process: victim.name.clone(), counted, at });
        match kill.role {
            Role::Scheduler => {
                self.note_peaks(&[victim], &[]);
                self.start_scheduler()
            }
            Role::Worker => {
                self.note_peaks(&[], &[victim]);
                self.start_worker()
            }
        }
    }

    fn start_scheduler(&mut self) -> anyhow::Result<()> {
        let name = format!("s{}", self.scheduler_names.len() + 1);
        self.schedulers.push(self.launcher.start(&name, SCHEDULER, &["dispatch", "--id", &name])?);
        self.scheduler_names.push(name);
        Ok(())
    }

    fn start_worker(&mut self) -> anyhow::Result<()> {
        let dead = self.killed.iter().filter(|k| k.process.starts_with('w')).count();
        let name = format!("w{}", self.workers.len() + dead + 1);
        self.workers.push(self.launcher.start(&name, WORKER, &["--id", &name])?);
        Ok(())
    }

    async fn wait_for_shards(&mut self) -> anyhow::Result<()> {
        let give_up_at = self.clock.monotonic() + Duration::from_secs(60);
        loop {
            for process in &mut self.schedulers {
                process.check()?;
            }
            let leases = self.ports.leases.list().await?;
            let shards = leases.iter().filter(|l| matches!(l.id, LeaseId::Shard(_)));
            let (held, free): (Vec<_>, Vec<_>) = shards.partition(|lease| lease.owner.is_some());
            let owners: BTreeSet<_> = held.iter().filter_map(|lease| lease.owner.as_ref()).collect();
            if free.is_empty() && owners.len() as u64 == self.args.schedulers {
                return Ok(());
            }
            if self.clock.monotonic() > give_up_at {
                bail!("after a minute only {} of {} schedulers hold shards", owners.len(), self.args.schedulers);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn queues_are_empty(&self) -> anyhow::Result<bool> {
        for priority in Priority::ALL {
            let depth = self.ports.queue.depth(priority).await?;
            if depth.visible + depth.in_flight + depth.delayed > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts what the due index still shows as due.
    async fn left_due(&self, since: DateTime<Utc>) -> anyhow::Result<u64> {
        let shards: Shards = self.ports.control.shards().await?.context("the store was never set up")?;
        let now = self.clock.now();
        let mut left = 0;
        for minute in Minute::of(since).0..=Minute::of(now).0 {
            for shard in shards.all() {
                let mut after = None;
                loop {
                    let bucket = DueBucket { minute: Minute(minute), shard };
                    let page = self.ports.due.page(bucket, DueSpan::up_to(now), after, 500).await?;
                    left += page.entries.len() as u64;
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(left)
    }

    fn note_peaks(&mut self, schedulers: &[Process], workers: &[Process]) {
        let most = |peak: f64, processes: &[Process]| processes.iter().fold(peak, |most, p| most.max(p.peak_rss_mb));
        let round = |mb: f64| (mb * 10.0).round() / 10.0;
        self.peaks.scheduler = round(most(self.peaks.scheduler, schedulers));
        self.peaks.worker = round(most(self.peaks.worker, workers));
    }

    fn say(&self, line: &str) {
        self.display.say(line);
    }

    /// Shows and writes the report; returns the exit code.
    async fn close(&mut self, report: Report) -> anyhow::Result<u8> {
        if let Some(path) = &self.args.report {
            let json = serde_json::to_string_pretty(&report)?;
            std::fs::write(path, json + "\n").with_context(|| format!("{} cannot be written", path.display()))?;
        }
        let dead_workers = report.killed.iter().filter(|k| k.process.starts_with('w')).count() as u64;
        // Where the gateway sends repeats, what a killed worker had in flight may go out again: the documented gap.
        let expected = Expected {
            crashes: self.args.chaos,
            repeats_are_dropped: !self.args.gateway_sends_repeats,
            may_be_sent_twice: if self.args.gateway_sends_repeats { dead_workers * SLOTS } else { 0 },
        };
        let (is_kept, verdict) = report.verdict(&expected);
        print_line(&format!("\n{}\n\n{verdict}", report.summary()))?;
        Ok(if is_kept { EXIT_OK } else { EXIT_FAILED })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Scheduler,
    Worker,
}

/// Whom to kill, and at which count.
#[derive(Clone, Copy)]
struct Kill {
    role: Role,
    at: u64,
    victim: usize,
}

impl Kill {
    fn is_due(&self, (enqueued, accepted): (u64, u64)) -> bool {
        match self.role {
            Role::Scheduler => enqueued >= self.at,
            Role::Worker => accepted >= self.at,
        }
    }
}

fn planned_kills(args: &DemoArgs) -> Vec<Kill> {
    let mut random = rand::rngs::StdRng::seed_from_u64(args.seed);
    let mut at = |share: std::ops::Range<f64>| ((args.jobs as f64 * random.random_range(share)) as u64).max(1);
    let (scheduler, worker) = (at(0.05..0.6), at(0.2..0.8));
    vec![
        Kill { role: Role::Worker, at: worker, victim: random.random_range(0..16) },
        Kill { role: Role::Scheduler, at: scheduler, victim: random.random_range(0..16) },
    ]
}

/// The count at which the next one of a role is killed; never, if none is left.
fn next_kill(kills: &[Kill], role: Role) -> u64 {
    kills.iter().filter(|kill| kill.role == role).map(|kill| kill.at).min().unwrap_or(u64::MAX)
}

//! A local stack with jobs in its tables, and scheduler copies on it.

use crate::jobs::{self, Batch};
use crate::queue::Queue;
use crate::report::Load;
use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::due::{DueBucket, Minute, Shards};
use punctual_core::lease::LeaseId;
use punctual_core::ports::{DueSpan, Ports};
use punctual_core::process::print_line;
use punctual_core::zone::Zones;
use punctual_localstack::demo::processes::{Launcher, Process};
use punctual_localstack::multicall::SCHEDULER;
use punctual_localstack::stack::{Stack, StackConfig};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How often something is looked at that is waited for.
pub const POLL: Duration = Duration::from_millis(50);
/// Ticks of a process's CPU time a second, as /proc shows it: `USER_HZ`, which is 100 wherever Rust's standard library runs.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long copies are given to share the shards.
const SHARING: Duration = Duration::from_secs(90);

/// The stack, the copies and what the queues took.
pub struct Scene {
    /// This machine's clock.
    pub clock: SystemClock,
    /// Adapters of this process, for looking.
    pub ports: Ports,
    /// What the queues took.
    pub queue: Queue,
    /// Jobs in the store.
    pub stored: usize,
    /// The copies that run.
    pub copies: Vec<Process>,
    /// How long loading took.
    pub loads: Vec<Load>,
    stack: Stack,
    shards: Shards,
    zones: Arc<Zones>,
    table: String,
    launcher: Launcher,
    /// Holds the tables and the copies' logs.
    _folder: TempDir,
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time, user and system, in seconds.
    pub cpu_s: f64,
    /// Memory in use, in MiB.
    pub rss_mb: f64,
    /// The most memory that was ever in use, in MiB.
    pub peak_mb: f64,
}

impl Scene {
    /// One whose tables are in memory.
    pub async fn in_memory() -> anyhow::Result<Self> {
        Self::start(false).await
    }

    /// One whose tables are in a file of the temporary folder.
    pub async fn with_file() -> anyhow::Result<Self> {
        Self::start(true).await
    }

    async fn start(has_file: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let queue = Queue::default();
        let observer = queue.clone();
        let stack = Stack::start(StackConfig {
            data: has_file.then(|| folder.path().join("tables.db")),
            on_message: Some(Arc::new(move |message| observer.note(message))),
            ..StackConfig::default()
        })?;
        let launcher = Launcher { settings: stack.exports(), logs: folder.path().to_owned() };
        launcher.punctual(&["setup"]).await?;
        let names = Names::new("punctual").map_err(anyhow::Error::msg)?;
        let table = names.jobs();
        let ports = stack.aws(names).await.ports();
        let shards = ports.control.shards().await?.context("setup stores the shard counts")?;
        Ok(Scene {
            clock: SystemClock::new(),
            ports,
            queue,
            stored: 0,
            copies: Vec::new(),
            loads: Vec::new(),
            stack,
            shards,
            zones: Arc::new(Zones::load(None)?),
            table,
            launcher,
            _folder: folder,
        })
    }

    /// Puts jobs into the table.
    pub async fn load(&mut self, batch: Batch, count: usize) -> anyhow::Result<()> {
        let began = self.clock.monotonic();
        let database = self.stack.database();
        jobs::load(batch, count, &self.table, database, &self.ports, self.shards, &self.zones).await?;
        self.stored += count;
        let seconds = (self.clock.monotonic() - began).as_secs_f64();
        self.loads.push(Load { jobs: count, seconds });
        print_line(&format!("loaded {count} jobs in {seconds:.1} s, {} are stored", self.stored))?;
        Ok(())
    }

    /// Fills the table up with jobs that are due tomorrow or later.
    pub async fn fill(&mut self, stored: usize) -> anyhow::Result<()> {
        let Some(missing) = stored.checked_sub(self.stored).filter(|missing| *missing > 0) else { return Ok(()) };
        let batch = Batch::Far { now: self.clock.now(), before: self.stored, of: stored };
        self.load(batch, missing).await
    }

    /// Starts copies.
    pub fn start_copies(&mut self, count: usize) -> anyhow::Result<()> {
        for n in 1..=count {
            let name = format!("s{n}");
            self.copies.push(self.launcher.start(&name, SCHEDULER, &["dispatch", "--id", &name])?);
        }
        Ok(())
    }

    /// Waits until every shard is held and every copy holds some.
    pub async fn wait_for_shards(&mut self) -> anyhow::Result<()> {
        let give_up_at = self.clock.monotonic() + SHARING;
        loop {
            self.check_copies()?;
            let leases = self.ports.leases.list().await?;
            let shards = leases.iter().filter(|lease| matches!(lease.id, LeaseId::Shard(_)));
            let owners: Option<BTreeSet<&String>> = shards.map(|lease| lease.owner.as_ref()).collect();
            if owners.is_some_and(|owners| owners.len() == self.copies.len()) {
                return Ok(());
            }
            if self.clock.monotonic() > give_up_at {
                bail!("{} copies did not share the shards within {} s", self.copies.len(), SHARING.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Fails when a copy has ended by itself.
    pub fn check_copies(&mut self) -> anyhow::Result<()> {
        self.copies.iter_mut().try_for_each(Process::check)
    }

    /// What each copy has used so far.
    pub fn usage(&self) -> anyhow::Result<Vec<Usage>> {
        self.copies.iter().map(|copy| usage_of(copy.id().context("a copy has ended")?)).collect()
    }

    /// CPU time that all copies together have used so far, in seconds.
    pub fn cpu_s(&self) -> anyhow::Result<f64> {
        Ok(self.usage()?.iter().map(|usage| usage.cpu_s).sum())
    }

    /// Sleeps until an instant.
    pub async fn until(&self, at: DateTime<Utc>) {
        tokio::time::sleep((at - self.clock.now()).to_std().unwrap_or_default()).await;
    }

    /// Counts what the due index still shows as due in the minutes from `since` to now.
    pub async fn left_due(&self, since: Minute) -> anyhow::Result<usize> {
        let now = self.clock.now();
        let mut left = 0;
        for minute in since.0..=Minute::of(now).0 {
            for shard in self.shards.all() {
                let bucket = DueBucket { minute: Minute(minute), shard };
                let mut after = None;
                loop {
                    let page = self.ports.due.page(bucket, DueSpan::up_to(now), after, 500).await?;
                    left += page.entries.len();
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(left)
    }

    /// How long one empty query of the due index takes a client, in milliseconds: the median of so many, one at a time.
    pub async fn query_ms(&self, queries: usize) -> anyhow::Result<f64> {
        let now = self.clock.now();
        let mut took = Vec::with_capacity(queries);
        let shards: Vec<_> = self.shards.all().collect();
        for shard in shards.into_iter().cycle().take(queries) {
            let bucket = DueBucket { minute: Minute::of(now), shard };
            let began = self.clock.monotonic();
            self.ports.due.page(bucket, DueSpan::up_to(now), None, 500).await?;
            took.push((self.clock.monotonic() - began).as_secs_f64() * 1_000.0);
        }
        Ok(crate::report::median(took))
    }

    /// Stops the copies in order.
    pub async fn stop_copies(&mut self) -> anyhow::Result<()> {
        for copy in &mut self.copies {
            copy.stop().await?;
        }
        self.copies.clear();
        Ok(())
    }

    /// Ends everything.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.stop_copies().await?;
        self.stack.stop().await;
        Ok(())
    }
}

/// What a process has used so far.
pub fn usage_of(pid: u32) -> anyhow::Result<Usage> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = std::fs::read_to_string(folder.join("stat"))?;
    let status = std::fs::read_to_string(folder.join("status"))?;
    // The name, in parentheses, may hold spaces: counted from behind it, user and system time are the 12th and 13th field.
    let fields = stat.rsplit_once(')').context("a process has a name")?.1.split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    let mb = |field: &str| -> anyhow::Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("a process has memory")?;
        Ok(line.split_whitespace().next().context("memory is a number")?.parse::<f64>()? / 1_024.0)
    };
    Ok(Usage { cpu_s: ticks.iter().sum::<f64>() / TICKS_PER_SECOND, rss_mb: mb("VmRSS:")?, peak_mb: mb("VmHWM:")? })
}

//! A local stack with jobs in its tables, and scheduler copies and workers on it.

use super::figures::{Load, Usage, median, usage_of};
use super::jobs::{self, Batch};
use super::queue::Queue;
use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::due::{DueBucket, Minute, Shards};
use punctual_core::lease::LeaseId;
use punctual_core::ports::{DueSpan, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::print_line;
use punctual_core::zone::Zones;
use punctual_localstack::demo::processes::{Launcher, Process};
use punctual_localstack::gateway::{Gateway, GatewayConfig};
use punctual_localstack::multicall::{SCHEDULER, WORKER};
use punctual_localstack::stack::{Stack, StackConfig};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How often something is looked at that is waited for.
pub const POLL: Duration = Duration::from_millis(50);
/// The same where a moment counts.
pub const POLL_CLOSELY: Duration = Duration::from_millis(10);
/// A limit of calls a second that no worker reaches.
pub const UNLIMITED: u32 = 100_000;
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
    /// The workers that run.
    pub workers: Vec<Process>,
    /// How long loading took.
    pub loads: Vec<Load>,
    /// Names of tables and queues.
    pub names: Names,
    stack: Stack,
    shards: Shards,
    zones: Arc<Zones>,
    launcher: Launcher,
    /// Holds the tables and the copies' logs.
    _folder: TempDir,
}

impl Scene {
    /// One whose tables are in memory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn in_memory() -> anyhow::Result<Self> {
        Self::start(false, GatewayConfig::default()).await
    }

    /// One whose tables are in a file of the temporary folder.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_file() -> anyhow::Result<Self> {
        Self::start(true, GatewayConfig::default()).await
    }

    /// One whose tables are in memory, for workers that meet this gateway.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn with_gateway(gateway: GatewayConfig) -> anyhow::Result<Self> {
        Self::start(false, gateway).await
    }

    async fn start(has_file: bool, gateway: GatewayConfig) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let queue = Queue::default();
        let observer = queue.clone();
        let stack = Stack::start(StackConfig {
            gateway,
            data: has_file.then(|| folder.path().join("tables.db")),
            on_message: Some(Arc::new(move |message| observer.note(message))),
            ..StackConfig::default()
        })?;
        let launcher = Launcher { settings: stack.exports(), logs: folder.path().to_owned() };
        launcher.punctual(&["setup"]).await?;
        let names = Names::new("punctual").map_err(anyhow::Error::msg)?;
        let ports = stack.aws(names.clone()).await.ports();
        let shards = ports.control.shards().await?.context("setup stores the shard counts")?;
        Ok(Scene {
            clock: SystemClock::new(),
            ports,
            queue,
            stored: 0,
            copies: Vec::new(),
            workers: Vec::new(),
            loads: Vec::new(),
            names,
            stack,
            shards,
            zones: Arc::new(Zones::load(None)?),
            launcher,
            _folder: folder,
        })
    }

    /// A setting of the processes that are started from now on.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.launcher.settings.push((name, value.to_owned()));
    }

    /// Puts jobs into the table.
    ///
    /// # Errors
    /// When a job is refused, or the table does not take it.
    pub async fn load(&mut self, batch: Batch, count: usize) -> anyhow::Result<()> {
        let began = self.clock.monotonic();
        let database = self.stack.database();
        jobs::load(batch, count, &self.names.jobs(), database, &self.ports, self.shards, &self.zones).await?;
        self.stored += count;
        let seconds = (self.clock.monotonic() - began).as_secs_f64();
        self.loads.push(Load { jobs: count, seconds });
        print_line(&format!("loaded {count} jobs in {seconds:.1} s, {} are stored", self.stored))?;
        Ok(())
    }

    /// Puts the runs of jobs that were loaded into the queues, with no copy's help; the jobs stay where they are.
    ///
    /// # Errors
    /// When a queue does not take one.
    pub async fn enqueue(&self, batch: Batch, count: usize) -> anyhow::Result<()> {
        jobs::enqueue(batch, count, &self.clock, &self.ports, self.shards, &self.zones).await
    }

    /// Fills the table up with jobs that are due tomorrow or later.
    ///
    /// # Errors
    /// When the table does not take them.
    pub async fn fill(&mut self, stored: usize) -> anyhow::Result<()> {
        let Some(missing) = stored.checked_sub(self.stored).filter(|missing| *missing > 0) else { return Ok(()) };
        let batch = Batch::Far { now: self.clock.now(), before: self.stored, of: stored };
        self.load(batch, missing).await
    }

    /// Starts copies.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_copies(&mut self, count: usize) -> anyhow::Result<()> {
        for n in 1..=count {
            let name = format!("s{n}");
            self.copies.push(self.launcher.start(&name, SCHEDULER, &["dispatch", "--id", &name])?);
        }
        Ok(())
    }

    /// Starts workers that all together call the gateway at most so often a second.
    ///
    /// # Errors
    /// When one cannot be started, or the limit is refused.
    pub async fn start_workers(&mut self, count: usize, limit_per_s: u32) -> anyhow::Result<()> {
        self.launcher.punctual(&["rates", "set", "sms", &limit_per_s.to_string()]).await?;
        for n in 1..=count {
            let name = format!("w{n}");
            self.workers.push(self.launcher.start(&name, WORKER, &["--id", &name])?);
        }
        Ok(())
    }

    /// Starts what a first word makes of this binary, and counts it among the workers.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_instead_of_worker(&mut self, word: &str) -> anyhow::Result<()> {
        self.workers.push(self.launcher.start("instead", word, &[])?);
        Ok(())
    }

    /// The gateway that the workers call.
    pub fn gateway(&self) -> &Gateway {
        self.stack.gateway()
    }

    /// How many runs the gateway has accepted.
    pub fn accepted(&self) -> usize {
        *self.gateway().accepted_watch().borrow() as usize
    }

    /// Whether the priority queues hold nothing, not even in a worker's hands.
    ///
    /// # Errors
    /// When a queue cannot be asked.
    pub async fn queues_are_empty(&self) -> anyhow::Result<bool> {
        for priority in Priority::ALL {
            let depth = self.ports.queue.depth(priority).await?;
            if depth.visible + depth.in_flight + depth.delayed > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until every shard is held and every copy holds some.
    ///
    /// # Errors
    /// When the copies take too long, or the store fails.
    pub async fn wait_for_shards(&mut self) -> anyhow::Result<()> {
        let give_up_at = self.clock.monotonic() + SHARING;
        loop {
            self.check()?;
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

    /// Fails when a copy or a worker has ended by itself.
    ///
    /// # Errors
    /// Names its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.copies.iter_mut().chain(&mut self.workers).try_for_each(Process::check)
    }

    /// What each copy has used so far.
    ///
    /// # Errors
    /// When one has ended.
    pub fn usage(&self) -> anyhow::Result<Vec<Usage>> {
        usage_of_all(&self.copies)
    }

    /// What each worker has used so far.
    ///
    /// # Errors
    /// When one has ended.
    pub fn usage_of_workers(&self) -> anyhow::Result<Vec<Usage>> {
        usage_of_all(&self.workers)
    }

    /// CPU time that all workers together have used so far, in seconds.
    ///
    /// # Errors
    /// When one has ended.
    pub fn cpu_s_of_workers(&self) -> anyhow::Result<f64> {
        Ok(self.usage_of_workers()?.iter().map(|usage| usage.cpu_s).sum())
    }

    /// CPU time that all copies together have used so far, in seconds.
    ///
    /// # Errors
    /// When one has ended.
    pub fn cpu_s(&self) -> anyhow::Result<f64> {
        Ok(self.usage()?.iter().map(|usage| usage.cpu_s).sum())
    }

    /// Sleeps until an instant.
    pub async fn until(&self, at: DateTime<Utc>) {
        tokio::time::sleep((at - self.clock.now()).to_std().unwrap_or_default()).await;
    }

    /// Counts what the due index still shows as due in the minutes from `since` to now.
    ///
    /// # Errors
    /// When the store fails.
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
    ///
    /// # Errors
    /// When the store fails.
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
        Ok(median(took))
    }

    /// Stops the copies in order.
    ///
    /// # Errors
    /// When one does not stop in order.
    pub async fn stop_copies(&mut self) -> anyhow::Result<()> {
        for copy in &mut self.copies {
            copy.stop().await?;
        }
        self.copies.clear();
        Ok(())
    }

    /// Ends everything.
    ///
    /// # Errors
    /// When a process does not stop in order.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.stop_copies().await?;
        for worker in &mut self.workers {
            worker.stop().await?;
        }
        self.stack.stop().await;
        Ok(())
    }
}

fn usage_of_all(processes: &[Process]) -> anyhow::Result<Vec<Usage>> {
    processes.iter().map(|process| usage_of(process.id().context("a process has ended")?)).collect()
}

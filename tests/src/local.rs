//! Punctual's programs as processes on a local stack of their own, and a ledger of what its queues took.
//!
//! The stack runs here and counts; schedulers and workers are processes that know only its addresses, as in production.
//! Each ends with its handle, however the test ends.

mod by_hand;
mod limits;

use anyhow::{Context, bail};
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};
use punctual_core::aws::{Aws, Names};
use punctual_core::clock::Clock;
use punctual_core::due::{DueBucket, Minute, ShardClass, ShardId, Shards};
use punctual_core::job::{Job, JobSpec, Timetable};
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::message::Message;
use punctual_core::ports::{Create, DueSpan, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::random_token;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use punctual_localstack::multicall::{SCHEDULER, WORKER};
use punctual_localstack::stack::{AcceptedMessage, Stack, StackConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};

const POLL: Duration = Duration::from_millis(100);
/// For so long a process may take to stop in order.
const STOP_TIME: Duration = Duration::from_secs(40);
/// For so long a process may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// For so long copies may take until they hold their shares.
const SHARING_TIME: Duration = Duration::from_secs(90);
const CALLS_AT_ONCE: usize = 64;
const PAGE: usize = 500;

/// What the phone numbers and texts of all tests begin with.
const PERSONAL: [&str; 4] = ["+447700", "447700900", "Your bill", "ana@example.com"];

/// A local stack, and the processes that belong to it.
pub struct Local {
    /// The stack.
    pub stack: Stack,
    /// Clients of this process.
    pub aws: Aws,
    /// The ports on them.
    pub ports: Ports,
    /// What the queues took.
    pub ledger: Ledger,
    program: PathBuf,
    settings: Vec<(&'static str, String)>,
    logs: TempDir,
}

/// A message that a queue took.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The message.
    pub message: Message,
    /// When the queue had it.
    pub accepted_at: DateTime<Utc>,
    /// When it could be received first.
    pub visible_at: DateTime<Utc>,
}

/// Every message that the priority queues took, in order.
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    sent: Vec<Sent>,
    dead_letters: usize,
}

impl Ledger {
    fn note(&self, accepted: &AcceptedMessage) {
        let mut book = self.book();
        if accepted.queue.ends_with("dead-letters") {
            book.dead_letters += 1;
        } else if let Ok(message) = Message::decode(&accepted.body) {
            let visible_at = accepted.accepted_at + accepted.delay;
            book.sent.push(Sent { message, accepted_at: accepted.accepted_at, visible_at });
        }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.book().sent.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages from the n-th on, counted from 0.
    pub fn since(&self, n: usize) -> Vec<Sent> {
        self.book().sent.get(n..).map(<[Sent]>::to_vec).unwrap_or_default()
    }

    /// How many dead letters there are.
    pub fn dead_letters(&self) -> usize {
        self.book().dead_letters
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic elsewhere leaves the book whole: it is written in one piece.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local {
    /// Starts a stack whose processes are copies of `program`, this package's binary, with these settings besides the
    /// stack's own.
    ///
    /// # Errors
    /// When the stack cannot be started.
    pub async fn start(
        program: impl Into<PathBuf>,
        gateway: GatewayConfig,
        settings: &[(&'static str, &str)],
    ) -> anyhow::Result<Self> {
        let ledger = Ledger::default();
        let observer = ledger.clone();
        let on_message = move |message: AcceptedMessage| observer.note(&message);
        let stack =
            Stack::start(StackConfig { gateway, on_message: Some(Arc::new(on_message)), ..StackConfig::default() })?;
        let aws = stack.aws(Names::new("punctual").map_err(anyhow::Error::msg)?).await;
        let given = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let settings = stack.exports().into_iter().chain(given).collect();
        let (ports, program, logs) = (aws.ports(), program.into(), tempfile::tempdir()?);
        Ok(Local { stack, aws, ports, ledger, program, settings, logs })
    }

    /// The store's time.
    pub fn now(&self) -> DateTime<Utc> {
        self.aws.clock.now()
    }

    fn command(&self, word: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(word).args(args).stdin(Stdio::null()).kill_on_drop(true);
        // Neither the account nor the settings of whoever runs this may be touched.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.starts_with("PUNCTUAL_"))
        {
            command.env_remove(name);
        }
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Runs a command of `punctual` to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command(SCHEDULER, args).output().await?)
    }

    /// Runs a command of `punctual` to its end, with further settings.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run_with(&self, settings: &[(&'static str, &str)], args: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.command(SCHEDULER, args);
        command.envs(settings.iter().copied());
        Ok(command.output().await?)
    }

    /// Runs a command of `punctual` that must succeed, and returns what it says.
    ///
    /// # Errors
    /// What it says on standard error, if it fails.
    pub async fn punctual(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.run(args).await?;
        if !output.status.success() {
            bail!("`punctual {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the worker's program to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run_worker(&self, args: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command(WORKER, args).output().await?)
    }

    /// Starts a process that goes on, by the word that makes this package's binary that program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_process(&self, name: &str, word: &str, args: &[&str]) -> anyhow::Result<Process> {
        self.spawn(name, self.command(word, args))
    }

    /// Starts a process with further settings, whose log goes to `log` and cannot be read by its handle.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_process_with_log(
        &self,
        name: &str,
        word: &str,
        args: &[&str],
        settings: &[(&'static str, &str)],
        log: Stdio,
    ) -> anyhow::Result<Process> {
        let mut command = self.command(word, args);
        command.envs(settings.iter().copied());
        self.spawn_with_log(name, command, log)
    }

    fn spawn(&self, name: &str, command: Command) -> anyhow::Result<Process> {
        let log = File::create(self.log_of(name))?;
        self.spawn_with_log(name, command, log.into())
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.logs.path().join(format!("{name}.log"))
    }

    fn spawn_with_log(&self, name: &str, mut command: Command, log: Stdio) -> anyhow::Result<Process> {
        let child = command.stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| format!("{} cannot be started", self.program.display()))?;
        Ok(Process { name: name.to_owned(), child, log: self.log_of(name) })
    }

    /// Starts a scheduler copy of this name.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_scheduler(&self, name: &str, options: &[&str]) -> anyhow::Result<Process> {
        self.start_process(name, SCHEDULER, &[&["dispatch", "--id", name], options].concat())
    }

    /// Starts a worker of this name.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_worker(&self, name: &str) -> anyhow::Result<Process> {
        self.start_process(name, WORKER, &["--id", name])
    }

    /// Starts the API on a free port, and waits until it answers; returns its address as well.
    ///
    /// # Errors
    /// When it cannot be started, or does not answer.
    pub async fn start_api(&self, name: &str, options: &[&str]) -> anyhow::Result<(Process, String)> {
        // Another process may take the port in between: then the API ends, and says why.
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let args = [&["api", "--listen", &listen], options].concat();
        let mut process = self.start_process(name, SCHEDULER, &args)?;
        eventually("the API answers", PATIENCE, async || {
            process.check()?;
            Ok(tokio::net::TcpStream::connect(&listen).await.is_ok())
        })
        .await?;
        Ok((process, format!("http://{listen}")))
    }

    /// Starts the API as a Lambda function on the Runtime API at `api`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_api_function(&self, name: &str, api: &str) -> anyhow::Result<Process> {
        let mut command = self.command(SCHEDULER, &["api"]);
        command.env("AWS_LAMBDA_RUNTIME_API", api).env("AWS_LAMBDA_FUNCTION_NAME", "punctual-api");
        command.env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256").env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST");
        self.spawn(name, command)
    }

    /// Starts the worker as a Lambda function on the Runtime API at `api`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_function(&self, name: &str, api: &str, options: &[&str]) -> anyhow::Result<Process> {
        let mut command = self.command(WORKER, &[&["--id", name], options].concat());
        command.env("AWS_LAMBDA_RUNTIME_API", api).env("AWS_LAMBDA_FUNCTION_NAME", "punctual-worker");
        command.env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256").env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST");
        self.spawn(name, command)
    }

    /// Makes jobs as they would have been made at `made_at`; that may be long ago.
    ///
    /// # Errors
    /// When a specification is refused, a key is taken, or the store fails.
    pub async fn load(
        &self,
        specs: impl IntoIterator<Item = JobSpec>,
        made_at: DateTime<Utc>,
        zones: &Zones,
    ) -> anyhow::Result<()> {
        let shards = self.shards().await?;
        let create = |spec: JobSpec| {
            let world = Timetable { shards: &shards, zones };
            let job = Job::create(spec, made_at, &world, None, random_token(), "loader");
            async move {
                let job = job?;
                match self.ports.jobs.create(&job).await? {
                    Create::Created => Ok(()),
                    Create::Exists(_) => bail!("job {} is there already", job.spec.key),
                }
            }
        };
        stream::iter(specs.into_iter().map(create)).buffer_unordered(CALLS_AT_ONCE).try_collect().await
    }

    /// The shards that jobs are written to.
    ///
    /// # Errors
    /// When the store was never set up, or fails.
    pub async fn shards(&self) -> anyhow::Result<Shards> {
        self.ports.control.shards().await?.context("the store was never set up")
    }

    /// The leases of all shards.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn leases(&self) -> anyhow::Result<BTreeMap<ShardId, Lease>> {
        let leases = self.ports.leases.list().await?;
        let of_shard = |lease: Lease| match lease.id {
            LeaseId::Shard(shard) => Some((shard, lease)),
            LeaseId::Copy(_) | LeaseId::Zones(_) => None,
        };
        Ok(leases.into_iter().filter_map(of_shard).collect())
    }

    /// How many shards each copy holds, by its name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn holders(&self) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut holders = BTreeMap::new();
        for owner in self.leases().await?.into_values().filter_map(|lease| lease.owner) {
            *holders.entry(name_of(&owner).to_owned()).or_default() += 1;
        }
        Ok(holders)
    }

    /// Waits until every shard is held, as evenly by these copies as can be.
    ///
    /// # Errors
    /// When they take too long, or the store fails.
    pub async fn wait_for_even_shards(&self, copies: usize) -> anyhow::Result<()> {
        eventually("every copy holds its share of the shards", SHARING_TIME, async || {
            let mut held: BTreeMap<(ShardClass, String), usize> = BTreeMap::new();
            let leases = self.leases().await?;
            for (shard, lease) in &leases {
                let Some(owner) = &lease.owner else { return Ok(false) };
                *held.entry((shard.class, owner.clone())).or_default() += 1;
            }
            let is_even = |class: ShardClass| {
                let counts: Vec<usize> = held.iter().filter(|((c, _), _)| *c == class).map(|(_, n)| *n).collect();
                let total: usize = counts.iter().sum();
                counts.len() == copies.min(total) && counts.iter().max() <= counts.iter().min().map(|n| n + 1).as_ref()
            };
            Ok(!leases.is_empty() && ShardClass::ALL.into_iter().all(is_even))
        })
        .await
    }

    /// Counts what the due index shows as due since a moment and not yet advanced; stops counting at `most`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn left_due(&self, since: DateTime<Utc>, most: usize) -> anyhow::Result<usize> {
        let layout = self.ports.control.layout().await?.context("the store was never set up")?;
        let now = self.now();
        let minutes = Minute::of(since).0..=Minute::of(now).0;
        let buckets = minutes.flat_map(|minute| {
            layout.read.all().map(move |shard| DueBucket { minute: Minute(minute), shard }).collect::<Vec<_>>()
        });
        let counts = buckets.map(|bucket| async move {
            let (mut count, mut after) = (0, None);
            loop {
                let page = self.ports.due.page(bucket, DueSpan::up_to(now), after, PAGE).await?;
                count += page.entries.len();
                after = page.next;
                if after.is_none() || count >= most {
                    return anyhow::Ok(count);
                }
            }
        });
        let counts: Vec<_> = counts.collect();
        let mut counts = stream::iter(counts).buffer_unordered(CALLS_AT_ONCE);
        let mut left = 0;
        while let Some(count) = counts.next().await {
            left += count?;
            if left >= most {
                break;
            }
        }
        Ok(left)
    }

    /// Waits until the priority queues hold nothing, not even in a worker's hands.
    ///
    /// # Errors
    /// When it takes too long, or a queue fails.
    pub async fn wait_until_queues_are_empty(&self, within: Duration) -> anyhow::Result<()> {
        eventually("the queues are empty", within, async || {
            for priority in Priority::ALL {
                let depth = self.ports.queue.depth(priority).await?;
                if depth.visible + depth.in_flight + depth.delayed > 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Waits until nothing is left due since a moment.
    ///
    /// # Errors
    /// When it takes too long, or the store fails.
    pub async fn wait_until_nothing_is_due(&self, since: DateTime<Utc>, within: Duration) -> anyhow::Result<()> {
        eventually("nothing is due any more", within, async || Ok(self.left_due(since, 1).await? == 0)).await
    }
}

/// A copy's name in what it calls itself: its random part and its version are left out.
pub fn name_of(owner: &str) -> &str {
    owner.split_once('-').map_or(owner, |(name, _)| name)
}

/// Polls until something holds.
///
/// # Errors
/// When it does not hold within the time, or looking fails.
pub async fn eventually(
    what: &str,
    within: Duration,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let wait = async {
        while !holds().await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    tokio::time::timeout(within, wait)
        .await
        .unwrap_or_else(|_| bail!("waited {} s in vain until {what}", within.as_secs()))
}

/// A running process. It is killed when this is dropped.
pub struct Process {
    /// Its name.
    pub name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.with_context(|| format!("{} has ended by itself", self.name))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Ends it at once, as a crash would.
    ///
    /// # Errors
    /// When it has ended by itself.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.check()?;
        Ok(self.child.kill().await?)
    }

    /// Lets it stand still (SIGSTOP).
    ///
    /// # Errors
    /// When it has ended by itself.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended by itself.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Tells it to stop (SIGTERM) and waits until it has, in order.
    ///
    /// # Errors
    /// When it does not, or has ended by itself.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.check()?;
        self.signal(Signal::TERM)?;
        match tokio::time::timeout(STOP_TIME, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
            Ok(status) => bail!("{} did not stop in order ({status:?}): {}", self.name, self.log()),
            Err(_) => bail!("{} did not stop within {} s", self.name, STOP_TIME.as_secs()),
        }
    }

    /// Fails when it has ended by itself.
    ///
    /// # Errors
    /// With all that it said.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has ended by itself ({status}): {}", self.name, self.log());
        }
        Ok(())
    }

    /// All that it has said so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// What it has said that a person must look at.
    pub fn errors(&self) -> Vec<String> {
        let is_error = |line: &&str| line.contains(" ERROR ") || line.contains(r#""level":"ERROR""#);
        self.log().lines().filter(is_error).map(str::to_owned).collect()
    }
}

/// Every log of every process of a test is looked through: none shows a phone number or a text of a job.
impl Drop for Process {
    fn drop(&mut self) {
        assert_discreet(&self.name, &self.log());
    }
}

/// Fails if a log shows a phone number or a text of a job.
///
/// # Panics
/// Then, unless the thread panics already.
pub fn assert_discreet(name: &str, log: &str) {
    let shown = PERSONAL.iter().find(|personal| log.contains(**personal));
    if let Some(personal) = shown.filter(|_| !std::thread::panicking()) {
        panic!("the log of {name} shows {personal}");
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| format!("its log cannot be read: {error}"))
}

/// So many seconds, as a figure.
pub fn seconds(time: TimeDelta) -> f64 {
    (time.as_seconds_f64() * 10.0).round() / 10.0
}

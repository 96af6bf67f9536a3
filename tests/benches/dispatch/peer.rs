//! Part d: the reference design's loop on a PostgreSQL of its own, on the work of part a.

use crate::report::Peer;
use anyhow::{Context, bail};
use punctual_core::clock::{Clock, SystemClock};
use punctual_tests::measure::median;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const LOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peer/loop.py");
const PACKAGES: [&str; 2] = ["psycopg[binary]==3.3.6", "croniter==6.2.4"];
/// Where Debian and its relatives put PostgreSQL's programs, one folder a version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Users that may run PostgreSQL where this program is root, which PostgreSQL refuses.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// How long each step may take.
const STARTING: Duration = Duration::from_secs(60);
const INSTALLING: Duration = Duration::from_secs(300);
const STOPPING: Duration = Duration::from_secs(30);
/// Slower than this, in runs a second, it is given up.
const SLOWEST: usize = 100;

/// Runs the loop on so many jobs, three times.
pub async fn measure(jobs: usize, python: Option<&Path>) -> anyhow::Result<Peer> {
    let folder = tempfile::tempdir()?;
    let python = match python {
        Some(python) => python.to_owned(),
        None => install(folder.path()).await?,
    };
    let mut postgres = Postgres::start().await?;
    let dsn = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", postgres.port);
    let mut command = Command::new(python);
    command.arg(LOOP).arg(jobs.to_string()).arg(dsn);
    let time = Duration::from_secs((3 * jobs / SLOWEST) as u64 + 60);
    let output = finish(command, time).await;
    postgres.stop().await?;
    read(jobs, &output?)
}

/// Makes a Python environment with the packages of the loop.
async fn install(folder: &Path) -> anyhow::Result<PathBuf> {
    let environment = folder.join("python");
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&environment);
    finish(make, INSTALLING).await.context("install Python 3 with its venv module, or name one by --python")?;
    let python = environment.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    let packages = PACKAGES.join(" ");
    finish(install, INSTALLING).await.with_context(|| format!("a Python with {packages} can be named by --python"))?;
    Ok(python)
}

/// Runs a program to its end; returns what it wrote.
async fn finish(mut command: Command, time: Duration) -> anyhow::Result<String> {
    let name = command.as_std().get_program().display().to_string();
    let ended = timeout(time, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = ended.with_context(|| format!("{name} took over {} s", time.as_secs()))?;
    let output = output.with_context(|| format!("{name} cannot be started"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines such as `10000 due: 2500 runs/s, 500 us client CPU a run, split [3500, 3500, 3000]`.
fn read(jobs: usize, lines: &str) -> anyhow::Result<Peer> {
    let figure = |line: &str, before: &str| -> anyhow::Result<f64> {
        let text = line.split(before).next().and_then(|text| text.split_whitespace().last());
        text.and_then(|text| text.parse().ok()).with_context(|| format!("`{line}` names no number before{before}"))
    };
    let (mut runs_per_s, mut cpu_us) = (Vec::new(), Vec::new());
    for line in lines.lines() {
        runs_per_s.push(figure(line, " runs/s")?);
        cpu_us.push(figure(line, " us client CPU")?);
    }
    if runs_per_s.is_empty() {
        bail!("the peer wrote nothing");
    }
    Ok(Peer {
        jobs,
        runs_per_s: median(runs_per_s.clone()),
        runs_per_s_of_each: runs_per_s,
        cpu_us_per_run: median(cpu_us),
    })
}

/// A PostgreSQL in a temporary folder, reachable from this machine only.
struct Postgres {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Postgres {
    async fn start() -> anyhow::Result<Self> {
        let programs = programs().context("no PostgreSQL was found: install it (postgresql), or leave d out")?;
        let folder = tempfile::tempdir()?;
        let user = unprivileged()?;
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let data = folder.path().join("data");
        let mut make = program(programs.join("initdb"), user);
        make.arg("--pgdata").arg(&data).args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        finish(make, STARTING).await?;
        // Free now; should another program take it meanwhile, PostgreSQL says so and part d is left out.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = File::create(folder.path().join("postgres.log"))?;
        let mut serve = program(programs.join("postgres"), user);
        serve.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"]).arg(folder.path());
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let mut postgres = Postgres { child: serve.spawn()?, port, _folder: folder };
        postgres.wait().await?;
        Ok(postgres)
    }

    /// Waits until it listens.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let clock = SystemClock::new();
        let give_up_at = clock.monotonic() + STARTING;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("PostgreSQL ended by itself: {status}");
            }
            if clock.monotonic() > give_up_at {
                bail!("PostgreSQL did not start within {} s", STARTING.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Ends it in order.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        // Interrupted, it ends its sessions and then itself.
        kill_process(pid.context("PostgreSQL ended by itself")?, Signal::INT)?;
        timeout(STOPPING, self.child.wait()).await.context("PostgreSQL did not stop in time")??;
        Ok(())
    }
}

fn program(path: PathBuf, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(path);
    // Its folder is the user's; this program's may not be.
    command.current_dir("/");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// The folder of PostgreSQL's programs: that of `postgres` on the path, or the newest version's.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter_map(|folder| folder.join("postgres").canonicalize().ok());
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin/postgres"))))
        .collect();
    versions.sort();
    let all = on_path.chain(versions.into_iter().rev().map(|(_, postgres)| postgres));
    all.filter_map(|postgres| postgres.parent().map(Path::to_owned)).find(|folder| folder.join("initdb").is_file())
}

/// Whom PostgreSQL runs as, where it would refuse this user.
fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = |name: &str| {
        let mut fields = users
            .lines()
            .map(|line| line.split(':'))
            .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = USERS.into_iter().find_map(ids);
    found.map(Some).with_context(|| format!("PostgreSQL refuses root, and there is no user {}", USERS.join(" or ")))
}

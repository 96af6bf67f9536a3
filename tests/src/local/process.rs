//! One process of a test, and what it says.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// For so long a process may take to stop in order.
const STOP_TIME: Duration = Duration::from_secs(40);

/// What the phone numbers and texts of all tests begin with.
const PERSONAL: [&str; 4] = ["+447700", "447700900", "Your bill", "ana@example.com"];

/// Where a process's standard output and standard error go.
pub(super) enum Outputs {
    /// Into files.
    Kept,
    /// The log to another place.
    LogTo(Stdio),
    /// Nowhere: no write succeeds.
    FullDisk,
}

/// A running process. It is killed when this is dropped.
pub struct Process {
    /// Its name.
    pub name: String,
    child: Child,
    log: PathBuf,
    output: PathBuf,
}

impl Process {
    /// Starts it; what it says is kept in this directory, where it goes there.
    pub(super) fn start(name: &str, mut command: Command, directory: &Path, to: Outputs) -> anyhow::Result<Self> {
        let [log, output] = ["log", "out"].map(|end| directory.join(format!("{name}.{end}")));
        let (said, written) = (File::create(&log)?, File::create(&output)?);
        let (said, written): (Stdio, Stdio) = match to {
            Outputs::Kept => (said.into(), written.into()),
            Outputs::LogTo(other) => (other, written.into()),
            Outputs::FullDisk => {
                let full = File::options().write(true).open("/dev/full")?;
                (full.try_clone()?.into(), full.into())
            }
        };
        let child = command.stdout(written).stderr(said).spawn();
        let child = child.with_context(|| format!("{name} cannot be started"))?;
        Ok(Process { name: name.to_owned(), child, log, output })
    }

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

    /// All that it has written to standard output so far.
    pub fn output(&self) -> String {
        read(&self.output)
    }

    /// What it has said that a person must look at.
    pub fn errors(&self) -> Vec<String> {
        let is_error = |line: &&str| line.contains(" ERROR ") || line.contains(r#""level":"ERROR""#);
        self.log().lines().filter(is_error).map(str::to_owned).collect()
    }
}

/// All that the processes of a test say is looked through: none shows a phone number or a text of a job.
impl Drop for Process {
    fn drop(&mut self) {
        assert_discreet(&self.name, &self.log());
        assert_discreet(&self.name, &self.output());
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

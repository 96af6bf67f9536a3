//! Schedulers and workers as processes: started, measured, killed, stopped.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long a process is given to stop in order.
const STOP_TIME: Duration = Duration::from_secs(40);

/// How processes are started: this same binary again, with the stack's settings. The binary must ask
/// [`contained_program`](crate::multicall::contained_program) first.
pub struct Launcher {
    /// The environment they get besides this process's own, without the user's settings.
    pub settings: Vec<(&'static str, String)>,
    /// The folder of their logs, which must exist.
    pub logs: PathBuf,
}

impl Launcher {
    fn command(&self, word: &str, args: &[&str]) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("this program does not know its own path")?;
        let mut command = Command::new(program);
        command.arg(word).args(args).stdin(Stdio::null()).kill_on_drop(true);
        // The user's own account must not be touched, nor waited for.
        command.env_remove("AWS_PROFILE").env_remove("AWS_SESSION_TOKEN").env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
        // Nor may the user's own settings change what the demo shows.
        for (name, _) in std::env::vars_os() {
            if is_users_setting(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str())));
        Ok(command)
    }

    /// Runs a command of `punctual` to its end.
    ///
    /// # Errors
    /// When it cannot be started, or what it said when it failed.
    pub async fn punctual(&self, args: &[&str]) -> anyhow::Result<()> {
        self.answer(args).await.map(|_| ())
    }

    /// Runs a command of `punctual` to its end; what it printed.
    ///
    /// # Errors
    /// When it cannot be started, or what it said when it failed.
    pub async fn answer(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(crate::multicall::SCHEDULER, args)?.output().await?;
        if !output.status.success() {
            bail!("`punctual {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a process that goes on, and ends with this handle at the latest.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, word: &str, args: &[&str]) -> anyhow::Result<Process> {
        let log = self.logs.join(format!("{name}.log"));
        let child = self.command(word, args)?.stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        Ok(Process { name: name.to_owned(), child, log, peak_rss_mb: 0.0 })
    }
}

/// A running scheduler or worker.
pub struct Process {
    /// What it was called at its start.
    pub name: String,
    child: Child,
    log: PathBuf,
    /// The most memory it was seen to have held, in MiB.
    pub peak_rss_mb: f64,
}

impl Process {
    /// The system's number of it; none when it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Notes the most memory it has held so far.
    pub fn measure(&mut self) {
        let Some(pid) = self.child.id() else { return };
        let peak = peak_rss_mb(Path::new(&format!("/proc/{pid}/status")));
        self.peak_rss_mb = self.peak_rss_mb.max(peak.unwrap_or(0.0));
    }

    /// Ends it at once, as a crash would.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.measure();
        Ok(self.child.kill().await?)
    }

    /// Fails when it has ended by itself.
    ///
    /// # Errors
    /// Names its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended by itself ({status}); its log is {}", self.name, self.log.display());
        }
        Ok(())
    }

    /// Asks it to stop and waits until it has.
    ///
    /// # Errors
    /// When it had ended before, or did not end in order or in time.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.measure();
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.with_context(|| format!("{} ended by itself; its log is {}", self.name, self.log.display()))?;
        kill_process(pid, Signal::TERM)?;
        match tokio::time::timeout(STOP_TIME, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
            Ok(status) => bail!("{} did not stop in order: {status:?}; its log is {}", self.name, self.log.display()),
            Err(_) => bail!("{} did not stop within {} s", self.name, STOP_TIME.as_secs()),
        }
    }
}

/// Whether a variable is a setting of Punctual that the demo does not take over; it takes over only what is logged.
fn is_users_setting(name: &str) -> bool {
    name.starts_with("PUNCTUAL_") && !["PUNCTUAL_LOG", "PUNCTUAL_LOG_FORMAT"].contains(&name)
}

fn peak_rss_mb(status: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1_024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_users_settings_only_those_of_the_logs_are_taken_over() {
        for taken_over in ["PUNCTUAL_LOG", "PUNCTUAL_LOG_FORMAT", "PATH", "AWS_REGION"] {
            assert!(!is_users_setting(taken_over), "{taken_over}");
        }
        for left_out in ["PUNCTUAL_STORE_PREFIX", "PUNCTUAL_WORK_SLOTS", "PUNCTUAL_LOGS"] {
            assert!(is_users_setting(left_out), "{left_out}");
        }
    }
}

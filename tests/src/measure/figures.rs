//! Figures that all benchmarks have, for people and for files.

use anyhow::Context;
use punctual_core::process::print_line;
use serde::Serialize;
use std::path::Path;

/// Ticks of a process's CPU time a second, as /proc shows it: `USER_HZ`, which is 100 wherever Rust's standard library runs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where it was measured.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// `release` or `dev`: how this program was compiled.
    pub profile: &'static str,
    /// Processors of this machine.
    pub cpus: usize,
    /// The machine's load average over a minute when it began, and when it ended: other programs are in the figures.
    pub load_before: Option<f64>,
    /// See there.
    pub load_after: Option<f64>,
}

/// Times of many runs, in milliseconds: how late they were, or how long they waited.
#[derive(Debug, Default, Serialize)]
pub struct Lag {
    /// The smallest; a lag below zero would be early.
    pub min_ms: i64,
    /// Half are at most this.
    pub p50_ms: i64,
    /// All but one in twenty are at most this.
    pub p95_ms: i64,
    /// All but one in a hundred are at most this.
    pub p99_ms: i64,
    /// The largest.
    pub max_ms: i64,
}

/// How long loading took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Jobs that were put into the table.
    pub jobs: usize,
    /// In so many seconds.
    pub seconds: f64,
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

impl Machine {
    /// This one, before anything is measured.
    pub fn begin() -> Self {
        Machine {
            profile: if cfg!(debug_assertions) { "dev" } else { "release" },
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load(),
            load_after: None,
        }
    }

    /// Notes the end.
    pub fn end(&mut self) {
        self.load_after = load();
    }

    /// Shows what else was going on.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show(&self) -> std::io::Result<()> {
        let load = |load: Option<f64>| load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.2}"));
        let (before, after) = (load(self.load_before), load(self.load_after));
        print_line(&format!("\n{} processors, load {before} before and {after} after", self.cpus))
    }
}

impl Lag {
    /// Of times in order.
    pub fn of(sorted_ms: &[i64]) -> Self {
        let at = |share: f64| {
            let place = (sorted_ms.len() as f64 * share).ceil() as usize;
            sorted_ms.get(place.saturating_sub(1)).copied().unwrap_or_default()
        };
        Lag { min_ms: at(0.0), p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

/// The value in the middle; the lower one of two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Shows a figure.
///
/// # Errors
/// When standard output cannot be written.
pub fn row(name: &str, value: String) -> std::io::Result<()> {
    print_line(&format!("   {name:<26}{value}"))
}

/// Shows times, with what is said of their target behind them.
///
/// # Errors
/// When standard output cannot be written.
pub fn show_lag(name: &str, lag: &Lag, target: &str) -> std::io::Result<()> {
    let Lag { min_ms, p50_ms, p95_ms, p99_ms, max_ms } = lag;
    let name = format!("{name} in ms");
    row(&name, format!("p50 {p50_ms}, p95 {p95_ms}, p99 {p99_ms}, max {max_ms}, min {min_ms}{target}"))
}

/// What a process has used so far.
///
/// # Errors
/// When it has ended, or the system has no /proc.
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

/// The machine's load average over a minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

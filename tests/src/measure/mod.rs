//! What the benchmarks with real processes share: the local stack in this process, jobs in its tables, copies of the
//! benchmark's own binary as schedulers and workers, and figures.
//!
//! Throughput on an emulator is not throughput on AWS. What carries over is the CPU time of our own processes, which is
//! theirs alone because the stack runs here, memory, and lag at a load far below what the emulator can do.

mod figures;
mod jobs;
mod queue;
mod scene;
mod telling;

pub use figures::{Lag, Load, Machine, Usage, median, row, show_lag, usage_of};
pub use jobs::{Batch, mixed};
pub use queue::{Book, Queue, Visible};
pub use scene::{POLL, POLL_CLOSELY, Scene, UNLIMITED};
pub use telling::Telling;

use anyhow::{Context, anyhow};
use clap::Parser;
use punctual_core::process::{print_line, stop_signal};
use punctual_localstack::multicall::contained_program;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// The whole program of a benchmark: a scheduler or a worker if its first word says so, and else what it measures, until
/// it is told to stop.
pub fn run<Args: Parser>(name: &str, measure: impl AsyncFnOnce(Args) -> anyhow::Result<()>) -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(code) = contained_program(&words) {
        return code;
    }
    let args = Args::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(name, &error.into()),
    };
    let measured = runtime.block_on(async {
        tokio::select! {
            measured = measure(args) => measured,
            // What was started ends with what is dropped here.
            stopped = stop_signal() => Err(stopped.err().map_or_else(|| anyhow!("interrupted"), Into::into)),
        }
    });
    // A load that was interrupted is not waited for.
    runtime.shutdown_background();
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(name, &error),
    }
}

fn fail(name: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{name}: {error:#}");
    ExitCode::FAILURE
}

/// Writes the figures to a file, as JSON, and says so.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_report(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    std::fs::write(path, json + "\n").with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(print_line(&format!("the figures are in {}", path.display()))?)
}

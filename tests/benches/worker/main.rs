//! What a run costs a worker, and how a morning goes: real worker and scheduler processes on the local stack, and its
//! gateway as the instrument.

mod calm;
mod drain;
mod floor;
mod morning;
mod report;
mod seen;

use anyhow::bail;
use chrono::TimeDelta;
use clap::{Parser, ValueEnum, value_parser};
use morning::Size;
use punctual_tests::measure;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

// As in the programs that ship.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures workers. Exits with 1 when a run was lost, sent twice, refused or dead.
#[derive(Debug, Parser)]
#[command(
    name = "worker",
    after_help = "In a minute or two: --runs 2000 --repeats 1 --due 2000 --urgent-per-s 5 --ahead-s 35 --calm-s 20"
)]
struct Args {
    /// Write the figures to this file, as JSON. cargo starts benchmarks in their package's folder: name it from the root.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Which parts to measure.
    #[arg(long, value_delimiter = ',', default_value = "a,b,c,d,e")]
    only: Vec<Part>,
    /// Runs that lie in the queues, in a, c and e.
    #[arg(long, default_value_t = 50_000, value_parser = value_parser!(u32).range(100..=1_000_000))]
    runs: u32,
    /// How often a, c and both sides of e are repeated; the median counts.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    repeats: u32,
    /// Jobs that are due at one instant, in b.
    #[arg(long, default_value_t = 48_000, value_parser = value_parser!(u32).range(100..=1_000_000))]
    due: u32,
    /// Urgent jobs that are due each second, in b.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..i64::from(morning::LIMIT_PER_S)))]
    urgent_per_s: u32,
    /// Workers, in b.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=50))]
    workers: u32,
    /// Seconds from the stored jobs to their instant, in b: copies share the shards, and read 30 s ahead.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u32).range(20..=600))]
    ahead_s: u32,
    /// Jobs that are due each second, in d.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u32).range(1..i64::from(morning::LIMIT_PER_S)))]
    calm_per_s: u32,
    /// Seconds of them.
    #[arg(long, default_value_t = 120, value_parser = value_parser!(u32).range(1..=3_600))]
    calm_s: u32,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One worker, full queues, a gateway that answers at once.
    #[value(name = "a")]
    Drain,
    /// Many due at one instant, urgent ones beside them, and the gateway's limit.
    #[value(name = "b")]
    Morning,
    /// The calls of a by the libraries alone.
    #[value(name = "c")]
    Floor,
    /// A few due each second, and workers that have nothing else to do.
    #[value(name = "d")]
    Calm,
    /// The work of a with metrics and without.
    #[value(name = "e")]
    Telling,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    floor::contained_program(&words).unwrap_or_else(|| measure::run("worker", measure))
}

async fn measure(args: Args) -> anyhow::Result<()> {
    let has = |part| args.only.contains(&part);
    let mut report = Report::begin();
    if has(Part::Drain) {
        report.drain = Some(drain::measure(drain::By::Worker, args.runs as usize, args.repeats as usize).await?);
        report.show_drain()?;
    }
    if has(Part::Floor) {
        report.floor = Some(drain::measure(drain::By::Libraries, args.runs as usize, args.repeats as usize).await?);
        report.show_floor()?;
    }
    if has(Part::Morning) {
        let size = Size {
            due: args.due as usize,
            urgent_per_s: args.urgent_per_s as usize,
            workers: args.workers as usize,
            ahead: TimeDelta::seconds(args.ahead_s.into()),
        };
        report.morning = Some(morning::measure(size).await?);
        report.show_morning()?;
    }
    if has(Part::Calm) {
        report.calm = Some(calm::measure(args.calm_per_s as usize, args.calm_s as usize).await?);
        report.show_calm()?;
    }
    if has(Part::Telling) {
        report.telling = Some(drain::telling(args.runs as usize, args.repeats as usize).await?);
        report.show_telling(args.runs)?;
    }
    report.machine.end();
    report.machine.show()?;
    if let Some(path) = &args.report {
        measure::write_report(path, &report)?;
    }
    let problems = report.problems();
    if !problems.is_empty() {
        bail!("{}", problems.join("; "));
    }
    Ok(())
}

//! What dispatch costs and how late it is: real scheduler processes on the local stack, and that nothing grows with the
//! number of stored jobs.

mod burst;
mod idle;
mod peer;
mod report;
mod steady;

use clap::{Parser, ValueEnum};
use punctual_tests::measure::{self, Scene};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

// As in the programs that ship.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures dispatch.
#[derive(Debug, Parser)]
#[command(name = "dispatch")]
struct Args {
    /// Write the figures to this file, as JSON. cargo starts benchmarks in their package's folder: name it from the root.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Which parts to measure.
    #[arg(long, value_delimiter = ',', default_value = "a,b,c,d,e")]
    only: Vec<Part>,
    /// Jobs that are due at once, in a, d and e.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Jobs that are stored, in b and c.
    #[arg(long, default_value_t = 2_700_000)]
    stored: usize,
    /// Seconds of steady work, in b.
    #[arg(long, default_value_t = 300)]
    seconds: usize,
    /// Jobs that are due each second of steady work, in b.
    #[arg(long, default_value_t = 50)]
    rate: usize,
    /// Seconds of idling at each size, in c.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// How often a, and both sides of e, are repeated; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    repeats: u64,
    /// A Python that has the peer's packages; without it a new environment is made, from the registry.
    #[arg(long)]
    python: Option<PathBuf>,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All due at once, three copies.
    #[value(name = "a")]
    Burst,
    /// A few due each second among many that are stored.
    #[value(name = "b")]
    Steady,
    /// Nothing due, and more and more stored.
    #[value(name = "c")]
    Idle,
    /// The reference design's loop on PostgreSQL, on the work of a.
    #[value(name = "d")]
    Peer,
    /// The work of a with metrics and without.
    #[value(name = "e")]
    Telling,
}

fn main() -> ExitCode {
    measure::run("dispatch", measure)
}

async fn measure(args: Args) -> anyhow::Result<()> {
    let has = |part| args.only.contains(&part);
    let mut report = Report::begin();
    if has(Part::Burst) || has(Part::Peer) {
        for kind in burst::KINDS {
            // The peer finds what is due already, so this is what it is compared with.
            if has(Part::Burst) || kind == burst::Kind::Overdue {
                report.burst.push(burst::measure(kind, args.jobs, args.repeats as usize).await?);
                report.show_last_burst()?;
            }
        }
    }
    if has(Part::Peer) {
        match peer::measure(args.jobs, args.python.as_deref()).await {
            Ok(peer) => report.compare(peer),
            Err(error) => report.note(format!("d was left out: {error:#}")),
        }
        report.show_peer()?;
    }
    if has(Part::Telling) {
        report.telling = Some(burst::telling(args.jobs, args.repeats as usize).await?);
        report.show_telling(args.jobs)?;
    }
    if has(Part::Idle) || has(Part::Steady) {
        let mut scene = Scene::with_file().await?;
        if has(Part::Idle) {
            for stored in idle::sizes(args.stored) {
                scene.fill(stored).await?;
                report.idle.push(idle::measure(&mut scene, args.idle_seconds).await?);
                report.show_last_idle()?;
            }
        }
        if has(Part::Steady) {
            scene.fill(args.stored).await?;
            report.steady = Some(steady::measure(&mut scene, args.rate, args.seconds).await?);
            report.show_steady()?;
        }
        report.loads = scene.loads.clone();
        scene.close().await?;
    }
    report.end();
    report.show_end()?;
    if let Some(path) = &args.report {
        measure::write_report(path, &report)?;
    }
    Ok(())
}

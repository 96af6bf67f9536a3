//! The figures, for people and for files.

use crate::burst::Kind;
use punctual_core::process::print_line;
use punctual_tests::measure::{Lag, Load, Machine, Telling, row, show_lag};
use serde::Serialize;

/// All figures.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Part a.
    pub burst: Vec<Burst>,
    /// Part d.
    pub peer: Option<Comparison>,
    /// Part e.
    pub telling: Option<Telling>,
    /// Part c.
    pub idle: Vec<Idle>,
    /// Part b.
    pub steady: Option<Steady>,
    /// How long loading took, for b and c.
    pub loads: Vec<Load>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Part a, of one kind: medians of its repetitions.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// Found due, or seen coming.
    pub kind: Kind,
    /// Jobs due at one instant.
    pub jobs: usize,
    /// Scheduler copies.
    pub copies: usize,
    /// Messages in the queues.
    pub enqueued: usize,
    /// Different runs among them.
    pub distinct: usize,
    /// Jobs still due at the end.
    pub left_due: usize,
    /// From the first message to the last advance.
    pub seconds: f64,
    /// Runs a second.
    pub runs_per_s: f64,
    /// The same of each repetition.
    pub runs_per_s_of_each: Vec<f64>,
    /// CPU time of the copies a run, in microseconds, from the first message to the last advance.
    pub cpu_us_per_run: f64,
    /// CPU time of the stack a run, meanwhile.
    pub stack_cpu_us_per_run: f64,
    /// From due to visible.
    pub lag: Lag,
    /// Runs of each copy.
    pub split: Vec<usize>,
    /// The most memory that a copy held, in MiB.
    pub peak_mb: f64,
}

/// Part b.
#[derive(Debug, Serialize)]
pub struct Steady {
    /// Jobs stored besides those that are due.
    pub stored: usize,
    /// Jobs due each second.
    pub per_second: usize,
    /// For so long.
    pub seconds: usize,
    /// Messages in the queues.
    pub enqueued: usize,
    /// Different runs among them.
    pub distinct: usize,
    /// From due to visible.
    pub lag: Lag,
    /// CPU time of a copy, in percent of one processor.
    pub cpu_percent_of_each: f64,
    /// Memory of each copy at the end, in MiB.
    pub rss_mb: Vec<f64>,
    /// The most memory that each copy held, in MiB.
    pub peak_mb: Vec<f64>,
}

/// Part c, at one size: one copy with all shards.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// Jobs stored.
    pub stored: usize,
    /// CPU time of the copy a minute.
    pub cpu_s_per_minute: f64,
    /// CPU time of the stack a minute, meanwhile.
    pub stack_cpu_s_per_minute: f64,
    /// How long an empty query of the due index takes a client, median.
    pub query_ms: f64,
    /// Memory of the copy, in MiB.
    pub rss_mb: f64,
}

/// The reference design's loop on its own.
#[derive(Debug, Serialize)]
pub struct Peer {
    /// Jobs due at one instant.
    pub jobs: usize,
    /// Runs a second, median.
    pub runs_per_s: f64,
    /// The same of each repetition.
    pub runs_per_s_of_each: Vec<f64>,
    /// CPU time of its three processes a run, in microseconds, median; PostgreSQL's own is not in it.
    pub cpu_us_per_run: f64,
}

/// Part d: the loop beside part a.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The loop.
    pub peer: Peer,
    /// Its CPU time a run divided by ours.
    pub cpu_ratio: f64,
    /// Our runs a second divided by its.
    pub speed_ratio: f64,
}

impl Report {
    /// One without figures yet.
    pub fn begin() -> Self {
        Report {
            machine: Machine::begin(),
            burst: Vec::new(),
            peer: None,
            telling: None,
            idle: Vec::new(),
            steady: None,
            loads: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Notes the end.
    pub fn end(&mut self) {
        self.machine.end();
    }

    /// Notes what was left out.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Sets the peer beside part a.
    pub fn compare(&mut self, peer: Peer) {
        if let Some(ours) = self.burst.iter().find(|burst| burst.kind == Kind::Overdue) {
            let (cpu_ratio, speed_ratio) =
                (peer.cpu_us_per_run / ours.cpu_us_per_run, ours.runs_per_s / peer.runs_per_s);
            self.peer = Some(Comparison { peer, cpu_ratio, speed_ratio });
        }
    }

    /// Shows the burst measured last.
    pub fn show_last_burst(&self) -> std::io::Result<()> {
        let Some(b) = self.burst.last() else { return Ok(()) };
        let kind = match b.kind {
            Kind::Overdue => "found due",
            Kind::Coming => "seen coming",
        };
        print_line(&format!(
            "\na. {} jobs {kind}, {} copies, medians ({} build)",
            b.jobs, b.copies, self.machine.profile
        ))?;
        row("runs a second", format!("{:.0} {:.0?}", b.runs_per_s, b.runs_per_s_of_each))?;
        row("CPU of the copies", format!("{:.0} µs a run (target 100)", b.cpu_us_per_run))?;
        row("CPU of the stack", format!("{:.0} µs a run", b.stack_cpu_us_per_run))?;
        row("enqueued, distinct, left", format!("{}, {}, {}", b.enqueued, b.distinct, b.left_due))?;
        row("runs of each copy", format!("{:?}", b.split))?;
        show_lag("dispatch lag", &b.lag, "")?;
        row("most memory of a copy", format!("{:.0} MiB", b.peak_mb))
    }

    /// Shows the peer beside part a.
    pub fn show_peer(&self) -> std::io::Result<()> {
        let Some(Comparison { peer, cpu_ratio, speed_ratio }) = &self.peer else { return Ok(()) };
        print_line(&format!("\nd. the reference design's loop on PostgreSQL, {} jobs, medians", peer.jobs))?;
        row("runs a second", format!("{:.0} {:.0?}", peer.runs_per_s, peer.runs_per_s_of_each))?;
        row("CPU of its processes", format!("{:.0} µs a run", peer.cpu_us_per_run))?;
        row("its CPU a run by ours", format!("{cpu_ratio:.2}"))?;
        row("our runs/s by its", format!("{speed_ratio:.2}"))
    }

    /// Shows part e.
    pub fn show_telling(&self, jobs: usize) -> std::io::Result<()> {
        let Some(telling) = &self.telling else { return Ok(()) };
        print_line(&format!("\ne. {jobs} jobs found due, with metrics and without ({} build)", self.machine.profile))?;
        telling.show()
    }

    /// Shows the last size of part c beside the first.
    pub fn show_last_idle(&self) -> std::io::Result<()> {
        let (Some(first), Some(last)) = (self.idle.first(), self.idle.last()) else { return Ok(()) };
        if self.idle.len() == 1 {
            let build = self.machine.profile;
            print_line(&format!("\nc. one copy with every shard, nothing due (target: flat; {build} build)"))?;
        }
        let of_first = |figure: fn(&Idle) -> f64| format!("{:.3} ({:.2}×)", figure(last), figure(last) / figure(first));
        let (cpu, stack) = (of_first(|idle| idle.cpu_s_per_minute), of_first(|idle| idle.stack_cpu_s_per_minute));
        let (query, rss) = (of_first(|idle| idle.query_ms), last.rss_mb);
        let stored = format!("{} stored", last.stored);
        row(&stored, format!("CPU s/min {cpu}, of the stack {stack}, query ms {query}, {rss:.0} MiB"))
    }

    /// Shows part b.
    pub fn show_steady(&self) -> std::io::Result<()> {
        let Some(s) = &self.steady else { return Ok(()) };
        let (due, seconds, build) = (s.per_second, s.seconds, self.machine.profile);
        print_line(&format!("\nb. {} jobs stored, {due} due a second for {seconds} s ({build} build)", s.stored))?;
        show_lag("dispatch lag", &s.lag, " (target of p99: 300)")?;
        row("enqueued, distinct", format!("{}, {}", s.enqueued, s.distinct))?;
        row("CPU of each copy", format!("{:.1} % of a processor", s.cpu_percent_of_each))?;
        row("memory of each copy", format!("{:.0?} MiB, at most {:.0?} (target 80)", s.rss_mb, s.peak_mb))
    }

    /// Shows what must be known besides.
    pub fn show_end(&self) -> std::io::Result<()> {
        self.machine.show()?;
        self.notes.iter().try_for_each(|note| print_line(note))
    }
}

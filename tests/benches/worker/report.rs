//! The figures, for people and for files, with their targets.

use punctual_core::priority::Priority;
use punctual_core::process::print_line;
use punctual_tests::measure::{Lag, Machine, Scene, Telling, row, show_lag};
use serde::Serialize;

/// CPU time of a run, in microseconds: the most that it should be.
const TARGET_CPU_US: f64 = 150.0;
/// The most that a worker's CPU time should be of what the libraries alone take in the same run of the benchmark.
const TARGET_TIMES_FLOOR: f64 = 1.5;
/// The limit's own time goes into the whole time so often, at most: 113.3 s for 48,000 beside 20 urgent a second at 450/s.
const TARGET_TIMES_IDEAL: f64 = 1.015;
/// The most that all but one in a hundred urgent runs should be late, in milliseconds.
const TARGET_URGENT_P99_MS: i64 = 2_000;

/// The most that all but one in a hundred runs should be late with workers that are idle, in milliseconds.
const TARGET_START_P99_MS: i64 = 500;

/// All figures.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it was measured.
    #[serde(flatten)]
    pub machine: Machine,
    /// Part a.
    pub drain: Option<Drain>,
    /// Part b.
    pub morning: Option<Morning>,
    /// Part c: the same as a, of the libraries alone.
    pub floor: Option<Drain>,
    /// Part d.
    pub calm: Option<Calm>,
    /// Part e.
    pub telling: Option<Telling>,
}

/// What became of runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Delivered {
    /// Runs that had to be delivered.
    pub wanted: usize,
    /// Different runs that the gateway accepted.
    pub accepted: usize,
    /// Calls for a run that it had accepted before.
    pub repeats: u64,
    /// Runs whose phone got more than one message.
    pub sent_twice: u64,
    /// Dead letters.
    pub dead_letters: usize,
}

/// Part a: medians of its repetitions.
#[derive(Debug, Serialize)]
pub struct Drain {
    /// Runs that lay in the queues.
    pub runs: usize,
    /// Runs a second, from the first call to the last.
    pub runs_per_s: f64,
    /// The same of each repetition.
    pub runs_per_s_of_each: Vec<f64>,
    /// CPU time of the worker a run, in microseconds, from the first call to the last deleted message.
    pub cpu_us_per_run: f64,
    /// The same of each repetition.
    pub cpu_us_of_each: Vec<f64>,
    /// CPU time of the stack a run, meanwhile.
    pub stack_cpu_us_per_run: f64,
    /// Memory of the worker at the end, in MiB.
    pub rss_mb: f64,
    /// The most memory that it held, in MiB.
    pub peak_mb: f64,
    /// The worst of all repetitions.
    pub delivered: Delivered,
}

/// Part b.
#[derive(Debug, Serialize)]
pub struct Morning {
    /// Jobs due at one instant.
    pub due: usize,
    /// Urgent jobs due each second.
    pub urgent_per_s: usize,
    /// All of them, from before the instant until after the end.
    pub urgent: usize,
    /// Scheduler copies.
    pub copies: usize,
    /// Workers.
    pub workers: usize,
    /// Calls a second that all workers together may make.
    pub limit_per_s: u32,
    /// What the limit leaves of time: the jobs due at once, at the limit without the urgent ones.
    pub ideal_s: f64,
    /// From the instant to the last call for one of these jobs.
    pub seconds: f64,
    /// Messages in the queues.
    pub enqueued: usize,
    /// Different runs among them.
    pub distinct: usize,
    /// Jobs still due at the end.
    pub left_due: usize,
    /// Calls that the gateway answered 429; with any, times are those of first calls, accepted or not.
    pub rejected_429: u64,
    /// Most calls in any second.
    pub peak_per_s: u64,
    /// Runs of each worker.
    pub runs_of_each: Vec<u64>,
    /// Lags, the most urgent first.
    pub priorities: Vec<OfPriority>,
    /// CPU time of all workers a run, in microseconds, over the whole time.
    pub cpu_us_per_run: f64,
    /// The most memory that a worker held, in MiB.
    pub peak_mb: f64,
    /// What became of all runs.
    pub delivered: Delivered,
}

/// Part d.
#[derive(Debug, Serialize)]
pub struct Calm {
    /// Jobs due each second.
    pub per_second: usize,
    /// For so long.
    pub seconds: usize,
    /// Scheduler copies.
    pub copies: usize,
    /// Workers.
    pub workers: usize,
    /// From due to visible in the queue.
    pub dispatch_lag: Lag,
    /// From due to the call.
    pub start_lag: Lag,
    /// What became of all runs.
    pub delivered: Delivered,
}

/// The lags of one priority.
#[derive(Debug, Serialize)]
pub struct OfPriority {
    /// Which.
    pub priority: Priority,
    /// Of so many runs.
    pub runs: usize,
    /// From due to visible in the queue.
    pub dispatch_lag: Lag,
    /// From due to the call.
    pub start_lag: Lag,
    /// From visible, by the delay that the queue was asked for, to the call: the limiter's wait, above all. A message counts
    /// as visible when its whole batch was accepted; one that was called before that makes it negative.
    pub limiter_wait: Lag,
}

impl Delivered {
    /// What became of the runs of a scene.
    pub fn of(scene: &Scene, wanted: usize) -> Self {
        let stats = scene.gateway().stats();
        Delivered {
            wanted,
            accepted: scene.accepted(),
            repeats: stats.repeats,
            sent_twice: stats.sent_twice,
            dead_letters: scene.queue.dead_letters(),
        }
    }

    /// Two repetitions as one, by what is worse of each figure.
    pub fn worse(self, other: Self) -> Self {
        Delivered {
            wanted: self.wanted,
            accepted: self.accepted.min(other.accepted),
            repeats: self.repeats.max(other.repeats),
            sent_twice: self.sent_twice.max(other.sent_twice),
            dead_letters: self.dead_letters.max(other.dead_letters),
        }
    }

    fn problem(&self, part: &str) -> Option<String> {
        let Delivered { wanted, accepted, sent_twice, dead_letters, .. } = self;
        let is_right = accepted == wanted && (*sent_twice, *dead_letters) == (0, 0);
        let problem = || {
            format!(
                "{part}: of {wanted} runs {accepted} were accepted, {sent_twice} sent twice, {dead_letters} dead letters"
            )
        };
        (!is_right).then(problem)
    }

    fn show(&self) -> std::io::Result<()> {
        let Delivered { accepted, repeats, sent_twice, dead_letters, .. } = self;
        row("accepted, repeats, twice", format!("{accepted}, {repeats}, {sent_twice}; {dead_letters} dead letters"))
    }
}

impl Report {
    /// One without figures yet.
    pub fn begin() -> Self {
        Report { machine: Machine::begin(), drain: None, morning: None, floor: None, calm: None, telling: None }
    }

    /// What must not be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        problems.extend(self.drain.as_ref().and_then(|drain| drain.delivered.problem("a")));
        problems.extend(self.calm.as_ref().and_then(|calm| calm.delivered.problem("d")));
        problems.extend(self.floor.as_ref().and_then(|floor| floor.delivered.problem("c")));
        if let Some(morning) = &self.morning {
            problems.extend(morning.delivered.problem("b"));
            let Morning { rejected_429, left_due, peak_per_s, limit_per_s, .. } = morning;
            if peak_per_s * 20 > u64::from(*limit_per_s) * 21 {
                problems.push(format!("b: {peak_per_s} calls arrived in one second: the limit is {limit_per_s}"));
            }
            if (*rejected_429, *left_due) != (0, 0) {
                problems.push(format!("b: {rejected_429} calls were answered 429, {left_due} jobs were left due"));
            }
        }
        problems
    }

    /// Shows part a.
    pub fn show_drain(&self) -> std::io::Result<()> {
        let Some(d) = &self.drain else { return Ok(()) };
        let build = self.machine.profile;
        print_line(&format!("\na. {} runs in the queues, one worker, medians ({build} build)", d.runs))?;
        row("runs a second", format!("{:.0} {:.0?}", d.runs_per_s, d.runs_per_s_of_each))?;
        let cpu = format!("{:.0} µs a run {:.0?} (target {TARGET_CPU_US})", d.cpu_us_per_run, d.cpu_us_of_each);
        row("CPU of the worker", cpu)?;
        row("CPU of the stack", format!("{:.0} µs a run", d.stack_cpu_us_per_run))?;
        row("memory of the worker", format!("{:.0} MiB, at most {:.0}", d.rss_mb, d.peak_mb))?;
        d.delivered.show()
    }

    /// Shows part c.
    pub fn show_floor(&self) -> std::io::Result<()> {
        let Some(f) = &self.floor else { return Ok(()) };
        let build = self.machine.profile;
        print_line(&format!("\nc. the same calls by the SDK and the HTTP client alone, medians ({build} build)"))?;
        row("CPU of the libraries", format!("{:.0} µs a run {:.0?}", f.cpu_us_per_run, f.cpu_us_of_each))?;
        if let Some(d) = &self.drain {
            let times = d.cpu_us_per_run / f.cpu_us_per_run;
            row("the worker's, of that", format!("{times:.2}× (target {TARGET_TIMES_FLOOR})"))?;
        }
        f.delivered.show()
    }

    /// Shows part d.
    pub fn show_calm(&self) -> std::io::Result<()> {
        let Some(c) = &self.calm else { return Ok(()) };
        let (due, seconds, workers, build) = (c.per_second, c.seconds, c.workers, self.machine.profile);
        print_line(&format!("\nd. {due} due a second for {seconds} s, {workers} idle workers ({build} build)"))?;
        show_lag("dispatch lag", &c.dispatch_lag, "")?;
        show_lag("start lag", &c.start_lag, &format!(" (target of p99: {TARGET_START_P99_MS})"))?;
        c.delivered.show()
    }

    /// Shows part e.
    pub fn show_telling(&self, runs: u32) -> std::io::Result<()> {
        let Some(telling) = &self.telling else { return Ok(()) };
        let build = self.machine.profile;
        print_line(&format!("\ne. {runs} runs in the queues, one worker, with metrics and without ({build} build)"))?;
        telling.show()
    }

    /// Shows part b.
    pub fn show_morning(&self) -> std::io::Result<()> {
        let Some(m) = &self.morning else { return Ok(()) };
        let (due, urgent, build) = (m.due, m.urgent_per_s, self.machine.profile);
        print_line(&format!(
            "\nb. {due} due at one instant, {urgent} urgent a second, {} workers ({build} build)",
            m.workers
        ))?;
        let target = m.ideal_s * TARGET_TIMES_IDEAL;
        let times = m.seconds / m.ideal_s;
        let limit = format!("{times:.3}× the {:.1} s of {}/s; target {target:.1}", m.ideal_s, m.limit_per_s);
        row("from due to the last call", format!("{:.1} s ({limit})", m.seconds))?;
        row("busiest second, 429s", format!("{}, {} (target 0)", m.peak_per_s, m.rejected_429))?;
        for of in &m.priorities {
            print_line(&format!("   {}, {} runs", of.priority, of.runs))?;
            show_lag("  dispatch lag", &of.dispatch_lag, "")?;
            let target = format!(" (target of p99: {TARGET_URGENT_P99_MS})");
            show_lag("  start lag", &of.start_lag, if of.priority == Priority::Urgent { &target } else { "" })?;
            show_lag("  limiter wait", &of.limiter_wait, "")?;
        }
        row("CPU of the workers", format!("{:.0} µs a run, at most {:.0} MiB each", m.cpu_us_per_run, m.peak_mb))?;
        row("runs of each worker", format!("{:?}", m.runs_of_each))?;
        row("enqueued, distinct, left", format!("{}, {}, {}", m.enqueued, m.distinct, m.left_due))?;
        m.delivered.show()
    }
}

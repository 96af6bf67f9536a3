//! Part a: everything due at once, three copies.

use crate::report::Burst;
use anyhow::bail;
use chrono::TimeDelta;
use punctual_core::clock::Clock;
use punctual_core::due::Minute;
use punctual_tests::measure::{Batch, Lag, POLL, POLL_CLOSELY, Scene, Telling, median, usage_of};
use serde::Serialize;
use std::time::Duration;

/// Scheduler copies.
pub const COPIES: usize = 3;
/// Slower than this, in runs a second, it is given up.
const SLOWEST: usize = 100;
/// Jobs a second that loading takes at least: what the due minute is chosen by.
const SLOWEST_LOAD: usize = 3_000;
/// From loaded jobs to a due minute that copies look ahead to: they start, share the shards, and find it.
const AHEAD: TimeDelta = TimeDelta::seconds(60);
/// What is found this late does not count as missed yet when it is dispatched.
const LATEST: TimeDelta = TimeDelta::seconds(30);
/// How long the first message is waited for.
const FIRST_WITHIN: TimeDelta = TimeDelta::seconds(60);

/// Whether the copies find what is due, or see it coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Due before the copies start.
    Overdue,
    /// Due at a coming minute, which the copies see ahead.
    Coming,
}

/// Both.
pub const KINDS: [Kind; 2] = [Kind::Overdue, Kind::Coming];

/// Measures so many jobs, so often.
pub async fn measure(kind: Kind, jobs: usize, repeats: usize) -> anyhow::Result<Burst> {
    let mut all = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        all.push(once(kind, jobs, None).await?);
    }
    let of = |figure: fn(&Burst) -> f64| median(all.iter().map(figure).collect());
    let (seconds, runs_per_s) = (of(|b| b.seconds), of(|b| b.runs_per_s));
    let (cpu_us_per_run, stack_cpu_us_per_run) = (of(|b| b.cpu_us_per_run), of(|b| b.stack_cpu_us_per_run));
    // Lag, memory and split are those of the repetition that is closest to the median time.
    all.sort_by(|a, b| (a.seconds - seconds).abs().total_cmp(&(b.seconds - seconds).abs()));
    let runs_per_s_of_each = all.iter().map(|burst| burst.runs_per_s).collect();
    let typical = all.swap_remove(0);
    Ok(Burst { seconds, runs_per_s, cpu_us_per_run, stack_cpu_us_per_run, runs_per_s_of_each, ..typical })
}

/// Measures so many jobs that are found due, with metrics and without, each so often.
pub async fn telling(jobs: usize, pairs: usize) -> anyhow::Result<Telling> {
    let mut telling = Telling::default();
    for _ in 0..2 * pairs {
        let burst = once(Kind::Overdue, jobs, Some(telling.next())).await?;
        telling.note(burst.cpu_us_per_run);
    }
    Ok(telling)
}

async fn once(kind: Kind, jobs: usize, metrics: Option<&str>) -> anyhow::Result<Burst> {
    let mut scene = Scene::in_memory().await?;
    if let Some(metrics) = metrics {
        scene.set("PUNCTUAL_METRICS", metrics);
    }
    let loading = TimeDelta::seconds((jobs / SLOWEST_LOAD) as i64 + 1);
    let ahead = if kind == Kind::Coming { AHEAD } else { TimeDelta::zero() };
    let due = Minute::of(scene.clock.now() + loading + ahead).next();
    scene.load(Batch::AtOnce { due }, jobs).await?;
    if scene.clock.now() > due.start() + LATEST {
        bail!("loading took so long that everything would count as missed: use fewer jobs");
    }
    if kind == Kind::Overdue {
        scene.until(due.start()).await;
    }
    scene.start_copies(COPIES)?;
    let (cpu_before, stack_before) = wait_for_work(&mut scene, due).await?;
    let seconds = drain(&mut scene, due, jobs).await?;
    let (cpu, stack_cpu) = (scene.cpu_s()? - cpu_before, usage_of(std::process::id())?.cpu_s - stack_before);
    let usage = scene.usage()?;
    let book = scene.queue.book()?;
    if (book.enqueued, book.distinct) != (jobs, jobs) {
        bail!("{jobs} jobs were due, {} messages of {} runs were enqueued", book.enqueued, book.distinct);
    }
    let per_run = |cpu_s: f64| cpu_s * 1e6 / jobs as f64;
    let burst = Burst {
        kind,
        jobs,
        copies: COPIES,
        enqueued: book.enqueued,
        distinct: book.distinct,
        left_due: 0,
        seconds,
        runs_per_s: jobs as f64 / seconds,
        runs_per_s_of_each: Vec::new(),
        cpu_us_per_run: per_run(cpu),
        stack_cpu_us_per_run: per_run(stack_cpu),
        lag: Lag::of(&book.lags_ms),
        split: book.split.into_values().collect(),
        peak_mb: usage.iter().map(|usage| usage.peak_mb).fold(0.0, f64::max),
    };
    scene.close().await?;
    Ok(burst)
}

/// Waits for the first message; returns the CPU time that the copies and the stack had used right before it.
async fn wait_for_work(scene: &mut Scene, due: Minute) -> anyhow::Result<(f64, f64)> {
    let give_up_at = scene.clock.now().max(due.start()) + FIRST_WITHIN;
    loop {
        let used = (scene.cpu_s()?, usage_of(std::process::id())?.cpu_s);
        tokio::time::sleep(POLL_CLOSELY).await;
        if scene.queue.count() > 0 {
            return Ok(used);
        }
        scene.check()?;
        if scene.clock.now() > give_up_at {
            bail!("nothing was enqueued within {} s", FIRST_WITHIN.num_seconds());
        }
    }
}

/// Waits until every job was enqueued and advanced; returns the seconds since the first message.
async fn drain(scene: &mut Scene, due: Minute, jobs: usize) -> anyhow::Result<f64> {
    let wait = (due.start() - scene.clock.now()).to_std().unwrap_or_default();
    let limit = wait + Duration::from_secs((jobs / SLOWEST) as u64 + 60);
    let give_up_at = scene.clock.monotonic() + limit;
    loop {
        scene.check()?;
        let now = scene.clock.now();
        // Looking costs the store something, so it is looked at only when all is sent.
        if scene.queue.count() >= jobs && now >= due.start() && scene.left_due(due).await? == 0 {
            let first_at = scene.queue.book()?.first_at;
            return Ok((now - first_at).as_seconds_f64());
        }
        if scene.clock.monotonic() > give_up_at {
            bail!("{} of {jobs} runs were enqueued after {} s", scene.queue.count(), limit.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

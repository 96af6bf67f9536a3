//! Parts a and c: what a run costs one worker, where neither limit nor gateway holds it up, and what its calls cost without
//! the worker.

use crate::floor::LIBRARIES;
use crate::report::{Delivered, Drain};
use anyhow::bail;
use chrono::{DurationRound, TimeDelta};
use punctual_core::clock::Clock;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::measure::{Batch, POLL, POLL_CLOSELY, Scene, Telling, UNLIMITED, median, mixed, usage_of};
use std::time::Duration;

/// Slower than this, in runs a second, it is given up.
const SLOWEST: usize = 50;
/// How long the first call is waited for.
const FIRST_WITHIN: Duration = Duration::from_secs(60);

/// Who makes the calls.
#[derive(Clone, Copy)]
pub enum By {
    /// A worker.
    Worker,
    /// The libraries alone.
    Libraries,
}

/// Measures so many runs, so often.
pub async fn measure(by: By, runs: usize, repeats: usize) -> anyhow::Result<Drain> {
    let mut all = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        all.push(once(by, runs, None).await?);
    }
    let each = |figure: fn(&Drain) -> f64| all.iter().map(figure).collect::<Vec<_>>();
    let (runs_per_s_of_each, cpu_us_of_each) = (each(|d| d.runs_per_s), each(|d| d.cpu_us_per_run));
    let (runs_per_s, cpu_us_per_run) = (median(runs_per_s_of_each.clone()), median(cpu_us_of_each.clone()));
    let stack_cpu_us_per_run = median(each(|d| d.stack_cpu_us_per_run));
    let (rss_mb, peak_mb) = (median(each(|d| d.rss_mb)), median(each(|d| d.peak_mb)));
    let delivered = all.iter().map(|d| d.delivered).reduce(Delivered::worse).expect("there is at least one repetition");
    Ok(Drain {
        runs,
        runs_per_s,
        runs_per_s_of_each,
        cpu_us_per_run,
        cpu_us_of_each,
        stack_cpu_us_per_run,
        rss_mb,
        peak_mb,
        delivered,
    })
}

/// Measures so many runs with metrics and without, each so often.
pub async fn telling(runs: usize, pairs: usize) -> anyhow::Result<Telling> {
    let mut telling = Telling::default();
    for _ in 0..2 * pairs {
        let drain = once(By::Worker, runs, Some(telling.next())).await?;
        telling.note(drain.cpu_us_per_run);
    }
    Ok(telling)
}

async fn once(by: By, runs: usize, metrics: Option<&str>) -> anyhow::Result<Drain> {
    let gateway = GatewayConfig { per_second_cap: UNLIMITED, latency: Duration::ZERO, ..GatewayConfig::default() };
    let mut scene = Scene::with_gateway(gateway).await?;
    if let Some(metrics) = metrics {
        scene.set("PUNCTUAL_METRICS", metrics);
    }
    let from = scene.clock.now().duration_trunc(TimeDelta::seconds(1))?;
    let batch = Batch::EachSecond { name: "drain", from, rate: runs, priority: mixed };
    scene.load(batch, runs).await?;
    scene.enqueue(batch, runs).await?;
    match by {
        By::Worker => scene.start_workers(1, UNLIMITED).await?,
        By::Libraries => scene.start_instead_of_worker(LIBRARIES)?,
    }
    let (cpu_before, stack_before) = wait_for_work(&mut scene).await?;
    wait_for_end(&mut scene, runs).await?;
    let (cpu, stack_cpu) = (scene.cpu_s_of_workers()? - cpu_before, usage_of(std::process::id())?.cpu_s - stack_before);
    let usage = scene.usage_of_workers()?;
    let arrivals = scene.gateway().arrivals();
    let times = || arrivals.iter().map(|arrival| arrival.arrived_at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { bail!("nothing was called") };
    let per_run = |cpu_s: f64| cpu_s * 1e6 / runs as f64;
    let drain = Drain {
        runs,
        runs_per_s: runs as f64 / (last - first).as_seconds_f64(),
        runs_per_s_of_each: Vec::new(),
        cpu_us_per_run: per_run(cpu),
        cpu_us_of_each: Vec::new(),
        stack_cpu_us_per_run: per_run(stack_cpu),
        rss_mb: usage.iter().map(|usage| usage.rss_mb).sum(),
        peak_mb: usage.iter().map(|usage| usage.peak_mb).sum(),
        delivered: Delivered::of(&scene, runs),
    };
    scene.close().await?;
    Ok(drain)
}

/// Waits for the first call; returns the CPU time that the worker and the stack had used right before it.
async fn wait_for_work(scene: &mut Scene) -> anyhow::Result<(f64, f64)> {
    let give_up_at = scene.clock.monotonic() + FIRST_WITHIN;
    loop {
        let used = (scene.cpu_s_of_workers()?, usage_of(std::process::id())?.cpu_s);
        tokio::time::sleep(POLL_CLOSELY).await;
        if scene.accepted() > 0 {
            return Ok(used);
        }
        scene.check()?;
        if scene.clock.monotonic() > give_up_at {
            bail!("nothing was called within {} s", FIRST_WITHIN.as_secs());
        }
    }
}

/// Waits until every run was accepted, recorded and its message deleted.
async fn wait_for_end(scene: &mut Scene, runs: usize) -> anyhow::Result<()> {
    let limit = Duration::from_secs((runs / SLOWEST) as u64 + 60);
    let give_up_at = scene.clock.monotonic() + limit;
    // Looking at the queues costs the stack something, so they are looked at only when all is accepted.
    while scene.accepted() < runs || !scene.queues_are_empty().await? {
        scene.check()?;
        if scene.clock.monotonic() > give_up_at {
            bail!("{} of {runs} runs were accepted after {} s", scene.accepted(), limit.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

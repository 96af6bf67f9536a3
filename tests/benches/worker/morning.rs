//! Part b: many due at one instant, urgent ones each second beside them, and the gateway's limit over all workers.

use crate::report::{Delivered, Morning, OfPriority};
use crate::seen::{Seen, lag, seen};
use anyhow::{Context, bail};
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use punctual_core::clock::Clock;
use punctual_core::due::Minute;
use punctual_core::priority::Priority;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::measure::{Batch, POLL, Scene};
use std::time::Duration;

/// Calls a second, all workers together, under the gateway's 500.
pub const LIMIT_PER_S: u32 = 450;
const GATEWAY_PER_S: u32 = 500;
const GATEWAY_LATENCY: Duration = Duration::from_millis(5);
/// Scheduler copies.
const COPIES: usize = 3;
/// Jobs a second that loading takes at least: what the instant is chosen by.
const SLOWEST_LOAD: usize = 3_000;
/// Urgent runs begin so long before the instant, and go on for so much longer than the rest can take at best.
const URGENT_BEFORE: TimeDelta = TimeDelta::seconds(5);
const URGENT_LONGER: f64 = 1.1;
const URGENT_AFTER: TimeDelta = TimeDelta::seconds(5);
/// Slower than this, in runs a second, it is given up.
const SLOWEST: usize = 50;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Jobs due at one instant.
    pub due: usize,
    /// Urgent jobs due each second.
    pub urgent_per_s: usize,
    /// Workers.
    pub workers: usize,
    /// From the stored jobs to their instant.
    pub ahead: TimeDelta,
}

/// What is due, and when.
struct Plan {
    due: usize,
    urgent: usize,
    at: DateTime<Utc>,
    urgent_from: DateTime<Utc>,
    urgent_until: DateTime<Utc>,
}

/// Measures one morning.
pub async fn measure(size: Size) -> anyhow::Result<Morning> {
    let ideal_s = size.due as f64 / (f64::from(LIMIT_PER_S) - size.urgent_per_s as f64);
    let gateway = GatewayConfig { per_second_cap: GATEWAY_PER_S, latency: GATEWAY_LATENCY, ..GatewayConfig::default() };
    let mut scene = Scene::with_gateway(gateway).await?;
    let plan = Plan::new(&size, ideal_s, scene.clock.now())?;
    prepare(&mut scene, &size, &plan).await?;
    let cpu_before = scene.cpu_s_of_workers()?;
    wait_for_end(&mut scene, &plan).await?;
    let cpu_s = scene.cpu_s_of_workers()? - cpu_before;
    let usage = scene.usage_of_workers()?;
    let (book, stats) = (scene.queue.book()?, scene.gateway().stats());
    let runs = plan.due + plan.urgent;
    let seen = seen(&scene)?;
    let others = seen.iter().filter(|run| run.priority != Priority::Urgent);
    let ended_at = others.map(|run| run.called_at).max().context("nothing was called")?;
    let morning = Morning {
        due: plan.due,
        urgent_per_s: size.urgent_per_s,
        urgent: plan.urgent,
        copies: COPIES,
        workers: size.workers,
        limit_per_s: LIMIT_PER_S,
        ideal_s,
        seconds: (ended_at - plan.at).as_seconds_f64(),
        enqueued: book.enqueued,
        distinct: book.distinct,
        left_due: scene.left_due(Minute::of(plan.urgent_from)).await?,
        rejected_429: stats.rejected_429,
        peak_per_s: stats.peak_per_s,
        runs_of_each: stats.per_worker.into_values().collect(),
        priorities: priorities(&seen, plan.at, ended_at),
        cpu_us_per_run: cpu_s * 1e6 / runs as f64,
        peak_mb: usage.iter().map(|usage| usage.peak_mb).fold(0.0, f64::max),
        delivered: Delivered::of(&scene, runs),
    };
    scene.close().await?;
    Ok(morning)
}

impl Plan {
    fn new(size: &Size, ideal_s: f64, now: DateTime<Utc>) -> anyhow::Result<Self> {
        let long = URGENT_BEFORE + TimeDelta::seconds((ideal_s * URGENT_LONGER).ceil() as i64) + URGENT_AFTER;
        let urgent = size.urgent_per_s * long.num_seconds() as usize;
        let loading = TimeDelta::seconds(((size.due + urgent) / SLOWEST_LOAD) as i64 + 1);
        let at = (now + loading + size.ahead).duration_trunc(TimeDelta::seconds(1))?;
        let urgent_from = at - URGENT_BEFORE;
        Ok(Plan { due: size.due, urgent, at, urgent_from, urgent_until: urgent_from + long })
    }
}

/// Stores the jobs, starts everything, and waits until the first urgent run is due.
async fn prepare(scene: &mut Scene, size: &Size, plan: &Plan) -> anyhow::Result<()> {
    let due = Batch::EachSecond { name: "morning", from: plan.at, rate: plan.due, priority: six_of_ten_are_normal };
    scene.load(due, plan.due).await?;
    let (from, rate) = (plan.urgent_from, size.urgent_per_s);
    let urgent = Batch::EachSecond { name: "urgent", from, rate, priority: |_| Priority::Urgent };
    scene.load(urgent, plan.urgent).await?;
    scene.start_copies(COPIES)?;
    scene.start_workers(size.workers, LIMIT_PER_S).await?;
    scene.wait_for_shards().await?;
    if scene.clock.now() > plan.urgent_from {
        bail!("loading and sharing the shards took until after the first run was due: more `--ahead-s` helps");
    }
    scene.until(plan.urgent_from).await;
    Ok(())
}

fn six_of_ten_are_normal(n: usize) -> Priority {
    if n % 10 < 6 { Priority::Normal } else { Priority::Bulk }
}

/// Waits until every run was accepted and recorded, and no job is left due.
async fn wait_for_end(scene: &mut Scene, plan: &Plan) -> anyhow::Result<()> {
    let runs = plan.due + plan.urgent;
    let give_up_at = plan.urgent_until + TimeDelta::seconds((runs / SLOWEST) as i64 + 60);
    let since = Minute::of(plan.urgent_from);
    // Looking costs the stack something, so queues and jobs are looked at only when all is accepted.
    while scene.accepted() < runs || !scene.queues_are_empty().await? || scene.left_due(since).await? > 0 {
        scene.check()?;
        if scene.clock.now() > give_up_at {
            bail!("{} of {runs} runs were accepted, {} were enqueued", scene.accepted(), scene.queue.count());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The lags of each priority: of the urgent runs, those that were due while the others were worked off.
fn priorities(seen: &[Seen], from: DateTime<Utc>, until: DateTime<Utc>) -> Vec<OfPriority> {
    let of = |priority| {
        let runs = || seen.iter().filter(move |run| run.priority == priority && (from..=until).contains(&run.due_at));
        let lag = |time: fn(&Seen) -> TimeDelta| lag(runs().map(time));
        OfPriority {
            priority,
            runs: runs().count(),
            dispatch_lag: lag(|run| run.visible_at - run.due_at),
            start_lag: lag(|run| run.called_at - run.due_at),
            limiter_wait: lag(|run| run.called_at - run.visible_at),
        }
    };
    Priority::ALL.map(of).into()
}

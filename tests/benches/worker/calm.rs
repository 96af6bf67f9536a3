//! Part d: a few due each second, workers that have nothing else to do, and how late the gateway is called.

use crate::morning::LIMIT_PER_S;
use crate::report::{Calm, Delivered};
use crate::seen::{lag, seen};
use anyhow::bail;
use chrono::{DurationRound, TimeDelta};
use punctual_core::clock::Clock;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::measure::{Batch, POLL, Scene, mixed};
use std::time::Duration;

const COPIES: usize = 3;
const WORKERS: usize = 2;
const GATEWAY_LATENCY: Duration = Duration::from_millis(5);
/// From the stored jobs to the first second: copies share the shards, and know the store's time well.
const SETTLING: TimeDelta = TimeDelta::seconds(60);
/// How long after the last second the last run is waited for.
const AFTER: TimeDelta = TimeDelta::seconds(60);

/// Measures so many jobs a second for so long.
pub async fn measure(per_second: usize, seconds: usize) -> anyhow::Result<Calm> {
    let runs = per_second * seconds;
    let gateway = GatewayConfig { latency: GATEWAY_LATENCY, ..GatewayConfig::default() };
    let mut scene = Scene::with_gateway(gateway).await?;
    let from = (scene.clock.now() + SETTLING).duration_trunc(TimeDelta::seconds(1))?;
    scene.load(Batch::EachSecond { name: "calm", from, rate: per_second, priority: mixed }, runs).await?;
    scene.start_copies(COPIES)?;
    scene.start_workers(WORKERS, LIMIT_PER_S).await?;
    scene.wait_for_shards().await?;
    if scene.clock.now() > from {
        bail!("loading and sharing the shards took until after the first second");
    }
    let until = from + TimeDelta::seconds(seconds as i64);
    scene.until(until).await;
    while scene.accepted() < runs || !scene.queues_are_empty().await? {
        scene.check()?;
        if scene.clock.now() > until + AFTER {
            bail!("{} of {runs} runs were accepted", scene.accepted());
        }
        tokio::time::sleep(POLL).await;
    }
    let seen = seen(&scene)?;
    let calm = Calm {
        per_second,
        seconds,
        copies: COPIES,
        workers: WORKERS,
        dispatch_lag: lag(seen.iter().map(|run| run.visible_at - run.due_at)),
        start_lag: lag(seen.iter().map(|run| run.called_at - run.due_at)),
        delivered: Delivered::of(&scene, runs),
    };
    scene.close().await?;
    Ok(calm)
}

//! Part b: a few jobs due each second, among many that are stored.

use crate::burst::COPIES;
use crate::report::Steady;
use anyhow::bail;
use chrono::{DurationRound, TimeDelta};
use punctual_core::clock::Clock;
use punctual_core::due::Minute;
use punctual_tests::measure::{Batch, Lag, POLL, Scene, mixed};

/// From the start of the copies to the first second: they share the shards, and know the store's time well.
const SETTLING: TimeDelta = TimeDelta::seconds(60);
/// How long after the last second the last run is waited for.
const AFTER: TimeDelta = TimeDelta::seconds(60);

/// Measures so many jobs a second for so long.
pub async fn measure(scene: &mut Scene, rate: usize, seconds: usize) -> anyhow::Result<Steady> {
    let jobs = rate * seconds;
    scene.queue.clear();
    let stored = scene.stored;
    let from = (scene.clock.now() + SETTLING).duration_trunc(TimeDelta::seconds(1))?;
    scene.load(Batch::EachSecond { name: "steady", from, rate, priority: mixed }, jobs).await?;
    scene.start_copies(COPIES)?;
    scene.wait_for_shards().await?;
    if scene.clock.now() > from {
        bail!("loading and sharing the shards took until after the first second");
    }
    let cpu_before = scene.cpu_s()?;
    let until = from + TimeDelta::seconds(seconds as i64);
    scene.until(until).await;
    let cpu_s = scene.cpu_s()? - cpu_before;
    while scene.queue.count() < jobs || scene.left_due(Minute::of(from)).await? > 0 {
        scene.check()?;
        if scene.clock.now() > until + AFTER {
            bail!("{} of {jobs} runs were enqueued", scene.queue.count());
        }
        tokio::time::sleep(POLL).await;
    }
    let usage = scene.usage()?;
    let book = scene.queue.book()?;
    if (book.enqueued, book.distinct) != (jobs, jobs) {
        bail!("{jobs} jobs were due, {} messages of {} runs were enqueued", book.enqueued, book.distinct);
    }
    scene.stop_copies().await?;
    Ok(Steady {
        stored,
        per_second: rate,
        seconds,
        enqueued: book.enqueued,
        distinct: book.distinct,
        lag: Lag::of(&book.lags_ms),
        cpu_percent_of_each: cpu_s / seconds as f64 / COPIES as f64 * 100.0,
        rss_mb: usage.iter().map(|usage| usage.rss_mb).collect(),
        peak_mb: usage.iter().map(|usage| usage.peak_mb).collect(),
    })
}

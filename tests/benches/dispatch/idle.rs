//! Part c: nothing due, and more and more stored. What a copy costs must not grow.

use crate::report::Idle;
use punctual_tests::measure::{Scene, usage_of};
use std::time::Duration;

/// Stored jobs, from step to step.
const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 2_700_000];
/// A copy that has just started reads what lies behind it, and learns the time.
const SETTLING: Duration = Duration::from_secs(20);
/// Empty queries that are timed.
const QUERIES: usize = 2_000;

/// The sizes up to the largest that is asked for.
pub fn sizes(largest: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|size| *size < largest).collect();
    sizes.push(largest);
    sizes
}

/// Measures one copy that holds every shard.
pub async fn measure(scene: &mut Scene, seconds: u64) -> anyhow::Result<Idle> {
    let query_ms = scene.query_ms(QUERIES).await?;
    scene.queue.clear();
    scene.start_copies(1)?;
    scene.wait_for_shards().await?;
    tokio::time::sleep(SETTLING).await;
    let (copy_before, stack_before) = (scene.cpu_s()?, usage_of(std::process::id())?.cpu_s);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let per_minute = 60.0 / seconds as f64;
    let idle = Idle {
        stored: scene.stored,
        cpu_s_per_minute: (scene.cpu_s()? - copy_before) * per_minute,
        stack_cpu_s_per_minute: (usage_of(std::process::id())?.cpu_s - stack_before) * per_minute,
        query_ms,
        rss_mb: scene.usage()?.iter().map(|usage| usage.rss_mb).sum(),
    };
    scene.check()?;
    scene.stop_copies().await?;
    if scene.queue.count() > 0 {
        anyhow::bail!("{} runs were enqueued although nothing was due", scene.queue.count());
    }
    Ok(idle)
}

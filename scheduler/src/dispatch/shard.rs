//! The loop over one shard: a pass every tick, slower while the store or a queue is in trouble.

use super::leases::ShardLease;
use super::pass::{Dispatcher, Permission};
use punctual_core::clock::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Minutes that have passed are read again this often until they are settled; the latest ones at every tick.
const FULL_PASS_EVERY: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);

/// Works on a shard until its lease is given up.
pub(super) async fn work(dispatcher: Arc<Dispatcher>, clock: Arc<dyn Clock>, lease: Arc<ShardLease>, tick: Duration) {
    let mut failures = 0;
    let mut last_full: Option<Duration> = None;
    while !lease.is_given_up() {
        let began = clock.monotonic();
        let mut wait = tick;
        if lease.holds() {
            let is_full = last_full.is_none_or(|at| began.saturating_sub(at) >= FULL_PASS_EVERY);
            match pass(&dispatcher, &*clock, &lease, is_full).await {
                Ok(left) => {
                    failures = 0;
                    if is_full {
                        last_full = (!left).then_some(began);
                    }
                    wait = tick.saturating_sub(clock.monotonic() - began);
                }
                Err(error) => {
                    dispatcher.count_failure();
                    // Once a trouble, not once a tick.
                    if failures == 0 {
                        tracing::warn!(shard = %lease.shard, class = error.class(), %error, "a pass failed; it is repeated with back-off");
                    }
                    wait = (FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF);
                    failures = (failures + 1).min(8);
                    last_full = None;
                }
            }
        }
        lease.sleep(wait).await;
    }
}

/// One pass; true when something due was left.
async fn pass(
    dispatcher: &Dispatcher,
    clock: &dyn Clock,
    lease: &ShardLease,
    is_full: bool,
) -> Result<bool, punctual_core::error::PortError> {
    let (began, cursor) = (clock.now(), lease.cursor());
    if !is_full {
        let report = dispatcher.pass(lease.shard, cursor.latest_minutes(began), lease).await?;
        return Ok(report.oldest_left.is_some());
    }
    let report = dispatcher.pass(lease.shard, cursor.minutes(began), lease).await?;
    lease.set_cursor(cursor.after_pass(began, report.oldest_left));
    Ok(report.oldest_left.is_some())
}

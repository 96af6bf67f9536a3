//! The loop over one shard: a pass every tick, slower while the store or a queue is in trouble.

use super::leases::ShardLease;
use super::pass::{Dispatcher, Permission, Tally};
use punctual_core::clock::Clock;
use punctual_core::due::{DueBucket, Minute};
use punctual_core::error::PortError;
use std::sync::Arc;
use std::time::Duration;

/// Minutes that have passed are read again this often until they are settled; the latest ones at every tick.
const FULL_PASS_EVERY: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);

/// Works on a shard until its lease is given up.
pub(super) async fn work(dispatcher: Arc<Dispatcher>, clock: Arc<dyn Clock>, lease: Arc<ShardLease>, tick: Duration) {
    let mut failures = 0;
    let mut is_refused = false;
    let mut last_full: Option<Duration> = None;
    while !lease.is_given_up() {
        let began = clock.monotonic();
        let mut wait = tick;
        if lease.holds() {
            let is_full = last_full.is_none_or(|at| began.saturating_sub(at) >= FULL_PASS_EVERY);
            let is_healthy = failures == 0;
            let tally = if is_full {
                full_pass(&dispatcher, &*clock, &lease, is_healthy).await
            } else {
                let minutes = lease.cursor().latest_minutes(clock.now());
                pass(&dispatcher, &lease, minutes, is_healthy, |_| {}).await
            };
            if let Some((key, error)) = tally.refusal.as_ref().filter(|_| !is_refused) {
                tracing::error!(shard = %lease.shard, job.id = %key, %error, "a job stays due: the store refuses what it needs");
            }
            is_refused = tally.refusal.is_some();
            // What the store refuses for one job stays due: it is tried again in time, and nothing else waits for it.
            let is_left = tally.left && (tally.refusal.is_none() || tally.error.is_some());
            if is_full || is_left {
                last_full = (!is_left).then_some(began);
            }
            match tally.error {
                None => {
                    failures = 0;
                    lease.progress();
                    wait = tick.saturating_sub(clock.monotonic().saturating_sub(began));
                }
                Some(error) => {
                    dispatcher.count_failure();
                    tell(&lease, &error, failures == 0);
                    wait = (FIRST_BACKOFF * 2u32.pow(failures)).min(LONGEST_BACKOFF);
                    failures = (failures + 1).min(8);
                }
            }
        }
        lease.sleep(wait).await;
    }
}

/// Reads every minute from the cursor to now, and moves the cursor behind each that is drained, so that a pass that breaks
/// off has not been for nothing.
async fn full_pass(dispatcher: &Dispatcher, clock: &dyn Clock, lease: &ShardLease, is_healthy: bool) -> Tally {
    let began = clock.now();
    let cursor = lease.cursor().not_ahead_of(began);
    let ahead = lease.cursor().0.0 - cursor.0.0;
    if ahead > 1 {
        // One minute is what two good clocks can differ by at a minute's turn.
        tracing::error!(
            shard = %lease.shard,
            minutes = ahead,
            "the shard's cursor is ahead of this host's clock: one of the clocks that moved it was wrong; it is set back"
        );
    }
    lease.set_cursor(cursor);
    pass(dispatcher, lease, cursor.minutes(began), is_healthy, |drained| lease.set_cursor(cursor.after(drained, began)))
        .await
}

/// Works through minutes, oldest first; `drained` is told each one up to the first in which something is left. Minutes with
/// nothing in them count as progress only while all goes well: otherwise a copy that cannot send would earn its renewals
/// by reading.
async fn pass(
    dispatcher: &Dispatcher,
    lease: &ShardLease,
    minutes: impl Iterator<Item = Minute> + Send,
    is_healthy: bool,
    drained: impl Fn(Minute) + Send,
) -> Tally {
    let mut tally = Tally::default();
    for minute in minutes {
        tally.add(dispatcher.minute(DueBucket { minute, shard: lease.shard }, lease).await);
        let is_throttled = matches!(tally.error, Some(PortError::Throttled(_)));
        if is_healthy && tally.error.is_none() {
            lease.progress();
        }
        if !tally.left {
            drained(minute);
        } else if is_throttled || !lease.holds() {
            break;
        }
    }
    tally
}

/// Says what is wrong: once a trouble, not once a tick.
fn tell(lease: &ShardLease, error: &PortError, is_new: bool) {
    let (shard, class) = (lease.shard, error.class());
    match error {
        _ if !is_new => tracing::debug!(%shard, class, %error, "a pass failed again"),
        PortError::Permanent(_) => {
            tracing::error!(%shard, class, %error, "a pass was refused: it is repeated with back-off")
        }
        _ => tracing::warn!(%shard, class, %error, "a pass failed: it is repeated with back-off"),
    }
}

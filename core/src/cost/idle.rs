//! What is taken while nothing is due: looking at empty buckets, keeping leases and rate shares, asking empty queues.

use super::{Line, READ_UNIT_BYTES, Usage, read_units, write_units};
use crate::due::{Audit, SETTLE};
use crate::lease::LeaseTimes;
use crate::priority::Priority;
use crate::rate::LOOK_EVERY;
use crate::steering::READ_EVERY;
use crate::telemetry::{COUNTED_EVERY, QUEUES_EVERY};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// Bytes of a lease's item: id, owner, counter, cursor.
const LEASE_BYTES: f64 = 90.0;
/// Bytes of the item of a target's shares without holders: id, revision.
const SHARES_BYTES: f64 = 40.0;
/// Bytes of a holder in it: id, shares, beat.
const HOLDER_BYTES: f64 = 40.0;
/// Bytes after which a scan goes on with another call (DynamoDB).
const SCAN_PAGE_BYTES: f64 = 1_048_576.0;

/// Queries of due buckets that find nothing, for one shard and hour, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BucketReads {
    /// The present minute and the one before it, at most ticks.
    pub latest: f64,
    /// All minutes that are not settled, at the other ticks.
    pub unsettled: f64,
    /// Minutes to come, for what is due soon.
    pub ahead: f64,
    /// Minutes that have long passed, for stragglers.
    pub audit: f64,
}

impl BucketReads {
    /// A loop that reads the latest two minutes at every tick, and instead, each `full_every`, all from the oldest that is
    /// not settled to the present one; each `ahead_every` it reads ahead, and all the time it audits.
    pub fn of_loop(tick: Duration, full_every: Duration, ahead_every: Duration) -> Self {
        let full = per_hour(full_every.max(tick));
        let unsettled = (SETTLE.as_secs_f64() / MINUTE.as_secs_f64()).ceil() + 1.0;
        BucketReads {
            latest: (per_hour(tick) - full) * 2.0,
            unsettled: full * unsettled,
            ahead: per_hour(ahead_every),
            audit: Audit::reads_per_hour(),
        }
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.latest + self.unsettled + self.ahead + self.audit
    }
}

/// What stands by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleLoad {
    /// Shards of all classes.
    pub shards: u32,
    /// Scheduler copies.
    pub copies: u32,
    /// Time between two renewals of a lease.
    pub renew_every: Duration,
    /// Time between two looks of a copy at all leases.
    pub look_every: Duration,
    /// Time between two looks of a copy at the shard counts.
    pub layout_every: Duration,
    /// Queries of empty buckets.
    pub reads: BucketReads,
    /// Workers.
    pub workers: u32,
    /// How long a receive waits at an empty queue.
    pub poll: Duration,
}

/// What an hour takes in which nothing is due.
pub fn idle(load: &IdleLoad) -> Vec<Line> {
    let (shards, copies) = (f64::from(load.shards), f64::from(load.copies));
    // An empty query costs half a unit.
    let queries = |count: f64| Usage::reads(0.5, 1.0) * (count * shards);
    // One limited target, the SMS gateway: its shares lie in the table of leases.
    let workers = f64::from(load.workers);
    let shares = if load.workers == 0 { 0.0 } else { SHARES_BYTES + workers * HOLDER_BYTES };
    let listed = (shards + copies) * LEASE_BYTES + shares;
    let listing = Usage::reads((listed / READ_UNIT_BYTES).ceil(), (listed / SCAN_PAGE_BYTES).ceil());
    let beats = per_hour(LeaseTimes::default().renew_every);
    let looks = per_hour(LOOK_EVERY) - beats;
    let receives = per_hour(load.poll) * workers * Priority::ALL.len() as f64;
    // One copy looks for all.
    let watching = if load.copies == 0 { 0.0 } else { 1.0 };
    let lines = [
        ("due: latest minutes", queries(load.reads.latest)),
        ("due: unsettled minutes", queries(load.reads.unsettled)),
        ("due: minutes ahead", queries(load.reads.ahead)),
        ("due: audit", queries(load.reads.audit)),
        ("lease: renew", Usage::writes(1.0, 1.0) * ((shards + copies) * per_hour(load.renew_every))),
        ("lease: list", listing * (copies * per_hour(load.look_every))),
        ("lease: shard counts", Usage::reads(1.0, 1.0) * (copies * per_hour(load.layout_every))),
        ("lease: receive", Usage::sqs(1.0) * receives),
        ("watch: queues", Usage::sqs(Priority::ALL.len() as f64) * (watching * per_hour(QUEUES_EVERY))),
        ("watch: quarantine", queries(watching * per_hour(COUNTED_EVERY))),
        ("watch: shard counts", Usage::reads(1.0, 1.0) * (watching * per_hour(COUNTED_EVERY))),
        ("watch: dead letters", Usage::reads(0.5, 1.0) * (watching * per_hour(COUNTED_EVERY))),
        ("rate: keep shares", Usage::writes(write_units(shares), 1.0) * (workers * beats)),
        ("rate: look at shares", Usage::reads(read_units(shares), 1.0) * (workers * looks)),
        ("rate: limits and holds", Usage::reads(1.0, 1.0) * (workers * per_hour(READ_EVERY))),
    ];
    lines.into_iter().map(|(step, usage)| Line { step, usage }).collect()
}

fn per_hour(every: Duration) -> f64 {
    HOUR.as_secs_f64() / every.as_secs_f64()
}

//! Step 3, *dispatch*: how long a night takes on which very many jobs fall due in one instant.
//!
//! Arithmetic on paper: `docs/scale.md` shows what these functions say, and a replay in virtual time through the real
//! decisions must agree with them. Each limit is an input. What a limit allows is a time for all that is due; the longest
//! of these times is the night's.

use std::fmt;

/// What falls due, and who takes care of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Night {
    /// Jobs due in the same instant.
    pub due: f64,
    /// Shards that they are spread over by hash.
    pub shards: u32,
    /// Scheduler copies that share the shards.
    pub copies: u32,
    /// The window in which each has its fixed place; 0 = all at once.
    pub window_s: f64,
}

/// What each part gets through in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Writes to one partition, and so to one due bucket: [`PARTITION_WRITES`].
    pub partition_writes: f64,
    /// Runs of one shard, by the round trips of its loop.
    pub shard_runs: f64,
    /// Runs of one copy, by its processor time.
    pub copy_runs: f64,
    /// Writes to the jobs table: its warm throughput.
    pub table_writes: f64,
    /// Writes to the index `due`: its warm throughput.
    pub index_writes: f64,
}

/// Writes to the jobs table for one advance.
pub const TABLE_WRITES: f64 = 1.0;
/// Writes to the index for one advance: one in the leaving bucket, one in the arriving bucket.
pub const INDEX_WRITES: f64 = 2.0;
/// Writes that one partition takes in a second (DynamoDB, partitions).
pub const PARTITION_WRITES: f64 = 1_000.0;

/// What a night may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One due bucket of the fullest shard: the leaving one, and where all go on alike, just as much the arriving one.
    Bucket,
    /// The loop of the fullest shard.
    Loop,
    /// The copy that holds most shards.
    Copies,
    /// The jobs table.
    Table,
    /// The index `due` as a whole.
    Index,
    /// The window itself.
    Window,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Bucket => "due bucket",
            Limit::Loop => "shard's loop",
            Limit::Copies => "copies",
            Limit::Table => "jobs table",
            Limit::Index => "index as a whole",
            Limit::Window => "spread window",
        })
    }
}

impl Limits {
    /// What one copy gets through with so many processors, when a run takes so many microseconds of one.
    pub fn copy_runs(processors: f64, cpu_us_per_run: f64) -> f64 {
        processors * 1e6 / cpu_us_per_run
    }

    /// What one shard's loop gets through, when a page of so many entries takes so long from its query to its last
    /// advance.
    pub fn shard_runs(page: f64, page_ms: f64) -> f64 {
        page / page_ms * 1e3
    }

    /// The same limits for a part of the jobs: a part of the jobs at a part of the speed takes the same time.
    pub fn scaled(self, part: f64) -> Self {
        Limits {
            partition_writes: self.partition_writes * part,
            shard_runs: self.shard_runs * part,
            copy_runs: self.copy_runs * part,
            table_writes: self.table_writes * part,
            index_writes: self.index_writes * part,
        }
    }
}

impl Night {
    /// Jobs of the fullest shard.
    pub fn fullest_shard(&self) -> f64 {
        fullest_of(self.due, f64::from(self.shards))
    }

    /// Seconds that each limit asks for.
    pub fn seconds_by_limit(&self, limits: &Limits) -> [(Limit, f64); 6] {
        let of_a_shard = self.fullest_shard();
        let shards_of_a_copy = f64::from(self.shards.div_ceil(self.copies.max(1)));
        let of_a_copy = fullest(shards_of_a_copy * self.due / f64::from(self.shards), f64::from(self.copies));
        let partitions = (limits.table_writes / limits.partition_writes).max(1.0);
        let of_a_partition = fullest_of(self.due, partitions);
        [
            (Limit::Bucket, of_a_shard / limits.partition_writes),
            (Limit::Loop, of_a_shard / limits.shard_runs),
            (Limit::Copies, of_a_copy / limits.copy_runs),
            (Limit::Table, of_a_partition * TABLE_WRITES / limits.partition_writes),
            (Limit::Index, self.due * INDEX_WRITES / limits.index_writes),
            (Limit::Window, self.window_s),
        ]
    }

    /// Seconds until the last run is in its queue, and what they are spent waiting for.
    pub fn until_queued(&self, limits: &Limits) -> (Limit, f64) {
        let by_limit = self.seconds_by_limit(limits);
        by_limit.into_iter().fold(by_limit[0], |longest, next| if next.1 > longest.1 { next } else { longest })
    }

    /// How long after it was due the last run is in its queue. None waits longer: places in the window are even, so a
    /// backlog is oldest at its end.
    pub fn lag_s(&self, limits: &Limits) -> f64 {
        self.until_queued(limits).1 - self.window_s
    }

    /// Runs a second while all are busy.
    pub fn runs_per_s(&self, limits: &Limits) -> f64 {
        self.due / self.until_queued(limits).1
    }

    /// Shards with which no bucket takes longer than so many seconds.
    pub fn shards_for(due: f64, seconds: f64, partition_writes: f64) -> u32 {
        let enough = |shards: u32| fullest_of(due, f64::from(shards)) <= seconds * partition_writes;
        let least = (due / (seconds * partition_writes)).ceil().max(1.0) as u32;
        (least..).find(|shards| enough(*shards)).expect("with a job a shard, each bucket takes a moment")
    }

    /// Copies with which processors are not what limits at `runs_per_s`.
    pub fn copies_for(runs_per_s: f64, copy_runs: f64) -> u32 {
        (runs_per_s / copy_runs).ceil().max(1.0) as u32
    }

    /// Hot keys of the index during the night: each shard has a bucket that is left and one that is arrived at.
    pub fn hot_keys(&self) -> f64 {
        2.0 * f64::from(self.shards)
    }

    /// Seconds until the last run is in its queue if keys lie where their hash puts them and DynamoDB moves none apart: the
    /// fullest partition serves several hot keys in turn.
    pub fn until_queued_unmoved(&self, limits: &Limits) -> f64 {
        let partitions = (limits.index_writes / limits.partition_writes).max(1.0);
        let shared = f64::from(most_keys_together(self.hot_keys(), partitions));
        let of_a_partition = shared * self.due / f64::from(self.shards);
        (of_a_partition / limits.partition_writes).max(self.until_queued(limits).1)
    }
}

/// What the fullest of `bins` is expected to hold when a hash puts so many jobs into them.
pub fn fullest_of(jobs: f64, bins: f64) -> f64 {
    fullest(jobs / bins, bins)
}

/// The same by the mean: it, and as many standard deviations as the largest of so many normal draws lies above it.
fn fullest(mean: f64, bins: f64) -> f64 {
    if bins < 2.0 {
        return mean;
    }
    let far = (2.0 * bins.ln()).sqrt();
    let above = far - (bins.ln().ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * far) + EULER / far;
    mean + (mean * (1.0 - 1.0 / bins)).sqrt() * above
}

/// Euler's constant, in the mean of an extreme value.
const EULER: f64 = 0.577_215_664_901_532_9;

/// So many of `keys` lie together in the fullest of `partitions`, as likely as not: more in fewer than half a partition.
pub fn most_keys_together(keys: f64, partitions: f64) -> u32 {
    let mean = keys / partitions;
    let (mut probability, mut below, mut most) = ((-mean).exp(), 0.0, 0);
    loop {
        below += probability;
        if partitions * (1.0 - below) < 0.5 {
            return most.max(mean.ceil() as u32);
        }
        most += 1;
        probability *= mean / f64::from(most);
    }
}

/// Minutes of sending for so many runs at a gateway's limit.
pub fn minutes_of_sending(runs: f64, gateway_per_s: f64) -> f64 {
    runs / gateway_per_s / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIGHT: Night = Night { due: 1e8, shards: 1_024, copies: 300, window_s: 0.0 };
    const LIMITS: Limits =
        Limits { partition_writes: 1e3, shard_runs: 2.5e3, copy_runs: 4e3, table_writes: 2e6, index_writes: 4e6 };

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.02, "{found} is not {expected}");
    }

    #[test]
    fn a_bucket_takes_a_thousand_writes_a_second_so_shards_set_the_pace() {
        let (limit, seconds) = NIGHT.until_queued(&LIMITS);
        assert_eq!(limit, Limit::Bucket);
        near(seconds, 1e8 / 1_024.0 / 1e3);
        let half = Night { shards: 512, ..NIGHT };
        near(half.until_queued(&LIMITS).1, 2.0 * seconds);
    }

    #[test]
    fn each_limit_can_be_the_first() {
        let first = |limits: Limits| NIGHT.until_queued(&limits).0;
        assert_eq!(first(Limits { shard_runs: 500.0, ..LIMITS }), Limit::Loop);
        assert_eq!(first(Limits { copy_runs: 1_000.0, ..LIMITS }), Limit::Copies);
        assert_eq!(first(Limits { table_writes: 4e4, ..LIMITS }), Limit::Table);
        assert_eq!(first(Limits { index_writes: 4e4, ..LIMITS }), Limit::Index);
        assert_eq!(Night { window_s: 3_600.0, ..NIGHT }.until_queued(&LIMITS), (Limit::Window, 3_600.0));
    }

    #[test]
    fn a_window_that_is_long_enough_leaves_no_lag() {
        assert_eq!(Night { window_s: 3_600.0, ..NIGHT }.lag_s(&LIMITS), 0.0);
        let short = Night { window_s: 30.0, ..NIGHT };
        near(short.lag_s(&LIMITS), NIGHT.until_queued(&LIMITS).1 - 30.0);
    }

    #[test]
    fn a_part_of_the_jobs_at_a_part_of_the_speed_takes_as_long() {
        let part = Night { due: NIGHT.due / 100.0, ..NIGHT };
        let scaled = LIMITS.scaled(0.01);
        for ((limit, whole), (_, part)) in
            NIGHT.seconds_by_limit(&LIMITS).into_iter().zip(part.seconds_by_limit(&scaled))
        {
            // Hashing is the less even the fewer jobs there are.
            assert!((0.99..1.15).contains(&(part / whole)) || whole == 0.0, "{limit}: {whole} {part}");
        }
    }

    #[test]
    fn the_shards_asked_for_are_enough_and_one_less_is_not() {
        let shards = Night::shards_for(1e8, 300.0, 1e3);
        let seconds = |shards| Night { shards, ..NIGHT }.until_queued(&LIMITS).1;
        assert!(seconds(shards) <= 300.0 && seconds(shards - 1) > 300.0, "{shards}");
        assert_eq!(Night::copies_for(8_001.0, 4_000.0), 3);
    }

    #[test]
    fn the_fullest_of_many_lies_a_few_deviations_above_the_mean() {
        assert_eq!(fullest_of(100.0, 1.0), 100.0);
        // The expected largest of 1,024 normal draws lies 3.25 deviations above the mean.
        near((fullest_of(1_024e4, 1_024.0) - 1e4) / 100.0, 3.25);
    }

    #[test]
    fn hot_keys_collide_where_there_is_one_partition_for_each() {
        assert_eq!(most_keys_together(1.0, 1.0), 1);
        assert!((5..=7).contains(&most_keys_together(2_048.0, 2_048.0)));
        let exact = Limits { index_writes: 2.0 * 1_024.0 * PARTITION_WRITES, ..LIMITS };
        let unmoved = NIGHT.until_queued_unmoved(&exact);
        assert!(unmoved > 4.0 * NIGHT.until_queued(&exact).1, "{unmoved}");
        // Many small keys lie more evenly than few large ones.
        let finer = Night { shards: 4_096, ..NIGHT };
        assert!(finer.until_queued_unmoved(&exact) < unmoved / 1.5);
    }

    #[test]
    fn a_gateway_takes_its_time_whatever_dispatch_does() {
        near(minutes_of_sending(480_000.0, 450.0), 1_067.0 / 60.0);
    }
}

//! A night on which very many jobs fall due in one instant, replayed second by second in virtual time.
//!
//! Jobs, decisions, buckets and shards are the real ones ([`Job::create`], [`decide`], [`Job::advance`]); what the store and
//! the processes get through in a second is [`Limits`]. A send and its advance count as one: a real one that is throttled in
//! between enqueues its run again, which the worker drops.
//!
//! A hundred million decisions are too many for a test, so a part of the jobs is replayed at the same part of all limits.
//! That is the same question: each limit is so many jobs over so many a second, and the part goes out of the fraction. What
//! does not go out is that few jobs hash less evenly than many; the paper's [`Night`] counts that in.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::dispatch::{Decision, decide};
use punctual_core::due::{DueBucket, ShardId, Shards};
use punctual_core::job::{Advanced, Job, JobKey, JobSpec, Timetable};
use punctual_core::missed::MissedRule;
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::RetryRule;
use punctual_core::scale::{INDEX_WRITES, Limits, Night, TABLE_WRITES};
use punctual_core::schedule::{Anchor, Schedule};
use punctual_core::spread::{Spread, pick};
use punctual_core::zone::Zones;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Which due buckets take only so many writes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Those that jobs leave and those that they arrive in, as DynamoDB does.
    Both,
    /// Those that jobs leave.
    Leaving,
    /// Those that jobs arrive in.
    Arriving,
    /// Neither.
    Neither,
}

impl Held {
    fn leaving(self) -> bool {
        matches!(self, Held::Both | Held::Leaving)
    }

    fn arriving(self) -> bool {
        matches!(self, Held::Both | Held::Arriving)
    }
}

/// How the keys of the index lie in its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each hot key has one to itself: what DynamoDB aims at by moving hot keys apart.
    Apart,
    /// Where their hash puts them, whatever else is there.
    Hashed,
}

/// What is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    /// The whole night.
    pub night: Night,
    /// The limits of the whole night.
    pub limits: Limits,
    /// The part of it that is replayed.
    pub part: f64,
    /// Which buckets are limited.
    pub held: Held,
    /// Where they lie.
    pub placement: Placement,
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Runs enqueued.
    pub queued: usize,
    /// Seconds from the instant until the last was.
    pub seconds: f64,
    /// The longest time from due to enqueued, in seconds.
    pub lag_s: f64,
    /// Most jobs that left one bucket in a second.
    pub busiest_leaving: u32,
    /// Most jobs that arrived in one bucket in a second.
    pub busiest_arriving: u32,
}

/// So much a second. What is left is lost, but for what a run that did not quite fit has to wait for.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    rate: f64,
    level: f64,
    at: f64,
}

/// The most writes that one run takes of one allowance.
const KEPT: f64 = 2.0;

impl Allowance {
    fn of(rate: f64) -> Self {
        Allowance::first_asked(rate, 0.0)
    }

    fn first_asked(rate: f64, second: f64) -> Self {
        Allowance { rate, level: rate, at: second }
    }

    fn has(&mut self, second: f64, amount: f64) -> bool {
        if second > self.at {
            self.level = (self.level + (second - self.at) * self.rate).min(self.rate + KEPT);
            self.at = second;
        }
        self.level >= amount - 1e-9
    }

    fn take(&mut self, amount: f64) {
        self.level -= amount;
    }
}

/// A shard's jobs that wait, the first due in front, and what its reader gets through.
struct Reader {
    waiting: VecDeque<usize>,
    speed: Allowance,
    copy: usize,
}

struct World {
    replay: Replay,
    limits: Limits,
    shards: Shards,
    zones: Zones,
    jobs: Vec<Job>,
    /// Where each lies in the table.
    partitions: Vec<usize>,
    copies: Vec<Allowance>,
    table: Vec<Allowance>,
    index: Allowance,
    places: HashMap<DueBucket, u64>,
    buckets: HashMap<u64, Allowance>,
    /// Jobs that left or arrived in this second.
    moved: HashMap<(bool, DueBucket), u32>,
}

/// The instant at which all are due.
pub fn midnight() -> DateTime<Utc> {
    "2026-12-05T00:00:00Z".parse().expect("an instant")
}

/// Replays a night.
pub fn replay(replay: Replay) -> Replayed {
    let (mut world, mut readers) = World::of(replay);
    let mut done = Replayed::default();
    let mut second = 0.0;
    while done.queued < world.jobs.len() {
        for reader in &mut readers {
            world.pass(reader, second, &mut done);
        }
        for ((is_leaving, _), count) in world.moved.drain() {
            let busiest = if is_leaving { &mut done.busiest_leaving } else { &mut done.busiest_arriving };
            *busiest = count.max(*busiest);
        }
        // Nobody is always the first to ask.
        readers.rotate_left(1);
        second += 1.0;
        assert!(second < 86_400.0, "{} of {} are queued in a day", done.queued, world.jobs.len());
    }
    done.seconds = second;
    done
}

impl World {
    fn of(replay: Replay) -> (Self, Vec<Reader>) {
        let Replay { night, limits, part, .. } = replay;
        let standard = u16::try_from(night.shards).expect("a count of shards");
        let (shards, zones) = (Shards { urgent: 1, standard }, Zones::embedded());
        let count = (night.due * part).round() as usize;
        let scaled = limits.scaled(part);
        let partitions = (limits.table_writes / limits.partition_writes).max(1.0) as usize;
        let world = Timetable { shards: &shards, zones: &zones };
        let jobs: Vec<Job> = (0..count).map(|n| job(n, night.window_s as u32, &world)).collect();
        let lies = |job: &Job| pick("table", job.spec.key.as_str(), partitions as u64) as usize;
        let mut waiting: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (n, job) in jobs.iter().enumerate() {
            waiting.entry(bucket_of(job).shard).or_default().push(n);
        }
        let readers = waiting.into_values().enumerate().map(|(n, mut waiting)| {
            waiting.sort_by_key(|n| jobs[*n].next_due_at);
            let copy = n % night.copies as usize;
            Reader { waiting: waiting.into(), speed: Allowance::of(scaled.shard_runs), copy }
        });
        let readers = readers.collect();
        let world = World {
            replay,
            limits: scaled,
            partitions: jobs.iter().map(lies).collect(),
            jobs,
            copies: vec![Allowance::of(scaled.copy_runs); night.copies as usize],
            table: vec![Allowance::of(scaled.partition_writes); partitions],
            index: Allowance::of(scaled.index_writes),
            places: HashMap::new(),
            buckets: HashMap::new(),
            moved: HashMap::new(),
            shards,
            zones,
        };
        (world, readers)
    }

    /// What one reader gets through in one second.
    fn pass(&mut self, reader: &mut Reader, second: f64, done: &mut Replayed) {
        let now = midnight() + TimeDelta::seconds(second as i64);
        if !self.table.iter_mut().any(|partition| partition.has(second, TABLE_WRITES)) {
            return;
        }
        let mut throttled = Vec::new();
        while let Some(n) = reader.waiting.front().copied() {
            let due_at = self.jobs[n].next_due_at.expect("an active job");
            let partition = self.partitions[n];
            let has_room = due_at <= now
                && reader.speed.has(second, 1.0)
                && self.copies[reader.copy].has(second, 1.0)
                && self.index.has(second, INDEX_WRITES);
            if !has_room {
                break;
            }
            if !self.table[partition].has(second, TABLE_WRITES) {
                throttled.extend(reader.waiting.pop_front());
                continue;
            }
            if !self.lets_go(n, second) {
                break;
            }
            let to = self.decided(n, now);
            if !self.moves(n, &to, second) {
                break;
            }
            reader.speed.take(1.0);
            self.copies[reader.copy].take(1.0);
            self.index.take(INDEX_WRITES);
            self.table[partition].take(TABLE_WRITES);
            self.jobs[n].advance(&to);
            reader.waiting.pop_front();
            done.queued += 1;
            // It is in the queue when its second is over.
            done.lag_s = done.lag_s.max((now - due_at).as_seconds_f64() + 1.0);
        }
        for n in throttled.into_iter().rev() {
            reader.waiting.push_front(n);
        }
    }

    /// Whether the bucket that a job sits in lets another one go in this second.
    fn lets_go(&mut self, n: usize, second: f64) -> bool {
        let place = self.place_of(bucket_of(&self.jobs[n]));
        !self.replay.held.leaving() || self.bucket(place, second).has(second, 1.0)
    }

    fn bucket(&mut self, place: u64, second: f64) -> &mut Allowance {
        let rate = self.limits.partition_writes;
        self.buckets.entry(place).or_insert_with(|| Allowance::first_asked(rate, second))
    }

    /// Where a job goes that is due: by the real decision.
    fn decided(&self, n: usize, now: DateTime<Utc>) -> Advanced {
        let (job, world) = (&self.jobs[n], Timetable { shards: &self.shards, zones: &self.zones });
        match decide(job, bucket_of(job), now, &world, "s1") {
            Decision::Fire { mut runs, .. } if runs.len() == 1 => runs.remove(0).to,
            other => panic!("{} is not fired: {other:?}", job.spec.key),
        }
    }

    /// Whether both buckets take the move in this second.
    fn moves(&mut self, n: usize, to: &Advanced, second: f64) -> bool {
        let leaving = bucket_of(&self.jobs[n]);
        let arriving = to.next.as_ref().expect("a job that goes on").bucket;
        let held = self.replay.held;
        let places = [(leaving, held.leaving()), (arriving, held.arriving())];
        let places = places.into_iter().filter(|(_, is_held)| *is_held);
        let places: Vec<u64> = places.map(|(bucket, _)| self.place_of(bucket)).collect();
        for (i, place) in places.iter().enumerate() {
            // Both sides of a move may lie in one partition.
            let amount = 1.0 + places[..i].iter().filter(|other| *other == place).count() as f64;
            if !self.bucket(*place, second).has(second, amount) {
                return false;
            }
        }
        for place in places {
            self.bucket(place, second).take(1.0);
        }
        for side in [(true, leaving), (false, arriving)] {
            *self.moved.entry(side).or_default() += 1;
        }
        true
    }

    /// The partition of the index that a bucket lies in.
    fn place_of(&mut self, bucket: DueBucket) -> u64 {
        let Replay { placement, limits, .. } = &self.replay;
        let partitions = match placement {
            Placement::Apart => u64::MAX,
            Placement::Hashed => (limits.index_writes / limits.partition_writes) as u64,
        };
        *self.places.entry(bucket).or_insert_with(|| pick("index", &bucket.to_string(), partitions))
    }
}

fn bucket_of(job: &Job) -> DueBucket {
    job.due_bucket.expect("an active job sits in a bucket")
}

fn job(n: usize, window_s: u32, world: &Timetable<'_>) -> Job {
    let customer = format!("c-{n}");
    let now = midnight() - TimeDelta::hours(1);
    let spec = JobSpec {
        key: JobKey::new("bank", &format!("{customer}/bill")).expect("a key"),
        name: None,
        schedule: Schedule::parse("cron 0 0 * * *", now).expect("a schedule"),
        anchor: Anchor::Stated,
        priority: Priority::Normal,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: (window_s > 0).then_some(Spread { key: customer, window_s }),
        missed: MissedRule::default(),
    };
    Job::create(spec, now, world, None, "t".into(), "test").expect("a sound job")
}

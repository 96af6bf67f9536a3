//! `punctual status`: who holds which shard, how far it has been read, what is due and not yet in a queue, what
//! operators said to the workers, and what those say of their circuits.
//!
//! Everything is read from the store and the queues, so it is the same from wherever it is asked. Reading it costs a few
//! read units a shard; it is for an operator's eyes, not for a monitor's.

use crate::cost::idle_shard_hour;
use crate::dispatch::DispatchSettings;
use crate::listing::{self, instant};
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};
use punctual_core::clock::{Clock, Standing};
use punctual_core::cost::{Prices, Usage};
use punctual_core::due::{Cursor, DueBucket, Layout, Minute, ShardId};
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::ports::{DueSpan, PortResult, Ports, QueueDepth};
use punctual_core::priority::Priority;
use punctual_core::rate::Shares;
use punctual_core::report::{self, CircuitState, Said};
use punctual_core::schedule::whole_second;
use punctual_core::steering::Steering;
use punctual_core::target::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod show;

pub use show::show;

/// Due jobs of one shard are counted up to this.
const MOST_COUNTED: usize = 10_000;
/// Minutes of one shard that are looked through for due jobs, the oldest first.
const MOST_MINUTES: usize = 120;
const PAGE: usize = 500;
const SHARDS_AT_ONCE: usize = 8;
/// A job that is due for less than this is on its way.
const ON_ITS_WAY: TimeDelta = TimeDelta::seconds(2);

/// What is the case at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    at: DateTime<Utc>,
    clock: Standing,
    layout: Layout,
    copies: Vec<CopyStatus>,
    shards: Vec<ShardStatus>,
    queues: BTreeMap<Priority, QueueDepth>,
    steering: Steering,
    shares: BTreeMap<Target, Shares>,
    circuits: BTreeMap<(Target, CircuitState), Said>,
}

/// One scheduler copy that is registered.
#[derive(Clone, Debug)]
struct CopyStatus {
    id: String,
    shards: usize,
}

/// One shard.
#[derive(Clone, Debug)]
struct ShardStatus {
    shard: ShardId,
    holder: Option<String>,
    wanted_by: Option<String>,
    cursor: Option<Minute>,
    due: Due,
}

/// What is due in a shard and stands where it stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Due {
    jobs: usize,
    oldest: Option<DateTime<Utc>>,
    /// There may be more than was counted.
    is_cut: bool,
}

impl Status {
    /// Reads it.
    ///
    /// # Errors
    /// The first call that failed.
    pub async fn read(ports: &Ports, layout: Layout, clock: &dyn Clock) -> PortResult<Status> {
        let leases = ports.leases.list().await?;
        // By now the store has told its time.
        let now = whole_second(clock.now());
        let by_id: BTreeMap<&LeaseId, &Lease> = leases.iter().map(|lease| (&lease.id, lease)).collect();
        let shards = layout.read.all().map(|shard| {
            let lease = by_id.get(&LeaseId::Shard(shard)).copied().cloned();
            async move {
                let cursor = lease.as_ref().and_then(|lease| lease.cursor);
                let due = due(ports, shard, Cursor::start(cursor, now), now).await?;
                let (holder, wanted_by) = lease.map_or((None, None), |lease| (lease.owner, lease.wanted_by));
                Ok(ShardStatus { shard, holder, wanted_by, cursor, due })
            }
        });
        let shards: Vec<_> = shards.collect();
        let shards: Vec<ShardStatus> = stream::iter(shards).buffered(SHARDS_AT_ONCE).try_collect().await?;
        let copies = leases.iter().filter_map(|lease| match &lease.id {
            LeaseId::Copy(id) => {
                let held = shards.iter().filter(|shard| shard.holder.as_ref() == Some(id)).count();
                Some(CopyStatus { id: id.clone(), shards: held })
            }
            LeaseId::Shard(_) | LeaseId::Zones(_) => None,
        });
        let mut queues = BTreeMap::new();
        for priority in Priority::ALL {
            queues.insert(priority, ports.queue.depth(priority).await?);
        }
        let steering = ports.control.steering().await?;
        let mut shares = BTreeMap::new();
        for target in steering.limited().into_keys() {
            let held = ports.shares.get(&target).await?;
            shares.insert(target, held);
        }
        let reports = ports.reports.list().await?;
        let circuits = report::said(&reports, clock.now());
        let (clock, copies) = (clock.standing(), copies.collect());
        Ok(Status { at: now, clock, layout, copies, shards, queues, steering, shares, circuits })
    }

    /// Whether an operator should look: a shard without a holder, runs that are late, or an open circuit. A half-open one
    /// alone is none: its target may be well, and have no run that would show it.
    pub fn needs_a_look(&self) -> bool {
        let is_open = |(_, state): &(Target, CircuitState)| *state == CircuitState::Open;
        self.shards.iter().any(|shard| shard.holder.is_none() || shard.due.jobs > 0)
            || self.circuits.keys().any(is_open)
    }

    /// How far this host's clock is ahead of the store's, if that is known.
    fn offset(&self) -> Option<TimeDelta> {
        match self.clock {
            Standing::Anchored { offset } | Standing::Off { offset } => Some(offset),
            Standing::Unanchored => None,
        }
    }

    /// How late the oldest job is that is due and not in a queue.
    fn lag(&self) -> TimeDelta {
        let oldest = self.shards.iter().filter_map(|shard| shard.due.oldest).min();
        oldest.map_or(TimeDelta::zero(), |oldest| self.at - oldest)
    }

    fn due(&self) -> Due {
        let all = self.shards.iter().map(|shard| shard.due);
        all.fold(Due::default(), |sum, due| Due { jobs: sum.jobs + due.jobs, is_cut: sum.is_cut || due.is_cut, ..sum })
    }

    /// For people.
    pub fn table(&self) -> String {
        show(&self.json())
    }

    /// For programs: one object.
    pub fn json(&self) -> Value {
        let age_s = |since: DateTime<Utc>| (self.at - since).num_seconds();
        let shards = self.shards.iter().map(|shard| {
            json!({
                "shard": shard.shard.to_string(), "holder": shard.holder, "wanted_by": shard.wanted_by,
                "cursor": shard.cursor.map(|cursor| instant(cursor.start())),
                "cursor_age_s": shard.cursor.map(|cursor| age_s(cursor.start())),
                "due": shard.due.jobs, "due_is_cut": shard.due.is_cut, "lag_s": shard.due.oldest.map_or(0, age_s),
            })
        });
        let copies = self
            .copies
            .iter()
            .map(|copy| json!({"id": copy.id, "version": name_and_version(&copy.id).1, "shards": copy.shards}));
        let queues: BTreeMap<&str, Value> = self
            .queues
            .iter()
            .map(|(priority, depth)| {
                let QueueDepth { visible, in_flight, delayed } = depth;
                (priority.as_str(), json!({"visible": visible, "in_flight": in_flight, "delayed": delayed}))
            })
            .collect();
        let (read, write) = (self.layout.read, self.layout.write);
        let (idle, dollars) = idle_cost();
        json!({
            "at": instant(self.at), "clock_offset_s": self.offset().map(|offset| offset.as_seconds_f64()), "due": self.due().jobs, "due_is_cut": self.due().is_cut,
            "lag_s": self.lag().num_seconds(), "copies": copies.collect::<Vec<_>>(), "queues": queues,
            "idle_shard_hour": {"read_units": idle.read_units, "write_units": idle.write_units, "dollars": dollars},
            "limits": listing::shares_json(&self.steering, &self.shares),
            "circuits": listing::circuits_json(&self.circuits, self.at),
            "holds": self.steering.holds.iter().map(listing::hold_json).collect::<Vec<_>>(),
            "shards_read": read, "shards_written": write, "shards": shards.collect::<Vec<_>>(),
        })
    }
}

/// What one shard without work takes in an hour, by the default times, and dollars for it.
fn idle_cost() -> (Usage, f64) {
    let settings = DispatchSettings::default();
    let idle = idle_shard_hour(settings.tick, settings.leases.renew_every);
    (idle, Prices::default().dollars(&idle))
}

/// A copy's id says its version behind a `+`.
fn name_and_version(id: &str) -> (&str, &str) {
    id.split_once('+').unwrap_or((id, ""))
}

/// Counts what is due in the minutes from the cursor on.
async fn due(ports: &Ports, shard: ShardId, cursor: Cursor, now: DateTime<Utc>) -> PortResult<Due> {
    let mut due = Due::default();
    for (n, minute) in cursor.minutes(now).enumerate() {
        if n >= MOST_MINUTES || due.jobs >= MOST_COUNTED {
            due.is_cut = true;
            break;
        }
        let (bucket, mut after) = (DueBucket { minute, shard }, None);
        loop {
            let page = ports.due.page(bucket, DueSpan::up_to(now - ON_ITS_WAY), after, PAGE).await?;
            due.jobs += page.entries.len();
            due.oldest = page.entries.iter().map(|entry| entry.due_at).chain(due.oldest).min();
            after = page.next;
            if after.is_none() || due.jobs >= MOST_COUNTED {
                due.is_cut |= after.is_some();
                break;
            }
        }
    }
    Ok(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::create_job;
    use punctual_core::clock::TokioClock;
    use punctual_core::due::{SETTLE, Shards};
    use punctual_core::job::{JobKey, JobSpec, Timetable};
    use punctual_core::memory::World;
    use punctual_core::missed::MissedRule;
    use punctual_core::payload::Payload;
    use punctual_core::rate::Holder;
    use punctual_core::retry::RetryRule;
    use punctual_core::schedule::{Anchor, Schedule};
    use punctual_core::steering::{Hold, Scope};
    use punctual_core::zone::Zones;
    use std::sync::Arc;
    use std::time::Duration;

    fn spec(id: &str, now: DateTime<Utc>) -> JobSpec {
        JobSpec {
            key: JobKey::new("bank", id).unwrap(),
            name: None,
            schedule: Schedule::parse("every 1h", now).unwrap(),
            anchor: Anchor::Implied,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill is due"),
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_and_who_holds_what_is_seen_from_the_store_alone() {
        let clock = Arc::new(TokioClock::new(DateTime::from_timestamp(1_790_000_000, 0).unwrap()));
        let world = World::new(clock.clone());
        let (ports, shards) = (world.ports(), Shards { urgent: 1, standard: 2 });
        ports.control.init_shards(shards).await.unwrap();
        for shard in shards.all() {
            ports.leases.init(&LeaseId::Shard(shard), Minute::of(clock.now() - SETTLE)).await.unwrap();
        }
        let zones = Zones::embedded();
        for n in 0..7 {
            let spec = spec(&format!("c-{n}/bill"), clock.now());
            create_job(&*ports.jobs, &*clock, &Timetable { shards: &shards, zones: &zones }, spec, "t").await.unwrap();
        }
        ports.leases.take(&LeaseId::Copy("s1-ab+0.1.0".into()), None, "s1-ab+0.1.0").await.unwrap();
        let free = ports.leases.list().await.unwrap().into_iter().find(|l| l.id.to_string() == "shard/0001").unwrap();
        ports.leases.take(&free.id, Some(&free), "s1-ab+0.1.0").await.unwrap();

        let hold = Hold { scope: Scope::All, by: "ann".into(), why: "a rehearsal".into(), since: clock.now() };
        ports.control.change_steering(0, &Steering::default().with_hold(hold).unwrap()).await.unwrap();
        let of_worker = [("w1-cd".to_owned(), Holder { shares: 20, beat: 1 })];
        let shares = Shares { revision: 1, holders: of_worker.into() };
        ports.shares.change(&Target::sms(), 0, &shares).await.unwrap();

        let early = Status::read(&ports, Layout::of(shards), &*clock).await.unwrap();
        assert_eq!((early.due().jobs, early.lag()), (0, TimeDelta::zero()));
        assert!(early.needs_a_look(), "two shards have no holder");
        tokio::time::sleep(Duration::from_secs(3_660)).await;
        let late = Status::read(&ports, Layout::of(shards), &*clock).await.unwrap();
        assert_eq!((late.due().jobs, late.lag()), (7, TimeDelta::seconds(60)));
        let json = late.json();
        assert_eq!((&json["due"], &json["lag_s"]), (&json!(7), &json!(60)));
        assert_eq!(json["copies"], json!([{"id": "s1-ab+0.1.0", "version": "0.1.0", "shards": 1}]));
        assert_eq!(json["shards"][2]["holder"], json!("s1-ab+0.1.0"));
        assert_eq!(json["shards"][2]["cursor_age_s"], json!(4_020 + 20), "a minute's start");
        let table = late.table();
        assert!(table.contains("7 due and not in a queue, the oldest for 60 s"), "{table}");
        assert!(table.contains("nobody") && table.contains("s1-ab"), "{table}");
        let limits = json!([{"target": "sms", "per_second": 450, "shares": {"w1-cd": 20}, "shares_free": 40}]);
        assert_eq!((&json["limits"], &json["holds"][0]["why"]), (&limits, &json!("a rehearsal")));
        for expected in ["everything", "ann", "a rehearsal", "w1-cd", "150.0"] {
            assert!(table.contains(expected), "{expected} is missing: {table}");
        }
    }
}

//! Scheduler copies that die or stand still, as the system does it: SIGKILL, SIGSTOP. A worker and a gateway that sends
//! every repeat show what reaches the customer.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use punctual_core::clock::Clock;
use punctual_core::due::{ShardId, Shards};
use punctual_core::memory::{Fault, FaultPlan, Point};
use punctual_core::run::RunId;
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, Process, eventually, name_of};
use punctual_tests::{Town, at, reminder, run_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const LEASE: Duration = Duration::from_secs(3);
/// So much later than the lease time a dead copy's shards are held by others.
const MOVES_WITHIN: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
const JOBS: usize = 400;
/// Seconds over which the jobs are due.
const SPAN: usize = 20;

/// Three copies with short leases, a worker, and jobs that are due for twenty seconds, from soon on.
struct UnderLoad {
    local: Local,
    copies: Vec<Process>,
    worker: Process,
    from: DateTime<Utc>,
}

impl UnderLoad {
    async fn start() -> anyhow::Result<Self> {
        let gateway = GatewayConfig { drops_repeats: false, ..GatewayConfig::default() };
        let local = Local::start(PROGRAM, gateway, &[]).await?;
        local.punctual(&["setup"]).await?;
        let options = ["--lease-s", "3", "--renew-s", "1", "--margin-s", "1", "--look-ahead-s", "5"];
        let start = |name| local.start_scheduler(name, &options);
        let copies = ["s1", "s2", "s3"].map(start).into_iter().collect::<Result<Vec<_>, _>>()?;
        let worker = local.start_worker("w1")?;
        local.wait_for_even_shards(3).await?;
        let from = whole_second(local.now()) + TimeDelta::seconds(8);
        let due = |n: usize| {
            let due_at = from + TimeDelta::seconds((n % SPAN) as i64);
            reminder(
                &format!("c-{n}/bill"),
                &format!("every 24h from {}", due_at.to_rfc3339_opts(SecondsFormat::Secs, true)),
            )
        };
        local.load((0..JOBS).map(due), local.now(), &Zones::embedded()).await?;
        Ok(UnderLoad { local, copies, worker, from })
    }

    /// Waits until a quarter is enqueued; returns the shards of the first copy.
    async fn shards_in_the_middle(&self) -> anyhow::Result<BTreeSet<ShardId>> {
        eventually("a quarter is enqueued", PATIENCE, async || Ok(self.local.ledger.len() >= JOBS / 4)).await?;
        let leases = self.local.leases().await?;
        let is_first = |owner: Option<&str>| owner.map(name_of) == Some("s1");
        Ok(leases.into_iter().filter(|(_, lease)| is_first(lease.owner.as_deref())).map(|(shard, _)| shard).collect())
    }

    async fn wait_until_others_hold(&self, shards: &BTreeSet<ShardId>) -> anyhow::Result<()> {
        eventually("others hold the shards", LEASE + MOVES_WITHIN, async || {
            let leases = self.local.leases().await?;
            let owner = |shard| leases.get(shard).and_then(|lease| lease.owner.as_deref());
            Ok(shards.iter().all(|shard| owner(shard).is_some_and(|owner| name_of(owner) != "s1")))
        })
        .await
    }

    /// Waits for the end of all runs; each has reached the customer once.
    async fn all_is_delivered_once(self) -> anyhow::Result<()> {
        let UnderLoad { local, copies, worker, from } = self;
        let distinct = || local.ledger.since(0).iter().map(|sent| sent.message.run_id()).collect::<BTreeSet<RunId>>();
        eventually("every run is enqueued", PATIENCE, async || Ok(distinct().len() >= JOBS)).await?;
        local.wait_until_nothing_is_due(from, PATIENCE).await?;
        local.wait_until_queues_are_empty(PATIENCE).await?;
        for process in copies {
            process.stop().await?;
        }
        worker.stop().await?;
        let stats = local.stack.gateway().stats();
        println!("{} messages for {JOBS} runs", local.ledger.len());
        assert_eq!(distinct().len(), JOBS, "a repeat has its run's id");
        assert_eq!((stats.accepted, stats.sent_twice, stats.repeats), (JOBS as u64, 0, 0));
        assert_eq!(local.ledger.dead_letters(), 0);
        local.stack.stop().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shards_of_a_killed_copy_are_soon_held_by_others_and_nothing_is_lost() {
    let mut town = UnderLoad::start().await.expect("three copies and a worker are up");
    let shards = town.shards_in_the_middle().await.expect("work is under way");
    assert!(shards.len() >= 8, "{shards:?}");
    town.copies.remove(0).kill().await.expect("it was running");
    town.wait_until_others_hold(&shards).await.expect("the shards move");
    town.all_is_delivered_once().await.expect("everything comes to its end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_stands_still_for_three_lease_times_loses_nothing_and_takes_its_share_again() {
    let town = UnderLoad::start().await.expect("three copies and a worker are up");
    let shards = town.shards_in_the_middle().await.expect("work is under way");
    let clock = town.local.aws.clock.clone();
    town.copies[0].freeze().expect("it was running");
    let thaw_at = clock.monotonic() + 3 * LEASE;
    town.wait_until_others_hold(&shards).await.expect("the shards move");
    let is_over = eventually("three lease times are over", PATIENCE, async || Ok(clock.monotonic() >= thaw_at)).await;
    is_over.expect("time goes by");
    town.copies[0].thaw().expect("it stands still");
    town.local.wait_for_even_shards(3).await.expect("it counts again");
    let errors: Vec<String> = town.copies.iter().flat_map(Process::errors).collect();
    assert_eq!(errors, [""; 0]);
    town.all_is_delivered_once().await.expect("everything comes to its end");
}

// The same at its worst, by the default times: what the copy was about to do when it was stopped happens when it goes on.
#[tokio::test(start_paused = true)]
async fn what_a_copy_does_after_it_stood_still_is_caught_by_workers() {
    let plan = FaultPlan::default();
    let mut town = Town::with(Shards { urgent: 0, standard: 6 }, plan.clone(), Arc::new(|ports| ports)).await;
    let ids: Vec<(String, i64)> = (0..90).map(|n| (format!("c-{n}/bill"), 60 + n % 45)).collect();
    for (id, due) in &ids {
        town.add(reminder(id, &format!("every 24h from {}", at(*due).to_rfc3339()))).await;
    }
    ["s1", "s2"].iter().for_each(|name| town.start_scheduler(name));
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(70)).await;
    let lasts = Duration::from_secs(30);
    let calls: BTreeSet<&str> = plan.calls().iter().filter(|call| call.process == "s1").map(|call| call.name).collect();
    for call in calls {
        plan.add(Point::EveryOf("s1".into(), call), Fault::Delay(lasts));
    }
    tokio::time::sleep(lasts).await;
    plan.clear();
    let runs: Vec<RunId> = ids.iter().map(|(id, due)| run_of(id, at(*due))).collect();
    let is_sent = |world: &punctual_core::memory::World| runs.iter().all(|run| world.sends_of(run) > 0);
    assert!(town.until(300, |world| is_sent(world) && world.waiting().is_empty()).await, "something is lost");
    tokio::time::sleep(2 * lasts).await;
    town.stop().await;
    assert!(runs.iter().all(|run| town.world.sends_of(run) == 1), "something is sent twice");
    assert!(town.world.waiting().is_empty());
    let repeats = town.world.enqueued().len() - runs.len();
    assert!(repeats > 0, "it was stopped between a look at its lease and a send");
}

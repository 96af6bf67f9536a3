//! Rate shares under lease: what the gateway sees of several workers, in memory and in virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::lease::LeaseTimes;
use punctual_core::memory::{Fault, FaultPlan, Faults, Point, World};
use punctual_core::process::process_id;
use punctual_core::rate::SHARES;
use punctual_core::run::RunStatus;
use punctual_core::target::Target;
use punctual_tests::watch::receives;
use punctual_tests::{Town, at, reminder, run_of};
use punctual_worker::service::{self as worker, Equipment};
use punctual_worker::settings::WorkSettings;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const S: fn(u64) -> Duration = Duration::from_secs;

/// A town in which so many runs wait in the queue, with a gateway that takes its time.
async fn town_with(runs: usize, plan: &FaultPlan) -> Town {
    let town = Town::with(ONE_SHARD, plan.clone(), Arc::new(|ports| ports)).await;
    fill(&town, 0..runs).await;
    town
}

async fn fill(town: &Town, runs: Range<usize>) {
    tokio::time::sleep(S(DUE_AT as u64)).await;
    town.world.set_gateway_latency(Duration::from_millis(50));
    town.world.drop_repeats();
    for n in runs {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
}

/// A worker whose process can be frozen and killed.
struct Worker {
    faults: Faults,
    task: JoinHandle<()>,
}

impl Worker {
    fn start(town: &Town, name: &str, settings: WorkSettings) -> Self {
        let faults = Faults::new(&town.plan, name);
        let (ports, gateway) = (faults.wrap(town.world.ports()), faults.wrap_gateway(town.world.gateway()));
        let (clock, zones, id, process) = (town.clock.clone(), town.zones.clone(), process_id(name), faults.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                _ = worker::run(Equipment { ports, gateway, clock, zones, settings, id }, pending()) => {}
                () = process.crashed() => {}
            }
        });
        Worker { faults, task }
    }

    fn start_many(town: &Town, count: usize) -> Vec<Self> {
        (1..=count).map(|n| Worker::start(town, &format!("w{n}"), town.work.clone())).collect()
    }

    fn kill(&self) {
        self.faults.crash();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// When the gateway was called.
fn calls(world: &World) -> Vec<DateTime<Utc>> {
    let mut calls: Vec<_> = world.sends().into_iter().map(|send| send.at).collect();
    calls.sort();
    calls
}

/// The most of these instants within any second.
fn most_in_a_second(calls: &[DateTime<Utc>]) -> usize {
    let within = |i: usize| calls[i..].partition_point(|call| *call < calls[i] + TimeDelta::seconds(1));
    (0..calls.len()).map(within).max().unwrap_or(0)
}

/// How many calls there were from `from` to `until`, in seconds of the town.
fn between(calls: &[DateTime<Utc>], from: DateTime<Utc>, until: DateTime<Utc>) -> usize {
    calls.iter().filter(|call| **call >= from && **call < until).count()
}

/// Fails if the gateway saw more than the limit and a twentieth of it, and so many calls that were in flight.
fn assert_within(calls: &[DateTime<Utc>], limit: usize, in_flight: usize) {
    let most = most_in_a_second(calls);
    println!("{} calls, {most} in the busiest second", calls.len());
    assert!(most <= limit + limit / 20 + in_flight, "{most} in one second");
}

#[tokio::test(start_paused = true)]
async fn five_workers_never_exceed_the_limit_not_even_in_the_first_second_and_use_nearly_all_of_it() {
    let town = town_with(12_000, &FaultPlan::default()).await;
    let began = town.clock.now();
    let _workers = Worker::start_many(&town, 5);
    tokio::time::sleep(S(25)).await;
    let calls = calls(&town.world);
    assert_within(&calls, 450, 0);
    let first = between(&calls, began, began + TimeDelta::seconds(1));
    assert!(first <= 450, "{first} in the first second");
    // The shares are even after a few seconds.
    let used = between(&calls, began + TimeDelta::seconds(5), began + TimeDelta::seconds(25));
    println!("{used} of 9000 in twenty seconds");
    assert!(used * 1_000 >= 9_000 * 985, "{used} of 9000");
    let shares = town.world.shares(&Target::sms());
    assert!(
        shares.holders.len() == 5 && shares.holders.values().all(|holder| holder.shares == SHARES / 5),
        "{shares:?}"
    );
}

/// A limiter lets one go at once that waited for nothing: up to twenty of them stay within the twentieth.
#[tokio::test(start_paused = true)]
async fn idle_workers_send_at_most_a_call_more_each_in_the_first_second_of_their_work() {
    for (count, bound) in [(5, 472), (20, 472), (60, 510)] {
        // A receive takes its time, or the first worker would have them all.
        let plan = FaultPlan::one(Point::Every("queue.receive"), Fault::Delay(Duration::from_millis(5)));
        let town = Town::with(ONE_SHARD, plan, Arc::new(|ports| ports)).await;
        let _workers = Worker::start_many(&town, count);
        // They are idle until all of them have their part.
        tokio::time::sleep(S(120)).await;
        let shares = town.world.shares(&Target::sms());
        assert_eq!(shares.holders.len(), count, "{shares:?}");
        fill(&town, 0..3_000).await;
        tokio::time::sleep(S(10)).await;
        let calls = calls(&town.world);
        let most = most_in_a_second(&calls);
        println!("{count} workers: {} calls, {most} in the busiest second", calls.len());
        assert!(most > 400 && most <= bound, "{count} workers: {most} in one second");
    }
}

#[tokio::test(start_paused = true)]
async fn the_shares_of_killed_workers_are_used_by_the_rest_within_the_lease_time_and_two_seconds() {
    let town = town_with(9_000, &FaultPlan::default()).await;
    town.set_sms_limit(200).await;
    let workers = Worker::start_many(&town, 5);
    tokio::time::sleep(S(10)).await;
    workers[..2].iter().for_each(Worker::kill);
    let killed_at = town.clock.now();
    tokio::time::sleep(S(12)).await;
    let taken_over_at = town.clock.now();
    tokio::time::sleep(S(10)).await;
    let calls = calls(&town.world);
    assert_within(&calls, 200, 0);
    let alone = between(&calls, killed_at + TimeDelta::seconds(1), killed_at + TimeDelta::seconds(6));
    assert!((580..=602).contains(&alone), "three fifths for as long as nobody knows: {alone}");
    let used = between(&calls, taken_over_at, taken_over_at + TimeDelta::seconds(10));
    assert!(used * 1_000 >= 2_000 * 985, "{used} of 2000");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_worker_whose_shares_were_taken_over_sends_no_more_than_was_in_flight_when_it_goes_on() {
    let town = town_with(12_000, &FaultPlan::default()).await;
    town.set_sms_limit(200).await;
    let workers = Worker::start_many(&town, 3);
    tokio::time::sleep(S(10)).await;
    workers[0].faults.freeze();
    let frozen_at = town.clock.now();
    tokio::time::sleep(S(14)).await;
    let holders = town.world.shares(&Target::sms()).holders;
    assert!(holders.len() == 2 && holders.values().all(|holder| holder.shares == SHARES / 2), "{holders:?}");
    tokio::time::sleep(S(6)).await;
    workers[0].faults.thaw();
    let thawed_at = town.clock.now();
    tokio::time::sleep(S(15)).await;
    let calls = calls(&town.world);
    assert_within(&calls, 200, town.work.slots.all);
    let thawed: Vec<_> = calls.iter().filter(|call| **call >= thawed_at + TimeDelta::seconds(1)).copied().collect();
    assert_within(&thawed, 200, 0);
    let frozen = between(&calls, frozen_at + TimeDelta::seconds(12), thawed_at);
    assert!(frozen * 1_000 >= 1_600 * 985, "the others use its part: {frozen} of 1600");
    assert_eq!(town.world.shares(&Target::sms()).holders.len(), 3, "it has its part again");
}

/// A worker that cannot reach the shares any more, while two others take its part over; returns what the gateway saw.
async fn cut_off(times: LeaseTimes) -> Vec<DateTime<Utc>> {
    let plan = FaultPlan::default();
    let town = town_with(8_000, &plan).await;
    town.set_sms_limit(200).await;
    let settings = WorkSettings { share_leases: times, ..town.work.clone() };
    let _cut_off = Worker::start(&town, "w1", settings);
    let _others = [Worker::start(&town, "w2", town.work.clone()), Worker::start(&town, "w3", town.work.clone())];
    tokio::time::sleep(S(8)).await;
    for call in ["shares.get", "shares.beat", "shares.change"] {
        plan.add(Point::EveryOf("w1".into(), call), Fault::FailBefore(PortError::Temporary("injected".into())));
    }
    tokio::time::sleep(S(25)).await;
    calls(&town.world)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_renew_its_shares_stops_before_others_use_them() {
    assert_within(&cut_off(LeaseTimes::default()).await, 200, 0);
}

// The control.
#[tokio::test(start_paused = true)]
async fn without_the_end_of_trust_a_worker_that_cannot_renew_its_shares_breaks_the_limit() {
    let forever = LeaseTimes { lease: S(3_600), ..LeaseTimes::default() };
    let most = most_in_a_second(&cut_off(forever).await);
    assert!(most > 250, "{most} in one second: the guard does nothing");
}

#[tokio::test(start_paused = true)]
async fn runs_that_stand_at_the_door_when_trust_ends_are_not_called_nor_counted_and_run_once_later() {
    const RUNS: usize = 700;
    let plan = FaultPlan::default();
    let town = town_with(RUNS, &plan).await;
    town.set_sms_limit(60).await;
    let _worker = Worker::start(&town, "w1", town.work.clone());
    tokio::time::sleep(S(8)).await;
    for call in ["shares.get", "shares.beat", "shares.change"] {
        plan.add(Point::Every(call), Fault::FailBefore(PortError::Temporary("injected".into())));
    }
    // The store takes so long to begin what is let in that the last of it comes to the door without a trusted share.
    plan.add(Point::Every("runs.put"), Fault::Delay(S(4)));
    let cut_off_at = town.clock.now();
    tokio::time::sleep(S(30)).await;
    let trusted_until = cut_off_at + TimeDelta::from_std(LeaseTimes::default().trusted_for()).expect("a short time");
    let sent = calls(&town.world);
    assert!(sent.iter().all(|call| *call <= trusted_until), "called at {:?}", sent.last());
    assert!(sent.len() < RUNS && town.world.row(&run_of("c-0/bill", at(DUE_AT))).is_some());
    let rows = town.world.rows();
    let given_up: Vec<_> = rows.values().filter(|row| row.status == RunStatus::Retrying).collect();
    println!("{} sent, {} given up at the door", sent.len(), given_up.len());
    assert!(!given_up.is_empty(), "nobody stood at the door");
    assert!(given_up.iter().all(|row| (row.attempt, row.attempts.len()) == (0, 0)), "{given_up:?}");

    plan.clear();
    let is_done =
        |world: &World| world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count() == RUNS;
    assert!(town.until(120, is_done).await, "{} sent", town.world.sends().len());
    assert!(town.world.rows().values().all(|row| row.attempt == 1), "an attempt that was not made was counted");
    assert_eq!(town.world.sends().len(), RUNS);
    assert_within(&calls(&town.world), 60, 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_set_while_workers_run_is_in_force_within_ten_seconds_and_never_above_the_larger_one() {
    let town = town_with(14_000, &FaultPlan::default()).await;
    let _workers = Worker::start_many(&town, 3);
    tokio::time::sleep(S(10)).await;
    for (limit, larger) in [(100, 450), (300, 300)] {
        town.set_sms_limit(limit).await;
        let set_at = town.clock.now();
        tokio::time::sleep(S(20)).await;
        let calls = calls(&town.world);
        let meanwhile: Vec<_> = calls.iter().filter(|call| **call >= set_at).copied().collect();
        assert_within(&meanwhile, larger, 0);
        let later: Vec<_> = calls.iter().filter(|call| **call >= set_at + TimeDelta::seconds(10)).copied().collect();
        assert_within(&later, limit as usize, 0);
        assert!(later.len() * 1_000 >= limit as usize * 10 * 985, "{} of {}", later.len(), limit * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_in_order_leaves_its_shares_to_others_at_once() {
    let town = town_with(6_000, &FaultPlan::default()).await;
    town.set_sms_limit(200).await;
    let leaving = town.start_stoppable_worker("w1");
    let _other = Worker::start(&town, "w2", town.work.clone());
    tokio::time::sleep(S(8)).await;
    leaving.tell().await.expect("it stops in order");
    let left_at = town.clock.now();
    assert_eq!(town.world.shares(&Target::sms()).holders.len(), 1);
    tokio::time::sleep(S(7)).await;
    let used = between(&calls(&town.world), left_at + TimeDelta::seconds(2), left_at + TimeDelta::seconds(7));
    assert!(used * 1_000 >= 1_000 * 985, "{used} of 1000");
    assert_within(&calls(&town.world), 200, 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_for_longer_than_its_visibility_keeps_its_lease() {
    let (change, received) = receives();
    let mut town = Town::with(ONE_SHARD, FaultPlan::default(), change).await;
    town.set_sms_limit(20).await;
    // What is in hand is two seconds of work, and a message is visible again after one.
    (town.work.visibility, town.work.heartbeat, town.work.trust) = (S(1), S(1) / 4, S(1) * 9 / 10);
    town.work.poll = S(1) / 2;
    fill(&town, 0..1).await;
    town.start_worker("w");
    let done = |world: &World| world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count();
    assert!(town.until(10, |world| done(world) == 1).await);
    fill(&town, 1..301).await;
    assert!(town.until(20, |world| done(world) == 301).await, "{} calls", town.world.sends().len());
    assert!(received.all().iter().all(|delivery| delivery.receive_count == 1));
    assert_eq!((received.all().len(), town.world.sends().len()), (301, 301));
    assert_within(&calls(&town.world), 20, 0);
    town.stop().await;
}

/// Lost answers and late writes of every call about shares, one kind after the other.
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_with_the_shares_the_limit_holds_and_they_come_to_rest() {
    let plan = FaultPlan::default();
    let town = town_with(16_000, &plan).await;
    town.set_sms_limit(200).await;
    let _workers = Worker::start_many(&town, 3);
    for call in ["shares.get", "shares.beat", "shares.change"] {
        for fault in [Fault::LoseAnswer, Fault::LandLate(S(5)), Fault::Delay(S(4))] {
            for name in ["w1", "w2"] {
                (0..3).for_each(|_| plan.add(Point::NextOf(name.into(), call), fault.clone()));
            }
            tokio::time::sleep(S(7)).await;
        }
    }
    plan.clear();
    tokio::time::sleep(S(15)).await;
    assert_within(&calls(&town.world), 200, 0);
    let shares = town.world.shares(&Target::sms());
    assert!(
        shares.holders.len() == 3 && shares.holders.values().all(|holder| holder.shares == SHARES / 3),
        "{shares:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_changes_is_asked_once_a_second_and_no_more() {
    let plan = FaultPlan::default();
    let town = town_with(500, &plan).await;
    let workers = Worker::start_many(&town, 2);
    tokio::time::sleep(S(8)).await;
    plan.add(Point::Every("shares.change"), Fault::FailBefore(PortError::Throttled("injected".into())));
    workers[1].kill();
    tokio::time::sleep(S(12)).await;
    let before = plan.calls().len();
    tokio::time::sleep(S(30)).await;
    let made = plan.calls()[before..].iter().filter(|call| call.name.starts_with("shares.")).count();
    // Each second a look or a beat, and behind each a change.
    assert!((50..=70).contains(&made), "{made} calls");
}

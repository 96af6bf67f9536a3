//! What schedulers and workers do when they are told to stop, in memory and in virtual time.

use punctual_core::due::Shards;
use punctual_core::memory::{Fault, FaultPlan, Point, World};
use punctual_core::run::{RunId, RunStatus};
use punctual_tests::{Town, at, reminder};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";

/// A town with this many messages in the queue, each for a run that is due.
async fn town_with_messages(shards: Shards, messages: usize) -> Town {
    let town = Town::with(shards, FaultPlan::default(), Arc::new(|ports| ports)).await;
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    for n in 0..messages {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    town
}

fn runs_with(world: &World, status: RunStatus) -> BTreeSet<RunId> {
    world.rows().into_values().filter(|row| row.status == status).map(|row| row.id).collect()
}

fn waiting_runs(world: &World) -> BTreeSet<RunId> {
    world.waiting().into_iter().filter_map(|w| w.message.map(|m| m.run_id())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_stops_soon_however_slow_the_store_is() {
    let plan = FaultPlan::one(Point::Every("leases.release"), Fault::Delay(Duration::from_secs(8)));
    let shards = Shards { urgent: 8, standard: 24 };
    let town = Town::with(shards, plan.clone(), Arc::new(|ports| ports)).await;
    let scheduler = town.start_stoppable_scheduler("s");
    let is_held = |world: &World| world.leases().iter().filter(|lease| lease.owner.is_some()).count() == 32 + 1;
    assert!(town.until(20, is_held).await);
    let told_at = town.clock.monotonic();
    let ended_at = scheduler.tell().await.expect("it ends in order");
    assert!(plan.calls().iter().any(|call| call.name == "leases.release"), "it does give its shards back");
    assert!(ended_at - told_at <= Duration::from_secs(10), "it took {:?}", ended_at - told_at);
}

/// 60 messages for 20 slots: 20 in a call of three seconds, 40 in hand.
async fn stop_with_calls_under_way(prefetch: usize) {
    let mut town = town_with_messages(Shards { urgent: 0, standard: 1 }, 60).await;
    (town.work.slots.urgent_only, town.work.prefetch) = (0, prefetch);
    town.world.set_gateway_latency(Duration::from_secs(3));
    let worker = town.start_stoppable_worker("w");
    let is_busy =
        |world: &World| world.sends().len() == 20 && world.waiting().iter().all(|message| message.receive_count == 1);
    assert!(town.until(2, is_busy).await, "{} calls", town.world.sends().len());
    let begun = runs_with(&town.world, RunStatus::Running);
    assert_eq!(begun.len(), 20);

    let told_at = town.clock.monotonic();
    let ended = worker.tell();
    let unstarted_are_visible = |world: &World| {
        let waiting = world.waiting();
        let mut unstarted = waiting.iter().filter(|w| w.message.as_ref().is_some_and(|m| !begun.contains(&m.run_id())));
        unstarted.all(|w| w.hidden_for.is_zero())
    };
    assert!(town.until(1, unstarted_are_visible).await, "{:?}", town.world.waiting());
    assert_eq!(waiting_runs(&town.world).len(), 60, "nothing is deleted before it is recorded");
    assert!(runs_with(&town.world, RunStatus::Succeeded).is_empty(), "the calls are still under way");

    let ended_at = ended.await.expect("it ends in order");
    assert!(ended_at - told_at <= Duration::from_secs(10), "it took {:?}", ended_at - told_at);
    assert_eq!(runs_with(&town.world, RunStatus::Succeeded), begun, "the calls under way were recorded");
    assert_eq!(town.world.sends().len(), 20, "nothing was started after the signal");
    assert_eq!(town.world.rows().len(), 20);
    let waiting = waiting_runs(&town.world);
    assert!(waiting.is_disjoint(&begun) && waiting.len() == 40, "deleted is what was recorded, and nothing else");
    assert!(unstarted_are_visible(&town.world));
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_stop_ends_its_calls_and_gives_the_rest_back_at_once() {
    stop_with_calls_under_way(60).await;
}

#[tokio::test(start_paused = true)]
async fn so_does_one_that_is_waiting_for_more() {
    stop_with_calls_under_way(100).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_outlive_the_stop_are_taken_over_later() {
    const CALLS: usize = 20;
    let mut town = town_with_messages(Shards { urgent: 0, standard: 1 }, CALLS).await;
    // The queue is slow too: what is left to give back must not make the stop longer.
    town.plan.add(Point::Every("queue.extend"), Fault::Delay(Duration::from_secs(1)));
    town.world.set_gateway_latency(Duration::from_secs(100));
    town.work.slots.urgent_only = 0;
    (town.work.attempt_timeout, town.work.row_lease) = (Duration::from_secs(300), Duration::from_secs(305));
    let worker = town.start_stoppable_worker("w1");
    assert!(town.until(5, |world| world.sends().len() == CALLS).await);
    let told_at = town.clock.monotonic();
    let ended_at = worker.tell().await.expect("it ends in order");
    let stop = town.work.stop;
    assert!(ended_at - told_at <= stop + Duration::from_secs(5), "it took {:?}", ended_at - told_at);
    assert!(ended_at - told_at >= stop - Duration::from_secs(1), "the calls were given their time");
    assert_eq!(runs_with(&town.world, RunStatus::Running).len(), CALLS);
    let waiting = town.world.waiting();
    assert!(waiting.len() == CALLS && waiting.iter().all(|w| w.hidden_for <= town.work.visibility), "{waiting:?}");

    town.world.set_gateway_latency(Duration::ZERO);
    town.start_worker("w2");
    let is_done = |world: &World| runs_with(world, RunStatus::Succeeded).len() == CALLS && world.waiting().is_empty();
    assert!(town.until(1_200, is_done).await, "{:?}", town.world.rows());
    for row in town.world.rows().into_values() {
        assert!(row.attempt == 2 && row.attempts[1].worker.starts_with("w2"), "{row:?}");
    }
}

//! A crash, a lost answer, a refusal or a delay at every call that dispatch and work make: the run is delivered, its row
//! ends `succeeded`, and the job has advanced exactly once.

use punctual_core::due::Shards;
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::retry::WhenUnknown;
use punctual_core::run::{RunId, RunStatus};
use punctual_tests::{Town, at, reminder, run_of};
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;

fn the_run() -> RunId {
    run_of("c-1/bill", at(DUE_AT))
}

/// One job, one scheduler, one worker, until all is done.
async fn play(plan: FaultPlan, gateway_drops_repeats: bool) -> (World, bool) {
    let shards = Shards { urgent: 0, standard: 1 };
    let mut town = Town::with(shards, plan, Arc::new(|ports| ports)).await;
    if gateway_drops_repeats {
        town.world.drop_repeats();
    } else {
        town.work.gateway.dedupe_window = Duration::ZERO;
        town.work.gateway.on_takeover = WhenUnknown::Retry;
    }
    town.add(reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z")).await;
    town.start_scheduler("scheduler");
    town.start_worker("worker");
    let done = town.until(3_600, |world| {
        let row = world.row(&the_run());
        let succeeded = row.is_some_and(|row| row.status == RunStatus::Succeeded);
        succeeded && world.waiting().is_empty() && !world.advances(&the_run().job_key).is_empty()
    });
    let done = done.await;
    // What lands late, or is sent again by mistake, has time to show.
    tokio::time::sleep(Duration::from_secs(120)).await;
    town.stop().await;
    (town.world.clone(), done)
}

fn check(world: &World, done: bool, case: &str) {
    let run = the_run();
    assert!(done, "{case}: not done; row {:?}, waiting {:?}", world.row(&run), world.waiting());
    assert!(world.deliveries_of(&run) >= 1, "{case}: not delivered");
    assert_eq!(world.advances(&run.job_key), [at(DUE_AT)], "{case}: not advanced exactly once");
    assert_eq!(world.row(&run).map(|row| row.status), Some(RunStatus::Succeeded), "{case}");
    assert!(world.waiting().is_empty(), "{case}: {:?}", world.waiting());
    assert!(world.dead_letters().is_empty(), "{case}: {:?}", world.dead_letters());
    assert_eq!(world.rows().len(), 1, "{case}: a repeat carried another id");
    let enqueued_first = world.history().iter().position(|r| matches!(r.effect, Effect::Enqueued(_)));
    let advanced = world.history().iter().position(|r| matches!(r.effect, Effect::Advanced { .. }));
    assert!(enqueued_first < advanced, "{case}: advanced before its run was enqueued");
}

/// The calls of a run in which nothing goes wrong, from start to end.
async fn calls() -> Vec<(u64, &'static str)> {
    let plan = FaultPlan::default();
    let (world, done) = play(plan.clone(), true).await;
    check(&world, done, "no fault");
    assert_eq!(world.sends_of(&the_run()), 1);
    let all = plan.calls();
    let last = all.iter().rposition(|call| call.name == "queue.delete").expect("the message is deleted");
    all[..=last + 1].iter().map(|call| (call.number, call.name)).collect()
}

#[tokio::test(start_paused = true)]
async fn one_fault_at_any_call_neither_loses_nor_doubles_a_run() {
    let points = calls().await;
    for name in [
        "due.page",
        "jobs.get_many",
        "queue.send",
        "jobs.advance",
        "queue.receive",
        "runs.get",
        "runs.put",
        "gateway.send",
        "queue.delete",
        "leases.take",
        "leases.renew",
    ] {
        assert!(points.iter().any(|(_, n)| *n == name), "{name} is not among the calls");
    }
    let mut cases = 0;
    for (number, name) in points {
        for fault in Fault::kinds_for(name) {
            let case = format!("call {number} {name} {fault:?}");
            let plan = FaultPlan::one(Point::Call(number), fault);
            let (world, done) = play(plan.clone(), true).await;
            assert!(plan.to_come().is_empty(), "{case}: the fault did not happen");
            check(&world, done, &case);
            assert_eq!(world.deliveries_of(&the_run()), 1, "{case}: the customer got it twice");
            cases += 1;
        }
    }
    println!("{cases} cases");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_call_repeats_at_most_the_call_in_flight() {
    for (number, name) in calls().await {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let case = format!("call {number} {name} {fault:?}, a gateway that sends repeats");
            let (world, done) = play(FaultPlan::one(Point::Call(number), fault.clone()), false).await;
            check(&world, done, &case);
            // Only a worker that dies between the gateway and its record leaves a call that may be repeated.
            let gap = matches!((name, &fault), ("gateway.send", Fault::CrashAfter) | ("runs.put", Fault::CrashBefore));
            assert!(world.deliveries_of(&the_run()) <= 1 + usize::from(gap), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pair_of_crashes_does_not_lose_a_run() {
    let points = calls().await;
    let matter =
        |name: &str| matches!(name, "queue.send" | "jobs.advance" | "runs.put" | "gateway.send" | "queue.delete");
    for (number, name) in points.iter().filter(|(_, name)| matter(name)) {
        for second in ["queue.send", "jobs.advance", "runs.put", "gateway.send"] {
            let plan = FaultPlan::one(Point::Call(*number), Fault::CrashAfter);
            plan.add(Point::Nth(second, 2), Fault::CrashAfter);
            let case = format!("{name} and then the second {second}");
            let (world, done) = play(plan, true).await;
            check(&world, done, &case);
            assert_eq!(world.deliveries_of(&the_run()), 1, "{case}");
        }
    }
}

//! A crash, a lost answer, a refusal or a delay at every call that dispatch and work make: the run is delivered, its row
//! ends `succeeded`, and the job has advanced exactly once.

use punctual_core::due::Shards;
use punctual_core::memory::{Call, Effect, Fault, FaultPlan, Point, World};
use punctual_core::retry::WhenUnknown;
use punctual_core::run::{RunId, RunStatus};
use punctual_tests::{Town, at, reminder, run_of};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const WORKER: &str = "worker";
/// The first write of a row that goes as it should.
const BEGIN: u64 = 1;
/// The second.
const RECORD: u64 = 2;

fn the_run() -> RunId {
    run_of("c-1/bill", at(DUE_AT))
}

/// What becomes of the same reference at the gateway, and what the worker believes of it.
#[derive(Clone, Copy)]
enum Repeats {
    /// They are dropped, and the worker counts on it.
    Dropped,
    /// They go out, although the worker counts on their being dropped: so each one shows.
    Shown,
    /// They go out, and the worker knows.
    Sent,
}

/// One job, one scheduler, one worker, until all is done.
async fn play(plan: FaultPlan, repeats: Repeats) -> (World, bool) {
    let shards = Shards { urgent: 0, standard: 1 };
    let mut town = Town::with(shards, plan, Arc::new(|ports| ports)).await;
    match repeats {
        Repeats::Dropped => town.world.drop_repeats(),
        Repeats::Shown => {}
        Repeats::Sent => {
            town.work.policies.sms.dedupe_window = Duration::ZERO;
            town.work.policies.sms.on_takeover = WhenUnknown::Retry;
        }
    }
    town.add(reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z")).await;
    town.start_scheduler("scheduler");
    town.start_worker(WORKER);
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
async fn calls() -> Vec<Call> {
    let plan = FaultPlan::default();
    let (world, done) = play(plan.clone(), Repeats::Dropped).await;
    check(&world, done, "no fault");
    assert_eq!(world.sends_of(&the_run()), 1);
    let all = plan.calls();
    let puts = all.iter().filter(|call| call.name == "runs.put").count();
    assert_eq!(puts, 2, "begin, which is call 1, and record, which is call 2");
    let last = all.iter().rposition(|call| call.name == "queue.delete").expect("the message is deleted");
    all[..=last + 1].to_vec()
}

/// Whether a fault at this call leaves nobody who knows if the text went out: the one gap that is left.
fn is_in_the_gap(call: &Call, fault: &Fault) -> bool {
    match call.name {
        "gateway.send" => matches!(fault, Fault::LoseAnswer | Fault::LandLate(_) | Fault::CrashAfter),
        "runs.put" => call.nth == RECORD && *fault == Fault::CrashBefore,
        _ => false,
    }
}

/// The attempts that a fault at this call may cost.
fn attempts(call: &Call, fault: &Fault) -> RangeInclusive<u32> {
    let is_crash = matches!(fault, Fault::CrashBefore | Fault::CrashAfter);
    match (call.name, call.nth) {
        _ if is_in_the_gap(call, fault) => 2..=2,
        // The call did not go out, and the next attempt makes it.
        ("gateway.send", _) if matches!(fault, Fault::FailBefore(_) | Fault::CrashBefore) => 2..=2,
        ("runs.put", BEGIN) if *fault == Fault::CrashAfter => 2..=2,
        // Begin may give up the write that lands late, and then takes over from itself.
        ("runs.put", BEGIN) if matches!(fault, Fault::LandLate(_)) => 1..=2,
        // Whatever else the worker does beside its run may fall between begin and record.
        (name, _) if is_crash && call.process == WORKER && name != "runs.put" => 1..=2,
        _ => 1..=1,
    }
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
        "runs.put",
        "gateway.send",
        "queue.delete",
        "leases.take",
        "leases.renew",
    ] {
        assert!(points.iter().any(|call| call.name == name), "{name} is not among the calls");
    }
    let (mut cases, mut doubled) = (0, 0);
    for call in points {
        for fault in Fault::kinds_for(call.name) {
            let case = format!("call {} {} {fault:?}", call.number, call.name);
            let plan = FaultPlan::one(Point::Call(call.number), fault.clone());
            let (world, done) = play(plan.clone(), Repeats::Shown).await;
            assert!(plan.to_come().is_empty(), "{case}: the fault did not happen");
            let hit = &plan.calls()[call.number as usize - 1];
            assert_eq!((hit.name, hit.nth, &hit.process), (call.name, call.nth, &call.process), "{case}");
            check(&world, done, &case);
            let gap = is_in_the_gap(&call, &fault);
            assert_eq!(world.sends_of(&the_run()), 1 + usize::from(gap), "{case}: calls at the gateway");
            let attempt = world.row(&the_run()).map_or(0, |row| row.attempt);
            assert!(attempts(&call, &fault).contains(&attempt), "{case}: took {attempt} attempts");
            cases += 1;
            doubled += usize::from(gap);
        }
    }
    assert_eq!(doubled, 3, "the gateway's answer lost, and the two crashes between its answer and the record");
    println!("{cases} cases, of them {doubled} in which nobody can know");
}

/// The first delivery reads no row: begin meets it.
#[tokio::test(start_paused = true)]
async fn a_fault_at_the_read_of_a_crashed_workers_row_neither_loses_nor_doubles_a_run() {
    for fault in Fault::kinds_for("runs.get") {
        let case = format!("crash after begin, then {fault:?} at the read of its row");
        let plan = FaultPlan::one(Point::Nth("runs.put", BEGIN), Fault::CrashAfter);
        plan.add(Point::Nth("runs.get", 1), fault);
        let (world, done) = play(plan.clone(), Repeats::Shown).await;
        assert!(plan.to_come().is_empty(), "{case}: the fault did not happen");
        check(&world, done, &case);
        assert_eq!(world.sends_of(&the_run()), 1, "{case}: calls at the gateway");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_call_repeats_at_most_the_call_in_flight() {
    for call in calls().await {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let case = format!("call {} {} {fault:?}, a gateway that sends repeats", call.number, call.name);
            let plan = FaultPlan::one(Point::Call(call.number), fault.clone());
            let (world, done) = play(plan.clone(), Repeats::Sent).await;
            assert!(plan.to_come().is_empty(), "{case}: the fault did not happen");
            check(&world, done, &case);
            let gap = is_in_the_gap(&call, &fault);
            assert_eq!(world.deliveries_of(&the_run()), 1 + usize::from(gap), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pair_of_crashes_does_not_lose_a_run() {
    let matters = |call: &&Call| {
        matches!(call.name, "queue.send" | "jobs.advance" | "runs.put" | "gateway.send" | "queue.delete")
    };
    let mut pairs = BTreeSet::new();
    for first in calls().await.iter().filter(matters) {
        let plan = FaultPlan::one(Point::Nth(first.name, first.nth), Fault::CrashAfter);
        play(plan.clone(), Repeats::Dropped).await;
        // Every call that the first crash leaves to be made is the second one's turn.
        for second in plan.calls()[first.number as usize..].iter().filter(matters) {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let case =
                    format!("crash after {} {}, {fault:?} at {} {}", first.name, first.nth, second.name, second.nth);
                let plan = FaultPlan::one(Point::Nth(first.name, first.nth), Fault::CrashAfter);
                plan.add(Point::Nth(second.name, second.nth), fault.clone());
                let (world, done) = play(plan.clone(), Repeats::Dropped).await;
                assert!(plan.to_come().is_empty(), "{case}: the second fault did not happen");
                check(&world, done, &case);
                assert_eq!(world.deliveries_of(&the_run()), 1, "{case}");
                // Each crash may leave one call that has to be made again.
                assert!(world.sends_of(&the_run()) <= 3, "{case}");
                pairs.insert((first.name, second.name));
            }
        }
    }
    for pair in [
        ("queue.send", "queue.send"),
        ("queue.send", "jobs.advance"),
        ("queue.send", "gateway.send"),
        ("jobs.advance", "runs.put"),
        ("runs.put", "runs.put"),
        ("runs.put", "queue.delete"),
        ("gateway.send", "runs.put"),
        ("gateway.send", "gateway.send"),
        ("gateway.send", "queue.delete"),
    ] {
        assert!(pairs.contains(&pair), "{pair:?} did not happen: {pairs:?}");
    }
}

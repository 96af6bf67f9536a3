//! Replays of dead and indeterminate runs: new runs, with the original's deadline and its name at the gateway.

use punctual_core::deadline::StartRule;
use punctual_core::due::Shards;
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::ports::RowRead;
use punctual_core::retry::{Outcome, RetryRule};
use punctual_core::run::{RunId, RunStatus, SkipReason};
use punctual_core::zone::Zones;
use punctual_scheduler::operations::{Replay, replay};
use punctual_tests::{Town, at, reminder, run_of};
use std::sync::Arc;
use std::time::Duration;

const PHONE: &str = "+447700900123";
const DUE_AT: i64 = 8;

fn the_run() -> RunId {
    run_of("c-1/bill", at(DUE_AT))
}

fn the_replay(n: u32) -> RunId {
    RunId { run_key: the_run().run_key.replay(n), ..the_run() }
}

fn has(world: &World, run: &RunId, status: RunStatus) -> bool {
    world.row(run).is_some_and(|row| row.status == status)
}

fn busy() -> Script {
    Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None })
}

/// A town whose run is dead after one attempt, and the worker that tried it.
async fn town_with_a_dead_run(plan: FaultPlan, start: StartRule) -> Town {
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await;
    let mut spec = reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z");
    spec.retry = RetryRule { max_attempts: 1, ..RetryRule::default() };
    spec.missed.start = start;
    town.add(spec).await;
    town.world.script(PHONE, [busy()]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, |world| has(world, &the_run(), RunStatus::Dead) && world.waiting().is_empty()).await);
    town
}

async fn ask(town: &Town) -> Replay {
    replay(&town.world.ports(), &*town.clock, &Zones::embedded(), &the_run(), "ann").await.expect("it is answered")
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_a_run_of_its_own_and_leaves_the_dead_row_as_it_is() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::Always).await;
    let dead = town.world.row(&the_run());
    assert_eq!(ask(&town).await, Replay::Enqueued(the_replay(1)));
    assert!(town.until(60, |world| has(world, &the_replay(1), RunStatus::Succeeded)).await);
    assert_eq!(town.world.row(&the_run()), dead);
    assert_eq!(town.world.sends_of(&the_run()), 2, "the gateway knows both by one reference");
    assert_eq!(ask(&town).await, Replay::Stands(the_replay(1), RunStatus::Succeeded), "it is not sent a third time");
    assert_eq!(town.world.dead_letters().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn asking_again_while_a_replay_is_on_its_way_makes_no_second_one() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::Always).await;
    for _ in 0..3 {
        assert_eq!(ask(&town).await, Replay::Enqueued(the_replay(1)));
    }
    assert!(
        town.until(60, |world| has(world, &the_replay(1), RunStatus::Succeeded) && world.waiting().is_empty()).await
    );
    assert_eq!(town.world.sends_of(&the_run()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_dies_is_replayed_from_the_original() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::Always).await;
    town.world.script(PHONE, [busy()]);
    ask(&town).await;
    assert!(town.until(60, |world| has(world, &the_replay(1), RunStatus::Dead)).await);
    assert_eq!(ask(&town).await, Replay::Enqueued(the_replay(2)));
    assert!(town.until(60, |world| has(world, &the_replay(2), RunStatus::Succeeded)).await);
}

#[tokio::test(start_paused = true)]
async fn a_replay_past_the_originals_deadline_is_not_asked_for() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::WithinS(600)).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(ask(&town).await, Replay::TooLate);
    assert_eq!((town.world.waiting().len(), town.world.row(&the_replay(1))), (0, None));
}

#[tokio::test(start_paused = true)]
async fn who_sees_to_a_letter_takes_it_from_those_that_wait_and_a_dead_replay_waits_itself() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::Always).await;
    let waiting = async || {
        let page = town.world.ports().history.attention("bank", None, 9).await.expect("it can be read");
        page.rows.iter().filter_map(RowRead::row).map(|row| row.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(waiting().await, [the_run()]);
    town.world.script(PHONE, [busy()]);
    ask(&town).await;
    assert_eq!(waiting().await, [], "it is on its way");
    assert!(town.until(60, |world| has(world, &the_replay(1), RunStatus::Dead)).await);
    assert_eq!(waiting().await, [the_replay(1)]);
    let note = town.world.ports().history.attended(&the_run()).await.expect("it can be read").expect("it was noted");
    assert_eq!((note.by.as_str(), note.replay), ("ann", Some(the_replay(1).run_key)));
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_waited_past_the_originals_deadline_is_skipped_and_calls_nobody() {
    let town = town_with_a_dead_run(FaultPlan::default(), StartRule::WithinS(600)).await;
    let job = town.world.job(&the_run().job_key).expect("it is there");
    let message = job.replay(&town.world.row(&the_run()).expect("it is there"), 1, town.clock.now());
    let body = message.expect("it can be replayed").encode();
    tokio::time::sleep(Duration::from_secs(700)).await;
    town.world.ports().queue.send(job.spec.priority, &[body]).await.expect("it is taken");
    assert!(town.until(60, |world| has(world, &the_replay(1), RunStatus::Skipped)).await);
    assert_eq!(town.world.row(&the_replay(1)).and_then(|row| row.reason), Some(SkipReason::Deadline));
    assert_eq!(town.world.sends_of(&the_run()), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_dead_is_not_replayed() {
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    town.add(reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z")).await;
    assert_eq!(ask(&town).await, Replay::Missing);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(60, |world| has(world, &the_run(), RunStatus::Succeeded)).await);
    assert_eq!(ask(&town).await, Replay::Stands(the_run(), RunStatus::Succeeded));
}

/// Row first, then the letter, then the delete: a crash between any two leaves one letter for the run, or one more that
/// says the same.
#[tokio::test(start_paused = true)]
async fn a_crash_between_row_letter_and_delete_shows_one_letter_for_the_run() {
    for (call, fault) in [
        ("queue.send_dead_letter", Fault::CrashBefore),
        ("queue.send_dead_letter", Fault::CrashAfter),
        ("queue.delete", Fault::CrashBefore),
        ("queue.delete", Fault::CrashAfter),
    ] {
        let plan = FaultPlan::one(Point::Nth(call, 1), fault.clone());
        let town = town_with_a_dead_run(plan.clone(), StartRule::Always).await;
        assert!(plan.to_come().is_empty(), "{call} {fault:?} did not happen");
        let shown: std::collections::BTreeSet<_> =
            town.world.dead_letters().into_iter().filter_map(|letter| letter.run_id).collect();
        assert_eq!(shown, [the_run().to_string()].into(), "{call} {fault:?}");
        assert_eq!(town.world.rows().len(), 1, "{call} {fault:?}");
    }
}

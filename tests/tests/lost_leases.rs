//! Workers that lose what they hold, die or break off in the middle of a call, in memory and in virtual time: what is known
//! is recorded, what was taken over is left alone, and what kills workers ends.

use async_trait::async_trait;
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::payload::Handler;
use punctual_core::ports::{Call, Gateway};
use punctual_core::retry::{Outcome, OutcomeClass};
use punctual_core::run::{RunId, RunRow, RunStatus};
use punctual_tests::watch::{Touch, touches};
use punctual_tests::{PortChange, Town, at, reminder, run_of, within};
use punctual_worker::service::{Equipment, run};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

const PHONE: &str = "+447700900123";
const ID: &str = "c-1/bill";
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const S: fn(u64) -> Duration = Duration::from_secs;

fn the_run() -> RunId {
    run_of(ID, at(DUE_AT))
}

fn the_row(world: &World) -> Option<RunRow> {
    world.row(&the_run())
}

fn has(status: RunStatus) -> impl Fn(&World) -> bool {
    move |world| the_row(world).is_some_and(|row| row.status == status)
}

fn is_done(world: &World) -> bool {
    has(RunStatus::Succeeded)(world) && world.waiting().is_empty()
}

fn classes(row: &RunRow) -> Vec<Option<OutcomeClass>> {
    row.attempts.iter().map(|attempt| attempt.class).collect()
}

fn busy(retry_after: Option<Duration>) -> Script {
    Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after })
}

/// A town at the moment at which its one job is due, whose message is in the queue.
async fn town_by(plan: &FaultPlan, change: PortChange) -> Town {
    let town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), change).await;
    town.add(reminder(ID, EVERY_DAY)).await;
    tokio::time::sleep(S(DUE_AT as u64)).await;
    town.send(&[town.message(ID, at(DUE_AT))]).await;
    town
}

async fn town_with(plan: &FaultPlan) -> Town {
    town_by(plan, Arc::new(|ports| ports)).await
}

#[tokio::test(start_paused = true)]
async fn a_call_that_succeeds_while_every_heartbeat_fails_is_recorded() {
    let lost = Fault::FailBefore(PortError::Temporary("lost".into()));
    let plan = FaultPlan::one(Point::Every("queue.extend"), lost);
    let mut town = town_with(&plan).await;
    town.world.set_gateway_latency(S(180));
    (town.work.attempt_timeout, town.work.row_lease) = (S(300), S(305));
    town.start_worker("w1");
    town.start_worker("w2");
    assert!(town.until(170, |world| world.sends().len() == 1).await);
    // The message has come again since.
    assert!(town.until(100, |world| world.waiting().iter().all(|message| message.receive_count > 1)).await);
    assert!(town.until(300, is_done).await, "{:?}", the_row(&town.world));
    let row = the_row(&town.world).expect("a row");
    assert_eq!((row.attempt, classes(&row)), (1, vec![Some(OutcomeClass::Delivered)]));
    assert_eq!((town.world.sends().len(), town.world.dead_letters().len()), (1, 0));
    town.stop().await;
}

/// The first worker's record of this outcome takes 200 s; a second message for the run lets another worker take it over,
/// while the first still holds its own.
async fn taken_over_while_held(outcome: OutcomeClass) {
    let plan = FaultPlan::one(Point::Nth("runs.put", 2), Fault::Delay(S(200)));
    let (change, touched) = touches();
    let mut town = town_by(&plan, change).await;
    town.world.drop_repeats();
    if outcome == OutcomeClass::Temporary {
        town.world.script(PHONE, [busy(None)]);
    }
    town.start_worker("w1");
    assert!(town.until(5, |world| world.sends().len() == 1).await);
    plan.add(Point::EveryOf("w1".into(), "queue.receive"), Fault::FailBefore(PortError::Temporary("cut off".into())));
    // Its receive that is under way ends empty.
    tokio::time::sleep(S(10)).await;
    town.send(&[town.message(ID, at(DUE_AT))]).await;
    town.start_worker("w2");
    assert!(town.until(120, has(RunStatus::Succeeded)).await, "{outcome:?}: {:?}", the_row(&town.world));
    let taken_over = the_row(&town.world).expect("a row");
    assert_eq!(classes(&taken_over), [Some(OutcomeClass::Lost), Some(OutcomeClass::Delivered)], "{outcome:?}");
    assert!(town.until(300, |world| world.waiting().is_empty()).await, "{outcome:?}: the held message comes again");
    tokio::time::sleep(S(60)).await;
    assert_eq!(the_row(&town.world), Some(taken_over), "{outcome:?}: the row was changed");
    let of = |receipt: &str| {
        let of_it = touched.all().into_iter().filter(|(of, _)| of == receipt);
        of_it.map(|(_, touch)| touch).collect::<Vec<_>>()
    };
    let (held, beats) = (of("normal/0/1"), Touch::Extended(town.work.visibility));
    assert!(held.len() >= 8 && held.iter().all(|touch| *touch == beats), "{outcome:?}: more than heartbeats: {held:?}");
    assert_eq!(of("normal/0/2"), [Touch::Deleted], "{outcome:?}: who receives it next deletes it");
    town.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_run_was_taken_over_neither_records_nor_deletes_nor_hides() {
    taken_over_while_held(OutcomeClass::Delivered).await;
    taken_over_while_held(OutcomeClass::Temporary).await;
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_comes_inside_the_back_off_does_not_run_early() {
    let mut town = town_with(&FaultPlan::default()).await;
    town.world.script(PHONE, [busy(Some(S(20)))]);
    town.start_worker("w1");
    town.start_worker("w2");
    assert!(town.until(5, has(RunStatus::Retrying)).await);
    let not_before = the_row(&town.world).and_then(|row| row.not_before).expect("a back-off");
    assert!(not_before >= town.clock.now() + S(15));
    for _ in 0..2 {
        town.send(&[town.message(ID, at(DUE_AT))]).await;
        tokio::time::sleep(S(2)).await;
    }
    assert!(town.until(120, is_done).await, "{:?}", town.world.waiting());
    let calls: Vec<_> = town.world.sends().iter().map(|send| send.at).collect();
    assert!(calls.len() == 2 && calls[1] >= not_before, "{calls:?}, not before {not_before}");
    assert_eq!(the_row(&town.world).map(|row| row.attempt), Some(2));
    town.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_does_not_make_a_succeeded_run_a_skipped_one() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    let mut spec = reminder(ID, EVERY_DAY);
    spec.missed = within(60);
    town.add(spec).await;
    tokio::time::sleep(S(DUE_AT as u64)).await;
    town.send(&[town.message(ID, at(DUE_AT))]).await;
    town.start_worker("w");
    assert!(town.until(10, is_done).await);
    let succeeded = the_row(&town.world);
    tokio::time::sleep(S(120)).await;
    town.send(&[town.message(ID, at(DUE_AT))]).await;
    assert!(town.until(60, |world| world.waiting().is_empty()).await);
    assert_eq!((the_row(&town.world), town.world.sends().len()), (succeeded, 1));
    town.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_kills_three_workers_is_dead_and_kills_no_fourth() {
    let plan = FaultPlan::default();
    (1..=3).for_each(|n| plan.add(Point::Nth("gateway.send", n), Fault::CrashBefore));
    let mut town = town_with(&plan).await;
    town.start_worker("w");
    assert!(town.until(600, has(RunStatus::Dead)).await, "{:?}", the_row(&town.world));
    assert!(town.until(60, |world| world.waiting().is_empty()).await);
    assert!(plan.to_come().is_empty());
    let row = the_row(&town.world).expect("a row");
    assert_eq!(classes(&row), [Some(OutcomeClass::Lost); 3]);
    assert!(row.error.is_some_and(|error| error.contains("3 workers died")));
    town.add(reminder("c-2/bill", EVERY_DAY)).await;
    town.send(&[town.message("c-2/bill", at(DUE_AT))]).await;
    let other = run_of("c-2/bill", at(DUE_AT));
    assert!(town.until(10, |world| world.sends_of(&other) == 1).await, "others go on");
    tokio::time::sleep(S(3_600)).await;
    assert_eq!(plan.calls().iter().filter(|call| call.name == "gateway.send").count(), 3 + 1);
    let letters: Vec<_> = town.world.dead_letters().into_iter().map(|letter| (letter.run_id, letter.reason)).collect();
    let reason = "attempts used up: 3 workers died while they worked on it: it is not run again";
    assert_eq!(letters, [(Some(the_run().to_string()), reason.to_owned())]);
    assert!(town.world.waiting().is_empty());
    town.stop().await;
}

/// Breaks off the first attempt of one run, as a defect in a handler would.
struct BreaksOff {
    gateway: Arc<dyn Gateway>,
    run: RunId,
}

#[async_trait]
impl Gateway for BreaksOff {
    async fn send(&self, call: &Call) -> Outcome {
        assert!(call.attempt > 1 || call.reference != self.run, "a defect");
        self.gateway.send(call).await
    }
    fn serves(&self, handler: Handler) -> bool {
        self.gateway.serves(handler)
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_breaks_off_is_a_temporary_failure_and_stops_no_other_run() {
    const OTHERS: usize = 9;
    let town = town_with(&FaultPlan::default()).await;
    for n in 0..OTHERS {
        let id = format!("other-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    let worker = run(
        Equipment {
            ports: town.world.ports(),
            gateway: Arc::new(BreaksOff { gateway: town.world.gateway(), run: the_run() }),
            clock: town.clock.clone(),
            zones: town.zones.clone(),
            settings: town.work.clone(),
            id: "w".into(),
        },
        pending(),
    );
    let watched = async {
        // All are of one batch.
        assert!(town.until(5, |world| world.sends().len() == OTHERS).await, "{} calls", town.world.sends().len());
        assert!(has(RunStatus::Retrying)(&town.world), "{:?}", the_row(&town.world));
        assert!(town.until(60, is_done).await, "{:?}", the_row(&town.world));
    };
    tokio::select! {
        ended = worker => panic!("the worker ended: {ended:?}"),
        () = watched => {}
    }
    let row = the_row(&town.world).expect("a row");
    assert_eq!(classes(&row), [Some(OutcomeClass::Temporary), Some(OutcomeClass::Delivered)]);
    let rows = town.world.rows();
    assert!(rows.values().filter(|row| row.id != the_run()).all(|row| row.attempt == 1));
    assert_eq!((rows.len(), town.world.sends().len()), (1 + OTHERS, 1 + OTHERS));
    assert!(rows.values().all(|row| row.status == RunStatus::Succeeded));
}

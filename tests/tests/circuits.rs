//! What workers say of their circuits, and what `punctual status` makes of it, in memory and in virtual time.

use punctual_core::due::{Layout, Shards};
use punctual_core::error::PortError;
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::payload::Payload;
use punctual_core::report::{CircuitReport, CircuitState, WorkerReport};
use punctual_core::retry::Outcome;
use punctual_core::run::RunStatus;
use punctual_core::target::Target;
use punctual_core::template::Vars;
use punctual_scheduler::status::Status;
use punctual_tests::{Town, at, reminder};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const HOOK: &str = "https://hooks.example.com/bills";
const TARGET: &str = "webhook/hooks.example.com";
/// More failures than open the circuit, whatever is in flight then.
const FAILURES: usize = 18;

/// A town with a scheduler, in which so many webhooks of one host are due together.
async fn town(jobs: usize, plan: FaultPlan) -> Town {
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await;
    town.world.set_gateway_latency(Duration::from_millis(20));
    for n in 0..jobs {
        let mut spec = reminder(&format!("hook-{n}"), EVERY_DAY);
        spec.payload = Payload::Webhook { url: HOOK.into(), body: "{}".into(), vars: Vars::new(), secret: None };
        town.add(spec).await;
    }
    town.start_scheduler("s");
    town
}

/// The host answers so many calls with 503.
fn fail(world: &World, calls: usize) {
    let down = Outcome::Temporary { reason: "503".into(), retry_after: None };
    world.script(HOOK, std::iter::repeat_n(Script::Answer(down), calls));
}

async fn status(town: &Town) -> Status {
    let layout = Layout::of(town.shards);
    Status::read(&town.world.ports(), layout, &*town.clock).await.expect("memory does not fail")
}

async fn circuits(town: &Town) -> Value {
    status(town).await.json()["circuits"].clone()
}

/// Lets time pass until some circuits are shown, or none; fails after `seconds`.
async fn until_shown(town: &Town, seconds: i64, some: bool) -> Value {
    let give_up_at = town.clock.now() + chrono::TimeDelta::seconds(seconds);
    loop {
        let shown = circuits(town).await;
        if shown.as_array().is_some_and(|shown| shown.is_empty() != some) {
            return shown;
        }
        assert!(town.clock.now() < give_up_at, "after {seconds} s: {shown}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn calls_about_reports(town: &Town) -> usize {
    town.plan.calls().iter().filter(|call| call.name.starts_with("reports.")).count()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_is_shown_as_open_within_seconds_and_no_more_when_it_is_well() {
    let mut town = town(40, FaultPlan::default()).await;
    fail(&town.world, FAILURES);
    town.start_worker("w");
    let shown = until_shown(&town, DUE_AT + 15, true).await;
    assert_eq!(
        (&shown[0]["target"], &shown[0]["state"], &shown[0]["workers"]),
        (&json!(TARGET), &json!("open"), &json!(1))
    );
    let open = status(&town).await;
    assert!(open.needs_a_look() && open.table().contains(TARGET), "{}", open.table());

    assert!(town.until_ms(3_600_000, 100, |world| world.sends().len() > FAILURES).await, "it is never tried");
    let latest = town.world.sends()[FAILURES].at;
    until_shown(&town, 2, false).await;
    assert!((town.clock.now() - latest).num_seconds() <= 2, "the report goes with the first call that succeeds");
    let closed = status(&town).await;
    assert!(!closed.needs_a_look() && closed.table().contains("all circuits are closed"), "{}", closed.table());
    assert_eq!(town.world.reports(), []);
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_is_said_again_every_ten_seconds_with_its_first_moment() {
    // Enough for both to see ten failures soon.
    let mut town = town(400, FaultPlan::default()).await;
    fail(&town.world, 10_000);
    town.start_worker("w1");
    town.start_worker("w2");
    assert!(town.until(300, |world| world.reports().len() == 2).await, "{:?}", town.world.reports());
    let first = town.world.reports()[0].clone();
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let shown = circuits(&town).await;
        let shown = shown.as_array().expect("a list");
        assert!(shown.iter().all(|one| one["last_said_s"].as_i64() <= Some(11)), "{shown:?}");
        let workers: i64 = shown.iter().filter_map(|one| one["workers"].as_i64()).sum();
        assert_eq!(workers, 2, "{shown:?}");
    }
    let last = town.world.reports()[0].clone();
    assert_eq!((&last.worker, last.at > first.at), (&first.worker, true));
    let since = |report: &WorkerReport| report.circuits.values().map(|circuit| circuit.since).collect::<Vec<_>>();
    assert_eq!(since(&last), since(&first));
    let made = calls_about_reports(&town);
    let told_s = last.circuits.values().map(|circuit| (town.clock.now() - circuit.since).num_seconds()).max();
    let most = 2 * (told_s.expect("one circuit") / 10 + 4);
    assert!(made as i64 <= most, "{made} calls, {most} allowed");
}

#[tokio::test(start_paused = true)]
async fn a_killed_workers_report_is_shown_for_a_minute() {
    let town = town(40, FaultPlan::default()).await;
    fail(&town.world, 10_000);
    let worker = town.start_stoppable_worker("w");
    until_shown(&town, DUE_AT + 15, true).await;
    worker.kill();
    // What was under way may still land.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let said_at = town.world.reports()[0].at;
    tokio::time::sleep(Duration::from_secs(50)).await;
    until_shown(&town, 0, true).await;
    until_shown(&town, 15, false).await;
    assert_eq!((town.clock.now() - said_at).num_seconds(), 60);
    assert_eq!(town.world.reports().len(), 1, "looking removes nothing");
}

#[tokio::test(start_paused = true)]
async fn who_begins_to_report_removes_what_dead_workers_left() {
    let mut town = town(40, FaultPlan::default()).await;
    fail(&town.world, 10_000);
    let open = CircuitReport { state: CircuitState::Open, since: at(-9_000) };
    for (worker, written_s) in [("dead", -3_700), ("perhaps-dead", -3_000)] {
        let circuits = [(Target::sms(), open)].into();
        let report = WorkerReport { worker: worker.into(), at: at(written_s), circuits };
        assert_eq!(town.world.ports().reports.put(&report).await, Ok(()));
    }
    town.start_worker("w");
    until_shown(&town, DUE_AT + 15, true).await;
    let workers: Vec<String> = town.world.reports().into_iter().map(|report| report.worker).collect();
    assert!(workers.len() == 2 && workers[0] == "perhaps-dead" && workers[1].starts_with("w-"), "{workers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_in_order_takes_its_report_away() {
    let town = town(40, FaultPlan::default()).await;
    fail(&town.world, 10_000);
    let worker = town.start_stoppable_worker("w");
    until_shown(&town, DUE_AT + 15, true).await;
    worker.tell().await.expect("it ends");
    assert_eq!(town.world.reports(), []);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_circuits_are_closed_says_nothing() {
    let mut town = town(40, FaultPlan::default()).await;
    // Too few to open it.
    fail(&town.world, 5);
    town.start_worker("w");
    let all_done = |world: &World| world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count() == 40;
    assert!(town.until(600, all_done).await);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(calls_about_reports(&town), 0);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_cannot_be_written_stops_no_work_and_is_written_later() {
    let plan = FaultPlan::default();
    for call in ["reports.put", "reports.remove", "reports.list"] {
        plan.add(Point::Every(call), Fault::FailBefore(PortError::Permanent("injected".into())));
    }
    let mut town = town(40, plan).await;
    fail(&town.world, FAILURES);
    town.start_worker("w");
    assert!(town.until(60, |world| world.sends().len() >= 10).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(town.world.reports(), []);
    town.plan.clear();
    until_shown(&town, 12, true).await;
    // Now it cannot be removed.
    let fault = Fault::FailBefore(PortError::Throttled("injected".into()));
    town.plan.add(Point::Every("reports.remove"), fault);
    let all_done = |world: &World| world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count() == 40;
    assert!(town.until(3_600, all_done).await, "{} calls", town.world.sends().len());
    town.plan.clear();
    assert!(town.until(12, |world| world.reports().is_empty()).await);
}

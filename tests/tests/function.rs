//! The worker as a Lambda function: what it is handed, it does, or gives back in time.

use chrono::TimeDelta;
use punctual_core::clock::{AnchoredClock, Clock};
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::memory::{Fault, FaultPlan, Faults, Point, Script, World};
use punctual_core::ports::{BATCH, Delivery, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::process_id;
use punctual_core::retry::Outcome;
use punctual_core::run::RunStatus;
use punctual_tests::{Town, at, event_source, reminder, run_of};
use punctual_worker::lambda::Function;
use punctual_worker::rate::Sharing;
use punctual_worker::service::Equipment;
use punctual_worker::settings::WorkSettings;
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";

/// A town with ten messages that are due, and the batch that Lambda hands in.
async fn town_and_batch(count: usize) -> (Town, Vec<Delivery>) {
    let town = Town::with(Shards { urgent: 0, standard: 1 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    for n in 0..count {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let queue = town.world.ports().queue;
    let batch = queue.receive(Priority::Normal, BATCH, Duration::ZERO, event_source::VISIBILITY).await;
    (town, batch.expect("memory does not fail"))
}

fn function(town: &Town) -> Function {
    function_with(town, town.world.ports(), town.clock.clone())
}

fn function_with(town: &Town, ports: Ports, clock: Arc<dyn Clock>) -> Function {
    let gateway = town.world.gateway();
    let settings = WorkSettings { sharing: event_source::CONCURRENCY, ..town.work.clone() };
    let (zones, id) = (town.zones.clone(), process_id("f"));
    Function::new(Equipment { ports, gateway, clock, zones, settings, id })
}

fn with_status(world: &World, status: RunStatus) -> usize {
    world.rows().values().filter(|row| row.status == status).count()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_done_side_by_side_and_reported_as_done() {
    let (town, batch) = town_and_batch(10).await;
    town.world.set_gateway_latency(Duration::from_secs(3));
    let started = town.clock.monotonic();
    let done = function(&town).work(batch.clone(), event_source::TIMEOUT).await;
    assert_eq!(done, batch.iter().map(|delivery| delivery.receipt.clone()).collect());
    assert!(town.clock.monotonic() - started < Duration::from_secs(5));
    assert_eq!(with_status(&town.world, RunStatus::Succeeded), 10);
    assert_eq!(town.world.waiting().len(), 10, "Lambda deletes what is done");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_end_before_the_deadline_is_not_begun_and_given_back_at_once() {
    let (mut town, batch) = town_and_batch(10).await;
    town.work.slots.all = 1;
    town.work.slots.urgent_only = 0;
    town.world.set_gateway_latency(Duration::from_secs(3));
    let started = town.clock.monotonic();
    let done = function(&town).work(batch, event_source::TIMEOUT).await;
    assert!(town.clock.monotonic() - started < event_source::TIMEOUT);
    // Attempt timeout and margins take 16 of the 30 s: calls begin in the first 14.
    assert_eq!((done.len(), with_status(&town.world, RunStatus::Succeeded)), (5, 5));
    assert_eq!(town.world.rows().len(), 5, "nothing else was begun");
    let visible = town.world.waiting().iter().filter(|waiting| waiting.hidden_for.is_zero()).count();
    assert_eq!(visible, 5, "the rest is there for another environment");
}

#[tokio::test(start_paused = true)]
async fn a_function_with_too_little_time_begins_nothing() {
    let (town, batch) = town_and_batch(3).await;
    let done = function(&town).work(batch, Duration::from_secs(15)).await;
    assert!(done.is_empty());
    assert_nothing_was_begun(&town);
}

/// Given back at once, the batch would be here again at once, and use up its deliveries.
fn assert_nothing_was_begun(town: &Town) {
    assert!(town.world.rows().is_empty() && town.world.sends().is_empty());
    let waiting = town.world.waiting();
    let seconds = Duration::from_secs(4)..=Duration::from_secs(10);
    assert!(waiting.iter().all(|message| seconds.contains(&message.hidden_for)), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn a_function_that_cannot_read_limits_and_holds_answers_in_time_and_begins_nothing() {
    for fault in [Fault::Delay(Duration::from_secs(300)), Fault::FailBefore(PortError::Temporary("injected".into()))] {
        let (town, batch) = town_and_batch(3).await;
        let plan = FaultPlan::one(Point::Every("control.steering"), fault);
        let ports = Faults::new(&plan, "f").wrap(town.world.ports());
        let started = town.clock.monotonic();
        let done = function_with(&town, ports, town.clock.clone()).work(batch, event_source::TIMEOUT).await;
        assert!(done.is_empty() && town.clock.monotonic() - started <= Duration::from_secs(5));
        assert_nothing_was_begun(&town);
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_answers_before_its_timeout_also_when_nothing_can_be_hidden() {
    let (town, batch) = town_and_batch(3).await;
    town.world
        .script("+447700900123", [Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None })]);
    let plan = FaultPlan::one(Point::Every("queue.extend"), Fault::Delay(Duration::from_secs(300)));
    let ports = Faults::new(&plan, "f").wrap(town.world.ports());
    let started = town.clock.monotonic();
    let done = function_with(&town, ports, town.clock.clone()).work(batch, event_source::TIMEOUT).await;
    assert!(town.clock.monotonic() - started < event_source::TIMEOUT);
    assert_eq!((done.len(), with_status(&town.world, RunStatus::Succeeded)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_function_whose_clock_is_not_known_to_be_right_begins_nothing() {
    let (town, batch) = town_and_batch(3).await;
    // No store tells this clock the time.
    let clock = Arc::new(AnchoredClock::new(town.wrong_clock()));
    let done = function_with(&town, town.world.ports(), clock).work(batch, event_source::TIMEOUT).await;
    assert!(done.is_empty());
    assert_nothing_was_begun(&town);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_comes_again_after_its_back_off() {
    let (town, batch) = town_and_batch(1).await;
    town.world
        .script("+447700900123", [Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None })]);
    let done = function(&town).work(batch, event_source::TIMEOUT).await;
    assert!(done.is_empty());
    let row = town.world.row(&run_of("c-0/bill", at(DUE_AT))).expect("a row");
    let back_off = (row.not_before.expect("it waits") - town.clock.now()).to_std().unwrap_or_default();
    let hidden_for = town.world.waiting()[0].hidden_for;
    assert!(hidden_for >= back_off && hidden_for < back_off + Duration::from_secs(1), "{hidden_for:?} {back_off:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_answers_costs_its_siblings_nothing() {
    let (town, batch) = town_and_batch(10).await;
    town.world.script("+447700900123", [Script::NeverAnswers]);
    let done = function(&town).work(batch, event_source::TIMEOUT).await;
    assert_eq!(with_status(&town.world, RunStatus::Succeeded), 9);
    assert_eq!(done.len(), 9, "the tenth comes again: its gateway drops repeats");
}

#[tokio::test(start_paused = true)]
async fn schedulers_and_functions_deliver_each_run_once() {
    let mut town = Town::with(Shards { urgent: 1, standard: 2 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    for n in 0..40 {
        town.add(reminder(&format!("c-{n}/bill"), EVERY_DAY)).await;
    }
    town.start_scheduler("s");
    town.start_function("f1");
    town.start_function("f2");
    let all = |world: &World| with_status(world, RunStatus::Succeeded) == 40 && world.waiting().is_empty();
    assert!(town.until(60, all).await, "{} of 40", with_status(&town.world, RunStatus::Succeeded));
    assert_eq!(town.world.sends().len(), 40);
}

/// Calls within the busiest second.
fn busiest_second(world: &World) -> usize {
    let calls: Vec<_> = world.sends().into_iter().map(|send| send.at).collect();
    let within = |n: usize| calls[..=n].iter().rev().take_while(|at| calls[n] - **at < TimeDelta::seconds(1)).count();
    (0..calls.len()).map(within).max().unwrap_or(0)
}

/// Starts so many environments on a queue that has work for a minute at the limit; calls in the busiest second, and on
/// average.
async fn calls_a_second_of(environments: usize, per_second: u32) -> (usize, f64) {
    const RUNS: usize = 1_800;
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    town.set_sms_limit(per_second).await;
    town.world.set_gateway_latency(Duration::from_millis(50));
    for n in 0..RUNS {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    (0..environments).for_each(|n| town.start_function(&format!("f{n}")));
    tokio::time::sleep(Duration::from_secs(40)).await;
    let calls = town.world.sends().len();
    assert!(calls < RUNS, "there is work all the time");
    town.stop().await;
    (busiest_second(&town.world), calls as f64 / 40.0)
}

#[tokio::test(start_paused = true)]
async fn functions_with_fixed_parts_of_a_limit_stay_within_it_together() {
    let Sharing::Static(most) = event_source::CONCURRENCY else { panic!("functions have fixed parts") };
    for environments in [2, most.get() as usize] {
        let (busiest, average) = calls_a_second_of(environments, 30).await;
        let part = 30.0 * environments as f64 / f64::from(most.get());
        assert!(busiest as f64 <= part, "{environments} environments: {busiest} calls in a second");
        assert!(average > 0.9 * part, "{environments} environments use {average} of {part} a second");
    }
}

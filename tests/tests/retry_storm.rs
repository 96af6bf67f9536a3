//! Many runs that fail together, as when a gateway is down for a moment: their retries do not come together, and every run
//! comes to its end, in memory and in virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::memory::{Script, World};
use punctual_core::payload::Payload;
use punctual_core::process::seed;
use punctual_core::retry::{Outcome, OutcomeClass};
use punctual_core::run::{RunRow, RunStatus};
use punctual_tests::{Town, at, reminder};
use std::collections::BTreeMap;
use std::time::Duration;

const RUNS: usize = 2_000;
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
/// More than the runs need.
const NO_LIMIT_PER_S: u32 = 100_000;
/// The bound of a first wait.
const WINDOW_S: usize = 30;
/// What slots, and hides that are rounded up to whole seconds, may add to a wait.
const ON_TOP_S: f64 = 2.0;
/// 50,000 retries may be 1,900 in their busiest second, and so 2,000 may be 76: of so few chance makes it more. On average
/// 67 come in a second, with a deviation of 8: the busiest of thirty has more than 100 in one of a thousand storms.
const BUSIEST: usize = 100;

/// A town whose runs are due and queued, each for the phone that `phone_of` says.
async fn town(phone_of: impl Fn(usize) -> String) -> Town {
    let town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.set_sms_limit(NO_LIMIT_PER_S).await;
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    for n in 0..RUNS {
        let id = format!("c-{n}/bill");
        let mut spec = reminder(&id, EVERY_DAY);
        spec.payload = Payload::sms(phone_of(n), "Your bill is due");
        town.add(spec).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    town
}

/// Makes the gateway refuse so many calls to a phone as unavailable.
fn refuse(town: &Town, phone: &str, calls: usize) {
    let unavailable = Outcome::Temporary { reason: "503".into(), retry_after: None };
    town.world.script(phone, std::iter::repeat_n(Script::Answer(unavailable), calls));
}

fn own_phone(n: usize) -> String {
    format!("+4477009{n:05}")
}

/// The time between the start of a run's first attempt and of its second, in seconds.
fn between_attempts(row: &RunRow) -> f64 {
    (row.attempts[1].started_at - row.attempts[0].started_at).as_seconds_f64()
}

/// The most attempts but the first that began within any second.
fn busiest_second<'a>(rows: impl Iterator<Item = &'a RunRow>) -> usize {
    let mut retries: Vec<_> = rows.flat_map(|row| row.attempts.iter().skip(1)).map(|a| a.started_at).collect();
    retries.sort();
    (0..retries.len()).map(|n| within_a_second(&retries, n)).max().unwrap_or(0)
}

/// How many are within the second that ends with the n-th of these instants, which are in order.
fn within_a_second(instants: &[DateTime<Utc>], n: usize) -> usize {
    instants[..=n].iter().rev().take_while(|at| instants[n] - **at < TimeDelta::seconds(1)).count()
}

async fn until_over(town: &mut Town, seconds: u64) {
    town.start_worker("w1");
    town.start_worker("w2");
    let is_over = |world: &World| world.waiting().is_empty();
    assert!(town.until_ms(seconds * 1_000, 5_000, is_over).await, "{} wait", town.world.waiting().len());
    town.stop().await;
    let rows = town.world.rows();
    assert_eq!(rows.values().filter(|row| row.status == RunStatus::Succeeded).count(), RUNS);
    assert!(town.world.dead_letters().is_empty());
}

#[tokio::test(start_paused = true)]
async fn runs_that_fail_together_are_retried_spread_over_half_a_minute_and_all_succeed() {
    let mut town = town(own_phone).await;
    (0..RUNS).for_each(|n| refuse(&town, &own_phone(n), 1));
    // A circuit that opens would spread the retries by itself.
    town.work.circuit.failures = 0;
    until_over(&mut town, 120).await;
    let rows = town.world.rows();
    assert_eq!((rows.len(), town.world.sends().len()), (RUNS, 2 * RUNS));
    let first = rows.values().map(|row| row.attempts[0].started_at).min().expect("rows");
    let last = rows.values().map(|row| row.attempts[0].started_at).max().expect("rows");
    assert!((last - first).as_seconds_f64() < 2.0, "they fail together: within {}", last - first);
    let mut seconds: BTreeMap<usize, usize> = BTreeMap::new();
    for (run, row) in &rows {
        assert_eq!(row.attempt, 2, "{run}");
        let history: Vec<_> = row.attempts.iter().map(|attempt| (attempt.n, attempt.class)).collect();
        assert_eq!(history, [(1, Some(OutcomeClass::Temporary)), (2, Some(OutcomeClass::Delivered))], "{run}");
        let wait = between_attempts(row);
        assert!(wait <= WINDOW_S as f64 + ON_TOP_S, "{run} waited for {wait} s");
        *seconds.entry(wait as usize).or_default() += 1;
    }
    assert!(seconds.len() >= WINDOW_S, "not over the whole window: {seconds:?}");
    let busiest = busiest_second(rows.values());
    assert!(busiest <= BUSIEST, "{busiest} began within one second: {seconds:?}");
}

/// The same with a circuit: who is put back by it has made no attempt, and what comes again comes within the limit.
#[tokio::test(start_paused = true)]
async fn an_open_circuit_spares_a_gateway_that_refuses_all_and_nobody_storms_it_when_it_is_well() {
    const REFUSALS: usize = 40;
    const LIMIT: u32 = 450;
    // Who tries a gateway that may be well again is drawn by chance: this is one draw, the same each time.
    seed(1);
    let mut town = town(|_| own_phone(0)).await;
    town.set_sms_limit(LIMIT).await;
    refuse(&town, &own_phone(0), REFUSALS);
    until_over(&mut town, 2_400).await;
    let rows = town.world.rows();
    let attempts: usize = rows.values().map(|row| row.attempts.len()).sum();
    assert_eq!((attempts, town.world.sends().len()), (RUNS + REFUSALS, RUNS + REFUSALS));
    let failed = |row: &RunRow| row.attempts.iter().filter(|a| a.class == Some(OutcomeClass::Temporary)).count();
    assert_eq!(rows.values().map(failed).sum::<usize>(), REFUSALS);
    let most = rows.values().map(|row| row.attempts.len()).max().expect("rows");
    assert!(most <= 4, "one run made {most} attempts: others are to try the gateway too");
    let busiest = busiest_second(rows.values());
    assert!(busiest <= BUSIEST, "{busiest} retries began within one second");
    let calls: Vec<_> = town.world.sends().into_iter().map(|send| send.at).collect();
    let soon = calls.iter().filter(|called_at| **called_at < at(DUE_AT + WINDOW_S as i64)).count();
    assert!(soon <= REFUSALS, "{soon} calls in half a minute, while all are refused");
    let all = (0..calls.len()).map(|n| within_a_second(&calls, n)).max().expect("calls");
    assert!(all <= LIMIT as usize * 105 / 100, "{all} calls within one second");
}

//! Many runs that fail together, as when a gateway is down for a moment: their retries do not come together, and every run
//! comes to its end, in memory and in virtual time.

use punctual_core::due::Shards;
use punctual_core::memory::{Script, World};
use punctual_core::payload::Payload;
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

/// A town whose gateway refuses the first call to each phone as unavailable.
async fn town() -> Town {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.set_sms_limit(NO_LIMIT_PER_S).await;
    // A circuit that opens would spread the retries by itself.
    town.work.circuit.failures = 0;
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    for n in 0..RUNS {
        let (id, phone) = (format!("c-{n}/bill"), format!("+4477009{n:05}"));
        let mut spec = reminder(&id, EVERY_DAY);
        spec.payload = Payload::sms(&phone, "Your bill is due");
        town.add(spec).await;
        let unavailable = Outcome::Temporary { reason: "503".into(), retry_after: None };
        town.world.script(&phone, [Script::Answer(unavailable)]);
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    town
}

/// The time between the start of a run's first attempt and of its second, in seconds.
fn between_attempts(row: &RunRow) -> f64 {
    (row.attempts[1].started_at - row.attempts[0].started_at).as_seconds_f64()
}

#[tokio::test(start_paused = true)]
async fn runs_that_fail_together_are_retried_spread_over_half_a_minute_and_all_succeed() {
    let mut town = town().await;
    town.start_worker("w1");
    town.start_worker("w2");
    let is_over = |world: &World| world.waiting().is_empty();
    assert!(town.until(120, is_over).await, "{} wait", town.world.waiting().len());
    town.stop().await;
    let rows = town.world.rows();
    assert_eq!((rows.len(), town.world.sends().len()), (RUNS, 2 * RUNS));
    assert!(town.world.dead_letters().is_empty());
    let first = rows.values().map(|row| row.attempts[0].started_at).min().expect("rows");
    let last = rows.values().map(|row| row.attempts[0].started_at).max().expect("rows");
    assert!((last - first).as_seconds_f64() < 2.0, "they fail together: within {}", last - first);
    let mut seconds: BTreeMap<usize, usize> = BTreeMap::new();
    for (run, row) in &rows {
        assert_eq!((row.status, row.attempt), (RunStatus::Succeeded, 2), "{run}");
        let history: Vec<_> = row.attempts.iter().map(|attempt| (attempt.n, attempt.class)).collect();
        assert_eq!(history, [(1, Some(OutcomeClass::Temporary)), (2, Some(OutcomeClass::Delivered))], "{run}");
        let wait = between_attempts(row);
        assert!(wait <= WINDOW_S as f64 + ON_TOP_S, "{run} waited for {wait} s");
        *seconds.entry(wait as usize).or_default() += 1;
    }
    assert!(seconds.len() >= WINDOW_S, "not over the whole window: {seconds:?}");
    // On average 67 start in a second.
    let busiest = seconds.values().max().expect("seconds");
    assert!(*busiest <= 2 * RUNS / WINDOW_S, "{busiest} started in one second: {seconds:?}");
}

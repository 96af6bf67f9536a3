//! What becomes of runs, with real worker processes and a gateway that plays a script: the gateway's own counters are the
//! witness, beside the rows.

use chrono::{DateTime, Utc};
use punctual_core::job::JobSpec;
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::{OutcomeClass, RetryRule};
use punctual_core::run::{RunId, RunRow, RunStatus};
use punctual_localstack::gateway::{Behaviour, GatewayConfig};
use punctual_localstack::multicall::WORKER;
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::reminder;
use std::collections::BTreeMap;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const OPTED_OUT: &str = "+447700900101";
const BAD_NUMBER: &str = "+447700900102";
const UNAVAILABLE: &str = "+447700900103";
const SILENT: &str = "+447700900104";
const WELL: &str = "+447700900105";
/// Longer than any attempt here: the gateway has the message, and its answer never comes.
const NO_ANSWER: Behaviour = Behaviour::Slow { ms: 600_000 };
/// Calls that are not answered end soon.
const IMPATIENT: (&str, &str) = ("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "2");
const DROPS_REPEATS: (&str, &str) = ("PUNCTUAL_SMS_DEDUPE_WINDOW_S", "86400");

/// Starts a stack whose gateway plays what is scripted for some phones.
async fn town(
    gateway: GatewayConfig,
    script: &[(&str, &[Behaviour])],
    settings: &[(&'static str, &str)],
) -> anyhow::Result<Local> {
    let script = script.iter().map(|(phone, behaviours)| ((*phone).to_owned(), behaviours.to_vec()));
    let local = Local::start(PROGRAM, GatewayConfig { script: script.collect(), ..gateway }, settings).await?;
    local.punctual(&["setup"]).await?;
    Ok(local)
}

/// Puts a run for each phone into the queue, with five retries, each within a second.
async fn enqueue<'a>(local: &Local, phones: &[&'a str]) -> anyhow::Result<BTreeMap<&'a str, RunId>> {
    let job = |phone: &str, schedule: &str| JobSpec {
        payload: Payload::sms(phone, "Your bill is due"),
        retry: RetryRule::with_waits(&[1; 5]).expect("a valid rule"),
        ..reminder(&format!("c-{}/bill", &phone[10..]), schedule)
    };
    let runs = local.enqueue(1, |schedule| phones.iter().map(|phone| job(phone, schedule)).collect()).await?;
    Ok(phones.iter().copied().zip(runs).collect())
}

/// Puts so many runs into their queue.
async fn enqueue_many(local: &Local, count: usize, priority: Priority) -> anyhow::Result<Vec<RunId>> {
    let job = |n: usize, schedule: &str| JobSpec { priority, ..reminder(&format!("{priority}-{n}/bill"), schedule) };
    local.enqueue(1, |schedule| (0..count).map(|n| job(n, schedule)).collect()).await
}

async fn row(local: &Local, run: &RunId) -> anyhow::Result<Option<RunRow>> {
    Ok(local.ports.runs.get(run).await?)
}

async fn rows(local: &Local, runs: &[RunId]) -> anyhow::Result<Vec<RunRow>> {
    let mut rows = Vec::new();
    for run in runs {
        rows.extend(row(local, run).await?);
    }
    Ok(rows)
}

/// Waits until all these runs have ended and nothing is left in a queue.
async fn wait_for_end(local: &Local, runs: impl IntoIterator<Item = &RunId>) -> anyhow::Result<()> {
    for run in runs {
        eventually(&format!("run {run} has ended"), PATIENCE, async || {
            Ok(row(local, run).await?.is_some_and(|row| row.has_ended()))
        })
        .await?;
    }
    local.wait_until_queues_are_empty(PATIENCE).await
}

fn classes(row: &RunRow) -> Vec<OutcomeClass> {
    row.attempts.iter().filter_map(|attempt| attempt.class).collect()
}

async fn stop(worker: Process) -> anyhow::Result<()> {
    assert!(!worker.log().contains("+4477009"), "a phone number is in the log");
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_gateway_refuses_ends_as_failed_dead_or_sent_once() -> anyhow::Result<()> {
    let script: [(&str, &[Behaviour]); 4] = [
        (OPTED_OUT, &[Behaviour::OptedOut]),
        (BAD_NUMBER, &[Behaviour::BadNumber]),
        (UNAVAILABLE, &[Behaviour::Unavailable { retry_after_s: None }]),
        (SILENT, &[NO_ANSWER, Behaviour::Accept]),
    ];
    let local = town(GatewayConfig::default(), &script, &[IMPATIENT, DROPS_REPEATS]).await?;
    let runs = enqueue(&local, &[OPTED_OUT, BAD_NUMBER, UNAVAILABLE, SILENT, WELL]).await?;
    let worker = local.start_worker("w1")?;
    wait_for_end(&local, runs.values()).await?;
    for (phone, status, attempts, error) in [
        (OPTED_OUT, RunStatus::Failed, vec![OutcomeClass::Permanent], "opted_out"),
        (BAD_NUMBER, RunStatus::Failed, vec![OutcomeClass::Permanent], "bad_number"),
        (UNAVAILABLE, RunStatus::Dead, vec![OutcomeClass::Temporary; 6], "503"),
        (SILENT, RunStatus::Succeeded, vec![OutcomeClass::Unknown, OutcomeClass::Delivered], ""),
        (WELL, RunStatus::Succeeded, vec![OutcomeClass::Delivered], ""),
    ] {
        let row = row(&local, &runs[phone]).await?.expect("it has a row");
        assert_eq!((row.status, classes(&row)), (status, attempts), "{phone}: {:?}", row.error);
        assert!(row.error.unwrap_or_default().contains(error), "{phone}");
    }
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.refused_permanent, stats.unavailable, stats.rejected_429), (2, 6, 0), "{stats:?}");
    assert_eq!((stats.accepted, stats.repeats, stats.repeats_dropped, stats.sent_twice), (2, 1, 1, 0), "{stats:?}");
    assert_eq!(local.ledger.dead_letters(), 1);
    stop(worker).await?;
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_repeats_reach_the_phone_a_call_without_an_answer_is_left_to_a_person() -> anyhow::Result<()> {
    let gateway = GatewayConfig { drops_repeats: false, ..GatewayConfig::default() };
    let local = town(gateway, &[(SILENT, &[NO_ANSWER, Behaviour::Accept])], &[IMPATIENT]).await?;
    let runs = enqueue(&local, &[SILENT, WELL]).await?;
    let worker = local.start_worker("w1")?;
    wait_for_end(&local, runs.values()).await?;
    let left = row(&local, &runs[SILENT]).await?.expect("it has a row");
    assert_eq!((left.status, classes(&left)), (RunStatus::Indeterminate, vec![OutcomeClass::Unknown]));
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats, stats.sent_twice), (2, 0, 0), "{stats:?}");
    assert_eq!(local.ledger.dead_letters(), 1);
    stop(worker).await?;
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_three_times_the_visibility_is_made_once_and_recorded() -> anyhow::Result<()> {
    let settings = [
        ("PUNCTUAL_WORK_HEARTBEAT_S", "1"),
        ("PUNCTUAL_WORK_TRUST_S", "3"),
        ("PUNCTUAL_WORK_VISIBILITY_S", "4"),
        ("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "20"),
        ("PUNCTUAL_WORK_TAKEOVER_GRACE_S", "1"),
    ];
    let gateway = GatewayConfig { drops_repeats: false, ..GatewayConfig::default() };
    let local = town(gateway, &[(SILENT, &[Behaviour::Slow { ms: 12_000 }])], &settings).await?;
    let runs = enqueue(&local, &[SILENT]).await?;
    let workers = [local.start_worker("w1")?, local.start_worker("w2")?];
    wait_for_end(&local, runs.values()).await?;
    let row = row(&local, &runs[SILENT]).await?.expect("it has a row");
    assert_eq!((row.status, classes(&row)), (RunStatus::Succeeded, vec![OutcomeClass::Delivered]));
    let took = row.attempts[0].ended_at.expect("it has ended") - row.attempts[0].started_at;
    assert!(took.num_seconds() >= 12, "{took}");
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats), (1, 0), "{stats:?}");
    assert_eq!(local.ledger.dead_letters(), 0);
    for worker in workers {
        stop(worker).await?;
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_told_to_stop_ends_its_calls_in_time_and_leaves_the_rest_to_others() -> anyhow::Result<()> {
    const RUNS: usize = 60;
    const STOP_S: i64 = 10;
    let settings = [("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "5"), ("PUNCTUAL_WORK_STOP_S", "10")];
    let gateway = GatewayConfig { drops_repeats: false, latency: Duration::from_secs(2), ..GatewayConfig::default() };
    let local = town(gateway, &[], &settings).await?;
    let runs = enqueue_many(&local, RUNS, Priority::Normal).await?;
    let worker = local.start_worker("w1")?;
    let sent = || local.stack.gateway().stats().accepted as usize;
    eventually("calls are under way", PATIENCE, async || Ok(sent() >= 10)).await?;
    let told_at = local.now();
    stop(worker).await?;
    let took = local.now() - told_at;
    assert!(took.num_seconds() <= STOP_S, "it took {took} to stop");
    let begun = rows(&local, &runs).await?;
    assert!(begun.iter().all(|row| row.status == RunStatus::Succeeded), "{begun:?}");
    assert!(begun.len() == sent() && begun.len() < RUNS, "{} rows, {} sent", begun.len(), sent());
    let depth = local.ports.queue.depth(Priority::Normal).await?;
    assert_eq!((depth.visible, depth.in_flight), ((RUNS - sent()) as u64, 0), "the rest is there at once");
    let other = local.start_worker("w2")?;
    wait_for_end(&local, &runs).await?;
    let rows = rows(&local, &runs).await?;
    assert!(rows.iter().all(|row| (row.status, row.attempt) == (RunStatus::Succeeded, 1)), "{rows:?}");
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats), (RUNS as u64, 0), "{stats:?}");
    stop(other).await?;
    local.stack.stop().await;
    Ok(())
}

/// The most attempts that were under way at once.
fn most_at_once(rows: &[RunRow]) -> usize {
    let attempts = || rows.iter().flat_map(|row| &row.attempts);
    let is_under_way = |at: DateTime<Utc>| {
        attempts().filter(|a| a.started_at <= at && a.ended_at.is_none_or(|ended| at < ended)).count()
    };
    attempts().map(|attempt| is_under_way(attempt.started_at)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_kept_for_urgent_runs_gives_them_all_its_slots_and_touches_no_others() -> anyhow::Result<()> {
    const SLOTS: usize = 8;
    let gateway = GatewayConfig { latency: Duration::from_secs(2), ..GatewayConfig::default() };
    let local = town(gateway, &[], &[]).await?;
    let normal = enqueue_many(&local, 20, Priority::Normal).await?;
    let urgent = enqueue_many(&local, 3 * SLOTS, Priority::Urgent).await?;
    let options = ["--id", "w1", "--priorities", "urgent", "--slots", &SLOTS.to_string()];
    let worker = local.start_process("w1", WORKER, &options)?;
    eventually("the urgent runs have ended", PATIENCE, async || {
        Ok(rows(&local, &urgent).await?.iter().filter(|row| row.status == RunStatus::Succeeded).count() == urgent.len())
    })
    .await?;
    assert_eq!(most_at_once(&rows(&local, &urgent).await?), SLOTS);
    assert!(rows(&local, &normal).await?.is_empty(), "a run that is not urgent was touched");
    let depth = local.ports.queue.depth(Priority::Normal).await?;
    assert_eq!((depth.visible, depth.in_flight), (normal.len() as u64, 0), "one was received");
    assert_eq!(local.stack.gateway().stats().accepted, urgent.len() as u64);
    stop(worker).await?;
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_check_says_no_while_the_process_stands_still() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("alive").display().to_string();
    let local = town(GatewayConfig::default(), &[], &[]).await?;
    let says = async |code: i32| {
        let output = local.run_worker(&["--alive-file", &file, "--check-alive"]).await?;
        Ok(output.status.code() == Some(code))
    };
    assert!(says(1).await?, "there is no worker yet");
    let worker = local.start_process("w1", WORKER, &["--id", "w1", "--alive-file", &file])?;
    eventually("the check says yes", PATIENCE, async || says(0).await).await?;
    worker.freeze()?;
    assert!(says(0).await?, "a moment is not to stand still");
    eventually("the check says no", PATIENCE, async || says(1).await).await?;
    worker.thaw()?;
    eventually("the check says yes again", PATIENCE, async || says(0).await).await?;
    stop(worker).await?;
    local.stack.stop().await;
    Ok(())
}

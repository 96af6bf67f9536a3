//! Worker processes that are killed after the gateway took a message and before that is recorded, the one gap in which a
//! repeat can reach a customer: what becomes of the run under each policy. The gateway counts.

use punctual_core::job::JobSpec;
use punctual_core::payload::Payload;
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{RunRow, RunStatus};
use punctual_localstack::gateway::{Behaviour, GatewayConfig, GatewayStats};
use punctual_localstack::multicall::WORKER;
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::reminder;
use std::collections::BTreeMap;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const PHONE: &str = "+447700900123";
const ID: &str = "c-1/bill";
/// Shorter than the default, so that a run is taken over some ten seconds after its worker's end.
const TIMES: [(&str, &str); 5] = [
    ("PUNCTUAL_WORK_VISIBILITY_S", "8"),
    ("PUNCTUAL_WORK_TRUST_S", "6"),
    ("PUNCTUAL_WORK_HEARTBEAT_S", "2"),
    ("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "5"),
    ("PUNCTUAL_WORK_TAKEOVER_GRACE_S", "1"),
];

/// What became of a run whose worker was killed.
struct After {
    row: RunRow,
    gateway: GatewayStats,
    dead_letters: usize,
}

fn start(local: &Local, name: &str, policy: &[&str]) -> anyhow::Result<Process> {
    local.start_process(name, WORKER, &[&["--id", name], policy].concat())
}

/// Kills a worker while the gateway that took its message keeps the answer back, and lets another go on.
async fn killed_before_record(drops_repeats: bool, policy: &[&str]) -> anyhow::Result<After> {
    let script = BTreeMap::from([(PHONE.to_owned(), vec![Behaviour::Slow { ms: 4_000 }, Behaviour::Accept])]);
    let gateway = GatewayConfig { drops_repeats, script, ..GatewayConfig::default() };
    let local = Local::start(PROGRAM, gateway, &TIMES).await?;
    local.punctual(&["setup"]).await?;
    let spec = |schedule: &str| JobSpec { payload: Payload::sms(PHONE, "Your bill is due"), ..reminder(ID, schedule) };
    let run = local.enqueue(1, |schedule| vec![spec(schedule)]).await?.remove(0);
    let killed = start(&local, "w1", policy)?;
    eventually("the gateway has the message", PATIENCE, async || Ok(local.stack.gateway().stats().accepted == 1))
        .await?;
    killed.kill().await?;
    let row = local.ports.runs.get(&run).await?;
    assert_eq!(row.map(|row| row.status), Some(RunStatus::Running), "killed before the record");
    let other = start(&local, "w2", policy)?;
    eventually("the run has ended", PATIENCE, async || {
        Ok(local.ports.runs.get(&run).await?.is_some_and(|row| row.has_ended()))
    })
    .await?;
    local.wait_until_queues_are_empty(PATIENCE).await?;
    other.stop().await?;
    let row = local.ports.runs.get(&run).await?.expect("the run has a row");
    let after = After { row, gateway: local.stack.gateway().stats(), dead_letters: local.ledger.dead_letters() };
    local.stack.stop().await;
    Ok(after)
}

fn classes(row: &RunRow) -> Vec<Option<OutcomeClass>> {
    row.attempts.iter().map(|attempt| attempt.class).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_gateway_drops_repeats_a_worker_killed_before_its_record_costs_no_second_message() {
    let policy = ["--sms-dedupe-window-s", "86400", "--sms-on-takeover", "hold"];
    let After { row, gateway, dead_letters } = killed_before_record(true, &policy).await.expect("the run ends");
    assert_eq!(row.status, RunStatus::Succeeded);
    assert_eq!(classes(&row), [Some(OutcomeClass::Lost), Some(OutcomeClass::Delivered)]);
    assert_eq!((gateway.accepted, gateway.repeats, gateway.repeats_dropped, gateway.sent_twice), (1, 1, 1, 0));
    assert_eq!(dead_letters, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elsewhere_its_run_is_sent_again_where_the_policy_says_so_and_the_repeat_is_counted() {
    let policy = ["--sms-on-takeover", "retry"];
    let After { row, gateway, dead_letters } = killed_before_record(false, &policy).await.expect("the run ends");
    assert_eq!(row.status, RunStatus::Succeeded);
    assert_eq!(classes(&row), [Some(OutcomeClass::Lost), Some(OutcomeClass::Delivered)]);
    assert_eq!((gateway.accepted, gateway.repeats, gateway.repeats_dropped, gateway.sent_twice), (1, 1, 0, 1));
    assert_eq!(dead_letters, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elsewhere_its_run_goes_to_a_person_where_the_policy_says_so_and_is_not_sent_again() {
    let policy = ["--sms-on-takeover", "hold"];
    let After { row, gateway, dead_letters } = killed_before_record(false, &policy).await.expect("the run ends");
    assert_eq!(row.status, RunStatus::Indeterminate);
    assert_eq!(classes(&row), [Some(OutcomeClass::Lost)]);
    assert_eq!((gateway.accepted, gateway.repeats, gateway.sent_twice), (1, 0, 0));
    assert_eq!(dead_letters, 1);
}

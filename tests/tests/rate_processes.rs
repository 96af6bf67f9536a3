//! Limits and holds with real worker processes, killed and stopped by the system; the gateway's own counters are the
//! witness.

use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::reminder;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);
const MOVES_WITHIN: Duration = Duration::from_secs(2);
const LIMIT: u32 = 60;
const SLOTS: u32 = 2;

/// A stack with a limit and so many runs in a queue. The gateway takes the limit, a twentieth of it, and what so many
/// workers can have on its way when a busy machine hands it on in one piece; one call more in any second is answered 429.
async fn town(workers: u32, runs: usize) -> anyhow::Result<Local> {
    let per_second_cap = LIMIT + LIMIT / 20 + workers * SLOTS;
    let gateway = GatewayConfig { per_second_cap, ..GatewayConfig::default() };
    let slots = SLOTS.to_string();
    let settings =
        [("PUNCTUAL_WORK_SLOTS", slots.as_str()), ("PUNCTUAL_SMS_DEDUPE_WINDOW_S", "86400"), ("USER", "ann")];
    let local = Local::start(PROGRAM, gateway, &settings).await?;
    local.punctual(&["setup"]).await?;
    assert_eq!(
        local.punctual(&["rates", "set", "sms", &LIMIT.to_string()]).await?,
        "sms: 60 calls a second, within 10 s\n"
    );
    let jobs = |schedule: &str| (0..runs).map(|n| reminder(&format!("c-{n}/bill"), schedule)).collect();
    local.enqueue(1, jobs).await?;
    Ok(local)
}

fn start_workers(local: &Local, count: u32) -> anyhow::Result<Vec<Process>> {
    (1..=count).map(|n| local.start_worker(&format!("w{n}"))).collect()
}

async fn wait_for_calls(local: &Local, more: u64) -> anyhow::Result<()> {
    let before = local.stack.gateway().stats().accepted;
    let what = format!("{more} more calls arrive");
    eventually(&what, PATIENCE, async || Ok(local.stack.gateway().stats().accepted >= before + more)).await
}

/// What the gateway saw was within the limit, and each run reached it once.
fn assert_within_limit(local: &Local) {
    let stats = local.stack.gateway().stats();
    println!("{} accepted, {} in the busiest second, limit {LIMIT}", stats.accepted, stats.peak_per_s);
    assert_eq!((stats.rejected_429, stats.sent_twice), (0, 0), "{stats:?}");
}

async fn kill_and_freeze() -> anyhow::Result<()> {
    let local = town(5, 2_000).await?;
    let mut workers = start_workers(&local, 5)?;
    local.wait_for_shares(5, PATIENCE).await?;
    let from = local.now();
    wait_for_calls(&local, 3 * u64::from(LIMIT)).await?;
    println!("{:.1} s for three seconds' calls of five workers", (local.now() - from).as_seconds_f64());
    for worker in workers.drain(..2) {
        worker.kill().await?;
    }
    local.wait_for_shares(3, LEASE + MOVES_WITHIN).await?;
    workers[0].freeze()?;
    local.wait_for_shares(2, LEASE + MOVES_WITHIN).await?;
    workers[0].thaw()?;
    local.wait_for_shares(3, PATIENCE).await?;
    wait_for_calls(&local, 2 * u64::from(LIMIT)).await?;
    assert_within_limit(&local);
    for worker in workers {
        assert_eq!(worker.errors(), [""; 0]);
        worker.stop().await?;
    }
    assert_eq!(local.shares().await?.held(), 0, "who stops in order leaves its shares");
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_never_sees_more_than_the_limit_while_workers_are_killed_and_stopped_and_go_on() {
    kill_and_freeze().await.expect("everything comes to its end");
}

async fn status(local: &Local) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&local.punctual(&["status", "--json"]).await?)?)
}

async fn steer_under_load() -> anyhow::Result<()> {
    let local = town(2, 900).await?;
    let workers = start_workers(&local, 2)?;
    local.wait_for_shares(2, PATIENCE).await?;
    wait_for_calls(&local, u64::from(LIMIT)).await?;

    let said = local.punctual(&["hold", "target", "sms", "--why", "the gateway is being mended"]).await?;
    assert_eq!(said, "target sms is held: within 5 s nothing more of it is begun\n");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held_at = local.stack.gateway().stats().accepted;
    let again = local.punctual(&["hold", "target", "sms", "--why", "the gateway is being mended"]).await?;
    assert_eq!(again, "target sms is held already\n");
    let shown = status(&local).await?;
    assert_eq!((&shown["holds"][0]["scope"], &shown["holds"][0]["by"]), (&"target/sms".into(), &"ann".into()));
    assert_eq!((&shown["limits"][0]["per_second"], &shown["limits"][0]["shares_free"]), (&LIMIT.into(), &0.into()));
    assert_eq!(shown["limits"][0]["shares"].as_object().map(|shares| shares.len()), Some(2), "{shown:#}");
    let table = local.punctual(&["hold", "list"]).await?;
    assert!(table.contains("target sms") && table.contains("the gateway is being mended"), "{table}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(local.stack.gateway().stats().accepted, held_at, "something was sent under the hold");

    assert_eq!(local.punctual(&["rates", "set", "sms", "40"]).await?, "sms: 40 calls a second, within 10 s\n");
    let said = local.punctual(&["release", "target", "sms"]).await?;
    assert_eq!(said, "target sms is released; nothing is held any more\n");
    assert_eq!(local.punctual(&["release", "target", "sms"]).await?, "target sms was not held\n");
    wait_for_calls(&local, 100).await?;
    assert_within_limit(&local);
    for (words, problem) in [
        (&["rates", "set", "sms", "0"][..], "use a hold"),
        (&["rates", "set", "pager", "5"], "a target is"),
        (&["hold", "tenant", "a b", "--why", "x"], "letters, digits"),
        (&["hold", "all", "--why", " "], "a reason"),
        (&["hold", "priority", "low", "--why", "x"], "urgent"),
    ] {
        let refused = local.run(words).await?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(problem), "{words:?}: {said}");
    }
    let rates: serde_json::Value = serde_json::from_str(&local.punctual(&["rates", "--json"]).await?)?;
    assert_eq!(rates["items"][0]["per_second"], 40);
    assert_eq!(local.punctual(&["rates", "unset", "sms"]).await?, "sms: 450 calls a second, within 10 s\n");
    assert!(local.punctual(&["rates"]).await?.contains("the default"));
    for worker in workers {
        worker.stop().await?;
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_limits_and_holds_reach_running_workers() {
    steer_under_load().await.expect("everything comes to its end");
}

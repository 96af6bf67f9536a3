//! The real binary as a Lambda function, driven by a server with Lambda's Runtime API, on the embedded stack.

use anyhow::{Context, ensure};
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::payload::Payload;
use punctual_core::ports::BATCH;
use punctual_core::priority::Priority;
use punctual_core::schedule::whole_second;
use punctual_core::telemetry::rules::event::Rules;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::{Behaviour, GatewayConfig};
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::reminder;
use punctual_tests::runtime_api::RuntimeApi;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(30);
const VISIBILITY: Duration = Duration::from_secs(180);
const QUEUE: &str = "punctual-normal";

/// A stack, a scheduler that has enqueued `jobs` runs, and the queue's messages waiting.
async fn enqueued(jobs: usize, gateway: GatewayConfig) -> anyhow::Result<Local> {
    let local = Local::start(PROGRAM, gateway, &[]).await?;
    local.punctual(&["setup"]).await?;
    let due_at = whole_second(local.now()) + TimeDelta::seconds(4);
    let schedule = format!("every 24h from {}", due_at.to_rfc3339_opts(SecondsFormat::Secs, true));
    let specs = (0..jobs).map(|n| {
        let mut spec = reminder(&format!("c-{n}/bill"), &schedule);
        spec.payload = Payload::sms(format!("+4477009{n:05}"), "Your bill is due");
        spec
    });
    local.load(specs, local.now(), &Zones::embedded()).await?;
    let scheduler = local.start_scheduler("s1", &[])?;
    eventually("all is enqueued", PATIENCE, async || Ok(local.ledger.len() >= jobs)).await?;
    scheduler.stop().await?;
    Ok(local)
}

/// Hands the queue's messages to the function, batch by batch, until the gateway has accepted so many; looks after each
/// invocation. Returns how many messages were handed in.
async fn work_off(
    local: &Local,
    api: &RuntimeApi,
    function: &mut Process,
    accepted: u64,
    mut look: impl FnMut(&Process, usize) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let (mut invocations, mut handed_in) = (0, 0);
    eventually("all that can be is delivered", PATIENCE, async || {
        function.check()?;
        let batch = local.ports.queue.receive(Priority::Normal, BATCH, Duration::from_secs(1), VISIBILITY).await?;
        if !batch.is_empty() {
            (invocations, handed_in) = (invocations + 1, handed_in + batch.len());
            let done = api
                .invoke(&format!("i-{invocations}"), QUEUE, &batch, TIMEOUT)
                .await
                .with_context(|| function.log())?;
            local.ports.queue.delete(Priority::Normal, &done.into_iter().collect::<Vec<_>>()).await?;
            look(function, handed_in)?;
        }
        Ok(local.stack.gateway().stats().accepted == accepted)
    })
    .await?;
    Ok(handed_in)
}

/// A gateway that is not there for the first call to one phone.
fn unavailable_once() -> GatewayConfig {
    let mut gateway = GatewayConfig::default();
    gateway
        .script
        .insert("+447700900007".into(), vec![Behaviour::Unavailable { retry_after_s: None }, Behaviour::Accept]);
    gateway
}

#[tokio::test]
async fn the_binary_works_through_a_queue_as_a_function_and_reports_what_failed() -> anyhow::Result<()> {
    const JOBS: usize = 40;
    let local = enqueued(JOBS, unavailable_once()).await?;
    let api = RuntimeApi::start().await?;
    let mut function = local.start_function("f1", &api.address.to_string(), &["--max-concurrency", "1"])?;
    work_off(&local, &api, &mut function, JOBS as u64 - 1, |_, _| Ok(())).await?;
    let depth = local.ports.queue.depth(Priority::Normal).await?;
    assert_eq!((depth.visible, depth.in_flight), (0, 1), "one waits for its back-off");
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.repeats, stats.rejected_429, stats.unavailable), (0, 0, 1));
    assert!(function.errors().is_empty(), "{:?}", function.errors());
    assert!(!function.log().contains("+4477009"), "a phone number is in the log");
    Ok(())
}

/// The sum of what all lines tell of a metric with this label; of a histogram, its samples.
fn told(events: &[Value], metric: &str, label: Option<(&str, &str)>) -> u64 {
    let has_it = |event: &&Value| label.is_none_or(|(name, value)| event[name] == value);
    let figure = |figure: &Value| match figure["Counts"].as_array() {
        Some(counts) => counts.iter().filter_map(Value::as_u64).sum(),
        None => figure.as_u64().unwrap_or_default(),
    };
    events.iter().filter(has_it).map(|event| figure(&event[metric])).sum()
}

#[tokio::test]
async fn at_the_end_of_each_invocation_the_binary_has_told_all_of_it_in_lines_that_keep_to_the_format()
-> anyhow::Result<()> {
    const JOBS: usize = 30;
    let local = enqueued(JOBS, unavailable_once()).await?;
    let api = RuntimeApi::start().await?;
    let mut function = local.start_function("f1", &api.address.to_string(), &["--max-concurrency", "1"])?;
    let (rules, mut lines) = (Rules::default(), 0);
    assert_eq!(function.output(), "");
    work_off(&local, &api, &mut function, JOBS as u64 - 1, |function, handed_in| {
        let output = function.output();
        let events = output.lines().map(|line| rules.check(line)).collect::<Result<Vec<_>, _>>();
        let events = events.map_err(anyhow::Error::msg)?;
        ensure!(output.ends_with('\n') && events.len() > lines, "{lines} lines before, {} now", events.len());
        lines = events.len();
        ensure!(events.iter().all(|event| event["service"] == "worker"));
        let stats = local.stack.gateway().stats();
        let by_outcome = ["delivered", "temporary", "permanent", "unknown", "lost"]
            .map(|outcome| told(&events, "punctual_attempts_total", Some(("outcome", outcome))));
        ensure!(by_outcome == [stats.accepted, stats.unavailable, 0, 0, 0], "{by_outcome:?} of {stats:?}");
        ensure!(told(&events, "punctual_messages_received_total", None) == handed_in as u64);
        ensure!(told(&events, "punctual_runs_ended_total", Some(("status", "succeeded"))) == stats.accepted);
        let calls = stats.accepted + stats.unavailable;
        ensure!(told(&events, "punctual_attempt_duration_seconds", Some(("handler", "sms"))) == calls);
        ensure!(told(&events, "punctual_start_lag_seconds", Some(("priority", "normal"))) == calls);
        Ok(())
    })
    .await?;
    assert_eq!(local.stack.gateway().stats().unavailable, 1);
    Ok(())
}

#[tokio::test]
async fn the_binary_delivers_while_its_log_takes_nothing() -> anyhow::Result<()> {
    const JOBS: usize = 30;
    let mut local = enqueued(JOBS, GatewayConfig::default()).await?;
    let api = RuntimeApi::start().await?;
    local.fill_disk();
    let mut function = local.start_function("f1", &api.address.to_string(), &["--max-concurrency", "1"])?;
    let handed_in = work_off(&local, &api, &mut function, JOBS as u64, |_, _| Ok(())).await?;
    let depth = local.ports.queue.depth(Priority::Normal).await?;
    assert_eq!((handed_in, depth.visible, depth.in_flight), (JOBS, 0, 0));
    assert_eq!((function.log(), function.output()), (String::new(), String::new()), "nothing could be written");
    function.check()
}

#[tokio::test]
async fn the_binary_gives_back_what_it_cannot_finish_and_lives_on() -> anyhow::Result<()> {
    let gateway = GatewayConfig { latency: Duration::from_secs(2), ..GatewayConfig::default() };
    let local = enqueued(10, gateway).await?;
    let api = RuntimeApi::start().await?;
    let options = ["--slots", "1", "--attempt-timeout-s", "5", "--max-concurrency", "1"];
    let function = local.start_function("f1", &api.address.to_string(), &options)?;
    let receive = async || local.ports.queue.receive(Priority::Normal, BATCH, Duration::ZERO, VISIBILITY).await;
    let mut done = BTreeMap::new();
    for n in 0..2 {
        let batch = receive().await?;
        assert!(!batch.is_empty(), "what was given back is there at once");
        let receipts = api
            .invoke(&format!("i-{n}"), QUEUE, &batch, Duration::from_secs(16))
            .await
            .with_context(|| function.log())?;
        done.insert(n, (batch.len(), receipts.len()));
        local.ports.queue.delete(Priority::Normal, &receipts.into_iter().collect::<Vec<_>>()).await?;
    }
    // Five seconds of sixteen are left to begin in: three calls of two seconds.
    assert!(done.values().all(|(batch, done)| (1..=4).contains(done) && done < batch), "{done:?}");
    let attempted = local.stack.gateway().stats().accepted as usize;
    assert_eq!(attempted, done.values().map(|(_, done)| done).sum::<usize>(), "nothing was begun and not ended");
    assert!(function.errors().is_empty(), "{:?}", function.errors());
    Ok(())
}

//! What the alarms go by, through an outage: all schedulers are gone for two minutes while workers go on, a worker dies in
//! the middle of its calls, and everything comes back.

use crate::{PATIENCE, PROGRAM};
use anyhow::ensure;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::future::try_join_all;
use punctual_core::heartbeat;
use punctual_core::job::JobSpec;
use punctual_core::missed::{Many, MissedRule};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::schedule::whole_second;
use punctual_core::telemetry::rules::text::Text;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::{Behaviour, GatewayConfig};
use punctual_localstack::multicall::WORKER;
use punctual_tests::local::{Local, Process, Sent, eventually};
use punctual_tests::reminder;
use punctual_tests::scrape::{Metrics, sum};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long no scheduler is there.
const OUTAGE: TimeDelta = TimeDelta::minutes(2);
/// From the beginning to the first beat of the heartbeat.
const LEAD: TimeDelta = TimeDelta::seconds(12);
/// Reminders fire each minute, so long after the heartbeat.
const BEHIND_THE_BEAT: TimeDelta = TimeDelta::seconds(40);
/// Jobs with a firing each minute, urgent and normal by turns.
const MINUTELY: usize = 20;
/// Runs whose worker dies.
const STUCK: usize = 5;
/// The figures are looked at so often while nothing happens.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Shorter leases than the default, so that a run is taken over some twenty seconds after its worker's end, and time enough
/// for a slow call.
const TIMES: [(&str, &str); 5] = [
    ("PUNCTUAL_WORK_VISIBILITY_S", "8"),
    ("PUNCTUAL_WORK_TRUST_S", "6"),
    ("PUNCTUAL_WORK_HEARTBEAT_S", "2"),
    ("PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", "12"),
    ("PUNCTUAL_WORK_TAKEOVER_GRACE_S", "1"),
];
/// Nothing is sent long ahead, so that what falls due in the outage is not in the queues before it.
const LOOK_AHEAD: [&str; 2] = ["--look-ahead-s", "5"];

/// Messages by priority and state; what is nought is left out.
type Backlog = BTreeMap<(&'static str, &'static str), u64>;

fn phone(n: usize) -> String {
    format!("+4477009{n:05}")
}

/// A gateway that keeps the first answers to these runs back for longer than their worker lives, and the second ones for
/// long enough that it is seen.
fn gateway() -> GatewayConfig {
    let slowly = |ms| Behaviour::Slow { ms };
    let script = (0..STUCK).map(|n| (phone(n), vec![slowly(30_000), slowly(9_000), Behaviour::Accept])).collect();
    GatewayConfig { script, ..GatewayConfig::default() }
}

fn text_message(id: &str, n: usize, schedule: &str, priority: Priority) -> JobSpec {
    let missed = MissedRule { many: Many::All, ..MissedRule::default() };
    JobSpec { priority, missed, payload: Payload::sms(phone(n), "Your bill is due"), ..reminder(id, schedule) }
}

/// The heartbeat, the minutely reminders, and what waits for a worker that will die; the first beat is at `beat`.
async fn load(local: &Local, beat: DateTime<Utc>) -> anyhow::Result<()> {
    let (zones, made_at) = (Zones::embedded(), beat - TimeDelta::minutes(1));
    let word = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let minutely = format!("every 1m from {}", word(beat + BEHIND_THE_BEAT));
    let by_turns = [Priority::Urgent, Priority::Normal];
    let minutely = (0..MINUTELY).map(|n| text_message(&format!("m-{n}"), 100 + n, &minutely, by_turns[n % 2]));
    let once = format!("at {}", word(beat));
    let stuck = (0..STUCK).map(|n| text_message(&format!("stuck-{n}"), n, &once, Priority::Bulk));
    let specs: Vec<JobSpec> = minutely.chain(stuck).chain([heartbeat::spec(made_at, &zones)?]).collect();
    local.load(specs, made_at, &zones).await
}

fn start_worker(local: &Local, name: &str, priorities: &str) -> anyhow::Result<Process> {
    local.start_process(name, WORKER, &["--id", name, "--priorities", priorities])
}

/// Copies, and where they tell their metrics.
async fn start_copies(local: &Local, names: [&str; 2]) -> anyhow::Result<(Vec<Process>, Vec<Metrics>)> {
    let copies =
        names.map(|name| local.start_scheduler(name, &LOOK_AHEAD)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let metrics = try_join_all(copies.iter().map(Metrics::of)).await?;
    Ok((copies, metrics))
}

async fn read_all(of: &[Metrics]) -> anyhow::Result<Vec<Text>> {
    try_join_all(of.iter().map(Metrics::read)).await
}

/// The backlog as the copies tell it, the maximum over them as the guide says; none while none has looked.
fn told_backlog(texts: &[Text]) -> Option<Backlog> {
    let mut told = None;
    for priority in Priority::ALL.map(Priority::as_str) {
        for state in ["visible", "in_flight", "delayed"] {
            let labels = [("priority", priority), ("state", state)];
            let most = texts.iter().flat_map(|text| text.of("punctual_queue_messages", &labels)).reduce(f64::max);
            if let Some(messages) = most {
                let told: &mut Backlog = told.get_or_insert_default();
                if messages > 0.0 {
                    told.insert((priority, state), messages as u64);
                }
            }
        }
    }
    told
}

/// The backlog as the queues have it.
async fn real_backlog(local: &Local) -> anyhow::Result<Backlog> {
    let mut real = Backlog::new();
    for priority in Priority::ALL {
        let depth = local.ports.queue.depth(priority).await?;
        for (state, messages) in
            [("visible", depth.visible), ("in_flight", depth.in_flight), ("delayed", depth.delayed)]
        {
            if messages > 0 {
                real.insert((priority.as_str(), state), messages);
            }
        }
    }
    Ok(real)
}

fn max_of(texts: &[Text], name: &str) -> f64 {
    texts.iter().flat_map(|text| text.of(name, &[])).fold(0.0, f64::max)
}

fn sum_of(texts: &[Text], name: &str, having: &[(&str, &str)]) -> f64 {
    texts.iter().map(|text| sum(text, name, having)).sum()
}

/// Samples of dispatch's lag: all, and those of at most so many seconds (a bound of the table).
fn lags(texts: &[Text], at_most: &str) -> (f64, f64) {
    let of = |name, having: &[(&str, &str)]| sum_of(texts, name, having);
    (of("punctual_dispatch_lag_seconds_count", &[]), of("punctual_dispatch_lag_seconds_bucket", &[("le", at_most)]))
}

fn unix(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1_000.0
}

/// The guide's expression without its figure: seconds since the last beat.
async fn heartbeat_age(local: &Local, worker: &Metrics) -> anyhow::Result<f64> {
    Ok(unix(local.now()) - max_of(&[worker.read().await?], "punctual_heartbeat_timestamp_seconds"))
}

/// All is well: the heart beats, every shard is held, and the backlog is what the queues have.
async fn before(local: &Local, copies: &[Metrics], worker: &Metrics) -> anyhow::Result<()> {
    eventually("the heart beats", PATIENCE, async || Ok(heartbeat_age(local, worker).await? < 60.0)).await?;
    let waits = Backlog::from([(("bulk", "visible"), STUCK as u64)]);
    eventually("the backlog is told, and every shard is held", PATIENCE, async || {
        let texts = read_all(copies).await?;
        Ok(told_backlog(&texts).as_ref() == Some(&waits) && sum_of(&texts, "punctual_shards_held", &[]) == 32.0)
    })
    .await?;
    ensure!(real_backlog(local).await? == waits);
    is_cursor_well(copies).await
}

/// The guide's six to seven minutes, and what the shards' first passes take.
async fn is_cursor_well(copies: &[Metrics]) -> anyhow::Result<()> {
    eventually("no cursor lies further back than it should", PATIENCE, async || {
        let age = max_of(&read_all(copies).await?, "punctual_cursor_age_seconds");
        Ok((360.0..430.0).contains(&age))
    })
    .await
}

/// A worker dies of its calls, and another takes its runs over.
async fn worker_dies(local: &Local) -> anyhow::Result<()> {
    let began = local.stack.gateway().stats().accepted;
    let dies = start_worker(local, "w2", "bulk")?;
    let all_are_called = began + STUCK as u64;
    eventually("it has called", PATIENCE, async || Ok(local.stack.gateway().stats().accepted == all_are_called))
        .await?;
    dies.kill().await?;
    let other = start_worker(local, "w3", "bulk")?;
    let metrics = Metrics::of(&other).await?;
    let is_stuck = async || metrics.sum("punctual_runs_stuck", &[]).await;
    ensure!(is_stuck().await? == 0.0, "their leases have not ended yet");
    eventually("they are stuck", PATIENCE, async || Ok(is_stuck().await? == STUCK as f64)).await?;
    ensure!(metrics.sum("punctual_takeovers_total", &[]).await? == STUCK as f64);
    eventually("none is stuck any more", PATIENCE, async || Ok(is_stuck().await? == 0.0)).await?;
    let says = metrics.read().await?;
    let attempts = |outcome| sum(&says, "punctual_attempts_total", &[("handler", "sms"), ("outcome", outcome)]);
    ensure!((attempts("lost"), attempts("delivered")) == (STUCK as f64, STUCK as f64), "{says:?}");
    ensure!(sum(&says, "punctual_runs_in_flight", &[]) == 0.0);
    other.stop().await
}

/// No scheduler is there until `until`: the heart does not beat, and nothing is enqueued.
async fn silence(local: &Local, worker: &Metrics, until: DateTime<Utc>) -> anyhow::Result<()> {
    let (last_beat, enqueued) = (heartbeat_at(worker).await?, local.ledger.len());
    while local.now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        let says = worker.read().await?;
        ensure!(sum(&says, "punctual_heartbeat_timestamp_seconds", &[]) == last_beat, "it beats");
        // This worker has nothing to do with the one that dies.
        ensure!(sum(&says, "punctual_runs_stuck", &[]) == 0.0);
    }
    ensure!(local.ledger.len() == enqueued);
    Ok(())
}

async fn heartbeat_at(worker: &Metrics) -> anyhow::Result<f64> {
    worker.sum("punctual_heartbeat_timestamp_seconds", &[]).await
}

/// The minutely firings from the first on that are due by now.
fn owed(first: DateTime<Utc>, now: DateTime<Utc>) -> BTreeSet<(String, DateTime<Utc>)> {
    let firings = (0..).map(|n| first + TimeDelta::minutes(n)).take_while(|at| *at <= now);
    firings.flat_map(|at| (0..MINUTELY).map(move |n| (format!("m-{n}"), at))).collect()
}

fn lag_s(sent: &Sent) -> f64 {
    (sent.accepted_at - sent.message.due_at).as_seconds_f64()
}

/// New copies are there, and no worker: all that was owed is in the queues, late, and the figures say so.
async fn after(local: &Local, copies: &[Metrics], first: DateTime<Utc>, before: usize) -> anyhow::Result<()> {
    eventually("all that was owed waits, and the backlog is told as it is", PATIENCE * 2, async || {
        let owed = owed(first, local.now());
        let sent = local.ledger.since(before);
        let runs = sent.iter().map(|sent| (sent.message.job_key.id().to_owned(), sent.message.due_at));
        let runs: BTreeSet<_> = runs.filter(|(id, due_at)| id.starts_with("m-") && *due_at <= local.now()).collect();
        let (texts, real) = (read_all(copies).await?, real_backlog(local).await?);
        Ok(runs == owed
            && told_backlog(&texts) == Some(real.clone())
            && real.values().sum::<u64>() == sent.len() as u64)
    })
    .await?;
    let (sent, texts) = (local.ledger.since(before), read_all(copies).await?);
    let late = sent.iter().filter(|sent| lag_s(sent) > 60.0).count();
    ensure!(late >= MINUTELY, "{late} of {}", sent.len());
    let (all, in_time) = lags(&texts, "60");
    ensure!((all, all - in_time) == (sent.len() as f64, late as f64), "{all} samples, {in_time} of up to a minute");
    Ok(())
}

async fn outage() -> anyhow::Result<()> {
    let local = Local::start(PROGRAM, gateway(), &TIMES).await?;
    local.punctual(&["setup"]).await?;
    let beat = whole_second(local.now()) + LEAD;
    load(&local, beat).await?;
    let goes_on = start_worker(&local, "w1", "urgent,normal")?;
    let of_worker = Metrics::of(&goes_on).await?;
    let (gone, of_gone) = start_copies(&local, ["s1", "s2"]).await?;
    before(&local, &of_gone, &of_worker).await?;

    for copy in gone {
        copy.kill().await?;
    }
    let killed_at = local.now();
    let waits = Backlog::from([(("bulk", "visible"), STUCK as u64)]);
    eventually("what was sent is worked off", PATIENCE, async || Ok(real_backlog(&local).await? == waits)).await?;
    let (enqueued, last_beat) = (local.ledger.len(), heartbeat_at(&of_worker).await?);
    let sent_before = local.ledger.since(0).into_iter().map(|sent| sent.message.due_at).max().unwrap_or(beat);
    let until = killed_at.max(DateTime::from_timestamp(last_beat.ceil() as i64, 0).unwrap_or(killed_at)) + OUTAGE;
    tokio::try_join!(worker_dies(&local), silence(&local, &of_worker, until))?;
    // Two beats are missing. The guide's alarm allows for a third: whoever reads once a minute sees a beat that much late.
    ensure!(heartbeat_age(&local, &of_worker).await? > OUTAGE.as_seconds_f64());
    for metrics in &of_gone {
        ensure!(metrics.read().await.is_err(), "nobody is there to be read");
    }

    goes_on.stop().await?;
    let (copies, of_copies) = start_copies(&local, ["s3", "s4"]).await?;
    let first = (0..).map(|n| beat + BEHIND_THE_BEAT + TimeDelta::minutes(n)).find(|at| *at > sent_before);
    after(&local, &of_copies, first.unwrap_or(beat), enqueued).await?;

    let (all, small) = lags(&read_all(&of_copies).await?, "10");
    let comes_back = start_worker(&local, "w4", "urgent,normal,bulk")?;
    let of_worker = Metrics::of(&comes_back).await?;
    eventually("the heart beats again", PATIENCE * 2, async || {
        Ok(heartbeat_at(&of_worker).await? > last_beat && heartbeat_age(&local, &of_worker).await? < 60.0)
    })
    .await?;
    eventually("the backlog is worked off, and told so", PATIENCE * 2, async || {
        Ok(told_backlog(&read_all(&of_copies).await?) == Some(Backlog::new()))
    })
    .await?;
    eventually("runs are dispatched again, none of them late", PATIENCE * 2, async || {
        let (all_now, small_now) = lags(&read_all(&of_copies).await?, "10");
        ensure!(all_now - all == small_now - small, "a lag of more than ten seconds");
        Ok(all_now > all)
    })
    .await?;
    is_cursor_well(&of_copies).await?;
    ensure!(of_worker.sum("punctual_runs_stuck", &[]).await? == 0.0);
    for process in copies.into_iter().chain([comes_back]) {
        ensure!(process.errors().is_empty(), "{:?}", process.errors());
        process.stop().await?;
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_all_schedulers_and_the_death_of_a_worker_are_seen_and_seen_to_end() {
    outage().await.expect("everything comes back");
}

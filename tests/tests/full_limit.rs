//! A limit at its full figure with five real worker processes of default size, of which two are killed and one stands
//! still until its shares were taken over: what leaves the workers and what the gateway sees.
//!
//! The limit is 450 a second where the machine carries that; elsewhere 60 % of what five workers send here without a limit,
//! and never below 200. How much of it is used is told and not judged, for whoever else works on the machine lowers it: the
//! benchmark of a morning judges it. By itself in this file, so that no other test takes part in that.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::priority::Priority;
use punctual_localstack::gateway::{GatewayConfig, GatewayStats};
use punctual_tests::local::{Local, Process};
use punctual_tests::reminder;
use std::ops::RangeInclusive;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);
const MOVES_WITHIN: Duration = Duration::from_secs(2);
const WORKERS: u32 = 5;
const SLOTS: u32 = 20;
const LIMITS: RangeInclusive<u32> = 200..=450;
/// Of what the machine carries, the limit takes at most this part.
const CARRIED: f64 = 0.6;
/// So long it is measured.
const MEASURED_S: u32 = 9;
const MEASURED: Duration = Duration::from_secs(MEASURED_S as u64);
/// What a worker says of a call that leaves it.
const LEAVES: &str = "its call goes out";

/// The instants of calls, in order.
struct Calls(Vec<DateTime<Utc>>);

impl Calls {
    fn new(mut calls: Vec<DateTime<Utc>>) -> Self {
        calls.sort();
        Calls(calls)
    }

    /// When the gateway saw each run first.
    fn seen_by_gateway(local: &Local) -> Self {
        Self::new(local.stack.gateway().arrivals().iter().map(|arrival| arrival.arrived_at).collect())
    }

    /// When calls left a worker, by its log.
    fn in_log(log: &str) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        let lines = log.lines().filter(|line| line.contains(LEAVES));
        lines.map(|line| {
            let at = line.split_whitespace().next().and_then(|at| at.parse().ok());
            at.expect("a line of the log begins with its instant")
        })
    }

    fn between(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> usize {
        self.0.partition_point(|at| *at < until) - self.0.partition_point(|at| *at < from)
    }

    /// The most within any second that begins from `from` to `until`.
    fn busiest_second(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> usize {
        let began = self.0.iter().filter(|at| **at >= from && **at < until);
        began.map(|at| self.between(*at, *at + TimeDelta::seconds(1))).max().unwrap_or(0)
    }

    /// How many there are in each second while it is measured from `from` on.
    fn each_second(&self, from: DateTime<Utc>) -> Vec<usize> {
        let second = |n: u32| from + Duration::from_secs(n.into());
        (0..MEASURED_S).map(|n| self.between(second(n), second(n + 1))).collect()
    }
}

/// The host's wall clock, by which the gateway and the logs go.
fn now() -> DateTime<Utc> {
    SystemClock::new().now()
}

/// A stack with a limit and work that outlasts the test, whose gateway takes `per_second_cap` calls in any second.
async fn town(limit: u32, per_second_cap: u32, firings: u32) -> anyhow::Result<Local> {
    let gateway = GatewayConfig { per_second_cap, ..GatewayConfig::default() };
    let settings =
        [("PUNCTUAL_SMS_DEDUPE_WINDOW_S", "86400"), ("PUNCTUAL_LOG", "info,punctual_worker::pipeline=debug")];
    let local = Local::start(PROGRAM, gateway, &settings).await?;
    local.punctual(&["setup"]).await?;
    local.punctual(&["rates", "set", "sms", &limit.to_string()]).await?;
    let jobs = |schedule: &str| (0..300).map(|n| reminder(&format!("c-{n}/bill"), schedule)).collect();
    local.enqueue(firings, jobs).await?;
    Ok(local)
}

fn start_workers(local: &Local) -> anyhow::Result<Vec<Process>> {
    (1..=WORKERS).map(|n| local.start_worker(&format!("w{n}"))).collect()
}

/// How many calls a second five workers make here when no limit holds them back.
async fn carried() -> anyhow::Result<f64> {
    let local = town(10_000, 100_000, 30).await?;
    let workers = start_workers(&local)?;
    local.wait_for_shares(WORKERS, PATIENCE).await?;
    let from = now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let made = Calls::seen_by_gateway(&local);
    // The work may have run out.
    let until = made.0.last().copied().unwrap_or(from);
    let carried = made.between(from, until) as f64 / (until - from).as_seconds_f64().max(1.0);
    drop(workers);
    local.stack.stop().await;
    Ok(carried)
}

/// What was seen of a limit, and when.
struct Seen {
    arrivals: Calls,
    departures: Calls,
    began_at: DateTime<Utc>,
    killed_at: DateTime<Utc>,
    thawed_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    gateway: GatewayStats,
}

async fn killed_and_frozen(limit: u32, cap: u32) -> anyhow::Result<Seen> {
    let local = town(limit, cap, (limit * 70).div_ceil(300)).await?;
    let began_at = now();
    let mut workers = start_workers(&local)?;
    local.wait_for_shares(WORKERS, PATIENCE).await?;
    tokio::time::sleep(Duration::from_secs(1) + MEASURED).await;
    let killed_at = now();
    let mut logs = Vec::new();
    for worker in workers.drain(..2) {
        // Nothing is said between the look at the log and the end.
        worker.freeze()?;
        logs.push(worker.log());
        worker.kill().await?;
    }
    local.wait_for_shares(3, LEASE + MOVES_WITHIN).await?;
    let left = (killed_at + LEASE + MOVES_WITHIN + MEASURED - now()).to_std().unwrap_or_default();
    tokio::time::sleep(left).await;
    workers[0].freeze()?;
    local.wait_for_shares(2, LEASE + MOVES_WITHIN).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let thawed_at = now();
    workers[0].thaw()?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let ended_at = now();
    let (arrivals, gateway) = (Calls::seen_by_gateway(&local), local.stack.gateway().stats());
    let left = local.ports.queue.depth(Priority::Normal).await?;
    assert!(left.visible > 0, "the work ran out");
    for worker in workers {
        assert_eq!(worker.errors(), [""; 0]);
        logs.push(worker.log());
        worker.stop().await?;
    }
    local.stack.stop().await;
    let departures = Calls::new(logs.iter().flat_map(|log| Calls::in_log(log)).collect());
    Ok(Seen { arrivals, departures, began_at, killed_at, thawed_at, ended_at, gateway })
}

async fn measure() -> anyhow::Result<()> {
    let carried = carried().await?;
    let limit = ((carried * CARRIED) as u32).clamp(*LIMITS.start(), *LIMITS.end());
    let most = limit + limit / 20;
    let seen = killed_and_frozen(limit, most + SLOTS).await?;
    let second = TimeDelta::seconds(1);
    let busiest = |calls: &Calls| {
        let before = calls.busiest_second(seen.began_at, seen.thawed_at - second);
        let thaw = calls.busiest_second(seen.thawed_at - second, seen.thawed_at + second);
        [before, thaw, calls.busiest_second(seen.thawed_at + second, seen.ended_at)]
    };
    let (left, arrived) = (busiest(&seen.departures), busiest(&seen.arrivals));
    let used = [seen.killed_at - MEASURED, seen.killed_at + LEASE + MOVES_WITHIN];
    let used = used.map(|from| seen.arrivals.each_second(from));
    println!(
        "{carried:.0} a second are carried, limit {limit}; busiest second before, around and behind the thaw: {left:?} left \
         the workers, {arrived:?} arrived; seconds of five and of three workers: {used:?}"
    );
    assert_eq!((seen.gateway.rejected_429, seen.gateway.sent_twice), (0, 0), "{:?}", seen.gateway);
    for [before, thaw, after] in [left, arrived] {
        assert!(before.max(after) <= most as usize && thaw <= (most + SLOTS) as usize, "the limit was exceeded");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_second_sees_a_twentieth_more_than_the_limit_whoever_dies_or_stands_still() {
    measure().await.expect("everything comes to its end");
}

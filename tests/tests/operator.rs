//! An operator's words while copies and a worker are at work: status, shards, cursors.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use punctual_core::due::{DueBucket, Minute, ShardClass, ShardId};
use punctual_core::job::{Job, JobKey, Timetable};
use punctual_core::lease::Lease;
use punctual_core::ports::{Create, JobRead, Replace, ReplaceIf};
use punctual_core::run::RunStatus;
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::reminder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
/// Every job fires once in this time.
const MINUTE: Duration = Duration::from_secs(60);

/// Three copies and a worker; the gateway sends every repeat.
async fn town() -> anyhow::Result<(Local, Vec<Process>, Process)> {
    let gateway = GatewayConfig { drops_repeats: false, ..GatewayConfig::default() };
    let local = Local::start(PROGRAM, gateway, &[]).await?;
    local.punctual(&["setup"]).await?;
    let copies = ["s1", "s2", "s3"].map(|name| local.start_scheduler(name, &[]));
    let copies = copies.into_iter().collect::<Result<Vec<_>, _>>()?;
    let worker = local.start_worker("w1")?;
    local.wait_for_even_shards(3).await?;
    Ok((local, copies, worker))
}

fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

async fn status(local: &Local) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_str(&local.punctual(&["status", "--json"]).await?)?)
}

/// The instants for which each job was enqueued, in order.
fn enqueued(local: &Local) -> BTreeMap<JobKey, Vec<DateTime<Utc>>> {
    let mut enqueued: BTreeMap<JobKey, Vec<DateTime<Utc>>> = BTreeMap::new();
    for sent in local.ledger.since(0) {
        enqueued.entry(sent.message.job_key).or_default().push(sent.message.scheduled_at);
    }
    enqueued.values_mut().for_each(|instants| instants.sort());
    enqueued
}

async fn grow_and_release() -> anyhow::Result<()> {
    const JOBS: usize = 240;
    let (local, copies, worker) = town().await?;
    let from = whole_second(local.now()) + TimeDelta::seconds(2);
    let first = |n: usize| from + TimeDelta::seconds((n % 60) as i64);
    let minutely = |n: usize| reminder(&format!("c-{n}/bill"), &format!("every 60s from {}", instant(first(n))));
    local.load((0..JOBS).map(minutely), local.now(), &Zones::embedded()).await?;
    eventually("jobs fire", PATIENCE, async || Ok(local.ledger.len() >= JOBS / 4)).await?;

    let said = local.punctual(&["shards", "grow", "--standard", "32"]).await?;
    assert!(said.contains("8 urgent and 32 standard shards are read and written"), "{said}");
    local.wait_for_even_shards(3).await?;
    let leases = local.leases().await?;
    assert!(leases.len() == 40 && leases.values().all(|lease| lease.owner.is_some()), "{leases:?}");
    let grown_at = local.now();
    let is_fired_since = || {
        let enqueued = enqueued(&local);
        enqueued.len() == JOBS && enqueued.values().all(|instants| instants.last() > Some(&grown_at))
    };
    eventually("every job fires after that", 2 * MINUTE, async || Ok(is_fired_since())).await?;
    for (key, instants) in enqueued(&local) {
        let steps: Vec<TimeDelta> = instants.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let is_each_minute = steps.iter().all(|step| *step == TimeDelta::minutes(1));
        assert!(is_each_minute && instants[0] < from + TimeDelta::minutes(1), "{key}: {instants:?}");
    }
    let keys: Vec<JobKey> = enqueued(&local).into_keys().collect();
    let mut moved = 0;
    for keys in keys.chunks(100) {
        let jobs = local.ports.jobs.get_many(keys).await?;
        let bucket = |read: &JobRead| read.job().and_then(|job| job.due_bucket);
        moved += jobs.values().filter_map(bucket).filter(|bucket| bucket.shard.number >= 24).count();
    }
    // What a copy had read ahead by then goes on within the old shards, which are read as well.
    assert!(moved > 5, "{moved} of {JOBS} jobs are in new shards");

    status_shows_all_of_it(&local).await?;
    release(&local).await?;

    // The copies first: then the worker has seen all there will be.
    for copy in copies {
        copy.stop().await?;
    }
    local.wait_until_queues_are_empty(PATIENCE).await?;
    worker.stop().await?;
    let runs: BTreeSet<_> = local.ledger.since(0).iter().map(|sent| sent.message.run_id()).collect();
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats, stats.sent_twice), (runs.len() as u64, 0, 0));
    local.stack.stop().await;
    Ok(())
}

async fn status_shows_all_of_it(local: &Local) -> anyhow::Result<()> {
    eventually("nothing is due for more than a moment", PATIENCE, async || Ok(status(local).await?["due"] == 0))
        .await?;
    let shown = status(local).await?;
    let list = |name: &str| shown[name].as_array().cloned().unwrap_or_default();
    assert_eq!((list("shards").len(), list("copies").len()), (40, 3), "{shown:#}");
    for shard in list("shards") {
        let age_s = shard["cursor_age_s"].as_i64().unwrap_or(i64::MAX);
        assert!(shard["holder"].is_string() && (360..600).contains(&age_s), "{shard}");
    }
    let of_copies: u64 = list("copies").iter().filter_map(|copy| copy["shards"].as_u64()).sum();
    assert!(
        of_copies == 40 && list("copies").iter().all(|copy| copy["version"] == env!("CARGO_PKG_VERSION")),
        "{shown:#}"
    );
    let table = local.punctual(&["status"]).await?;
    for expected in ["everything that is due is in a queue", "0031", "u007", "s1-", env!("CARGO_PKG_VERSION")] {
        assert!(table.contains(expected), "{expected} is missing: {table}");
    }
    Ok(())
}

/// Frees a shard of a copy that holds one more than another, as 32 over three copies must leave it.
async fn release(local: &Local) -> anyhow::Result<()> {
    let mut has_moved = false;
    // A holder that notices first takes it again, as anybody may: then it is freed once more.
    for _ in 0..5 {
        let leases = local.leases().await?;
        let (shard, owner) = one_too_many(&leases);
        let said = local.punctual(&["shards", "release", &shard.to_string()]).await?;
        assert!(said.contains(&format!("shard {shard} is free")), "{said}");
        local.wait_for_even_shards(3).await?;
        has_moved = local.leases().await?.remove(&shard).is_some_and(|lease| lease.owner != owner);
        if has_moved {
            break;
        }
    }
    assert!(has_moved, "the holder that may hold one less takes the shard back each time");
    Ok(())
}

/// The shard nearest to 0003 whose owner holds as many standard ones as a copy may hold, and that owner.
fn one_too_many(leases: &BTreeMap<ShardId, Lease>) -> (ShardId, Option<String>) {
    let standard = || leases.iter().filter(|(shard, _)| shard.class == ShardClass::Standard);
    let held = |owner: &Option<String>| standard().filter(|(_, lease)| lease.owner == *owner).count();
    let of_the_fullest = standard().filter(|(_, lease)| held(&lease.owner) == 11);
    let nearest =
        of_the_fullest.min_by_key(|(shard, _)| shard.number.abs_diff(3)).expect("32 over three are 11, 11 and 10");
    (*nearest.0, nearest.1.owner.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_added_and_moved_under_way_and_no_run_is_lost_or_enqueued_twice() {
    grow_and_release().await.expect("everything comes to its end");
}

/// What is in the store again as it was twenty minutes ago, after its runs were done.
async fn restore_and_rewind() -> anyhow::Result<()> {
    const JOBS: usize = 20;
    let (local, copies, worker) = town().await?;
    let (shards, zones) = (local.shards().await?, Zones::embedded());
    let then = whole_second(local.now()) - TimeDelta::minutes(20);
    let daily = |n: usize| reminder(&format!("c-{n}/bill"), &format!("every 24h from {}", instant(then)));
    let world = Timetable { shards: &shards, zones: &zones };
    let made_at = then - TimeDelta::minutes(1);
    let backup: Vec<Job> = (0..JOBS)
        .map(|n| Job::create(daily(n), made_at, &world, None, format!("made-{n}"), "test"))
        .collect::<Result<_, _>>()?;
    for job in &backup {
        let bucket = job.due_bucket.map(|bucket| DueBucket { minute: Minute::of(local.now()), ..bucket });
        let late = Job { due_bucket: bucket, ..job.clone() };
        assert_eq!(local.ports.jobs.create(&late).await?, Create::Created);
    }
    let accepted = || local.stack.gateway().stats().accepted;
    eventually("every run is done", PATIENCE, async || Ok(accepted() == JOBS as u64)).await?;
    local.wait_until_queues_are_empty(PATIENCE).await?;
    assert_eq!(local.ledger.len(), JOBS);

    let keys: Vec<JobKey> = backup.iter().map(|job| job.spec.key.clone()).collect();
    let jobs = local.ports.jobs.get_many(&keys).await?;
    for job in &backup {
        let advanced = jobs[&job.spec.key].job().expect("it can be read");
        assert_eq!(advanced.next_scheduled_at, Some(then + TimeDelta::days(1)));
        assert_eq!(local.ports.jobs.replace(job, &ReplaceIf::from(advanced)).await?, Replace::Replaced);
    }
    let said = local.punctual(&["cursors", "rewind", "--to", &instant(then - TimeDelta::minutes(1))]).await?;
    assert!(said.contains("32 shards are read again from"), "{said}");
    eventually("every run is enqueued again", PATIENCE, async || Ok(local.ledger.len() >= 2 * JOBS)).await?;
    local.wait_until_nothing_is_due(made_at, PATIENCE).await?;
    local.wait_until_queues_are_empty(PATIENCE).await?;
    for process in copies.into_iter().chain([worker]) {
        process.stop().await?;
    }
    let runs: BTreeSet<_> = local.ledger.since(0).iter().map(|sent| sent.message.run_id()).collect();
    assert_eq!((local.ledger.len(), runs.len()), (2 * JOBS, JOBS), "the same runs again, once");
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats, stats.sent_twice), (JOBS as u64, 0, 0), "their rows stop them");
    for run in &runs {
        let row = local.ports.runs.get(run).await?;
        assert!(row.is_some_and(|row| row.status == RunStatus::Succeeded && row.attempt == 1), "{run}");
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_restore_puts_back_is_enqueued_again_after_a_rewind_and_stopped_by_its_rows() {
    restore_and_rewind().await.expect("everything comes to its end");
}

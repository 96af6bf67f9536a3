//! Negative controls: each guard is taken away by wrapping an adapter, and the harm it prevents is seen. Beside each, the
//! same scenario with the guard.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_core::due::{DueBucket, Shards};
use punctual_core::job::{Job, JobKey, JobSpec};
use punctual_core::memory::{Fault, FaultPlan, Faults, Point, World};
use punctual_core::ports::{
    Advance, Create, JobPage, JobRead, JobStore, JobsUnder, Move, PageToken, PortResult, Put, Replace, ReplaceIf,
    RunStore,
};
use punctual_core::run::{RunId, RunRow};
use punctual_core::schedule::{Firing, Schedule, Timing};
use punctual_scheduler::operations::{Outcome, edit_job};
use punctual_tests::{PortChange, Town, at, reminder, run_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const JOBS: usize = 300;
const COPIES: [&str; 3] = ["s1", "s2", "s3"];

fn unchanged() -> PortChange {
    Arc::new(|ports| ports)
}

/// Three copies over jobs that are all due at once; calls take a while, so that copies act between each other's calls.
async fn three_copies(change: PortChange) -> World {
    let plan = FaultPlan::default();
    for call in ["jobs.get_many", "queue.send", "jobs.advance"] {
        plan.add(Point::Every(call), Fault::Delay(Duration::from_millis(20)));
    }
    let mut town = Town::with(Shards { urgent: 0, standard: 24 }, plan, change).await;
    for n in 0..JOBS {
        town.add(reminder(&format!("c-{n}/bill"), "every 24h from 2026-10-05T03:13:40Z")).await;
    }
    COPIES.iter().for_each(|name| town.start_scheduler(name));
    let all_advanced = |world: &World| world.jobs().values().all(|job| job.next_scheduled_at > Some(at(20)));
    assert!(town.until(120, all_advanced).await, "something is left due");
    tokio::time::sleep(Duration::from_secs(60)).await;
    town.stop().await;
    town.world.clone()
}

#[tokio::test(start_paused = true)]
async fn with_leases_three_copies_enqueue_every_run_once() {
    let world = three_copies(unchanged()).await;
    let enqueued = world.enqueued();
    let distinct: BTreeSet<_> = enqueued.iter().filter_map(|e| e.message.as_ref().map(|m| m.run_id())).collect();
    assert_eq!((enqueued.len(), distinct.len()), (JOBS, JOBS));
    for name in COPIES {
        let mine =
            enqueued.iter().filter(|e| e.message.as_ref().is_some_and(|m| m.scheduler.starts_with(name))).count();
        assert!((JOBS / 5..=JOBS / 2).contains(&mine), "{name} enqueued {mine} of {JOBS}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_shard_lease_runs_are_enqueued_again_and_again() {
    // Each copy sees leases that nobody else sees, and so takes every shard.
    let change: PortChange = Arc::new(|ports| {
        let clock = Arc::new(punctual_core::clock::TokioClock::new(at(0)));
        let private = World::new(clock).ports();
        punctual_core::ports::Ports { leases: private.leases, ..ports }
    });
    let world = three_copies(change).await;
    let enqueued = world.enqueued().len();
    assert!(enqueued * 2 >= JOBS * 3, "{enqueued} of {JOBS}");
    println!("without the lease: {enqueued} enqueued for {JOBS} due");
}

/// A job store whose advance has no condition: it writes over whatever is there.
struct Unconditional(Arc<dyn JobStore>);

#[async_trait]
impl JobStore for Unconditional {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        self.0.create(job).await
    }
    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        self.0.get_many(keys).await
    }
    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        self.0.replace(job, if_still).await
    }
    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        // Lets the delay of the real call pass first.
        let done = self.0.advance_many(moves).await?;
        for (one, _) in moves.iter().zip(done).filter(|(_, done)| *done == Ok(Advance::Changed)) {
            let keys = std::slice::from_ref(&one.key);
            if let Some(JobRead::Job(mut job)) = self.0.get_many(keys).await?.remove(&one.key) {
                let read = ReplaceIf::from(&*job);
                job.advance(&one.to);
                job.edit_token = "written over".into();
                self.0.replace(&job, &read).await?;
            }
        }
        Ok(vec![Ok(Advance::Advanced); moves.len()])
    }
    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        self.0.unindex(key, bucket).await
    }
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        self.0.quarantine(key, bucket, error).await
    }
    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.0.scan(after, limit).await
    }
    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.0.list(of, after, limit).await
    }
    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        self.0.keep_version(job, expires_at).await
    }
    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        self.0.versions(key, numbers).await
    }
    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        self.0.forget_versions(key, numbers).await
    }
}

/// A person moves a job to another day while its advance is on the way; returns where the job stands then.
async fn an_edit_during_an_advance(change: PortChange) -> Option<DateTime<Utc>> {
    let plan = FaultPlan::default();
    plan.add(Point::Nth("jobs.advance", 1), Fault::Delay(Duration::from_secs(5)));
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), change).await;
    town.add(reminder("c-1/bill", "every 1h from 2026-10-05T03:13:40Z")).await;
    town.start_scheduler("s1");
    let key = run_of("c-1/bill", at(20)).job_key;
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    let ports = town.world.ports();
    let mut job = town.world.job(&key).expect("the job is there");
    assert_eq!(job.next_scheduled_at, Some(at(20)), "the edit comes before the advance lands");
    let read = ReplaceIf::from(&job);
    job.spec.schedule = Schedule::utc(Timing::At(at(86_400)));
    let to = job.after_firings(&Firing { at: at(20), wall: None }, 1, town.clock.now(), &town.timetable());
    job.advance(&to);
    job.version += 1;
    job.edit_token = "edit".into();
    assert_eq!(ports.jobs.replace(&job, &read).await, Ok(Replace::Replaced));
    tokio::time::sleep(Duration::from_secs(30)).await;
    town.stop().await;
    town.world.job(&key).and_then(|job| job.next_scheduled_at)
}

#[tokio::test(start_paused = true)]
async fn an_edit_during_an_advance_stands() {
    assert_eq!(an_edit_during_an_advance(unchanged()).await, Some(at(86_400)));
}

#[tokio::test(start_paused = true)]
async fn without_the_condition_of_the_advance_an_edit_is_lost() {
    let change: PortChange =
        Arc::new(|ports| punctual_core::ports::Ports { jobs: Arc::new(Unconditional(ports.jobs.clone())), ..ports });
    assert_eq!(an_edit_during_an_advance(change).await, Some(at(20 + 3_600)), "the old timetable is back");
}

/// A job store whose replace forgets at which firing the job stood.
struct ForgetsTheFiring(Arc<dyn JobStore>);

#[async_trait]
impl JobStore for ForgetsTheFiring {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        self.0.create(job).await
    }
    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        self.0.get_many(keys).await
    }
    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        // Lets the delay of the real call pass first.
        let refused = self.0.replace(job, if_still).await?;
        let keys = std::slice::from_ref(&job.spec.key);
        let Some(JobRead::Job(stored)) = self.0.get_many(keys).await?.remove(&job.spec.key) else { return Ok(refused) };
        match refused {
            Replace::Changed if stored.version == if_still.version && stored.state == if_still.state => {
                self.0.replace(job, &ReplaceIf::from(&*stored)).await
            }
            answer => Ok(answer),
        }
    }
    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        self.0.advance_many(moves).await
    }
    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        self.0.unindex(key, bucket).await
    }
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        self.0.quarantine(key, bucket, error).await
    }
    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.0.scan(after, limit).await
    }
    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.0.list(of, after, limit).await
    }
    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        self.0.keep_version(job, expires_at).await
    }
    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        self.0.versions(key, numbers).await
    }
    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        self.0.forget_versions(key, numbers).await
    }
}

/// A person edits the text of a job; the job fires and advances while the edit is on its way. Returns from where the job
/// was advanced.
async fn an_advance_during_an_edit(change: PortChange) -> Vec<DateTime<Utc>> {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.add(reminder("c-1/bill", "every 1h from 2026-10-05T03:13:40Z")).await;
    town.start_scheduler("s1");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let plan = FaultPlan::one(Point::Nth("jobs.replace", 1), Fault::Delay(Duration::from_secs(10)));
    let jobs = change(Faults::new(&plan, "ann").wrap(town.world.ports())).jobs;
    let key = run_of("c-1/bill", at(20)).job_key;
    let patch = |old: &JobSpec| Ok(JobSpec { name: Some("Bill".into()), ..old.clone() });
    let edited = edit_job(&*jobs, &*town.clock, &town.timetable(), &key, &patch, None, "ann").await;
    assert!(matches!(edited, Ok(Outcome::Changed(_))), "{edited:?}");
    assert_eq!(plan.to_come(), []);
    tokio::time::sleep(Duration::from_secs(30)).await;
    town.stop().await;
    let job = town.world.job(&key).expect("the job is there");
    assert_eq!((job.version, job.spec.name.as_deref()), (2, Some("Bill")), "the edit stands");
    town.world.advances(&key)
}

#[tokio::test(start_paused = true)]
async fn an_advance_during_an_edit_stands() {
    assert_eq!(an_advance_during_an_edit(unchanged()).await, [at(20)]);
}

#[tokio::test(start_paused = true)]
async fn without_the_firing_in_the_condition_of_a_replace_an_advance_is_undone() {
    let change: PortChange =
        Arc::new(|ports| punctual_core::ports::Ports { jobs: Arc::new(ForgetsTheFiring(ports.jobs.clone())), ..ports });
    assert_eq!(an_advance_during_an_edit(change).await, [at(20), at(20)], "the job fires again");
}

/// A row store in which begin guards nothing: no row is ever found, no write is ever refused.
struct NoBegin(Arc<dyn RunStore>);

#[async_trait]
impl RunStore for NoBegin {
    async fn get(&self, _: &RunId) -> PortResult<Option<RunRow>> {
        Ok(None)
    }
    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        self.0.put(row).await.map(|_| Put::Written)
    }
    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        self.0.list(key, limit).await
    }
}

/// A queue that took the same message twice; returns how often the gateway was called.
async fn a_message_sent_twice(change: PortChange) -> usize {
    let plan = FaultPlan::one(Point::Nth("queue.send", 1), Fault::Duplicate);
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan, change).await;
    town.add(reminder("c-1/bill", "every 24h from 2026-10-05T03:13:40Z")).await;
    town.start_scheduler("s1");
    town.start_worker("w1");
    town.start_worker("w2");
    assert!(town.until(300, |world| world.enqueued().len() == 2 && world.waiting().is_empty()).await);
    town.stop().await;
    town.world.sends_of(&run_of("c-1/bill", at(20)))
}

#[tokio::test(start_paused = true)]
async fn with_begin_a_message_sent_twice_is_delivered_once() {
    assert_eq!(a_message_sent_twice(unchanged()).await, 1);
}

#[tokio::test(start_paused = true)]
async fn without_begin_the_gateway_sees_the_repeat() {
    let change: PortChange =
        Arc::new(|ports| punctual_core::ports::Ports { runs: Arc::new(NoBegin(ports.runs.clone())), ..ports });
    assert_eq!(a_message_sent_twice(change).await, 2);
}

//! Guards taken away by wrapping ports: each must be noticed, or the simulation guards nothing.

use super::processes::Sabotage;
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::access::ApiKeys;
use punctual_core::due::{DueBucket, Layout, Shards};
use punctual_core::job::{Advanced, Job, JobKey, JobState, Voids};
use punctual_core::memory::World;
use punctual_core::message::{DeadLetter, Message};
use punctual_core::ports::{
    Advance, Control, Create, Delivery, JobPage, JobRead, JobStore, JobsUnder, Move, PageToken, PortResult, Ports, Put,
    QueueDepth, Replace, ReplaceIf, RunQueue, RunStore, SendResult,
};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunRow, RunStatus};
use punctual_core::steering::Steering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A guard, and what it is without.
pub type Guard = (&'static str, Sabotage);

/// All guards that can be taken away.
pub fn guards() -> Vec<Guard> {
    vec![
        ("an advance has a condition", jobs(Flaw::UnconditionalAdvance)),
        ("a change has the firing in its condition", jobs(Flaw::ForgetsTheFiring)),
        ("a cancel voids what is queued", jobs(Flaw::IgnoresVoids)),
        ("a pause holds what is queued", jobs(Flaw::IgnoresPauses)),
        ("an owed firing stays owed", jobs(Flaw::ForgetsTheOwed)),
        ("what was sent ahead is known", jobs(Flaw::ForgetsWhatIsAhead)),
        ("nothing is called without begin", rows(Flaw::NoBegin)),
        ("an outcome is recorded", rows(Flaw::LosesOutcomes)),
        ("a skip is a row before the job passes it", rows(Flaw::LosesSkips)),
        ("a job advances behind its send", queue(Flaw::LosesSends)),
        ("a message goes when its row refuses it", queue(Flaw::DeletesAtReceipt)),
        ("dead letters are sent", queue(Flaw::LosesLetters)),
        ("a run is due when it is due", queue(Flaw::SendsEarlier)),
        ("a shard has one reader", private_leases()),
        ("a hold holds", steering(Flaw::IgnoresHolds)),
        ("a limit limits", steering(Flaw::IgnoresLimits)),
        ("a function's messages go when it is done with them", Sabotage { deletes_all: true, ..Sabotage::none() }),
        ("now is the store's time", Sabotage { unanchored: true, ..Sabotage::none() }),
    ]
}

#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    UnconditionalAdvance,
    ForgetsTheFiring,
    IgnoresVoids,
    IgnoresPauses,
    ForgetsTheOwed,
    ForgetsWhatIsAhead,
    NoBegin,
    LosesOutcomes,
    LosesSkips,
    LosesSends,
    DeletesAtReceipt,
    LosesLetters,
    SendsEarlier,
    IgnoresHolds,
    IgnoresLimits,
}

struct Flawed<P: ?Sized> {
    port: Arc<P>,
    flaw: Flaw,
}

fn jobs(flaw: Flaw) -> Sabotage {
    Sabotage::of_ports(Arc::new(move |ports| {
        let jobs = Arc::new(Flawed { port: ports.jobs.clone(), flaw });
        Ports { jobs, ..ports }
    }))
}

fn rows(flaw: Flaw) -> Sabotage {
    Sabotage::of_ports(Arc::new(move |ports| {
        let runs = Arc::new(Flawed { port: ports.runs.clone(), flaw });
        Ports { runs, ..ports }
    }))
}

fn queue(flaw: Flaw) -> Sabotage {
    Sabotage::of_ports(Arc::new(move |ports| {
        let queue = Arc::new(Flawed { port: ports.queue.clone(), flaw });
        Ports { queue, ..ports }
    }))
}

fn steering(flaw: Flaw) -> Sabotage {
    Sabotage::of_ports(Arc::new(move |ports| {
        let control = Arc::new(Flawed { port: ports.control.clone(), flaw });
        Ports { control, ..ports }
    }))
}

/// Each process sees leases that nobody else sees, and so takes every shard.
fn private_leases() -> Sabotage {
    Sabotage::of_ports(Arc::new(|ports| {
        let clock = Arc::new(punctual_core::clock::TokioClock::new(crate::start_of_time()));
        Ports { leases: World::new(clock).ports().leases, ..ports }
    }))
}

impl Flawed<dyn JobStore> {
    async fn now(&self, key: &JobKey) -> PortResult<Option<Box<Job>>> {
        Ok(match self.port.get_many(std::slice::from_ref(key)).await?.remove(key) {
            Some(JobRead::Job(job)) => Some(job),
            _ => None,
        })
    }

    fn read(&self, read: JobRead) -> JobRead {
        let JobRead::Job(mut job) = read else { return read };
        match (self.flaw, job.state) {
            (Flaw::IgnoresVoids, JobState::Cancelled) => {
                (job.state, job.voids) = (JobState::Active, Voids::new(0));
            }
            (Flaw::IgnoresPauses, JobState::Paused) => job.state = JobState::Active,
            (Flaw::ForgetsWhatIsAhead, _) => job.passed = None,
            _ => {}
        }
        JobRead::Job(job)
    }
}

#[async_trait]
impl JobStore for Flawed<dyn JobStore> {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        self.port.create(job).await
    }
    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let jobs = self.port.get_many(keys).await?;
        Ok(jobs.into_iter().map(|(key, read)| (key, self.read(read))).collect())
    }
    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        let mut job = job.clone();
        if self.flaw == Flaw::ForgetsTheOwed
            && let Some(now) = self.now(&job.spec.key).await?
            && let (Some(owed), Some(due_at)) = (now.next_scheduled_at, job.next_due_at)
            && job.generation > now.generation
            && job.next_scheduled_at == Some(owed)
            && owed.timestamp_millis() <= job.generation as i64
        {
            job.next_scheduled_at = Some(owed + TimeDelta::minutes(1));
            job.next_due_at = Some(due_at + TimeDelta::minutes(1));
        }
        let replaced = self.port.replace(&job, if_still).await?;
        if self.flaw == Flaw::ForgetsTheFiring
            && replaced == Replace::Changed
            && let Some(now) = self.now(&job.spec.key).await?
            && now.version == if_still.version
        {
            return self.port.replace(&job, &ReplaceIf::from(&*now)).await;
        }
        Ok(replaced)
    }
    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        let done = self.port.advance_many(moves).await?;
        if self.flaw != Flaw::UnconditionalAdvance {
            return Ok(done);
        }
        for (one, _) in moves.iter().zip(done).filter(|(_, done)| *done == Ok(Advance::Changed)) {
            let keys = std::slice::from_ref(&one.key);
            if let Some(JobRead::Job(mut job)) = self.port.get_many(keys).await?.remove(&one.key) {
                let read = ReplaceIf::from(&*job);
                job.advance(&Advanced { expires_at: None, ..one.to.clone() });
                job.edit_token = "written over".into();
                self.port.replace(&job, &read).await?;
            }
        }
        Ok(vec![Ok(Advance::Advanced); moves.len()])
    }
    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        self.port.unindex(key, bucket).await
    }
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        self.port.quarantine(key, bucket, error).await
    }
    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.port.scan(after, limit).await
    }
    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.port.list(of, after, limit).await
    }
    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        self.port.keep_version(job, expires_at).await
    }
    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        self.port.versions(key, numbers).await
    }
    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        self.port.forget_versions(key, numbers).await
    }
}

#[async_trait]
impl RunStore for Flawed<dyn RunStore> {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        if self.flaw == Flaw::NoBegin { Ok(None) } else { self.port.get(id).await }
    }
    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        match (self.flaw, row.status) {
            (Flaw::NoBegin, _) => self.port.put(row).await.map(|_| Put::Written),
            (Flaw::LosesOutcomes, RunStatus::Succeeded) | (Flaw::LosesSkips, RunStatus::Skipped) => Ok(Put::Written),
            _ => self.port.put(row).await,
        }
    }
    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        self.port.list(key, limit).await
    }
}

#[async_trait]
impl RunQueue for Flawed<dyn RunQueue> {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        match self.flaw {
            Flaw::LosesSends => match self.port.send_after(priority, &bodies[1..], delay).await {
                Ok(rest) => Ok([Ok(())].into_iter().chain(rest).collect()),
                Err(_) => Ok(vec![Ok(()); bodies.len()]),
            },
            Flaw::SendsEarlier => {
                let earlier = |body: &String| {
                    let mut message = Message::decode(body).expect("a scheduler's message can be read");
                    message.due_at -= TimeDelta::seconds(5);
                    message.encode()
                };
                let bodies: Vec<String> = bodies.iter().map(earlier).collect();
                self.port.send_after(priority, &bodies, delay).await
            }
            _ => self.port.send_after(priority, bodies, delay).await,
        }
    }
    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        let deliveries = self.port.receive(priority, max, wait, visibility).await?;
        if self.flaw == Flaw::DeletesAtReceipt && !deliveries.is_empty() {
            let receipts: Vec<String> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
            self.port.delete(priority, &receipts).await?;
        }
        Ok(deliveries)
    }
    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        self.port.extend(priority, receipts).await
    }
    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        self.port.delete(priority, receipts).await
    }
    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        if self.flaw == Flaw::LosesLetters { Ok(()) } else { self.port.send_dead_letter(letter).await }
    }
    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        self.port.depth(priority).await
    }
}

#[async_trait]
impl Control for Flawed<dyn Control> {
    async fn layout(&self) -> PortResult<Option<Layout>> {
        self.port.layout().await
    }
    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        self.port.init_shards(shards).await
    }
    async fn change_layout(&self, from: Layout, to: Layout) -> PortResult<Layout> {
        self.port.change_layout(from, to).await
    }
    async fn once(&self, id: &str, value: &str, expires_at: DateTime<Utc>) -> PortResult<String> {
        self.port.once(id, value, expires_at).await
    }
    async fn kept(&self, id: &str) -> PortResult<Option<String>> {
        self.port.kept(id).await
    }
    async fn api_keys(&self) -> PortResult<ApiKeys> {
        self.port.api_keys().await
    }
    async fn change_api_keys(&self, from: u64, to: &ApiKeys) -> PortResult<ApiKeys> {
        self.port.change_api_keys(from, to).await
    }
    async fn steering(&self) -> PortResult<Steering> {
        let mut steering = self.port.steering().await?;
        match self.flaw {
            Flaw::IgnoresHolds => steering.holds.clear(),
            _ => steering.limits.clear(),
        }
        Ok(steering)
    }
    async fn change_steering(&self, from: u64, to: &Steering) -> PortResult<Steering> {
        self.port.change_steering(from, to).await
    }
}

//! The ports with faults. Every call owns its arguments, so that it can land after its caller is gone.

use super::{Fault, Faults, outcome_of};
use crate::access::ApiKeys;
use crate::due::{DueBucket, Layout, Minute, ShardId, Shards};
use crate::error::PortError;
use crate::job::{Job, JobKey};
use crate::lease::{Lease, LeaseId};
use crate::message::DeadLetter;
use crate::payload::Handler;
use crate::ports::{
    Advance, Attended, Beat, Call, Claim, Control, Create, Delivery, DueIndex, DuePage, DueSpan, Gateway, JobPage,
    JobRead, JobStore, JobsUnder, LeaseStore, Move, PageToken, PortResult, Put, QueueDepth, Replace, ReplaceIf,
    ReportStore, RowPage, RowRead, RowSpan, RunHistory, RunQueue, RunStore, SendResult, ShareStore, Waiting,
};
use crate::priority::Priority;
use crate::rate::Shares;
use crate::report::WorkerReport;
use crate::retry::Outcome;
use crate::run::{RunId, RunRow};
use crate::steering::Steering;
use crate::target::Target;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A port of one process.
pub(super) struct Faulty<P: ?Sized> {
    port: Arc<P>,
    faults: Faults,
}

impl<P: ?Sized> Faulty<P> {
    pub(super) fn new(port: Arc<P>, faults: &Faults) -> Self {
        Faulty { port, faults: faults.clone() }
    }
}

#[async_trait]
impl JobStore for Faulty<dyn JobStore> {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        let (port, job) = (self.port.clone(), job.clone());
        self.faults.call("jobs.create", async move { port.create(&job).await }).await
    }

    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let (port, keys) = (self.port.clone(), keys.to_vec());
        self.faults.call("jobs.get_many", async move { port.get_many(&keys).await }).await
    }

    async fn get_due(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let (port, keys) = (self.port.clone(), keys.to_vec());
        self.faults.call("jobs.get_many", async move { port.get_due(&keys).await }).await
    }

    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        let (port, job, if_still) = (self.port.clone(), job.clone(), *if_still);
        self.faults.call("jobs.replace", async move { port.replace(&job, &if_still).await }).await
    }

    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        let (port, moves) = (self.port.clone(), moves.to_vec());
        let fault = self.faults.pass("jobs.advance").await;
        let fail_some = fault == Some(Fault::FailSome);
        let effect = async move {
            match fail_some {
                true => Ok(merge(moves.len(), port.advance_many(&spared(&moves)).await?)),
                false => port.advance_many(&moves).await,
            }
        };
        self.faults.perform("jobs.advance", fault, effect).await
    }

    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        let (port, key) = (self.port.clone(), key.clone());
        self.faults.call("jobs.unindex", async move { port.unindex(&key, bucket).await }).await
    }

    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        let (port, key, error) = (self.port.clone(), key.clone(), error.to_owned());
        self.faults.call("jobs.quarantine", async move { port.quarantine(&key, bucket, &error).await }).await
    }

    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        let port = self.port.clone();
        self.faults.call("jobs.scan", async move { port.scan(after, limit).await }).await
    }

    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        let (port, of) = (self.port.clone(), of.clone());
        self.faults.call("jobs.list", async move { port.list(&of, after, limit).await }).await
    }

    async fn keep_version(&self, job: &Job, expires_at: DateTime<Utc>) -> PortResult<()> {
        let (port, job) = (self.port.clone(), job.clone());
        self.faults.call("jobs.keep_version", async move { port.keep_version(&job, expires_at).await }).await
    }

    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        let (port, key) = (self.port.clone(), key.clone());
        self.faults.call("jobs.versions", async move { port.versions(&key, numbers).await }).await
    }

    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        let (port, key) = (self.port.clone(), key.clone());
        self.faults.call("jobs.forget_versions", async move { port.forget_versions(&key, numbers).await }).await
    }
}

#[async_trait]
impl DueIndex for Faulty<dyn DueIndex> {
    async fn page(
        &self,
        bucket: DueBucket,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
    ) -> PortResult<DuePage> {
        let port = self.port.clone();
        self.faults.call("due.page", async move { port.page(bucket, span, after, limit).await }).await
    }

    async fn quarantined(&self, shard: ShardId, after: Option<PageToken>, limit: usize) -> PortResult<DuePage> {
        let port = self.port.clone();
        self.faults.call("due.quarantined", async move { port.quarantined(shard, after, limit).await }).await
    }
}

#[async_trait]
impl RunStore for Faulty<dyn RunStore> {
    async fn get(&self, id: &RunId) -> PortResult<Option<RunRow>> {
        let (port, id) = (self.port.clone(), id.clone());
        self.faults.call("runs.get", async move { port.get(&id).await }).await
    }

    async fn put(&self, row: &RunRow) -> PortResult<Put> {
        let (port, row) = (self.port.clone(), row.clone());
        self.faults.call("runs.put", async move { port.put(&row).await }).await
    }

    async fn list(&self, key: &JobKey, limit: usize) -> PortResult<Vec<RunRow>> {
        let (port, key) = (self.port.clone(), key.clone());
        self.faults.call("runs.list", async move { port.list(&key, limit).await }).await
    }
}

#[async_trait]
impl RunHistory for Faulty<dyn RunHistory> {
    async fn rows(&self, key: &JobKey, span: RowSpan, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let (port, key) = (self.port.clone(), key.clone());
        self.faults.call("history.rows", async move { port.rows(&key, span, after, limit).await }).await
    }

    async fn row(&self, id: &RunId) -> PortResult<Option<RowRead>> {
        let (port, id) = (self.port.clone(), id.clone());
        self.faults.call("history.row", async move { port.row(&id).await }).await
    }

    async fn attention(&self, tenant: &str, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        let (port, tenant) = (self.port.clone(), tenant.to_owned());
        self.faults.call("history.attention", async move { port.attention(&tenant, after, limit).await }).await
    }

    async fn waiting(&self, most: usize) -> PortResult<Waiting> {
        let port = self.port.clone();
        self.faults.call("history.waiting", async move { port.waiting(most).await }).await
    }

    async fn attend(&self, id: &RunId, note: &Attended) -> PortResult<bool> {
        let (port, id, note) = (self.port.clone(), id.clone(), note.clone());
        self.faults.call("history.attend", async move { port.attend(&id, &note).await }).await
    }

    async fn attended(&self, id: &RunId) -> PortResult<Option<Attended>> {
        let (port, id) = (self.port.clone(), id.clone());
        self.faults.call("history.attended", async move { port.attended(&id).await }).await
    }
}

#[async_trait]
impl LeaseStore for Faulty<dyn LeaseStore> {
    async fn list(&self) -> PortResult<Vec<Lease>> {
        let port = self.port.clone();
        self.faults.call("leases.list", async move { port.list().await }).await
    }

    async fn init(&self, id: &LeaseId, cursor: Minute) -> PortResult<()> {
        let (port, id) = (self.port.clone(), id.clone());
        self.faults.call("leases.init", async move { port.init(&id, cursor).await }).await
    }

    async fn take(&self, id: &LeaseId, observed: Option<&Lease>, owner: &str) -> PortResult<Claim> {
        let (port, id, observed, owner) = (self.port.clone(), id.clone(), observed.cloned(), owner.to_owned());
        self.faults.call("leases.take", async move { port.take(&id, observed.as_ref(), &owner).await }).await
    }

    async fn renew(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<Claim> {
        let (port, id, owner) = (self.port.clone(), id.clone(), owner.to_owned());
        self.faults.call("leases.renew", async move { port.renew(&id, &owner, counter, cursor).await }).await
    }

    async fn release(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<()> {
        let (port, id, owner) = (self.port.clone(), id.clone(), owner.to_owned());
        self.faults.call("leases.release", async move { port.release(&id, &owner, counter, cursor).await }).await
    }

    async fn ask(&self, id: &LeaseId, owner: &str, by: &str) -> PortResult<()> {
        let (port, id, owner, by) = (self.port.clone(), id.clone(), owner.to_owned(), by.to_owned());
        self.faults.call("leases.ask", async move { port.ask(&id, &owner, &by).await }).await
    }

    async fn remove(&self, observed: &Lease) -> PortResult<()> {
        let (port, observed) = (self.port.clone(), observed.clone());
        self.faults.call("leases.remove", async move { port.remove(&observed).await }).await
    }
}

#[async_trait]
impl Control for Faulty<dyn Control> {
    async fn layout(&self) -> PortResult<Option<Layout>> {
        let port = self.port.clone();
        self.faults.call("control.layout", async move { port.layout().await }).await
    }

    async fn init_shards(&self, shards: Shards) -> PortResult<Shards> {
        let port = self.port.clone();
        self.faults.call("control.init_shards", async move { port.init_shards(shards).await }).await
    }

    async fn change_layout(&self, from: Layout, to: Layout) -> PortResult<Layout> {
        let port = self.port.clone();
        self.faults.call("control.change_layout", async move { port.change_layout(from, to).await }).await
    }

    async fn once(&self, id: &str, value: &str, expires_at: DateTime<Utc>) -> PortResult<String> {
        let (port, id, value) = (self.port.clone(), id.to_owned(), value.to_owned());
        self.faults.call("control.once", async move { port.once(&id, &value, expires_at).await }).await
    }

    async fn steering(&self) -> PortResult<Steering> {
        let port = self.port.clone();
        self.faults.call("control.steering", async move { port.steering().await }).await
    }

    async fn change_steering(&self, from: u64, to: &Steering) -> PortResult<Steering> {
        let (port, to) = (self.port.clone(), to.clone());
        self.faults.call("control.change_steering", async move { port.change_steering(from, &to).await }).await
    }

    async fn api_keys(&self) -> PortResult<ApiKeys> {
        let port = self.port.clone();
        self.faults.call("control.api_keys", async move { port.api_keys().await }).await
    }

    async fn change_api_keys(&self, from: u64, to: &ApiKeys) -> PortResult<ApiKeys> {
        let (port, to) = (self.port.clone(), to.clone());
        self.faults.call("control.change_api_keys", async move { port.change_api_keys(from, &to).await }).await
    }

    async fn kept(&self, id: &str) -> PortResult<Option<String>> {
        let (port, id) = (self.port.clone(), id.to_owned());
        self.faults.call("control.kept", async move { port.kept(&id).await }).await
    }
}

#[async_trait]
impl ShareStore for Faulty<dyn ShareStore> {
    async fn get(&self, target: &Target) -> PortResult<Shares> {
        let (port, target) = (self.port.clone(), target.clone());
        self.faults.call("shares.get", async move { port.get(&target).await }).await
    }

    async fn beat(&self, target: &Target, worker: &str, beat: u64) -> PortResult<Beat> {
        let (port, target, worker) = (self.port.clone(), target.clone(), worker.to_owned());
        self.faults.call("shares.beat", async move { port.beat(&target, &worker, beat).await }).await
    }

    async fn change(&self, target: &Target, from: u64, to: &Shares) -> PortResult<Shares> {
        let (port, target, to) = (self.port.clone(), target.clone(), to.clone());
        self.faults.call("shares.change", async move { port.change(&target, from, &to).await }).await
    }
}

#[async_trait]
impl ReportStore for Faulty<dyn ReportStore> {
    async fn put(&self, report: &WorkerReport) -> PortResult<()> {
        let (port, report) = (self.port.clone(), report.clone());
        self.faults.call("reports.put", async move { port.put(&report).await }).await
    }

    async fn remove(&self, worker: &str) -> PortResult<()> {
        let (port, worker) = (self.port.clone(), worker.to_owned());
        self.faults.call("reports.remove", async move { port.remove(&worker).await }).await
    }

    async fn list(&self) -> PortResult<Vec<WorkerReport>> {
        let port = self.port.clone();
        self.faults.call("reports.list", async move { port.list().await }).await
    }
}

#[async_trait]
impl RunQueue for Faulty<dyn RunQueue> {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        let (port, bodies) = (self.port.clone(), bodies.to_vec());
        let fault = self.faults.pass("queue.send").await;
        let sends = if fault == Some(Fault::Duplicate) { 2 } else { 1 };
        let fail_some = fault == Some(Fault::FailSome);
        let effect = async move {
            let mut results = Vec::new();
            for _ in 0..sends {
                results = match fail_some {
                    true => merge(bodies.len(), port.send_after(priority, &spared(&bodies), delay).await?),
                    false => port.send_after(priority, &bodies, delay).await?,
                };
            }
            Ok(results)
        };
        self.faults.perform("queue.send", fault, effect).await
    }

    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        let port = self.port.clone();
        let fault = self.faults.pass("queue.receive").await;
        let again = fault == Some(Fault::Duplicate);
        let effect = async move {
            let deliveries = port.receive(priority, max, wait, visibility).await?;
            if again && !deliveries.is_empty() {
                // Visible to others at once, while this receiver believes that it holds them.
                let receipts: Vec<_> = deliveries.iter().map(|d| (d.receipt.clone(), Duration::ZERO)).collect();
                port.extend(priority, &receipts).await?;
            }
            Ok(deliveries)
        };
        self.faults.perform("queue.receive", fault, effect).await
    }

    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        let (port, receipts) = (self.port.clone(), receipts.to_vec());
        let fault = self.faults.pass("queue.extend").await;
        let fail_some = fault == Some(Fault::FailSome);
        let effect = async move {
            match fail_some {
                true => Ok(merge(receipts.len(), port.extend(priority, &spared(&receipts)).await?)),
                false => port.extend(priority, &receipts).await,
            }
        };
        self.faults.perform("queue.extend", fault, effect).await
    }

    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        let (port, receipts) = (self.port.clone(), receipts.to_vec());
        let fault = self.faults.pass("queue.delete").await;
        let fail_some = fault == Some(Fault::FailSome);
        let effect = async move {
            match fail_some {
                true => Ok(merge(receipts.len(), port.delete(priority, &spared(&receipts)).await?)),
                false => port.delete(priority, &receipts).await,
            }
        };
        self.faults.perform("queue.delete", fault, effect).await
    }

    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        let (port, letter) = (self.port.clone(), letter.clone());
        self.faults.call("queue.send_dead_letter", async move { port.send_dead_letter(&letter).await }).await
    }

    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        let port = self.port.clone();
        self.faults.call("queue.depth", async move { port.depth(priority).await }).await
    }
}

/// The entries of a batch that [`Fault::FailSome`] lets through: the second, the fourth, and so on.
fn spared<T: Clone>(entries: &[T]) -> Vec<T> {
    entries.iter().skip(1).step_by(2).cloned().collect()
}

/// The results of a whole batch of which only the spared entries went through.
fn merge<T>(entries: usize, spared: Vec<PortResult<T>>) -> Vec<PortResult<T>> {
    let mut spared = spared.into_iter();
    let refused = || Err(PortError::Temporary("injected: this entry was refused".into()));
    (0..entries)
        .map(|n| match n % 2 {
            0 => refused(),
            _ => spared.next().unwrap_or_else(refused),
        })
        .collect()
}

#[async_trait]
impl Gateway for Faulty<dyn Gateway> {
    async fn send(&self, call: &Call) -> Outcome {
        let (port, call) = (self.port.clone(), call.clone());
        self.faults.call("gateway.send", async move { Ok(port.send(&call).await) }).await.unwrap_or_else(outcome_of)
    }

    fn serves(&self, handler: Handler) -> bool {
        self.port.serves(handler)
    }
}

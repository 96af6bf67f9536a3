//! One pass over one minute of a shard: read due pages, decide, and have everything performed.
//!
//! What is due is sent first ([`super::fire`]); backlogs and skips ([`super::backlog`]), clean-ups and quarantines follow
//! side by side. Nothing that fails
//! for one job keeps the others of its page from being enqueued: the first error is kept and told at the end.

use super::backlog::{Budget, WorkedOff};
use super::fire::Firing;
use super::in_hand::{InHand, Reach};
use super::metrics::Metrics;
use super::queues::Queues;
use super::soon::Reading;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{self, StreamExt};
use punctual_core::clock::Clock;
use punctual_core::dispatch::{Decision, decide, is_backlog};
use punctual_core::due::{Cursor, DueBucket, ShardId, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Job, JobKey, Timetable};
use punctual_core::ports::{DueEntry, DuePage, DueSpan, JobRead, PageToken, Ports};
use punctual_core::priority::Priority;
use punctual_core::telemetry::table;
use punctual_core::zone::Zones;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Skips and clean-ups of one page that are worked on at the same time.
const ASIDES_AT_ONCE: usize = 16;

/// Whether this copy may still act for the shard, and a note that it got somewhere.
pub trait Permission: Send + Sync {
    /// Whether the lease is trusted right now. Asked before every send and every skip.
    fn holds(&self) -> bool;
    /// Some jobs were done with: the renewal is earned.
    fn progress(&self);
}

/// Reads, decides, enqueues, advances.
pub struct Dispatcher {
    pub(super) ports: Ports,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) queues: Queues,
    /// Bounds the sends and advances under way in this process.
    pub(super) in_flight: Semaphore,
    shards: RwLock<Shards>,
    zones: Arc<Zones>,
    /// This copy holds the first shard.
    is_first: AtomicBool,
    pub(super) id: String,
    page: usize,
}

/// What some work came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Something due was left that is in no trouble of its own.
    pub left: bool,
    /// Jobs in trouble were left where they stand.
    pub stuck: bool,
    /// The first call that failed.
    pub error: Option<PortError>,
    /// The first failure that concerned one job alone.
    pub trouble: Option<(JobKey, PortError)>,
    /// The jobs of a page of which that is so, until the page is done with: they are taken along then, or stuck.
    pub in_trouble: Vec<JobKey>,
    /// The jobs that were moved on.
    pub moved: Vec<JobKey>,
    /// The jobs that were left because their queue is in trouble.
    pub waiting: Vec<(JobKey, Priority)>,
    /// How many jobs were found where they were looked for.
    pub found: usize,
}

/// On whose behalf a shard is worked on.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Whether this copy may act.
    pub permission: &'a dyn Permission,
    /// What its two sides have in hand.
    pub in_hand: &'a InHand,
}

/// A page of due jobs, as they were read.
struct Page {
    jobs: BTreeMap<JobKey, JobRead>,
    /// Just before the jobs were read: what is decided about them is decided as of then, so that a copy that stood still
    /// since does not take for missed what another one has sent meanwhile.
    read_at: DateTime<Utc>,
    /// Some are being sent by the other side: whether they are done is not known yet.
    is_busy: bool,
    next: Option<PageToken>,
}

/// What firings are placed by at one moment.
pub(super) struct World {
    shards: Shards,
    zones: Arc<Zones>,
}

impl World {
    pub(super) fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.left |= other.left;
        self.stuck |= other.stuck;
        self.error = self.error.take().or(other.error);
        self.trouble = self.trouble.take().or(other.trouble);
        self.in_trouble.extend(other.in_trouble);
        self.moved.extend(other.moved);
        self.waiting.extend(other.waiting);
        self.found += other.found;
    }

    pub(super) fn left() -> Self {
        Tally { left: true, ..Tally::default() }
    }

    pub(super) fn failed(error: PortError) -> Self {
        Tally { left: true, error: Some(error), ..Tally::default() }
    }

    pub(super) fn in_trouble(key: JobKey, error: PortError) -> Self {
        Tally { in_trouble: vec![key.clone()], trouble: Some((key, error)), ..Tally::default() }
    }

    /// Lets go of what this is the tally of.
    pub(super) fn let_go(&mut self, keys: &[JobKey], in_hand: &InHand, now: Duration) {
        let moved: HashSet<JobKey> = self.moved.drain(..).collect();
        let waiting: HashMap<JobKey, Priority> = self.waiting.drain(..).collect();
        for key in keys {
            match waiting.get(key) {
                Some(priority) if !moved.contains(key) => in_hand.let_wait(key, *priority, now),
                _ => in_hand.let_go(key, moved.contains(key), now),
            }
        }
    }

    /// Whether nothing due was left, in trouble or not.
    pub(super) fn is_drained(&self) -> bool {
        !self.left && !self.stuck && self.in_trouble.is_empty()
    }
}

/// What is to be done about a job other than sending its one run.
enum Aside {
    /// It owes several firings, or one that is too late: work them off ([`super::backlog`]).
    WorkOff(Box<Job>),
    Unindex(JobKey),
    Quarantine(JobKey, String),
}

impl Dispatcher {
    /// A dispatcher that signs its messages with `id`.
    pub fn new(
        ports: Ports,
        clock: Arc<dyn Clock>,
        shards: Shards,
        zones: Arc<Zones>,
        id: String,
        settings: &super::DispatchSettings,
    ) -> Self {
        Self {
            ports,
            clock,
            metrics: Metrics::new(),
            queues: Queues::new(settings.leases.lease),
            in_flight: Semaphore::new(settings.calls_in_flight),
            shards: RwLock::new(shards),
            zones,
            is_first: AtomicBool::new(false),
            id,
            page: settings.page,
        }
    }

    /// Works through what is due in one bucket. What was done before an error stays done, the next pass goes on. While the
    /// jobs of one page are worked on, the next page is read.
    pub async fn minute(&self, bucket: DueBucket, scope: &Scope<'_>) -> Tally {
        let mut tally = Tally::default();
        let mut read = self.read(bucket, None, scope).await;
        loop {
            let Page { jobs, read_at, is_busy, next } = match read {
                Ok(page) => page,
                Err(of_read) => {
                    tally.add(of_read);
                    return tally;
                }
            };
            tally.left |= is_busy;
            let taken: Vec<JobKey> = jobs.keys().cloned().collect();
            let follows = next.is_some();
            let following = async {
                match next {
                    Some(after) => Some(self.read(bucket, Some(after), scope).await),
                    None => None,
                }
            };
            let (mut of_page, following) = futures::join!(self.page(bucket, jobs, read_at, scope), following);
            let now = self.clock.monotonic();
            of_page.let_go(&taken, scope.in_hand, now);
            tally.found += taken.len();
            // A store that asks for fewer calls gets none until the shard's back-off is over.
            let is_throttled = matches!(of_page.error, Some(PortError::Throttled(_)));
            tally.add(of_page);
            match following {
                Some(page) if !is_throttled && scope.permission.holds() => read = page,
                unused => {
                    if let Some(Ok(page)) = unused {
                        page.jobs.keys().for_each(|key| scope.in_hand.let_go(key, false, now));
                    }
                    tally.left |= follows;
                    return tally;
                }
            }
        }
    }

    /// Reads a page of what is due, and its jobs, and takes in hand what nobody has in hand.
    async fn read(&self, bucket: DueBucket, after: Option<PageToken>, scope: &Scope<'_>) -> Result<Page, Tally> {
        if !scope.permission.holds() {
            return Err(Tally::left());
        }
        let span = DueSpan::up_to(self.clock.now());
        let DuePage { entries, next } =
            self.ports.due.page(bucket, span, after, self.page).await.map_err(Tally::failed)?;
        let now = self.clock.monotonic();
        let (mut keys, mut is_busy) = (Vec::with_capacity(entries.len()), false);
        for DueEntry { key, due_at } in entries {
            match scope.in_hand.take(&key, due_at, now, |priority| self.queues.is_closed(priority, now)) {
                Reach::Taken => keys.push(key),
                Reach::Busy => is_busy = true,
                Reach::Done => {}
            }
        }
        if keys.is_empty() {
            return Ok(Page { jobs: BTreeMap::new(), read_at: span.until, is_busy, next });
        }
        let read_at = self.clock.now();
        match self.ports.jobs.get_due(&keys).await {
            Ok(jobs) => {
                // What is shown but not there is gone.
                keys.iter().filter(|key| !jobs.contains_key(key)).for_each(|key| scope.in_hand.let_go(key, false, now));
                Ok(Page { jobs, read_at, is_busy, next })
            }
            Err(error) => {
                keys.iter().for_each(|key| scope.in_hand.let_go(key, false, now));
                Err(Tally::failed(error))
            }
        }
    }

    async fn page(
        &self,
        bucket: DueBucket,
        jobs: BTreeMap<JobKey, JobRead>,
        read_at: DateTime<Utc>,
        scope: &Scope<'_>,
    ) -> Tally {
        let permission = scope.permission;
        let (mut firings, mut asides) = (Vec::new(), Vec::new());
        for (key, read) in jobs {
            self.sort_out(bucket, key, read, read_at, &mut firings, &mut asides);
        }
        let mut tally = self.fire_all(firings, Duration::ZERO, permission).await;
        let budget = Budget::of_a_page();
        let work: Vec<_> =
            asides.into_iter().map(|aside| self.aside(bucket, aside, read_at, permission, &budget)).collect();
        let results: Vec<_> = stream::iter(work).buffer_unordered(ASIDES_AT_ONCE).collect().await;
        let mut late = Vec::new();
        for result in results {
            match result {
                Ok(to_be_sent) => late.extend(to_be_sent),
                Err(of_one) => tally.add(of_one),
            }
        }
        tally.add(self.fire_all(late, Duration::ZERO, permission).await);
        let in_trouble = std::mem::take(&mut tally.in_trouble);
        tally.stuck |= !self.take_along(bucket, &in_trouble, permission).await;
        tally
    }

    /// Reads a part of the near future: the runs in it that need nothing but to be sent. All else is left to the passes
    /// that come when it is due.
    pub(super) async fn look(
        &self,
        shard: ShardId,
        reading: &Reading,
    ) -> Result<(Vec<Firing>, Option<PageToken>), PortError> {
        let bucket = DueBucket { minute: reading.minute, shard };
        let page = self.ports.due.page(bucket, reading.span, reading.after.clone(), self.page).await?;
        let due: BTreeMap<JobKey, DateTime<Utc>> =
            page.entries.into_iter().map(|entry| (entry.key, entry.due_at)).collect();
        let keys: Vec<JobKey> = due.keys().cloned().collect();
        let jobs = if keys.is_empty() { BTreeMap::new() } else { self.ports.jobs.get_due(&keys).await? };
        let world = self.world();
        let mut firings = Vec::with_capacity(jobs.len());
        for (key, read) in jobs {
            let (JobRead::Job(job), Some(due_at)) = (read, due.get(&key)) else { continue };
            if let Decision::Fire { priority, mut runs } = decide(&job, bucket, *due_at, &world.timetable(), &self.id)
                && runs.len() == 1
                && let Some(run) = runs.pop().filter(|run| run.message.due_at == *due_at)
            {
                firings.push(Firing::new(priority, run, &job));
            }
        }
        Ok((firings, page.next))
    }

    /// Decides about one entry.
    fn sort_out(
        &self,
        bucket: DueBucket,
        key: JobKey,
        read: JobRead,
        now: DateTime<Utc>,
        firings: &mut Vec<Firing>,
        asides: &mut Vec<Aside>,
    ) {
        let job = match read {
            JobRead::Job(job) => job,
            JobRead::Unreadable(reason) => return asides.push(Aside::Quarantine(key, reason)),
        };
        let world = self.world();
        if is_backlog(&job, now, &world.timetable()) {
            return asides.push(Aside::WorkOff(job));
        }
        match decide(&job, bucket, now, &world.timetable(), &self.id) {
            Decision::Stale => {}
            Decision::Unindex => asides.push(Aside::Unindex(key)),
            Decision::Broken(reason) => asides.push(Aside::Quarantine(key, reason)),
            Decision::Fire { priority, runs } => {
                firings.extend(runs.into_iter().map(|run| Firing::new(priority, run, &job)));
            }
            Decision::Skip { .. } | Decision::Coalesce(_) => asides.push(Aside::WorkOff(job)),
        }
    }

    /// Performs one aside; returns the run of a skip whose row is open: it must be sent after all, the worker decides.
    async fn aside(
        &self,
        bucket: DueBucket,
        aside: Aside,
        read_at: DateTime<Utc>,
        permission: &dyn Permission,
        budget: &Budget,
    ) -> Result<Option<Firing>, Tally> {
        if !permission.holds() {
            return Err(Tally::left());
        }
        let (key, result) = match aside {
            Aside::Quarantine(key, reason) => {
                let result = self.quarantine(&key, bucket, &reason).await;
                (key, result.map(|()| None))
            }
            Aside::Unindex(key) => {
                let result = self.ports.jobs.unindex(&key, bucket).await;
                (key, result.map(|()| None))
            }
            Aside::WorkOff(job) => {
                let key = job.spec.key.clone();
                match self.work_off(*job, bucket, read_at, permission, budget).await {
                    Ok(WorkedOff::Done(tally)) if !tally.is_drained() => return Err(tally),
                    Ok(WorkedOff::Done(_)) => (key, Ok(None)),
                    Ok(WorkedOff::Send(firing)) => (key, Ok(Some(*firing))),
                    Err(error) => (key, Err(error)),
                }
            }
        };
        if result.is_ok() {
            permission.progress();
        }
        result.map_err(|error| match error {
            // The store asks for fewer calls of everybody.
            PortError::Throttled(_) => Tally::failed(error),
            // Rights, or a row that cannot be read or written: the job stays due, and nothing else waits for it.
            error => Tally::in_trouble(key, error),
        })
    }

    /// Sets one job aside, so that it never stops the others.
    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, reason: &str) -> Result<(), PortError> {
        self.ports.jobs.quarantine(key, bucket, reason).await?;
        tracing::error!(job.id = %key, reason, "a job cannot be dispatched and is quarantined: look at its item");
        self.metrics.quarantined.increment(1);
        Ok(())
    }

    /// What firings are placed by now.
    pub(super) fn world(&self) -> World {
        let shards = *self.shards.read().unwrap_or_else(PoisonError::into_inner);
        World { shards, zones: self.zones.clone() }
    }

    /// Puts jobs into these shards from now on.
    pub(super) fn set_shards(&self, shards: Shards) {
        *self.shards.write().unwrap_or_else(PoisonError::into_inner) = shards;
    }

    /// Whether this copy tells what is the same for all.
    pub(super) fn is_first(&self) -> bool {
        self.is_first.load(Ordering::Relaxed)
    }

    /// Tells what this copy holds: how many shards, the oldest of their cursors, and whether the first one is among them.
    pub(super) fn note_shards(&self, held: usize, oldest: Option<Cursor>, is_first: bool) {
        let now = self.clock.now();
        let age_s = oldest.map_or(0.0, |cursor| (now - cursor.0.start()).as_seconds_f64().max(0.0));
        table::SHARDS_HELD.gauge(&[]).set(held as f64);
        table::CURSOR_AGE.gauge(&[]).set(age_s);
        self.is_first.store(is_first, Ordering::Relaxed);
    }

    pub(super) fn count_taken(&self, shards: usize) {
        self.metrics.shards_taken.increment(shards as u64);
    }

    pub(super) fn note_clock_offset(&self, offset: TimeDelta) {
        self.metrics.clock_offset.set(offset.as_seconds_f64());
    }

    pub(super) fn count_stragglers(&self, jobs: usize) {
        self.metrics.stragglers.increment(jobs as u64);
    }

    pub(super) fn count_failure(&self) {
        self.metrics.pass_failures.increment(1);
    }
}

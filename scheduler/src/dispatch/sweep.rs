//! Newer zone rules: every job that older ones placed is looked at again, by one copy, slowly.
//!
//! [`rezone`] decides; only jobs whose instant or wall time changes are written, under the condition that they still stand
//! where they were read. A copy with older rules never sweeps over a newer one. The sweep is repeated each week: while
//! copies of both kinds run, an older one may place a job that the sweep has passed.

use super::pass::Dispatcher;
use punctual_core::clock::{Clock, Stopwatch, Trust};
use punctual_core::due::Minute;
use punctual_core::error::PortError;
use punctual_core::job::Job;
use punctual_core::lease::{Lease, LeaseId, Observer};
use punctual_core::ports::{AdvanceFrom, Claim, JobRead, Move, PageToken, PortResult, Ports};
use punctual_core::rezone::{Rezone, rezone};
use punctual_core::zone::{TzVersion, Zones};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks whether there is something to sweep.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A sweep is done again after this long.
const AGAIN_AFTER_MIN: i64 = 7 * 1_440;
/// Jobs read at a time, and the pause behind them: some 500 jobs a second, 2.7 million in an hour and a half.
const PAGE: usize = 100;
const PAUSE: Duration = Duration::from_millis(200);
/// Pause after a call that failed.
const BACKOFF: Duration = Duration::from_secs(5);
/// A sweep that has not renewed its lease for this long is given to another copy; it renews four times as often, and
/// trusts its lease for half as long.
const LEASE: Duration = Duration::from_secs(120);

/// The sweeps of one copy.
pub(super) struct Sweep {
    ports: Ports,
    clock: Arc<dyn Clock>,
    zones: Arc<Zones>,
    id: String,
    observer: Observer,
}

/// What a sweep came to.
#[derive(Clone, Copy, Debug, Default)]
struct Swept {
    seen: u64,
    moved: u64,
}

impl Sweep {
    pub(super) fn new(ports: Ports, clock: Arc<dyn Clock>, zones: Arc<Zones>, id: String) -> Self {
        Sweep { ports, clock, zones, id, observer: Observer::default() }
    }

    /// Sweeps whenever it is time, for ever.
    pub(super) async fn run(mut self, dispatcher: Arc<Dispatcher>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.look(&dispatcher).await {
                Ok(None) => {}
                Ok(Some(Swept { seen, moved })) => {
                    tracing::info!(zones = %self.zones.version(), seen, moved, "jobs were placed by newer zone rules");
                }
                Err(error) => {
                    tracing::warn!(class = error.class(), %error, "a sweep by newer zone rules broke off: it is tried again");
                }
            }
        }
    }

    async fn look(&mut self, dispatcher: &Dispatcher) -> PortResult<Option<Swept>> {
        if self.clock.check().is_err() {
            return Ok(None);
        }
        let leases = self.ports.leases.list().await?;
        let now = self.clock.monotonic();
        self.observer.observe(&leases, now);
        let mine = LeaseId::Zones(self.zones.version().as_str().to_owned());
        let held = leases.iter().find(|lease| lease.id == mine);
        let is_held = held.is_some_and(|l| l.owner.is_some() && self.observer.stood_still(&l.id, now) < LEASE);
        if is_held || leases.iter().any(|lease| self.is_done(lease)) {
            return Ok(None);
        }
        let since = Stopwatch::start(&*self.clock);
        match self.ports.leases.take(&mine, held, &self.id).await? {
            Claim::Held { counter } => self.sweep(dispatcher, &mine, counter, since).await,
            Claim::Mine { .. } | Claim::Lost => Ok(None),
        }
    }

    /// Whether a lease says that rules as new as these, or newer ones, have been swept by lately.
    fn is_done(&self, lease: &Lease) -> bool {
        let LeaseId::Zones(version) = &lease.id else { return false };
        let done_at = lease.cursor.filter(|_| lease.owner.is_none());
        let today = Minute::of(self.clock.now());
        TzVersion::new(version) >= *self.zones.version() && done_at.is_some_and(|at| today.0 - at.0 < AGAIN_AFTER_MIN)
    }

    /// Goes through all jobs. None when the lease was lost on the way.
    async fn sweep(
        &self,
        dispatcher: &Dispatcher,
        id: &LeaseId,
        mut counter: u64,
        mut since: Stopwatch,
    ) -> PortResult<Option<Swept>> {
        let (mut swept, mut after) = (Swept::default(), None);
        let mut got_on = Stopwatch::start(&*self.clock);
        loop {
            if since.elapsed(&*self.clock) >= LEASE / 4 {
                let started = Stopwatch::start(&*self.clock);
                match self.ports.leases.renew(id, &self.id, counter, None).await {
                    Ok(Claim::Held { counter: now } | Claim::Mine { counter: now }) => {
                        (counter, since) = (now, started)
                    }
                    Ok(Claim::Lost) => return Ok(None),
                    Err(_) if (Trust { since, lasts: LEASE / 2 }).is_over(&*self.clock) => return Ok(None),
                    Err(_) => {}
                }
            }
            match self.page(dispatcher, after.clone(), &mut swept).await {
                Ok(None) => break,
                Ok(next) => {
                    after = next;
                    got_on = Stopwatch::start(&*self.clock);
                    tokio::time::sleep(PAUSE).await;
                }
                // What was moved stays moved; the page is read again.
                Err(error) if error.may_pass() && got_on.elapsed(&*self.clock) < LEASE => {
                    tokio::time::sleep(BACKOFF).await;
                }
                Err(error) => {
                    // Another copy may get on: it begins anew. What cannot be given back expires by itself.
                    let _ = self.ports.leases.release(id, &self.id, counter, None).await;
                    return Err(error);
                }
            }
        }
        let done_at = Minute::of(self.clock.now());
        self.ports.leases.release(id, &self.id, counter, Some(done_at)).await?;
        Ok(Some(swept))
    }

    async fn page(
        &self,
        dispatcher: &Dispatcher,
        after: Option<PageToken>,
        swept: &mut Swept,
    ) -> PortResult<Option<PageToken>> {
        if let Err(off) = self.clock.check() {
            return Err(PortError::Temporary(off.to_string()));
        }
        let page = self.ports.jobs.scan(after, PAGE).await?;
        for read in page.jobs.values() {
            swept.seen += 1;
            if let JobRead::Job(job) = read {
                swept.moved += u64::from(self.place(dispatcher, job).await?);
            }
        }
        Ok(page.next)
    }

    /// Places one job again; says whether it moved.
    async fn place(&self, dispatcher: &Dispatcher, job: &Job) -> PortResult<bool> {
        let world = dispatcher.world();
        let Rezone::Move(to) = rezone(job, self.clock.now(), &world.timetable()) else { return Ok(false) };
        let stays = to
            .next
            .as_ref()
            .is_some_and(|next| (Some(next.scheduled_at), next.wall) == (job.next_scheduled_at, job.next_wall));
        let (false, Some(scheduled_at)) = (stays, job.next_scheduled_at) else { return Ok(false) };
        let from = AdvanceFrom { next_scheduled_at: scheduled_at, version: job.version };
        let tally = dispatcher.advance(vec![Move { key: job.spec.key.clone(), from, to }]).await;
        tally.error.map_or(Ok(!tally.moved.is_empty()), Err)
    }
}

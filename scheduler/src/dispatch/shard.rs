//! The work on one shard: a pass over what is due every tick, slower while the store or a queue is in trouble; beside it the
//! near future ([`super::ahead`]), and every now and then a look at what lies behind the cursor.

use super::ahead;
use super::in_hand::InHand;
use super::leases::{ShardLease, Side};
use super::pass::{Dispatcher, Permission, Scope, Tally};
use super::trouble::Told;
use super::{DispatchSettings, FULL_PASS_EVERY};
use punctual_core::clock::Clock;
use punctual_core::due::{Audit, DueBucket, Minute};
use punctual_core::error::PortError;
use std::sync::Arc;
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(250);
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);

/// Works on a shard from both sides until its lease is given up.
pub(super) async fn work(
    dispatcher: Arc<Dispatcher>,
    clock: Arc<dyn Clock>,
    lease: Arc<ShardLease>,
    settings: DispatchSettings,
) {
    let in_hand = InHand::default();
    let passes = async {
        Passes::new(&dispatcher, &*clock, &lease, &in_hand, settings.tick).run().await;
    };
    futures::join!(passes, ahead::work(&dispatcher, &*clock, &lease, &in_hand, &settings));
    lease.set_ended();
}

/// The passes over one shard.
struct Passes<'a> {
    dispatcher: &'a Dispatcher,
    clock: &'a dyn Clock,
    lease: &'a ShardLease,
    in_hand: &'a InHand,
    tick: Duration,
    failures: u32,
    told: Told,
    last_full: Option<Duration>,
    /// The last pass left something due: the next one begins with what is on time.
    is_behind: bool,
    audit: Audit,
}

impl<'a> Passes<'a> {
    fn new(
        dispatcher: &'a Dispatcher,
        clock: &'a dyn Clock,
        lease: &'a ShardLease,
        in_hand: &'a InHand,
        tick: Duration,
    ) -> Self {
        let audit = Audit::begin(clock.now());
        Passes {
            dispatcher,
            clock,
            lease,
            in_hand,
            tick,
            failures: 0,
            told: Told::default(),
            last_full: None,
            is_behind: false,
            audit,
        }
    }

    async fn run(&mut self) {
        while !self.lease.is_given_up() {
            let wait = if self.lease.holds() { self.tick().await } else { self.tick };
            self.lease.sleep(wait).await;
        }
    }

    /// One pass; returns how long to wait for the next.
    async fn tick(&mut self) -> Duration {
        let began = self.clock.monotonic();
        self.in_hand.purge(began);
        let is_full = self.last_full.is_none_or(|at| began.saturating_sub(at) >= FULL_PASS_EVERY);
        let tally = if is_full {
            self.full_pass().await
        } else {
            let minutes = self.lease.cursor().latest_minutes(self.clock.now());
            self.pass(minutes, |_| {}).await
        };
        let went_well = is_full && tally.error.is_none();
        self.told.tell(self.lease.shard, tally.trouble.as_ref(), went_well);
        // A job in trouble is tried again in time: nothing else is read again for it.
        if is_full || tally.left {
            self.last_full = (!tally.left).then_some(began);
        }
        self.is_behind = tally.left;
        let error = match tally.error {
            None if tally.left => None,
            None => self.look_behind().await,
            error => error,
        };
        match error {
            None => {
                self.failures = 0;
                self.lease.side(Side::Passes, &self.dispatcher.queues).progress();
                self.tick.saturating_sub(self.clock.monotonic().saturating_sub(began))
            }
            Some(error) => {
                self.dispatcher.count_failure();
                tell(self.lease, &error, self.failures == 0);
                let wait = backoff(self.failures);
                self.failures = (self.failures + 1).min(8);
                wait
            }
        }
    }

    /// Reads every minute from the cursor to now, and moves the cursor behind each that is drained, so that a pass that
    /// breaks off has not been for nothing.
    async fn full_pass(&self) -> Tally {
        let (began, lease) = (self.clock.now(), self.lease);
        let cursor = lease.cursor().not_ahead_of(began);
        let ahead = lease.cursor().0.0 - cursor.0.0;
        if ahead > 1 {
            // One minute is what two good clocks can differ by at a minute's turn.
            tracing::error!(
                shard = %lease.shard,
                minutes = ahead,
                "the shard's cursor is ahead of this host's clock: one of the clocks that moved it was wrong; it is set back"
            );
        }
        lease.set_cursor(cursor);
        self.pass(cursor.minutes(began), |drained| lease.set_cursor(cursor.after(drained, began))).await
    }

    /// Works through minutes, oldest first; `drained` is told each one up to the first in which something is left. Minutes
    /// with nothing in them count as progress only while all goes well: otherwise a copy that cannot send would earn its
    /// renewals by reading.
    async fn pass(&self, minutes: impl Iterator<Item = Minute> + Send, drained: impl Fn(Minute) + Send) -> Tally {
        let side = self.lease.side(Side::Passes, &self.dispatcher.queues);
        let scope = Scope { permission: &side, in_hand: self.in_hand };
        let is_healthy = self.failures == 0;
        let (mut tally, mut on_time) = (Tally::default(), Tally::default());
        // None = before the first minute. A backlog, or a store that throttles it, keeps nothing waiting that is on time.
        let mut looked_at = (!self.is_behind).then(|| self.clock.monotonic());
        for minute in minutes {
            let now = self.clock.monotonic();
            if looked_at.is_none_or(|at| now.saturating_sub(at) >= self.tick) {
                on_time.add(self.latest(&scope, minute).await);
                looked_at = Some(self.clock.monotonic());
            }
            tally.add(self.dispatcher.minute(DueBucket { minute, shard: self.lease.shard }, &scope).await);
            let is_throttled = matches!(tally.error, Some(PortError::Throttled(_)));
            if is_healthy && tally.error.is_none() {
                side.progress();
            }
            if tally.is_drained() {
                drained(minute);
            } else if is_throttled || !self.lease.holds() {
                break;
            }
        }
        tally.add(on_time);
        tally
    }

    /// The latest minutes, as far as they lie behind `minute`, which the pass has come to.
    async fn latest(&self, scope: &Scope<'_>, minute: Minute) -> Tally {
        let mut tally = Tally::default();
        for latest in self.lease.cursor().latest_minutes(self.clock.now()).filter(|latest| *latest > minute) {
            tally.add(self.dispatcher.minute(DueBucket { minute: latest, shard: self.lease.shard }, scope).await);
        }
        tally
    }

    /// Reads some of the minutes that the cursor has passed, where nothing should be any more.
    async fn look_behind(&mut self) -> Option<PortError> {
        let side = self.lease.side(Side::Passes, &self.dispatcher.queues);
        let scope = Scope { permission: &side, in_hand: self.in_hand };
        for minute in self.audit.minutes(self.clock.now(), self.lease.cursor()) {
            let bucket = DueBucket { minute, shard: self.lease.shard };
            let tally = self.dispatcher.minute(bucket, &scope).await;
            if tally.found > 0 {
                self.dispatcher.count_stragglers(tally.found);
                tracing::warn!(%bucket, jobs = tally.found, "jobs were left behind the cursor: they are dispatched now");
            }
            if tally.error.is_some() {
                return tally.error;
            }
            // After a long backlog there are many of them: reading them is no hang.
            side.progress();
        }
        None
    }
}

/// How long to leave the store alone after so many failures in a row.
pub(super) fn backoff(failures: u32) -> Duration {
    (FIRST_BACKOFF * 2u32.pow(failures.min(8))).min(LONGEST_BACKOFF)
}

/// Says what is wrong: once a trouble, not once a tick.
pub(super) fn tell(lease: &ShardLease, error: &PortError, is_new: bool) {
    let (shard, class) = (lease.shard, error.class());
    match error {
        _ if !is_new => tracing::debug!(%shard, class, %error, "a pass failed again"),
        PortError::Permanent(_) => {
            tracing::error!(%shard, class, %error, "a pass was refused: it is repeated with back-off")
        }
        _ => tracing::warn!(%shard, class, %error, "a pass failed: it is repeated with back-off"),
    }
}

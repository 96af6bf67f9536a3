//! Step 7, *rate*: a call waits for its permit, it never collects a refusal.
//!
//! Each limited target has two limiters (`governor`), at the pace of the shares that this worker may use now
//! ([`crate::shares`] keeps them). One lets a run in: it has its permit, and is begun. The other is at the door: what the
//! store's answers have bunched up in between leaves at that pace again. Both start empty, and so do those that follow
//! them when the pace changes: nobody is owed anything for the time before. Without trusted shares nothing is let in, and
//! nothing out. [`Permits::try_permit`] is for whoever picks among several targets, [`Permits::next`] stands in line.

use crate::steering::Steered;
use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use punctual_core::clock::{Clock, Trust};
use punctual_core::rate::{Pace, SHARES, pace};
use punctual_core::target::Target;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Time until somebody who may not send looks again, whatever he is told.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A target that nobody asked for in so long is of no interest any more.
pub const INTEREST: Duration = Duration::from_secs(300);
const ALL_SHARES: NonZeroU32 = NonZeroU32::new(SHARES).expect("there are shares");

/// The project's clock, as `governor` reads it.
#[derive(Clone)]
struct Monotonic(Arc<dyn Clock>);

impl GovernorClock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<<Monotonic as GovernorClock>::Instant>>;

/// Whether a call may go out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Yes; this permit is used up.
    Ready,
    /// At this reading of the monotonic clock at the earliest: ask again then.
    At(Duration),
    /// Not with the shares and the knowledge that there are now: ask again when [`Permits::changed`].
    Never,
}

/// By what this worker's part of a limit is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By shares under lease.
    Leased,
    /// One of so many equal parts, whoever runs: for functions, which cannot renew a lease while they are frozen.
    Static(NonZeroU32),
}

/// Who wants shares has some within this time, as a rule.
const SHARES_COME: Duration = Duration::from_secs(5);

/// Hands out permits, target by target.
pub struct Permits {
    clock: Arc<dyn Clock>,
    steered: Arc<Steered>,
    sharing: Sharing,
    gates: Mutex<BTreeMap<Target, Gate>>,
    // Wakes in the order of waiting, which a watch does not.
    changes: Notify,
    listener: Notify,
}

/// One target.
struct Gate {
    wanted_at: Option<Duration>,
    /// Since when permits are asked for in vain, for want of a part.
    lacks_since: Option<Duration>,
    shares: u32,
    trust: Option<Trust>,
    limiters: Option<Limiters>,
    lines: [Arc<tokio::sync::Mutex<()>>; 2],
}

/// The limiters of one pace, in the order of [`Side`].
struct Limiters {
    pace: Pace,
    limiters: [Limiter; 2],
}

/// Which of a target's two limiters.
#[derive(Clone, Copy)]
enum Side {
    /// Lets a run in.
    Entry,
    /// Lets its call out.
    Door,
}

impl Gate {
    fn new() -> Self {
        Gate { wanted_at: None, lacks_since: None, shares: 0, trust: None, limiters: None, lines: Default::default() }
    }

    /// Shares that may be used now.
    fn usable(&self, clock: &dyn Clock) -> u32 {
        if self.trust.as_ref().is_some_and(|trust| !trust.is_over(clock)) { self.shares } else { 0 }
    }

    /// The limiter of this pace: the one there is, or a new one that is empty.
    fn limiter(&mut self, side: Side, pace: Pace, clock: &Arc<dyn Clock>) -> &Limiter {
        let fits = self.limiters.take_if(|limiters| limiters.pace == pace);
        let new = || Limiters { pace, limiters: std::array::from_fn(|_| empty_limiter(pace, clock)) };
        &self.limiters.insert(fits.unwrap_or_else(new)).limiters[side as usize]
    }
}

fn empty_limiter(pace: Pace, clock: &Arc<dyn Clock>) -> Limiter {
    let quota = Quota::with_period(pace.period).expect("a pace has a period").allow_burst(pace.burst);
    let limiter = Limiter::direct_with_clock(quota, Monotonic(clock.clone()));
    // Spends the burst that a new limiter starts with.
    let _ = limiter.check_n(pace.burst);
    limiter
}

impl Permits {
    /// Permits by the limits of `steered`, of which this worker has its part.
    pub fn new(clock: Arc<dyn Clock>, steered: Arc<Steered>, sharing: Sharing) -> Self {
        let (changes, listener) = (Notify::new(), Notify::new());
        Permits { clock, steered, sharing, gates: Mutex::default(), changes, listener }
    }

    /// Takes a permit for a call to `target`, if there is one.
    pub fn try_permit(&self, target: &Target) -> Permit {
        self.ask(target, Side::Entry)
    }

    fn ask(&self, target: &Target, side: Side) -> Permit {
        let Some(steering) = self.steered.current() else { return Permit::Never };
        let Some(limit) = steering.limit(target) else { return Permit::Ready };
        let mut gates = self.gates();
        if !gates.contains_key(target) {
            gates.insert(target.clone(), Gate::new());
        }
        let gate = gates.get_mut(target).expect("it is there by now");
        let now = self.clock.monotonic();
        // What was lacking when somebody last asked, long ago, says nothing.
        if gate.wanted_at.is_none_or(|at| now.saturating_sub(at) > 12 * SHARES_COME) {
            gate.lacks_since = None;
        }
        gate.wanted_at = Some(now);
        let (parts, of) = match self.sharing {
            Sharing::Leased => (gate.usable(&*self.clock), ALL_SHARES),
            Sharing::Static(concurrency) => (1, concurrency),
        };
        let Some(pace) = pace(limit, parts, of) else {
            gate.lacks_since.get_or_insert(now);
            return Permit::Never;
        };
        gate.lacks_since = None;
        match gate.limiter(side, pace, &self.clock).check() {
            Ok(()) => Permit::Ready,
            Err(not_until) => Permit::At(not_until.earliest_possible()),
        }
    }

    /// How many calls a second this worker may make to `target`: 0 when it has had no part of the limit for a while; none where
    /// nothing limits it, or it is not known yet.
    pub fn pace(&self, target: &Target) -> Option<f64> {
        let limit = self.steered.current()?.limit(target)?;
        let gates = self.gates();
        let (parts, of) = match self.sharing {
            Sharing::Leased => (gates.get(target)?.usable(&*self.clock), ALL_SHARES),
            Sharing::Static(concurrency) => (1, concurrency),
        };
        match pace(limit, parts, of) {
            Some(pace) => Some(1.0 / pace.period.as_secs_f64()),
            None => {
                let lacks_since = gates.get(target)?.lacks_since?;
                (self.clock.monotonic().saturating_sub(lacks_since) >= SHARES_COME).then_some(0.0)
            }
        }
    }

    /// Whether a call that has its permit may still go out: asked right before the request is written.
    pub fn still_valid(&self, target: &Target) -> bool {
        let Some(steering) = self.steered.current() else { return false };
        steering.limit(target).is_none()
            || self.sharing != Sharing::Leased
            || self.gates().get(target).is_some_and(|gate| gate.usable(&*self.clock) > 0)
    }

    /// Waits until shares or limits have changed since the last call of this. For one caller: nothing is missed between
    /// two calls.
    pub async fn changed(&self) {
        self.listener.notified().await;
    }

    /// Waits for the next permit, behind those who wait already.
    pub async fn next(&self, target: &Target) {
        self.wait(target, Side::Entry).await;
    }

    /// Waits until a call that has its permit may go out: called right before the request is written. The wait is what the
    /// calls before it are too close together, and however long there are no trusted shares.
    pub async fn depart(&self, target: &Target) {
        self.wait(target, Side::Door).await;
    }

    async fn wait(&self, target: &Target, side: Side) {
        if self.steered.current().is_some_and(|steering| steering.limit(target).is_none()) {
            return;
        }
        let line = self.gates().entry(target.clone()).or_insert_with(Gate::new).lines[side as usize].clone();
        let _turn = line.lock().await;
        loop {
            let changed = self.changes.notified();
            let wait = match self.ask(target, side) {
                Permit::Ready => return,
                Permit::At(at) => at.saturating_sub(self.clock.monotonic()),
                Permit::Never => LOOK_AGAIN,
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Shares that may be used now, by the kind of their target.
    pub(crate) fn held(&self) -> BTreeMap<&'static str, u32> {
        let mut held = BTreeMap::new();
        for (target, gate) in self.gates().iter() {
            *held.entry(target.kind()).or_default() += gate.usable(&*self.clock);
        }
        held
    }

    /// The targets of which shares are wanted: text messages always, others for a while after they were asked for; none
    /// when the limits are not known.
    pub(crate) fn wanted(&self) -> Option<Vec<Target>> {
        let limited = self.steered.current()?.limited();
        let (now, gates) = (self.clock.monotonic(), self.gates());
        let is_recent = |at: &Duration| now.saturating_sub(*at) < INTEREST;
        let is_wanted = |target: &Target| {
            *target == Target::sms()
                || gates.get(target).and_then(|gate| gate.wanted_at.as_ref()).is_some_and(is_recent)
        };
        Some(limited.into_keys().filter(is_wanted).collect())
    }

    /// Lets so many shares be used for as long as `trust` lasts.
    pub(crate) fn grant(&self, target: &Target, shares: u32, trust: Option<Trust>) {
        let mut gates = self.gates();
        let gate = gates.entry(target.clone()).or_insert_with(Gate::new);
        let before = gate.usable(&*self.clock);
        (gate.shares, gate.trust) = (shares, trust);
        let has_changed = gate.usable(&*self.clock) != before;
        drop(gates);
        if has_changed {
            self.tell();
        }
    }

    /// Lets no more than so many shares be used from now on.
    pub(crate) fn lower(&self, target: &Target, shares: u32) {
        if let Some(gate) = self.gates().get_mut(target) {
            gate.shares = gate.shares.min(shares);
        }
    }

    /// Tells those who wait of every change of limits and holds, for ever.
    pub(crate) async fn follow(&self, steered: &Steered) {
        loop {
            steered.changed().await;
            self.tell();
        }
    }

    /// Tells those who wait to ask again.
    pub(crate) fn tell(&self) {
        self.changes.notify_waiters();
        self.listener.notify_one();
    }

    fn gates(&self) -> MutexGuard<'_, BTreeMap<Target, Gate>> {
        // A panic elsewhere leaves a gate whole: each change is made in one piece.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

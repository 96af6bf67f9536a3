//! Step 7, *rate*: this worker's shares of the limits, under lease.
//!
//! One loop looks at the shares of each target of interest every second, and just when a holder that stands still would
//! expire; every three seconds the look is a beat. [`Stake`] decides, this performs: what is given up is lowered before
//! the write, what is taken is used only when a beat has shown it, and only for as long as that beat is trusted.

use crate::rate::Permits;
use futures::future::join_all;
use punctual_core::clock::{Clock, Stopwatch, Trust};
use punctual_core::error::PortError;
use punctual_core::lease::LeaseTimes;
use punctual_core::ports::{Beat, PortResult, ShareStore};
use punctual_core::rate::{LOOK_EVERY, Stake, Want};
use punctual_core::target::Target;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Waits between two looks are at least so long, whatever expires.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
/// Changes in one turn: others may be faster, and a change is followed by a beat.
const TRIES: usize = 4;

/// Keeps one worker's shares.
pub(crate) struct Keeper {
    permits: Arc<Permits>,
    store: Arc<dyn ShareStore>,
    clock: Arc<dyn Clock>,
    times: LeaseTimes,
    me: String,
    held: Mutex<BTreeMap<Target, Held>>,
}

/// One target's shares.
struct Held {
    stake: Stake,
    /// When the next beat is due, by the monotonic clock.
    next_beat: Duration,
    is_failing: bool,
}

impl Keeper {
    pub(crate) fn new(
        permits: Arc<Permits>,
        store: Arc<dyn ShareStore>,
        clock: Arc<dyn Clock>,
        times: LeaseTimes,
        me: &str,
    ) -> Self {
        Keeper { permits, store, clock, times, me: me.to_owned(), held: Mutex::default() }
    }

    /// Keeps them for ever. A worker whose clock is off wants none: it sends nothing.
    pub(crate) async fn keep(&self) {
        loop {
            let began = self.clock.monotonic();
            let wake_at = {
                let mut held = self.held.lock().await;
                let wanted = match self.clock.check() {
                    Ok(()) => self.permits.wanted(),
                    Err(_) => Some(Vec::new()),
                };
                for target in wanted.iter().flatten() {
                    let new = || Held { stake: Stake::new(&self.me), next_beat: began, is_failing: false };
                    held.entry(target.clone()).or_insert_with(new);
                }
                // Where the limits are not known, all stays as it is.
                let is_wanted = |target: &Target| wanted.as_ref().is_none_or(|wanted| wanted.contains(target));
                join_all(held.iter_mut().map(|(target, held)| {
                    let want = if is_wanted(target) { Want::Share } else { Want::Nothing };
                    self.turn(target, held, want)
                }))
                .await;
                held.retain(|target, held| is_wanted(target) || held.stake.has_joined());
                let expiries = held.values().filter_map(|held| held.stake.next_expiry(&self.times));
                let beats = held.values().filter(|held| held.stake.has_joined()).map(|held| held.next_beat);
                // What was due by now and could not be done is tried again at the next look.
                let now = self.clock.monotonic();
                expiries.chain(beats).filter(|at| *at > now).fold(began + LOOK_EVERY, Duration::min)
            };
            let wait = wake_at.saturating_sub(self.clock.monotonic()).max(SHORTEST_WAIT);
            tokio::time::sleep(wait).await;
        }
    }

    /// Leaves all shares to others. Nothing may be sent any more.
    pub(crate) async fn leave(&self) {
        let mut held = self.held.lock().await;
        join_all(held.iter_mut().map(|(target, held)| self.turn(target, held, Want::Nothing))).await;
    }

    /// Looks at one target's shares, and changes what is to be changed.
    async fn turn(&self, target: &Target, held: &mut Held, want: Want) {
        match self.try_turn(target, held, want).await {
            Ok(()) if held.is_failing => {
                held.is_failing = false;
                tracing::info!(%target, "rate shares can be kept again");
            }
            Ok(()) => {}
            Err(error) => {
                if !held.is_failing {
                    tracing::warn!(%target, class = error.class(), %error, "rate shares cannot be kept; soon nothing more is sent there");
                }
                held.is_failing = true;
            }
        }
    }

    async fn try_turn(&self, target: &Target, held: &mut Held, want: Want) -> Result<(), PortError> {
        for _ in 0..TRIES {
            self.look(target, held).await?;
            let Some(to) = held.stake.plan(want, &self.times, self.clock.monotonic()) else { break };
            // What is given up is not used any more when others may take it.
            self.permits.lower(target, held.stake.usable());
            let from = held.stake.seen();
            let drops = from.holders.keys().filter(|id| **id != self.me && !to.holders.contains_key(*id));
            let drops: Vec<&String> = drops.collect();
            if !drops.is_empty() {
                tracing::info!(%target, workers = ?drops, "the rate shares of workers that stood still are free");
            }
            let takes = to.of(&self.me) > from.of(&self.me);
            let in_force = self.store.change(target, from.revision, &to).await?;
            let is_done = in_force == to && !takes;
            held.stake.saw(in_force, self.clock.monotonic());
            if is_done {
                break;
            }
            // Shares that were taken are used when a beat has shown them.
            held.next_beat = self.clock.monotonic();
        }
        Ok(())
    }

    /// Reads the shares: by a beat, if one is due.
    async fn look(&self, target: &Target, held: &mut Held) -> PortResult<()> {
        let began = self.clock.monotonic();
        if !held.stake.has_joined() || began < held.next_beat {
            let shares = self.store.get(target).await?;
            held.stake.saw(shares, self.clock.monotonic());
            self.permits.lower(target, held.stake.usable());
            return Ok(());
        }
        let since = Stopwatch::start(&*self.clock);
        let number = held.stake.next_beat();
        match self.store.beat(target, &self.me, number).await? {
            Beat::Held(shares) => {
                held.stake.has_beaten(shares, self.clock.monotonic());
                held.next_beat = began + self.times.renew_every;
                let trust = Trust { since, lasts: self.times.trusted_for() };
                self.permits.grant(target, held.stake.usable(), Some(trust));
            }
            Beat::Lost(shares) => {
                tracing::warn!(%target, "this worker's rate shares were freed by others: it had not renewed them in time");
                held.stake.saw(shares, self.clock.monotonic());
                self.permits.grant(target, 0, None);
            }
        }
        Ok(())
    }
}

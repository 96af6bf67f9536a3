//! Step 7, *rate*: how much of a target's limit one worker may use.
//!
//! A limit is cut into [`SHARES`] shares, and each worker sends at the rate of those it holds. Who holds how many is one
//! item a target ([`Shares`]), changed by compare-and-swap only, so that no more are held than there are. A worker uses
//! what a successful beat has shown it, for the lease time less a margin from the start of that beat on; others free
//! its shares when *their own* clocks have seen its beat stand still for the whole lease time. So the shares that are
//! used never add up to more than the limit, and no two clocks are compared. Nothing here reads a clock or knows the
//! store.

use crate::lease::LeaseTimes;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// Into how many shares a limit is cut; also the most workers that can send to one limited target at a time.
pub const SHARES: u32 = 60;

/// Time between two looks of a worker at a target's shares; each third of them is a beat, by the default times.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest burst of one worker. Bursts of 2 to 4 reach 98–100 % of the rate on a one-millisecond timer; a burst of 1
/// reaches 65–91 % (measured with `governor` 0.10).
pub const LARGEST_BURST: u32 = 4;

/// All bursts together are at most this part of the limit, as long as a burst of one each is not more: 5 %.
const BURSTS_PART: u32 = 20;

/// Who holds how many shares of a target's limit, as the store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Raised by every write; 0 = there is nothing yet.
    pub revision: u64,
    /// The holders by their workers' ids, random for each process.
    pub holders: BTreeMap<String, Holder>,
}

/// One worker that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How many shares it holds; 0 = it waits for some.
    pub shares: u32,
    /// The number of its last beat, or of its join.
    pub beat: u64,
}

impl Shares {
    /// How many shares are held.
    pub fn held(&self) -> u32 {
        self.holders.values().map(|holder| holder.shares).sum()
    }

    /// How many shares nobody holds.
    pub fn free(&self) -> u32 {
        SHARES.saturating_sub(self.held())
    }

    /// How many shares this worker holds.
    pub fn of(&self, worker: &str) -> u32 {
        self.holders.get(worker).map_or(0, |holder| holder.shares)
    }
}

/// The fair share of each of so many holders, in the order of their names: as even as can be, and the same whoever asks.
pub fn fair_share(holders: usize, rank: usize) -> u32 {
    let holders = u32::try_from(holders.max(1)).unwrap_or(u32::MAX);
    let has_one_more = u32::try_from(rank).is_ok_and(|rank| rank < SHARES % holders);
    SHARES / holders + u32::from(has_one_more)
}

/// What one worker has seen of the beats of all holders, by its own monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct ShareObserver {
    seen: BTreeMap<String, (u64, Duration)>,
}

impl ShareObserver {
    /// Notes what the store showed; `now` is read after its answer came.
    pub fn observe(&mut self, shares: &Shares, now: Duration) {
        self.seen.retain(|id, _| shares.holders.contains_key(id));
        for (id, holder) in &shares.holders {
            let moved = self.seen.get(id).is_none_or(|(beat, _)| *beat != holder.beat);
            if moved {
                self.seen.insert(id.clone(), (holder.beat, now));
            }
        }
    }

    /// For how long a holder's beat has stood still; zero when it was never seen.
    pub fn stood_still(&self, worker: &str, now: Duration) -> Duration {
        self.seen.get(worker).map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }

    /// When the next holder other than `me` will have stood still for the lease time, if it does not beat.
    pub fn next_expiry(&self, me: &str, times: &LeaseTimes) -> Option<Duration> {
        let others = self.seen.iter().filter(|(id, _)| *id != me);
        others.map(|(_, (_, since))| *since + times.lease).min()
    }
}

/// What a worker wants of a target's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Its fair share.
    Share,
    /// Nothing: it leaves.
    Nothing,
}

/// Decides what `me` should make of the shares as seen at `now`; none = they are as they should be. Holders that stood
/// still for the lease time go. Shares are taken only where they are free, up to the fair share; what is above it is
/// given up. The number of a join is `beat`.
pub fn plan(
    seen: &Shares,
    observer: &ShareObserver,
    me: &str,
    want: Want,
    beat: u64,
    times: &LeaseTimes,
    now: Duration,
) -> Option<Shares> {
    let mut to = seen.clone();
    to.holders.retain(|id, _| id == me || observer.stood_still(id, now) < times.lease);
    match want {
        Want::Nothing => {
            to.holders.remove(me);
        }
        Want::Share => {
            to.holders.entry(me.to_owned()).or_insert(Holder { shares: 0, beat });
            let mine = fair_count(&to, me);
            if let Some(holder) = to.holders.get_mut(me) {
                holder.shares = mine;
            }
        }
    }
    (to.holders != seen.holders).then(|| Shares { revision: seen.revision + 1, ..to })
}

/// How many shares `me` should hold, as far as that can be reached now. The fair shares are all there are, so whatever
/// one has above its own, others lack.
fn fair_count(shares: &Shares, me: &str) -> u32 {
    let rank = shares.holders.keys().position(|id| id == me).unwrap_or(0);
    let (mine, fair) = (shares.of(me), fair_share(shares.holders.len(), rank));
    mine.min(fair) + shares.free().min(fair.saturating_sub(mine))
}

/// One worker's side of a target's shares: what it has seen, and what it may use while it trusts its last beat.
#[derive(Clone, Debug)]
pub struct Stake {
    me: String,
    beats: u64,
    seen: Shares,
    observer: ShareObserver,
    usable: u32,
}

impl Stake {
    /// Of a worker that has seen nothing yet.
    pub fn new(me: &str) -> Self {
        let (seen, observer) = (Shares::default(), ShareObserver::default());
        Stake { me: me.to_owned(), beats: 0, seen, observer, usable: 0 }
    }

    /// The shares as last seen.
    pub fn seen(&self) -> &Shares {
        &self.seen
    }

    /// Whether this worker is among the holders, as last seen.
    pub fn has_joined(&self) -> bool {
        self.seen.holders.contains_key(&self.me)
    }

    /// Shares that may be used from the start of the last beat on, for as long as that is trusted.
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// The number of the next beat. Each call has its own, so that one that lands late is refused, and one whose answer
    /// was lost is recognised.
    pub fn next_beat(&mut self) -> u64 {
        self.beats += 1;
        self.beats
    }

    /// Notes what a look or a change showed. It may end the use of shares, never begin it.
    pub fn saw(&mut self, shares: Shares, now: Duration) {
        self.usable = self.usable.min(shares.of(&self.me));
        self.observer.observe(&shares, now);
        self.seen = shares;
    }

    /// Notes what a successful beat showed: these shares may be used from the beat's start on.
    pub fn has_beaten(&mut self, shares: Shares, now: Duration) {
        self.saw(shares, now);
        self.usable = self.seen.of(&self.me);
    }

    /// What this worker should make of the shares. Whatever it would give up must not be used any more when the change is
    /// sent, and is not usable from here on.
    pub fn plan(&mut self, want: Want, times: &LeaseTimes, now: Duration) -> Option<Shares> {
        let to = plan(&self.seen, &self.observer, &self.me, want, self.beats + 1, times, now)?;
        if !self.has_joined() {
            self.beats += 1;
        }
        self.usable = self.usable.min(to.of(&self.me));
        Some(to)
    }

    /// When another holder will have stood still for the lease time.
    pub fn next_expiry(&self, times: &LeaseTimes) -> Option<Duration> {
        self.observer.next_expiry(&self.me, times)
    }
}

/// At what pace one worker may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time between two calls, on average.
    pub period: Duration,
    /// Calls that may go out together.
    pub burst: NonZeroU32,
}

/// The pace of `parts` of `of` parts of a limit, in calls a second; none for no part. Rounded so that the sum of all
/// parts never exceeds the limit.
pub fn pace(limit: NonZeroU32, parts: u32, of: NonZeroU32) -> Option<Pace> {
    let per_second = u64::from(limit.get()) * u64::from(parts);
    if per_second == 0 {
        return None;
    }
    let nanos = (1_000_000_000 * u64::from(of.get())).div_ceil(per_second);
    let burst = per_second / u64::from(BURSTS_PART) / u64::from(of.get());
    let burst = burst.clamp(1, u64::from(LARGEST_BURST)) as u32;
    Some(Pace { period: Duration::from_nanos(nanos), burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN) })
}

#[cfg(test)]
mod tests;

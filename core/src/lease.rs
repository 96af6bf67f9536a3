//! Step 5, *lease*: claims that expire by themselves, without comparing clocks.
//!
//! A holder renews by raising a counter. Whoever watches takes a lease over when its *own* monotonic clock has seen the
//! counter stand still for the lease time. A holder trusts its lease only until the start of its last successful renewal
//! plus the lease time less a margin, so it stops before anybody else may start. The same file holds the arithmetic of
//! the leases on messages (visibility). Nothing here reads a clock or knows the store.

use crate::due::{Minute, ShardClass, ShardId, Shards};
use crate::ports::LONGEST_DELAY;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// How long SQS lets a message be held in all, from its receipt.
pub const LONGEST_HOLD: Duration = Duration::from_secs(12 * 3_600);

/// What a lease is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeaseId {
    /// A slice of the timetable: `shard/0007`.
    Shard(ShardId),
    /// A scheduler's registration: `copy/1f3a…`. It claims nothing; it says that this copy counts.
    Copy(String),
    /// The sweep that goes by this version of the zone rules: `zones/2026f`. Its cursor is the minute in which it was
    /// last done.
    Zones(String),
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseId::Shard(shard) => write!(f, "shard/{shard}"),
            LeaseId::Copy(holder) => write!(f, "copy/{holder}"),
            LeaseId::Zones(version) => write!(f, "zones/{version}"),
        }
    }
}

impl std::str::FromStr for LeaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some(("shard", shard)) => shard.parse().map(LeaseId::Shard),
            Some(("copy", holder)) => Ok(LeaseId::Copy(holder.to_owned())),
            Some(("zones", version)) => Ok(LeaseId::Zones(version.to_owned())),
            _ => Err(format!("`{text}` is not a lease: expected `shard/0007` or `copy/1f3a`")),
        }
    }
}

/// A lease as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is about.
    pub id: LeaseId,
    /// Who holds it; none = free.
    pub owner: Option<String>,
    /// Raised by each take and each renewal.
    pub counter: u64,
    /// For a shard: the oldest minute not known drained.
    pub cursor: Option<Minute>,
    /// Who asks its owner for it.
    pub wanted_by: Option<String>,
}

/// The times that leases live by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// After this long without a renewal others may take over.
    pub lease: Duration,
    /// Time between renewals.
    pub renew_every: Duration,
    /// By how much a holder stops trusting its lease earlier.
    pub margin: Duration,
}

impl Default for LeaseTimes {
    /// 10 s, renewed every 3 s, trusted for 8 s.
    fn default() -> Self {
        let s = Duration::from_secs;
        LeaseTimes { lease: s(10), renew_every: s(3), margin: s(2) }
    }
}

impl LeaseTimes {
    /// For how long a lease is trusted, from the start of its renewal or take on.
    pub fn trusted_for(&self) -> Duration {
        self.lease.saturating_sub(self.margin)
    }

    /// Whether a shard loop that last got somewhere at `last_progress` has earned a renewal at `now`.
    /// One that got nowhere within the lease time leaves its shard to others.
    pub fn has_earned_renewal(&self, last_progress: Duration, now: Duration) -> bool {
        now.saturating_sub(last_progress) < self.lease
    }

    /// Checks the order of the times.
    ///
    /// # Errors
    /// Names the relation that does not hold.
    pub fn check(&self) -> Result<(), String> {
        if self.renew_every.is_zero() || self.renew_every * 2 > self.lease.saturating_sub(self.margin) {
            return Err(format!(
                "a lease of {} s with a margin of {} s must be renewed at least twice within its trust: {} s is too long",
                self.lease.as_secs(),
                self.margin.as_secs(),
                self.renew_every.as_secs()
            ));
        }
        Ok(())
    }
}

/// What one observer has seen of the counters, by its own monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    seen: BTreeMap<LeaseId, Sighting>,
}

#[derive(Clone, Debug)]
struct Sighting {
    owner: Option<String>,
    counter: u64,
    since: Duration,
}

impl Observer {
    /// Notes what the store showed at `now`.
    pub fn observe(&mut self, leases: &[Lease], now: Duration) {
        let present: BTreeSet<&LeaseId> = leases.iter().map(|l| &l.id).collect();
        self.seen.retain(|id, _| present.contains(id));
        for lease in leases {
            let moved = self.seen.get(&lease.id).is_none_or(|s| (&s.owner, s.counter) != (&lease.owner, lease.counter));
            if moved {
                let sighting = Sighting { owner: lease.owner.clone(), counter: lease.counter, since: now };
                self.seen.insert(lease.id.clone(), sighting);
            }
        }
    }

    /// For how long a lease has stood still; zero when it was never seen.
    pub fn stood_still(&self, id: &LeaseId, now: Duration) -> Duration {
        self.seen.get(id).map_or(Duration::ZERO, |s| now.saturating_sub(s.since))
    }

    /// When the next shard of another copy will have stood still for the lease time, if nothing moves it.
    pub fn next_expiry(&self, me: &str, times: &LeaseTimes) -> Option<Duration> {
        let of_others = self.seen.iter().filter(|(id, sighting)| {
            matches!(id, LeaseId::Shard(_)) && sighting.owner.as_deref().is_some_and(|owner| owner != me)
        });
        of_others.map(|(_, sighting)| sighting.since + times.lease).min()
    }

    /// The copies whose registration still moves, `me` among them.
    pub fn live_copies(&self, me: &str, times: &LeaseTimes, now: Duration) -> Vec<String> {
        let alive = self.seen.keys().filter_map(|id| match id {
            LeaseId::Copy(holder) if holder != me && self.stood_still(id, now) < times.lease => Some(holder.clone()),
            _ => None,
        });
        let mut live: Vec<String> = alive.chain([me.to_owned()]).collect();
        live.sort();
        live
    }

    /// Registrations that have stood still so long that they can be thrown away.
    pub fn forgotten_copies<'a>(&self, leases: &'a [Lease], times: &LeaseTimes, now: Duration) -> Vec<&'a Lease> {
        let old = |l: &&Lease| matches!(l.id, LeaseId::Copy(_)) && self.stood_still(&l.id, now) > times.lease * 10;
        leases.iter().filter(old).collect()
    }
}

/// A shard to be taken, and what it must still look like for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Which shard.
    pub shard: ShardId,
    /// The lease as observed; none = there is none yet.
    pub observed: Option<Lease>,
}

/// The most shards of a class that one of `copies` copies may hold.
pub fn fair_share(shards: usize, copies: usize) -> usize {
    shards.div_ceil(copies.max(1))
}

/// Decides which shards `me`, holding `held`, should take at `now`: those that are free or have stood still for the lease
/// time, up to the fair share of each class. Copies begin at different places, so that they seldom reach for the same
/// shard. A lease in one's own name that is not held any more counts as anybody's.
pub fn plan_takes(
    observer: &Observer,
    leases: &[Lease],
    shards: &Shards,
    me: &str,
    held: &BTreeSet<ShardId>,
    times: &LeaseTimes,
    now: Duration,
) -> Vec<Take> {
    let copies = observer.live_copies(me, times, now);
    let rank = copies.iter().position(|c| c == me).unwrap_or(0);
    let known: BTreeMap<&LeaseId, &Lease> = leases.iter().map(|l| (&l.id, l)).collect();
    let mut takes = Vec::new();
    for class in ShardClass::ALL {
        let all: Vec<ShardId> = shards.of_class(class).collect();
        let share = fair_share(all.len(), copies.len());
        let lease_of = |shard: ShardId| known.get(&LeaseId::Shard(shard)).copied();
        let mine = all.iter().filter(|s| held.contains(s)).count();
        let free = |shard: &ShardId| {
            let lease = lease_of(*shard);
            let expired = |l: &Lease| l.owner.is_none() || observer.stood_still(&l.id, now) >= times.lease;
            !held.contains(shard) && lease.is_none_or(expired)
        };
        let start = (rank * share).min(all.len());
        let ordered = all[start..].iter().chain(&all[..start]);
        takes.extend(
            ordered
                .filter(|s| free(s))
                .take(share.saturating_sub(mine))
                .map(|shard| Take { shard: *shard, observed: lease_of(*shard).cloned() }),
        );
    }
    takes
}

/// Decides which shards `me`, holding `held`, asks others for at `now`: one of each class in which nothing is free and
/// the fullest live copy holds at least two more. It hands over what it is asked for (see [`to_hand_over`]), so that no
/// shard has two readers, not even for the time that an old holder needs to notice.
pub fn plan_asks<'a>(
    observer: &Observer,
    leases: &'a [Lease],
    shards: &Shards,
    me: &str,
    held: &BTreeSet<ShardId>,
    times: &LeaseTimes,
    now: Duration,
) -> Vec<&'a Lease> {
    let copies = observer.live_copies(me, times, now);
    let rank = copies.iter().position(|c| c == me).unwrap_or(0);
    let takes = plan_takes(observer, leases, shards, me, held, times, now);
    let mut asks = Vec::new();
    for class in ShardClass::ALL {
        let mine = held.iter().filter(|shard| shard.class == class).count();
        let of_class = |lease: &&Lease| matches!(lease.id, LeaseId::Shard(shard) if shard.class == class);
        let of_copy = |copy: &str| -> Vec<&'a Lease> {
            leases.iter().filter(of_class).filter(|lease| lease.owner.as_deref() == Some(copy)).collect()
        };
        // A note that its reader will not follow, as it holds no more than one's own count and one, keeps nobody from asking
        // elsewhere.
        let is_followed = |owner: &String| copies.contains(owner) && of_copy(owner).len() >= mine + 2;
        let notes = leases.iter().filter(of_class).filter(|lease| lease.wanted_by.as_deref() == Some(me));
        let has_asked = notes.filter_map(|lease| lease.owner.as_ref()).any(is_followed);
        if has_asked || takes.iter().any(|take| take.shard.class == class) {
            continue;
        }
        let fullest = copies.iter().filter(|copy| *copy != me).map(|copy| of_copy(copy)).max_by_key(Vec::len);
        let Some(fullest) = fullest.filter(|theirs| theirs.len() >= mine + 2) else { continue };
        // Two copies that ask at the same time should seldom ask for the same shard.
        let is_alive = |copy: &String| copies.contains(copy);
        let not_asked: Vec<_> =
            fullest.iter().filter(|lease| !lease.wanted_by.as_ref().is_some_and(is_alive)).collect();
        asks.extend(not_asked.get(rank % not_asked.len().max(1)).map(|lease| **lease));
    }
    asks
}

/// The shards that `me` is asked for and hands over at `now`: to a copy that is alive and holds at least two less.
pub fn to_hand_over(
    observer: &Observer,
    leases: &[Lease],
    me: &str,
    times: &LeaseTimes,
    now: Duration,
) -> Vec<ShardId> {
    let live = observer.live_copies(me, times, now);
    let mut held: BTreeMap<(&str, ShardClass), usize> = BTreeMap::new();
    for lease in leases {
        if let (LeaseId::Shard(shard), Some(owner)) = (&lease.id, &lease.owner) {
            *held.entry((owner, shard.class)).or_default() += 1;
        }
    }
    let mut shards = Vec::new();
    for lease in leases.iter().filter(|lease| lease.owner.as_deref() == Some(me)) {
        let (LeaseId::Shard(shard), Some(asker)) = (&lease.id, &lease.wanted_by) else { continue };
        let count = |copy: &str| held.get(&(copy, shard.class)).copied().unwrap_or(0);
        if live.contains(asker) && count(me) >= count(asker) + 2 {
            shards.push(*shard);
            *held.entry((me, shard.class)).or_default() -= 1;
            *held.entry((asker, shard.class)).or_default() += 1;
        }
    }
    shards
}

/// By how much a held message may be extended at `now`: the visibility time, less near the end of the twelve hours for
/// which SQS lets a message be held; none when that time is over.
pub fn extension(received: Duration, now: Duration, visibility: Duration) -> Option<Duration> {
    let left = (received + LONGEST_HOLD).saturating_sub(now + Duration::from_secs(60));
    (left >= Duration::from_secs(1)).then(|| visibility.min(left))
}

/// The longest time for which a message is hidden at once.
pub const LONGEST_HIDE: Duration = Duration::from_secs(600);
/// Messages in flight of one queue above which those that wait for long are sent again. SQS delivers nothing more of a
/// queue that has 120,000.
pub const MANY_IN_FLIGHT: u64 = 10_000;
/// So close to that end that every message that is put back is sent again.
const TOO_MANY_IN_FLIGHT: u64 = 100_000;
/// What waits for less is hidden: to be sent again costs two calls.
const WORTH_SENDING: Duration = Duration::from_secs(60);
/// A message older than this is sent again, which makes it young: SQS drops what is fourteen days old.
const OLD: Duration = Duration::from_secs(7 * 86_400);
/// So is one that was received so often: SQS moves to the dead letters what was received a thousand times.
const OFTEN_RECEIVED: u32 = 500;

/// For how long a message is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until about its turn, or an instant that is known.
    For(Duration),
    /// For so long at first, and twice as long with each delivery: nobody knows when it is over.
    Growing(Duration),
}

/// How a message is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBackBy {
    /// Hidden for this long.
    Hide(Duration),
    /// Sent again with this delay, then deleted. A repeat is harmless.
    SendAgain(Duration),
}

/// Decides how a message is put back that was received so often, with so many in flight, `age` after its run was first
/// enqueued.
pub fn put_back_by(wait: Wait, receive_count: u32, in_flight: u64, age: Duration) -> PutBackBy {
    let (time, delay) = match wait {
        Wait::For(time) => (time, time.min(LONGEST_DELAY)),
        Wait::Growing(first) => (growing(first, receive_count), LONGEST_DELAY),
    };
    let must = in_flight >= TOO_MANY_IN_FLIGHT || receive_count >= OFTEN_RECEIVED;
    let may = in_flight >= MANY_IN_FLIGHT || age >= OLD;
    if must || may && time >= WORTH_SENDING {
        PutBackBy::SendAgain(delay)
    } else {
        PutBackBy::Hide(time.min(LONGEST_HIDE))
    }
}

/// A wait that doubles with each delivery, up to ten minutes.
pub fn growing(first: Duration, receive_count: u32) -> Duration {
    (first * 2u32.pow(receive_count.saturating_sub(1).min(16))).min(LONGEST_HIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn lease(id: LeaseId, owner: &str, counter: u64) -> Lease {
        Lease { id, owner: (!owner.is_empty()).then(|| owner.to_owned()), counter, cursor: None, wanted_by: None }
    }

    fn shard(n: u16) -> LeaseId {
        LeaseId::Shard(ShardId { class: ShardClass::Standard, number: n })
    }

    #[test]
    fn a_lease_is_taken_over_only_when_its_counter_stood_still_for_the_lease_time() {
        let times = LeaseTimes::default();
        let shards = Shards { urgent: 0, standard: 1 };
        let mut observer = Observer::default();
        let held = |counter| vec![lease(shard(0), "a", counter)];
        observer.observe(&held(1), S(100));
        assert!(plan_takes(&observer, &held(1), &shards, "b", &BTreeSet::new(), &times, S(109)).is_empty());
        observer.observe(&held(2), S(109));
        assert!(plan_takes(&observer, &held(2), &shards, "b", &BTreeSet::new(), &times, S(118)).is_empty());
        observer.observe(&held(2), S(119));
        assert_eq!(plan_takes(&observer, &held(2), &shards, "b", &BTreeSet::new(), &times, S(119)).len(), 1);
    }

    #[test]
    fn a_lease_in_my_name_that_i_dropped_is_taken_again() {
        let times = LeaseTimes::default();
        let shards = Shards { urgent: 0, standard: 1 };
        let ShardId { class, number } = shards.all().next().unwrap();
        let mut observer = Observer::default();
        let leases = [lease(shard(0), "me", 1)];
        observer.observe(&leases, S(100));
        let plan = |held: &[ShardId], now| {
            plan_takes(&observer, &leases, &shards, "me", &held.iter().copied().collect(), &times, now).len()
        };
        assert_eq!(plan(&[], S(105)), 0);
        assert_eq!(plan(&[], S(110)), 1);
        assert_eq!(plan(&[ShardId { class, number }], S(110)), 0);
    }

    #[test]
    fn a_holder_stops_trusting_before_anyone_may_take_over() {
        let times = LeaseTimes::default();
        // Whoever saw the renewal saw it after its start.
        assert!(times.trusted_for() < times.lease);
        assert!(times.check().is_ok());
        assert!(LeaseTimes { renew_every: S(5), ..times }.check().unwrap_err().contains("too long"));
    }

    #[test]
    fn a_loop_that_gets_nowhere_does_not_renew() {
        let times = LeaseTimes::default();
        assert!(times.has_earned_renewal(S(100), S(109)));
        assert!(!times.has_earned_renewal(S(100), S(110)));
    }

    #[test]
    fn three_copies_take_a_third_each_of_either_class() {
        let times = LeaseTimes::default();
        let shards = Shards::default();
        let mut leases: Vec<Lease> =
            ["a", "b", "c"].map(|c| lease(LeaseId::Copy(c.into()), c, 1)).into_iter().collect();
        for me in ["a", "b", "c"] {
            let mut observer = Observer::default();
            observer.observe(&leases, S(1));
            let takes = plan_takes(&observer, &leases, &shards, me, &BTreeSet::new(), &times, S(1));
            leases.extend(takes.iter().map(|t| lease(LeaseId::Shard(t.shard), me, 1)));
        }
        let held = |me: &str, class| {
            leases
                .iter()
                .filter(|l| l.owner.as_deref() == Some(me) && matches!(l.id, LeaseId::Shard(s) if s.class == class))
                .count()
        };
        assert_eq!(["a", "b", "c"].map(|c| held(c, ShardClass::Standard)), [8, 8, 8]);
        assert_eq!(["a", "b", "c"].map(|c| held(c, ShardClass::Urgent)), [3, 3, 2]);
    }

    /// Copies, each with so many standard shards, numbered on.
    fn copies(held: &[(&str, u16)]) -> Vec<Lease> {
        let mut leases: Vec<Lease> = held.iter().map(|(c, _)| lease(LeaseId::Copy((*c).into()), c, 1)).collect();
        let owners = held.iter().flat_map(|(c, n)| std::iter::repeat_n(*c, usize::from(*n)));
        leases.extend(owners.enumerate().map(|(n, owner)| lease(shard(n as u16), owner, 1)));
        leases
    }

    fn held_by(leases: &[Lease], copy: &str) -> BTreeSet<ShardId> {
        let mine = leases.iter().filter(|l| l.owner.as_deref() == Some(copy));
        mine.filter_map(|l| if let LeaseId::Shard(shard) = l.id { Some(shard) } else { None }).collect()
    }

    #[test]
    fn whoever_joins_late_is_handed_its_share_one_by_one_and_nobody_less_than_another() {
        let (times, shards) = (LeaseTimes::default(), Shards { urgent: 0, standard: 24 });
        let mut leases = copies(&[("a", 12), ("b", 12), ("c", 0), ("d", 0)]);
        for round in 0..40 {
            let mut observer = Observer::default();
            observer.observe(&leases, S(1));
            let snapshot = leases.clone();
            for me in ["a", "b", "c", "d"] {
                let held = held_by(&snapshot, me);
                let asks = plan_asks(&observer, &snapshot, &shards, me, &held, &times, S(1));
                assert!(asks.len() <= 1, "one a turn");
                for ask in asks {
                    let asked = leases.iter_mut().find(|l| l.id == ask.id).unwrap();
                    asked.wanted_by = Some(me.into());
                }
            }
            let snapshot = leases.clone();
            for me in ["a", "b", "c", "d"] {
                for given in to_hand_over(&observer, &snapshot, me, &times, S(1)) {
                    let lease = leases.iter_mut().find(|l| l.id == LeaseId::Shard(given)).unwrap();
                    (lease.owner, lease.wanted_by) = (None, None);
                }
            }
            for me in ["c", "d", "a", "b"] {
                observer.observe(&leases, S(1));
                for take in plan_takes(&observer, &leases, &shards, me, &held_by(&leases, me), &times, S(1)) {
                    leases.iter_mut().find(|l| l.id == LeaseId::Shard(take.shard)).unwrap().owner = Some(me.into());
                }
            }
            let counts = ["a", "b", "c", "d"].map(|c| held_by(&leases, c).len());
            assert_eq!(counts.iter().sum::<usize>(), 24);
            if round >= 12 {
                assert_eq!(counts, [6; 4], "round {round}");
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_while_something_is_free_or_nobody_has_two_more() {
        let (times, mut observer) = (LeaseTimes::default(), Observer::default());
        let asks = |observer: &mut Observer, leases: &[Lease], shards: u16| {
            observer.observe(leases, S(1));
            let shards = Shards { urgent: 0, standard: shards };
            plan_asks(observer, leases, &shards, "b", &held_by(leases, "b"), &times, S(1)).len()
        };
        assert_eq!(asks(&mut observer, &copies(&[("a", 3), ("b", 1)]), 4), 1);
        assert_eq!(asks(&mut observer, &copies(&[("a", 2), ("b", 1)]), 3), 0, "that would only change places");
        assert_eq!(asks(&mut observer, &copies(&[("a", 3), ("b", 1)]), 5), 0, "one is free");
        let mut asked = copies(&[("a", 4), ("b", 1)]);
        asked[2].wanted_by = Some("b".into());
        assert_eq!(asks(&mut observer, &asked, 5), 0, "one at a time");
    }

    #[test]
    fn nothing_is_handed_to_a_copy_that_is_dead_or_has_as_much() {
        let (times, mut observer) = (LeaseTimes::default(), Observer::default());
        let mut leases = copies(&[("a", 3), ("b", 1)]);
        leases[2].wanted_by = Some("b".into());
        observer.observe(&leases, S(0));
        assert_eq!(to_hand_over(&observer, &leases, "a", &times, S(9)).len(), 1);
        assert!(to_hand_over(&observer, &leases, "a", &times, S(10)).is_empty(), "b stands still");
        let mut even = copies(&[("a", 2), ("b", 1)]);
        even[2].wanted_by = Some("b".into());
        assert!(to_hand_over(&observer, &even, "a", &times, S(1)).is_empty());
    }

    #[test]
    fn a_dead_copy_stops_counting_and_is_thrown_away_later() {
        let times = LeaseTimes::default();
        let leases = [lease(LeaseId::Copy("dead".into()), "dead", 5)];
        let mut observer = Observer::default();
        observer.observe(&leases, S(0));
        assert_eq!(observer.live_copies("me", &times, S(9)), ["dead", "me"]);
        assert_eq!(observer.live_copies("me", &times, S(10)), ["me"]);
        assert!(observer.forgotten_copies(&leases, &times, S(99)).is_empty());
        assert_eq!(observer.forgotten_copies(&leases, &times, S(101)).len(), 1);
    }

    #[test]
    fn a_message_is_never_held_beyond_twelve_hours() {
        let v = S(60);
        assert_eq!(extension(S(0), S(20), v), Some(v));
        assert_eq!(extension(S(0), LONGEST_HOLD - S(90), v), Some(S(30)));
        assert_eq!(extension(S(0), LONGEST_HOLD - S(60), v), None);
    }

    #[test]
    fn what_waits_for_long_does_not_fill_a_queues_places_in_flight() {
        let day = S(86_400);
        for (wait, count, in_flight, age, expected) in [
            (Wait::For(S(5)), 1, 0, S(0), PutBackBy::Hide(S(5))),
            (Wait::For(S(900)), 499, 9_999, S(0), PutBackBy::Hide(S(600))),
            (Wait::For(S(60)), 1, 10_000, S(0), PutBackBy::SendAgain(S(60))),
            (Wait::For(S(2_000)), 1, 10_000, S(0), PutBackBy::SendAgain(S(900))),
            (Wait::For(S(59)), 1, 10_000, S(0), PutBackBy::Hide(S(59))),
            (Wait::For(S(5)), 1, 100_000, S(0), PutBackBy::SendAgain(S(5))),
            (Wait::For(S(5)), 500, 0, S(0), PutBackBy::SendAgain(S(5))),
            (Wait::For(S(600)), 1, 0, day * 7, PutBackBy::SendAgain(S(600))),
            (Wait::For(S(30)), 1, 0, day * 7, PutBackBy::Hide(S(30))),
            (Wait::Growing(S(15)), 1, 10_000, S(0), PutBackBy::Hide(S(15))),
            (Wait::Growing(S(15)), 3, 9_999, S(0), PutBackBy::Hide(S(60))),
            (Wait::Growing(S(15)), 3, 10_000, S(0), PutBackBy::SendAgain(S(900))),
            (Wait::Growing(S(15)), 400, 0, S(0), PutBackBy::Hide(S(600))),
        ] {
            assert_eq!(put_back_by(wait, count, in_flight, age), expected, "{wait:?} {count} {in_flight} {age:?}");
        }
    }

    #[test]
    fn a_lease_id_reads_back_from_its_text() {
        for text in ["shard/0007", "shard/u003", "copy/1f3a", "zones/2026f"] {
            assert_eq!(text.parse::<LeaseId>().unwrap().to_string(), text);
        }
        assert!("rate".parse::<LeaseId>().is_err());
    }
}

use super::*;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

const S: fn(u64) -> Duration = Duration::from_secs;

fn times() -> LeaseTimes {
    LeaseTimes::default()
}

fn shares(holders: &[(&str, u32)]) -> Shares {
    let holders = holders.iter().map(|(id, shares)| ((*id).to_owned(), Holder { shares: *shares, beat: 1 }));
    Shares { revision: 1, holders: holders.collect() }
}

/// What `me` makes of shares that it has just seen for the first time.
fn planned(seen: &Shares, me: &str) -> Option<Shares> {
    let mut observer = ShareObserver::default();
    observer.observe(seen, S(100));
    plan(seen, &observer, me, Want::Share, 9, &times(), S(100))
}

#[test]
fn the_first_worker_takes_all_and_joins_with_its_own_number() {
    let to = planned(&Shares::default(), "a").unwrap();
    assert_eq!((to.revision, to.holders["a"]), (1, Holder { shares: SHARES, beat: 9 }));
    assert_eq!(planned(&to, "a"), None);
}

#[test]
fn a_worker_that_comes_later_waits_until_somebody_gives_up_what_it_lacks() {
    let joined = planned(&shares(&[("a", 60)]), "b").unwrap();
    assert_eq!((joined.of("a"), joined.of("b")), (60, 0));
    let given = planned(&joined, "a").unwrap();
    assert_eq!((given.of("a"), given.of("b")), (30, 0));
    let taken = planned(&given, "b").unwrap();
    assert_eq!((taken.of("a"), taken.of("b")), (30, 30));
}

#[test]
fn nothing_is_given_up_that_nobody_lacks() {
    assert_eq!(planned(&shares(&[("a", 40), ("b", 20)]), "a").unwrap().of("a"), 30);
    assert_eq!(planned(&shares(&[("a", 40), ("b", 10)]), "b").unwrap().of("b"), 20, "what is free is taken");
    assert_eq!(planned(&shares(&[("a", 30), ("b", 30)]), "a"), None);
    assert_eq!(planned(&shares(&[("a", 60)]), "a"), None);
}

#[test]
fn a_holder_is_dropped_only_when_its_beat_stood_still_for_the_lease_time() {
    let mut observer = ShareObserver::default();
    let seen = shares(&[("a", 30), ("b", 30)]);
    observer.observe(&seen, S(100));
    let at = |now| plan(&seen, &observer, "b", Want::Share, 9, &times(), now);
    assert_eq!(at(Duration::from_millis(109_999)), None);
    assert_eq!(at(S(110)).map(|to| (to.of("a"), to.of("b"))), Some((0, 60)));
    assert_eq!(observer.next_expiry("b", &times()), Some(S(110)));
    let mut moved = seen.clone();
    moved.holders.get_mut("a").unwrap().beat = 2;
    let mut observer = observer.clone();
    observer.observe(&moved, S(109));
    assert_eq!(plan(&moved, &observer, "b", Want::Share, 9, &times(), S(118)), None, "it beat");
}

#[test]
fn who_leaves_holds_nothing_and_need_not_have_held_anything() {
    let (seen, observer) = (shares(&[("a", 30), ("b", 30)]), ShareObserver::default());
    let leave = |me| plan(&seen, &observer, me, Want::Nothing, 9, &times(), S(0));
    assert_eq!(leave("a"), Some(Shares { revision: 2, ..shares(&[("b", 30)]) }));
    assert_eq!(leave("c"), None);
}

#[test]
fn fair_shares_are_all_there_are_for_any_number_of_workers() {
    for holders in 1..=200 {
        let all: Vec<u32> = (0..holders).map(|rank| fair_share(holders, rank)).collect();
        assert_eq!(all.iter().sum::<u32>(), SHARES);
        assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
    }
}

#[test]
fn paces_add_up_to_the_limit_at_most_and_bursts_to_a_twentieth_of_it() {
    for limit in [1, 2, 10, 100, 450, 100_000].map(|limit| NonZeroU32::new(limit).unwrap()) {
        for workers in 1..=60_usize {
            let all =
                (0..workers).filter_map(|rank| pace(limit, fair_share(workers, rank), NonZeroU32::new(60).unwrap()));
            let (mut rate, mut bursts, mut largest) = (0.0, 0, 0);
            for Pace { period, burst } in all {
                rate += 1.0 / period.as_secs_f64();
                bursts += burst.get();
                largest = largest.max(burst.get());
            }
            assert!(rate <= f64::from(limit.get()) * (1.0 + 1e-9), "{workers} workers: {rate} of {limit}");
            assert!(largest <= LARGEST_BURST && (largest == 1 || bursts <= limit.get() / 20), "{workers}: {bursts}");
        }
    }
    let one = |limit, parts| pace(NonZeroU32::new(limit).unwrap(), parts, NonZeroU32::new(60).unwrap());
    assert_eq!(
        one(450, 12),
        Some(Pace { period: Duration::from_nanos(11_111_112), burst: NonZeroU32::new(4).unwrap() })
    );
    assert_eq!(one(1, 1).map(|pace| pace.period), Some(S(60)));
    assert_eq!(one(450, 0), None);
}

proptest! {
    // Whatever is there, at most what there is is held, and turns by turns all come to their fair shares.
    #[test]
    fn plans_never_hold_more_than_there_is_and_come_to_rest(
        held in proptest::collection::vec(0u32..=20, 0..6),
        joining in 0usize..6,
        order in proptest::collection::vec(0usize..12, 0..40),
    ) {
        let mut held = held;
        while held.iter().sum::<u32>() > SHARES {
            held.pop();
        }
        let names: Vec<String> = (0..held.len() + joining).map(|n| format!("w{n}")).collect();
        let holders = names.iter().zip(&held).map(|(id, shares)| (id.clone(), Holder { shares: *shares, beat: 1 }));
        let mut now = Shares { revision: 1, holders: holders.collect() };
        let rounds = names.len() * 4;
        let turns = order.into_iter().chain((0..rounds).flat_map(|_| 0..names.len()));
        for turn in turns {
            let Some(me) = names.get(turn) else { continue };
            if let Some(to) = planned(&now, me) {
                prop_assert!(to.held() <= SHARES && to.revision == now.revision + 1);
                now = to;
            }
        }
        for (rank, id) in now.holders.keys().enumerate() {
            prop_assert_eq!(now.of(id), fair_share(names.len(), rank));
        }
    }
}

/// A call on its way to the store.
struct Call {
    by: usize,
    number: usize,
    lands_at: u64,
    answer_after: Option<u64>,
    what: What,
}

enum What {
    Look,
    Beat(u64),
    Change(u64, Shares),
}

enum Heard {
    Saw(Shares),
    Held(Shares),
}

/// A worker on a host of its own.
struct Worker {
    id: String,
    stake: Stake,
    clock_ahead: u64,
    trusted_from: Option<u64>,
    waits_for: Option<(usize, u64)>,
    next_look: u64,
    next_beat: u64,
    frozen_until: u64,
    is_dead: bool,
    has_left: bool,
}

/// Workers and their store in milliseconds of true time. What goes wrong is drawn from a seed.
struct Village {
    chance: StdRng,
    now: u64,
    store: Shares,
    workers: Vec<Worker>,
    calls: Vec<Call>,
    answers: Vec<(u64, usize, usize, Heard)>,
    calls_made: usize,
    trust_ms: u64,
    is_calm: bool,
}

const STEP: u64 = 125;
/// After so long without an answer a worker gives a call up; it may land all the same.
const GIVES_UP_AFTER: u64 = 3_000;

impl Village {
    fn new(seed: u64, trust_ms: u64) -> Self {
        let (store, workers) = (Shares::default(), Vec::new());
        let (calls, answers, chance) = (Vec::new(), Vec::new(), StdRng::seed_from_u64(seed));
        Village { chance, now: 0, store, workers, calls, answers, calls_made: 0, trust_ms, is_calm: false }
    }

    fn is(&mut self, one_in: u32) -> bool {
        !self.is_calm && self.chance.random_ratio(1, one_in)
    }

    fn join(&mut self) {
        let id = format!("w{}-{:x}", self.workers.len() % 3, self.chance.next_u32());
        self.workers.push(Worker {
            stake: Stake::new(&id),
            id,
            clock_ahead: u64::from(self.chance.next_u32()),
            trusted_from: None,
            waits_for: None,
            next_look: self.now,
            next_beat: self.now,
            frozen_until: 0,
            is_dead: false,
            has_left: false,
        });
    }

    /// How many shares could be used at this moment.
    fn used(&self) -> u32 {
        let trusts = |worker: &&Worker| worker.trusted_from.is_some_and(|from| self.now < from + self.trust_ms);
        self.workers.iter().filter(trusts).map(|worker| worker.stake.usable()).sum()
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.is(160) && self.workers.len() < 9 {
            self.join();
        }
        self.land();
        for w in 0..self.workers.len() {
            if self.is(800) {
                self.workers[w].frozen_until = self.now + self.chance.random_range(1_000..30_000);
            }
            let is_dying = self.is(1_500);
            self.workers[w].is_dead |= is_dying;
            self.workers[w].has_left |= !is_dying && self.is(1_500);
            if !self.workers[w].is_dead && self.workers[w].frozen_until <= self.now {
                self.act(w);
            }
        }
    }

    fn land(&mut self) {
        let now = self.now;
        let (landing, flying) = self.calls.drain(..).partition(|call: &Call| call.lands_at <= now);
        self.calls = flying;
        let mut landing: Vec<Call> = landing;
        landing.sort_by_key(|call| call.lands_at);
        for call in landing {
            let id = self.workers[call.by].id.clone();
            let heard = match call.what {
                What::Look => Heard::Saw(self.store.clone()),
                What::Beat(number) => match self.store.holders.get_mut(&id) {
                    Some(holder) if holder.beat < number => {
                        holder.beat = number;
                        self.store.revision += 1;
                        Heard::Held(self.store.clone())
                    }
                    _ => Heard::Saw(self.store.clone()),
                },
                What::Change(from, to) => {
                    if self.store.revision == from {
                        self.store = to;
                    }
                    Heard::Saw(self.store.clone())
                }
            };
            if let Some(after) = call.answer_after {
                self.answers.push((now + after, call.by, call.number, heard));
            }
        }
    }

    fn send(&mut self, w: usize, what: What) {
        let delay = if self.is(20) { self.chance.random_range(0..20_000) } else { self.chance.random_range(0..400) };
        let answer_after = (!self.is(15)).then(|| self.chance.random_range(0..400));
        self.calls_made += 1;
        let (number, lands_at) = (self.calls_made, self.now + delay);
        self.calls.push(Call { by: w, number, lands_at, answer_after, what });
        self.workers[w].waits_for = Some((number, self.now));
    }

    fn act(&mut self, w: usize) {
        let own = Duration::from_millis(self.now + self.workers[w].clock_ahead);
        if let Some((number, since)) = self.workers[w].waits_for {
            let found = self.answers.iter().position(|(at, by, of, _)| *at <= self.now && *by == w && *of == number);
            let worker = &mut self.workers[w];
            match found.map(|n| self.answers.remove(n).3) {
                Some(Heard::Saw(shares)) => worker.stake.saw(shares, own),
                Some(Heard::Held(shares)) => {
                    worker.stake.has_beaten(shares, own);
                    worker.trusted_from = Some(since);
                }
                None if self.now < since + GIVES_UP_AFTER => return,
                None => {}
            }
            worker.waits_for = None;
            let want = if worker.has_left { Want::Nothing } else { Want::Share };
            if found.is_some()
                && let Some(to) = worker.stake.plan(want, &times(), own)
            {
                let (from, takes) = (worker.stake.seen().revision, to.of(&worker.id) > worker.stake.usable());
                worker.next_beat = if takes { self.now } else { worker.next_beat };
                return self.send(w, What::Change(from, to));
            }
        }
        let worker = &mut self.workers[w];
        if worker.stake.has_joined() && self.now >= worker.next_beat {
            worker.next_beat = self.now + 3_000;
            let number = worker.stake.next_beat();
            self.send(w, What::Beat(number));
        } else if self.now >= worker.next_look {
            worker.next_look = self.now + 1_000;
            self.send(w, What::Look);
        }
    }
}

/// Plays a seed; returns the most shares that could be used at any moment.
fn play(seed: u64, trust_ms: u64) -> u32 {
    let mut village = Village::new(seed, trust_ms);
    (0..1 + seed % 5).for_each(|_| village.join());
    let mut most = 0;
    while village.now < 120_000 {
        village.step();
        most = most.max(village.used());
    }
    village.is_calm = true;
    while village.now < 200_000 {
        village.step();
        most = most.max(village.used());
    }
    let live: Vec<&Worker> = village.workers.iter().filter(|worker| !worker.is_dead && !worker.has_left).collect();
    if !live.is_empty() {
        assert_eq!(village.store.holders.len(), live.len(), "seed {seed}: {:?}", village.store);
        assert_eq!((village.store.held(), village.used()), (SHARES, SHARES), "seed {seed}: {:?}", village.store);
    }
    for worker in live {
        let rank = village.store.holders.keys().position(|id| *id == worker.id).unwrap();
        assert_eq!(worker.stake.usable(), fair_share(village.store.holders.len(), rank), "seed {seed}");
    }
    most
}

#[test]
fn workers_that_die_freeze_and_hear_late_never_use_more_than_there_is_and_share_all_of_it_in_the_end() {
    for seed in 0..400 {
        let most = play(seed, times().trusted_for().as_millis() as u64);
        assert!(most <= SHARES, "seed {seed}: {most} shares were used");
    }
}

// The control.
#[test]
fn trust_that_outlasts_the_lease_uses_shares_that_are_others_by_then() {
    assert!((0..400).any(|seed| play(seed, 14_000) > SHARES));
}

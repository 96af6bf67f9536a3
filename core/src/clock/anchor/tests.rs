//! The estimate against a store that is known exactly.

use super::*;
use proptest::prelude::*;

/// The store's time, in nanoseconds, when the host's boot clock shows zero.
const STORE_NS: i64 = 1_791_170_000_400_000_000;
/// Bounds are cut to whole nanoseconds, once for each part of the sum.
const ROUNDING_NS: i64 = 100;

fn ns(ms: u64) -> i64 {
    ms as i64 * 1_000_000
}

/// A host's boot clock and the store it talks to, whose time drifts against it.
struct Walk {
    boot_ns: i64,
    store_ns: i64,
    anchor: Anchor,
}

impl Walk {
    fn new() -> Self {
        Walk { boot_ns: 86_400_000_000_000, store_ns: STORE_NS, anchor: Anchor::default() }
    }

    fn boot(&self) -> Duration {
        Duration::from_nanos(self.boot_ns as u64)
    }

    fn pass(&mut self, time_ns: i64, ppm: i64) {
        self.boot_ns += time_ns;
        self.store_ns += time_ns + time_ns / 1_000 * ppm / 1_000;
    }

    /// Calls a host of the store that is ahead by `ahead_ns`.
    fn call(&mut self, there_ns: i64, back_ns: i64, ahead_ns: i64, ppm: i64) {
        let sent = self.boot();
        self.pass(there_ns, ppm);
        let date = DateTime::from_timestamp((self.store_ns + ahead_ns).div_euclid(SECOND_NS), 0).unwrap();
        self.pass(back_ns, ppm);
        self.anchor.hear(&Sample { sent, received: self.boot(), date });
    }

    /// By how much the reading is early; negative = late.
    fn early_ns(&self) -> i64 {
        self.anchor.read(self.boot()).unwrap().earliest.timestamp_nanos_opt().unwrap() - self.store_ns
    }

    fn is_inside(&self) -> bool {
        let Reading { earliest, latest } = self.anchor.read(self.boot()).unwrap();
        let store = DateTime::from_timestamp_nanos(self.store_ns);
        earliest <= store && store <= latest
    }
}

/// One call: the pause before it, its way there and back, which host answers (in thousandths of the disagreement), drift.
#[derive(Clone, Debug)]
struct Call {
    pause_ms: u64,
    there_ms: u64,
    back_ms: u64,
    host: i64,
    ppm: i64,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let way = || prop_oneof![4 => 0..20u64, 1 => 0..3_000u64];
    let pause = prop_oneof![3 => 0..2_000u64, 1 => 0..600_000u64];
    let call = (pause, way(), way(), -1_000..=1_000i64, -500..=500i64)
        .prop_map(|(pause_ms, there_ms, back_ms, host, ppm)| Call { pause_ms, there_ms, back_ms, host, ppm });
    prop::collection::vec(call, 1..60)
}

proptest! {
    #[test]
    fn the_reading_is_never_early_by_more_than_hosts_of_the_store_disagree(
        calls in calls(), disagree_ms in prop_oneof![Just(0u64), 0..1_000u64, Just(1_000)],
    ) {
        let mut walk = Walk::new();
        let disagree_ns = ns(disagree_ms);
        let mut heard = None;
        for call in calls {
            walk.pass(ns(call.pause_ms), call.ppm);
            let check = |walk: &Walk, latest: i64, since_ns: i64| {
                let early = walk.early_ns();
                prop_assert!(early <= disagree_ns + ROUNDING_NS, "early by {early} ns");
                // Both drift: the bound is loosened, and the store may have moved the other way.
                let late = latest + 2 * since_ns / DRIFT + ROUNDING_NS;
                prop_assert!(-early <= late, "late by {} ns of {late}", -early);
                Ok(())
            };
            if let Some((latest, at)) = heard {
                check(&walk, latest, walk.boot_ns - at)?;
            }
            walk.call(ns(call.there_ms), ns(call.back_ms), call.host * disagree_ns / 1_000, call.ppm);
            let latest = SECOND_NS + ns(call.back_ms) + disagree_ns + ns(call.back_ms) / DRIFT;
            check(&walk, latest, 0)?;
            heard = Some((latest, walk.boot_ns));
        }
    }

    #[test]
    fn the_stores_time_is_inside_the_bounds_where_its_hosts_agree(calls in calls()) {
        let mut walk = Walk::new();
        for call in calls {
            walk.call(ns(call.there_ms), ns(call.back_ms), 0, call.ppm);
            prop_assert!(walk.is_inside());
            walk.pass(ns(call.pause_ms), call.ppm);
            prop_assert!(walk.is_inside());
        }
    }

    #[test]
    fn no_answer_sets_the_reading_back_where_hosts_are_within_half_a_second(
        calls in calls(), disagree_ms in 0..500u64,
    ) {
        let mut walk = Walk::new();
        for call in calls {
            let before = walk.anchor;
            walk.call(ns(call.there_ms), ns(call.back_ms), call.host * ns(disagree_ms) / 1_000, call.ppm);
            if let Some(without) = before.read(walk.boot()) {
                prop_assert!(walk.anchor.read(walk.boot()).unwrap().earliest >= without.earliest);
            }
            walk.pass(ns(call.pause_ms), call.ppm);
        }
    }

    #[test]
    fn many_calls_are_much_more_exact_than_a_second(
        phases in prop::collection::vec(0..1_000u64, 200..=200), ppm in -500..=500i64,
    ) {
        let mut walk = Walk::new();
        for phase in phases {
            walk.pass(ns(phase), ppm);
            walk.call(ns(10), ns(10), 0, ppm);
        }
        // Of 200 calls at any phase one is sure to come early in its second: it misses 100 ms in 1 case of 10^9.
        let late = -walk.early_ns();
        prop_assert!((0..=ns(200)).contains(&late), "late by {late} ns");
    }
}

fn quick(walk: &mut Walk) {
    walk.call(ns(5), ns(5), 0, 0);
}

#[test]
fn one_answer_is_exact_to_a_second_and_its_round_trip() {
    let mut walk = Walk::new();
    assert!(walk.anchor.read(walk.boot()).is_none());
    quick(&mut walk);
    let Reading { earliest, latest } = walk.anchor.read(walk.boot()).unwrap();
    assert!(latest - earliest <= chrono::TimeDelta::milliseconds(1_011));
    assert!(walk.is_inside());
}

#[test]
fn a_slow_answer_loosens_nothing() {
    let mut walk = Walk::new();
    quick(&mut walk);
    walk.pass(ns(610), 0);
    quick(&mut walk);
    let known = walk.anchor.read(walk.boot()).unwrap();
    walk.call(ns(2_900), ns(2_900), 0, 0);
    let after = walk.anchor.read(walk.boot()).unwrap();
    let width = |reading: &Reading| reading.latest - reading.earliest;
    assert!(width(&after) <= width(&known) + chrono::TimeDelta::milliseconds(6), "{:?}", width(&after));
}

#[test]
fn a_clock_that_stood_still_is_right_again_after_one_answer() {
    let mut walk = Walk::new();
    (0..20).for_each(|_| quick(&mut walk));
    walk.store_ns += ns(3_600_000);
    assert!(walk.early_ns() < -ns(3_599_000));
    quick(&mut walk);
    assert!((-ns(1_010)..=0).contains(&walk.early_ns()), "{}", walk.early_ns());
    assert!(walk.is_inside());
}

#[test]
fn a_host_of_the_store_that_is_far_ahead_is_believed_only_until_the_next_one() {
    let mut walk = Walk::new();
    quick(&mut walk);
    walk.call(ns(5), ns(5), ns(3_600_000), 0);
    assert!(walk.early_ns() > ns(3_598_000));
    quick(&mut walk);
    assert!((-ns(1_010)..=0).contains(&walk.early_ns()), "{}", walk.early_ns());
}

#[test]
fn an_answer_that_makes_no_sense_says_nothing() {
    let mut walk = Walk::new();
    quick(&mut walk);
    let known = walk.anchor.read(walk.boot());
    let (sent, received) = (walk.boot(), walk.boot() + Duration::from_secs(1));
    walk.anchor.hear(&Sample { sent, received, date: DateTime::<Utc>::MAX_UTC });
    let date = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    walk.anchor.hear(&Sample { sent: received, received: sent, date });
    assert_eq!(walk.anchor.read(walk.boot()), known);
}

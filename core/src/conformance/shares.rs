//! What a [`ShareStore`](crate::ports::ShareStore) must do.

use super::samples::random_name;
use crate::ports::{Beat, Ports};
use crate::rate::{Holder, Shares};
use crate::target::Target;

fn random_target() -> Target {
    Target::webhook(&format!("{}.example.com", random_name()))
}

fn holding(revision: u64, holders: &[(&str, u32, u64)]) -> Shares {
    let holders = holders.iter().map(|(id, shares, beat)| ((*id).to_owned(), Holder { shares: *shares, beat: *beat }));
    Shares { revision, holders: holders.collect() }
}

/// A target whose shares two workers hold, and those.
async fn shared(ports: &Ports) -> (Target, Shares) {
    let (target, shares) = (random_target(), holding(1, &[("a-1.b+c", 40, 1), ("b", 20, 5)]));
    assert_eq!(ports.shares.change(&target, 0, &shares).await, Ok(shares.clone()));
    (target, shares)
}

/// Nothing is there, of revision 0.
pub async fn shares_that_nobody_holds_are_empty(ports: &Ports) {
    let target = random_target();
    assert_eq!(ports.shares.get(&target).await, Ok(Shares::default()));
    assert_eq!(ports.shares.beat(&target, "a", 1).await, Ok(Beat::Lost(Shares::default())));
    assert_eq!(ports.shares.get(&target).await, Ok(Shares::default()), "a beat never makes a holder");
}

/// Holders come back as they were stored, also when there is none left.
pub async fn shares_survive_the_round_trip_whole(ports: &Ports) {
    let (target, shares) = shared(ports).await;
    assert_eq!(ports.shares.get(&target).await, Ok(shares));
    let none = holding(2, &[]);
    assert_eq!(ports.shares.change(&target, 1, &none).await, Ok(none.clone()));
    assert_eq!(ports.shares.get(&target).await, Ok(none), "the revision stays");
}

/// A change needs the revision it was decided from; a second one finds the first.
pub async fn shares_change_only_from_what_they_were(ports: &Ports) {
    let (target, shares) = shared(ports).await;
    let other = holding(2, &[("c", 60, 1)]);
    for stale in [0, 2, 7] {
        assert_eq!(ports.shares.change(&target, stale, &other).await, Ok(shares.clone()));
    }
    assert_eq!(ports.shares.change(&target, 1, &other).await, Ok(other.clone()));
    assert_eq!(ports.shares.change(&target, 1, &holding(2, &[])).await, Ok(other.clone()));
    assert_eq!(ports.shares.change(&target, 1, &other).await, Ok(other), "one whose answer was lost is in force");
}

/// Two workers change the same revision.
pub async fn of_two_changes_of_shares_one_wins(ports: &Ports) {
    let (target, _) = shared(ports).await;
    let (a, b) = (holding(2, &[("a", 60, 1)]), holding(2, &[("b", 60, 1)]));
    let both = futures::join!(ports.shares.change(&target, 1, &a), ports.shares.change(&target, 1, &b));
    let in_force = both.0.expect("shares can be changed");
    assert_eq!(both.1.as_ref(), Ok(&in_force));
    assert!(in_force == a || in_force == b);
    assert_eq!(ports.shares.get(&target).await, Ok(in_force));
}

/// It shows the shares, and every change decided before it is refused.
pub async fn a_beat_shows_the_shares_and_raises_the_revision(ports: &Ports) {
    let (target, shares) = shared(ports).await;
    let beaten = holding(2, &[("a-1.b+c", 40, 4), ("b", 20, 5)]);
    assert_eq!(ports.shares.beat(&target, "a-1.b+c", 4).await, Ok(Beat::Held(beaten.clone())));
    assert_eq!(ports.shares.get(&target).await, Ok(beaten.clone()));
    let without = holding(2, &[("b", 60, 5)]);
    assert_eq!(ports.shares.change(&target, shares.revision, &without).await, Ok(beaten));
}

/// The same beat again is this very call, tried twice.
pub async fn a_beat_whose_answer_was_lost_is_held(ports: &Ports) {
    let (target, _) = shared(ports).await;
    let first = ports.shares.beat(&target, "b", 6).await;
    assert_eq!(first, Ok(Beat::Held(holding(2, &[("a-1.b+c", 40, 1), ("b", 20, 6)]))));
    assert_eq!(ports.shares.beat(&target, "b", 6).await, first, "a repeat raises nothing");
}

/// A beat of a lower number was overtaken, and one of no holder changes nothing.
pub async fn a_beat_that_comes_too_late_is_lost(ports: &Ports) {
    let (target, shares) = shared(ports).await;
    for (worker, beat) in [("b", 4), ("c", 9)] {
        assert_eq!(ports.shares.beat(&target, worker, beat).await, Ok(Beat::Lost(shares.clone())), "{worker}");
    }
    assert_eq!(ports.shares.get(&target).await, Ok(shares));
}

/// They are no leases, wherever they are kept.
pub async fn shares_are_not_listed_among_leases(ports: &Ports) {
    let before = ports.leases.list().await.expect("leases can be listed").len();
    shared(ports).await;
    assert_eq!(ports.leases.list().await.map(|leases| leases.len()), Ok(before));
}

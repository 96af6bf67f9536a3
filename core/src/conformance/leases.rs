//! What a [`LeaseStore`](crate::ports::LeaseStore) must do. What a counter begins with is the adapter's business.

use super::samples::random_name;
use crate::due::{Minute, ShardClass, ShardId};
use crate::lease::{Lease, LeaseId};
use crate::ports::{Claim, Ports};

fn free(id: &LeaseId) -> Lease {
    Lease { id: id.clone(), owner: None, counter: 0, cursor: None, wanted_by: None }
}

fn random_id() -> LeaseId {
    LeaseId::Copy(random_name())
}

async fn read(ports: &Ports, id: &LeaseId) -> Option<Lease> {
    let mut found = ports.leases.list().await.expect("leases can be listed");
    found.retain(|lease| lease.id == *id);
    assert!(found.len() <= 1, "{id} is listed twice");
    found.pop()
}

async fn there(ports: &Ports, id: &LeaseId) -> Lease {
    read(ports, id).await.unwrap_or_else(|| panic!("{id} is not listed"))
}

/// A new lease that `owner` holds, and its counter.
async fn held(ports: &Ports, owner: &str) -> (LeaseId, u64) {
    let id = random_id();
    match ports.leases.take(&id, None, owner).await {
        Ok(Claim::Held { counter }) => (id, counter),
        other => panic!("a lease that nobody has cannot be taken: {other:?}"),
    }
}

/// A new one is free; one that exists stays as it is.
pub async fn a_lease_is_made_once_and_keeps_what_it_has(ports: &Ports) {
    let number = rand::random_range(0..10_000);
    for id in [LeaseId::Shard(ShardId { class: ShardClass::Standard, number }), random_id()] {
        assert_eq!(ports.leases.init(&id, Minute(100)).await, Ok(()));
        let free = there(ports, &id).await;
        assert_eq!((free.owner.as_deref(), free.cursor), (None, Some(Minute(100))));
        let claim = ports.leases.take(&id, Some(&free), "a").await;
        assert_eq!(claim, Ok(Claim::Held { counter: free.counter + 1 }));
        let held = there(ports, &id).await;
        assert_eq!((held.owner.as_deref(), held.cursor), (Some("a"), Some(Minute(100))), "the cursor stays");
        assert_eq!(ports.leases.init(&id, Minute(7)).await, Ok(()));
        assert_eq!(there(ports, &id).await, held);
    }
}

/// Neither with an older observation, nor as new when it exists, nor as known when it is gone.
pub async fn a_lease_is_taken_only_as_it_was_observed(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    let observed = there(ports, &id).await;
    let expected = Lease { id: id.clone(), owner: Some("a".into()), counter, cursor: None, wanted_by: None };
    assert_eq!(observed, expected);
    assert_eq!(ports.leases.take(&id, None, "b").await, Ok(Claim::Lost), "there is one");
    assert_eq!(ports.leases.take(&id, Some(&observed), "b").await, Ok(Claim::Held { counter: counter + 1 }));
    let taken = there(ports, &id).await;
    assert_eq!((taken.owner.as_deref(), taken.counter), (Some("b"), counter + 1));
    let wrong_owner = Lease { owner: Some("x".into()), ..taken.clone() };
    let wrong_counter = Lease { counter, ..taken.clone() };
    let free = Lease { owner: None, ..taken.clone() };
    for stale in [&observed, &wrong_owner, &wrong_counter, &free] {
        assert_eq!(ports.leases.take(&id, Some(stale), "c").await, Ok(Claim::Lost), "{stale:?}");
        assert_eq!(there(ports, &id).await, taken);
    }
    let gone = Lease { id: random_id(), ..taken };
    assert_eq!(ports.leases.take(&gone.id, Some(&gone), "c").await, Ok(Claim::Lost));
    assert_eq!(read(ports, &gone.id).await, None, "a lease that is gone is not made again");
}

/// The same take again finds the taker's own id.
pub async fn a_take_whose_answer_was_lost_is_mine(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    assert_eq!(ports.leases.take(&id, None, "a").await, Ok(Claim::Mine { counter }));
    let observed = there(ports, &id).await;
    assert_eq!(ports.leases.take(&id, Some(&observed), "b").await, Ok(Claim::Held { counter: counter + 1 }));
    assert_eq!(ports.leases.take(&id, Some(&observed), "b").await, Ok(Claim::Mine { counter: counter + 1 }));
    assert_eq!(there(ports, &id).await.counter, counter + 1, "a repeat raises nothing");
}

/// Two copies reach for the same lease.
pub async fn of_two_takes_one_wins(ports: &Ports) {
    let id = random_id();
    let mut observed: Option<Lease> = None;
    for round in 0..3 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let take = async |owner: &str| ports.leases.take(&id, observed.as_ref(), owner).await;
        let winner = match futures::join!(take(&a), take(&b)) {
            (Ok(Claim::Held { .. }), Ok(Claim::Lost)) => a,
            (Ok(Claim::Lost), Ok(Claim::Held { .. })) => b,
            other => panic!("not one winner: {other:?}"),
        };
        let lease = there(ports, &id).await;
        assert_eq!(lease.owner, Some(winner));
        observed = Some(lease);
    }
}

/// Without a cursor the stored one stays.
pub async fn a_renewal_raises_the_counter_and_stores_the_cursor(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    for (step, cursor, kept) in [(1, Some(5), 5), (2, None, 5), (3, Some(6), 6)] {
        let renewal = ports.leases.renew(&id, "a", counter + step - 1, cursor.map(Minute)).await;
        assert_eq!(renewal, Ok(Claim::Held { counter: counter + step }));
        let expected =
            Lease { owner: Some("a".into()), counter: counter + step, cursor: Some(Minute(kept)), ..free(&id) };
        assert_eq!(there(ports, &id).await, expected);
    }
}

/// The same renewal again finds the lease its own, with the counter to go on from.
pub async fn a_renewal_whose_answer_was_lost_is_mine(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    assert_eq!(ports.leases.renew(&id, "a", counter, Some(Minute(5))).await, Ok(Claim::Held { counter: counter + 1 }));
    let renewed = there(ports, &id).await;
    assert_eq!(ports.leases.renew(&id, "a", counter, Some(Minute(9))).await, Ok(Claim::Mine { counter: counter + 1 }));
    assert_eq!(there(ports, &id).await, renewed, "a repeat changes nothing");
    assert_eq!(ports.leases.renew(&id, "a", counter + 1, None).await, Ok(Claim::Held { counter: counter + 2 }));
}

/// Taken over, free, or gone.
pub async fn a_renewal_of_anothers_lease_is_lost(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    let observed = there(ports, &id).await;
    assert_eq!(ports.leases.take(&id, Some(&observed), "b").await, Ok(Claim::Held { counter: counter + 1 }));
    let taken = there(ports, &id).await;
    for believed in [counter, counter + 1] {
        assert_eq!(ports.leases.renew(&id, "a", believed, Some(Minute(9))).await, Ok(Claim::Lost));
        assert_eq!(there(ports, &id).await, taken);
    }
    assert_eq!(ports.leases.release(&id, "b", counter + 1, None).await, Ok(()));
    let free = there(ports, &id).await;
    assert_eq!(ports.leases.renew(&id, "b", counter + 1, None).await, Ok(Claim::Lost), "it is free");
    assert_eq!(there(ports, &id).await, free);
    let gone = random_id();
    assert_eq!(ports.leases.renew(&gone, "a", 1, None).await, Ok(Claim::Lost));
    assert_eq!(read(ports, &gone).await, None, "a renewal never makes a lease");
}

/// With a cursor the new one, without the old one.
pub async fn a_released_lease_keeps_its_cursor_for_the_next_holder(ports: &Ports) {
    for (given, kept) in [(None, Minute(5)), (Some(Minute(6)), Minute(6))] {
        let (id, counter) = held(ports, "a").await;
        assert_eq!(
            ports.leases.renew(&id, "a", counter, Some(Minute(5))).await,
            Ok(Claim::Held { counter: counter + 1 })
        );
        assert_eq!(ports.leases.release(&id, "a", counter + 1, given).await, Ok(()));
        let free = there(ports, &id).await;
        assert_eq!((free.owner.as_deref(), free.cursor), (None, Some(kept)));
        assert!(free.counter > counter, "the counter never falls");
        let claim = ports.leases.take(&id, Some(&free), "b").await;
        assert_eq!(claim, Ok(Claim::Held { counter: free.counter + 1 }));
        let taken = there(ports, &id).await;
        assert_eq!((taken.owner.as_deref(), taken.cursor), (Some("b"), Some(kept)));
    }
}

/// A note that changes neither owner nor counter, and goes with the lease's next change of hands.
pub async fn a_lease_can_be_asked_for_while_it_is_held(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    assert_eq!(ports.leases.ask(&id, "x", "b").await, Ok(()));
    assert_eq!(there(ports, &id).await.wanted_by, None, "it is not x's");
    assert_eq!(ports.leases.ask(&id, "a", "b").await, Ok(()));
    let expected = Lease { owner: Some("a".into()), counter, wanted_by: Some("b".into()), ..free(&id) };
    assert_eq!(there(ports, &id).await, expected);
    assert_eq!(ports.leases.renew(&id, "a", counter, None).await, Ok(Claim::Held { counter: counter + 1 }));
    assert_eq!(there(ports, &id).await.wanted_by.as_deref(), Some("b"), "a renewal keeps it");
    assert_eq!(ports.leases.ask(&id, "a", "c").await, Ok(()));
    assert_eq!(ports.leases.release(&id, "a", counter + 1, None).await, Ok(()));
    let released = there(ports, &id).await;
    assert_eq!((released.owner.as_deref(), released.wanted_by.as_deref()), (None, None));
    assert_eq!(ports.leases.take(&id, Some(&released), "c").await, Ok(Claim::Held { counter: released.counter + 1 }));
    assert_eq!(ports.leases.ask(&id, "c", "d").await, Ok(()));
    let asked = there(ports, &id).await;
    assert_eq!(ports.leases.take(&id, Some(&asked), "d").await, Ok(Claim::Held { counter: asked.counter + 1 }));
    assert_eq!(there(ports, &id).await.wanted_by, None);
    let gone = random_id();
    assert_eq!(ports.leases.ask(&gone, "a", "b").await, Ok(()));
    assert_eq!(read(ports, &gone).await, None, "a note never makes a lease");
}

/// Whoever lost it frees nothing.
pub async fn a_release_by_another_or_of_an_older_counter_does_nothing(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    assert_eq!(ports.leases.renew(&id, "a", counter, None).await, Ok(Claim::Held { counter: counter + 1 }));
    let lease = there(ports, &id).await;
    for (owner, counter) in [("b", counter + 1), ("a", counter), ("a", counter + 2)] {
        assert_eq!(ports.leases.release(&id, owner, counter, Some(Minute(9))).await, Ok(()), "{owner} {counter}");
        assert_eq!(there(ports, &id).await, lease);
    }
    let gone = random_id();
    assert_eq!(ports.leases.release(&gone, "a", 1, Some(Minute(9))).await, Ok(()));
    assert_eq!(read(ports, &gone).await, None, "a release never makes a lease");
}

/// One that moved since is left alone.
pub async fn a_lease_is_removed_only_as_it_was_observed(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    let observed = there(ports, &id).await;
    assert_eq!(ports.leases.renew(&id, "a", counter, None).await, Ok(Claim::Held { counter: counter + 1 }));
    let renewed = there(ports, &id).await;
    let wrong_owner = Lease { owner: Some("b".into()), ..renewed.clone() };
    for stale in [observed, wrong_owner] {
        assert_eq!(ports.leases.remove(&stale).await, Ok(()));
        assert_eq!(there(ports, &id).await, renewed);
    }
    for _ in 0..2 {
        assert_eq!(ports.leases.remove(&renewed).await, Ok(()));
        assert_eq!(read(ports, &id).await, None);
    }
}

/// A registration that its copy freed must not stay for ever.
pub async fn a_free_lease_can_be_removed(ports: &Ports) {
    let (id, counter) = held(ports, "a").await;
    let held = there(ports, &id).await;
    assert_eq!(ports.leases.release(&id, "a", counter, None).await, Ok(()));
    assert_eq!(ports.leases.remove(&held).await, Ok(()));
    let free = there(ports, &id).await;
    assert_eq!(free.owner, None);
    assert_eq!(ports.leases.remove(&free).await, Ok(()));
    assert_eq!(read(ports, &id).await, None);
}

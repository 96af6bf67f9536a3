//! What an operator does to the timetable itself: reads it again from an earlier minute, frees a shard, adds shards; and to
//! the workers: limits and holds ([`steer`]), which they read by themselves.
//!
//! Everything about the timetable goes through the leases, as the scheduler copies do: whoever holds a shard notices at its next renewal,
//! within seconds, that it does not any more. Until then it may send what the next holder sends as well; workers catch
//! the repeats. Every step can be repeated.

use punctual_core::clock::Clock;
use punctual_core::due::{Cursor, Layout, Minute, SETTLE, ShardId, Shards};
use punctual_core::error::PortError;
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::ports::{Claim, Control, LeaseStore, Ports};
use punctual_core::steering::Steering;
use std::time::Duration;

/// Tries to get hold of a lease that its holder may be renewing at the same moment.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// For so long the running copies may take to hold new shards: they read the counts every 10 s, and take at the next turn.
const TAKE_UP: Duration = Duration::from_secs(60);

/// Why nothing, or not everything, was done.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
    /// Others were in the way, or not ready; what was done stays done.
    #[error("{0}")]
    NotNow(String),
    /// The store failed; what was done stays done.
    #[error("{0}; what was done stays done, run the command again to go on")]
    Store(#[from] PortError),
}

/// Frees one shard, whoever holds it, so that it is taken anew: by a copy that may hold one more, or by its old holder,
/// which notices at its next renewal.
///
/// # Errors
/// When there is no such shard, its lease cannot be got hold of, or the store fails.
pub async fn release(leases: &dyn LeaseStore, shard: ShardId, me: &str) -> Result<(), OperatorError> {
    free(leases, shard, None, me).await
}

/// Sets the cursors of all shards, or of one, back to `to`, so that everything due since is read again. A cursor that
/// stands earlier stays. Returns the shards set back.
///
/// # Errors
/// When a lease cannot be got hold of, or the store fails.
pub async fn rewind(
    leases: &dyn LeaseStore,
    to: Minute,
    only: Option<ShardId>,
    me: &str,
) -> Result<Vec<ShardId>, OperatorError> {
    let mut rewound = Vec::new();
    for lease in leases.list().await? {
        let LeaseId::Shard(shard) = lease.id else { continue };
        let is_later = lease.cursor.is_none_or(|cursor| cursor > to);
        if is_later && only.is_none_or(|only| only == shard) {
            free(leases, shard, Some(Cursor(to)), me).await?;
            rewound.push(shard);
        }
    }
    Ok(rewound)
}

/// Takes a lease from its holder and frees it, with a cursor if one is given.
async fn free(leases: &dyn LeaseStore, shard: ShardId, cursor: Option<Cursor>, me: &str) -> Result<(), OperatorError> {
    let id = LeaseId::Shard(shard);
    for _ in 0..TRIES {
        let observed = leases.list().await?.into_iter().find(|lease| lease.id == id);
        let Some(observed) = observed else {
            return Err(OperatorError::Refused(format!("there is no shard {shard}: `punctual status` lists them")));
        };
        match leases.take(&id, Some(&observed), me).await? {
            Claim::Held { counter } | Claim::Mine { counter } => {
                leases.release(&id, me, counter, cursor.map(|cursor| cursor.0)).await?;
                // Taken over in between, after a long pause of this process, nothing was released.
                let now = leases.list().await?.into_iter().find(|lease| lease.id == id);
                if now.is_some_and(|now| now.counter > counter + 1 || now.owner.is_none()) {
                    return Ok(());
                }
            }
            // Renewed in between.
            Claim::Lost => tokio::time::sleep(PAUSE).await,
        }
    }
    Err(OperatorError::NotNow(format!("shard {shard} changes hands too often to be got hold of: try again")))
}

/// Raises the shard counts while everything runs: readers begin with the new shards, and only then are jobs put there.
/// Running it again after a failure goes on. Returns the counts in force.
///
/// # Errors
/// When a count would fall, the running copies do not take the new shards up in time, or the store fails.
pub async fn grow(ports: &Ports, clock: &dyn Clock, to: Shards) -> Result<Layout, OperatorError> {
    let Some(mut layout) = ports.control.layout().await? else {
        return Err(OperatorError::Refused("the store was never set up: run `punctual setup`".into()));
    };
    let falls = |from: Shards| to.urgent < from.urgent || to.standard < from.standard;
    if falls(layout.read) || falls(layout.write) {
        let Shards { urgent, standard } = layout.read;
        return Err(OperatorError::Refused(format!(
            "shards can only be added: there are {urgent} urgent and {standard} standard ones"
        )));
    }
    if layout.read != to {
        // Nobody has written to them yet. A shard without a cursor would be read from fourteen days ago.
        let cursor = Minute::of(clock.now() - SETTLE);
        for shard in to.all() {
            ports.leases.init(&LeaseId::Shard(shard), cursor).await?;
        }
        layout = change(ports, layout, Layout { read: to, ..layout }).await?;
    }
    if layout.is_growing() {
        wait_for_readers(ports, clock, to).await?;
        layout = change(ports, layout, Layout::of(to)).await?;
    }
    Ok(layout)
}

/// Changes limits and holds from whatever they are to what `change` makes of them; a change that says nothing new is not
/// written. Returns those in force, and whether they were changed.
///
/// # Errors
/// When `change` refuses, others change them all the time, or the store fails.
pub async fn steer(
    control: &dyn Control,
    change: impl Fn(&Steering) -> Result<Steering, String>,
) -> Result<(Steering, bool), OperatorError> {
    for _ in 0..TRIES {
        let from = control.steering().await?;
        let to = change(&from).map_err(OperatorError::Refused)?;
        if to.says_as(&from) {
            return Ok((from, false));
        }
        let in_force = control.change_steering(from.revision, &to).await?;
        if in_force == to {
            return Ok((to, true));
        }
        // Changed by somebody else in between.
        tokio::time::sleep(PAUSE).await;
    }
    Err(OperatorError::NotNow("limits and holds are changed too often by others: try again".into()))
}

async fn change(ports: &Ports, from: Layout, to: Layout) -> Result<Layout, OperatorError> {
    let in_force = ports.control.change_layout(from, to).await?;
    if in_force == to {
        return Ok(in_force);
    }
    Err(OperatorError::NotNow("somebody else changes the shard counts at the same time: try again".into()))
}

/// Waits until every shard has a holder. Without any copy running there is nobody to wait for: whoever starts reads the
/// counts first.
async fn wait_for_readers(ports: &Ports, clock: &dyn Clock, shards: Shards) -> Result<(), OperatorError> {
    let give_up_at = clock.monotonic() + TAKE_UP;
    loop {
        let leases = ports.leases.list().await?;
        let is_held = |shard: ShardId| leases.iter().any(|l| l.id == LeaseId::Shard(shard) && l.owner.is_some());
        let is_copy = |lease: &Lease| matches!(lease.id, LeaseId::Copy(_));
        if !leases.iter().any(is_copy) || shards.all().all(is_held) {
            return Ok(());
        }
        if clock.monotonic() >= give_up_at {
            let missing: Vec<String> = shards.all().filter(|s| !is_held(*s)).map(|s| s.to_string()).collect();
            return Err(OperatorError::NotNow(format!(
                "nobody has taken up {} within {} s: jobs are still put into the old shards; look at the scheduler \
                 copies, and run the command again",
                missing.join(" "),
                TAKE_UP.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use punctual_core::clock::TokioClock;
    use punctual_core::due::ShardClass;
    use punctual_core::memory::World;
    use punctual_core::steering::{Hold, Scope};
    use punctual_core::target::Target;
    use std::sync::Arc;

    const FEW: Shards = Shards { urgent: 1, standard: 2 };

    fn shard(number: u16) -> ShardId {
        ShardId { class: ShardClass::Standard, number }
    }

    async fn world() -> (World, Arc<TokioClock>) {
        let clock = Arc::new(TokioClock::new(DateTime::from_timestamp(1_790_000_000, 0).unwrap()));
        let world = World::new(clock.clone());
        world.ports().control.init_shards(FEW).await.unwrap();
        for shard in FEW.all() {
            world.ports().leases.init(&LeaseId::Shard(shard), Minute(1_000)).await.unwrap();
        }
        (world, clock)
    }

    fn lease(world: &World, shard: ShardId) -> Lease {
        world.leases().into_iter().find(|lease| lease.id == LeaseId::Shard(shard)).unwrap()
    }

    async fn hold(world: &World, shard: ShardId, owner: &str) -> u64 {
        let observed = lease(world, shard);
        match world.ports().leases.take(&observed.id, Some(&observed), owner).await.unwrap() {
            Claim::Held { counter } => counter,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_shard_is_free_and_its_holder_cannot_renew() {
        let (world, _) = world().await;
        let counter = hold(&world, shard(1), "s1").await;
        let leases = world.ports().leases;
        release(&*leases, shard(1), "op").await.unwrap();
        let freed = lease(&world, shard(1));
        assert_eq!((freed.owner, freed.cursor), (None, Some(Minute(1_000))));
        let renewal = leases.renew(&LeaseId::Shard(shard(1)), "s1", counter, Some(Minute(2_000))).await;
        assert_eq!(renewal, Ok(Claim::Lost));
        let unknown = release(&*leases, shard(9), "op").await.unwrap_err().to_string();
        assert!(unknown.contains("no shard 0009"), "{unknown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rewound_cursor_stays_where_it_was_put_whoever_held_the_shard() {
        let (world, _) = world().await;
        let counter = hold(&world, shard(0), "s1").await;
        let leases = world.ports().leases;
        let rewound = rewind(&*leases, Minute(900), None, "op").await.unwrap();
        assert_eq!(rewound.len(), 3);
        assert!(FEW.all().all(|shard| lease(&world, shard).cursor == Some(Minute(900))));
        let late = leases.renew(&LeaseId::Shard(shard(0)), "s1", counter, Some(Minute(1_000))).await;
        assert_eq!(late, Ok(Claim::Lost), "the old holder does not write its cursor over it");
        assert_eq!(rewind(&*leases, Minute(950), None, "op").await.unwrap(), [], "a cursor only goes back");
        assert_eq!(rewind(&*leases, Minute(800), Some(shard(1)), "op").await.unwrap(), [shard(1)]);
        assert_eq!(lease(&world, shard(0)).cursor, Some(Minute(900)));
    }

    #[tokio::test(start_paused = true)]
    async fn shards_are_written_to_only_when_somebody_reads_them() {
        let (world, clock) = world().await;
        let (ports, more) = (world.ports(), Shards { urgent: 1, standard: 4 });
        ports.leases.take(&LeaseId::Copy("s1".into()), None, "s1").await.unwrap();
        let refused = grow(&ports, &*clock, more).await.unwrap_err().to_string();
        assert!(refused.contains("nobody has taken up") && refused.contains("0003"), "{refused}");
        assert_eq!(ports.control.layout().await, Ok(Some(Layout { read: more, write: FEW })));
        for shard in more.all() {
            hold(&world, shard, "s1").await;
        }
        assert_eq!(grow(&ports, &*clock, more).await.unwrap(), Layout::of(more), "run again, it goes on");
        let fewer = grow(&ports, &*clock, FEW).await.unwrap_err().to_string();
        assert!(fewer.contains("only be added"), "{fewer}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_copy_there_is_nobody_to_wait_for() {
        let (world, clock) = world().await;
        let more = Shards { urgent: 2, standard: 64 };
        assert_eq!(grow(&world.ports(), &*clock, more).await.unwrap(), Layout::of(more));
        assert_eq!(world.leases().len(), 66);
    }

    #[tokio::test(start_paused = true)]
    async fn of_operators_who_steer_at_once_each_finds_its_change_in_force() {
        let (world, _) = world().await;
        let control = world.ports().control;
        let tenant = |n: usize| Scope::Tenant(format!("t-{n}"));
        let hold = |n| Hold { scope: tenant(n), by: "ann".into(), why: "a test".into(), since: DateTime::UNIX_EPOCH };
        let control = &*control;
        let hold_one = |n: usize| async move { steer(control, |from| from.with_hold(hold(n))).await };
        let done = futures::future::join_all((0..8).map(hold_one)).await;
        assert!(done.iter().all(|one| matches!(one, Ok((_, true)))), "{done:?}");
        assert_eq!((world.steering().holds.len(), world.steering().revision), (8, 8));
        let again = steer(control, |from| from.with_hold(hold(3))).await.unwrap();
        assert_eq!((again.1, world.steering().revision), (false, 8), "nothing is written that says nothing new");
        let refused = steer(control, |from| from.with_limit(Target::sms(), 0)).await.unwrap_err();
        assert!(matches!(refused, OperatorError::Refused(_)) && refused.to_string().contains("use a hold"));
    }
}

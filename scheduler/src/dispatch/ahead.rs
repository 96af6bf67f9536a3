//! The near future of one shard, performed: read in time, sent by the clock, or early with a delay ([`super::soon`]).

use super::DispatchSettings;
use super::fire::Firing;
use super::in_hand::{InHand, Reach};
use super::leases::{ShardLease, Side};
use super::pass::{Dispatcher, Permission, Tally};
use super::shard::{backoff, tell};
use super::soon::{NearFuture, Step};
use punctual_core::clock::{Clock, Stopwatch};
use std::time::Duration;

/// Works by the clock until the lease is given up.
pub(super) async fn work(
    dispatcher: &Dispatcher,
    clock: &dyn Clock,
    lease: &ShardLease,
    in_hand: &InHand,
    settings: &DispatchSettings,
) {
    let mut near = NearFuture::new(settings.look_ahead, settings.light_second);
    let side = lease.side(Side::Clock, &dispatcher.queues);
    let mut failures = 0;
    while !lease.is_given_up() {
        if !lease.holds() {
            near.clear();
            lease.sleep(settings.tick).await;
            continue;
        }
        let step = near.step(clock.now());
        let error = match step {
            Step::Wait(wait) => {
                side.progress();
                lease.sleep(wait.min(settings.tick)).await;
                continue;
            }
            Step::Read(reading) => match dispatcher.look(lease.shard, &reading).await {
                Ok((firings, next)) => {
                    near.read(reading, firings, next);
                    None
                }
                Err(error) => Some(error),
            },
            Step::Send(firings) => {
                send(dispatcher, clock, &mut near, in_hand, firings, Duration::ZERO, &side).await.error
            }
            Step::SendEarly(firings, delay) => {
                send(dispatcher, clock, &mut near, in_hand, firings, delay, &side).await.error
            }
        };
        match error {
            None => {
                failures = 0;
                side.progress();
            }
            Some(error) => {
                dispatcher.count_failure();
                tell(lease, &error, failures == 0);
                lease.sleep(backoff(failures)).await;
                failures = (failures + 1).min(8);
            }
        }
    }
}

/// Sends runs that nobody else has in hand. What fails is left to the passes, which come when it is due.
async fn send(
    dispatcher: &Dispatcher,
    clock: &dyn Clock,
    near: &mut NearFuture,
    in_hand: &InHand,
    mut firings: Vec<Firing>,
    delay: Duration,
    permission: &dyn Permission,
) -> Tally {
    let watch = Stopwatch::start(clock);
    let began = clock.monotonic();
    firings.retain(|firing| {
        let message = &firing.message;
        let is_closed = |priority| dispatcher.queues.is_closed(priority, began);
        in_hand.take(&message.job_key, message.due_at, began, is_closed) == Reach::Taken
    });
    let keys: Vec<_> = firings.iter().map(|firing| firing.message.job_key.clone()).collect();
    let mut tally = dispatcher.fire_all(firings, delay, permission).await;
    // What was left says nothing of how long sending takes.
    near.sent(tally.moved.len(), watch.elapsed(clock));
    tally.let_go(&keys, in_hand, clock.monotonic());
    tally
}

//! What becomes of messages that are let go of: deleted, hidden for a while, or sent again for later. Gathered into batches,
//! because each call costs money and time.
//!
//! None of it is waited for. A delete that is lost means that the message comes again and finds its row; a hide that is
//! lost means that it comes again sooner. What is sent again is deleted only after the queue took it: at worst there are
//! two messages for one run, and the second finds the row of the first.

use crate::alive::Alive;
use crate::service::CALL_TIME;
use futures::future::join_all;
use punctual_core::clock::Clock;
use punctual_core::lease::{PutBackBy, Wait, put_back_by};
use punctual_core::ports::{BATCH, RunQueue};
use punctual_core::priority::Priority;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages that are worked on at once.
const GATHERED: usize = 16 * BATCH;
/// How long one waits for company: a worker with its part of a limit, ninety calls a second, fills a batch in that time.
const GATHERING: Duration = Duration::from_millis(100);
/// How old a queue's depth may be, and how many messages may have been hidden since: sixty workers that do not see each
/// other's stay below the places that are kept free.
const DEPTH_VALID: Duration = Duration::from_secs(5);
const DEPTH_VALID_FOR: u64 = 300;

/// A message that was let go of.
pub struct Returned {
    /// Which queue.
    pub priority: Priority,
    /// The delivery's handle.
    pub receipt: String,
    /// What becomes of it.
    pub what: Return,
}

/// What becomes of a message.
pub enum Return {
    /// It is done with.
    Delete,
    /// It is hidden for whole seconds.
    Hide(Duration),
    /// It waits for long: hidden, or sent again for later, as the queue's state and its own age ask.
    PutBack {
        /// For how long.
        wait: Wait,
        /// For how long it may be hidden at all.
        longest_hide: Duration,
        /// How often it was received.
        receive_count: u32,
        /// Since its run was first enqueued.
        age: Duration,
        /// To be sent again.
        body: String,
    },
}

/// Messages on their way back.
pub type Returns = mpsc::UnboundedReceiver<Returned>;

/// Performs what is returned, in batches, until nobody can return anything any more.
pub async fn perform(queue: Arc<dyn RunQueue>, clock: Arc<dyn Clock>, mut returns: Returns, alive: &Alive) {
    let mut gathered = Vec::new();
    let mut depths = Depths::of(queue.clone(), clock);
    while returns.recv_many(&mut gathered, GATHERED).await > 0 {
        let _under_way = alive.begin("giving messages back", CALL_TIME);
        if gathered.len() < BATCH {
            tokio::time::sleep(GATHERING).await;
            while gathered.len() < GATHERED {
                let Ok(more) = returns.try_recv() else { break };
                gathered.push(more);
            }
        }
        let calls = Calls::of(gathered.drain(..), &mut depths).await;
        let queue = &*queue;
        let deletes = batches(&calls.deletes).map(|(priority, some)| delete(queue, priority, some));
        tokio::join!(join_all(deletes), async {
            let sent_again = calls.wait(queue).await;
            join_all(sent_again.into_iter().map(|(priority, some)| delete(queue, priority, some))).await;
        });
    }
}

/// Performs what was returned of one invocation, within `time`; the receipts of what is done with. Whoever called deletes
/// these. What could not be hidden in time comes back when its invisibility ends.
pub async fn settle(
    queue: Arc<dyn RunQueue>,
    clock: Arc<dyn Clock>,
    returned: Vec<Returned>,
    time: Duration,
) -> BTreeSet<String> {
    let (deletes, others): (Vec<_>, Vec<_>) =
        returned.into_iter().partition(|returned| matches!(returned.what, Return::Delete));
    let mut done: BTreeSet<String> = deletes.into_iter().map(|returned| returned.receipt).collect();
    let wait = async {
        let calls = Calls::of(others, &mut Depths::of(queue.clone(), clock)).await;
        calls.wait(&*queue).await
    };
    match tokio::time::timeout(time, wait).await {
        Ok(sent_again) => done.extend(sent_again.into_iter().flat_map(|(_, receipts)| receipts)),
        Err(_) => tracing::warn!("messages could not be hidden in time: they come back when their invisibility ends"),
    }
    done
}

#[derive(Default)]
struct Calls {
    deletes: BTreeMap<Priority, Vec<String>>,
    hides: BTreeMap<Priority, Vec<(String, Duration)>>,
    /// By their delay in seconds, which is the same for all of a call.
    again: BTreeMap<(Priority, u64), Vec<(String, String)>>,
}

impl Calls {
    async fn of(returned: impl IntoIterator<Item = Returned>, depths: &mut Depths) -> Self {
        let mut calls = Calls::default();
        for Returned { priority, receipt, what } in returned {
            match what {
                Return::Delete => calls.deletes.entry(priority).or_default().push(receipt),
                Return::Hide(wait) => calls.hides.entry(priority).or_default().push((receipt, wait)),
                Return::PutBack { wait, longest_hide, receive_count, age, body } => {
                    match put_back_by(wait, receive_count, depths.in_flight(priority).await, age) {
                        PutBackBy::Hide(wait) => {
                            depths.hidden(priority);
                            calls.hides.entry(priority).or_default().push((receipt, wait.min(longest_hide)));
                        }
                        PutBackBy::SendAgain(delay) => {
                            let delay = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
                            calls.again.entry((priority, delay)).or_default().push((receipt, body));
                        }
                    }
                }
            }
        }
        calls
    }

    /// Hides and sends again, all side by side: a call that hangs holds up no other. What the queue has twice by now is to be
    /// deleted.
    async fn wait(&self, queue: &dyn RunQueue) -> Vec<(Priority, Vec<String>)> {
        let hides = batches(&self.hides).map(|(priority, some)| async move { hide(queue, priority, &some).await });
        let again = batches(&self.again).map(|((priority, delay), some)| async move {
            let taken = send_again(queue, priority, Duration::from_secs(delay), &some).await;
            (priority, taken)
        });
        let (_, taken) = tokio::join!(join_all(hides), join_all(again));
        taken.into_iter().filter(|(_, receipts)| !receipts.is_empty()).collect()
    }
}

fn batches<K: Copy, T: Clone>(of: &BTreeMap<K, Vec<T>>) -> impl Iterator<Item = (K, Vec<T>)> {
    of.iter().flat_map(|(kind, all)| all.chunks(BATCH).map(|some| (*kind, some.to_vec())))
}

async fn delete(queue: &dyn RunQueue, priority: Priority, receipts: Vec<String>) {
    if let Err(error) = queue.delete(priority, &receipts).await {
        tracing::warn!(class = error.class(), %error, "messages could not be deleted; they come again and find their rows");
    }
}

async fn hide(queue: &dyn RunQueue, priority: Priority, entries: &[(String, Duration)]) {
    match queue.extend(priority, entries).await {
        Ok(results) => {
            for error in results.iter().filter_map(|result| result.as_ref().err()) {
                tracing::debug!(%error, "a message could not be hidden: it comes back when its invisibility ends");
            }
        }
        Err(error) => {
            tracing::warn!(class = error.class(), %error, "messages could not be hidden: they come back when their invisibility ends");
        }
    }
}

/// The receipts of those that the queue took.
async fn send_again(
    queue: &dyn RunQueue,
    priority: Priority,
    delay: Duration,
    entries: &[(String, String)],
) -> Vec<String> {
    let bodies: Vec<String> = entries.iter().map(|(_, body)| body.clone()).collect();
    match queue.send_after(priority, &bodies, delay).await {
        Ok(sent) => {
            let taken = entries.iter().zip(sent).filter(|(_, result)| result.is_ok());
            taken.map(|((receipt, _), _)| receipt.clone()).collect()
        }
        Err(error) => {
            tracing::warn!(class = error.class(), %error, "messages that wait for long could not be sent again: they come back as they are");
            Vec::new()
        }
    }
}

/// How many messages of a queue are in flight, roughly, looked up only while messages are put back.
struct Depths {
    queue: Arc<dyn RunQueue>,
    clock: Arc<dyn Clock>,
    known: BTreeMap<Priority, Depth>,
}

#[derive(Clone, Copy)]
struct Depth {
    at: Duration,
    in_flight: u64,
    /// Put back by this process since.
    hidden: u64,
}

impl Depths {
    fn of(queue: Arc<dyn RunQueue>, clock: Arc<dyn Clock>) -> Self {
        Depths { queue, clock, known: BTreeMap::new() }
    }

    async fn in_flight(&mut self, priority: Priority) -> u64 {
        let now = self.clock.monotonic();
        let known = self.known.get(&priority).copied();
        if let Some(known) = known
            && now.saturating_sub(known.at) < DEPTH_VALID
            && known.hidden < DEPTH_VALID_FOR
        {
            return known.in_flight + known.hidden;
        }
        let in_flight = match self.queue.depth(priority).await {
            Ok(depth) => depth.in_flight,
            // What cannot be looked up is as it was: hiding is right for all but great numbers.
            Err(error) => {
                tracing::warn!(class = error.class(), %error, "a queue's depth cannot be read: it is taken to be as it was");
                known.map_or(0, |known| known.in_flight)
            }
        };
        // As old as the answer: a look that takes long must not be made again at once.
        self.known.insert(priority, Depth { at: self.clock.monotonic(), in_flight, hidden: 0 });
        in_flight
    }

    fn hidden(&mut self, priority: Priority) {
        if let Some(known) = self.known.get_mut(&priority) {
            known.hidden += 1;
        }
    }
}

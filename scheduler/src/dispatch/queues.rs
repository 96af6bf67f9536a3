//! Which queues this process reaches, for the loops of all its shards: what [`super::outlets`] decides, performed and told.

use super::outlets::{Outlets, Pass};
use super::pass::Dispatcher;
use futures::future::select_ok;
use punctual_core::error::PortError;
use punctual_core::priority::Priority;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// For so long a probe waits for an answer.
const PROBE_WAIT: Duration = Duration::from_secs(3);
/// A copy that is cut off and has nothing to send probes again after this.
const PROBE_AGAIN: Duration = Duration::from_secs(8);

/// How the queues fare, shared by all loops of a process.
pub struct Queues {
    outlets: Mutex<Outlets>,
    probe_wanted: Notify,
}

impl Queues {
    /// Nothing is known yet; what happened within `recent`, the lease time, tells how the queues fare.
    pub(super) fn new(recent: Duration) -> Self {
        Queues { outlets: Mutex::new(Outlets::new(recent)), probe_wanted: Notify::new() }
    }

    /// Leave to send to a queue at `now`, by the monotonic clock; none while it is left alone.
    pub(super) fn ask(&self, priority: Priority, now: Duration) -> Option<Pass> {
        self.outlets().ask(priority, now)
    }

    /// Whether a queue is left alone at `now`, by the monotonic clock.
    pub(super) fn is_closed(&self, priority: Priority, now: Duration) -> bool {
        self.outlets().is_closed(priority, now)
    }

    /// Notes that a queue took something.
    pub(super) fn worked(&self, priority: Priority, pass: Pass, now: Duration) {
        if self.outlets().worked(priority, pass, now) {
            tracing::info!(%priority, "the queue works again");
        }
    }

    /// Notes that a queue took nothing, and says so: once a trouble.
    pub(super) fn failed(&self, priority: Priority, pass: Pass, error: &PortError, now: Duration) {
        let is_new = self.outlets().failed(priority, pass, now);
        self.probe_wanted.notify_one();
        let class = error.class();
        match error {
            _ if !is_new => tracing::debug!(%priority, class, %error, "a send failed again"),
            PortError::Permanent(_) => {
                tracing::error!(%priority, class, %error, "the queue refuses what is sent: its runs stay due and are tried again")
            }
            _ => {
                tracing::warn!(%priority, class, %error, "a send failed: the queue's runs stay due and are tried again")
            }
        }
    }

    /// Whether no queue can be reached: nothing counts as getting somewhere.
    pub(super) fn is_cut_off(&self) -> bool {
        self.outlets().is_cut_off()
    }

    fn probed(&self, began: Duration, is_answered: bool) {
        if self.outlets().probed(began, is_answered) {
            match is_answered {
                true => tracing::info!("queues can be reached again"),
                false => {
                    tracing::warn!("no queue can be reached: unless that changes the shards are left to other copies")
                }
            }
        }
    }

    fn outlets(&self) -> MutexGuard<'_, Outlets> {
        // A panic elsewhere leaves the value whole: each call changes it in one piece.
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dispatcher {
    /// Finds out, for ever, whether this copy reaches any queue, each time all sends fail.
    pub(super) async fn keep_probing(&self) {
        loop {
            let wait = if self.queues.is_cut_off() { PROBE_AGAIN } else { Duration::MAX };
            let is_wanted = timeout(wait, self.queues.probe_wanted.notified()).await.is_ok();
            let is_due = self.queues.outlets().take_probe() || !is_wanted && self.queues.is_cut_off();
            if is_due {
                let began = self.clock.monotonic();
                let is_answered = self.probe().await;
                self.queues.probed(began, is_answered);
            }
        }
    }

    /// Whether any queue answers.
    async fn probe(&self) -> bool {
        let depths = Priority::ALL.map(|priority| {
            let depth = async move {
                match self.ports.queue.depth(priority).await {
                    Ok(_) | Err(PortError::Throttled(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            };
            Box::pin(depth)
        });
        matches!(timeout(PROBE_WAIT, select_ok(depths)).await, Ok(Ok(_)))
    }
}

//! Limits and holds, as this worker knows them: read every two seconds, and not believed for longer than ten.
//!
//! Whoever begins something asks [`Steered::current`] right before. A worker that cannot read what operators say begins
//! nothing: so a new limit or hold is in force everywhere within ten seconds.

use punctual_core::clock::{Clock, Stopwatch, Trust};
use punctual_core::ports::{Control, PortResult};
use punctual_core::steering::{BELIEVED_FOR, READ_EVERY, Steering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Time until a read that failed is made again.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// Limits and holds by the last read.
pub struct Steered {
    clock: Arc<dyn Clock>,
    read: Mutex<Option<Read>>,
    // Wakes in the order of waiting, which a watch does not.
    changes: Notify,
}

/// What was read last, and for how long it is believed.
struct Read {
    steering: Arc<Steering>,
    trust: Trust,
}

impl Steered {
    /// Nothing was read yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Steered { clock, read: Mutex::new(None), changes: Notify::new() }
    }

    /// Limits and holds in force; none when they are not known: then nothing may be begun.
    pub fn current(&self) -> Option<Arc<Steering>> {
        let read = self.read();
        let believed = read.as_ref().filter(|read| !read.trust.is_over(&*self.clock));
        believed.map(|read| read.steering.clone())
    }

    /// Ends with the next change after this call, or with becoming known again.
    pub fn changed(&self) -> Notified<'_> {
        self.changes.notified()
    }

    /// Notes what a read showed that was started at `since`.
    pub fn note(&self, steering: Steering, since: Stopwatch) {
        let was_known = self.current().is_some();
        let mut read = self.read();
        let before = read.take().map(|read| read.steering).unwrap_or_default();
        let is_new = *before != steering;
        if is_new {
            let (limits, holds) = (steering.limits.len(), steering.holds.len());
            tracing::info!(revision = steering.revision, limits, holds, "limits and holds have changed");
        }
        let steering = if is_new { Arc::new(steering) } else { before };
        *read = Some(Read { steering, trust: Trust { since, lasts: BELIEVED_FOR } });
        drop(read);
        if is_new || !was_known {
            self.changes.notify_waiters();
        }
    }

    fn read(&self) -> MutexGuard<'_, Option<Read>> {
        // A panic elsewhere leaves it whole: it is written in one piece.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads once.
    ///
    /// # Errors
    /// When the store fails: what is known stays, for as long as it is believed.
    pub async fn refresh(&self, control: &dyn Control) -> PortResult<()> {
        let since = Stopwatch::start(&*self.clock);
        self.note(control.steering().await?, since);
        Ok(())
    }

    /// Reads for ever.
    pub async fn keep(&self, control: &dyn Control) {
        let mut is_failing = false;
        loop {
            let wait = match self.refresh(control).await {
                Ok(()) => {
                    if is_failing {
                        tracing::info!("limits and holds can be read again");
                    }
                    is_failing = false;
                    READ_EVERY
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(class = error.class(), %error, "limits and holds cannot be read: soon nothing more is begun");
                    }
                    is_failing = true;
                    READ_AGAIN
                }
            };
            tokio::time::sleep(wait).await;
        }
    }
}

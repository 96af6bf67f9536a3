//! Limits and holds, as this worker knows them: read every two seconds, and not believed for longer than ten.
//!
//! Whoever begins something asks [`Steered::current`] right before. A worker that cannot read what operators say begins
//! nothing: so a new limit or hold is in force everywhere within ten seconds.

use punctual_core::clock::{Clock, Stopwatch, Trust};
use punctual_core::ports::{Control, PortResult};
use punctual_core::steering::{BELIEVED_FOR, READ_EVERY, Steering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Time until a read that failed is made again.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// Limits and holds by the last read.
pub struct Steered {
    clock: Arc<dyn Clock>,
    latest: watch::Sender<Arc<Steering>>,
    believed: Mutex<Option<Trust>>,
}

impl Steered {
    /// Nothing was read yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Steered { clock, latest: watch::Sender::new(Arc::default()), believed: Mutex::new(None) }
    }

    /// Limits and holds in force; none when they are not known: then nothing may be begun.
    pub fn current(&self) -> Option<Arc<Steering>> {
        self.is_known().then(|| self.latest.borrow().clone())
    }

    /// Tells of each change, and of becoming known again.
    pub fn changes(&self) -> watch::Receiver<Arc<Steering>> {
        self.latest.subscribe()
    }

    fn is_known(&self) -> bool {
        let believed = self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        believed.as_ref().is_some_and(|trust| !trust.is_over(&*self.clock))
    }

    /// Notes what a read showed that was started at `since`.
    pub fn note(&self, steering: Steering, since: Stopwatch) {
        let was_known = self.is_known();
        let trust = Trust { since, lasts: BELIEVED_FOR };
        *self.believed.lock().unwrap_or_else(PoisonError::into_inner) = Some(trust);
        self.latest.send_if_modified(|latest| {
            let is_new = **latest != steering;
            if is_new {
                let (limits, holds) = (steering.limits.len(), steering.holds.len());
                tracing::info!(revision = steering.revision, limits, holds, "limits and holds have changed");
                *latest = Arc::new(steering);
            }
            is_new || !was_known
        });
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

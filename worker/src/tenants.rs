//! How many messages of one tenant a worker has in hand: no tenant's backlog fills the hands of all.
//!
//! What is above a tenant's part is put back until about its turn, so that the queue shows what stands behind it.

use punctual_core::clock::Clock;
use punctual_core::pacing::Pacing;
use punctual_core::priority::Priority;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Kind = (Priority, String);

/// Time between two clear-outs of what is long over.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// The messages in hand, by tenant.
pub struct Tenants {
    clock: Arc<dyn Clock>,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_hand: BTreeMap<Kind, usize>,
    pacing: Pacing<Kind>,
    tidied: Duration,
}

/// One message in hand; it is not any more when this is dropped.
pub struct InHand {
    tenants: Arc<Tenants>,
    kind: Kind,
}

impl Drop for InHand {
    fn drop(&mut self) {
        let mut state = self.tenants.lock();
        if let Some(count) = state.in_hand.get_mut(&self.kind) {
            *count -= 1;
            if *count == 0 {
                state.in_hand.remove(&self.kind);
            }
        }
    }
}

impl InHand {
    /// Notes that it was worked off, and not put back.
    pub fn worked_off(&self) {
        let now = self.tenants.clock.monotonic();
        self.tenants.lock().pacing.worked_off(&self.kind, now);
    }
}

impl Tenants {
    /// Nothing in hand; of each priority at most `most` of one tenant.
    pub fn new(most: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Tenants { clock, most, state: Mutex::default() })
    }

    /// Takes a message in hand.
    ///
    /// # Errors
    /// When its tenant has its part: for how long, at most `longest`, the message is put back.
    pub fn enter(self: &Arc<Self>, priority: Priority, tenant: &str, longest: Duration) -> Result<InHand, Duration> {
        let kind = (priority, tenant.to_owned());
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if now.saturating_sub(state.tidied) >= TIDY_EVERY {
            state.pacing.tidy(now);
            state.tidied = now;
        }
        let count = state.in_hand.entry(kind.clone()).or_default();
        if *count >= self.most {
            return Err(state.pacing.put_back(&kind, None, now, longest));
        }
        *count += 1;
        Ok(InHand { tenants: self.clone(), kind })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::clock::TokioClock;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_no_more_than_its_part_in_hand() {
        let tenants = Tenants::new(2, Arc::new(TokioClock::new(chrono::DateTime::UNIX_EPOCH)));
        let longest = Duration::from_secs(900);
        let enter = |tenant| tenants.enter(Priority::Normal, tenant, longest);
        let (first, _second) = (enter("big").ok(), enter("big").ok());
        assert!(enter("big").is_err());
        assert!(enter("small").is_ok());
        assert!(tenants.enter(Priority::Bulk, "big", longest).is_ok(), "each priority has its own hands");
        drop(first);
        assert!(enter("big").is_ok());
    }
}

//! The SMS gateway that is not one: it takes messages, sends none, and measures its callers.
//!
//! It caps what it takes in any second, recognises references it has accepted before, and plays failures by script,
//! phone by phone. It never logs a phone number or a text.

mod server;
mod state;

pub(crate) use server::GatewayServer;
pub use state::{Arrival, Behaviour, GatewayConfig, GatewayStats};

use punctual_core::clock::Clock;
use state::{GatewayState, Reply, SmsRequest};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A handle to the gateway; clones are the same gateway.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<GatewayState>,
    accepted: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

impl Gateway {
    /// A gateway that has taken nothing yet.
    pub(crate) fn new(config: GatewayConfig, clock: Arc<dyn Clock>) -> Self {
        let (accepted, _) = watch::channel(0);
        Self { inner: Arc::new(Inner { state: Mutex::new(GatewayState::new(config)), accepted, clock }) }
    }

    /// The figures so far.
    pub fn stats(&self) -> GatewayStats {
        self.state().stats()
    }

    /// Follows the number of distinct references accepted.
    pub fn accepted_watch(&self) -> watch::Receiver<u64> {
        self.inner.accepted.subscribe()
    }

    /// The first arrival of each reference, whatever its answer, in the order of arrival.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.state().arrivals().to_vec()
    }

    /// The same from the n-th on, counted from 0.
    pub(crate) fn arrivals_from(&self, n: usize) -> Vec<Arrival> {
        self.state().arrivals().get(n..).map(<[Arrival]>::to_vec).unwrap_or_default()
    }

    /// Replaces the script: each phone begins again at its first behaviour, and phones without any are accepted.
    pub fn set_script(&self, script: BTreeMap<String, Vec<Behaviour>>) {
        self.state().set_script(script);
    }

    /// Decides one request. The clock is read under the lock, so that requests are judged in the order of their times.
    pub(crate) fn take(&self, request: &SmsRequest, worker: &str) -> Reply {
        let mut state = self.state();
        let reply = state.take(request, worker, self.inner.clock.monotonic(), self.inner.clock.now());
        let accepted = state.accepted();
        self.inner.accepted.send_if_modified(|seen| std::mem::replace(seen, accepted) != accepted);
        reply
    }

    /// Decides one request that cannot be read.
    pub(crate) fn take_unreadable(&self) -> Reply {
        let mut state = self.state();
        state.take_unreadable(self.inner.clock.monotonic())
    }

    fn state(&self) -> MutexGuard<'_, GatewayState> {
        // Every transition leaves the figures whole, so a panic elsewhere does not spoil them.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Step 3, *dispatch*: from due jobs to messages in the queues.
//!
//! [`leases`] holds the shards of this copy, [`pass`] reads the due pages of a minute and has performed what
//! [`punctual_core::dispatch::decide`] says, `fire` enqueues and then advances, `backlog` works off what was missed, `shard`
//! repeats that every tick, [`service`] puts them together. Nothing here ever calls a handler: it enqueues.

mod backlog;
mod fire;
pub mod leases;
mod metrics;
pub mod pass;
pub mod service;
mod shard;

use punctual_core::lease::LeaseTimes;
use std::time::Duration;

/// Settings of one scheduler copy.
#[derive(Clone, Copy, Debug)]
pub struct DispatchSettings {
    /// Times of the shard leases.
    pub leases: LeaseTimes,
    /// Time between two passes over a shard.
    pub tick: Duration,
    /// Entries of the due index read at a time.
    pub page: usize,
    /// Sends and advances that one copy has under way at once.
    pub calls_in_flight: usize,
}

impl Default for DispatchSettings {
    fn default() -> Self {
        DispatchSettings { leases: LeaseTimes::default(), tick: Duration::from_secs(1), page: 500, calls_in_flight: 64 }
    }
}

impl DispatchSettings {
    /// Checks ranges and relations.
    ///
    /// # Errors
    /// One line for each that does not hold.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        problems.extend(self.leases.check().err());
        if self.tick.is_zero() || self.tick > self.leases.renew_every {
            problems.push(format!(
                "a tick of {} ms must be above 0 and at most the renewal time of {} ms",
                self.tick.as_millis(),
                self.leases.renew_every.as_millis()
            ));
        }
        if !(1..=500).contains(&self.page) {
            problems.push(format!("a page of {} entries is out of range 1-500", self.page));
        }
        if !(1..=1_000).contains(&self.calls_in_flight) {
            problems.push(format!("{} calls in flight are out of range 1-1000", self.calls_in_flight));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

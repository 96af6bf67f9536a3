//! Step 3, *dispatch*: from due jobs to messages in the queues.
//!
//! [`leases`] holds the shards of this copy, [`pass`] reads the due pages of a minute and has performed what
//! [`punctual_core::dispatch::decide`] says, `fire` enqueues and then advances, to queues that `queues` and `outlets` keep an eye on, `backlog` works off what was missed, `trouble` keeps what fails for one job from the others, `shard`
//! repeats that every tick, `ahead` sends by the clock what it has read of the near future (`soon`), [`service`] puts them
//! together. `watch` tells what stands in queues and tables, `sweep` places jobs again when the zone rules are newer than those they were placed by. Nothing here ever calls a handler: it enqueues.

mod ahead;
mod backlog;
mod fire;
mod fitness;
pub mod in_hand;
pub mod leases;
mod metrics;
mod outlets;
pub mod pass;
mod queues;
pub mod service;
mod shard;
mod soon;
mod spans;
mod sweep;
mod trouble;
mod watch;

use punctual_core::lease::LeaseTimes;
use std::time::Duration;

/// All leases are looked at this often, so that what a dead copy held moves on within a second of its expiry.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shard counts are read again this often.
pub const LAYOUT_EVERY: Duration = Duration::from_secs(10);

/// Minutes that have passed are read again this often until they are settled; the latest ones at every tick.
pub const FULL_PASS_EVERY: Duration = Duration::from_secs(10);

/// The near future is read on this often.
pub const READ_AHEAD_EVERY: Duration = Duration::from_secs(5);

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
    /// How far ahead the timetable is read, so that runs are sent by the clock; zero = not at all.
    pub look_ahead: Duration,
    /// A shard's second with more runs than this is sent early, with a delay, however fast the shard has been sending.
    pub light_second: usize,
}

/// The longest look-ahead: below the shortest interval, so that of one job only the next firing is near.
pub const LONGEST_LOOK_AHEAD: Duration = Duration::from_secs(50);

impl Default for DispatchSettings {
    fn default() -> Self {
        let s = Duration::from_secs;
        DispatchSettings {
            leases: LeaseTimes::default(),
            tick: s(1),
            page: 500,
            calls_in_flight: 64,
            look_ahead: s(30),
            light_second: 2_000,
        }
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
        if self.look_ahead > LONGEST_LOOK_AHEAD {
            problems.push(format!(
                "a look-ahead of {} s is out of range 0-{}",
                self.look_ahead.as_secs(),
                LONGEST_LOOK_AHEAD.as_secs()
            ));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

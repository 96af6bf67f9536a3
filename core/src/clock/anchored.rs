//! The host's clocks, set right by the store's.

use super::anchor::{Anchor, Reading, Sample};
use super::{Clock, SystemClock};
use chrono::{DateTime, TimeDelta, Utc};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The largest offset of a host's wall clock from the store's at which the host may write or fire. Now does not depend on
/// that clock; one so wrong says that something else on the host may be, and AWS soon refuses its signatures.
pub const MOST_OFFSET: TimeDelta = TimeDelta::seconds(30);

/// How a clock stands to the store's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was heard of the store yet.
    Unanchored,
    /// The host's wall clock is ahead of the store's by this much; negative = behind.
    Anchored {
        /// Exact to half a second and half a round trip after one answer, more exact after many.
        offset: TimeDelta,
    },
    /// As before, but by more than [`MOST_OFFSET`].
    Off {
        /// Likewise.
        offset: TimeDelta,
    },
}

/// Why nothing may be written or fired by this clock now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockOff {
    /// Nothing was heard of the store.
    #[error(
        "the store's time is not known yet: the store has answered nothing since the start; check that it can be reached"
    )]
    Unanchored,
    /// The host's wall clock is wrong.
    #[error(
        "the host's clock is {}, more than the {} s at which writing and sending stop: synchronise the host's clock (NTP)",
        in_words(*.0), MOST_OFFSET.num_seconds()
    )]
    Off(TimeDelta),
}

/// An offset as a person reads it: `45.0 s ahead of the store's`.
pub fn in_words(offset: TimeDelta) -> String {
    let side = if offset < TimeDelta::zero() { "behind" } else { "ahead of" };
    format!("{:.1} s {side} the store's", offset.abs().as_seconds_f64())
}

/// A clock that shows the store's time, whatever the host's wall clock says: the host's boot time, and how far the store
/// is ahead of that. Until the store has been heard it shows the host's wall clock, and [`Clock::check`] says no.
pub struct AnchoredClock {
    host: Arc<dyn Clock>,
    anchor: Mutex<Anchor>,
}

impl AnchoredClock {
    /// A clock on top of a host's own, that has heard nothing yet.
    pub fn new(host: Arc<dyn Clock>) -> Self {
        AnchoredClock { host, anchor: Mutex::default() }
    }

    /// A clock on top of this machine's.
    pub fn of_this_host() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }

    /// Takes an answer of the store into account that arrived just now. `sent` is what [`Clock::boottime`] showed before
    /// the request went out, `date` what the answer says of the store's time.
    pub fn hear(&self, sent: Duration, date: DateTime<Utc>) {
        let received = self.host.boottime();
        self.anchor.lock().unwrap_or_else(PoisonError::into_inner).hear(&Sample { sent, received, date });
    }
}

impl Clock for AnchoredClock {
    fn now(&self) -> DateTime<Utc> {
        self.reading().map_or_else(|| self.host.now(), |reading| reading.earliest)
    }

    fn monotonic(&self) -> Duration {
        self.host.monotonic()
    }

    fn boottime(&self) -> Duration {
        self.host.boottime()
    }

    fn wall(&self) -> DateTime<Utc> {
        self.host.wall()
    }

    fn reading(&self) -> Option<Reading> {
        let anchor = *self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        anchor.read(self.host.boottime())
    }

    fn standing(&self) -> Standing {
        let Some(reading) = self.reading() else { return Standing::Unanchored };
        let offset = self.host.wall() - reading.middle();
        if offset.abs() > MOST_OFFSET { Standing::Off { offset } } else { Standing::Anchored { offset } }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Shows;
    use super::*;

    /// The store's time when the boot clock shows zero.
    const STORE: i64 = 1_791_170_000;

    /// A host whose wall clock is ahead of the store by `ahead` seconds, after `at` seconds.
    fn host(ahead: i64, at: i64) -> Shows {
        Shows { wall: STORE + ahead + at, monotonic: at as u64, boottime: at as u64 }
    }

    fn anchored(ahead: i64) -> AnchoredClock {
        let clock = AnchoredClock::new(Arc::new(host(ahead, 100)));
        clock.hear(Duration::from_secs(100), DateTime::from_timestamp(STORE + 100, 0).unwrap());
        clock
    }

    #[test]
    fn a_wrong_host_clock_moves_now_by_nothing() {
        let right = anchored(0).now();
        assert!((right - DateTime::from_timestamp(STORE + 100, 0).unwrap()).abs() < TimeDelta::milliseconds(1));
        for ahead in [-86_400, -40, 40, 86_400] {
            assert_eq!(anchored(ahead).now(), right, "{ahead}");
        }
    }

    #[test]
    fn a_host_clock_off_by_more_than_thirty_seconds_is_refused_and_the_refusal_says_by_how_much() {
        for ahead in [-29, 0, 30] {
            assert_eq!(anchored(ahead).check(), Ok(()), "{ahead}");
        }
        let refusal = |ahead| anchored(ahead).check().unwrap_err().to_string();
        assert!(refusal(40).contains("39.5 s ahead of the store's, more than the 30 s"), "{}", refusal(40));
        assert!(refusal(-40).contains("40.5 s behind the store's"), "{}", refusal(-40));
        assert!(refusal(40).contains("synchronise the host's clock"), "{}", refusal(40));
    }

    #[test]
    fn a_clock_that_has_not_heard_of_the_store_refuses_and_shows_the_hosts_time() {
        let clock = AnchoredClock::new(Arc::new(host(7, 0)));
        assert_eq!(clock.standing(), Standing::Unanchored);
        assert_eq!(clock.check(), Err(ClockOff::Unanchored));
        assert_eq!(clock.now(), host(7, 0).now());
    }
}

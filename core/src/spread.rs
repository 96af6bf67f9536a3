//! Step 2, *due*: values chosen by hash, so that jobs that say the same time do not all start in the same second.
//!
//! A key (a customer id) always gives the same value, in every process and version: SHA-256 of a label, the field and the
//! key, its first eight bytes scaled to the range. [`Spread`] moves a run's start within a window behind its nominal
//! instant; the hashed cron fields `H` choose the instant itself ([`crate::schedule`]).

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest spread window, in seconds: a week.
pub const LONGEST_WINDOW_S: u32 = 7 * 86_400;

/// The longest key, in bytes.
pub const LONGEST_KEY_BYTES: usize = 256;

const LABEL: &str = "cron-h/v1";

/// A number below `n`, chosen by `key` for `field`; 0 when `n` is 0.
pub fn pick(field: &str, key: &str, n: u64) -> u64 {
    let digest = Sha256::new().chain_update(LABEL).chain_update([0]).chain_update(field).chain_update([0]);
    let digest = digest.chain_update(key).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let scaled = (u128::from(u64::from_be_bytes(first)) * u128::from(n)) >> 64;
    u64::try_from(scaled).expect("a number below n fits where n does")
}

/// A window behind the nominal instant in which a run starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// What chooses the place in the window: a customer id, as a rule.
    pub key: String,
    /// Length of the window in seconds.
    pub window_s: u32,
}

impl Spread {
    /// How long after its nominal instant each run of the job is due: below the window, in whole seconds.
    pub fn offset(&self) -> TimeDelta {
        let seconds = pick("spread", &self.key, u64::from(self.window_s));
        TimeDelta::seconds(i64::try_from(seconds).expect("a window is below 2^32 s"))
    }

    /// Checks key and window by themselves.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn check_range(&self) -> Result<(), String> {
        let (window, bytes) = (self.window_s, self.key.len());
        if !(1..=LONGEST_KEY_BYTES).contains(&bytes) {
            return Err(format!("a spread key has {bytes} bytes: 1 to {LONGEST_KEY_BYTES} are allowed"));
        }
        if !(1..=LONGEST_WINDOW_S).contains(&window) {
            return Err(format!("a spread window of {window} s is out of range 1-{LONGEST_WINDOW_S}"));
        }
        Ok(())
    }

    /// Checks the window against the shortest time between two firings, in seconds.
    ///
    /// # Errors
    /// Says what is allowed.
    pub fn check_fit(&self, shortest_interval_s: Option<i64>) -> Result<(), String> {
        let window = self.window_s;
        match shortest_interval_s {
            Some(interval) if i64::from(window) > interval => Err(format!(
                "a spread window of {window} s is longer than the shortest time between two firings, {interval} s: write \
                 at most {interval}s"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_value_everywhere_and_for_ever() {
        // Worked out by another implementation (Python's hashlib): these must never change.
        assert_eq!(pick("minute", "c-10001", 60), 25);
        assert_eq!(pick("spread", "c-10001", 1_800), 1171);
        assert_eq!(pick("minute", "c-10001", 1), 0);
        assert_eq!(pick("minute", "c-10001", 0), 0);
    }

    #[test]
    fn half_a_million_customers_fill_half_an_hour_evenly() {
        let mut minutes = [0u32; 30];
        for n in 0..480_000 {
            let spread = Spread { key: format!("c-{n}"), window_s: 1_800 };
            minutes[usize::try_from(spread.offset().num_minutes()).unwrap()] += 1;
        }
        let (least, most) = (minutes.iter().min().unwrap(), minutes.iter().max().unwrap());
        println!("between {least} and {most} a minute");
        assert!(*least >= 15_500 && *most <= 16_500, "{minutes:?}");
    }

    #[test]
    fn a_window_must_fit_between_two_firings() {
        let spread = |window_s| Spread { key: "c-1".into(), window_s };
        assert_eq!(spread(1_800).check_fit(Some(3_600)), Ok(()));
        assert_eq!(spread(1_800).check_fit(Some(1_800)), Ok(()));
        assert_eq!(spread(1_800).check_fit(None), Ok(()));
        assert!(spread(1_801).check_fit(Some(1_800)).unwrap_err().contains("at most 1800s"));
        assert_eq!((spread(1).check_range(), spread(604_800).check_range()), (Ok(()), Ok(())));
        assert!(spread(0).check_range().unwrap_err().contains("out of range 1-604800"));
        assert!(spread(604_801).check_range().is_err());
        assert!(Spread { key: String::new(), window_s: 60 }.check_range().unwrap_err().contains("1 to 256"));
    }
}

//! The waits of a retry rule that names each of them.

use super::MOST_ATTEMPTS;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest single wait, in seconds: a day.
pub const LONGEST_WAIT_S: u32 = 86_400;
/// The most that the waits may add up to, in seconds: seven days, half of what a message lives in SQS.
pub const LONGEST_WAITS_S: u32 = 7 * 86_400;

const MOST: usize = MOST_ATTEMPTS as usize - 1;

/// The bound of each wait between attempts, in seconds; one less than there are attempts.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Waits {
    bounds_s: [u32; MOST],
    len: u8,
}

impl Waits {
    /// These waits.
    ///
    /// # Errors
    /// Names the bound that is broken.
    pub fn new(waits_s: &[u32]) -> Result<Self, String> {
        if !(1..=MOST).contains(&waits_s.len()) {
            return Err(format!("there are {} waits: 1 to {MOST} are allowed", waits_s.len()));
        }
        if let Some(wait) = waits_s.iter().find(|wait| !(1..=LONGEST_WAIT_S).contains(*wait)) {
            return Err(format!("a wait of {wait} s is out of range 1-{LONGEST_WAIT_S}"));
        }
        let sum: u32 = waits_s.iter().sum();
        if sum > LONGEST_WAITS_S {
            return Err(format!("the waits add up to {sum} s: {LONGEST_WAITS_S} (seven days) are allowed"));
        }
        let mut bounds_s = [0; MOST];
        bounds_s[..waits_s.len()].copy_from_slice(waits_s);
        Ok(Waits { bounds_s, len: u8::try_from(waits_s.len()).expect("there are at most 19") })
    }

    /// All of them.
    pub fn as_slice(&self) -> &[u32] {
        &self.bounds_s[..usize::from(self.len)]
    }

    /// How many there are: at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty list")]
    pub fn len(&self) -> u32 {
        self.len.into()
    }

    pub(super) fn get(&self, index: u32) -> Option<u32> {
        self.as_slice().get(usize::try_from(index).ok()?).copied()
    }

    pub(super) fn longest(&self) -> u32 {
        self.as_slice().iter().copied().max().unwrap_or_default()
    }
}

impl TryFrom<Vec<u32>> for Waits {
    type Error = String;

    fn try_from(waits_s: Vec<u32>) -> Result<Self, String> {
        Waits::new(&waits_s)
    }
}

impl From<Waits> for Vec<u32> {
    fn from(waits: Waits) -> Self {
        waits.as_slice().to_vec()
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_out_of_range_is_refused() {
        for (waits, says) in [
            (vec![], "1 to 19"),
            (vec![1; 20], "1 to 19"),
            (vec![0], "a wait of 0 s"),
            (vec![86_401], "a wait of 86401 s"),
            (vec![86_400; 8], "seven days"),
        ] {
            assert!(Waits::new(&waits).unwrap_err().contains(says), "{waits:?}");
        }
        assert_eq!(Waits::new(&[1; 19]).unwrap().len(), 19);
        assert_eq!(Waits::new(&[86_400; 7]).unwrap().as_slice(), [86_400; 7]);
    }
}

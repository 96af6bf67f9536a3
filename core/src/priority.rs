//! Priorities: `urgent`, `normal`, `bulk`. Each has one queue; they are named, never numbered.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How soon a run must start when there is more work than hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// One-time passwords, fraud alerts: seconds matter. Lives in due shards of its own and is never spread.
    Urgent,
    /// The ordinary reminder.
    Normal,
    /// Newsletters and the like: some time today.
    Bulk,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: [Priority; 3] = [Priority::Urgent, Priority::Normal, Priority::Bulk];

    /// The word used in files, messages, queue names and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Urgent => "urgent",
            Priority::Normal => "normal",
            Priority::Bulk => "bulk",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Priority::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a priority: write `urgent`, `normal` or `bulk`"))
    }
}

/// Shares of the slots that take runs of every priority (mission 8), in the order of [`Priority::ALL`].
const WEIGHTS: [i32; 3] = [6, 3, 1];

/// Chooses by weight among the priorities that have something to run, evenly: of ten urgent, normal and bulk runs the
/// urgent ones do not come first in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weights {
    credit: [i32; 3],
}

impl Weights {
    /// The next of those that are `ready`; none if none is. One that is not ready gains nothing meanwhile.
    pub fn next(&mut self, ready: &[Priority]) -> Option<Priority> {
        let ready = || Priority::ALL.into_iter().enumerate().filter(|(_, priority)| ready.contains(priority));
        ready().for_each(|(n, _)| self.credit[n] += WEIGHTS[n]);
        // Of equals the most urgent.
        let (chosen, priority) = ready().max_by_key(|(n, _)| (self.credit[*n], std::cmp::Reverse(*n)))?;
        self.credit[chosen] -= ready().map(|(n, _)| WEIGHTS[n]).sum::<i32>();
        Some(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::Priority::{Bulk, Normal, Urgent};
    use super::*;

    fn count(weights: &mut Weights, ready: &[Priority], times: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..times {
            counts[weights.next(ready).unwrap() as usize] += 1;
        }
        counts
    }

    #[test]
    fn of_ten_runs_six_are_urgent_three_normal_one_bulk() {
        let mut weights = Weights::default();
        for _ in 0..5 {
            assert_eq!(count(&mut weights, &Priority::ALL, 10), [6, 3, 1]);
        }
        assert_eq!(count(&mut weights, &[Normal, Bulk], 8), [0, 6, 2]);
        assert_eq!(count(&mut weights, &[Bulk], 3), [0, 0, 3]);
        assert_eq!(weights.next(&[]), None);
    }

    #[test]
    fn none_waits_longer_than_its_weight_says() {
        let mut weights = Weights::default();
        let order: Vec<Priority> = (0..100).map(|_| weights.next(&Priority::ALL).unwrap()).collect();
        for (priority, longest) in [(Urgent, 2), (Normal, 4), (Bulk, 10)] {
            assert!(order.windows(longest).all(|some| some.contains(&priority)), "{priority}: {order:?}");
        }
    }

    #[test]
    fn what_had_nothing_to_run_has_no_credit_for_it() {
        let mut weights = Weights::default();
        count(&mut weights, &[Urgent], 1_000);
        assert_eq!(count(&mut weights, &Priority::ALL, 10), [6, 3, 1]);
    }
}

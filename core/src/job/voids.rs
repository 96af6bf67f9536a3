//! What changes of a job did to runs already queued.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

const VOIDS_KEPT: usize = 8;

/// Which generation decides each instant: the last changes that voided queued runs, each with the instant from which on
/// it decided anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Voids(Vec<Void>);

/// One change that decided anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Void {
    /// The generation that the change made.
    pub generation: u64,
    /// The first instant it decides, in Unix seconds.
    pub from: i64,
}

impl Voids {
    /// A new job decides all instants.
    pub fn new(generation: u64) -> Self {
        Voids(vec![Void { generation, from: 0 }])
    }

    /// Adds a change. Pairs that it makes redundant go; of the rest, eight are kept.
    pub fn push(&mut self, generation: u64, from: DateTime<Utc>) {
        let from = from.timestamp();
        // An older pair that starts no earlier can never be the highest one again.
        self.0.retain(|older| older.from < from);
        self.0.push(Void { generation, from });
        if self.0.len() > VOIDS_KEPT {
            // The first pair guards against a former life of the key: it stays, the oldest edit goes.
            self.0.remove(1);
        }
    }

    /// The generation that began this life of the key, or ended it: older ones are void whatever their instant.
    pub fn life(&self) -> u64 {
        self.0.first().map_or(0, |first| first.generation)
    }

    /// The last change: its generation is the job's present one.
    pub fn latest(&self) -> Option<Void> {
        self.0.last().copied()
    }

    /// G(i): the highest generation whose boundary is not after the instant.
    pub fn deciding(&self, scheduled_at: DateTime<Utc>) -> u64 {
        let instant = scheduled_at.timestamp();
        self.0.iter().filter(|v| v.from <= instant).map(|v| v.generation).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(s, 0).unwrap()
    }

    proptest! {
        // Dropping redundant pairs must not change any answer.
        #[test]
        fn eight_pairs_answer_as_the_whole_history(edits in prop::collection::vec(1i64..50, 1..7), instant in 0i64..60) {
            let mut voids = Voids::new(1);
            let mut all = vec![(1u64, 0i64)];
            for (n, from) in edits.iter().enumerate() {
                voids.push(n as u64 + 2, at(*from));
                all.push((n as u64 + 2, *from));
            }
            let expected = all.iter().filter(|(_, f)| *f <= instant).map(|(g, _)| *g).max().unwrap();
            prop_assert_eq!(voids.deciding(at(instant)), expected);
        }
    }
}

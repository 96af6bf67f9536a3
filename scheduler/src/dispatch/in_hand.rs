//! Which runs of a shard are being sent right now, or were sent so lately that the index may still show them.
//!
//! A shard is worked on from two sides, by the clock and by passes over the index; neither touches what the other has in
//! hand. This saves repeats and reads; nothing depends on it, for a repeat is caught by the worker.

use chrono::{DateTime, Utc};
use punctual_core::job::JobKey;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For so long after a job was advanced the index is not believed when it shows the job where it stood before.
const INDEX_LAG: Duration = Duration::from_secs(3);

/// What came of reaching for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is in hand now.
    Taken,
    /// The other side is sending it: what becomes of it is not known yet.
    Busy,
    /// Its job was advanced just now.
    Done,
}

/// The runs in hand, by job: a job stands at one firing only.
#[derive(Default)]
pub struct InHand(Mutex<HashMap<JobKey, Entry>>);

struct Entry {
    due_at: DateTime<Utc>,
    /// When the job was advanced, by the monotonic clock; none while its run is being sent.
    done_at: Option<Duration>,
}

impl InHand {
    /// Takes a run in hand, unless somebody has it, or had it just now.
    pub(super) fn take(&self, key: &JobKey, due_at: DateTime<Utc>, now: Duration) -> Reach {
        let mut entries = self.entries();
        let reach = entries.get(key).map_or(Reach::Taken, |entry| match entry.done_at {
            None => Reach::Busy,
            Some(at) if entry.due_at == due_at && now.saturating_sub(at) < INDEX_LAG => Reach::Done,
            Some(_) => Reach::Taken,
        });
        if reach == Reach::Taken {
            entries.insert(key.clone(), Entry { due_at, done_at: None });
        }
        reach
    }

    /// Lets go of a run: `is_done` says whether its job has moved on.
    pub(super) fn let_go(&self, key: &JobKey, is_done: bool, now: Duration) {
        let mut entries = self.entries();
        match entries.get_mut(key) {
            Some(entry) if is_done => entry.done_at = Some(now),
            _ => {
                entries.remove(key);
            }
        }
    }

    /// Forgets what was done so long ago that the index has caught up.
    pub(super) fn purge(&self, now: Duration) {
        let is_fresh = |entry: &Entry| entry.done_at.is_none_or(|at| now.saturating_sub(at) < INDEX_LAG);
        let mut entries = self.entries();
        entries.retain(|_, entry| is_fresh(entry));
        if entries.len() * 4 < entries.capacity() {
            entries.shrink_to_fit();
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<JobKey, Entry>> {
        // A panic elsewhere leaves the map whole: each call changes it in one piece.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_run_is_in_one_hand_and_not_believed_for_a_while_when_it_is_done() {
        let (in_hand, key) = (InHand::default(), JobKey::new("bank", "c-1/bill").unwrap());
        let at = |s| DateTime::from_timestamp(s, 0).unwrap();
        assert_eq!(in_hand.take(&key, at(60), S(1)), Reach::Taken);
        assert_eq!(in_hand.take(&key, at(60), S(100)), Reach::Busy, "it is being sent, however long that takes");
        in_hand.let_go(&key, false, S(100));
        assert_eq!(in_hand.take(&key, at(60), S(100)), Reach::Taken, "it was not sent");
        in_hand.let_go(&key, true, S(101));
        assert_eq!(in_hand.take(&key, at(60), S(103)), Reach::Done);
        assert_eq!(in_hand.take(&key, at(120), S(103)), Reach::Taken, "the next firing is another matter");
        in_hand.let_go(&key, true, S(103));
        in_hand.purge(S(105));
        assert_eq!(in_hand.take(&key, at(120), S(105)), Reach::Done);
        in_hand.purge(S(106));
        assert!(in_hand.entries().is_empty());
        assert_eq!(in_hand.take(&key, at(120), S(106)), Reach::Taken, "after that the index is right: it was not done");
    }
}

//! Which runs of a shard are being sent right now, or were sent so lately that the index may still show them.
//!
//! A shard is worked on from two sides, by the clock and by passes over the index; neither touches what the other has in
//! hand. Nor are jobs read again and again whose queue is left alone. This saves repeats and reads; nothing depends on it, for
//! a repeat is caught by the worker.

use chrono::{DateTime, Utc};
use punctual_core::job::JobKey;
use punctual_core::priority::Priority;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For so long after a job was advanced the index is not believed when it shows the job where it stood before.
const INDEX_LAG: Duration = Duration::from_secs(3);

/// A run that waits for its queue is looked at again after this, for its job may go to another queue by then.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Runs noted as waiting at most, by one shard: more are read each time.
const MOST_WAITING: usize = 20_000;

/// What came of reaching for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// It is in hand now.
    Taken,
    /// The other side is sending it, or its queue is left alone: what becomes of it is not known yet.
    Busy,
    /// Its job was advanced just now.
    Done,
}

/// The runs in hand, by job: a job stands at one firing only.
#[derive(Default)]
pub struct InHand(Mutex<HashMap<JobKey, Entry>>);

struct Entry {
    due_at: DateTime<Utc>,
    stage: Stage,
}

/// How far a run is; times are by the monotonic clock.
#[derive(Clone, Copy)]
enum Stage {
    /// It is being sent.
    Sending,
    /// Its job was advanced.
    Done { at: Duration },
    /// It was left, as the queue of this priority was left alone.
    Waiting { priority: Priority, since: Duration },
}

impl Stage {
    fn is_fresh(self, now: Duration) -> bool {
        match self {
            Stage::Sending => true,
            Stage::Done { at } => now.saturating_sub(at) < INDEX_LAG,
            Stage::Waiting { since, .. } => now.saturating_sub(since) < LONGEST_WAIT,
        }
    }
}

impl InHand {
    /// Takes a run in hand, unless somebody has it, or had it just now, or it waits for a queue of which `is_closed` says that
    /// it is left alone.
    pub(super) fn take(
        &self,
        key: &JobKey,
        due_at: DateTime<Utc>,
        now: Duration,
        is_closed: impl Fn(Priority) -> bool,
    ) -> Reach {
        let mut entries = self.entries();
        let reach = entries.get(key).map_or(Reach::Taken, |entry| match entry.stage {
            Stage::Sending => Reach::Busy,
            stage if entry.due_at != due_at || !stage.is_fresh(now) => Reach::Taken,
            Stage::Done { .. } => Reach::Done,
            Stage::Waiting { priority, .. } if is_closed(priority) => Reach::Busy,
            Stage::Waiting { .. } => Reach::Taken,
        });
        if reach == Reach::Taken {
            entries.insert(key.clone(), Entry { due_at, stage: Stage::Sending });
        }
        reach
    }

    /// Lets go of a run: `is_done` says whether its job has moved on.
    pub(super) fn let_go(&self, key: &JobKey, is_done: bool, now: Duration) {
        let mut entries = self.entries();
        match entries.get_mut(key) {
            Some(entry) if is_done => entry.stage = Stage::Done { at: now },
            _ => {
                entries.remove(key);
            }
        }
    }

    /// Lets go of a run that was not sent as the queue of its priority is left alone.
    pub(super) fn let_wait(&self, key: &JobKey, priority: Priority, now: Duration) {
        let mut entries = self.entries();
        let has_room = entries.len() <= MOST_WAITING;
        match entries.get_mut(key) {
            Some(entry) if has_room => entry.stage = Stage::Waiting { priority, since: now },
            _ => {
                entries.remove(key);
            }
        }
    }

    /// Forgets what was done so long ago that the index has caught up, and what has waited for so long.
    pub(super) fn purge(&self, now: Duration) {
        let mut entries = self.entries();
        entries.retain(|_, entry| entry.stage.is_fresh(now));
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
    const OPEN: fn(Priority) -> bool = |_| false;

    #[test]
    fn a_run_is_in_one_hand_and_not_believed_for_a_while_when_it_is_done() {
        let (in_hand, key) = (InHand::default(), JobKey::new("bank", "c-1/bill").unwrap());
        let at = |s| DateTime::from_timestamp(s, 0).unwrap();
        assert_eq!(in_hand.take(&key, at(60), S(1), OPEN), Reach::Taken);
        assert_eq!(in_hand.take(&key, at(60), S(100), OPEN), Reach::Busy, "it is being sent, however long that takes");
        in_hand.let_go(&key, false, S(100));
        assert_eq!(in_hand.take(&key, at(60), S(100), OPEN), Reach::Taken, "it was not sent");
        in_hand.let_go(&key, true, S(101));
        assert_eq!(in_hand.take(&key, at(60), S(103), OPEN), Reach::Done);
        assert_eq!(in_hand.take(&key, at(120), S(103), OPEN), Reach::Taken, "the next firing is another matter");
        in_hand.let_go(&key, true, S(103));
        in_hand.purge(S(105));
        assert_eq!(in_hand.take(&key, at(120), S(105), OPEN), Reach::Done);
        in_hand.purge(S(106));
        assert!(in_hand.entries().is_empty());
        assert_eq!(
            in_hand.take(&key, at(120), S(106), OPEN),
            Reach::Taken,
            "after that the index is right: it was not done"
        );
    }

    #[test]
    fn a_run_whose_queue_is_left_alone_is_not_read_again_until_it_is_tried() {
        let (in_hand, key) = (InHand::default(), JobKey::new("bank", "c-1/bill").unwrap());
        let at = |s| DateTime::from_timestamp(s, 0).unwrap();
        let bulk_is_closed = |priority| priority == Priority::Bulk;
        let wait = |now| {
            assert_eq!(in_hand.take(&key, at(60), now, OPEN), Reach::Taken);
            in_hand.let_wait(&key, Priority::Bulk, now);
        };
        wait(S(1));
        assert_eq!(in_hand.take(&key, at(60), S(2), bulk_is_closed), Reach::Busy, "it is left");
        assert_eq!(in_hand.take(&key, at(120), S(2), bulk_is_closed), Reach::Taken, "another firing");
        in_hand.let_go(&key, false, S(2));
        wait(S(3));
        assert_eq!(in_hand.take(&key, at(60), S(4), |priority| priority == Priority::Normal), Reach::Taken);
        in_hand.let_go(&key, false, S(4));
        wait(S(5));
        in_hand.purge(S(34));
        assert_eq!(in_hand.take(&key, at(60), S(34), bulk_is_closed), Reach::Busy);
        assert_eq!(in_hand.take(&key, at(60), S(35), bulk_is_closed), Reach::Taken, "it may go to another queue now");
        in_hand.let_wait(&key, Priority::Bulk, S(36));
        in_hand.purge(S(66));
        assert!(in_hand.entries().is_empty());
    }
}

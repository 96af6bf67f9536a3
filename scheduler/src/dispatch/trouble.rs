//! Jobs in trouble: what fails for one job alone, such as its row or its item, keeps nothing else waiting. The job stays due
//! and is tried again.

use super::pass::{Dispatcher, Permission};
use punctual_core::due::{Cursor, DueBucket, ShardId};
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job, JobKey};
use punctual_core::ports::{ADVANCES, AdvanceFrom, JobRead, Move};

/// Whether it was said that a shard has jobs in trouble.
#[derive(Default)]
pub(super) struct Told(bool);

impl Told {
    /// Says which job is in trouble, if any: once a trouble. Only a pass over all that is not settled, which went well, shows
    /// that it is over.
    pub(super) fn tell(&mut self, shard: ShardId, trouble: Option<&(JobKey, PortError)>, is_full: bool) {
        if let Some((key, error)) = trouble.filter(|_| !self.0) {
            let class = error.class();
            match error {
                PortError::Permanent(_) => {
                    tracing::error!(%shard, job.id = %key, class, %error, "a job stays due: what it needs is refused")
                }
                _ => {
                    tracing::warn!(%shard, job.id = %key, class, %error, "a job stays due and is tried again: what it needs fails")
                }
            }
        }
        if is_full || trouble.is_some() {
            self.0 = trouble.is_some();
        }
    }
}

impl Dispatcher {
    /// Takes jobs in trouble along into the present minute, from one that is no longer read at every tick: there they are
    /// tried again, and the cursor goes on without them. Says whether none is left; what cannot be moved stays where it is.
    pub(super) async fn take_along(&self, bucket: DueBucket, jobs: &[JobKey], permission: &dyn Permission) -> bool {
        let is_read_anyway = Cursor(bucket.minute).latest_minutes(self.clock.now()).next() == Some(bucket.minute);
        if jobs.is_empty() || is_read_anyway || !permission.holds() {
            return jobs.is_empty();
        }
        // Where more than a few fail it is no job's own trouble: a bound on what that costs.
        let few = &jobs[..jobs.len().min(ADVANCES)];
        let Ok(read) = self.ports.jobs.get_due(few).await else { return false };
        let moves = read.into_values().filter_map(|read| match read {
            JobRead::Job(job) if job.due_bucket == Some(bucket) => to_where_it_stands(&job),
            JobRead::Job(_) | JobRead::Unreadable(_) => None,
        });
        // Bound for the minute in which it is written, as every advance.
        let moved = self.advance(moves.collect()).await.moved;
        moved.len() == jobs.len()
    }
}

/// A move that changes nothing but the bucket.
fn to_where_it_stands(job: &Job) -> Option<Move> {
    let next = job.standing()?;
    let from = AdvanceFrom { next_scheduled_at: next.scheduled_at, version: job.version };
    let to = Advanced::at(next);
    Some(Move { key: job.spec.key.clone(), from, to })
}

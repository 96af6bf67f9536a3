//! Replays: a run that became dead or indeterminate, once more as a run of its own.
//!
//! Its row stays as it is, for good. The new run has the original's key and a number, and goes by the original's id at the
//! gateway. Asking again while a replay is on its way enqueues that same replay again, and its row stops the repeat; so
//! a crash anywhere here needs nothing but to ask again.

use super::{OperationError, insist, read};
use punctual_core::clock::Clock;
use punctual_core::error::PortError;
use punctual_core::ports::{JobRead, Ports};
use punctual_core::run::{RunId, RunRow, RunStatus};

/// What came of asking for a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It is in its queue, under this id.
    Enqueued(RunId),
    /// Nothing is to be replayed: the run, or its latest replay, stands like this.
    Stands(RunId, RunStatus),
    /// There is no such run.
    Missing,
}

/// Enqueues a run once more that became dead or indeterminate, and whose replays did so too.
///
/// # Errors
/// When its job is gone or does not allow it, or store or queue still fail after several tries.
pub async fn replay(ports: &Ports, clock: &dyn Clock, run: &RunId) -> Result<Replay, OperationError> {
    let key = &run.job_key;
    let failed = |error| OperationError::Store(key.to_string(), error);
    clock.check().map_err(|off| OperationError::Clock(key.to_string(), off))?;
    let original = run.original();
    let row_of = async |run: &RunId| insist(|| ports.runs.get(run)).await.map_err(failed);
    let Some(row) = row_of(&original).await? else { return Ok(Replay::Missing) };
    let (mut latest, mut n) = (row.clone(), 0);
    while latest.status.has_letter() {
        n += 1;
        let next = RunId { run_key: original.run_key.replay(n), ..original.clone() };
        match row_of(&next).await? {
            Some(row) => latest = row,
            None => return enqueue(ports, clock, &row, n).await,
        }
    }
    Ok(Replay::Stands(latest.id, latest.status))
}

async fn enqueue(ports: &Ports, clock: &dyn Clock, original: &RunRow, n: u32) -> Result<Replay, OperationError> {
    let key = &original.id.job_key;
    let failed = |error| OperationError::Store(key.to_string(), error);
    let job = match read(&*ports.jobs, key).await.map_err(failed)? {
        Some(JobRead::Job(job)) => job,
        Some(JobRead::Unreadable(reason)) => return Err(OperationError::Unreadable(key.to_string(), reason)),
        None => {
            let problem = "its job is gone, and with it what was to be sent: make the job again first";
            return Err(OperationError::Input(original.id.to_string(), problem.into()));
        }
    };
    let message = job.replay(original, n, clock.now());
    let message = message.map_err(|error| OperationError::NotAllowed(key.to_string(), error))?;
    let body = [message.encode()];
    let send = || async {
        let sent = ports.queue.send(job.spec.priority, &body).await?.pop();
        sent.unwrap_or_else(|| Err(PortError::Unknown("the queue did not say what came of a send".into())))
    };
    insist(send).await.map_err(failed)?;
    Ok(Replay::Enqueued(message.run_id()))
}

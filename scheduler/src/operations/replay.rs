//! Replays: a run that became dead or indeterminate, once more as a run of its own.
//!
//! Its row stays as it is, for good, and is noted as seen to. The new run has the original's key and a number, and goes by
//! the original's id at the gateway. Asking again while a replay is on its way enqueues that same replay again, and its row
//! stops the repeat; so a crash anywhere here needs nothing but to ask again.

use super::{OperationError, insist, read};
use punctual_core::clock::Clock;
use punctual_core::error::PortError;
use punctual_core::message::Message;
use punctual_core::ports::{Attended, JobRead, Ports, RowRead};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunRow, RunStatus};
use punctual_core::trace::TraceContext;
use punctual_core::zone::Zones;

/// What came of asking for a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It is in its queue, under this id.
    Enqueued(RunId),
    /// Nothing is to be replayed: the run, or its latest replay, stands like this.
    Stands(RunId, RunStatus),
    /// The original's deadline is over: it may not start any more.
    TooLate,
    /// There is no such run.
    Missing,
}

/// What a replay would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayPlan {
    /// Enqueue this.
    Enqueue(Planned),
    /// Nothing: see [`Replay`].
    Nothing(Replay),
}

/// A replay that can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    message: Message,
    priority: Priority,
    /// The dead or indeterminate run that it answers: the original, or its latest replay.
    answers: RunId,
}

impl Planned {
    /// The run that it would make.
    pub fn run(&self) -> RunId {
        self.message.run_id()
    }
}

/// Enqueues a run once more that became dead or indeterminate, and whose replays did so too.
///
/// # Errors
/// When its job is gone or does not allow it, or store or queue still fail after several tries.
pub async fn replay(
    ports: &Ports,
    clock: &dyn Clock,
    zones: &Zones,
    run: &RunId,
    by: &str,
) -> Result<Replay, OperationError> {
    match plan_replay(ports, clock, zones, run).await? {
        ReplayPlan::Nothing(why) => Ok(why),
        ReplayPlan::Enqueue(planned) => perform_replay(ports, clock, planned, by, None).await.map(Replay::Enqueued),
    }
}

/// Decides a replay, and does nothing.
///
/// # Errors
/// As [`replay`].
pub async fn plan_replay(
    ports: &Ports,
    clock: &dyn Clock,
    zones: &Zones,
    run: &RunId,
) -> Result<ReplayPlan, OperationError> {
    let key = &run.job_key;
    let failed = |error| OperationError::Store(key.to_string(), error);
    clock.check().map_err(|off| OperationError::Clock(key.to_string(), off))?;
    let original = run.original();
    let Some(row) = row_of(ports, &original).await? else { return Ok(ReplayPlan::Nothing(Replay::Missing)) };
    let (mut latest, mut n) = (row.clone(), 0);
    while latest.status.has_letter() {
        n += 1;
        let next = RunId { run_key: original.run_key.replay(n), ..original.clone() };
        if let Some(row) = row_of(ports, &next).await? {
            latest = row;
            continue;
        }
        let job = match read(&*ports.jobs, key).await.map_err(failed)? {
            Some(JobRead::Job(job)) => job,
            Some(JobRead::Unreadable(reason)) => return Err(OperationError::Unreadable(key.to_string(), reason)),
            None => {
                let problem = "its job is gone, and with it what was to be sent: make the job again first";
                return Err(OperationError::Input(original.to_string(), problem.into()));
            }
        };
        let message = job.replay(&row, n, clock.now());
        let message = message.map_err(|error| OperationError::NotAllowed(key.to_string(), error))?;
        if job.spec.deadline(row.due_at, zones).is_some_and(|deadline| deadline < clock.now()) {
            return Ok(ReplayPlan::Nothing(Replay::TooLate));
        }
        let (priority, answers) = (job.spec.priority, latest.id);
        return Ok(ReplayPlan::Enqueue(Planned { message, priority, answers }));
    }
    Ok(ReplayPlan::Nothing(Replay::Stands(latest.id, latest.status)))
}

async fn row_of(ports: &Ports, run: &RunId) -> Result<Option<RunRow>, OperationError> {
    let read = insist(|| ports.history.row(run)).await;
    match read.map_err(|error| OperationError::Store(run.job_key.to_string(), error))? {
        Some(RowRead::Row(row)) => Ok(Some(*row)),
        Some(RowRead::Unreadable(row)) => Err(OperationError::UnreadableRun(row.id, row.problem)),
        None => Ok(None),
    }
}

/// Makes a replay that was decided; it goes on in `trace`, if one is given.
///
/// # Errors
/// When store or queue still fail after several tries.
pub async fn perform_replay(
    ports: &Ports,
    clock: &dyn Clock,
    planned: Planned,
    by: &str,
    trace: Option<TraceContext>,
) -> Result<RunId, OperationError> {
    let run = planned.run();
    let failed = |error| OperationError::Store(run.job_key.to_string(), error);
    let body = [Message { trace, ..planned.message }.encode()];
    let send = || async {
        let sent = ports.queue.send(planned.priority, &body).await?.pop();
        sent.unwrap_or_else(|| Err(PortError::Unknown("the queue did not say what came of a send".into())))
    };
    insist(send).await.map_err(failed)?;
    // Only now: what is noted too early would be seen to by nobody if this process died.
    let note = Attended { by: by.to_owned(), at: clock.now(), replay: Some(run.run_key.clone()), why: None };
    insist(|| ports.history.attend(&planned.answers, &note)).await.map_err(failed)?;
    Ok(run)
}

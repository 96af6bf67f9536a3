//! Runs by hand: one besides those of the timetable, put into the queue at once.

use super::{OperationError, insist, read};
use chrono::{DateTime, SecondsFormat, Utc};
use punctual_core::clock::Clock;
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, request_token};
use punctual_core::message::Message;
use punctual_core::ports::{JobRead, Ports};
use punctual_core::process::random_token;
use punctual_core::run::{RunId, RunKey};
use punctual_core::schedule::whole_second;
use punctual_core::trace::TraceContext;
use punctual_core::zone::Zones;
use std::time::Duration;

/// For how long a repeat of a request is told for one: much shorter than rows are kept, which tell repeats of the run.
const REQUEST_KEPT: Duration = Duration::from_secs(7 * 86_400);

/// What came of asking for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunNow {
    /// It is in its queue.
    Enqueued(RunId),
    /// There is no such job.
    Missing,
}

/// Enqueues a run of a job now. Asked again with the same idempotency key it is the same run: once that has its row,
/// nothing more is sent; it goes on in `trace`, if one is given. Without a key each call is a run of its own, and so is one whose answer was lost.
///
/// # Errors
/// When the job does not allow it, the idempotency key cannot be taken or belongs to a run that never came to be and is too
/// late by now, or store or queue still fail after several tries.
pub async fn run_now(
    ports: &Ports,
    clock: &dyn Clock,
    zones: &Zones,
    key: &JobKey,
    idempotency_key: Option<&str>,
    trace: Option<TraceContext>,
) -> Result<RunNow, OperationError> {
    let failed = |error| OperationError::Store(key.to_string(), error);
    clock.check().map_err(|off| OperationError::Clock(key.to_string(), off))?;
    let token = idempotency_key.map(request_token).transpose();
    let token = token.map_err(|problem| OperationError::Input(key.to_string(), problem))?;
    let job = match read(&*ports.jobs, key).await.map_err(failed)? {
        None => return Ok(RunNow::Missing),
        Some(JobRead::Unreadable(reason)) => return Err(OperationError::Unreadable(key.to_string(), reason)),
        Some(JobRead::Job(job)) => job,
    };
    let now = whole_second(clock.now());
    let new = RunKey::manual(now, token.as_deref().unwrap_or(&random_token()));
    // Refused before anything is kept of the request: it may be made again when the job allows it.
    let message = job.run_by_hand(new.clone(), now);
    let message = message.map_err(|error| OperationError::NotAllowed(key.to_string(), error))?;
    let message = match token {
        None => message,
        Some(token) => {
            // Kept before the run is in the queue: a repeat after a crash in between enqueues the same run again.
            let (run_key, at) = first_asked(ports, key, &token, &new, now).await.map_err(failed)?;
            let first = job.run_by_hand(run_key, at);
            let first = first.map_err(|error| OperationError::NotAllowed(key.to_string(), error))?;
            let run = first.run_id();
            if first.run_key != new && insist(|| ports.runs.get(&run)).await.map_err(failed)?.is_some() {
                return Ok(RunNow::Enqueued(run));
            }
            if job.spec.deadline(at, zones).is_some_and(|deadline| deadline < now) {
                return Err(OperationError::Input(key.to_string(), too_late(at)));
            }
            first
        }
    };
    let message = Message { trace, ..message };
    let body = [message.encode()];
    let send = || async {
        let sent = ports.queue.send(job.spec.priority, &body).await?.pop();
        sent.unwrap_or_else(|| Err(PortError::Unknown("the queue did not say what came of a send".into())))
    };
    insist(send).await.map_err(failed)?;
    Ok(RunNow::Enqueued(message.run_id()))
}

fn too_late(asked_at: DateTime<Utc>) -> String {
    format!(
        "the idempotency key belongs to a run asked for at {}, which never came to be and may not start any more: take \
         another key",
        asked_at.to_rfc3339_opts(SecondsFormat::Secs, true)
    )
}

/// The run that the first request with this token asked for, and when it did: `new`, if this is the first.
async fn first_asked(
    ports: &Ports,
    key: &JobKey,
    token: &str,
    new: &RunKey,
    now: DateTime<Utc>,
) -> Result<(RunKey, DateTime<Utc>), PortError> {
    let id = format!("run/{key}/{token}");
    let kept = insist(|| ports.control.once(&id, new.as_str(), now + REQUEST_KEPT)).await?;
    let first = RunKey::try_from(kept).ok().and_then(|run_key| Some((run_key.clone(), run_key.instant()?)));
    first.ok_or_else(|| PortError::Permanent(format!("what is kept as `{id}` is no run key")))
}

//! Step 6, *idempotency*: screen, then begin: the conditional write that makes a run this worker's own.

use crate::pipeline::{Context, Step};
use punctual_core::error::PortError;
use punctual_core::idempotency::{Screen, screen};
use punctual_core::job::Job;
use punctual_core::message::Message;
use punctual_core::ports::Put;
use punctual_core::process::random_token;
use punctual_core::run::{Begin, Event, RunRow, RunStatus, SkippedBy, Transition, apply};
use std::time::Duration;

/// What a screen found fit to run.
pub(crate) struct Screened {
    pub(crate) job: Job,
    pub(crate) row: Option<RunRow>,
    /// When the reads began, by the monotonic clock.
    pub(crate) at: Duration,
}

/// Reads job and row and decides; performs what needs no call.
pub(crate) async fn look(context: &Context, message: &Message) -> Result<Result<Screened, Step>, PortError> {
    let at = context.clock.monotonic();
    let id = message.run_id();
    let keys = [message.job_key.clone()];
    let (mut jobs, row) = tokio::try_join!(context.ports.jobs.get_many(&keys), context.ports.runs.get(&id))?;
    let job = match jobs.remove(&message.job_key) {
        Some(punctual_core::ports::JobRead::Unreadable(reason)) => {
            return Ok(Err(Step::PutBack {
                wait: UNREADABLE_JOB_WAIT,
                why: format!("its job cannot be read: {reason}"),
            }));
        }
        Some(punctual_core::ports::JobRead::Job(job)) => Some(*job),
        None => None,
    };
    let now = context.clock.now();
    let takeover_grace = context.settings.takeover_grace;
    let event = match screen(message, job.as_ref(), row.as_ref(), now) {
        Screen::Run => {
            let Some(job) = job else { return Ok(Err(Step::Letter { reason: "its job does not exist".into() })) };
            // A row that would refuse begin needs neither slot nor permit.
            let begin = begin_event(context, &job, "");
            return Ok(match apply(row.as_ref(), &message.facts(), &Event::Begin(begin), now, "") {
                Transition::Write(_) => Ok(Screened { job, row, at }),
                other => Err(refused(context, row.as_ref(), other)),
            });
        }
        Screen::Void { void_gen, reason } => Event::Void { void_gen, reason, takeover_grace },
        Screen::Skip(reason) => Event::Skip { reason, by: SkippedBy::Worker, takeover_grace },
        Screen::PutBack { wait, why } => {
            context.metrics.put_back(why);
            return Ok(Err(Step::PutBack { wait, why: why.as_str().into() }));
        }
        Screen::DeadLetter(reason) => return Ok(Err(Step::Letter { reason: reason.into() })),
    };
    write(context, message, row, &event)
        .await
        .map(|step| Err(step.unwrap_or_else(|row| Step::Settle(row.status, row.error))))
}

const UNREADABLE_JOB_WAIT: Duration = Duration::from_secs(60);

/// Makes the run this worker's own; the row is running with its token then.
pub(crate) async fn begin(
    context: &Context,
    message: &Message,
    screened: &Screened,
    token: &str,
) -> Result<Result<RunRow, Step>, PortError> {
    let event = Event::Begin(begin_event(context, &screened.job, token));
    let written = write(context, message, screened.row.clone(), &event).await?;
    Ok(match written {
        Err(row) if row.status == RunStatus::Running => {
            if screened.row.as_ref().is_some_and(|old| old.status == RunStatus::Running) {
                context.metrics.takeovers.increment(1);
            }
            Ok(*row)
        }
        // No attempt left, or a repeat that a person must decide about.
        Err(row) => Err(Step::Settle(row.status, row.error)),
        Ok(step) => Err(step),
    })
}

fn begin_event<'a>(context: &'a Context, job: &Job, token: &'a str) -> Begin<'a> {
    Begin {
        token,
        worker: &context.id,
        job_version: job.version,
        lease: context.settings.row_lease,
        takeover_grace: context.settings.takeover_grace,
        rule: job.spec.retry,
        gateway: context.settings.gateway,
    }
}

/// Applies an event to the row until it is written (`Err(row)`) or refused (`Ok(step)`).
async fn write(
    context: &Context,
    message: &Message,
    mut row: Option<RunRow>,
    event: &Event<'_>,
) -> Result<Result<Step, Box<RunRow>>, PortError> {
    let write_token = random_token();
    loop {
        match apply(row.as_ref(), &message.facts(), event, context.clock.now(), &write_token) {
            Transition::Write(new) => match context.ports.runs.put(&new).await? {
                Put::Written => return Ok(Err(new)),
                Put::Conflict(current) => row = current.map(|row| *row),
            },
            other => return Ok(Ok(refused(context, row.as_ref(), other))),
        }
    }
}

fn refused(context: &Context, row: Option<&RunRow>, transition: Transition) -> Step {
    match transition {
        Transition::LookLater { at } => {
            let wait = (at - context.clock.now()).to_std().unwrap_or_default();
            Step::PutBack { wait, why: "held, or inside its back-off".into() }
        }
        Transition::Refused(status) => {
            context.metrics.repeats.increment(1);
            Step::Settle(status, row.and_then(|row| row.error.clone()))
        }
        Transition::Write(_) => Step::PutBack { wait: Duration::ZERO, why: "not written".into() },
    }
}

//! Behind step 9: the job of a receiver that is gone is paused, so that it is not called in vain until somebody looks.
//!
//! The outcome is recorded before, whatever becomes of this. A pause that fails is made by the next run that finds the
//! receiver gone.

use crate::pipeline::Context;
use punctual_core::error::PortError;
use punctual_core::job::{Change, Changed, Job, JobState, Timetable, VERSIONS_KEPT};
use punctual_core::ports::{JobRead, PortResult, Replace, ReplaceIf};
use punctual_core::process::random_token;
use std::time::Duration;

/// How often a pause is decided anew, or tried again.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

/// Who changed the job, for its listing.
pub(crate) const BY: &str = "worker: its webhook answered 410 Gone";

/// Pauses the job that `called` was, unless somebody has given it another address since.
pub(crate) async fn pause_job(context: &Context, called: &Job) {
    let mut tries = 0;
    let ended = loop {
        tries += 1;
        match try_pause(context, called).await {
            Ok(Tried::Settled { is_paused }) => break Ok(is_paused),
            Ok(Tried::Again) if tries < TRIES => {}
            Ok(Tried::Again) => break Err(PortError::Temporary("it changes all the time".into())),
            Err(error) if error.may_pass() && tries < TRIES => tokio::time::sleep(PAUSE * 2u32.pow(tries)).await,
            Err(error) => break Err(error),
        }
    };
    match ended {
        Ok(true) => tracing::warn!("its webhook is gone (410): the job is paused until a person resumes it"),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%error, "a job whose webhook is gone could not be paused; its next run tries again")
        }
    }
}

enum Tried {
    /// The job is paused by now, or needs no pause.
    Settled { is_paused: bool },
    /// It changed meanwhile: look again.
    Again,
}

async fn try_pause(context: &Context, called: &Job) -> PortResult<Tried> {
    let (jobs, key) = (&context.ports.jobs, &called.spec.key);
    let read = jobs.get_many(std::slice::from_ref(key)).await?.remove(key);
    let Some(JobRead::Job(job)) = read else { return Ok(Tried::Settled { is_paused: false }) };
    // A done job calls nobody any more.
    if job.state != JobState::Active || job.spec.payload != called.spec.payload {
        return Ok(Tried::Settled { is_paused: false });
    }
    let shards = context.ports.control.shards().await?.unwrap_or_default();
    let world = Timetable { shards: &shards, zones: &context.zones };
    match job.change(&Change::Pause, context.clock.now(), &world, random_token(), BY) {
        Ok(Changed::To(paused)) => {
            // What it overwrites can be read later, as what people change.
            jobs.keep_version(&job, context.clock.now() + VERSIONS_KEPT).await?;
            match jobs.replace(&paused, &ReplaceIf::from(&*job)).await? {
                Replace::Replaced => Ok(Tried::Settled { is_paused: true }),
                Replace::Changed => Ok(Tried::Again),
            }
        }
        Ok(Changed::Same) | Err(_) => Ok(Tried::Settled { is_paused: false }),
    }
}

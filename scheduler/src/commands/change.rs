//! Looking at jobs and changing them.

use super::payload::read_over;
use super::{CommandError, Store, bad, due_next, failed, in_option, open, print, shards_of, user};
use crate::cli::{ChangeArgs, EditArgs, ListArgs, ReplayArgs, RunNowArgs, ShowArgs};
use crate::listing;
use crate::operations::{self, OperationError, Outcome, Replay, RunNow, change_job, edit_job, quarantined};
use crate::timetable::given_or;
use chrono::{DateTime, Utc};
use punctual_core::aws::Names;
use punctual_core::clock::Clock;
use punctual_core::job::{Change, ChangeError, Job, JobKey, JobSpec, Timetable};
use punctual_core::ports::{JobRead, JobsUnder, Ports};
use punctual_core::run::{RunId, RunKey};
use punctual_core::zone::Zones;

pub(super) async fn list(names: Names, args: ListArgs) -> Result<(), CommandError> {
    let ports = open(names).await?.ports();
    let is_quarantine = args.state.as_deref() == Some("quarantined");
    let (jobs, more) = if is_quarantine {
        let shards = shards_of(&ports).await?;
        quarantined(&ports, &shards, &args.tenant, args.limit).await.map_err(failed)?
    } else {
        of_tenant(&ports, &args).await?
    };
    let show = if is_quarantine { listing::quarantined } else { listing::jobs };
    print(show(&jobs, args.json))?;
    if more {
        eprintln!("there are more: raise --limit");
    }
    Ok(())
}

/// A tenant's jobs by key, up to the limit, and whether there are more.
async fn of_tenant(ports: &Ports, args: &ListArgs) -> Result<(Vec<(JobKey, JobRead)>, bool), CommandError> {
    let is_wanted = |read: &JobRead| {
        let state = args.state.as_deref();
        state.is_none_or(|state| read.job().is_some_and(|job| job.state.as_str() == state))
    };
    let (of, mut jobs, mut after) = (JobsUnder::tenant(&args.tenant), Vec::new(), None);
    loop {
        let page = ports.jobs.list(&of, after, args.limit).await.map_err(failed)?;
        jobs.extend(page.jobs.into_iter().filter(|(_, read)| is_wanted(read)));
        after = page.next;
        if after.is_none() || jobs.len() > args.limit {
            break;
        }
    }
    let more = jobs.len() > args.limit || after.is_some();
    jobs.truncate(args.limit);
    jobs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((jobs, more))
}

pub(super) async fn show(names: Names, args: ShowArgs) -> Result<(), CommandError> {
    let key = JobKey::new(&args.tenant, &args.id).map_err(bad)?;
    let ports = open(names).await?.ports();
    let found = ports.jobs.get_many(std::slice::from_ref(&key)).await.map_err(failed)?.remove(&key);
    let read = found.ok_or_else(|| no_job(&key))?;
    print(listing::job(&key, &read, args.json))
}

pub(super) async fn change(names: Names, args: ChangeArgs, change: Change, zones: Zones) -> Result<(), CommandError> {
    let key = JobKey::new(&args.tenant, &args.id).map_err(bad)?;
    let Store { aws, ports, shards } = Store::open(names).await?;
    let (world, clock) = (Timetable { shards: &shards, zones: &zones }, &*aws.clock);
    let outcome = change_job(&*ports.jobs, clock, &world, &key, &change, args.if_version, &user()).await;
    tell(&key, outcome, args.json, &zones)
}

pub(super) async fn edit(names: Names, args: EditArgs, zones: Zones) -> Result<(), CommandError> {
    let key = JobKey::new(&args.job.tenant, &args.job.id).map_err(bad)?;
    let Store { aws, ports, shards } = Store::open(names).await?;
    let (world, clock) = (Timetable { shards: &shards, zones: &zones }, &*aws.clock);
    let now = clock.now();
    let patch = |old: &JobSpec| patched(old, &args, now, &zones).map_err(|error| error.to_string());
    let outcome = edit_job(&*ports.jobs, clock, &world, &key, &patch, args.job.if_version, &user()).await;
    tell(&key, outcome, args.job.json, &zones)
}

/// What the options given make of a specification.
fn patched(old: &JobSpec, args: &EditArgs, now: DateTime<Utc>, zones: &Zones) -> Result<JobSpec, CommandError> {
    let read = args.runs.read_over(&args.clock, args.schedule.as_deref(), old, now, zones).map_err(in_option)?;
    Ok(JobSpec {
        key: old.key.clone(),
        name: given_or(args.name.as_deref(), old.name.clone()),
        schedule: read.schedule,
        anchor: read.anchor,
        priority: args.priority.as_deref().map_or(Ok(old.priority), str::parse).map_err(bad)?,
        payload: read_over(&args.payload, Some(&old.payload))?,
        retry: args.retry.read_over(old.retry).map_err(in_option)?,
        spread: read.spread,
        missed: read.missed,
    })
}

pub(super) async fn replay(names: Names, args: ReplayArgs, zones: Zones) -> Result<(), CommandError> {
    let job_key = JobKey::new(&args.tenant, &args.job).map_err(bad)?;
    let run = RunId { job_key, run_key: RunKey::try_from(args.run).map_err(bad)? };
    let Store { aws, ports, .. } = Store::open(names).await?;
    match operations::replay(&ports, &*aws.clock, &zones, &run, &user()).await.map_err(refused)? {
        Replay::TooLate => Err(failed(format!("run {run} may not start any more: its deadline is over"))),
        Replay::Enqueued(replay) => print(format_args!("run {replay} is in its queue")),
        Replay::Stands(latest, status) => Err(CommandError::Failed(format!(
            "run {latest} is {}: only what is dead or indeterminate is replayed",
            status.as_str()
        ))),
        Replay::Missing => Err(bad(format!("there is no run {run}: `punctual runs list {}` shows them", args.job))),
    }
}

pub(super) async fn run_now(names: Names, args: RunNowArgs, zones: Zones) -> Result<(), CommandError> {
    let key = JobKey::new(&args.tenant, &args.id).map_err(bad)?;
    let Store { aws, ports, .. } = Store::open(names).await?;
    let asked = operations::run_now(&ports, &*aws.clock, &zones, &key, args.idempotency_key.as_deref()).await;
    match asked.map_err(refused)? {
        RunNow::Enqueued(run) => print(format_args!("run {run} is in its queue")),
        RunNow::Missing => Err(no_job(&key)),
    }
}

/// Says what came of a change.
fn tell(
    key: &JobKey,
    outcome: Result<Outcome, OperationError>,
    as_json: bool,
    zones: &Zones,
) -> Result<(), CommandError> {
    let (job, what) = match outcome.map_err(refused)? {
        Outcome::Changed(job) => (job, "changed"),
        Outcome::Same(job) => (job, "is as asked already"),
        Outcome::Conflict { version } => {
            let problem = "look at it (`jobs show`) and decide again";
            return Err(failed(format!("job {key} has version {version} by now: {problem}")));
        }
        Outcome::Missing => return Err(no_job(key)),
    };
    if as_json {
        return print(listing::job(key, &JobRead::Job(job), true));
    }
    print(format_args!("job {key} {what}: {}", standing(&job, zones)))
}

/// How a job stands, in words.
fn standing(job: &Job, zones: &Zones) -> String {
    let next = due_next(job, zones).map(|due| format!(", its next run is due at {due}"));
    format!("{}, version {}{}", job.state.as_str(), job.version, next.unwrap_or_default())
}

fn no_job(key: &JobKey) -> CommandError {
    failed(format!("there is no job {key}: `punctual jobs list` shows those that are there"))
}

/// What cannot be taken is wrong input; what the job or the store does not allow now may be allowed later.
fn refused(error: OperationError) -> CommandError {
    match error {
        OperationError::Input(..)
        | OperationError::Refused(..)
        | OperationError::NotAllowed(_, ChangeError::Invalid(_)) => bad(error),
        error => failed(error),
    }
}

#[cfg(test)]
mod tests;

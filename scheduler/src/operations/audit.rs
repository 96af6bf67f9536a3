//! The audit of a job: its versions and rows, fetched and handed to the rule ([`punctual_core::audit`]); and what is missing,
//! enqueued again.

use super::{OperationError, insist};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::audit::{Auditor, Covers, Inquiry, Instant, Summary, Version};
use punctual_core::clock::Clock;
use punctual_core::error::PortError;
use punctual_core::job::{Job, JobKey};
use punctual_core::payload::Payload;
use punctual_core::ports::{BATCH, JobRead, PageToken, Ports, RowPage, RowRead, RowSpan, UnreadableRow, VERSIONS};
use punctual_core::run::{RunKey, RunRow, SkipReason};
use punctual_core::steering::Steering;
use punctual_core::zone::Zones;
use std::time::Duration;

/// Rows read at a time.
const PAGE: usize = 200;
/// Instants that are looked at, at most, before an audit may end and go on later.
const INSTANTS_OF_A_STEP: i64 = 10_000;
/// Rows before the span that are looked through at a time for one whose range may reach into it, and how often: runs by hand
/// and replays may lie in between.
const ROWS_BEFORE: usize = 50;
const PAGES_BEFORE: usize = 100;

/// What is asked of a job.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first instant that is asked about.
    pub from: DateTime<Utc>,
    /// Behind the last one.
    pub to: DateTime<Utc>,
    /// How long a run may be in a queue without a row.
    pub grace: Duration,
}

/// What an audit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// How the instants stand that were looked at.
    pub summary: Summary,
    /// The first instant that was not looked at any more; none = the whole span was.
    pub left_from: Option<DateTime<Utc>>,
}

/// What an audit goes by.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Versions and rows.
    pub ports: &'a Ports,
    /// When it is asked.
    pub now: DateTime<Utc>,
    /// The zone rules.
    pub zones: &'a Zones,
    /// The holds in force.
    pub steering: &'a Steering,
    /// Whether it is to end, to go on later. Asked between steps, each of which is of some thousand instants at most.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

/// Holds what was due of a job against its rows; `tell` hears of each instant, in order.
///
/// # Errors
/// When the store still fails after several tries, or a version or a row cannot be read.
pub async fn audit_job(
    sources: Sources<'_>,
    job: &Job,
    span: Span,
    tell: &mut (dyn FnMut(&Instant) + Send),
) -> Result<Audited, OperationError> {
    let Sources { ports, now, zones, steering, is_over } = sources;
    let key = &job.spec.key;
    let former = versions_of(ports, job, span.from).await?;
    let mut versions: Vec<Version<'_>> = former.iter().map(|job| Version { job, since: job.updated_at }).collect();
    versions.push(Version { job, since: job.updated_at });
    let is_held = steering.hold(key.tenant(), job.spec.priority, &job.spec.payload.target()).is_some();
    let Span { from, to, grace } = span;
    let whole = Inquiry { versions: &versions, from, to, now, grace, is_held, zones };
    let step = step_of(&versions);
    let mut summary = Summary::default();
    // Nothing behind that was due.
    let end = to.min(now + TimeDelta::seconds(2));
    let mut from = from;
    let mut covers = None;
    loop {
        let to = from.checked_add_signed(step).map_or(end, |to| to.min(end));
        let (of_step, left) = audit_step(ports, key, Inquiry { from, to, ..whole }, covers, tell).await?;
        summary.add(&of_step);
        if to >= end {
            return Ok(Audited { summary, left_from: None });
        }
        if is_over() {
            return Ok(Audited { summary, left_from: Some(to) });
        }
        (from, covers) = (to, Some(left));
    }
}

/// A span in which no version of a job fires more often than [`INSTANTS_OF_A_STEP`].
fn step_of(versions: &[Version<'_>]) -> TimeDelta {
    let intervals = versions.iter().filter_map(|version| version.job.spec.schedule.shortest_interval_s());
    intervals.min().map_or(TimeDelta::MAX, |shortest_s| TimeDelta::seconds(shortest_s.max(1) * INSTANTS_OF_A_STEP))
}

/// Looks at a part of the span, going on behind the part before it, if there was one.
async fn audit_step(
    ports: &Ports,
    key: &JobKey,
    asked: Inquiry<'_>,
    covers: Option<Covers>,
    tell: &mut (dyn FnMut(&Instant) + Send),
) -> Result<(Summary, Covers), OperationError> {
    let (now, to) = (asked.now, asked.to);
    let mut auditor = match covers {
        Some(covers) => Auditor::after(covers, asked),
        None => {
            let mut auditor = Auditor::new(asked);
            if let Some(before) = row_before(ports, key, auditor.from()).await? {
                auditor.row(&before, tell);
            }
            auditor
        }
    };
    let span = RowSpan::between(auditor.from(), to.min(now) + TimeDelta::seconds(1));
    let mut after = None;
    loop {
        let page = rows_of(ports, key, span, after, PAGE).await?;
        for read in &page.rows {
            match read {
                RowRead::Row(row) => auditor.row(row, tell),
                RowRead::Unreadable(row) => return Err(unreadable(row)),
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(auditor.finish_part(tell));
        }
    }
}

async fn rows_of(
    ports: &Ports,
    key: &JobKey,
    span: RowSpan,
    after: Option<PageToken>,
    limit: usize,
) -> Result<RowPage, OperationError> {
    let page = insist(|| ports.history.rows(key, span, after.clone(), limit)).await;
    page.map_err(|error| OperationError::Store(key.to_string(), error))
}

fn unreadable(row: &UnreadableRow) -> OperationError {
    OperationError::UnreadableRun(row.id.clone(), row.problem.clone())
}

/// The versions that a job had before this one, without a gap, the oldest first: as far back as to the one that was in force
/// at `from`.
async fn versions_of(ports: &Ports, job: &Job, from: DateTime<Utc>) -> Result<Vec<Job>, OperationError> {
    let key = &job.spec.key;
    let mut former = Vec::new();
    let mut behind = job.version;
    let mut since = job.updated_at;
    while behind > 1 {
        let first = behind.saturating_sub(VERSIONS).max(1);
        let kept = insist(|| ports.jobs.versions(key, first..=behind - 1)).await;
        let mut kept = kept.map_err(|error| OperationError::Store(key.to_string(), error))?;
        for number in (first..behind).rev() {
            match kept.remove(&number) {
                _ if since <= from => break,
                Some(JobRead::Job(mut version)) => {
                    since = version.updated_at;
                    // Nothing is asked of it, and it may be most of what many versions take.
                    version.spec.payload = Payload::Unread(version.spec.payload.handler());
                    former.push(*version);
                }
                Some(JobRead::Unreadable(reason)) => {
                    return Err(OperationError::Unreadable(key.to_string(), reason));
                }
                // Forgotten, with all before it.
                None => {
                    former.reverse();
                    return Ok(former);
                }
            }
        }
        if since <= from {
            break;
        }
        behind = first;
    }
    former.reverse();
    Ok(former)
}

/// The last scheduled row before an instant that stands for a firing: if it stands for a range, that may reach into what
/// follows.
async fn row_before(ports: &Ports, key: &JobKey, at: DateTime<Utc>) -> Result<Option<RunRow>, OperationError> {
    let span = RowSpan { newest_first: true, ..RowSpan::between(DateTime::UNIX_EPOCH, at) };
    let stands = |row: &RunRow| row.id.run_key.is_scheduled() && !row.reason.is_some_and(SkipReason::is_void);
    let mut after = None;
    for _ in 0..PAGES_BEFORE {
        let page = rows_of(ports, key, span, after, ROWS_BEFORE).await?;
        for read in page.rows {
            match read {
                RowRead::Row(row) if stands(&row) => return Ok(Some(*row)),
                RowRead::Row(_) => {}
                RowRead::Unreadable(row) if row.may_be_scheduled() => return Err(unreadable(&row)),
                RowRead::Unreadable(_) => {}
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

/// Enqueues runs of a job's timetable once more, under their own ids; returns how many the queue took.
///
/// # Errors
/// When the job does not allow it, or the queue still fails after several tries; those before are enqueued.
pub async fn requeue(
    ports: &Ports,
    clock: &dyn Clock,
    job: &Job,
    instants: &[DateTime<Utc>],
) -> Result<u64, OperationError> {
    let key = &job.spec.key;
    clock.check().map_err(|off| OperationError::Clock(key.to_string(), off))?;
    let mut sent = 0;
    for some in instants.chunks(BATCH) {
        let bodies: Result<Vec<String>, _> =
            some.iter().map(|at| job.requeue(*at, clock.now()).map(|message| message.encode())).collect();
        let bodies = bodies.map_err(|error| OperationError::NotAllowed(key.to_string(), error))?;
        let send = || async {
            // A repeat of those that were taken is harmless: their ids are the same.
            let results = ports.queue.send(job.spec.priority, &bodies).await?;
            results.into_iter().collect::<Result<Vec<()>, PortError>>()
        };
        insist(send).await.map_err(|error| OperationError::Store(key.to_string(), error))?;
        sent += some.len() as u64;
    }
    Ok(sent)
}

/// The instant of a run of the timetable; none for one by hand, or a replay.
pub fn scheduled_instant(run_key: &RunKey) -> Option<DateTime<Utc>> {
    run_key.is_scheduled().then(|| run_key.instant()).flatten()
}

//! Step 6, *idempotency*: screen, then begin: the conditional write that makes a run this worker's own. How long it is tried,
//! and what becomes of a begin that leads to no call, is `begin.rs`.

use crate::lease::Held;
use crate::pipeline::{Context, Step};
use punctual_core::clock::Stopwatch;
use punctual_core::idempotency::{HELD_WAIT, Hopeless, PutBack, Screen, screen};
use punctual_core::job::{Job, JobKey};
use punctual_core::lease::Wait;
use punctual_core::message::Message;
use punctual_core::ports::{JobRead, PortResult, Put};
use punctual_core::priority::Priority;
use punctual_core::process::random_token;
use punctual_core::run::{Begin, Event, RunRow, RunStatus, SkippedBy, Transition, apply};
use punctual_core::steering::Hold;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A job that this version cannot read may be readable to the next: its messages wait for that.
const UNREADABLE_JOB_WAIT: Duration = Duration::from_secs(60);
/// Work that this worker cannot do waits for one that can.
const NO_HANDLER_WAIT: Duration = Duration::from_secs(30);
/// What is due within this is kept in hand until then: SQS hides for whole seconds only, and whoever sent the message may
/// know the store's time a little better than this process.
const SOON: Duration = Duration::from_secs(1);
/// A message whose run was enqueued longer ago may be a repeat of one that is done.
const NEW: Duration = Duration::from_secs(3_600);
/// Tries of one write whose answer was lost. The row is marked, so that a second try finds out what the first one did.
const WRITE_TRIES: u32 = 4;
const WRITE_PAUSE: Duration = Duration::from_millis(50);

/// What a look at job and row found.
pub(crate) enum Look {
    /// Fit to run.
    Run(Box<Screened>),
    /// Due this soon: not worth putting back, look again then.
    Soon(Duration),
    /// Nothing to call: do this.
    Do(Step),
}

/// A job that was read together with others.
pub(crate) struct JobAsRead {
    pub(crate) job: Option<JobRead>,
    /// Started before the read.
    pub(crate) age: Stopwatch,
}

/// A message that may be run, and what that was decided from.
pub(crate) struct Screened {
    pub(crate) job: Job,
    row: Option<RunRow>,
    /// Started before the reads.
    pub(crate) age: Stopwatch,
}

impl Screened {
    /// Whether a worker began it that is gone.
    pub(crate) fn takes_over(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.status == RunStatus::Running)
    }

    /// Whether attempts were made already.
    pub(crate) fn has_tried(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.attempt > 0)
    }
}

/// What came of begin.
pub(crate) enum Begun {
    /// The run is this worker's: its row is running with its token.
    Mine(Box<RunRow>),
    /// It is not: do this.
    Do(Step),
}

enum Written {
    Row(Box<RunRow>),
    Refused(Step),
}

/// Reads job and row and decides; performs what needs no call.
///
/// The row of a new message is not read where it is fit to run: there is none, and if there is, begin meets it.
pub(crate) async fn look(
    context: &Context,
    held: &Held,
    message: &Message,
    read: Option<JobAsRead>,
) -> PortResult<Look> {
    let Some(steering) = context.steered.current() else { return Ok(Look::Soon(SOON)) };
    let (tenant, priority) = (message.job_key.tenant(), held.delivery.priority);
    if steering.hold_before_reading(tenant, priority).is_some() {
        return Ok(Look::Do(on_hold(context)));
    }
    let id = message.run_id();
    let enqueued_ago = (context.clock.now() - message.first_enqueued_at).to_std().unwrap_or_default();
    let is_new = held.delivery.receive_count <= 1 && enqueued_ago < NEW;
    let read_row = async { if is_new { Ok(None) } else { context.ports.runs.get(&id).await } };
    let read_job = async {
        if let Some(read) = read {
            return Ok(read);
        }
        let age = Stopwatch::start(&*context.clock);
        let mut jobs = context.ports.jobs.get_many(std::slice::from_ref(&message.job_key)).await?;
        Ok(JobAsRead { job: jobs.remove(&message.job_key), age })
    };
    let (JobAsRead { job, age }, mut row) = tokio::try_join!(read_job, read_row)?;
    let hold =
        job.as_ref().and_then(JobRead::job).and_then(|job| steering.hold(tenant, priority, &job.spec.payload.target()));
    if is_new && !is_fit(context, message, job.as_ref(), hold) {
        row = context.ports.runs.get(&id).await?;
    }
    // What has ended has ended, whatever became of its job since.
    if let Some(ended) = row.as_ref().filter(|row| row.has_ended()) {
        context.metrics.repeats.increment(1);
        return Ok(Look::Do(Step::Settle(ended.status, ended.error.clone())));
    }
    let job = match job {
        Some(JobRead::Unreadable(reason)) => {
            tracing::error!(reason, "a job cannot be read: its runs wait until it can");
            let wait = Wait::Growing(UNREADABLE_JOB_WAIT);
            return Ok(Look::Do(Step::PutBack { wait, why: "its job cannot be read" }));
        }
        Some(JobRead::Job(job)) => Some(*job),
        None => None,
    };
    let now = context.clock.now();
    let takeover_grace = context.settings.takeover_grace;
    let event = match (screen(message, job.as_ref(), row.as_ref(), hold, now, &context.zones), job) {
        (Screen::Run, Some(job)) if !context.gateway.serves(job.spec.payload.handler()) => {
            let handler = job.spec.payload.handler().as_str();
            tracing::warn!(handler, "this worker has nothing configured for a run: it waits for one that has");
            let why = "this worker cannot do it";
            return Ok(Look::Do(Step::PutBack { wait: Wait::Growing(NO_HANDLER_WAIT), why }));
        }
        (Screen::Run, Some(job)) => {
            // A row that would refuse begin needs neither slot nor permit.
            let begin = begin_event(context, &job, "");
            return Ok(match apply(row.as_ref(), &message.facts(), &Event::Begin(begin), now, "") {
                Transition::Write(_) => Look::Run(Box::new(Screened { job, row, age })),
                Transition::LookLater { at } => Look::Do(look_later(context, at)),
                Transition::Refused(status) => Look::Do(refused(context, row.as_ref(), status)),
            });
        }
        (Screen::Run, None) => return Ok(Look::Do(letter(Hopeless::NoJob))),
        (Screen::Void { void_gen, reason }, _) => Event::Void { void_gen, reason, takeover_grace },
        (Screen::Skip(reason), _) => Event::Skip { reason, range: None, by: SkippedBy::Worker, takeover_grace },
        (Screen::PutBack { wait, why: PutBack::NotDue, .. }, _) if wait <= SOON => return Ok(Look::Soon(wait)),
        (Screen::PutBack { wait, why, grows }, _) => {
            context.metrics.put_back(why);
            let wait = if grows { Wait::Growing(wait) } else { Wait::For(wait) };
            return Ok(Look::Do(Step::PutBack { wait, why: why.as_str() }));
        }
        (Screen::DeadLetter(why), _) => return Ok(Look::Do(letter(why))),
    };
    Ok(Look::Do(match write(context, message, row, &event).await? {
        Written::Row(row) => ended(context, *row),
        Written::Refused(step) => step,
    }))
}

/// Whether a message may be run if it has no row.
fn is_fit(context: &Context, message: &Message, job: Option<&JobRead>, hold: Option<&Hold>) -> bool {
    let job = job.and_then(JobRead::job);
    job.is_some() && screen(message, job, None, hold, context.clock.now(), &context.zones) == Screen::Run
}

/// Reads the jobs of several messages in one call; none for what could not be read, which is then looked at by itself.
pub(crate) async fn read_jobs(context: &Context, held: &[Arc<Held>]) -> Vec<Option<JobAsRead>> {
    let age = Stopwatch::start(&*context.clock);
    let keys: Vec<Option<JobKey>> =
        held.iter().map(|held| held.message.as_ref().ok().map(|message| message.job_key.clone())).collect();
    let steering = context.steered.current();
    let is_held = |key: &JobKey, held: &Held| {
        steering.as_ref().is_none_or(|s| s.hold_before_reading(key.tenant(), held.delivery.priority).is_some())
    };
    let wanted = keys.iter().zip(held).filter_map(|(key, held)| key.clone().filter(|key| !is_held(key, held)));
    let wanted: BTreeSet<JobKey> = wanted.collect();
    let wanted: Vec<JobKey> = wanted.into_iter().collect();
    if wanted.is_empty() || context.clock.check().is_err() {
        return keys.iter().map(|_| None).collect();
    }
    match context.ports.jobs.get_many(&wanted).await {
        Ok(jobs) => {
            let read = |key: JobKey| wanted.contains(&key).then(|| JobAsRead { job: jobs.get(&key).cloned(), age });
            keys.into_iter().map(|key| key.and_then(read)).collect()
        }
        Err(_) => keys.iter().map(|_| None).collect(),
    }
}

/// Whether a run may be begun by what is known of holds.
pub(crate) fn is_free(
    context: &Context,
    priority: Priority,
    message: &Message,
    screened: &Screened,
) -> Result<(), Step> {
    let Some(steering) = context.steered.current() else {
        return Err(Step::PutBack { wait: Wait::For(SOON), why: "holds are not known" });
    };
    match steering.hold(message.job_key.tenant(), priority, &screened.job.spec.payload.target()) {
        Some(_) => Err(on_hold(context)),
        None => Ok(()),
    }
}

/// Makes the run this worker's own.
pub(crate) async fn begin(context: &Context, message: &Message, screened: &Screened, token: &str) -> PortResult<Begun> {
    let event = Event::Begin(begin_event(context, &screened.job, token));
    Ok(match write(context, message, screened.row.clone(), &event).await? {
        Written::Row(row) if row.status == RunStatus::Running => {
            if screened.takes_over() {
                context.metrics.takeovers.increment(1);
                context.metrics.lost(screened.job.spec.payload.handler());
            }
            Begun::Mine(row)
        }
        // No attempt left, or a repeat that a person must decide about.
        Written::Row(row) => Begun::Do(ended(context, *row)),
        Written::Refused(step) => Begun::Do(step),
    })
}

/// Puts a message under a hold back.
pub(crate) fn on_hold(context: &Context) -> Step {
    context.metrics.put_back(PutBack::Held);
    Step::PutBack { wait: Wait::Growing(HELD_WAIT), why: PutBack::Held.as_str() }
}

fn begin_event<'a>(context: &'a Context, job: &Job, token: &'a str) -> Begin<'a> {
    Begin {
        token,
        worker: &context.id,
        job_version: job.version,
        lease: context.settings.row_lease,
        takeover_grace: context.settings.takeover_grace,
        rule: job.spec.retry,
        gateway: context.settings.policy(&job.spec.payload),
    }
}

/// Applies an event to the row until it is written or refused.
async fn write(
    context: &Context,
    message: &Message,
    mut row: Option<RunRow>,
    event: &Event<'_>,
) -> PortResult<Written> {
    let write_token = random_token();
    loop {
        if let (Event::Begin(begin), Some(row)) = (event, &row)
            && row.status == RunStatus::Running
            && row.owner.as_deref() == Some(begin.token)
        {
            // An earlier try of this very begin, whose answer was lost.
            return Ok(Written::Row(Box::new(row.clone())));
        }
        match apply(row.as_ref(), &message.facts(), event, context.clock.now(), &write_token) {
            Transition::Write(new) => match put(context, &new).await? {
                Put::Written => return Ok(Written::Row(new)),
                Put::Conflict(current) => row = current.map(|row| *row),
            },
            Transition::LookLater { at } => return Ok(Written::Refused(look_later(context, at))),
            Transition::Refused(status) => return Ok(Written::Refused(refused(context, row.as_ref(), status))),
        }
    }
}

/// Writes a row; where the answer is lost, writes the very same row again and so learns what became of it.
pub(crate) async fn put(context: &Context, row: &RunRow) -> PortResult<Put> {
    let mut tries = 1;
    loop {
        match context.ports.runs.put(row).await {
            // Also a failure that says nothing was written: a try before it may have been.
            Err(error) if error.may_pass() && tries < WRITE_TRIES => {
                tokio::time::sleep(WRITE_PAUSE * 2u32.pow(tries)).await;
                tries += 1;
            }
            result => return result,
        }
    }
}

fn ended(context: &Context, row: RunRow) -> Step {
    context.metrics.ended(row.status);
    if let Some(reason) = row.reason.filter(|_| row.status == RunStatus::Skipped) {
        context.metrics.skipped(reason);
    }
    Step::Settle(row.status, row.error)
}

fn letter(why: Hopeless) -> Step {
    Step::Letter { word: why.as_str(), reason: why.reason().into() }
}

fn look_later(context: &Context, at: chrono::DateTime<chrono::Utc>) -> Step {
    let wait = (at - context.clock.now()).to_std().unwrap_or_default();
    Step::PutBack { wait: Wait::For(wait), why: "held, or inside its back-off" }
}

fn refused(context: &Context, row: Option<&RunRow>, status: RunStatus) -> Step {
    context.metrics.repeats.increment(1);
    Step::Settle(status, row.and_then(|row| row.error.clone()))
}

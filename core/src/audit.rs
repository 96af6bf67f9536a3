//! Step 9, *record*: whether everything that was due was done: each instant of a job's calendar, held against its rows.
//!
//! What was due follows from the job's versions alone (`calendar`), what became of it from the rows, so that neither
//! vouches for itself. Where a row is missing, three things explain it and nothing else: the job has not come to the
//! instant yet, its run may still be in a queue, or a cancel ended it first.
//!
//! Invariant: **each instant of the span that was due is told once, in ascending order, with one standing**, and the
//! standings of a [`Summary`] add up to its `due`. An instant without a row that the job has passed, older than the
//! grace and not held back, is told as missing and as nothing else. That is a question and no proof: its message may
//! still wait, when it was dispatched late. To queue it again is harmless ([`Job::requeue`]).
//!
//! Times are placed by the zone rules of today: where those of a zone changed meanwhile, a run that was placed by the
//! former ones is counted as beside the calendar, and its instant by the present ones may be told as missing.
//!
//! Memory does not grow with the span. Nothing here reads a clock or the store, and nothing is ever written.

mod calendar;

use crate::job::{Job, JobState, RETENTION, decides_from};
use crate::run::{RunRow, RunStatus, SkipReason};
use crate::schedule::whole_second;
use crate::zone::Zones;
use calendar::{Calendar, Due};
use chrono::{DateTime, TimeDelta, Utc};
use std::collections::BTreeMap;
use std::time::Duration;

/// A job as it stood when its next version was written, or as it stands now.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The job.
    pub job: &'a Job,
    /// The moment at which the change that made this version was decided; for the first one, when the job was made.
    pub since: DateTime<Utc>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Inquiry<'a> {
    /// The job's versions without a gap, the oldest first, the last as the job stands. The oldest may be forgotten.
    pub versions: &'a [Version<'a>],
    /// The first instant that is asked about.
    pub from: DateTime<Utc>,
    /// Behind the last one. What lies behind `now` is left out: it was not due yet.
    pub to: DateTime<Utc>,
    /// When it is asked.
    pub now: DateTime<Utc>,
    /// How long after it was due, or after the end of a pause, a run may be in a queue without a row.
    pub grace: Duration,
    /// Whether a hold stands over the job's runs: then they may be in a queue for however long.
    pub is_held: bool,
    /// The zone rules.
    pub zones: &'a Zones,
}

/// An instant that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// The nominal instant, the identity of the run.
    pub scheduled_at: DateTime<Utc>,
    /// When the run should have started.
    pub due_at: DateTime<Utc>,
    /// What became of it.
    pub standing: Standing,
}

/// What became of an instant that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A row says how it ended: its own, or one that stands for a range of skipped firings.
    Row {
        /// Where the run stands.
        status: RunStatus,
        /// Why it was skipped.
        reason: Option<SkipReason>,
        /// How its replay stands: one that succeeded, or else the last one made.
        replayed: Option<RunStatus>,
    },
    /// It was owed, and not yet dispatched, when its job was cancelled.
    Cancelled,
    /// It has not ended.
    Open(Open),
    /// The job passed it, and nothing says what became of it.
    Missing,
}

impl Standing {
    /// Whether nobody needs to look: it was delivered, by a replay perhaps, or left out for a reason, or is on its way.
    pub fn is_fine(&self) -> bool {
        match self {
            Standing::Row { replayed: Some(RunStatus::Succeeded), .. } | Standing::Cancelled | Standing::Open(_) => {
                true
            }
            Standing::Row { status, .. } => matches!(status, RunStatus::Succeeded | RunStatus::Skipped),
            Standing::Missing => false,
        }
    }
}

/// Where an instant is that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Open {
    /// The job has not come to it, however late it is: dispatch will.
    NotDispatched,
    /// Its run may be in a queue.
    Queued,
    /// A worker holds its run.
    Running,
    /// Its run waits for its next attempt.
    Retrying,
    /// The job is paused: it waits, dispatched or not.
    Paused,
    /// The job is set aside for a person, and has not come to it.
    Quarantined,
}

impl Open {
    /// The word for tables and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Open::NotDispatched => "not_dispatched",
            Open::Queued => "queued",
            Open::Running => "running",
            Open::Retrying => "retrying",
            Open::Paused => "paused",
            Open::Quarantined => "quarantined",
        }
    }
}

/// How many instants stand how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// All that were due: the sum of those below, `replayed` and `beside` left out.
    pub due: u64,
    /// Delivered.
    pub succeeded: u64,
    /// Refused for good.
    pub failed: u64,
    /// Not run, by the word for the reason. Those that a cancel ended before they were dispatched are among them.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Attempts used up.
    pub dead: u64,
    /// Nobody knows whether it went out.
    pub indeterminate: u64,
    /// Not ended.
    pub open: BTreeMap<Open, u64>,
    /// Passed, and nothing says what became of it.
    pub missing: u64,
    /// Of the failed, dead and indeterminate ones: those of which a replay succeeded.
    pub replayed: u64,
    /// Rows of the span at instants at which nothing was due, without those that say only that nothing was done.
    pub beside: u64,
}

impl Summary {
    /// Counts one instant.
    pub fn count(&mut self, standing: &Standing) {
        self.due += 1;
        let place = match standing {
            Standing::Row { status, reason, .. } => match status {
                RunStatus::Succeeded => &mut self.succeeded,
                RunStatus::Failed => &mut self.failed,
                RunStatus::Dead => &mut self.dead,
                RunStatus::Indeterminate => &mut self.indeterminate,
                RunStatus::Running => self.open.entry(Open::Running).or_default(),
                RunStatus::Retrying => self.open.entry(Open::Retrying).or_default(),
                RunStatus::Skipped => self.skipped.entry(reason.map_or("unknown", SkipReason::as_str)).or_default(),
            },
            Standing::Cancelled => self.skipped.entry(SkipReason::Cancelled.as_str()).or_default(),
            Standing::Open(open) => self.open.entry(*open).or_default(),
            Standing::Missing => &mut self.missing,
        };
        *place += 1;
        if let Standing::Row { replayed: Some(RunStatus::Succeeded), .. } = standing {
            self.replayed += 1;
        }
    }

    /// Adds what was found of another job, or another span.
    pub fn add(&mut self, other: &Summary) {
        let Summary { due, succeeded, failed, skipped, dead, indeterminate, open, missing, replayed, beside } = other;
        for (sum, more) in [
            (&mut self.due, due),
            (&mut self.succeeded, succeeded),
            (&mut self.failed, failed),
            (&mut self.dead, dead),
            (&mut self.indeterminate, indeterminate),
            (&mut self.missing, missing),
            (&mut self.replayed, replayed),
            (&mut self.beside, beside),
        ] {
            *sum += more;
        }
        for (reason, more) in skipped {
            *self.skipped.entry(reason).or_default() += more;
        }
        for (open, more) in open {
            *self.open.entry(*open).or_default() += more;
        }
    }
}

/// Holds the rows of one job against its calendar, as they come.
#[derive(Debug)]
pub struct Auditor<'a> {
    asked: Inquiry<'a>,
    grace: TimeDelta,
    /// The job is paused now.
    is_paused: bool,
    /// When the last pause ended: until then messages were put back.
    resumed_at: Option<DateTime<Utc>>,
    calendar: Calendar<'a>,
    /// The instant that comes next.
    next: Option<Due>,
    /// The last instant that has a row: its replays may follow.
    found: Option<(Due, Own)>,
    /// Rows that stand for firings yet to come. A later life that begins in the past has ranges beside a former one's.
    covers: Vec<Cover>,
    summary: Summary,
}

/// What one part of an audit hands to the next.
#[derive(Clone, Debug, Default)]
pub struct Covers(Vec<Cover>);

/// What a row says of its own instant.
#[derive(Clone, Copy, Debug)]
struct Own {
    status: RunStatus,
    reason: Option<SkipReason>,
    void_gen: Option<u64>,
    due_at: DateTime<Utc>,
    replayed: Option<(RunStatus, DateTime<Utc>)>,
}

/// A row that stands for several firings.
#[derive(Clone, Copy, Debug)]
struct Cover {
    to: DateTime<Utc>,
    reason: Option<SkipReason>,
    generation: u64,
}

impl<'a> Auditor<'a> {
    /// Begins with what is due. Instants are left out whose rows may have been deleted, and those of versions that are
    /// forgotten: [`Self::from`] says where it begins.
    pub fn new(asked: Inquiry<'a>) -> Self {
        // Instants are whole seconds.
        let up = |at: DateTime<Utc>| whole_second(at) + TimeDelta::seconds(i64::from(at > whole_second(at)));
        let to = up(asked.to.min(decides_from(asked.now)));
        let known_from = calendar::known_from(asked.versions).unwrap_or(to);
        let from = up(asked.from.max(asked.now - RETENTION).max(known_from));
        let asked = Inquiry { from, to, ..asked };
        let mut calendar = Calendar::new(asked.versions, (from, to), asked.zones);
        let paused = |version: &Version<'_>| version.job.state == JobState::Paused;
        let resumed = asked.versions.windows(2).filter(|two| paused(&two[0]) && !paused(&two[1]));
        Auditor {
            asked,
            grace: TimeDelta::from_std(asked.grace).unwrap_or(TimeDelta::MAX),
            is_paused: asked.versions.last().is_some_and(paused),
            resumed_at: resumed.map(|two| two[1].since).max(),
            next: calendar.next(),
            calendar,
            found: None,
            covers: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Goes on behind a part that ended where this one begins. It needs no rows before that.
    pub fn after(covers: Covers, asked: Inquiry<'a>) -> Self {
        Auditor { covers: covers.0, ..Self::new(asked) }
    }

    /// The first instant that is looked at.
    pub fn from(&self) -> DateTime<Utc> {
        self.asked.from
    }

    /// Takes the next row, in ascending order of run keys, and tells the instants that are settled by that. Of the rows
    /// before the span it needs those from the last firing's on that is not void: a range may reach into it.
    pub fn row(&mut self, row: &RunRow, tell: &mut dyn FnMut(&Instant)) {
        let key = &row.id.run_key;
        let Some(at) = key.instant() else { return };
        if !key.is_scheduled() {
            if key.original().is_scheduled() {
                self.replay(at, row);
            }
            return;
        }
        self.tell_found(tell);
        self.tell_up_to(Some(at), tell);
        match self.next.filter(|next| next.at == at) {
            Some(due) => {
                self.found = Some((due, Own::of(row)));
                self.next = self.calendar.next();
            }
            None => self.count_beside(at, row),
        }
        self.covers.retain(|cover| cover.to >= at);
        self.covers.extend(Cover::of(row));
    }

    /// Tells the instants that are left, and says how many stand how.
    pub fn finish(self, tell: &mut dyn FnMut(&Instant)) -> Summary {
        self.finish_part(tell).0
    }

    /// The same, for another part to go on.
    pub fn finish_part(mut self, tell: &mut dyn FnMut(&Instant)) -> (Summary, Covers) {
        self.tell_found(tell);
        self.tell_up_to(None, tell);
        (self.summary, Covers(self.covers))
    }

    fn replay(&mut self, at: DateTime<Utc>, row: &RunRow) {
        let Some((_, own)) = self.found.as_mut().filter(|(due, _)| due.at == at) else { return };
        let rank = |(status, made_at): (RunStatus, DateTime<Utc>)| (status == RunStatus::Succeeded, made_at);
        let replay = (row.status, row.first_enqueued_at);
        if own.replayed.is_none_or(|other| rank(other) < rank(replay)) {
            own.replayed = Some(replay);
        }
    }

    /// A row at an instant at which nothing was due: something was done about it all the same, unless it is void.
    fn count_beside(&mut self, at: DateTime<Utc>, row: &RunRow) {
        let is_asked = self.asked.from <= at && at < self.asked.to;
        let is_void = row.status == RunStatus::Skipped && row.reason.is_some_and(SkipReason::is_void);
        if is_asked && !is_void {
            self.summary.beside += 1;
        }
    }

    fn tell_found(&mut self, tell: &mut dyn FnMut(&Instant)) {
        if let Some((due, own)) = self.found.take() {
            let of_row = own.standing(due.generation);
            let due_at = of_row.map_or(due.due_at, |_| own.due_at);
            let standing = of_row.unwrap_or_else(|| self.without_row(&due));
            self.tell(&Instant { scheduled_at: due.at, due_at, standing }, tell);
        }
    }

    /// Tells the instants before this one, or all, which have no row.
    fn tell_up_to(&mut self, end: Option<DateTime<Utc>>, tell: &mut dyn FnMut(&Instant)) {
        while let Some(due) = self.next.filter(|next| end.is_none_or(|end| next.at < end)) {
            let standing = self.without_row(&due);
            self.tell(&Instant { scheduled_at: due.at, due_at: due.due_at, standing }, tell);
            self.next = self.calendar.next();
        }
    }

    fn tell(&mut self, instant: &Instant, tell: &mut dyn FnMut(&Instant)) {
        self.summary.count(&instant.standing);
        tell(instant);
    }

    /// What became of an instant of which no row of its own says how it ended.
    fn without_row(&self, due: &Due) -> Standing {
        // A range that another timetable counted says nothing about the firings of this one.
        let cover = self.covers.iter().find(|cover| due.at <= cover.to && cover.generation == due.generation);
        if let Some(Cover { reason, .. }) = cover {
            return Standing::Row { status: RunStatus::Skipped, reason: *reason, replayed: None };
        }
        if let Some(standing) = due.not_passed {
            return standing;
        }
        if self.is_paused {
            return Standing::Open(Open::Paused);
        }
        let waits_since = self.resumed_at.map_or(due.due_at, |resumed_at| due.due_at.max(resumed_at));
        if self.asked.is_held || self.asked.now - waits_since <= self.grace {
            return Standing::Open(Open::Queued);
        }
        Standing::Missing
    }
}

impl Own {
    fn of(row: &RunRow) -> Self {
        Own { status: row.status, reason: row.reason, void_gen: row.void_gen, due_at: row.due_at, replayed: None }
    }

    /// What the row says of an instant that `generation` decides; none = that generation may still run it.
    fn standing(&self, generation: u64) -> Option<Standing> {
        let is_later = self.void_gen.is_none_or(|void_gen| void_gen > generation);
        match (self.status, self.reason) {
            (RunStatus::Running, _) => Some(Standing::Open(Open::Running)),
            (RunStatus::Retrying, _) => Some(Standing::Open(Open::Retrying)),
            (RunStatus::Skipped, Some(SkipReason::Superseded)) => None,
            (RunStatus::Skipped, Some(SkipReason::Cancelled)) if !is_later => None,
            (status, reason) => {
                let replayed = self.replayed.map(|(status, _)| status);
                Some(Standing::Row { status, reason, replayed })
            }
        }
    }
}

impl Cover {
    fn of(row: &RunRow) -> Option<Self> {
        let range = row.range.filter(|_| row.status == RunStatus::Skipped)?;
        Some(Cover { to: range.to, reason: row.reason, generation: row.generation })
    }
}

#[cfg(test)]
mod tests;

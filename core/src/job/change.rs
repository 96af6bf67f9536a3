//! Step 1, *job*: what people do to a job that is there.
//!
//! A change is a function of the job as read, what is asked and now; its result is written only if the job still stands
//! where it was read. A change of the timetable *decides anew from its own moment*, and does three things to what was
//! decided before: an instant that is owed stays owed, what is queued for earlier instants stays valid, and what was
//! queued for the owed instant or later ones is void, because the job comes to it again.

use super::{Advanced, Job, JobError, JobKey, JobSpec, JobState, Passed, RETENTION, Timetable, next_generation};
use crate::due::DueBucket;
use crate::payload::Payload;
use crate::schedule::{Anchor, Firing, Schedule, whole_second};
use chrono::{DateTime, TimeDelta, Utc};

/// What a person asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Make the job what this says.
    Edit(Box<JobSpec>),
    /// Hold its runs back, and let it fire no more until it is resumed.
    Pause,
    /// End a pause.
    Resume,
    /// End it for good, with all that is queued.
    Cancel,
    /// Make it again, over what is left of a cancelled or done one. What a done one has queued still runs.
    Recreate(Box<JobSpec>),
    /// Let a quarantined job fire again.
    Release,
    /// End it as a cancel does, and erase what it was to do. Its place is kept for as long as messages of it can exist.
    Erase,
}

/// What a change comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// There is nothing to write.
    Same,
    /// This is to be written.
    To(Box<Job>),
}

/// Why a change cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The specification cannot be taken, or leaves no firing.
    #[error(transparent)]
    Invalid(#[from] JobError),
    /// The specification is another job's.
    #[error("a change keeps the key, and this one says {0}: create another job instead")]
    OtherKey(JobKey),
    /// The job is in a state that does not allow it.
    #[error("it is {}: {instead}", .state.as_str())]
    State {
        /// Its state.
        state: JobState,
        /// What to do instead.
        instead: &'static str,
    },
    /// The job has nothing to come.
    #[error("it has no next firing: edit its schedule")]
    NoFiring,
}

impl Job {
    /// What the job is after `change` at `now`. `edit_token` is fresh and random; `by` says who asks.
    ///
    /// # Errors
    /// When the change cannot be; says what to do instead.
    pub fn change(
        &self,
        change: &Change,
        now: DateTime<Utc>,
        world: &Timetable<'_>,
        edit_token: String,
        by: &str,
    ) -> Result<Changed, ChangeError> {
        let next = match change {
            Change::Edit(spec) => self.edited(spec, now, world)?,
            Change::Pause => self.paused()?,
            Change::Resume => self.resumed(now, world)?,
            Change::Cancel => self.cancelled(now),
            Change::Recreate(spec) => Some(self.recreated(spec, now, world)?),
            Change::Release => self.released(now, world)?,
            Change::Erase => self.erased(now),
        };
        let version = self.version + 1;
        let written = next.map(|job| Job { version, edit_token, updated_by: by.to_owned(), updated_at: now, ..job });
        Ok(written.map_or(Changed::Same, |job| Changed::To(Box::new(job))))
    }

    fn edited(&self, asked: &JobSpec, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<Option<Job>, ChangeError> {
        if asked.key != self.spec.key {
            return Err(ChangeError::OtherKey(asked.key.clone()));
        }
        if self.state == JobState::Cancelled {
            return Err(self.refused("create it again"));
        }
        if asked.is_met_by(&self.spec) {
            return Ok(None);
        }
        let spec = asked.clone().keeping_an_unstated_anchor(&self.spec.schedule);
        spec.check()?;
        let mut job = Job { spec, ..self.clone() };
        if job.state == JobState::Quarantined {
            (job.state, job.error) = (JobState::Active, None);
        }
        if job.must_decide_anew(self, now) {
            job.decide_anew(self, now, world)?;
        }
        job.file(now, world);
        Ok(Some(job))
    }

    /// Whether an edit that made this of `old` changes what is queued, or finds nothing to go on from.
    fn must_decide_anew(&self, old: &Job, now: DateTime<Utc>) -> bool {
        let is_rescheduled = self.spec.schedule != old.spec.schedule;
        let has_ahead = old.sent_ahead(now).is_some();
        if old.is_over() && !has_ahead {
            // Nothing is to come that another queue, window or rule could concern.
            return is_rescheduled;
        }
        let placed = |spec: &JobSpec| (spec.priority, spec.spread.clone(), spec.missed);
        let has_next = old.next_scheduled_at.is_some() && old.next_due_at.is_some();
        is_rescheduled || placed(&self.spec) != placed(&old.spec) || !(has_next || has_ahead)
    }

    /// Decides by this job's own specification where it stands, `old` being what it was until now.
    fn decide_anew(&mut self, old: &Job, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<(), ChangeError> {
        let ahead = old.sent_ahead(now);
        let max_runs = self.spec.schedule.max_runs;
        // A series that is over has nothing left: another timetable is a new one.
        let is_new_series = max_runs != old.spec.schedule.max_runs || (old.is_over() && ahead.is_none());
        self.runs_left = match ahead {
            _ if is_new_series => max_runs,
            // It was counted, and will be again.
            Some(passed) => passed.runs_left,
            None => old.runs_left,
        };
        self.generation = next_generation(Some(old.generation), now);
        let boundary = match old.next().filter(|owed| owed.at <= now) {
            Some(owed) => {
                self.keep_owed(old, &owed, now, world);
                owed.at
            }
            None => {
                self.stand_ahead(old, now, world)?;
                decides_from(now)
            }
        };
        self.passed = None;
        self.voids.push(self.generation, boundary);
        Ok(())
    }

    /// Keeps the owed firing as the next one.
    fn keep_owed(&mut self, old: &Job, owed: &Firing, now: DateTime<Utc>, world: &Timetable<'_>) {
        let (new_schedule, old_schedule) = (&self.spec.schedule, &old.spec.schedule);
        // A run that is late already keeps its deadline.
        if old.next_due_at.is_none_or(|due_at| due_at > now) {
            self.next_due_at = Some(self.spec.due_at(owed).max(whole_second(now)));
        }
        if new_schedule != old_schedule {
            let following = old.following(owed, old.runs_left.map(|left| left.saturating_sub(1)), world.zones);
            // Several are owed: the new timetable takes over from the first of them, so that their span is accounted for.
            let is_backlog = following.is_some_and(|next| next.at <= now);
            self.decided_at = if is_backlog { old.decided_at } else { Some(whole_second(now)) };
        }
        if (&new_schedule.timing, new_schedule.tz) != (&old_schedule.timing, old_schedule.tz) {
            // The wall time of another timetable holds back nothing of this one.
            (self.next_wall, self.tzdb) = (None, new_schedule.follows(world.zones));
        }
    }

    /// Puts the job at a firing that lies ahead: where `old` stood, if the timetable is the same, or at the first one.
    fn stand_ahead(&mut self, old: &Job, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<(), ChangeError> {
        let over = || JobError::Over(self.spec.schedule.to_string());
        let is_rescheduled = self.spec.schedule != old.spec.schedule;
        // What was sent ahead is void: the job comes to it again.
        let stood = || old.sent_ahead(now).map(|passed| passed.firing).or(old.next());
        let kept = if is_rescheduled { None } else { stood() };
        let tzdb = old.tzdb.clone().filter(|_| kept.is_some());
        let next = kept.or_else(|| self.spec.schedule.next_after(now, world.zones)).ok_or_else(over)?;
        let mut next = self.to_fire(&next, self.runs_left, now, world);
        next.tzdb = tzdb.or(next.tzdb);
        let state = if self.state == JobState::Paused { JobState::Paused } else { JobState::Active };
        self.advance(&Advanced { state, ..Advanced::at(next) });
        Ok(())
    }

    /// The firing that waits in a queue with a delay, if a change at `now` can still decide about it. There is one at most:
    /// dispatch sends no further ahead than the shortest interval.
    fn sent_ahead(&self, now: DateTime<Utc>) -> Option<&Passed> {
        self.passed.as_ref().filter(|passed| passed.firing.at >= decides_from(now))
    }

    /// Whether nothing is to come by itself: its schedule is over, on hold or not.
    fn is_over(&self) -> bool {
        self.next_scheduled_at.is_none() && matches!(self.state, JobState::Done | JobState::Paused)
    }

    fn paused(&self) -> Result<Option<Job>, ChangeError> {
        match self.state {
            JobState::Paused => Ok(None),
            // Also what a done one has queued.
            JobState::Active | JobState::Done => {
                Ok(Some(Job { state: JobState::Paused, due_bucket: None, ..self.clone() }))
            }
            JobState::Cancelled => Err(self.refused("nothing of it runs any more")),
            JobState::Quarantined => Err(self.refused("release or edit it first")),
        }
    }

    fn resumed(&self, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<Option<Job>, ChangeError> {
        match self.state {
            JobState::Active => Ok(None),
            JobState::Paused if self.is_over() => {
                let expires_at = self.expires_at.or(Some(whole_second(now) + RETENTION));
                Ok(Some(Job { state: JobState::Done, expires_at, ..self.clone() }))
            }
            JobState::Paused => self.active_again(now, world).map(Some),
            JobState::Done => Err(self.refused("edit its schedule to let it fire again")),
            JobState::Cancelled => Err(self.refused("create it again")),
            JobState::Quarantined => Err(self.refused("release or edit it instead")),
        }
    }

    fn released(&self, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<Option<Job>, ChangeError> {
        match self.state {
            JobState::Active => Ok(None),
            JobState::Quarantined => self.active_again(now, world).map(Some),
            JobState::Paused => Err(self.refused("resume it instead")),
            JobState::Done => Err(self.refused("edit its schedule to let it fire again")),
            JobState::Cancelled => Err(self.refused("create it again")),
        }
    }

    /// The job where it stands, firing. What fell due meanwhile is owed: the missed-run rule decides about it.
    fn active_again(&self, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<Job, ChangeError> {
        if self.next_scheduled_at.is_none() || self.next_due_at.is_none() {
            return Err(ChangeError::NoFiring);
        }
        let mut job = Job { state: JobState::Active, error: None, ..self.clone() };
        job.file(now, world);
        Ok(job)
    }

    /// What is left keeps the generation for as long as messages of it can exist.
    fn cancelled(&self, now: DateTime<Utc>) -> Option<Job> {
        if self.state == JobState::Cancelled {
            return None;
        }
        let mut job = self.clone();
        let expires_at = Some(whole_second(now) + RETENTION);
        job.advance(&Advanced { state: JobState::Cancelled, next: None, passed: None, expires_at });
        job.error = None;
        job.generation = next_generation(Some(self.generation), now);
        job.voids.push(job.generation, DateTime::UNIX_EPOCH);
        Some(job)
    }

    fn erased(&self, now: DateTime<Utc>) -> Option<Job> {
        if self.is_erased {
            return None;
        }
        let mut job = self.cancelled(now).unwrap_or_else(|| self.clone());
        job.spec = JobSpec { name: None, payload: Payload::Noop, spread: None, ..job.spec };
        job.is_erased = true;
        Some(job)
    }

    fn recreated(&self, spec: &JobSpec, now: DateTime<Utc>, world: &Timetable<'_>) -> Result<Job, ChangeError> {
        if spec.key != self.spec.key {
            return Err(ChangeError::OtherKey(spec.key.clone()));
        }
        let made = || Job::create(spec.clone(), now, world, Some(self.generation), String::new(), "");
        match self.state {
            JobState::Cancelled => Ok(made()?),
            JobState::Done => {
                // Nobody ended what it has queued.
                let mut job = made()?;
                job.voids = self.voids.clone();
                job.voids.push(job.generation, decides_from(now));
                Ok(job)
            }
            JobState::Active | JobState::Paused => Err(self.refused("edit it, or cancel it first")),
            JobState::Quarantined => Err(self.refused("release or edit it, or cancel it first")),
        }
    }

    /// Puts the job into the due index, or out of it: into a minute that its reader has not left behind.
    fn file(&mut self, now: DateTime<Utc>, world: &Timetable<'_>) {
        let shard = world.shards.of(&self.spec.key, self.spec.priority);
        let due_at = self.next_due_at.filter(|_| self.state == JobState::Active);
        self.due_bucket = due_at.map(|due_at| DueBucket::for_write(due_at, now, shard));
    }

    fn refused(&self, instead: &'static str) -> ChangeError {
        ChangeError::State { state: self.state, instead }
    }
}

/// From which instant on a change at `now` decides: the first one that lies ahead.
pub(crate) fn decides_from(now: DateTime<Utc>) -> DateTime<Utc> {
    whole_second(now) + TimeDelta::seconds(1)
}

impl JobSpec {
    /// This specification, counted from the anchor of `old` where its own follows from when it was read and its interval
    /// is the same: an anchor that nobody stated is no change.
    fn keeping_an_unstated_anchor(mut self, old: &Schedule) -> Self {
        if self.anchor == Anchor::Implied {
            let anchored = self.schedule.clone().anchored_as(old);
            if anchored.timing == old.timing {
                self.schedule = anchored;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;

//! The reference model: what must have become of each instant of each job, from the history of changes alone.
//!
//! A job's life is cut into *stretches*, each decided by one generation: where the job stood when the change was written,
//! by which calendar it goes on from there, and from which instant on what was decided before is void. The model works out
//! for itself where every change must leave the job, which instants every advance passes, and where each of them must
//! have been by then.

use super::people::Answer;
use super::timetables::Calendar;
use super::{Played, Reply};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::deadline::StartRule;
use punctual_core::job::{Job, JobKey, JobSpec, JobState};
use punctual_core::memory::{Effect, Recorded};
use punctual_core::message::Message;
use punctual_core::missed::{MISSED_AFTER, Many};
use punctual_core::run::{RunKey, RunRow, RunStatus, SkipReason};
use punctual_core::schedule::Timing;
use std::collections::{BTreeMap, BTreeSet};

type Instant = DateTime<Utc>;

/// What was read ahead may be sent this long after a change that voids it.
const READ_AHEAD: TimeDelta = TimeDelta::seconds(60);

/// What is wrong with the jobs of a played seed.
pub fn problems(played: &Played) -> Vec<String> {
    let keys = played.scenario.jobs.iter().map(|job| &job.spec.key);
    keys.flat_map(|key| {
        let mut book = Book::of(key, played);
        played.history.iter().for_each(|recorded| book.read(recorded));
        book.close(played);
        book.problems
    })
    .collect()
}

/// What one generation decides.
struct Stretch {
    generation: u64,
    /// What it decides anew: instants from here on.
    from: Instant,
    stands_at: Option<Instant>,
    /// When the firing that it stands at is due: an owed one keeps its time.
    due_at: Option<Instant>,
    decided_at: Option<Instant>,
    calendar: Calendar,
    specs: Vec<JobSpec>,
    /// Up to when it was in force.
    until: Option<Instant>,
    is_cancel: bool,
}

impl Stretch {
    fn following(&self, instant: Instant) -> Option<Instant> {
        self.calendar.next(self.decided_at.map_or(instant, |decided_at| instant.max(decided_at)))
    }

    /// Whether it may have brought forth a run of this instant.
    fn has(&self, instant: Instant) -> bool {
        let mut at = self.stands_at;
        while let Some(here) = at.filter(|here| *here < instant) {
            at = self.following(here);
        }
        at == Some(instant) && self.until.is_none_or(|until| instant <= until + READ_AHEAD)
    }

    fn due_at(&self, instant: Instant) -> Option<Instant> {
        let kept = self.due_at.filter(|_| self.stands_at == Some(instant));
        self.specs.iter().map(|spec| due_of(spec, instant)).chain(kept).min()
    }

    fn spec(&self) -> &JobSpec {
        self.specs.last().expect("a stretch begins with a specification")
    }
}

/// The books of one job.
struct Book<'a> {
    key: &'a JobKey,
    start: Instant,
    stretches: Vec<Stretch>,
    state: Option<JobState>,
    version: u64,
    stands_at: Option<Instant>,
    due_at: Option<Instant>,
    runs_left: Option<u32>,
    /// Instants that were passed, and in which stretch.
    passed: BTreeMap<Instant, usize>,
    /// The last instant that it passed since the last change of its timetable, and the firings left until then.
    sent_ahead: Option<(Instant, Option<u32>)>,
    /// Generations in which a message of an instant was put into a queue.
    queued: BTreeMap<Instant, BTreeSet<u64>>,
    by_hand: BTreeSet<RunKey>,
    rows: BTreeMap<RunKey, RunRow>,
    replies: Vec<&'a Reply>,
    versions: BTreeSet<(u64, u64)>,
    problems: Vec<String>,
}

impl<'a> Book<'a> {
    fn of(key: &'a JobKey, played: &'a Played) -> Self {
        Book {
            key,
            start: played.scenario.start,
            stretches: Vec::new(),
            state: None,
            version: 0,
            stands_at: None,
            due_at: None,
            runs_left: None,
            passed: BTreeMap::new(),
            sent_ahead: None,
            queued: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            rows: BTreeMap::new(),
            replies: played.replies.iter().filter(|reply| reply.key == *key).collect(),
            versions: BTreeSet::new(),
            problems: Vec::new(),
        }
    }

    fn problem(&mut self, at: Instant, what: impl std::fmt::Display) {
        self.problems.push(format!("{} at {}: {what}", self.key, at.format("%H:%M:%S%.3f")));
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, at: Instant, what: &str, is: &T, must_be: &T) {
        if is != must_be {
            self.problem(at, format!("{what} is {is:?} and must be {must_be:?}"));
        }
    }

    fn read(&mut self, recorded: &Recorded) {
        let at = recorded.at;
        match &recorded.effect {
            Effect::Job(job) if job.spec.key == *self.key => self.changed(at, job),
            Effect::Advanced { key, from, to } if key == self.key && *to != Some(*from) => {
                self.advanced(at, *from, *to)
            }
            Effect::Enqueued(sent) => {
                if let Some(message) = sent.message.as_ref().filter(|message| message.job_key == *self.key) {
                    self.enqueued(at, message);
                }
            }
            Effect::Row(row) if row.id.job_key == *self.key => self.row(at, row),
            _ => {}
        }
    }

    /// A change was written: what it made of the job follows from where the job stood.
    fn changed(&mut self, at: Instant, job: &Job) {
        self.versions.insert((job.version, job.generation));
        let before = self.stretches.last().map(|stretch| stretch.generation);
        match before {
            Some(generation) if generation == job.generation => self.same_stretch(at, job),
            _ if job.state == JobState::Cancelled => self.cancelled(at, job),
            None => self.made(at, job),
            Some(_) if self.state == Some(JobState::Cancelled) => self.made(at, job),
            Some(_) => self.edited(at, job),
        }
        if before.is_some_and(|generation| job.generation < generation) {
            self.problem(at, format!("generation {} is lower than one before", job.generation));
        }
        let is_next = self.version == 0 || job.version == 1 || job.version == self.version + 1;
        if !is_next {
            self.problem(at, format!("version {} follows {}", job.version, self.version));
        }
        (self.version, self.state) = (job.version, Some(job.state));
        (self.stands_at, self.due_at, self.runs_left) = (job.next_scheduled_at, job.next_due_at, job.runs_left);
    }

    /// Content, pause, resume: the timetable stays.
    fn same_stretch(&mut self, at: Instant, job: &Job) {
        let stood = self.stands_at;
        self.expect(at, "after a change that concerns no firing the next one", &job.next_scheduled_at, &stood);
        let due = self.due_at;
        if job.spec.schedule == self.stretches.last().expect("it goes on").spec().schedule {
            self.expect(at, "after a change that concerns no firing its time", &job.next_due_at, &due);
        } else {
            self.problem(at, "the schedule changed and the generation did not");
        }
        self.stretches.last_mut().expect("it goes on").specs.push(job.spec.clone());
    }

    fn cancelled(&mut self, at: Instant, job: &Job) {
        self.expect(at, "a cancelled job's next firing", &job.next_scheduled_at, &None);
        let mut stretch = self.stretch(at, job, None);
        (stretch.from, stretch.is_cancel) = (DateTime::UNIX_EPOCH, true);
        self.begin(at, stretch);
    }

    fn made(&mut self, at: Instant, job: &Job) {
        let calendar = Calendar::around(self.start, &job.spec.schedule);
        let after = match job.spec.schedule.timing {
            // What is past is due at once.
            Timing::At(_) => DateTime::UNIX_EPOCH,
            Timing::Every { anchor, .. } if anchor == job.created_at => anchor - TimeDelta::seconds(1),
            _ => job.created_at,
        };
        self.expect(at, "a new job's first firing", &job.next_scheduled_at, &calendar.next(after));
        let due_at = job.next_scheduled_at.map(|first| due_of(&job.spec, first).max(to_second(job.created_at)));
        self.expect(at, "when a new job is due", &job.next_due_at, &due_at);
        let most = job.spec.schedule.max_runs;
        self.expect(at, "a new job's firings left", &job.runs_left, &most);
        let mut stretch = self.stretch(at, job, None);
        stretch.from = DateTime::UNIX_EPOCH;
        self.begin(at, stretch);
    }

    /// The timetable was decided anew: what is owed stays owed, what lies ahead follows from the moment of the change.
    fn edited(&mut self, at: Instant, job: &Job) {
        // A second change within one millisecond has the generation of the next one.
        let says = DateTime::from_timestamp_millis(job.generation as i64).expect("generations are milliseconds here");
        let moment = says.min(at);
        let asked = self.replies.iter().map(|reply| reply.asked_at).filter(|asked_at| *asked_at <= moment).count();
        if says > at + TimeDelta::milliseconds(5) || asked == 0 {
            self.problem(at, format!("the change was decided at {says}, when nobody asked"));
        }
        let old = self.stretches.last().expect("something was edited");
        let is_rescheduled = old.spec().schedule != job.spec.schedule;
        let most = job.spec.schedule.max_runs;
        // What waits in a queue for a later instant was counted, and will be again.
        let ahead = self.sent_ahead.filter(|(instant, _)| *instant > moment);
        let left = match ahead {
            _ if most != old.spec().schedule.max_runs => most,
            Some((_, left)) => left,
            None if self.stands_at.is_none() => most,
            None => self.runs_left,
        };
        let calendar = Calendar::around(self.start, &job.spec.schedule);
        let owed = self.stands_at.filter(|stands_at| *stands_at <= moment);
        let (stands_at, decided_at, from) = match owed {
            Some(owed) => {
                let is_last = self.runs_left == Some(1);
                let second = if is_last { None } else { old.following(owed) };
                let is_backlog = second.is_some_and(|second| second <= moment);
                let anew = if is_rescheduled && !is_backlog { Some(to_second(moment)) } else { old.decided_at };
                (Some(owed), anew, owed)
            }
            None => {
                let stood = ahead.map(|(instant, _)| instant).or(self.stands_at);
                let next = if is_rescheduled { calendar.next(moment) } else { stood };
                (next, old.decided_at, to_second(moment) + TimeDelta::seconds(1))
            }
        };
        // A run that is late already keeps its time, and with it its deadline.
        let due_at = match (owed, self.due_at) {
            (Some(_), Some(due_at)) if due_at <= moment => Some(due_at),
            (Some(owed), _) => Some(due_of(&job.spec, owed).max(to_second(moment))),
            (None, _) => stands_at.map(|next| due_of(&job.spec, next)),
        };
        self.expect(at, "an edited job's next firing", &job.next_scheduled_at, &stands_at);
        self.expect(at, "when an edited job is due", &job.next_due_at, &due_at);
        self.expect(at, "an edited job's firings left", &job.runs_left, &left);
        if let Some((instant, _)) = ahead {
            self.passed.remove(&instant);
        }
        let mut stretch = self.stretch(at, job, decided_at);
        stretch.from = from;
        self.begin(at, stretch);
    }

    fn stretch(&self, at: Instant, job: &Job, decided_at: Option<Instant>) -> Stretch {
        Stretch {
            generation: job.generation,
            from: at,
            stands_at: job.next_scheduled_at,
            due_at: job.next_due_at,
            decided_at,
            calendar: Calendar::around(self.start, &job.spec.schedule),
            specs: vec![job.spec.clone()],
            until: None,
            is_cancel: false,
        }
    }

    fn begin(&mut self, at: Instant, stretch: Stretch) {
        if let Some(last) = self.stretches.last_mut() {
            last.until = Some(at);
        }
        self.stretches.push(stretch);
        self.sent_ahead = None;
    }

    /// The job moved on: each instant it passed must be on its timetable, and in a queue or a row by now.
    fn advanced(&mut self, at: Instant, from: Instant, to: Option<Instant>) {
        self.expect(at, "what a job was advanced from", &Some(from), &self.stands_at.clone());
        let Some(index) = self.stretches.len().checked_sub(1) else {
            return self.problem(at, "a job that nobody made was advanced");
        };
        let mut here = Some(from);
        while let Some(instant) = here.filter(|here| to.is_none_or(|to| *here < to)) {
            if !self.is_accounted(instant, index) {
                self.problem(at, format!("advanced before {instant} was in a queue or a row"));
            }
            if let Some(old) = self.passed.insert(instant, index).filter(|old| self.is_same_life(*old, index)) {
                let generation = self.stretches[old].generation;
                self.problem(at, format!("{instant} was passed twice, before by generation {generation}"));
            }
            self.sent_ahead = Some((instant, self.runs_left));
            self.runs_left = self.runs_left.map(|left| left.saturating_sub(1));
            let following = self.stretches[index].following(instant);
            here = following.filter(|_| self.runs_left != Some(0));
        }
        let known_until = self.stretches[index].calendar.known_until;
        if here != to && to.is_none_or(|to| to < known_until) {
            self.problem(at, format!("advanced to {to:?} and not to {here:?}"));
        }
        self.stands_at = to;
        self.due_at = to.and_then(|to| self.stretches[index].specs.last().map(|spec| due_of(spec, to)));
        if to.is_none() {
            self.state = Some(JobState::Done);
        }
    }

    fn is_same_life(&self, one: usize, other: usize) -> bool {
        !self.stretches[one..=other].iter().any(|stretch| stretch.is_cancel)
    }

    /// Whether this stretch's run of an instant is in a queue, or its row says that none is needed.
    fn is_accounted(&self, instant: Instant, index: usize) -> bool {
        let generation = self.stretches[index].generation;
        let is_queued = self.queued.get(&instant).is_some_and(|generations| generations.contains(&generation));
        let has_row = self.rows.get(&RunKey::scheduled(instant)).is_some_and(RunRow::has_ended);
        is_queued || has_row || self.ranges_over(instant, generation).next().is_some()
    }

    /// Rows of other instants that stand for this one too.
    fn ranges_over(&self, instant: Instant, generation: u64) -> impl Iterator<Item = &RunRow> {
        let covers = move |row: &&RunRow| {
            let first = row.id.run_key.instant();
            row.generation == generation
                && first.is_some_and(|first| first < instant)
                && row.range.is_some_and(|range| instant <= range.to)
        };
        self.rows.values().filter(|row| row.status == RunStatus::Skipped).filter(covers)
    }

    fn enqueued(&mut self, at: Instant, message: &Message) {
        if message.run_key.is_manual() {
            self.by_hand.insert(message.run_key.clone());
            return;
        }
        self.queued.entry(message.scheduled_at).or_default().insert(message.generation);
        let Some(stretch) = self.stretches.iter().find(|stretch| stretch.generation == message.generation) else {
            return self.problem(at, format!("a message of generation {}, which never was", message.generation));
        };
        let due_at = stretch.due_at(message.scheduled_at);
        if !stretch.has(message.scheduled_at) {
            let (instant, generation) = (message.scheduled_at, message.generation);
            self.problem(at, format!("a run of {instant}, which is not on the timetable of generation {generation}"));
        } else if due_at.is_some_and(|due_at| message.due_at < due_at) {
            self.problem(at, format!("a run is due at {}, before its time {due_at:?}", message.due_at));
        }
    }

    fn row(&mut self, at: Instant, row: &RunRow) {
        let key = row.id.run_key.clone();
        if let Some(old) = self.rows.get(&key).filter(|old| old.has_ended()) {
            let status = old.status;
            self.problem(at, format!("run {key} has ended {status:?} and is written again"));
        }
        if !key.is_manual() {
            self.scheduled_row(at, row);
        } else if !self.by_hand.contains(&key) && row.status != RunStatus::Skipped {
            self.problem(at, format!("a row of run {key}, for which nobody asked"));
        }
        self.rows.insert(key, row.clone());
    }

    fn scheduled_row(&mut self, at: Instant, row: &RunRow) {
        let instant = row.id.run_key.instant().expect("run keys begin with seconds");
        let Some(stretch) = self.stretches.iter().find(|stretch| stretch.generation == row.generation) else {
            return self.problem(at, format!("a row of generation {}, which never was", row.generation));
        };
        let reason = row.reason.filter(|_| row.status == RunStatus::Skipped);
        let late = stretch.due_at(instant).map_or(TimeDelta::zero(), |due_at| at - due_at);
        let is_allowed = match reason {
            None => true,
            Some(SkipReason::Missed) => {
                late > MISSED_AFTER - TimeDelta::seconds(1)
                    && stretch.specs.iter().any(|spec| spec.missed.many != Many::All)
            }
            Some(SkipReason::Deadline) => {
                let rules = self.stretches.iter().flat_map(|stretch| &stretch.specs).map(|spec| spec.missed.start);
                let mut seconds = rules.filter_map(|rule| match rule {
                    StartRule::WithinS(s) => Some(TimeDelta::seconds(i64::from(s))),
                    _ => None,
                });
                seconds.any(|s| late > s - TimeDelta::seconds(1))
            }
            Some(SkipReason::Superseded | SkipReason::Cancelled) => self.stretches.iter().any(|later| {
                Some(later.generation) == row.void_gen && later.from <= instant && later.generation > row.generation
            }),
        };
        let has = stretch.has(instant);
        if !is_allowed {
            self.problem(
                at,
                format!("run {} is skipped as {reason:?}, {late} late: no change or rule says so", row.id),
            );
        }
        if !has {
            self.problem(at, format!("a row of {instant}, which is not on the timetable of its generation"));
        }
        self.range_row(at, row, instant);
    }

    /// A row for several firings stands for as many as its timetable has there.
    fn range_row(&mut self, at: Instant, row: &RunRow, first: Instant) {
        let Some(range) = row.range.filter(|_| row.status == RunStatus::Skipped) else { return };
        let stretch = self.stretches.iter().find(|stretch| stretch.generation == row.generation);
        let Some(stretch) = stretch else { return };
        let firings = std::iter::successors(Some(first), |instant| stretch.following(*instant));
        let count = firings.take_while(|instant| *instant <= range.to).count();
        self.expect(at, "the count of a range row", &(range.count as usize), &count);
    }

    /// Everything is done: each instant that was passed has exactly one account.
    fn close(&mut self, played: &Played) {
        let at = played.ended_at;
        for (instant, index) in self.passed.clone() {
            self.account(at, instant, index, played);
        }
        for key in self.by_hand.clone() {
            let is_done = self.rows.get(&key).is_some_and(|row| !is_open(row));
            if !is_done && !self.is_held_back(&key, played) {
                self.problem(at, format!("run {key} was asked for and came to nothing"));
            }
        }
        if let Some(job) = played.world.job(self.key) {
            self.expect(at, "where the job stands in the end", &job.next_scheduled_at, &self.stands_at.clone());
        }
        self.close_replies();
    }

    fn account(&mut self, at: Instant, instant: Instant, index: usize, played: &Played) {
        let key = RunKey::scheduled(instant);
        let own = self.rows.get(&key).cloned();
        let ranges = self.ranges_over(instant, self.stretches[index].generation).count();
        let accounts = usize::from(own.is_some()) + ranges;
        let is_cancelled = self.stretches[index + 1..].iter().any(|later| later.is_cancel);
        match own {
            _ if accounts != 1 && !(accounts == 0 && self.is_held_back(&key, played)) => {
                self.problem(at, format!("{instant} has {accounts} rows"));
            }
            Some(row) if is_open(&row) && !self.is_held_back(&key, played) => {
                self.problem(at, format!("run {key} ends as {:?}", row.status));
            }
            Some(row) if is_void(&row) && !is_cancelled => {
                self.problem(at, format!("{instant} was owed and ends as {:?}", row.reason));
            }
            _ => {}
        }
    }

    /// Whether a run waits because its job is paused.
    fn is_held_back(&self, key: &RunKey, played: &Played) -> bool {
        let waits = |message: &Message| message.job_key == *self.key && message.run_key == *key;
        self.state == Some(JobState::Paused)
            && played.world.waiting().iter().any(|waiting| waiting.message.as_ref().is_some_and(waits))
    }

    /// What people were told is true.
    fn close_replies(&mut self) {
        for reply in self.replies.clone() {
            let is_true = match &reply.answer {
                Answer::Done { version, generation } => self.versions.contains(&(*version, *generation)),
                Answer::Enqueued(run) => self.by_hand.contains(&run.run_key),
                _ => true,
            };
            if !is_true {
                self.problem(reply.told_at, format!("{:?} was acknowledged and never happened", reply.ask));
            }
        }
    }
}

fn due_of(spec: &JobSpec, instant: Instant) -> Instant {
    spec.spread.as_ref().map_or(instant, |spread| instant + spread.offset())
}

fn is_open(row: &RunRow) -> bool {
    matches!(row.status, RunStatus::Running | RunStatus::Retrying)
}

fn is_void(row: &RunRow) -> bool {
    row.status == RunStatus::Skipped && row.reason.is_some_and(SkipReason::is_void)
}

fn to_second(at: Instant) -> Instant {
    DateTime::from_timestamp(at.timestamp(), 0).expect("in range")
}

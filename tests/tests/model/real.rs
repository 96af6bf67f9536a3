//! The real values behind the model's small ones, and the real rules asked about them.
//!
//! Each function builds real values from small ones, calls `punctual_core`, and takes the image of the answer. What a rule
//! never compares (names, texts, tokens) is constant. Answers are kept: the rules are pure, and a few thousand questions
//! recur in millions of states.

use super::people::Change;
use super::rows::{self, Event, Transition, rule};
use super::state::{Ending, Job, JobState, MOST_ATTEMPTS, MOST_INSTANTS, Message, Row};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::deadline::StartRule;
use punctual_core::dispatch::{self, Coalesce, Decision, DueRun};
use punctual_core::due::{DueBucket, Shards};
use punctual_core::idempotency::{self, Screen};
use punctual_core::job::{
    Advanced, Change as RealChange, Changed, Job as RealJob, JobKey, JobSpec, JobState as RealState, Passed, Timetable,
    Voids,
};
use punctual_core::message::{MESSAGE_VERSION, Message as RealMessage};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::run::{RunKey, SkipReason, SkippedRange};
use punctual_core::schedule::{Anchor, Firing, Schedule};
use punctual_core::zone::Zones;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::RwLock;

/// One step of the clock: longer than the two minutes after which a firing counts as missed, and no longer than the fifteen
/// for which a message may be sent ahead.
pub(super) const STEP_S: i64 = 600;
/// Just below two steps, so that at two steps a run is too late.
const START_WITHIN_S: u32 = 2 * STEP_S as u32 - 1;
/// Generation 0. It lies ahead of the model's clock, as if a host whose clock is ahead had made it: a new one must be
/// higher than the last, whatever the clock says.
const GENERATION_0: u64 = 2_000_000_000_000;

/// What dispatch decides about a due job; `to` is the next firing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    Nothing,
    Fire { due: u8, last: u8, to: u8 },
    Skip { due: u8, covers: u8, last: u8, to: u8 },
}

/// What the screen says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screened {
    Run,
    End(Ending),
    PutBack,
}

const UNPOISONED: &str = "a rule that panics ends the test";

/// Answers to questions already asked.
struct Known<K, V>(RwLock<HashMap<K, V>>);

impl<K: Hash + Eq, V: Copy> Known<K, V> {
    fn get(&self, key: K, ask: impl FnOnce(&K) -> V) -> V {
        if let Some(known) = self.0.read().expect(UNPOISONED).get(&key) {
            return *known;
        }
        let answer = ask(&key);
        self.0.write().expect(UNPOISONED).insert(key, answer);
        answer
    }
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Known(RwLock::default())
    }
}

pub struct Real {
    instants: u8,
    spec: JobSpec,
    shards: Shards,
    zones: Zones,
    decided: Known<(Job, u8), Plan>,
    screened: Known<(Message, Job, u8), Screened>,
    applied: Known<(Row, u8, Event, u8), Transition>,
    advanced: Known<(Job, u8, u8), Job>,
    passed: Known<(u8, u8, u8), u8>,
    changed: Known<(Job, Change, u8), Option<Job>>,
}

pub(super) fn at(step: u8) -> DateTime<Utc> {
    let start: DateTime<Utc> = "2026-12-05T08:00:00Z".parse().expect("an instant");
    start + TimeDelta::seconds(i64::from(step) * STEP_S)
}

/// The step at or after an instant.
pub(super) fn step(instant: DateTime<Utc>) -> u8 {
    let seconds = (instant - at(0)).num_milliseconds().div_euclid(1_000);
    u8::try_from((seconds + STEP_S - 1).div_euclid(STEP_S)).expect("the model's clock begins at step 0")
}

/// The step that an edit put an end just behind.
fn whole_step(end: DateTime<Utc>) -> DateTime<Utc> {
    at(step(end - TimeDelta::seconds(1)))
}

pub(super) fn exact_step(instant: DateTime<Utc>) -> u8 {
    let step = step(instant);
    assert_eq!(at(step), instant, "firings and what is due lie on steps");
    step
}

pub(super) fn generation(number: u8) -> u64 {
    GENERATION_0 + u64::from(number)
}

pub(super) fn generation_number(real: u64) -> u8 {
    u8::try_from(real - GENERATION_0).expect("generations of the model are near its first one")
}

impl Real {
    /// Of `instants`, the schedule has `at_first` when the job is made.
    pub fn new(instants: u8, at_first: u8, many: Many) -> Self {
        let mut schedule = Schedule::parse("every 10m from 2026-12-05T08:00:00Z", at(0)).expect("a schedule");
        schedule.start_at = Some(at(1));
        schedule.end_at = Some(at(at_first));
        let spec = JobSpec {
            key: JobKey::new("bank", "c-1/bill").expect("a key"),
            name: None,
            schedule,
            anchor: Anchor::Stated,
            priority: Priority::Normal,
            payload: Payload::sms("+447700900123", "Your bill is due"),
            retry: rule(MOST_ATTEMPTS),
            spread: None,
            missed: MissedRule { many, start: StartRule::WithinS(START_WITHIN_S) },
        };
        Real {
            instants,
            spec,
            shards: Shards::default(),
            zones: Zones::embedded(),
            decided: Known::default(),
            screened: Known::default(),
            applied: Known::default(),
            advanced: Known::default(),
            passed: Known::default(),
            changed: Known::default(),
        }
    }

    fn world(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    /// The job as it is made, at step 0.
    pub fn created(&self) -> Job {
        let made = RealJob::create(self.spec.clone(), at(0), &self.world(), Some(generation(0) - 1), "t".into(), "x");
        let job = self.job_image(&made.expect("a job"), 0);
        Job { first: job.next, owes: job.last, ..job }
    }

    /// [`dispatch::decide`] about a job within the look-ahead, as of when it is due.
    pub fn decide(&self, job: Job, now: u8) -> Plan {
        self.decided.get((job, now), |(job, now)| {
            let real = self.real_job(job);
            let Some(bucket) = real.due_bucket else { return Plan::Nothing };
            let as_of = at(*now).max(at(job.due));
            match dispatch::decide(&real, bucket, as_of, &self.world(), "s") {
                Decision::Stale | Decision::Unindex => Plan::Nothing,
                Decision::Broken(reason) => panic!("{reason}: {job:?}"),
                Decision::Fire { runs, .. } => {
                    let is_coalesced = self.spec.missed.many != Many::All;
                    assert!(!is_coalesced || runs.len() == 1, "such a job sends one run at a time");
                    let (due, last, to) = self.in_order(job, &runs);
                    Plan::Fire { due, last, to }
                }
                Decision::Skip { runs, .. } => {
                    let (due, last, to) = self.in_order(job, &runs);
                    Plan::Skip { due, covers: 0, last, to }
                }
                Decision::Coalesce(skip) => {
                    let Coalesce { range, first, to, .. } = *skip;
                    assert_eq!(self.next_image(&first.to), job.next + 1);
                    let covers = exact_step(range.to);
                    Plan::Skip { due: self.due(job, &first), covers, last: job.next, to: self.next_image(&to) }
                }
            }
        })
    }

    /// When the first of several runs is due, which firing is the last one, and where the job goes behind that.
    fn in_order(&self, job: &Job, runs: &[DueRun]) -> (u8, u8, u8) {
        let (mut last, mut to) = (job.next, 0);
        for (run, instant) in runs.iter().zip(job.next..) {
            (last, to) = (instant, self.next_image(&run.to));
            let due = self.due(&Job { next: instant, ..*job }, run);
            assert!(
                (to == instant + 1 || to > self.instants) && (due == instant || instant == job.next),
                "firing follows firing"
            );
        }
        (self.due(job, &runs[0]), last, to)
    }

    fn due(&self, job: &Job, run: &DueRun) -> u8 {
        let message = &run.message;
        assert_eq!(
            (exact_step(message.scheduled_at), generation_number(message.generation)),
            (job.next, job.generation)
        );
        exact_step(message.due_at)
    }

    /// [`dispatch::after_skip`]: where a job that stands at `from` goes when its skip finds a row that covers `covers`.
    pub fn after_skip(&self, from: u8, covers: u8, now: u8) -> u8 {
        self.passed.get((from, covers, now), |(from, covers, now)| {
            let decides = [0; MOST_INSTANTS];
            let (state, next) = (JobState::Active, *from);
            let (last, first, owes) = (self.instants, next, self.instants);
            let job = Job { state, next, due: next, last, passed: 0, decided: 0, generation: 0, decides, first, owes };
            let range = SkippedRange { to: at(*covers), count: u32::from(covers - from) + 1 };
            self.next_image(&dispatch::after_skip(&self.real_job(&job), range, at(*now), &self.world()))
        })
    }

    /// [`RealJob::advance`] to the firing `to`.
    pub fn advance(&self, job: Job, to: u8, now: u8) -> Job {
        self.advanced.get((job, to, now), |(job, to, now)| {
            let mut real = self.real_job(job);
            let firing = |instant| Firing { at: at(instant), wall: None };
            let next = (*to <= self.instants).then(|| firing(*to));
            let last = if next.is_some() { to - 1 } else { job.last };
            let advanced = real.behind(&firing(last), 1, next.as_ref(), at(*now), &self.world());
            real.advance(&advanced);
            Job { first: job.first, owes: job.owes, ..self.job_image(&real, *now) }
        })
    }

    /// [`RealJob::change`]; none when there is nothing to change, or it is refused.
    pub fn change(&self, job: Job, change: Change, now: u8) -> Option<Job> {
        self.changed.get((job, change, now), |(job, change, now)| {
            let asked = match change {
                Change::EditRule => RealChange::Edit(Box::new(self.with_another_rule(job))),
                Change::EditSchedule => RealChange::Edit(Box::new(self.with_another_schedule(job))),
                Change::Pause => RealChange::Pause,
                Change::Resume => RealChange::Resume,
                Change::Cancel => RealChange::Cancel,
                Change::Recreate => RealChange::Recreate(Box::new(self.spec_until(self.instants))),
            };
            let old = self.real_job(job);
            match old.change(&asked, at(*now), &self.world(), "u".into(), "y") {
                Ok(Changed::To(new)) => {
                    assert!(new.version != old.version, "a change is seen by whoever read the job before");
                    Some(Job { first: job.first, owes: job.owes, ..self.job_image(&new, *now) })
                }
                Ok(Changed::Same) | Err(_) => None,
            }
        })
    }

    fn spec_until(&self, last: u8) -> JobSpec {
        let mut spec = self.spec.clone();
        spec.schedule.end_at = Some(at(last));
        spec
    }

    fn with_another_rule(&self, job: &Job) -> JobSpec {
        let missed = MissedRule { start: StartRule::WithinS(START_WITHIN_S - 1), ..self.spec.missed };
        JobSpec { missed, ..self.spec_until(job.last) }
    }

    fn with_another_schedule(&self, job: &Job) -> JobSpec {
        let mut spec = self.spec_until(self.instants);
        if job.last == self.instants {
            spec.schedule.end_at = Some(at(self.instants) + TimeDelta::seconds(1));
        }
        spec
    }

    /// The first firing after now; one more than the last instant if there is none.
    pub fn first_after(&self, job: Job, now: u8) -> u8 {
        let firing = self.spec_until(job.last).schedule.next_after(at(now), &self.zones);
        firing.map_or(self.instants + 1, |firing| exact_step(firing.at))
    }

    /// [`idempotency::screen`] of a message whose row has not ended.
    pub fn screen(&self, message: Message, job: Job, now: u8) -> Screened {
        self.screened.get((Message { copy: 0, is_former: false, ..message }, job, now), |(message, job, now)| {
            let (message, job) = (self.real_message(message), self.real_job(job));
            match idempotency::screen(&message, Some(&job), None, None, at(*now), &self.zones) {
                Screen::Run => Screened::Run,
                Screen::PutBack { .. } => Screened::PutBack,
                Screen::Void { void_gen, reason } => {
                    let is_cancel = reason == SkipReason::Cancelled;
                    Screened::End(Ending::Void { void_gen: generation_number(void_gen), is_cancel })
                }
                Screen::Skip(reason) => {
                    assert_eq!(reason, SkipReason::Deadline);
                    Screened::End(Ending::TooLate)
                }
                Screen::DeadLetter(why) => panic!("{}: {message:?}", why.reason()),
            }
        })
    }

    /// [`punctual_core::run::apply`]: what `event`, of a message of this generation, may do to a row.
    pub fn apply(&self, row: Row, generation: u8, event: Event, now: u8) -> Transition {
        self.applied.get((row.normal(now), generation, event, now), |(row, generation, event, now)| {
            let message = Message { instant: 1, due: 1, generation: *generation, is_former: false, copy: 0 };
            rows::apply(row, &self.real_message(&message).facts(), *event, *now)
        })
    }

    fn real_job(&self, job: &Job) -> RealJob {
        let next = (job.next <= self.instants).then(|| at(job.next));
        let due = next.map(|_| at(job.due));
        let shard = self.shards.of(&self.spec.key, self.spec.priority);
        let mut voids = Voids::new(generation(job.deciding(1)));
        (2..=self.instants).for_each(|instant| voids.push(generation(job.deciding(instant)), at(instant)));
        RealJob {
            spec: self.spec_until(job.last),
            state: match job.state {
                JobState::Active => RealState::Active,
                JobState::Paused => RealState::Paused,
                JobState::Done => RealState::Done,
                JobState::Cancelled => RealState::Cancelled,
            },
            next_scheduled_at: next,
            next_wall: None,
            tzdb: None,
            runs_left: None,
            decided_at: (job.decided > 0).then(|| at(job.decided)),
            passed: (job.passed > 0)
                .then(|| Passed { firing: Firing { at: at(job.passed), wall: None }, runs_left: None }),
            next_due_at: due,
            due_bucket: due.filter(|_| job.state == JobState::Active).map(|at| DueBucket::for_write(at, at, shard)),
            generation: generation(job.generation),
            voids,
            version: 1,
            edit_token: "t".into(),
            updated_by: "x".into(),
            created_at: at(0),
            updated_at: at(0),
            made_for: None,
            is_erased: false,
            error: None,
            expires_at: None,
        }
    }

    /// The image of a job, without the ghost.
    fn job_image(&self, real: &RealJob, now: u8) -> Job {
        // An instant that does not exist is as the last one that does.
        let instant = |n| at(self.instants.min(n));
        let decides = [1, 2].map(|n| generation_number(real.voids.deciding(instant(n))));
        let next = real.next_scheduled_at.map_or(self.instants + 1, exact_step);
        Job {
            state: match real.state {
                RealState::Active => JobState::Active,
                RealState::Paused => JobState::Paused,
                RealState::Done => JobState::Done,
                RealState::Cancelled => JobState::Cancelled,
                RealState::Quarantined => panic!("nothing of the model quarantines a job"),
            },
            next,
            due: real.next_due_at.map_or(0, exact_step),
            passed: real.passed.as_ref().map(|passed| exact_step(passed.firing.at)).filter(|at| *at > now).unwrap_or(0),
            // Firings follow one another: before the next one it has no effect.
            decided: real.decided_at.map_or(0, exact_step) * u8::from(real.decided_at > real.next_scheduled_at),
            generation: generation_number(real.generation),
            decides,
            last: exact_step(real.spec.schedule.end_at.map(whole_step).expect("the schedule has an end")),
            first: 0,
            owes: 0,
        }
    }

    fn next_image(&self, to: &Advanced) -> u8 {
        let Some(next) = &to.next else { return self.instants + 1 };
        assert_eq!(next.scheduled_at, next.due_at, "without a spread a firing is due at its instant");
        exact_step(next.scheduled_at)
    }

    fn real_message(&self, message: &Message) -> RealMessage {
        RealMessage {
            v: MESSAGE_VERSION,
            job_key: self.spec.key.clone(),
            run_key: RunKey::scheduled(at(message.instant)),
            generation: generation(message.generation),
            scheduled_at: at(message.instant),
            due_at: at(message.due),
            first_enqueued_at: at(0),
            scheduler: "s".into(),
            trace: None,
        }
    }
}

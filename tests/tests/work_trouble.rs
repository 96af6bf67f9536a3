//! What the worker does while store and queue fail, and with messages that are odd or come again, in memory and in
//! virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, JobState};
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::message::Message;
use punctual_core::payload::Payload;
use punctual_core::ports::{Replace, ReplaceIf};
use punctual_core::priority::Priority;
use punctual_core::retry::Outcome;
use punctual_core::run::{RunId, RunKey, RunStatus};
use punctual_core::target::Target;
use punctual_core::template::Vars;
use punctual_tests::watch::receives;
use punctual_tests::{Town, at, reminder, run_of, within};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PHONE: &str = "+447700900123";
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const ID: &str = "c-1/bill";
const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };

/// A town at the moment at which its jobs are due.
async fn town_with(plan: &FaultPlan) -> Town {
    let town = Town::with(ONE_SHARD, plan.clone(), Arc::new(|ports| ports)).await;
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    town
}

/// Such a town with one job, whose message is in the queue.
async fn town_with_message(plan: &FaultPlan) -> Town {
    let town = town_with(plan).await;
    town.add(reminder(ID, EVERY_DAY)).await;
    town.send(&[town.message(ID, at(DUE_AT))]).await;
    town
}

fn the_run() -> RunId {
    run_of(ID, at(DUE_AT))
}

fn has(world: &World, status: RunStatus) -> bool {
    world.row(&the_run()).is_some_and(|row| row.status == status)
}

fn is_done(world: &World) -> bool {
    has(world, RunStatus::Succeeded) && world.waiting().is_empty()
}

fn succeeded(world: &World) -> usize {
    world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count()
}

fn fail(plan: &FaultPlan, calls: &[&'static str]) {
    for call in calls {
        plan.add(Point::Every(call), Fault::FailBefore(PortError::Throttled("injected".into())));
    }
}

async fn pause(town: &Town, to: JobState) {
    let mut job = town.world.job(&the_run().job_key).expect("the job is there");
    let (version, read) = (job.version, ReplaceIf::from(&job));
    (job.state, job.version, job.edit_token) = (to, version + 1, format!("edit {version}"));
    assert_eq!(town.world.ports().jobs.replace(&job, &read).await, Ok(Replace::Replaced));
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_no_more_is_taken_than_fits_in_hand_and_after_that_work_goes_on_at_once() {
    let plan = FaultPlan::default();
    let mut town = town_with(&plan).await;
    for n in 0..100 {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    fail(&plan, &["jobs.get_many", "runs.get", "runs.put"]);
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(town.world.sends().is_empty() && town.world.rows().is_empty());
    let received: u32 = town.world.waiting().iter().map(|message| message.receive_count).sum();
    assert!(received > 0 && received as usize <= town.work.prefetch, "{received} received");
    plan.clear();
    assert!(town.until(5, |world| !world.sends().is_empty()).await, "no run started within 5 s");
    assert!(town.until(30, |world| succeeded(world) == 100 && world.waiting().is_empty()).await);
    assert_eq!(town.world.sends().len(), 100);
    assert!(town.world.rows().values().all(|row| row.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_while_the_store_fails_is_recorded_after_that_and_not_sent_again() {
    let plan = FaultPlan::default();
    let mut town = town_with(&plan).await;
    for n in 0..20 {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    town.world.set_gateway_latency(Duration::from_secs(3));
    town.work.slots.urgent_only = 0;
    town.start_worker("w");
    assert!(town.until(2, |world| world.sends().len() == 20).await);
    fail(&plan, &["jobs.get_many", "runs.get", "runs.put"]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(succeeded(&town.world), 0);
    plan.clear();
    assert!(town.until(20, |world| succeeded(world) == 20 && world.waiting().is_empty()).await);
    assert_eq!(town.world.sends().len(), 20);
    assert!(town.world.rows().values().all(|row| row.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_begin_costs_no_attempt() {
    for max_attempts in [1, 6] {
        let plan = FaultPlan::one(Point::Nth("runs.put", 1), Fault::LoseAnswer);
        let mut town = town_with(&plan).await;
        let mut spec = reminder(ID, EVERY_DAY);
        spec.retry.max_attempts = max_attempts;
        town.add(spec).await;
        town.send(&[town.message(ID, at(DUE_AT))]).await;
        town.start_worker("w");
        assert!(town.until(10, is_done).await, "of {max_attempts}: {:?}", town.world.row(&the_run()));
        assert!(plan.to_come().is_empty());
        let row = town.world.row(&the_run()).expect("a row");
        assert_eq!((row.attempt, row.attempts.len(), town.world.sends_of(&the_run())), (1, 1, 1));
        assert!(town.world.dead_letters().is_empty());
        town.stop().await;
    }
}

/// What stands in the row then is this attempt's own, and no other worker's.
#[tokio::test(start_paused = true)]
async fn a_begin_whose_answers_are_lost_for_seconds_goes_on_with_its_own_row() {
    let plan = FaultPlan::default();
    let mut town = town_with_message(&plan).await;
    plan.add(Point::Every("runs.put"), Fault::LoseAnswer);
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(town.world.row(&the_run()).is_some() && town.world.sends().is_empty());
    plan.clear();
    assert!(town.until(4, is_done).await, "{:?}", town.world.row(&the_run()));
    let row = town.world.row(&the_run()).expect("a row");
    assert_eq!((row.attempt, row.attempts.len(), town.world.sends_of(&the_run())), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_begun_too_late_to_be_made_is_given_up_and_not_counted() {
    // When the answer is there, the row's lease is over, or too little of it is left.
    for late in [15, 8] {
        let plan = FaultPlan::one(Point::Nth("runs.put", 1), Fault::Delay(Duration::from_secs(late)));
        let mut town = town_with_message(&plan).await;
        town.start_worker("w");
        assert!(town.until(25, is_done).await, "{:?}", town.world.row(&the_run()));
        let row = town.world.row(&the_run()).expect("a row");
        assert_eq!((row.attempt, row.attempts.len(), town.world.sends_of(&the_run())), (1, 1, 1));
        assert!(
            (row.attempts[0].started_at - at(DUE_AT)).num_seconds() >= late as i64,
            "the one that was made: {row:?}"
        );
        town.stop().await;
    }
}

/// Whenever it comes: what may have been begun is given back, and not left to be taken over and counted.
#[tokio::test(start_paused = true)]
async fn a_stop_while_the_answers_of_begin_are_lost_leaves_no_run_running() {
    for tenths in 1..=60 {
        let plan = FaultPlan::default();
        let town = town_with_message(&plan).await;
        plan.add(Point::Every("runs.put"), Fault::LoseAnswer);
        let worker = town.start_stoppable_worker("w");
        tokio::time::sleep(Duration::from_millis(tenths * 100 + 50)).await;
        worker.tell().await.expect("it stops in order");
        assert!(!has(&town.world, RunStatus::Running), "after {tenths} tenths: {:?}", town.world.row(&the_run()));
        assert!(town.world.sends().is_empty());
    }
}

/// A begin that is tried for long begins nothing by what was read of the job long ago.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_cancelled_or_paused_while_begin_fails_is_not_called() {
    for to in [JobState::Cancelled, JobState::Paused] {
        for lost in [Fault::LoseAnswer, Fault::FailBefore(PortError::Throttled("injected".into()))] {
            let plan = FaultPlan::default();
            let mut town = town_with_message(&plan).await;
            plan.add(Point::Every("runs.put"), lost);
            town.start_worker("w");
            tokio::time::sleep(Duration::from_secs(30)).await;
            pause(&town, to).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            plan.clear();
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(town.world.sends().is_empty());
            assert!(!has(&town.world, RunStatus::Running), "{:?}", town.world.row(&the_run()));
            town.stop().await;
        }
    }
}

/// The limit and the circuit of where it goes now are what counts.
#[tokio::test(start_paused = true)]
async fn a_run_whose_job_is_sent_elsewhere_while_it_waits_for_its_turn_stands_in_the_other_line() {
    let plan = FaultPlan::default();
    let mut town = town_with(&plan).await;
    town.set_sms_limit(1).await;
    for n in 0..6 {
        let id = format!("c-{n}/bill");
        town.add(reminder(&id, EVERY_DAY)).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    let hook = "https://hooks.example.com/bills";
    town.set_limit(Target::webhook("hooks.example.com"), 1).await;
    let hook = Payload::Webhook { url: hook.into(), body: "{}".into(), vars: Vars::new(), secret: None };
    town.start_worker("w");
    tokio::time::sleep(Duration::from_millis(500)).await;
    for n in 0..6 {
        let key = JobKey::new("bank", &format!("c-{n}/bill")).expect("a valid id");
        let mut job = town.world.job(&key).expect("the job is there");
        let (version, read) = (job.version, ReplaceIf::from(&job));
        job.spec.payload = hook.clone();
        (job.version, job.edit_token) = (version + 1, format!("edit {version}"));
        assert_eq!(town.world.ports().jobs.replace(&job, &read).await, Ok(Replace::Replaced));
    }
    assert!(town.until(30, |world| succeeded(world) == 6).await);
    let sends = town.world.sends();
    let hooks: Vec<_> = sends.iter().filter(|sent| sent.text != "Your bill is due").map(|sent| sent.at).collect();
    assert!(hooks.len() >= 2, "{sends:?}");
    assert!(hooks.windows(2).all(|two| (two[1] - two[0]).num_milliseconds() >= 900), "{hooks:?}");
}

#[tokio::test(start_paused = true)]
async fn deletes_keep_up_with_records_and_no_message_comes_twice() {
    const RUNS: usize = 3_000;
    let plan = FaultPlan::one(Point::Every("queue.delete"), Fault::Delay(Duration::from_millis(50)));
    let (change, received) = receives();
    let mut town = Town::with(ONE_SHARD, plan, change).await;
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    for n in 0..RUNS {
        let id = format!("c-{n}/bill");
        let mut spec = reminder(&id, EVERY_DAY);
        spec.priority = Priority::ALL[n % 3];
        town.add(spec).await;
        town.send(&[town.message(&id, at(DUE_AT))]).await;
    }
    town.start_worker("w");
    assert!(town.until(60, |world| succeeded(world) == RUNS).await);
    assert!(town.until(2, |world| world.waiting().is_empty()).await, "{} wait", town.world.waiting().len());
    tokio::time::sleep(Duration::from_secs(120)).await;
    let received = received.all();
    assert!(received.iter().all(|delivery| delivery.receive_count == 1));
    assert_eq!((received.len(), town.world.sends().len()), (RUNS, RUNS));
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_could_not_be_sent_is_sent_when_its_message_comes_again() {
    for is_readable in [true, false] {
        let plan = FaultPlan::default();
        fail(&plan, &["queue.send_dead_letter"]);
        let mut town = town_with(&plan).await;
        if is_readable {
            let mut spec = reminder(ID, EVERY_DAY);
            spec.retry.max_attempts = 1;
            town.add(spec).await;
            town.send(&[town.message(ID, at(DUE_AT))]).await;
            let busy = Outcome::Temporary { reason: "503".into(), retry_after: None };
            town.world.script(PHONE, [Script::Answer(busy)]);
        } else {
            let sent = town.world.ports().queue.send(Priority::Normal, &["not a message".into()]).await;
            assert_eq!(sent, Ok(vec![Ok(())]));
        }
        town.start_worker("w");
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!((town.world.waiting().len(), town.world.dead_letters().len()), (1, 0), "kept, for want of a letter");
        assert!(!is_readable || has(&town.world, RunStatus::Dead));
        plan.clear();
        assert!(town.until(700, |world| world.waiting().is_empty()).await);
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let letters = town.world.dead_letters();
        assert_eq!(letters.len(), 1, "{letters:?}");
        assert_eq!(letters[0].run_id, is_readable.then(|| the_run().to_string()));
        assert_eq!(town.world.sends_of(&the_run()), usize::from(is_readable));
        town.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_a_run_that_has_ended_is_deleted_whatever_became_of_its_job() {
    for what in ["is forgotten", "is paused", "is cancelled", "cannot be read"] {
        let mut town = town_with_message(&FaultPlan::default()).await;
        let message = town.message(ID, at(DUE_AT));
        town.start_worker("w");
        assert!(town.until(10, is_done).await);
        match what {
            "is forgotten" => town.world.forget_job(&the_run().job_key),
            "is paused" => pause(&town, JobState::Paused).await,
            "is cancelled" => pause(&town, JobState::Cancelled).await,
            _ => town.world.make_unreadable(&the_run().job_key, "no schedule"),
        }
        let sent = town.world.ports().queue.send(Priority::Normal, &[message.encode()]).await;
        assert_eq!(sent, Ok(vec![Ok(())]));
        let case = format!("its job {what}");
        assert!(town.until(10, |world| world.waiting().is_empty()).await, "{case}: {:?}", town.world.waiting());
        assert!(town.world.dead_letters().is_empty(), "{case}: {:?}", town.world.dead_letters());
        assert_eq!(town.world.sends_of(&the_run()), 1, "{case}");
        assert!(has(&town.world, RunStatus::Succeeded), "{case}");
        town.stop().await;
    }
}

/// SQS takes a message away after as many deliveries as its redrive policy says, at most 1,000, and after fourteen days.
#[tokio::test(start_paused = true)]
async fn a_month_of_pause_uses_up_fewer_deliveries_than_the_queue_allows_and_loses_nothing() {
    const DAY_S: u64 = 86_400;
    let mut town = town_with_message(&FaultPlan::default()).await;
    town.work.poll = Duration::from_secs(20);
    pause(&town, JobState::Paused).await;
    town.start_worker("w");
    let mut most = 0;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(DAY_S)).await;
        let waiting = town.world.waiting();
        assert_eq!(waiting.len(), 1);
        most = most.max(waiting[0].receive_count);
    }
    assert!((100..=510).contains(&most), "{most} deliveries of one message");
    pause(&town, JobState::Active).await;
    assert!(town.until(910, is_done).await, "it goes on at most fifteen minutes after its job does");
    assert_eq!(town.world.sends_of(&the_run()), 1);
}

/// What becomes of a message within an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Row(RunStatus),
    Letter,
    /// It waits, and is looked at again and again.
    Waits,
}

#[tokio::test(start_paused = true)]
async fn a_message_with_the_most_extreme_times_neither_breaks_the_worker_nor_disappears() {
    let (past, future) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
    let due = at(DUE_AT);
    let cases = [
        ("enqueued in the far future", due, due, future, End::Row(RunStatus::Succeeded)),
        ("enqueued in the far past", due, due, past, End::Letter),
        ("due in the far past", due, past, due, End::Row(RunStatus::Skipped)),
        ("due in the far future", due, future, due, End::Waits),
        ("all in the far past", past, past, past, End::Letter),
        ("all in the far future", future, future, future, End::Waits),
        ("scheduled in the far past", past, due, due, End::Row(RunStatus::Succeeded)),
        ("scheduled in the far future", future, due, due, End::Row(RunStatus::Succeeded)),
    ];
    let mut town = town_with(&FaultPlan::default()).await;
    let mut messages = BTreeMap::new();
    for (n, (case, scheduled_at, due_at, first_enqueued_at, end)) in cases.into_iter().enumerate() {
        let id = format!("c-{n}/bill");
        let mut spec = reminder(&id, EVERY_DAY);
        spec.missed = within(60);
        town.add(spec).await;
        let run_key = RunKey::scheduled(scheduled_at);
        let message = Message { run_key, scheduled_at, due_at, first_enqueued_at, ..town.message(&id, due) };
        let message = Message::decode(&message.encode()).unwrap_or_else(|error| panic!("{case}: {error}"));
        town.send(std::slice::from_ref(&message)).await;
        messages.insert(message.run_id(), (case, end));
    }
    let ordinary = run_of("ordinary/bill", due);
    town.add(reminder("ordinary/bill", EVERY_DAY)).await;
    town.send(&[town.message("ordinary/bill", due)]).await;
    town.start_worker("w");
    let ordinary_is_done = |world: &World| world.row(&ordinary).is_some_and(|row| row.status == RunStatus::Succeeded);
    assert!(town.until(10, ordinary_is_done).await, "what comes behind them is done");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    for (run, (case, end)) in messages {
        let waiting = town.world.waiting();
        let waiting = waiting.iter().find(|w| w.message.as_ref().is_some_and(|m| m.run_id() == run));
        let has_letter = town.world.dead_letters().iter().any(|l| l.run_id.as_deref() == Some(&run.to_string()));
        let found = match (town.world.row(&run), waiting) {
            (Some(row), None) if !has_letter => Some(End::Row(row.status)),
            (None, None) if has_letter => Some(End::Letter),
            (None, Some(w)) if !has_letter && (5..=15).contains(&w.receive_count) => Some(End::Waits),
            _ => None,
        };
        assert_eq!(found, Some(end), "{case}: row {:?}, waiting {waiting:?}", town.world.row(&run));
    }
    town.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_instant_that_does_not_exist_makes_a_message_unreadable_and_nothing_else() {
    let mut town = town_with_message(&FaultPlan::default()).await;
    let sane = town.message(ID, at(DUE_AT)).encode();
    let ms = format!("\"first_enqueued_at_ms\":{}", at(DUE_AT).timestamp_millis());
    assert!(sane.contains(&ms), "{sane}");
    for extreme in [i64::MIN, i64::MAX] {
        let body = sane.replace(&ms, &format!("\"first_enqueued_at_ms\":{extreme}"));
        assert_eq!(town.world.ports().queue.send(Priority::Normal, &[body]).await, Ok(vec![Ok(())]));
    }
    town.start_worker("w");
    assert!(town.until(60, is_done).await, "{:?}", town.world.waiting());
    assert_eq!(town.world.dead_letters().len(), 2);
    assert!(town.world.dead_letters().iter().all(|letter| letter.reason.contains("cannot be parsed")));
    assert_eq!(town.world.sends_of(&the_run()), 1);
    assert!(town.clock.now() < at(DUE_AT) + TimeDelta::seconds(60));
}

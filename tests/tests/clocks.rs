//! What becomes of runs where a host's wall clock is wrong.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::aws::{Names, schema};
use punctual_core::clock::{AnchoredClock, Clock, ClockOff, SystemClock};
use punctual_core::due::Shards;
use punctual_core::memory::World;
use punctual_core::run::RunStatus;
use punctual_localstack::stack::{Stack, StackConfig};
use punctual_scheduler::operations::{Created, OperationError, create_job};
use punctual_tests::logs::Logs;
use punctual_tests::{Town, WrongClock, at, reminder, run_of};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
/// Before the first instant of the tests' schedules there is time for a worker to be early in.
const DUE_AT: i64 = 68;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:14:28Z";

async fn town() -> Town {
    let town = Town::new(ONE_SHARD).await;
    town.add(reminder("c-1/bill", EVERY_DAY)).await;
    town
}

fn sent_at(world: &World) -> Option<DateTime<Utc>> {
    world.sends().first().map(|send| send.at)
}

fn is_done(world: &World) -> bool {
    world.row(&run_of("c-1/bill", at(DUE_AT))).is_some_and(|row| row.status == RunStatus::Succeeded)
}

fn errors_about_the_clock(logs: &Logs) -> Vec<String> {
    logs.of(Level::ERROR).into_iter().filter(|line| line.contains("the host's clock is")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_is_off_sends_nothing_says_so_once_and_goes_on_when_it_is_right() {
    for (ahead, side) in [(45, "ahead of"), (-45, "behind")] {
        let logs = Logs::keep();
        let mut town = town().await;
        let host = town.wrong_clock();
        host.set_ahead(TimeDelta::seconds(ahead));
        town.start_scheduler("s");
        town.start_worker_on(host.clone(), "w");
        assert!(town.until(120, |world| !world.enqueued().is_empty()).await);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(sent_at(&town.world), None, "{side}");
        assert_eq!(town.world.waiting().len(), 1, "the message is kept");
        let errors = errors_about_the_clock(&logs);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(&format!("s {side} the store's")), "{}", errors[0]);
        host.set_ahead(TimeDelta::zero());
        assert!(town.until(30, is_done).await, "{side}: it did not go on");
        assert_eq!(errors_about_the_clock(&logs).len(), 1);
        town.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_goes_off_gives_its_messages_back_at_once() {
    let mut town = town().await;
    let host = town.wrong_clock();
    town.start_worker_on(host.clone(), "w1");
    // Received long before it is due, and so in this worker's hands or hidden by it until then.
    town.send(&[town.message("c-1/bill", at(DUE_AT))]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    host.set_ahead(TimeDelta::seconds(45));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sent_at(&town.world), None);
    town.start_worker("w2");
    assert!(town.until(10, is_done).await, "the other worker did not get it");
}

#[tokio::test(start_paused = true)]
async fn a_clock_ahead_within_the_limit_makes_no_run_early() {
    let mut town = town().await;
    let host = town.wrong_clock();
    host.set_ahead(TimeDelta::seconds(20));
    town.start_worker_on(host, "w");
    town.send(&[town.message("c-1/bill", at(DUE_AT))]).await;
    assert!(town.until(120, is_done).await);
    let sent_at = sent_at(&town.world).expect("it was sent");
    assert!(sent_at >= at(DUE_AT) - TimeDelta::seconds(1), "{sent_at} is early");
    assert!(sent_at <= at(DUE_AT) + TimeDelta::seconds(5), "{sent_at} is late");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_nothing_to_do_soon_knows_the_time_to_hundredths_and_keeps_it() {
    let mut town = Town::new(ONE_SHARD).await;
    // Any phase within a second.
    tokio::time::sleep(Duration::from_millis(613)).await;
    let clock = town.start_worker_on(town.wrong_clock(), "w");
    let late = || town.clock.now() - clock.now();
    tokio::time::sleep(Duration::from_secs(12)).await;
    let asked = town.plan.calls().len();
    assert!((TimeDelta::zero()..TimeDelta::milliseconds(20)).contains(&late()), "late by {}", late());
    for _ in 0..48 {
        tokio::time::sleep(Duration::from_secs(1_800)).await;
        assert!((TimeDelta::zero()..TimeDelta::milliseconds(100)).contains(&late()), "late by {}", late());
    }
    let calls = town.plan.calls();
    let questions = calls[asked..].iter().filter(|call| call.name == "control.shards").count();
    assert!(questions <= 24 * 60 * 5, "{questions} questions a day");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_a_moment_early_waits_in_hand_and_runs_when_it_is_due() {
    let mut town = town().await;
    town.start_worker("w");
    tokio::time::sleep((at(DUE_AT) - TimeDelta::milliseconds(300) - town.clock.now()).to_std().expect("to come")).await;
    town.send(&[town.message("c-1/bill", at(DUE_AT))]).await;
    assert!(town.until(5, is_done).await);
    let late = sent_at(&town.world).expect("it was sent") - at(DUE_AT);
    assert!((TimeDelta::zero()..TimeDelta::milliseconds(50)).contains(&late), "{late} late");
}

// The negative control of the anchor.
#[tokio::test(start_paused = true)]
async fn without_the_anchor_a_clock_ahead_makes_the_run_early() {
    let mut town = town().await;
    let host = town.wrong_clock();
    host.set_ahead(TimeDelta::seconds(20));
    town.start_worker_by(host, "w");
    town.send(&[town.message("c-1/bill", at(DUE_AT))]).await;
    assert!(town.until(120, is_done).await);
    let sent_at = sent_at(&town.world).expect("it was sent");
    assert!(sent_at <= at(DUE_AT) - TimeDelta::seconds(15), "{sent_at} is not early: the anchor guards nothing");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_made_by_a_clock_that_is_off() {
    let town = town().await;
    let host = town.wrong_clock();
    let clock = AnchoredClock::new(host.clone());
    let jobs = town.world.ports().jobs;
    let make = async || create_job(&*jobs, &clock, &town.timetable(), reminder("c-2/bill", EVERY_DAY), "test").await;
    let unheard = make().await;
    assert!(matches!(unheard, Err(OperationError::Clock(_, ClockOff::Unanchored))), "{unheard:?}");
    clock.hear(clock.boottime(), town.clock.now());
    host.set_ahead(TimeDelta::seconds(45));
    let off = make().await;
    assert!(matches!(off, Err(OperationError::Clock(_, ClockOff::Off(_)))), "{off:?}");
    assert!(town.world.job(&run_of("c-2/bill", at(0)).job_key).is_none());
    host.set_ahead(TimeDelta::seconds(20));
    let made = make().await;
    assert!(matches!(made, Ok(Created::New(_))), "{made:?}");
}

#[tokio::test]
async fn the_stores_answers_set_the_clock_of_a_process_right() {
    let stack = Stack::start(StackConfig::default()).expect("free ports are always found");
    let right = SystemClock::new();
    for ahead in [0, 40, -40] {
        let host = WrongClock::over(Arc::new(SystemClock::new()));
        host.set_ahead(TimeDelta::seconds(ahead));
        let clock = Arc::new(AnchoredClock::new(host));
        let aws = stack.aws_by(Names::new("punctual").expect("a valid prefix"), clock.clone()).await;
        assert_eq!(clock.check(), Err(ClockOff::Unanchored), "before the first call");
        schema::setup(&aws).await.expect("the stack can be set up");
        let exact_to = TimeDelta::from_std(clock.reading().expect("it was heard").exact_to()).expect("it is small");
        let late = right.now() - clock.now();
        assert!(late >= TimeDelta::zero(), "the reading is early by {}", -late);
        // The two clocks are not read at the same moment.
        assert!(late <= exact_to * 2 + TimeDelta::milliseconds(500), "the reading is late by {late}");
        assert!(exact_to <= TimeDelta::seconds(2), "{exact_to}");
        match clock.check() {
            Ok(()) => assert_eq!(ahead, 0),
            Err(ClockOff::Off(offset)) => {
                assert!((offset - TimeDelta::seconds(ahead)).abs() <= exact_to + TimeDelta::seconds(1), "{offset}");
            }
            Err(ClockOff::Unanchored) => panic!("nothing was heard of the store"),
        }
    }
    stack.stop().await;
}

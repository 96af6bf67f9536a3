//! What dispatch does when copies come and go and when jobs are not as they should be, in memory and in virtual time.

use punctual_core::due::{Minute, Shards};
use punctual_core::job::JobState;
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::missed::Many;
use punctual_core::ports::{Replace, ReplaceIf};
use punctual_core::run::{RunStatus, SkipReason};
use punctual_scheduler::operations::{Created, create_job};
use punctual_tests::watch::due_reads;
use punctual_tests::{Town, at, reminder, run_of, within};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const EVERY_MINUTE: &str = "every 60s from 2026-10-05T03:13:28Z";

fn owners(town: &Town) -> BTreeSet<String> {
    let shards = town.world.leases().into_iter().filter(|l| l.id.to_string().starts_with("shard/"));
    shards.filter_map(|lease| lease.owner).collect()
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_dead_copy_move_on() {
    let plan = FaultPlan::default();
    let shards = Shards { urgent: 1, standard: 5 };
    let mut town = Town::with(shards, plan.clone(), Arc::new(|ports| ports)).await;
    for n in 0..60 {
        town.add(reminder(&format!("c-{n}/bill"), "every 24h from 2026-10-05T03:14:00Z")).await;
    }
    town.start_scheduler("s1");
    town.start_scheduler("s2");
    assert!(town.until(20, |_| owners(&town).len() == 2).await);
    // Dies in the middle of its first page, holding half of the shards.
    plan.add(Point::Nth("jobs.advance", 1), Fault::CrashAfter);
    assert!(town.until(60, |world| world.jobs().values().all(|job| job.next_scheduled_at > Some(at(40)))).await);
    assert!(plan.to_come().is_empty());
    let distinct: BTreeSet<_> =
        town.world.enqueued().iter().filter_map(|e| e.message.as_ref().map(|m| m.run_id().to_string())).collect();
    assert_eq!(distinct.len(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_stops_in_order_hands_over_at_once() {
    let (change, reads) = due_reads();
    let town = Town::with(Shards { urgent: 1, standard: 3 }, FaultPlan::default(), change).await;
    let first = town.start_stoppable_scheduler("first");
    assert!(town.until(20, |_| owners(&town).len() == 1).await);
    // Longer than a minute is read again, so that the cursors leave the place where they were put at first.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let second = town.start_stoppable_scheduler("second");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(owners(&town).iter().all(|owner| owner.starts_with("first")), "nobody is robbed of his shards");

    first.tell().await.expect("it ends in order");
    assert!(owners(&town).is_empty());
    let left = town.world.leases();
    assert!(!left.iter().any(|l| l.id.to_string().starts_with("copy/first")), "its registration is gone too");
    let left: BTreeMap<LeaseId, Minute> = left.into_iter().filter_map(|l| Some((l.id, l.cursor?))).collect();
    assert_eq!(left.len(), 4);
    assert!(left.values().all(|cursor| *cursor > Minute::of(at(0))), "the cursors have moved: {left:?}");
    reads.clear();

    // A renewal time, and the second in which it falls.
    let holds_all = |world: &World| {
        let owner_is_second = |l: &Lease| l.owner.as_ref().is_some_and(|owner| owner.starts_with("second"));
        world.leases().iter().filter(|l| owner_is_second(l)).count() == 4 + 1
    };
    assert!(town.until(4, holds_all).await, "{:?}", town.world.leases());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut oldest: BTreeMap<LeaseId, Minute> = BTreeMap::new();
    for bucket in reads.all() {
        let from = oldest.entry(LeaseId::Shard(bucket.shard)).or_insert(bucket.minute);
        *from = bucket.minute.min(*from);
    }
    assert_eq!(oldest, left, "the next one goes on from the cursors");
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_a_backlog_and_not_a_gap() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    let mut spec = reminder("c-1/bill", EVERY_MINUTE);
    spec.missed.many = Many::All;
    town.add(spec).await;
    tokio::time::sleep(Duration::from_secs(3_000)).await;
    town.start_scheduler("s");
    assert!(town.until(120, |world| world.enqueued().len() >= 50).await);
    let run_keys: Vec<_> =
        town.world.enqueued().iter().filter_map(|e| e.message.as_ref().map(|m| m.scheduled_at)).collect();
    let expected: Vec<_> = (0..run_keys.len() as i64).map(|n| at(8 + 60 * n)).collect();
    assert_eq!(run_keys, expected, "every firing, each at its nominal instant, in order");
}

#[tokio::test(start_paused = true)]
async fn a_job_made_again_when_its_time_is_over_is_there_already_or_not_made() {
    let town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    let mut spec = reminder("c-1/bill", EVERY_MINUTE);
    spec.schedule.end_at = Some(at(600));
    town.add(spec.clone()).await;
    tokio::time::sleep(Duration::from_secs(3_000)).await;
    let ports = town.world.ports();
    let again = async |spec| create_job(&*ports.jobs, &*town.clock, &town.timetable(), spec, "test").await;
    assert!(matches!(again(spec.clone()).await, Ok(Created::Same)));
    let mut other = spec.clone();
    other.payload.text = "Your last bill is due".into();
    assert!(matches!(again(other).await, Ok(Created::Different)));
    spec.key = run_of("c-2/bill", at(8)).job_key;
    assert!(matches!(again(spec).await, Ok(Created::Over)));
    assert_eq!(town.world.jobs().len(), 1);
}

// Decided in one minute and advanced in the next one: by then its reader may have left the first behind.
#[tokio::test(start_paused = true)]
async fn a_job_is_advanced_into_a_minute_that_is_still_to_be_read() {
    let plan = FaultPlan::one(Point::Nth("queue.send", 1), Fault::Delay(Duration::from_secs(8)));
    plan.add(Point::Nth("jobs.advance", 1), Fault::CrashAfter); // so that it stays where it was put
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), Arc::new(|ports| ports)).await;
    town.add(reminder("c-1/bill", EVERY_MINUTE)).await;
    let key = run_of("c-1/bill", at(8)).job_key;
    // 3:14:50: it owes 3:13:28 and 3:14:28, and is sent the first of them in the last seconds of that minute.
    tokio::time::sleep(Duration::from_secs(90)).await;
    town.start_scheduler("s");
    assert!(town.until(60, |world| !world.advances(&key).is_empty()).await);
    assert!(plan.to_come().is_empty());
    let sent = town.world.history().into_iter().find(|r| matches!(r.effect, Effect::Advanced { .. }));
    assert!(sent.is_some_and(|advanced| advanced.at >= at(100)), "the send was over in the minute after");
    let job = town.world.job(&key).expect("the job is there");
    assert_eq!(job.next_due_at, Some(at(68)));
    assert_eq!(job.due_bucket.map(|bucket| bucket.minute), Some(Minute::of(at(100))));
}

#[tokio::test(start_paused = true)]
async fn one_bad_job_is_set_aside_and_stops_nothing() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    for id in ["c-1/bill", "c-2/bill"] {
        town.add(reminder(id, "every 24h from 2026-10-05T03:13:28Z")).await;
    }
    let bad = run_of("c-1/bill", at(8)).job_key;
    town.world.make_unreadable(&bad, "no schedule");
    town.start_scheduler("s");
    assert!(town.until(60, |world| world.jobs()[&bad].state == JobState::Quarantined).await);
    assert!(town.until(60, |world| !world.advances(&run_of("c-2/bill", at(8)).job_key).is_empty()).await);
    assert_eq!(town.world.enqueued().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_active_leaves_the_index_and_does_not_fire() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.add(reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z")).await;
    let key = run_of("c-1/bill", at(8)).job_key;
    let mut job = town.world.job(&key).expect("the job is there");
    let read = ReplaceIf::from(&job);
    (job.state, job.version, job.edit_token) = (JobState::Paused, 2, "edit".into());
    assert_eq!(town.world.ports().jobs.replace(&job, &read).await, Ok(Replace::Replaced));
    town.start_scheduler("s");
    assert!(town.until(60, |world| world.job(&key).is_some_and(|job| job.due_bucket.is_none())).await);
    assert!(town.world.enqueued().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_too_late_to_start_is_a_row_before_its_job_advances() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    let mut spec = reminder("c-1/bill", "every 24h from 2026-10-05T03:13:28Z");
    spec.missed = within(30);
    town.add(spec).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    town.start_scheduler("s");
    let run = run_of("c-1/bill", at(8));
    assert!(town.until(60, |world| !world.advances(&run.job_key).is_empty()).await);
    let history = town.world.history();
    let skipped = history.iter().position(|r| matches!(&r.effect, Effect::Row(row) if row.id == run));
    let advanced =
        history.iter().position(|r| matches!(&r.effect, Effect::Advanced { key, .. } if *key == run.job_key));
    assert!(skipped.is_some() && skipped < advanced, "row {skipped:?}, advance {advanced:?}");
    let row = town.world.row(&run).expect("the skip is a row");
    assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Deadline)));
    assert!(town.world.enqueued().is_empty());
}

#[tokio::test(start_paused = true)]
async fn index_lag_and_throttling_only_make_runs_late() {
    let plan = FaultPlan::default();
    for n in 1..20 {
        plan.add(
            Point::Nth("jobs.get_many", n),
            Fault::FailBefore(punctual_core::error::PortError::Throttled("slow down".into())),
        );
    }
    let mut town = Town::with(Shards { urgent: 0, standard: 2 }, plan, Arc::new(|ports| ports)).await;
    town.world.set_index_lag(Duration::from_secs(5));
    for n in 0..20 {
        town.add(reminder(&format!("c-{n}/bill"), EVERY_MINUTE)).await;
    }
    town.start_scheduler("s");
    let all_fired_twice = |world: &World| world.jobs().keys().all(|key| world.advances(key).len() >= 2);
    assert!(town.until(300, all_fired_twice).await);
    for key in town.world.jobs().keys() {
        assert_eq!(town.world.advances(key)[..2], [at(8), at(68)]);
    }
}

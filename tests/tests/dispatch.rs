//! What dispatch does when copies come and go and when jobs are not as they should be, in memory and in virtual time.

use chrono::TimeDelta;
use punctual_core::due::{Layout, Minute, SETTLE, Shards};
use punctual_core::job::{Advanced, JobState};
use punctual_core::lease::{Lease, LeaseId};
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::missed::Many;
use punctual_core::ports::{Advance, AdvanceFrom, Replace, ReplaceIf};
use punctual_core::run::{RunStatus, SkipReason};
use punctual_core::schedule::whole_second;
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
    assert_eq!(shares(&town.world, &["first", "second"]), [2, 1], "as even as three can be");

    first.tell().await.expect("it ends in order");
    assert!(owners(&town).iter().all(|owner| owner.starts_with("second")));
    let left = town.world.leases();
    assert!(!left.iter().any(|l| l.id.to_string().starts_with("copy/first")), "its registration is gone too");
    let left: BTreeMap<LeaseId, Minute> = left
        .into_iter()
        .filter(|lease| matches!(lease.id, LeaseId::Shard(_)))
        .filter_map(|lease| Some((lease.id, lease.cursor?)))
        .collect();
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
    let read: BTreeSet<(LeaseId, Minute)> =
        reads.all().into_iter().map(|bucket| (LeaseId::Shard(bucket.shard), bucket.minute)).collect();
    let now = Minute::of(town.clock.now());
    for (id, cursor) in left {
        for minute in cursor.0..=now.0 {
            assert!(read.contains(&(id.clone(), Minute(minute))), "{id}: minute {minute} of {}..={}", cursor.0, now.0);
        }
    }
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
    assert!(matches!(again(spec.clone()).await, Ok(Created::Same(_))));
    let mut other = spec.clone();
    other.payload = other.payload.with_text("Your last bill is due");
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

/// How many standard shards each of these copies holds.
fn shares(world: &World, names: &[&str]) -> Vec<usize> {
    let leases = world.leases();
    let of = |name: &&str| {
        let held = leases.iter().filter(|l| l.id.to_string().starts_with("shard/0"));
        held.filter(|l| l.owner.as_ref().is_some_and(|owner| owner.starts_with(*name))).count()
    };
    names.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_joins_late_is_handed_its_share_and_no_run_is_enqueued_twice_by_it() {
    let mut town = Town::new(Shards { urgent: 0, standard: 24 }).await;
    for n in 0..240 {
        town.add(reminder(&format!("c-{n}/bill"), EVERY_MINUTE)).await;
    }
    town.start_scheduler("a");
    assert!(town.until(30, |world| shares(world, &["a"]) == [24]).await);
    town.start_scheduler("b");
    assert!(
        town.until(60, |world| shares(world, &["a", "b"]) == [12, 12]).await,
        "{:?}",
        shares(&town.world, &["a", "b"])
    );
    town.start_scheduler("c");
    let all_three = |world: &World| shares(world, &["a", "b", "c"]).iter().all(|held| (7..=9).contains(held));
    assert!(town.until(60, all_three).await, "{:?}", shares(&town.world, &["a", "b", "c"]));
    tokio::time::sleep(Duration::from_secs(120)).await;
    town.stop().await;
    let enqueued = town.world.enqueued();
    let distinct: BTreeSet<_> = enqueued.iter().filter_map(|e| e.message.as_ref().map(|m| m.run_id())).collect();
    assert_eq!(enqueued.len(), distinct.len(), "a hand-over repeats nothing");
    let late = enqueued.iter().filter_map(|e| e.message.as_ref().map(|m| m.first_enqueued_at - m.due_at));
    assert!(late.max().is_some_and(|lag| lag <= TimeDelta::seconds(3)), "and makes nothing later than a turn or two");
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_copy_that_dies_move_within_the_lease_time_and_two_seconds() {
    for died_after_ms in [0, 700, 1_500, 2_900] {
        let mut town = Town::new(Shards { urgent: 2, standard: 6 }).await;
        let dying = town.start_stoppable_scheduler("dying");
        town.start_scheduler("other");
        tokio::time::sleep(Duration::from_millis(60_000 + died_after_ms)).await;
        assert!(shares(&town.world, &["dying", "other"]).iter().all(|held| *held == 3));
        let died_at = town.clock.monotonic();
        dying.kill();
        assert!(town.until_ms(20_000, 50, |world| shares(world, &["other"]) == [6]).await);
        let moved_in = town.clock.monotonic() - died_at;
        assert!(moved_in <= Duration::from_secs(12), "{moved_in:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_sent_at_its_instant_whatever_the_tick() {
    let mut town = Town::new(Shards { urgent: 0, standard: 2 }).await;
    for n in 0..40 {
        town.add(reminder(&format!("c-{n}/bill"), &format!("every 1h from 2026-10-05T03:15:{:02}Z", n))).await;
    }
    town.start_scheduler("s");
    assert!(town.until(180, |world| world.enqueued().len() == 40).await);
    for sent in town.world.enqueued() {
        let message = sent.message.expect("it can be read");
        let lag = message.first_enqueued_at - message.due_at;
        assert!((TimeDelta::zero()..=TimeDelta::milliseconds(20)).contains(&lag), "{lag}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heavy_second_is_in_the_queue_before_it_is_due_and_visible_when_it_is() {
    const JOBS: usize = 3_000;
    let plan = FaultPlan::default();
    for call in ["jobs.get_many", "queue.send", "jobs.advance"] {
        plan.add(Point::Every(call), Fault::Delay(Duration::from_millis(30)));
    }
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await;
    let due_at = at(100);
    for n in 0..JOBS {
        town.add(reminder(&format!("c-{n}/bill"), "every 1h from 2026-10-05T03:15:00Z")).await;
    }
    assert_eq!(town.world.job(&run_of("c-0/bill", at(0)).job_key).and_then(|job| job.next_due_at), Some(due_at));
    town.start_scheduler("s");
    assert!(town.until(180, |world| world.enqueued().len() >= JOBS).await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let sent = town.world.enqueued();
    assert_eq!(sent.len(), JOBS, "each once");
    for sent in &sent {
        let visible_at = sent.message.as_ref().expect("it can be read").first_enqueued_at + sent.delay;
        assert!(visible_at >= due_at && visible_at <= due_at + TimeDelta::milliseconds(1_500), "{visible_at}");
    }
    let early = sent.iter().filter(|sent| !sent.delay.is_zero()).count();
    assert!(early * 2 >= JOBS, "{early} of {JOBS} were sent in the seconds before");
}

// The near future was read without it.
#[tokio::test(start_paused = true)]
async fn a_job_made_inside_the_look_ahead_is_enqueued_within_two_seconds_of_being_due() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.start_scheduler("s");
    for ahead in [1, 2, 7, 20] {
        tokio::time::sleep(Duration::from_millis(61_300)).await;
        let due_at = whole_second(town.clock.now()) + TimeDelta::seconds(ahead);
        let id = format!("in-{ahead}/bill");
        town.add(reminder(&id, &format!("at {}", due_at.format("%Y-%m-%dT%H:%M:%SZ")))).await;
        assert!(town.until(40, |world| world.enqueued().len() == 1).await);
        let message = town.world.enqueued().remove(0).message.expect("it can be read");
        let lag = message.first_enqueued_at - due_at;
        assert!((TimeDelta::zero()..=TimeDelta::seconds(2)).contains(&lag), "{id}: {lag}");
        town.world.forget_history();
    }
}

// It was sent early and kept back by the queue; its copy died before it could advance the job.
#[tokio::test(start_paused = true)]
async fn a_copy_that_dies_with_runs_in_hand_loses_none() {
    let plan = FaultPlan::one(Point::Nth("jobs.advance", 1), Fault::CrashBefore);
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await;
    for n in 0..600 {
        town.add(reminder(&format!("c-{n}/bill"), "at 2026-10-05T03:15:00Z")).await;
    }
    town.start_scheduler("s");
    let is_done = |world: &World| world.jobs().values().all(|job| job.next_scheduled_at.is_none());
    assert!(town.until(300, is_done).await);
    let distinct: BTreeSet<_> =
        town.world.enqueued().iter().filter_map(|e| e.message.as_ref().map(|m| m.run_id())).collect();
    assert_eq!(distinct.len(), 600);
}

// An hour's outage, and a queue that takes half a second for each call: the pass over the old minutes takes half a minute.
#[tokio::test(start_paused = true)]
async fn what_is_on_time_does_not_wait_for_old_minutes() {
    let plan = FaultPlan::default();
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), Arc::new(|ports| ports)).await;
    let schedule = |s: i64| format!("at {}", at(s).to_rfc3339());
    for minute in 0..60 {
        town.add(reminder(&format!("old-{minute}/bill"), &schedule(60 * minute + 30))).await;
    }
    tokio::time::sleep(Duration::from_secs(3_700)).await;
    plan.add(Point::Every("queue.send"), Fault::Delay(Duration::from_millis(500)));
    town.start_scheduler("s");
    assert!(town.until_ms(60_000, 100, |world| !world.enqueued().is_empty()).await);
    let due_at = (town.clock.now() - at(0)).num_seconds() + 3;
    town.add(reminder("new/bill", &schedule(due_at))).await;
    let is_new_sent = |world: &World| {
        let enqueued = world.enqueued();
        let mut messages = enqueued.iter().filter_map(|sent| sent.message.as_ref());
        messages.any(|message| message.job_key.id() == "new/bill")
    };
    assert!(town.until_ms(6_000, 100, is_new_sent).await);
    assert!(town.world.enqueued().len() < 30, "the old minutes are not half done");
    assert!(town.until(120, |world| world.enqueued().len() == 61).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_left_behind_the_cursor_is_found_by_the_audit() {
    let mut town = Town::new(Shards { urgent: 0, standard: 1 }).await;
    town.start_scheduler("s");
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    // A writer whose clock stood for half an hour puts a job where nobody reads any more.
    let key = run_of("c-1/bill", at(0)).job_key;
    town.add(reminder("c-1/bill", "every 1h from 2026-10-05T06:00:00Z")).await;
    let job = town.world.job(&key).expect("it was made");
    let mut next = job.standing().expect("it is due some time");
    next.due_at = at(7_200 - 1_800);
    next.bucket.minute = Minute::of(next.due_at);
    let from = AdvanceFrom { next_scheduled_at: next.scheduled_at, version: job.version };
    let to = Advanced::at(next);
    let moved = town.world.ports().jobs.advance(&key, &from, &to).await;
    assert_eq!(moved, Ok(Advance::Advanced));
    assert!(town.until(70, |world| world.enqueued().len() == 1).await, "the last hour is read every minute");
}

#[tokio::test(start_paused = true)]
async fn shards_that_are_added_while_running_are_read_before_anything_is_written_to_them() {
    let few = Shards { urgent: 0, standard: 2 };
    let many = Shards { urgent: 0, standard: 8 };
    let mut town = Town::new(few).await;
    for n in 0..60 {
        town.add(reminder(&format!("c-{n}/bill"), EVERY_MINUTE)).await;
    }
    ["a", "b"].iter().for_each(|name| town.start_scheduler(name));
    tokio::time::sleep(Duration::from_secs(130)).await;
    let control = town.world.ports().control;
    for shard in many.all() {
        let cursor = Minute::of(town.clock.now() - SETTLE);
        town.world.ports().leases.init(&LeaseId::Shard(shard), cursor).await.expect("memory does not fail");
    }
    let growing = Layout { read: many, write: few };
    assert_eq!(control.change_layout(Layout::of(few), growing).await, Ok(growing));
    assert!(
        town.until(60, |world| shares(world, &["a", "b"]) == [4, 4]).await,
        "{:?}",
        shares(&town.world, &["a", "b"])
    );
    assert_eq!(control.change_layout(growing, Layout::of(many)).await, Ok(Layout::of(many)));
    tokio::time::sleep(Duration::from_secs(180)).await;
    let jobs = town.world.jobs();
    let used: BTreeSet<_> = jobs.values().filter_map(|job| job.due_bucket.map(|bucket| bucket.shard)).collect();
    assert_eq!(used.len(), 8, "jobs have moved to the new shards as they advanced");
    let enqueued = town.world.enqueued();
    let distinct: BTreeSet<_> = enqueued.iter().filter_map(|e| e.message.as_ref().map(|m| m.run_id())).collect();
    assert_eq!(distinct.len(), enqueued.len());
    let lags = enqueued.iter().filter_map(|e| e.message.as_ref().map(|m| m.first_enqueued_at - m.due_at));
    assert!(lags.max().is_some_and(|lag| lag <= TimeDelta::seconds(3)));
    assert_eq!(town.world.jobs().values().filter(|job| job.next_due_at < Some(town.clock.now())).count(), 0);
}

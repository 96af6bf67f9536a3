//! What dispatch does when one queue fails, and when one copy reaches none or can do nothing, in memory and in virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::JobSpec;
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::priority::Priority;
use punctual_tests::logs::Logs;
use punctual_tests::{Town, at, broken, reminder};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const SHARDS: Shards = Shards { urgent: 0, standard: 4 };
const EVERY_MINUTE: &str = "every 60s from 2026-10-05T03:14:00Z";

/// A run as it was put into a queue.
#[derive(Debug)]
struct Sent {
    priority: Priority,
    job: String,
    scheduled_at: DateTime<Utc>,
    /// From when it was due to when its queue showed it.
    lag: TimeDelta,
}

fn sent(world: &World) -> Vec<Sent> {
    let sent = world.history().into_iter().filter_map(|recorded| match recorded.effect {
        Effect::Enqueued(enqueued) => {
            let message = enqueued.message.expect("it can be read");
            let visible_at = recorded.at + enqueued.delay;
            let (job, lag) = (message.job_key.to_string(), visible_at - message.due_at);
            Some(Sent { priority: enqueued.priority, job, scheduled_at: message.scheduled_at, lag })
        }
        _ => None,
    });
    sent.collect()
}

/// Who holds each shard.
fn owners(world: &World) -> BTreeMap<String, Option<String>> {
    let shards = world.leases().into_iter().filter(|lease| lease.id.to_string().starts_with("shard/"));
    shards.map(|lease| (lease.id.to_string(), lease.owner)).collect()
}

/// How many shards a copy holds.
fn count_of(world: &World, name: &str) -> usize {
    owners(world).values().flatten().filter(|owner| owner.starts_with(name)).count()
}

fn holds_all(world: &World, name: &str) -> bool {
    count_of(world, name) == usize::from(SHARDS.standard)
}

/// Jobs that fire each minute, none of whose firings may be passed over.
async fn add_minutely(town: &Town, name: &str, priority: Priority, count: usize) {
    for n in 0..count {
        let missed = MissedRule { many: Many::All, ..MissedRule::default() };
        // Not all of them in one second.
        let schedule = EVERY_MINUTE.replace(":00Z", &format!(":{:02}Z", n * 7 % 60));
        town.add(JobSpec { missed, priority, ..reminder(&format!("{name}-{n}/bill"), &schedule) }).await;
    }
}

/// Each job's firings are there from its first one on, each once and without a gap, up to the last minute.
fn assert_each_once(sent: &[Sent], jobs: usize, until: DateTime<Utc>) {
    let mut by_job: BTreeMap<&str, Vec<DateTime<Utc>>> = BTreeMap::new();
    sent.iter().for_each(|run| by_job.entry(&run.job).or_default().push(run.scheduled_at));
    assert_eq!(by_job.len(), jobs);
    for (job, mut firings) in by_job {
        firings.sort();
        let steps = firings.windows(2).all(|two| two[1] - two[0] == TimeDelta::seconds(60));
        assert!(steps, "{job}: {firings:?}");
        assert!(firings[0] < at(120) && firings[firings.len() - 1] > until - TimeDelta::seconds(61), "{job}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_fails_alone_disturbs_nothing_else_and_loses_nothing() {
    let errors = [
        PortError::Temporary("injected".into()),
        PortError::Throttled("injected".into()),
        PortError::Permanent("injected".into()),
    ];
    for error in errors {
        let logs = Logs::keep();
        let (change, breakage) = broken::sends_of(Priority::Bulk);
        let mut town = Town::with(SHARDS, FaultPlan::default(), change).await;
        add_minutely(&town, "bulk", Priority::Bulk, 30).await;
        add_minutely(&town, "normal", Priority::Normal, 30).await;
        ["s1", "s2"].iter().for_each(|name| town.start_scheduler(name));
        tokio::time::sleep(Duration::from_secs(120)).await;
        let before = owners(&town.world);
        breakage.set(error.clone());
        let from = town.clock.now();
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(owners(&town.world), before, "{error:?}: a shard changed hands");
        }
        let bulk = sent(&town.world).into_iter().filter(|run| run.priority == Priority::Bulk);
        assert!(bulk.map(|run| run.scheduled_at).max().is_some_and(|last| last < from + TimeDelta::seconds(60)));
        breakage.mend();
        tokio::time::sleep(Duration::from_secs(60)).await;
        town.stop().await;
        let sent = sent(&town.world);
        assert_each_once(&sent, 60, town.clock.now());
        let late = |run: &&Sent| run.priority == Priority::Normal && run.lag > TimeDelta::seconds(2);
        // Before the copies hold their shards everything is late.
        let late: Vec<_> = sent.iter().filter(|run| run.scheduled_at > at(30)).filter(late).collect();
        assert!(late.is_empty(), "{error:?}: {} are late, such as {:?}", late.len(), late[0]);
        let told = if error.may_pass() { Level::WARN } else { Level::ERROR };
        let troubles = logs.of(told);
        assert_eq!(troubles.len(), 2, "{error:?}: once a copy: {troubles:#?}");
        assert!(troubles.iter().all(|line| line.contains("priority=bulk")), "{troubles:#?}");
        let over = logs.of(Level::INFO).into_iter().filter(|line| line.contains("the queue works again"));
        assert_eq!(over.count(), 2, "{error:?}: once a copy");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_queue_in_trouble_is_not_read_again_at_every_tick() {
    let plan = FaultPlan::default();
    let (change, breakage) = broken::sends_of(Priority::Bulk);
    let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), change).await;
    breakage.set(PortError::Temporary("injected".into()));
    for n in 0..50 {
        let once = reminder(&format!("bulk-{n}/bill"), "at 2026-10-05T03:14:00Z");
        town.add(JobSpec { priority: Priority::Bulk, ..once }).await;
    }
    town.start_scheduler("s");
    tokio::time::sleep(Duration::from_secs(300)).await;
    let reads = |plan: &FaultPlan| plan.calls().iter().filter(|call| call.name == "jobs.get_many").count();
    let before = reads(&plan);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let in_five_minutes = reads(&plan) - before;
    // One for each time that the queue is tried.
    assert!(in_five_minutes <= 60, "{in_five_minutes} reads");
    breakage.mend();
    assert!(town.until(10, |world| world.enqueued().len() == 50).await, "{} sent", town.world.enqueued().len());
}

fn cut_off(plan: &FaultPlan, process: &str, error: &PortError) {
    for call in ["queue.send", "queue.depth"] {
        plan.add(Point::EveryOf(process.into(), call), Fault::FailBefore(error.clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_reaches_no_queue_leaves_all_shards_to_the_other_which_sends_everything() {
    for error in [PortError::Temporary("injected".into()), PortError::Unknown("injected".into())] {
        let plan = FaultPlan::default();
        let mut town = Town::with(SHARDS, plan.clone(), Arc::new(|ports| ports)).await;
        add_minutely(&town, "bulk", Priority::Bulk, 15).await;
        add_minutely(&town, "normal", Priority::Normal, 15).await;
        ["s1", "s2"].iter().for_each(|name| town.start_scheduler(name));
        tokio::time::sleep(Duration::from_secs(60)).await;
        cut_off(&plan, "s2", &error);
        assert!(town.until(60, |world| holds_all(world, "s1")).await, "{error:?}: {:?}", owners(&town.world));
        tokio::time::sleep(Duration::from_secs(300)).await;
        plan.clear();
        assert!(town.until(300, |world| !holds_all(world, "s1")).await, "{error:?}: it takes its share again");
        tokio::time::sleep(Duration::from_secs(30)).await;
        town.stop().await;
        assert_each_once(&sent(&town.world), 30, town.clock.now());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_all_copies_share_is_over_soon_after_its_end() {
    let cases: [&[&'static str]; 2] = [&["queue.send", "queue.depth"], &["due.page"]];
    for (calls, copies) in cases.into_iter().flat_map(|calls| [(calls, 1), (calls, 2)]) {
        let plan = FaultPlan::default();
        let mut town = Town::with(SHARDS, plan.clone(), Arc::new(|ports| ports)).await;
        add_minutely(&town, "normal", Priority::Normal, 30).await;
        ["s1", "s2"].iter().take(copies).for_each(|name| town.start_scheduler(name));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let fault = Fault::FailBefore(PortError::Temporary("injected".into()));
        calls.iter().for_each(|call| plan.add(Point::Every(call), fault.clone()));
        tokio::time::sleep(Duration::from_secs(900)).await;
        plan.clear();
        let over_at = town.clock.now();
        tokio::time::sleep(Duration::from_secs(90)).await;
        town.stop().await;
        let sent = sent(&town.world);
        assert_each_once(&sent, 30, town.clock.now());
        let after = sent.iter().filter(|run| run.scheduled_at > over_at);
        let longest = after.map(|run| run.lag).max().expect("they fire each minute");
        assert!(longest < TimeDelta::seconds(30), "{calls:?}, {copies} copies: {longest}");
    }
}

/// From when to when a copy held shards, looked at for so long.
async fn stints(town: &Town, name: &str, seconds: u64) -> Vec<(DateTime<Utc>, DateTime<Utc>)> {
    let give_up_at = town.clock.now() + TimeDelta::seconds(seconds as i64);
    let (mut stints, mut holds) = (Vec::new(), false);
    while town.clock.now() < give_up_at {
        let (now, held) = (town.clock.now(), count_of(&town.world, name));
        match (std::mem::replace(&mut holds, held > 0), holds) {
            (false, true) => stints.push((now, now)),
            (true, _) => stints.last_mut().expect("it began").1 = now,
            (false, false) => {}
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    stints
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_can_do_nothing_comes_back_ever_more_seldom_and_makes_late_only_what_it_takes() {
    // With the shards that it has at first; a copy that knows what it cannot do does not try.
    let cases: [(&[&'static str], usize); 2] = [(&["due.page"], 6), (&["queue.send", "queue.depth"], 1)];
    for (calls, most) in cases {
        let plan = FaultPlan::default();
        let mut town = Town::with(SHARDS, plan.clone(), Arc::new(|ports| ports)).await;
        add_minutely(&town, "normal", Priority::Normal, 60).await;
        ["s1", "s2"].iter().for_each(|name| town.start_scheduler(name));
        tokio::time::sleep(Duration::from_secs(60)).await;
        for call in calls {
            plan.add(Point::EveryOf("s2".into(), call), Fault::FailBefore(PortError::Temporary("injected".into())));
        }
        let from = town.clock.now();
        let stints = stints(&town, "s2", 600).await;
        town.stop().await;
        assert!((1..=most).contains(&stints.len()), "{calls:?}: {stints:?}");
        let near = |at: DateTime<Utc>| {
            let (before, after) = (TimeDelta::seconds(1), TimeDelta::seconds(3));
            stints.iter().any(|(first, last)| *first - before <= at && at <= *last + after)
        };
        let due_at = |run: &Sent| run.scheduled_at;
        let sent = sent(&town.world);
        let late = |run: &&Sent| run.lag > TimeDelta::seconds(3) && due_at(run) > from && !near(due_at(run));
        assert_eq!(sent.iter().filter(late).count(), 0, "{calls:?}: {stints:?}");
        let longest = sent.iter().filter(|run| due_at(run) > from).map(|run| run.lag).max();
        assert!(longest < Some(TimeDelta::seconds(20)), "{calls:?}: {longest:?}");
        assert_each_once(&sent, 60, town.clock.now() - TimeDelta::seconds(20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_clock_goes_off_gives_its_shards_back_at_once_and_asks_for_none_until_it_is_right() {
    for ahead in [60, -60] {
        let mut town = Town::new(SHARDS).await;
        add_minutely(&town, "normal", Priority::Normal, 60).await;
        town.start_scheduler("s1");
        let host = town.wrong_clock();
        town.start_scheduler_on(host.clone(), "s2");
        assert!(town.until(60, |world| count_of(world, "s2") == 2).await, "{ahead}: it takes its share at first");
        let from = town.clock.now();
        host.set_ahead(TimeDelta::seconds(ahead));
        assert!(town.until_ms(2_000, 100, |world| count_of(world, "s2") == 0).await, "{ahead}: it holds on");
        let is_quiet = |world: &World| {
            let asks = |wanted_by: &String| wanted_by.starts_with("s2");
            count_of(world, "s2") == 0 && !world.leases().iter().any(|lease| lease.wanted_by.as_ref().is_some_and(asks))
        };
        assert!(!town.until_ms(600_000, 250, |world| !is_quiet(world)).await, "{ahead}: it takes or asks");
        assert!(holds_all(&town.world, "s1"));
        host.set_ahead(TimeDelta::zero());
        assert!(town.until(30, |world| count_of(world, "s2") == 2).await, "{ahead}: it takes its share again");
        town.stop().await;
        let sent = sent(&town.world);
        let longest = sent.iter().filter(|run| run.scheduled_at > from).map(|run| run.lag).max();
        assert!(longest <= Some(TimeDelta::seconds(4)), "{ahead}: {longest:?}");
    }
}

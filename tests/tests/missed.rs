//! What becomes of firings that an outage missed, by each rule, whatever goes wrong while they are worked off.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::deadline::StartRule;
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::memory::{Effect, Fault, FaultPlan, Point, World};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::ports::Put;
use punctual_core::run::{RunRow, RunStatus, SkipReason, SkippedRange};
use punctual_core::schedule::ScheduleText;
use punctual_tests::{Town, at, reminder, run_of, start_of_time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const ID: &str = "c-1/bill";
/// The first firing of a job that fires each minute, in seconds after the start of time.
const FIRST: i64 = 40;

fn key() -> JobKey {
    run_of(ID, at(FIRST)).job_key
}

fn minutely(many: Many) -> JobSpec {
    let zones = punctual_core::zone::Zones::embedded();
    let text = ScheduleText { when: "cron * * * * *", tz: Some("Asia/Kathmandu"), ..ScheduleText::default() };
    let (schedule, _) = text.read(start_of_time(), &zones).expect("a valid schedule");
    let mut spec = JobSpec { schedule, ..reminder(ID, "every 24h") };
    spec.missed.many = many;
    spec
}

/// A town whose job has missed `minutes` firings behind its first one.
async fn town_after(minutes: u64, many: Many, plan: FaultPlan) -> Town {
    let town = Town::with(Shards { urgent: 0, standard: 1 }, plan, Arc::new(|ports| ports)).await;
    town.add(minutely(many)).await;
    tokio::time::sleep(Duration::from_secs(FIRST as u64 + 60 * minutes)).await;
    town
}

/// Lets a scheduler work until nothing is owed.
async fn work_off(town: &mut Town) -> bool {
    town.start_scheduler("s");
    let clock = town.clock.clone();
    let done = town.until(600, |world| world.job(&key()).is_some_and(|job| job.next_scheduled_at > Some(clock.now())));
    done.await
}

fn enqueued(world: &World) -> Vec<DateTime<Utc>> {
    world.enqueued().iter().filter_map(|e| e.message.as_ref().map(|message| message.scheduled_at)).collect()
}

fn ranges(world: &World) -> BTreeMap<DateTime<Utc>, SkippedRange> {
    let of_row = |row: &RunRow| {
        let from = row.id.run_key.as_str().parse().ok().and_then(|s| DateTime::from_timestamp(s, 0))?;
        Some((from, row.range.unwrap_or(SkippedRange { to: from, count: 1 })))
    };
    world.rows().values().filter(|row| row.status == RunStatus::Skipped).filter_map(of_row).collect()
}

/// Every firing before the job's next one is enqueued or in exactly one row, and was so before the job advanced.
fn check(world: &World, case: &str) {
    let next = world.job(&key()).and_then(|job| job.next_scheduled_at).expect("the job goes on");
    let all: BTreeSet<_> = (0..).map(|n| at(FIRST + 60 * n)).take_while(|instant| *instant < next).collect();
    let mut skipped = BTreeSet::new();
    for (from, range) in ranges(world) {
        let covered: Vec<_> = all.range(from..=range.to).copied().collect();
        assert_eq!(covered.len(), range.count as usize, "{case}: the row at {from} says {range:?}");
        assert!(covered.iter().all(|instant| skipped.insert(*instant)), "{case}: in two rows");
    }
    let enqueued: BTreeSet<_> = enqueued(world).into_iter().collect();
    assert!(enqueued.is_disjoint(&skipped), "{case}: both enqueued and skipped");
    assert_eq!(enqueued.union(&skipped).copied().collect::<BTreeSet<_>>(), all, "{case}: something is lost");
    let mut accounted = BTreeSet::new();
    for record in world.history() {
        match &record.effect {
            Effect::Enqueued(sent) => accounted.extend(sent.message.as_ref().map(|message| message.scheduled_at)),
            Effect::Row(row) if row.status == RunStatus::Skipped => {
                let from = run_instant(row);
                let to = row.range.map_or(from, |range| range.to);
                accounted.extend(all.range(from..=to).copied());
            }
            Effect::Advanced { from, to, .. } => {
                let passed = all.range(*from..to.unwrap_or(DateTime::<Utc>::MAX_UTC));
                let early: Vec<_> = passed.filter(|instant| !accounted.contains(*instant)).collect();
                assert!(early.is_empty(), "{case}: advanced before {early:?} were in the queue or a row");
            }
            _ => {}
        }
    }
}

fn run_instant(row: &RunRow) -> DateTime<Utc> {
    let seconds = row.id.run_key.as_str().parse().expect("a run key is seconds");
    DateTime::from_timestamp(seconds, 0).expect("in range")
}

#[tokio::test(start_paused = true)]
async fn fifty_missed_firings_are_fifty_runs_in_one_step_or_one_run_or_none() {
    for many in [Many::All, Many::Latest, Many::None] {
        let mut town = town_after(49, many, FaultPlan::default()).await;
        assert!(work_off(&mut town).await, "{many}");
        town.stop().await;
        check(&town.world, &many.to_string());
        let (runs, rows) = (enqueued(&town.world), ranges(&town.world));
        let advances = town.world.advances(&key());
        let fifty = |count, to: i64| BTreeMap::from([(at(FIRST), SkippedRange { to: at(FIRST + 60 * to), count })]);
        match many {
            Many::All => {
                assert_eq!(runs, (0..50).map(|n| at(FIRST + 60 * n)).collect::<Vec<_>>());
                assert_eq!((rows, advances), (BTreeMap::new(), vec![at(FIRST)]));
            }
            Many::Latest => {
                assert_eq!(runs, [at(FIRST + 60 * 49)]);
                assert_eq!((rows, advances), (fifty(49, 48), vec![at(FIRST), at(FIRST + 60 * 49)]));
            }
            Many::None => {
                assert!(runs.is_empty(), "{runs:?}");
                assert_eq!((rows, advances), (fifty(50, 49), vec![at(FIRST)]));
            }
        }
        let reasons: BTreeSet<_> =
            town.world.rows().values().filter_map(|row| row.reason).map(|r| format!("{r:?}")).collect();
        assert!(reasons.iter().all(|reason| *reason == format!("{:?}", SkipReason::Missed)), "{reasons:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_fault_at_any_call_loses_and_doubles_no_missed_firing() {
    let mut cases = 0;
    for many in [Many::All, Many::Latest, Many::None] {
        let plan = FaultPlan::default();
        let mut town = town_after(9, many, plan.clone()).await;
        assert!(work_off(&mut town).await);
        town.stop().await;
        for call in plan.calls() {
            for fault in Fault::kinds_for(call.name) {
                let case = format!("{many}, call {} {} {fault:?}", call.number, call.name);
                let plan = FaultPlan::one(Point::Call(call.number), fault.clone());
                let mut town = town_after(9, many, plan.clone()).await;
                assert!(work_off(&mut town).await, "{case}: not worked off");
                // What lands late has time to show.
                tokio::time::sleep(Duration::from_secs(20)).await;
                town.stop().await;
                assert!(plan.to_come().is_empty(), "{case}: the fault did not happen");
                check(&town.world, &case);
                cases += 1;
            }
        }
    }
    assert!(cases > 200, "{cases}");
    println!("{cases} cases");
}

// Another copy died between its row and its advance. By now more is owed than that row covers.
#[tokio::test(start_paused = true)]
async fn a_row_that_covers_less_is_passed_no_further_than_it_goes() {
    for many in [Many::Latest, Many::None] {
        let mut town = town_after(9, many, FaultPlan::default()).await;
        let range = Some(SkippedRange { to: at(FIRST + 60 * 4), count: 5 });
        put_row(&town, |row| {
            (row.status, row.reason, row.range) = (RunStatus::Skipped, Some(SkipReason::Missed), range)
        })
        .await;
        assert!(work_off(&mut town).await);
        town.stop().await;
        check(&town.world, &many.to_string());
        let from = at(FIRST + 60 * 5);
        assert!(ranges(&town.world).contains_key(&from), "{many}: the rest has a row of its own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_worker_has_is_enqueued_again_and_the_range_begins_behind_it() {
    let mut town = town_after(9, Many::Latest, FaultPlan::default()).await;
    put_row(&town, |row| {
        row.status = RunStatus::Running;
        row.owner = Some("a worker".into());
        row.lease_until = Some(at(FIRST) + TimeDelta::hours(1));
    })
    .await;
    assert!(work_off(&mut town).await);
    town.stop().await;
    check(&town.world, "open row");
    assert_eq!(enqueued(&town.world), [at(FIRST), at(FIRST + 60 * 9)]);
    assert_eq!(
        ranges(&town.world),
        BTreeMap::from([(at(FIRST + 60), SkippedRange { to: at(FIRST + 60 * 8), count: 8 })])
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_keeps_its_row_and_the_range_begins_behind_it() {
    let mut town = town_after(9, Many::None, FaultPlan::default()).await;
    put_row(&town, |row| row.status = RunStatus::Succeeded).await;
    assert!(work_off(&mut town).await);
    town.stop().await;
    assert_eq!(town.world.row(&run_of(ID, at(FIRST))).map(|row| row.status), Some(RunStatus::Succeeded));
    assert_eq!(
        ranges(&town.world),
        BTreeMap::from([(at(FIRST + 60), SkippedRange { to: at(FIRST + 60 * 9), count: 9 })])
    );
}

// Runs are sent on time, but for minutes no job can be advanced and no worker is there: what is in the queue by then has
// no row. Then the rule falls due, and only then do workers come.
#[tokio::test(start_paused = true)]
async fn every_firing_has_one_account_even_if_it_was_sent_and_then_missed() {
    for (many, start) in [
        (Many::All, StartRule::Always),
        (Many::All, StartRule::WithinS(200)),
        (Many::Latest, StartRule::Always),
        (Many::Latest, StartRule::WithinS(200)),
        (Many::None, StartRule::Always),
    ] {
        let case = format!("{many}, {start}");
        let plan = FaultPlan::default();
        for nth in 1..=150 {
            plan.add(Point::Nth("jobs.advance", nth), Fault::FailBefore(PortError::Temporary("injected".into())));
        }
        let mut town = Town::with(Shards { urgent: 0, standard: 1 }, plan.clone(), Arc::new(|ports| ports)).await;
        town.add(JobSpec { missed: MissedRule { many, start }, ..minutely(many) }).await;
        town.start_scheduler("s");
        assert!(town.until(1_200, |_| plan.to_come().is_empty()).await, "{case}: the trouble does not end");
        let clock = town.clock.clone();
        let is_current = |world: &World| world.job(&key()).is_some_and(|job| job.next_scheduled_at > Some(clock.now()));
        assert!(town.until(600, is_current).await, "{case}: not worked off");
        assert!(town.clock.now() > at(FIRST) + TimeDelta::minutes(4), "{case}: it was a miss");
        town.stop().await;
        town.start_worker("w");
        assert!(town.until(1_200, |world| world.waiting().is_empty()).await, "{case}");
        town.stop().await;
        let next = town.world.job(&key()).and_then(|job| job.next_scheduled_at).expect("the job goes on");
        let skipped = ranges(&town.world);
        for instant in (0..).map(|n| at(FIRST + 60 * n)).take_while(|instant| *instant < next) {
            let covers = |(from, range): (&DateTime<Utc>, &SkippedRange)| *from <= instant && instant <= range.to;
            let in_ranges = skipped.iter().filter(|one| covers(*one)).count();
            let own = town.world.row(&run_of(ID, instant)).filter(|row| row.status != RunStatus::Skipped);
            assert_eq!(in_ranges + usize::from(own.is_some()), 1, "{case}: {instant}, {skipped:?}, {own:?}");
        }
    }
}

/// Puts a row for the job's first firing there, as another process would have.
async fn put_row(town: &Town, change: impl FnOnce(&mut RunRow)) {
    let message = town.message(ID, at(FIRST));
    let mut row = RunRow {
        id: message.run_id(),
        status: RunStatus::Skipped,
        attempt: 0,
        owner: None,
        lease_until: None,
        not_before: None,
        generation: message.generation,
        void_gen: None,
        due_at: message.due_at,
        first_enqueued_at: message.first_enqueued_at,
        started_at: None,
        completed_at: None,
        attempts: Vec::new(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision: 1,
        write_token: "by hand".into(),
    };
    change(&mut row);
    assert_eq!(town.world.ports().runs.put(&row).await, Ok(Put::Written));
}

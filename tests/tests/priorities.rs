//! Who goes first: weights, slots that are kept for urgent runs, tenants, and a fault of one target that stops no other.

use punctual_core::due::Shards;
use punctual_core::job::JobKey;
use punctual_core::memory::{FaultPlan, Script, World};
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::Outcome;
use punctual_core::run::{RunId, RunKey, RunStatus};
use punctual_core::target::Target;
use punctual_core::template::Vars;
use punctual_core::turns::Slot;
use punctual_tests::counters::Counters;
use punctual_tests::{Town, at, reminder};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
/// More than twenty slots need.
const NO_LIMIT_PER_S: u32 = 100_000;

async fn town(rate_per_s: u32) -> Town {
    let town = Town::with(Shards { urgent: 0, standard: 1 }, FaultPlan::default(), Arc::new(|ports| ports)).await;
    town.set_sms_limit(rate_per_s).await;
    town.world.set_gateway_latency(Duration::from_millis(20));
    tokio::time::sleep(Duration::from_secs(DUE_AT as u64)).await;
    town
}

/// Puts `count` text messages of a tenant into the queue of a priority.
async fn enqueue(town: &Town, tenant: &str, priority: Priority, count: usize) {
    let payload = Payload::sms("+447700900123", "Your bill is due");
    enqueue_for(town, tenant, priority, count, payload).await;
}

async fn enqueue_for(town: &Town, tenant: &str, priority: Priority, count: usize, payload: Payload) {
    let mut bodies = Vec::with_capacity(count);
    for n in 0..count {
        let mut spec = reminder("any", EVERY_DAY);
        spec.key = JobKey::new(tenant, &format!("{priority}-{n}")).expect("a valid id");
        (spec.priority, spec.payload) = (priority, payload.clone());
        let job_key = spec.key.clone();
        town.add(spec).await;
        let message = Message {
            v: MESSAGE_VERSION,
            generation: town.world.job(&job_key).expect("it was made").generation,
            job_key,
            run_key: RunKey::scheduled(at(DUE_AT)),
            scheduled_at: at(DUE_AT),
            due_at: at(DUE_AT),
            first_enqueued_at: town.clock.now(),
            scheduler: "by hand".into(),
            trace: None,
        };
        bodies.push(message.encode());
    }
    for some in bodies.chunks(10) {
        town.world.ports().queue.send(priority, some).await.expect("memory does not fail");
    }
}

fn priority_of(run: &RunId) -> Priority {
    let word = run.job_key.as_str().rsplit_once('/').and_then(|(_, id)| id.split_once('-')).expect("a key of ours").0;
    word.parse().expect("a priority")
}

/// The shares of the priorities in the first `count` calls.
fn shares(world: &World, count: usize) -> BTreeMap<Priority, f64> {
    let mut shares = BTreeMap::new();
    for sent in world.sends().iter().take(count) {
        *shares.entry(priority_of(&sent.reference)).or_default() += 1.0 / count as f64;
    }
    shares
}

fn assert_shares(found: &BTreeMap<Priority, f64>, expected: &[(Priority, f64)]) {
    for (priority, share) in expected {
        let found = found.get(priority).copied().unwrap_or(0.0);
        assert!((found - share).abs() < 0.02, "{priority}: {found} instead of {share}");
    }
}

async fn after_calls(town: &Town, count: usize) {
    assert!(town.until(600, |world| world.sends().len() >= count).await, "{} calls", town.world.sends().len());
}

/// The shares of the priorities in what slots of a kind have taken.
fn shares_of(slot: Slot, counters: &Counters) -> BTreeMap<Priority, f64> {
    let taken = |priority: Priority| {
        let labels = [("slot", slot.as_str()), ("queue", priority.as_str())];
        counters.of("punctual_slots_taken_total", &labels) as f64
    };
    let all: f64 = Priority::ALL.into_iter().map(taken).sum();
    Priority::ALL.into_iter().map(|priority| (priority, taken(priority) / all)).collect()
}

#[tokio::test(start_paused = true)]
async fn shared_slots_take_60_30_10_of_hundred_and_the_pool_68_24_8_whether_slots_or_permits_are_scarce() {
    for rate_per_s in [NO_LIMIT_PER_S, 50] {
        let counters = Counters::default();
        let _heard = metrics::set_default_local_recorder(&counters);
        let mut town = town(rate_per_s).await;
        for priority in Priority::ALL {
            enqueue(&town, "bank", priority, 10_000).await;
        }
        town.start_worker("w");
        after_calls(&town, 12_000).await;
        let expected = [(Priority::Urgent, 0.68), (Priority::Normal, 0.24), (Priority::Bulk, 0.08)];
        assert_shares(&shares(&town.world, 12_000), &expected);
        let of_shared = [(Priority::Urgent, 0.6), (Priority::Normal, 0.3), (Priority::Bulk, 0.1)];
        assert_shares(&shares_of(Slot::Shared, &counters), &of_shared);
        assert_eq!(shares_of(Slot::UrgentOnly, &counters)[&Priority::Urgent], 1.0);
        town.stop().await;
    }
}

/// Of 16 shared slots by weight, and four that take urgent runs only, if there are any.
fn shares_without(empty: Priority) -> Vec<(Priority, f64)> {
    let weights = [(Priority::Urgent, 6.0), (Priority::Normal, 3.0), (Priority::Bulk, 1.0)];
    let left: Vec<_> = weights.into_iter().filter(|(priority, _)| *priority != empty).collect();
    let all: f64 = left.iter().map(|(_, weight)| weight).sum();
    let kept = if empty == Priority::Urgent { 0.0 } else { 4.0 };
    let share = |(priority, weight)| {
        let urgent_only = if priority == Priority::Urgent { kept } else { 0.0 };
        (priority, (16.0 * weight / all + urgent_only) / (16.0 + kept))
    };
    left.into_iter().map(share).collect()
}

#[tokio::test(start_paused = true)]
async fn each_empty_queues_share_goes_on_to_the_others_by_their_weights() {
    for empty in Priority::ALL {
        let mut town = town(NO_LIMIT_PER_S).await;
        for priority in Priority::ALL.into_iter().filter(|priority| *priority != empty) {
            enqueue(&town, "bank", priority, 4_000).await;
        }
        town.start_worker("w");
        after_calls(&town, 3_000).await;
        assert_shares(&shares(&town.world, 3_000), &shares_without(empty));
        town.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_priority_starves_under_endless_urgent_work() {
    let mut town = town(50).await;
    enqueue(&town, "bank", Priority::Urgent, 3_000).await;
    for priority in [Priority::Normal, Priority::Bulk] {
        enqueue(&town, "bank", priority, 200).await;
    }
    town.start_worker("w");
    // Of 50 a second 12 are normal and 4 bulk, and when normal is done, 5.7 are bulk.
    for (priority, within_s) in [(Priority::Normal, 20), (Priority::Bulk, 28)] {
        let of_it =
            |world: &World| world.sends().iter().filter(|sent| priority_of(&sent.reference) == priority).count();
        assert!(town.until(within_s, |world| of_it(world) == 200).await, "{priority}: {} of 200", of_it(&town.world));
    }
    let urgent = town.world.waiting().iter().filter(|waiting| waiting.priority == Priority::Urgent).count();
    assert!(urgent > 1_000, "urgent runs are still waiting: {urgent}");
    town.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_urgent_run_starts_within_two_seconds_behind_a_backlog_at_the_limit() {
    let mut town = town(450).await;
    enqueue(&town, "bank", Priority::Bulk, 50_000).await;
    town.start_worker("w");
    after_calls(&town, 450).await;
    let asked_at = town.clock.now();
    enqueue(&town, "bank", Priority::Urgent, 1).await;
    let is_urgent = |world: &World| world.sends().iter().any(|sent| priority_of(&sent.reference) == Priority::Urgent);
    assert!(town.until(2, is_urgent).await);
    let sends = town.world.sends();
    let started_at =
        sends.iter().find(|sent| priority_of(&sent.reference) == Priority::Urgent).expect("it is there").at;
    assert!((started_at - asked_at).as_seconds_f64() < 2.0);
    assert!(sends.len() < 50_000, "the backlog is not over");
}

/// Calls of a tenant that began within two seconds of `since`.
fn soon_after(world: &World, tenant: &str, since: chrono::DateTime<chrono::Utc>) -> usize {
    let in_time = |at: chrono::DateTime<chrono::Utc>| (at - since).as_seconds_f64() <= 2.0;
    world.sends().iter().filter(|sent| sent.reference.job_key.tenant() == tenant && in_time(sent.at)).count()
}

/// One tenant's backlog is put back until about its turn, so that the queue shows what stands behind it.
async fn ten_behind(backlog: usize, tenant_in_hand: usize) -> usize {
    let mut town = town(450).await;
    // Somewhat more than a second of work: visibility is counted in seconds.
    (town.work.prefetch, town.work.tenant_in_hand) = (600, tenant_in_hand);
    enqueue(&town, "big", Priority::Normal, backlog).await;
    town.start_worker("w");
    // The worker has seen the whole queue once, and works at the limit.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked_at = town.clock.now();
    enqueue(&town, "small", Priority::Normal, 10).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let found = soon_after(&town.world, "small", asked_at);
    let before = town.world.sends().len();
    // Longer than what is hidden, and not sent again, can last.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let rate = (town.world.sends().len() - before) as f64 / 120.0;
    assert!(rate > 0.95 * 450.0, "the limit is used meanwhile: {rate} a second");
    found
}

#[tokio::test(start_paused = true)]
async fn one_tenants_backlog_delays_anothers_ten_runs_by_less_than_two_seconds() {
    assert_eq!(ten_behind(100_000, 480).await, 10);
}

/// The control: without a part of its own a tenant waits for all that stands before it.
#[tokio::test(start_paused = true)]
async fn without_a_bound_for_tenants_the_ten_wait_for_the_whole_backlog() {
    assert_eq!(ten_behind(100_000, usize::MAX).await, 0);
}

const HOST: &str = "hooks.example.com";
const HOOK: &str = "https://hooks.example.com/slow";

fn webhook() -> Payload {
    Payload::Webhook { url: HOOK.into(), body: "{}".into(), vars: Vars::new(), secret: None }
}

/// Text messages behind a thousand webhooks of one host in the same queue, all of them within two seconds.
async fn sms_behind_webhooks(script: Script) -> (Town, usize) {
    let mut town = town(450).await;
    town.world.script(HOOK, std::iter::repeat_n(script, 20_000));
    enqueue_for(&town, "hooks", Priority::Normal, 1_000, webhook()).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked_at = town.clock.now();
    enqueue(&town, "bank", Priority::Normal, 100).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let found = soon_after(&town.world, "bank", asked_at);
    (town, found)
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hangs_delays_no_text_message() {
    let (town, found) = sms_behind_webhooks(Script::NeverAnswers).await;
    assert_eq!(found, 100);
    let under_way = town.world.rows().values().filter(|row| row.status == RunStatus::Running).count();
    assert!(under_way <= 5, "{under_way} slots for one host");
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_delays_no_text_message_and_costs_nobody_an_attempt() {
    let down = Outcome::Temporary { reason: "503".into(), retry_after: None };
    let (town, found) = sms_behind_webhooks(Script::Answer(down)).await;
    assert_eq!(found, 100);
    let hooked = |world: &World| world.sends().iter().filter(|sent| sent.reference.job_key.tenant() == "hooks").count();
    assert!(hooked(&town.world) <= 15, "{} calls in eight seconds", hooked(&town.world));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(hooked(&town.world) <= 30, "{}: from then on one call tries", hooked(&town.world));
    let attempts: u32 =
        town.world.rows().values().filter(|row| row.id.job_key.tenant() == "hooks").map(|r| r.attempt).sum();
    assert_eq!(attempts as usize, hooked(&town.world), "who is put back has made no attempt");
    assert_eq!(town.world.dead_letters().len(), 0);
    assert_eq!(town.world.waiting().len(), 1_000, "nothing is lost");
}

#[tokio::test(start_paused = true)]
async fn when_a_host_is_well_again_all_of_its_runs_are_delivered() {
    let mut town = town(450).await;
    let down = Outcome::Temporary { reason: "503".into(), retry_after: None };
    town.world.script(HOOK, std::iter::repeat_n(Script::Answer(down), 12));
    enqueue_for(&town, "hooks", Priority::Normal, 200, webhook()).await;
    town.start_worker("w");
    let all = |world: &World| {
        let done = world.rows().values().filter(|row| row.status == RunStatus::Succeeded).count();
        done == 200 && world.waiting().is_empty()
    };
    assert!(town.until(3_600, all).await, "{} calls", town.world.sends().len());
}

/// What a low limit lets wait is put back until about its turn, and is not in hand before others.
#[tokio::test(start_paused = true)]
async fn a_host_with_a_low_limit_delays_no_text_message_and_its_limit_is_used() {
    let mut town = town(450).await;
    town.set_limit(Target::webhook(HOST), 2).await;
    enqueue_for(&town, "hooks", Priority::Normal, 1_000, webhook()).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked_at = town.clock.now();
    enqueue(&town, "bank", Priority::Normal, 100).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(soon_after(&town.world, "bank", asked_at), 100);
    let before = town.world.sends().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let rate = (town.world.sends().len() - before) as f64 / 120.0;
    assert!(rate > 0.95 * 2.0, "{rate} a second");
}

#[tokio::test(start_paused = true)]
async fn an_urgent_run_stands_before_the_bulk_that_waits_for_the_same_host() {
    let mut town = town(450).await;
    let takes = Duration::from_secs(5);
    town.world.set_gateway_latency(takes);
    enqueue_for(&town, "hooks", Priority::Bulk, 1_000, webhook()).await;
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked_at = town.clock.now();
    enqueue_for(&town, "shop", Priority::Urgent, 1, webhook()).await;
    assert!(town.until(30, |world| world.sends().iter().any(|s| s.reference.job_key.tenant() == "shop")).await);
    let sends = town.world.sends();
    let started_at = sends.iter().find(|s| s.reference.job_key.tenant() == "shop").expect("it is there").at;
    assert!((started_at - asked_at).to_std().is_ok_and(|waited| waited <= takes + Duration::from_secs(1)));
}

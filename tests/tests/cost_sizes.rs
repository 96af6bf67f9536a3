//! The sizes that the cost of jobs and runs is worked out with, held against real items on the local stack.

use chrono::{DateTime, Utc};
use punctual_core::aws::{Names, schema};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::cost::{Sizes, job_bytes};
use punctual_core::due::Shards;
use punctual_core::job::Timetable;
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::process::{process_id, random_token};
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{Attempt, RunRow, RunStatus};
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;
use punctual_localstack::stack::{Stack, StackConfig};
use punctual_scheduler::import::read_jobs;
use punctual_scheduler::operations::create_job;
use punctual_tests::run_of;

const FILE: &str = "customer,phone,kind,priority,schedule,tz,spread,template\n\
    c-10001,+447700900123,bill,normal,cron 0 9 * * 1-5,,,Due\n\
    c-10002,+447700900123,bill,normal,every 24h,,,Due\n\
    c-10003,+447700900123,bill,bulk,at 2099-12-05T09:00:00Z,,,Due\n\
    c-10004,+447700900123,card-renewal,bulk,cron 30 8 L * *,America/Argentina/Buenos_Aires,30m,Due\n";

/// The size of an attribute as DynamoDB counts it (item sizes): a macro, because the values' type is the SDK's own.
macro_rules! sized {
    ($values:expr) => {{
        let mut bytes = 0;
        let mut left: Vec<_> = $values.collect();
        while let Some((name, value)) = left.pop() {
            bytes += name.len();
            if let Ok(text) = value.as_s() {
                bytes += text.len();
            } else if let Ok(number) = value.as_n() {
                bytes += number.trim_end_matches('0').len().div_ceil(2) + 1;
            } else if let Ok(map) = value.as_m() {
                bytes += 3 + map.len();
                left.extend(map.iter().map(|(name, value)| (name.as_str(), value)));
            } else if let Ok(list) = value.as_l() {
                bytes += 3 + list.len();
                left.extend(list.iter().map(|value| ("", value)));
            } else {
                bytes += 1;
            }
        }
        bytes as f64
    }};
}

fn is_near(what: &str, found: f64, assumed: f64) {
    assert!((assumed / found - 1.0).abs() <= 0.1, "{what}: {found} bytes, {assumed} assumed");
}

/// A run that was delivered at its first attempt.
fn row(now: DateTime<Utc>) -> RunRow {
    let at = whole_second(now);
    let attempt = Attempt {
        n: 1,
        started_at: now,
        ended_at: Some(now),
        worker: process_id("worker"),
        job_version: 1,
        class: Some(OutcomeClass::Delivered),
        detail: None,
    };
    RunRow {
        id: run_of("c-10001/bill", at),
        status: RunStatus::Succeeded,
        attempt: 1,
        owner: None,
        lease_until: None,
        not_before: None,
        generation: now.timestamp_millis() as u64,
        void_gen: None,
        due_at: at,
        first_enqueued_at: now,
        started_at: Some(now),
        completed_at: Some(now),
        attempts: vec![attempt],
        error: None,
        gateway_ref: Some(random_token()),
        reason: None,
        range: None,
        revision: 1,
        write_token: random_token(),
    }
}

#[tokio::test]
async fn assumed_sizes_are_those_of_real_items() {
    let stack = Stack::start(StackConfig::default()).unwrap();
    let names = Names::new("sizes").unwrap();
    let aws = stack.aws(names.clone()).await;
    schema::setup(&aws).await.unwrap();
    let (ports, clock, zones, shards) = (aws.ports(), SystemClock::new(), Zones::embedded(), Shards::default());
    let world = Timetable { shards: &shards, zones: &zones };
    let specs = read_jobs("jobs.csv", FILE.as_bytes(), "bank", clock.now(), &zones).unwrap();
    for spec in &specs {
        create_job(&*ports.jobs, &clock, &world, spec.clone(), "operator").await.unwrap();
    }
    let items = aws.dynamodb.scan().table_name(names.jobs()).send().await.unwrap().items.unwrap();
    assert_eq!(items.len(), specs.len());
    for item in &items {
        let key = item["job_key"].as_s().unwrap();
        let spec = specs.iter().find(|spec| spec.key.as_str() == key).unwrap();
        is_near(key, sized!(item.iter().map(|(name, value)| (name.as_str(), value))), job_bytes(spec));
        let keys = ["due_bucket", "next_due_at", "job_key"];
        is_near("index entry", sized!(keys.iter().map(|name| (*name, &item[*name]))), Sizes::default().index_entry);
    }
    ports.runs.put(&row(clock.now())).await.unwrap();
    let items = aws.dynamodb.scan().table_name(names.runs()).send().await.unwrap().items.unwrap();
    is_near("row", sized!(items[0].iter().map(|(name, value)| (name.as_str(), value))), Sizes::default().row);
    stack.stop().await;
}

#[test]
fn the_assumed_size_of_a_message_is_that_of_a_real_one() {
    let now = SystemClock::new().now();
    let row = row(now);
    let message = Message {
        v: MESSAGE_VERSION,
        job_key: row.id.job_key,
        run_key: row.id.run_key,
        generation: row.generation,
        scheduled_at: row.due_at,
        due_at: row.due_at,
        first_enqueued_at: now,
        scheduler: process_id("scheduler"),
        trace: None,
    };
    is_near("message", message.encode().len() as f64, Sizes::default().message);
}

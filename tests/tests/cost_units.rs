//! The units that runs are said to cost, counted by the store on the calls that Punctual really makes.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::batch_execute_statement::{BatchExecuteStatementInput, BatchExecuteStatementOutput};
use aws_sdk_dynamodb::operation::batch_get_item::{BatchGetItemInput, BatchGetItemOutput};
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::operation::query::{QueryInput, QueryOutput};
use aws_sdk_dynamodb::operation::scan::{ScanInput, ScanOutput};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemInput, UpdateItemOutput};
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use aws_sdk_sqs::operation::change_message_visibility_batch::ChangeMessageVisibilityBatchOutput;
use aws_sdk_sqs::operation::delete_message_batch::DeleteMessageBatchOutput;
use aws_sdk_sqs::operation::receive_message::ReceiveMessageOutput;
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchOutput;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::aws::{Aws, Names, schema};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::cost::{Batches, BucketReads, Class, IdleLoad, Line, Load, Usage, idle, job_bytes, monthly};
use punctual_core::due::{DueBucket, Minute, ShardClass, ShardId, Shards};
use punctual_core::job::{Job, Timetable};
use punctual_core::lease::LeaseId;
use punctual_core::memory::World;
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::ports::{Beat, DueSpan, Ports, Put};
use punctual_core::priority::Priority;
use punctual_core::rate::{Holder, Shares};
use punctual_core::run::{RunKey, RunRow, RunStatus};
use punctual_core::schedule::{Schedule, whole_second};
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use punctual_localstack::stack::{Stack, StackConfig};
use punctual_scheduler::dispatch::DispatchSettings;
use punctual_scheduler::dispatch::in_hand::InHand;
use punctual_scheduler::dispatch::pass::{Dispatcher, Permission, Scope};
use punctual_tests::{reminder, run_of, work_settings};
use punctual_worker::service::{self as worker, Equipment};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Asks for the units of each call, and adds them up.
#[derive(Clone, Debug, Default)]
struct Meter(Arc<Mutex<Usage>>);

impl Meter {
    /// What was used since the last look.
    fn read(&self) -> Usage {
        std::mem::take(&mut *self.0.lock().expect("nobody panics holding it"))
    }

    fn add<'a>(&self, is_write: bool, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) {
        let units: f64 = consumed.into_iter().filter_map(|one| one.capacity_units).sum();
        let (write_units, read_units) = if is_write { (units, 0.0) } else { (0.0, units) };
        let mut all = self.0.lock().expect("nobody panics holding it");
        *all = *all + Usage { write_units, read_units, dynamodb_requests: 1.0, sqs_requests: 0.0 };
    }

    /// Whether a call is billed in write units, by the type of its answer.
    fn is_write<T>(_: &T) -> bool {
        let name = std::any::type_name::<T>();
        ["PutItem", "UpdateItem", "BatchExecuteStatement"].iter().any(|write| name.contains(write))
    }
}

macro_rules! metered {
    ($($input:ty => $output:ty),*) => {
        impl Intercept for Meter {
            fn name(&self) -> &'static str {
                "meter"
            }

            fn modify_before_serialization(
                &self,
                context: &mut BeforeSerializationInterceptorContextMut<'_>,
                _: &RuntimeComponents,
                _: &mut ConfigBag,
            ) -> Result<(), BoxError> {
                $(if let Some(input) = context.input_mut().downcast_mut::<$input>() {
                    input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
                })*
                Ok(())
            }

            fn read_after_deserialization(
                &self,
                context: &AfterDeserializationInterceptorContextRef<'_>,
                _: &RuntimeComponents,
                _: &mut ConfigBag,
            ) -> Result<(), BoxError> {
                let Ok(output) = context.output_or_error() else { return Ok(()) };
                $(if let Some(output) = output.downcast_ref::<$output>() {
                    self.add(Meter::is_write(output), output.consumed_capacity.iter().flat_map(all_of));
                })*
                Ok(())
            }
        }
    };
}

/// One, or one for each table.
trait Told {
    fn told(&self) -> &[ConsumedCapacity];
}

impl Told for ConsumedCapacity {
    fn told(&self) -> &[ConsumedCapacity] {
        std::slice::from_ref(self)
    }
}

impl Told for Vec<ConsumedCapacity> {
    fn told(&self) -> &[ConsumedCapacity] {
        self
    }
}

fn all_of(told: &impl Told) -> &[ConsumedCapacity] {
    told.told()
}

metered!(
    BatchExecuteStatementInput => BatchExecuteStatementOutput,
    BatchGetItemInput => BatchGetItemOutput,
    GetItemInput => GetItemOutput,
    PutItemInput => PutItemOutput,
    QueryInput => QueryOutput,
    ScanInput => ScanOutput,
    UpdateItemInput => UpdateItemOutput
);

/// Counts the calls to queues that carry messages or receipts.
#[derive(Clone, Debug)]
struct QueueMeter(Meter);

impl Intercept for QueueMeter {
    fn name(&self) -> &'static str {
        "queue meter"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Ok(output) = context.output_or_error() else { return Ok(()) };
        let is_counted = output.downcast_ref::<SendMessageBatchOutput>().is_some()
            || output.downcast_ref::<ReceiveMessageOutput>().is_some()
            || output.downcast_ref::<DeleteMessageBatchOutput>().is_some()
            || output.downcast_ref::<ChangeMessageVisibilityBatchOutput>().is_some();
        if is_counted {
            self.0.0.lock().expect("nobody panics holding it").sqs_requests += 1.0;
        }
        Ok(())
    }
}

/// A clock that is ahead of the machine's.
struct Ahead {
    clock: SystemClock,
    by: TimeDelta,
}

impl Clock for Ahead {
    fn now(&self) -> DateTime<Utc> {
        self.clock.now() + self.by
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

/// A shard that is nobody else's.
struct Held;

impl Permission for Held {
    fn holds(&self) -> bool {
        true
    }

    fn progress(&self) {}
}

struct Metered {
    stack: Stack,
    ports: Ports,
    meter: Meter,
}

const SHARDS: Shards = Shards { urgent: 1, standard: 1 };
const SHARD: ShardId = ShardId { class: ShardClass::Standard, number: 0 };

impl Metered {
    async fn start() -> Self {
        let (stack, meter) =
            (Stack::start(StackConfig::default()).expect("free ports are always found"), Meter::default());
        let aws = stack.aws(Names::new("units").expect("a valid prefix")).await;
        schema::setup(&aws).await.expect("the tables are made");
        let config = aws.dynamodb.config().to_builder().interceptor(meter.clone()).build();
        let queues = aws.sqs.config().to_builder().interceptor(QueueMeter(meter.clone())).build();
        let sqs = aws_sdk_sqs::Client::from_conf(queues);
        let ports = Aws { dynamodb: Client::from_conf(config), sqs, ..aws }.ports();
        Metered { stack, ports, meter }
    }
}

fn usage_of(lines: &[Line], step: &str) -> Usage {
    lines.iter().find(|line| line.step == step).expect("a step of that name").usage
}

fn assert_same(what: &str, counted: Usage, said: Usage) {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    let same = near(counted.write_units, said.write_units)
        && near(counted.read_units, said.read_units)
        && near(counted.dynamodb_requests, said.dynamodb_requests)
        && near(counted.sqs_requests, said.sqs_requests);
    assert!(same, "{what}: counted {counted:?}, said {said:?}");
}

/// Makes jobs that are due together, dispatches them, and compares with a month of just these runs.
async fn dispatch_costs(schedule: &str, due_at: DateTime<Utc>, jobs: u64, is_last: bool) {
    let Metered { stack, ports, meter } = Metered::start().await;
    let (clock, zones) = (SystemClock::new(), Arc::new(Zones::embedded()));
    let world = Timetable { shards: &SHARDS, zones: &zones };
    let mut bytes = 0.0;
    for n in 0..jobs {
        let mut spec = reminder(&format!("c-{n:05}/bill"), "every 24h");
        spec.schedule = Schedule::parse(schedule, clock.now()).expect("a valid schedule");
        bytes = job_bytes(&spec);
        let job = Job::create(spec, clock.now(), &world, None, format!("{n}"), "test").expect("a sound job");
        ports.jobs.create(&job).await.expect("it is made");
    }
    let made = meter.read();
    let by = due_at - clock.now() + TimeDelta::seconds(1);
    let ahead = Arc::new(Ahead { clock: SystemClock::new(), by });
    let settings = DispatchSettings::default();
    let dispatcher = Dispatcher::new(ports, ahead, SHARDS, zones, "s1".into(), &settings);
    let scope = Scope { permission: &Held, in_hand: &InHand::default() };
    let tally = dispatcher.minute(DueBucket { minute: Minute::of(due_at), shard: SHARD }, &scope).await;
    assert!(!tally.left && tally.error.is_none(), "{tally:?}");
    let counted = meter.read();

    let (runs, last_runs) = if is_last { (0.0, jobs as f64) } else { (jobs as f64, 0.0) };
    let class = Class { job_bytes: bytes, jobs: jobs as f64, made: jobs as f64, runs, last_runs };
    let lines = monthly(&Load::of(vec![class], Batches::reached([jobs])));
    assert_same("making", made, usage_of(&lines, "job: make"));
    let steps = ["due: read buckets", "dispatch: read jobs", "queue: send", "dispatch: advance"]
        .map(|step| usage_of(&lines, step));
    let said = steps.into_iter().fold(Usage::default(), |sum, step| sum + step);
    assert_same("dispatch", counted, said);
    if !is_last {
        let per_run = |count: f64| count / jobs as f64;
        let (writes, reads, calls) = (counted.write_units, counted.read_units, counted.dynamodb_requests);
        assert!(per_run(writes) <= 3.05, "{} write units a run", per_run(writes));
        assert!(per_run(reads) <= 1.2, "{} read units a run", per_run(reads));
        assert!(per_run(calls) <= 0.1, "{} requests a run", per_run(calls));
        assert!(per_run(counted.sqs_requests) <= 0.11, "{} sends a run", per_run(counted.sqs_requests));
    }
    stack.stop().await;
}

#[tokio::test]
async fn dispatch_of_a_recurring_run_takes_what_is_said() {
    let due_at = whole_second(SystemClock::new().now()) + TimeDelta::minutes(2);
    dispatch_costs(&format!("every 24h from {}", due_at.to_rfc3339()), due_at, 60, false).await;
}

#[tokio::test]
async fn dispatch_of_a_last_run_takes_what_is_said() {
    let due_at = whole_second(SystemClock::new().now()) + TimeDelta::minutes(2);
    dispatch_costs(&format!("at {}", due_at.to_rfc3339()), due_at, 30, true).await;
}

#[tokio::test]
async fn a_page_of_more_than_four_kilobytes_of_keys_takes_what_is_said() {
    let due_at = whole_second(SystemClock::new().now()) + TimeDelta::minutes(2);
    dispatch_costs(&format!("every 24h from {}", due_at.to_rfc3339()), due_at, 150, false).await;
}

fn row(status: RunStatus, revision: u64) -> RunRow {
    let now = whole_second(SystemClock::new().now());
    RunRow {
        id: run_of("c-1/bill", now),
        status,
        attempt: 1,
        owner: None,
        lease_until: None,
        not_before: None,
        generation: 1,
        void_gen: None,
        due_at: now,
        first_enqueued_at: now,
        started_at: Some(now),
        completed_at: None,
        attempts: Vec::new(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision,
        write_token: revision.to_string(),
    }
}

#[tokio::test]
async fn screen_begin_record_and_a_dead_row_take_what_is_said() {
    let Metered { stack, ports, meter } = Metered::start().await;
    let (clock, zones) = (SystemClock::new(), Zones::embedded());
    let world = Timetable { shards: &SHARDS, zones: &zones };
    let spec = reminder("c-1/bill", "every 24h");
    let job = Job::create(spec.clone(), clock.now(), &world, None, "t".into(), "test").expect("a sound job");
    ports.jobs.create(&job).await.expect("it is made");
    meter.read();
    let class = Class { job_bytes: job_bytes(&spec), jobs: 1.0, made: 0.0, runs: 1.0, last_runs: 0.0 };
    let load = Load { attention_share: 1.0, ..Load::of(vec![class], Batches::reached([1])) };
    let lines = monthly(&load);

    let begun = row(RunStatus::Running, 1);
    assert_eq!(ports.jobs.get_many(&[spec.key]).await.expect("it is there").len(), 1);
    let screen = meter.read();
    assert_same("screen", screen, usage_of(&lines, "idempotency: screen"));
    assert!(ports.runs.get(&begun.id).await.expect("the table is there").is_none());
    let again = monthly(&Load { attempts_per_run: 2.0, ..load.clone() });
    assert_same("screen of a second attempt", screen + screen + meter.read(), usage_of(&again, "idempotency: screen"));
    assert!(matches!(ports.runs.put(&begun).await, Ok(Put::Written)));
    assert_same("begin", meter.read(), usage_of(&lines, "idempotency: begin"));
    let ended = RunRow { revision: 2, ..row(RunStatus::Succeeded, 2) };
    assert!(matches!(ports.runs.put(&RunRow { id: begun.id.clone(), ..ended }).await, Ok(Put::Written)));
    assert_same("record", meter.read(), usage_of(&lines, "record"));
    let dead = RunRow { completed_at: Some(begun.due_at), id: begun.id.clone(), ..row(RunStatus::Dead, 3) };
    assert!(matches!(ports.runs.put(&dead).await, Ok(Put::Written)));
    let letter = usage_of(&lines, "record") + usage_of(&lines, "record: dead letter");
    // The row alone: the letter is one call to a queue besides.
    assert_same("dead", meter.read(), Usage { sqs_requests: 0.0, ..letter });
    stack.stop().await;
}

/// A worker on the embedded stack, with a gateway in memory, until the queue is empty.
#[tokio::test]
async fn work_on_a_run_takes_two_write_units_one_read_and_a_third_of_a_queues_call() {
    const RUNS: u64 = 500;
    let Metered { stack, ports, meter } = Metered::start().await;
    let (clock, zones) = (Arc::new(SystemClock::new()), Arc::new(Zones::embedded()));
    let world = Timetable { shards: &SHARDS, zones: &zones };
    let now = whole_second(clock.now());
    let mut bodies = Vec::new();
    for n in 0..RUNS {
        let spec = reminder(&format!("c-{n:05}/bill"), "every 24h");
        let job = Job::create(spec, now, &world, None, format!("{n}"), "test").expect("a sound job");
        ports.jobs.create(&job).await.expect("it is made");
        let message = Message {
            v: MESSAGE_VERSION,
            job_key: job.spec.key.clone(),
            run_key: RunKey::scheduled(now),
            generation: job.generation,
            scheduled_at: now,
            due_at: now,
            first_enqueued_at: now,
            scheduler: "s1".into(),
            trace: None,
        };
        bodies.push(message.encode());
    }
    for some in bodies.chunks(10) {
        ports.queue.send(Priority::Normal, some).await.expect("they are sent");
    }
    meter.read();
    let phones = World::new(clock.clone());
    let (gateway, id) = (phones.gateway(), "w".to_owned());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (settings, clock) = (work_settings(), clock as Arc<dyn Clock>);
    let equipment = Equipment { ports, gateway, clock: clock.clone(), zones, settings, id };
    let work = worker::run(equipment, async {
        let _ = stopped.await;
    });
    let work = tokio::spawn(work);
    let deadline = clock.monotonic() + Duration::from_secs(60);
    while phones.sends().len() < RUNS as usize {
        assert!(clock.monotonic() < deadline, "{} of {RUNS} after a minute", phones.sends().len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.send(()).expect("it is running");
    work.await.expect("it ends in order");
    let counted = meter.read();
    let per_run = |count: f64| count / RUNS as f64;
    let (writes, reads) = (per_run(counted.write_units), per_run(counted.read_units));
    let (calls, requests) = (per_run(counted.dynamodb_requests), per_run(counted.sqs_requests));
    println!("a run: {writes} write units, {reads} read units, {calls} DynamoDB calls, {requests} SQS requests");
    assert!(writes <= 2.05, "{writes} write units a run");
    assert!(reads <= 1.1, "{reads} read units a run");
    assert!(requests <= 0.3, "{requests} SQS requests a run");
    stack.stop().await;
}

#[tokio::test]
async fn an_empty_bucket_a_renewal_and_a_list_of_leases_take_what_is_said() {
    let Metered { stack, ports, meter } = Metered::start().await;
    let now = SystemClock::new().now();
    let shards = Shards::default();
    for shard in shards.all() {
        ports.leases.init(&LeaseId::Shard(shard), Minute::of(now)).await.expect("it is made");
    }
    let id = LeaseId::Shard(SHARD);
    let leases = ports.leases.list().await.expect("the table is there");
    let free = leases.iter().find(|lease| lease.id == id);
    ports.leases.take(&id, free, "scheduler-1").await.expect("it is free");
    meter.read();
    // An hour with one turn and one query of one shard, so that lines are single calls.
    let hour = Duration::from_secs(3_600);
    let one = IdleLoad {
        shards: 1,
        copies: 1,
        renew_every: hour,
        look_every: hour,
        layout_every: hour,
        reads: BucketReads { latest: 1.0, ..BucketReads::default() },
        workers: 0,
        poll: hour,
    };
    let lines = idle(&one);
    ports
        .due
        .page(DueBucket { minute: Minute::of(now), shard: SHARD }, DueSpan::up_to(now), None, 500)
        .await
        .expect("it is empty");
    assert_same("query", meter.read(), usage_of(&lines, "due: latest minutes"));
    ports.leases.renew(&id, "scheduler-1", 1, Some(Minute::of(now))).await.expect("it is ours");
    // The lease and the registration.
    assert_same("renewal", meter.read(), usage_of(&lines, "lease: renew") * 0.5);
    ports.leases.list().await.expect("the table is there");
    let all = IdleLoad { shards: shards.all().count() as u32, ..one };
    assert_same("list", meter.read(), usage_of(&idle(&all), "lease: list"));
    stack.stop().await;
}

#[tokio::test]
async fn a_beat_and_the_looks_of_a_worker_take_what_is_said() {
    let Metered { stack, ports, meter } = Metered::start().await;
    let target = Target::sms();
    for workers in [1_usize, 20, 30] {
        let id = |n: usize| format!("worker-{n:08x}");
        let holders = (0..workers).map(|n| (id(n), Holder { shares: 2, beat: 10_000 }));
        let from = ports.shares.get(&target).await.expect("the table is there").revision;
        let shares = Shares { revision: from + 1, holders: holders.collect() };
        assert_eq!(ports.shares.change(&target, from, &shares).await, Ok(shares));
        meter.read();
        let hour = Duration::from_secs(3_600);
        let (renew_every, look_every, layout_every, poll) = (hour, hour, hour, hour);
        let (reads, workers) = (BucketReads::default(), workers as u32);
        let lines =
            idle(&IdleLoad { shards: 0, copies: 0, renew_every, look_every, layout_every, reads, workers, poll });
        let one = |step: &str, an_hour: f64| usage_of(&lines, step) * (1.0 / an_hour / f64::from(workers));
        assert!(matches!(ports.shares.beat(&target, &id(0), 10_001).await, Ok(Beat::Held(_))));
        assert_same("beat", meter.read(), one("rate: keep shares", 1_200.0));
        ports.shares.get(&target).await.expect("the table is there");
        assert_same("look", meter.read(), one("rate: look at shares", 2_400.0));
        ports.control.steering().await.expect("the table is there");
        assert_same("limits and holds", meter.read(), one("rate: limits and holds", 1_800.0));
    }
    stack.stop().await;
}

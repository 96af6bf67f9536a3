//! What the worker does with each kind of work, in memory and in virtual time.

use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{Change, JobKey, JobSpec, JobState};
use punctual_core::memory::{Fault, FaultPlan, Point, Script, World};
use punctual_core::payload::{Handler, Payload, Secret};
use punctual_core::ports::{Replace, ReplaceIf};
use punctual_core::retry::{GatewayPolicy, Outcome, RetryRule, WhenUnknown};
use punctual_core::run::{RunId, RunRow, RunStatus};
use punctual_scheduler::operations::change_job;
use punctual_tests::logs::Logs;
use punctual_tests::{Town, at, reminder, run_of};
use punctual_worker::settings::Policies;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
const DUE_AT: i64 = 8;
const EVERY_DAY: &str = "every 24h from 2026-10-05T03:13:28Z";
const PHONE: &str = "+447700900123";
const HOOK: &str = "https://hooks.example.com/bills";

async fn town_with(plan: FaultPlan) -> Town {
    Town::with(ONE_SHARD, plan, Arc::new(|ports| ports)).await
}

async fn town() -> Town {
    town_with(FaultPlan::default()).await
}

fn job(id: &str, payload: Payload) -> JobSpec {
    JobSpec { payload, ..reminder(id, EVERY_DAY) }
}

fn webhook(url: &str) -> Payload {
    Payload::Webhook { url: url.into(), body: "[{{ run.id | tojson }}]".into(), vars: Default::default(), secret: None }
}

fn email() -> Payload {
    Payload::Email {
        to: "ana@example.com".into(),
        subject: "Bill".into(),
        text: "{{ vars.amount }} on {{ local.date }}".into(),
        vars: [("amount".to_owned(), "12.50".to_owned())].into(),
    }
}

fn queue() -> Payload {
    let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/bills".into();
    Payload::Queue { url, body: "{{ run.attempt }}".into(), vars: Default::default() }
}

fn run(id: &str) -> RunId {
    run_of(id, at(DUE_AT))
}

fn row(world: &World, id: &str) -> Option<RunRow> {
    world.row(&run(id))
}

fn ended(id: &'static str, status: RunStatus) -> impl Fn(&World) -> bool {
    move |world| row(world, id).is_some_and(|row| row.status == status) && world.waiting().is_empty()
}

fn state(world: &World, id: &str) -> (JobState, String) {
    let job = world.job(&JobKey::new("bank", id).expect("a valid id")).expect("the job is there");
    (job.state, job.updated_by)
}

fn gone() -> Script {
    Script::Answer(Outcome::Gone { reason: "410".into() })
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_work_is_done_with_its_texts_finished() {
    let mut town = town().await;
    let payloads = [
        ("sms", Payload::sms(PHONE, "Due {{ local.weekday }} {{ local.time }}"), "Due Monday 03:13".to_owned()),
        ("email", email(), "12.50 on 2026-10-05".into()),
        ("webhook", webhook(HOOK), format!("[\"{}\"]", run("webhook"))),
        ("queue", queue(), "1".into()),
        ("noop", Payload::Noop, String::new()),
    ];
    for (id, payload, _) in &payloads {
        town.add(job(id, payload.clone())).await;
    }
    town.start_scheduler("s");
    town.start_worker("w");
    let all = |world: &World| payloads.iter().all(|(id, ..)| ended(id, RunStatus::Succeeded)(world));
    assert!(town.until(60, all).await);
    for (id, _, text) in &payloads {
        let sends = town.world.sends().into_iter().filter(|send| send.reference == run(id));
        assert_eq!(sends.map(|send| send.text).collect::<Vec<_>>(), [text.as_str()], "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_cannot_be_sent_as_it_comes_out_fails_its_run_without_a_call() {
    let mut town = town().await;
    let text = format!("Bill{{% if run.attempt == 2 %}}{}{{% endif %}}", "x".repeat(1_600));
    town.add(job("c-1/bill", Payload::sms(PHONE, text))).await;
    town.world.script(PHONE, [Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None })]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(120, ended("c-1/bill", RunStatus::Failed)).await);
    assert_eq!(town.world.sends_of(&run("c-1/bill")), 1);
    let error = row(&town.world, "c-1/bill").and_then(|row| row.error).expect("a reason");
    assert!(error.contains("SMS segments") && !error.contains("xxx"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_its_country_does_not_have_takes_one_attempt_and_no_call() {
    let numbers = [
        ("c-1/bill", "+4477009001234", "+44 has 7 to 10 digits"),
        ("c-2/bill", "+91987654321", "+91 has 10 digits behind that; found 9"),
    ];
    let mut town = town().await;
    for (id, number, _) in numbers {
        town.add(job(id, Payload::sms(PHONE, "Your bill is due"))).await;
        let mut stored = town.world.job(&run(id).job_key).expect("the job is there");
        let read_as = ReplaceIf::from(&stored);
        // As a program that knew less of countries wrote it.
        stored.spec.payload = Payload::sms(number, "Your bill is due");
        (stored.version, stored.edit_token) = (stored.version + 1, "of another program".into());
        assert_eq!(town.world.ports().jobs.replace(&stored, &read_as).await, Ok(Replace::Replaced));
    }
    town.start_scheduler("s");
    town.start_worker("w");
    for (id, number, problem) in numbers {
        assert!(town.until(60, ended(id, RunStatus::Failed)).await, "{id}: {:?}", row(&town.world, id));
        let row = row(&town.world, id).expect("a row");
        assert_eq!(row.attempts.len(), 1, "{id}");
        assert!(row.error.is_some_and(|error| error.contains(problem) && !error.contains(&number[3..7])), "{id}");
    }
    assert_eq!((town.world.sends().len(), town.world.dead_letters().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_gone_fails_its_run_and_pauses_its_job() {
    let mut town = town().await;
    town.add(job("c-1/bill", webhook(HOOK))).await;
    town.world.script(HOOK, [gone()]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(60, ended("c-1/bill", RunStatus::Failed)).await);
    assert!(town.until(60, |world| state(world, "c-1/bill").0 == JobState::Paused).await);
    assert!(state(&town.world, "c-1/bill").1.contains("410 Gone"));
    tokio::time::sleep(Duration::from_secs(2 * 86_400)).await;
    assert_eq!((town.world.sends().len(), town.world.dead_letters().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_another_address_by_now_is_not_paused() {
    let mut town = town().await;
    town.add(job("c-1/bill", webhook(HOOK))).await;
    town.world.script(HOOK, [gone()]);
    town.world.set_gateway_latency(Duration::from_secs(5));
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(60, |world| !world.sends().is_empty()).await);
    let edit = Change::Edit(Box::new(job("c-1/bill", webhook("https://new.example.com/bills"))));
    let (jobs, key) = (town.world.ports().jobs, run("c-1/bill").job_key);
    change_job(&*jobs, &*town.clock, &town.timetable(), &key, &edit, None, "ana").await.expect("it can be edited");
    assert!(town.until(60, ended("c-1/bill", RunStatus::Failed)).await);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(state(&town.world, "c-1/bill"), (JobState::Active, "ana".into()));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_the_pause_stops_no_record_and_the_next_run_pauses() {
    let plan = FaultPlan::default();
    for nth in 1..=20 {
        let fault = Fault::FailBefore(PortError::Temporary("out of order".into()));
        plan.add(Point::Nth("jobs.replace", nth), fault);
    }
    let mut town = town_with(plan).await;
    town.add(job("c-1/bill", webhook(HOOK))).await;
    town.world.script(HOOK, [gone(), gone(), gone(), gone()]);
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(120, ended("c-1/bill", RunStatus::Failed)).await);
    assert!(town.until(4 * 86_400, |world| state(world, "c-1/bill").0 == JobState::Paused).await);
    assert_eq!(town.world.sends_of(&run("c-1/bill")), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_no_worker_can_do_waits_for_one_that_can() {
    let mut town = town().await;
    town.world.serve(Handler::Email, false);
    town.add(job("c-1/mail", email())).await;
    town.add(job("c-1/bill", Payload::sms(PHONE, "Your bill is due"))).await;
    town.start_scheduler("s");
    town.start_worker("w");
    tokio::time::sleep(Duration::from_secs(6 * 3_600)).await;
    assert_eq!(row(&town.world, "c-1/bill").map(|row| row.status), Some(RunStatus::Succeeded));
    assert_eq!((row(&town.world, "c-1/mail"), town.world.waiting().len()), (None, 1));
    town.world.serve(Handler::Email, true);
    assert!(town.until(900, ended("c-1/mail", RunStatus::Succeeded)).await);
    assert_eq!(row(&town.world, "c-1/mail").map(|row| row.attempt), Some(1));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_payload_is_in_a_log_a_row_or_a_letter() {
    let logs = Logs::keep_from(Level::TRACE);
    let mut town = town().await;
    town.work.policies = Policies::all(GatewayPolicy::default());
    let signed = Payload::Webhook {
        url: "https://hooks.example.com/bills?key=s3cret-key".into(),
        body: "[\"s3cret-body\"]".into(),
        vars: [("name".to_owned(), "s3cret-var".to_owned())].into(),
        secret: Some(Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
    };
    let mail = Payload::Email {
        to: "s3cret@example.com".into(),
        subject: "s3cret subject".into(),
        text: "s3cret text".into(),
        vars: Default::default(),
    };
    let unfit = format!("s3cret{{% if run.attempt == 2 %}}{}{{% endif %}}", "x".repeat(1_600));
    let busy = || Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None });
    for (id, payload, to, script) in [
        ("c-1/hook", signed, "https://hooks.example.com/bills?key=s3cret-key", gone()),
        ("c-1/mail", mail, "s3cret@example.com", Script::NeverAnswers),
        ("c-1/bill", Payload::sms(PHONE, unfit), PHONE, busy()),
    ] {
        town.add(job(id, payload)).await;
        town.world.script(to, [script]);
    }
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, ended("c-1/bill", RunStatus::Failed)).await);
    assert!(town.until(60, |world| state(world, "c-1/hook").0 == JobState::Paused).await);
    assert_eq!(row(&town.world, "c-1/mail").map(|row| row.status), Some(RunStatus::Indeterminate));
    let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
    let logged: Vec<String> = levels.into_iter().flat_map(|level| logs.of(level)).collect();
    assert!(logged.iter().any(|line| line.contains("its webhook is gone")), "{logged:?}");
    let kept = format!("{logged:?} {:?} {:?} {:?}", town.world.rows(), town.world.dead_letters(), town.world.jobs());
    for hidden in ["s3cret", "7700", "whsec", "MfKQ", "bills"] {
        assert!(!kept.contains(hidden), "{hidden} is in {kept}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_policy_for_lost_answers() {
    let mut town = town().await;
    let hold = GatewayPolicy::default();
    let retry = GatewayPolicy { on_unknown: WhenUnknown::Retry, ..hold };
    town.work.policies = Policies { queue: retry, ..Policies::all(hold) };
    for (id, payload, to) in [
        ("c-1/mail", email(), "ana@example.com"),
        ("c-1/queue", queue(), "https://sqs.eu-west-1.amazonaws.com/123456789012/bills"),
    ] {
        town.add(job(id, payload)).await;
        town.world.script(to, [Script::NeverAnswers]);
    }
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(300, ended("c-1/queue", RunStatus::Succeeded)).await);
    assert_eq!(row(&town.world, "c-1/mail").map(|row| row.status), Some(RunStatus::Indeterminate));
    assert_eq!((town.world.sends_of(&run("c-1/mail")), town.world.sends_of(&run("c-1/queue"))), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_waits_bounds_each_of_them() {
    let mut town = town().await;
    let retry = RetryRule::with_waits(&[5, 7_200]).expect("a valid list");
    town.add(JobSpec { retry, ..job("c-1/bill", webhook(HOOK)) }).await;
    let busy = || Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None });
    town.world.script(HOOK, (0..5).map(|_| busy()));
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(9_000, ended("c-1/bill", RunStatus::Dead)).await);
    let row = row(&town.world, "c-1/bill").expect("a row");
    assert_eq!((row.attempts.len(), town.world.dead_letters().len()), (3, 1));
    let wait = row.attempts[1].started_at - row.attempts[0].started_at;
    assert!(wait <= chrono::TimeDelta::seconds(10), "{wait}");
}

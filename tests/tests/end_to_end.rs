//! The programs as their users start them, on the local stack: real processes, real DynamoDB and SQS calls.

use chrono::{DateTime, TimeDelta};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::due::{DueBucket, Minute};
use punctual_core::job::{Job, JobKey, JobSpec, JobState, Timetable};
use punctual_core::message::Message;
use punctual_core::ports::{Create, JobsUnder, Ports};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunKey, RunStatus, SkipReason};
use punctual_core::schedule::{ScheduleText, whole_second};
use punctual_core::zone::Zones;
use punctual_localstack::multicall::{SCHEDULER, WORKER};
use punctual_localstack::stack::{AcceptedMessage, Stack, StackConfig};
use punctual_tests::local::assert_discreet;
use punctual_tests::reminder;
use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);

struct Local {
    stack: Stack,
    accepted: Arc<Mutex<Vec<AcceptedMessage>>>,
}

impl Local {
    fn start() -> Self {
        let accepted: Arc<Mutex<Vec<AcceptedMessage>>> = Arc::default();
        let seen = accepted.clone();
        let on_message = move |message| seen.lock().expect("nobody panics holding it").push(message);
        let config = StackConfig { on_message: Some(Arc::new(on_message)), ..StackConfig::default() };
        Local { stack: Stack::start(config).expect("free ports are always found"), accepted }
    }

    fn command(&self, word: &str, args: &[&str]) -> Command {
        let mut command = bare(word, args);
        command.envs(self.stack.exports());
        command
    }

    async fn punctual(&self, args: &[&str]) -> Output {
        let output = self.command(SCHEDULER, args).output().await.expect("the program starts");
        assert_discreet("a command", &stderr(&output));
        output
    }

    async fn ports(&self, prefix: &str) -> Ports {
        self.stack.aws(Names::new(prefix).expect("a valid prefix")).await.ports()
    }

    fn messages(&self, queue: &str) -> Vec<String> {
        let accepted = self.accepted.lock().expect("nobody panics holding it");
        accepted.iter().filter(|m| m.queue == queue).map(|m| m.body.clone()).collect()
    }
}

/// A program without any AWS settings.
fn bare(word: &str, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg(word).args(args).stdin(Stdio::null()).kill_on_drop(true);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.starts_with("PUNCTUAL_")) {
        command.env_remove(name);
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    command
}

/// A program that goes on, whose log is looked through when it is gone.
struct Program {
    child: Child,
    log: NamedTempFile,
}

impl Program {
    async fn kill(&mut self) {
        self.child.kill().await.expect("it runs");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        assert_discreet("a program", &std::fs::read_to_string(self.log.path()).expect("its log can be read"));
    }
}

fn start(command: &mut Command) -> Program {
    let log = NamedTempFile::new().expect("files can be made");
    let stderr = log.reopen().expect("it can be written");
    let child = command.env("PUNCTUAL_LOG", "debug").stdout(Stdio::null()).stderr(stderr).spawn();
    Program { child: child.expect("the program starts"), log }
}

/// Polls until something holds.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn one_line(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(text.trim().lines().count(), 1, "one clear line: {text}");
    text
}

#[tokio::test]
async fn a_run_has_the_same_id_whatever_the_zone_of_the_process() {
    let local = Local::start();
    for (prefix, tz) in [("utc", "UTC"), ("kolkata", "Asia/Kolkata"), ("newyork", "America/New_York")] {
        let run = |args: &[&str]| {
            let mut command = local.command(SCHEDULER, args);
            command.env("TZ", tz).env("PUNCTUAL_STORE_PREFIX", prefix);
            command
        };
        let setup = run(&["setup", "--urgent-shards", "1", "--standard-shards", "1"]).output().await;
        assert!(setup.expect("the program starts").status.success());
        let schedule = "at 2026-10-05T03:30:00Z";
        let add = ["jobs", "add", "--id", "1", "--to", "+447700900123", "--text", "Due", "--schedule", schedule];
        let added = run(&add).output().await.expect("the program starts");
        assert!(added.status.success(), "{}", stderr(&added));
        let mut scheduler = start(&mut run(&["dispatch"]));
        let queue = format!("{prefix}-normal");
        eventually("the run is enqueued", || async { !local.messages(&queue).is_empty() }).await;
        let message = Message::decode(&local.messages(&queue)[0]).expect("a message of ours");
        assert_eq!(message.run_key.as_str(), "1791171000", "with TZ={tz}");
        assert_eq!(message.run_id().to_string(), "default/1:1791171000");
        scheduler.kill().await;
    }
    local.stack.stop().await;
}

#[tokio::test]
async fn a_file_with_a_bad_row_imports_nothing() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("r.csv");
    let rows = "customer,phone,kind,priority,schedule,template\n\
                c-1,+447700900123,bill,normal,every 24h,Due today\n\
                c-2,07700900124,bill,normal,every 24h,Due today\n";
    std::fs::write(&file, rows).expect("it can be written");
    let file = file.display().to_string();
    let output = local.punctual(&["jobs", "import", &file]).await;
    assert_eq!(output.status.code(), Some(2));
    let line = one_line(&output);
    assert!(line.contains(&format!("{file}, line 3, column phone")) && line.contains("E.164"), "{line}");
    assert!(!line.contains("7700"), "{line}");
    let jobs = local.ports("punctual").await.jobs;
    let mut page = jobs.list(&JobsUnder::tenant("default"), None, 100).await.expect("the store answers");
    while let Some(next) = page.next.take() {
        assert!(page.jobs.is_empty(), "half imported: {:?}", page.jobs.keys());
        page = jobs.list(&JobsUnder::tenant("default"), Some(next), 100).await.expect("the store answers");
    }
    std::fs::write(folder.path().join("r.csv"), rows.replace("07700", "+447700")).expect("it can be written");
    for expected in ["2 jobs made, 0 there already", "0 jobs made, 2 there already"] {
        let output = local.punctual(&["jobs", "import", &file]).await;
        assert!(output.status.success(), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(expected), "{said}");
    }
    local.stack.stop().await;
}

#[tokio::test]
async fn a_job_is_made_on_the_customers_clock_and_shown_so() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let add = ["jobs", "add", "--id", "c-1/bill", "--to", "+447700900123", "--text", "Due", "--tz", "Asia/Kathmandu"];
    let timetable = ["--schedule", "cron H 9 L * *", "--start-at", "2092-02-01T00:00", "--spread", "30m"];
    let rules = ["--spread-key", "c-10001", "--max-runs", "12", "--missed", "all", "--start-within", "30s"];
    let add = [&add[..], &timetable, &rules].concat();
    let added = local.punctual(&add).await;
    let said = String::from_utf8_lossy(&added.stdout).into_owned();
    // The last day of that February is the 29th; 9:25 in Kathmandu is 3:40 in UTC; the window adds 1171 s.
    assert!(
        said.contains("due at 2092-02-29T03:59:31Z, 2092-02-29 09:44:31 in Asia/Kathmandu"),
        "{said}{}",
        stderr(&added)
    );
    assert!(
        said.contains("cron 25 9 L * * (H 9 L * *), Asia/Kathmandu, from 2092-01-31T18:15:00Z, at most 12 runs"),
        "{said}"
    );
    assert!(one_line(&added).contains("warning: start_within_s 30 is tight"), "{}", stderr(&added));
    let again = local.punctual(&add).await;
    assert!(String::from_utf8_lossy(&again.stdout).contains("there already, the same"), "{}", stderr(&again));
    let listed = local.punctual(&["jobs", "list", "--json"]).await;
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one JSON object");
    assert_eq!(listed["next_wall"], "2092-02-29T09:25:00");
    assert_eq!((&listed["runs_left"], &listed["schedule"]["tz"]), (&12.into(), &"Asia/Kathmandu".into()));
    let urgent = [&add[..], &["--priority", "urgent"]].concat();
    let refused = local.punctual(&urgent).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(one_line(&refused).contains("urgent jobs are never spread"), "{}", stderr(&refused));
    local.stack.stop().await;
}

#[tokio::test]
async fn a_job_is_changed_from_the_command_line() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let job =
        ["--to", "+447700900123", "--text", "Due", "--schedule", "cron 0 9 * * *", "--start-at", "2092-02-01T00:00"];
    let add = [&["jobs", "add", "--id", "c-1/bill"], &job[..]].concat();
    assert!(local.punctual(&add).await.status.success());
    let on_the_job = async |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let (word, options) = words.split_first().expect("a word");
        local.punctual(&[&["jobs", word, "c-1/bill"], options].concat()).await
    };
    let changed = async |words: &str| {
        let output = on_the_job(&format!("{words} --json")).await;
        let job = serde_json::from_slice::<serde_json::Value>(&output.stdout);
        job.unwrap_or_else(|error| panic!("{words}: {error}: {}", stderr(&output)))
    };
    let edited = changed("edit --tz Asia/Kathmandu --spread 30m --spread-key c-10001 --if-version 1").await;
    assert_eq!((&edited["version"], &edited["next_due_at"]), (&2.into(), &"2092-02-01T03:34:31Z".into()));
    assert_eq!(changed("edit --spread-key c-10001").await["version"], 2, "as it is already");
    let conflict = on_the_job("cancel --if-version 1").await;
    assert_eq!(conflict.status.code(), Some(1));
    assert!(one_line(&conflict).contains("has version 2 by now"), "{}", stderr(&conflict));
    assert_eq!(on_the_job("edit --schedule soon").await.status.code(), Some(2));
    let run = on_the_job("run --idempotency-key k-1").await;
    let again = on_the_job("run --idempotency-key k-1").await;
    assert!(run.status.success() && run.stdout == again.stdout, "{}", stderr(&again));
    let messages = local.messages("punctual-normal");
    assert!(messages.len() == 2 && messages[0] == messages[1], "{messages:?}");
    assert_eq!(changed("pause").await["state"], "paused");
    let refused = on_the_job("run").await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(one_line(&refused).contains("it is paused: resume it first"), "{}", stderr(&refused));
    assert_eq!(changed("resume").await["next_due_at"], edited["next_due_at"]);
    assert_eq!(changed("cancel").await["state"], "cancelled");
    let listed = local.punctual(&["jobs", "list", "--state", "cancelled", "--json"]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains("c-1/bill"));
    assert!(local.punctual(&add).await.status.success(), "made again");
    let shown = on_the_job("show").await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("active") && shown.contains("6, by ") && !shown.contains("7700"), "{shown}");
    assert_eq!(local.punctual(&["jobs", "show", "c-2/bill"]).await.status.code(), Some(1));
    local.stack.stop().await;
}

#[tokio::test]
async fn a_quarantined_job_is_listed_and_released() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let add = ["jobs", "add", "--id", "c-1/bill", "--to", "+447700900123", "--text", "Due"];
    assert!(local.punctual(&[&add[..], &["--schedule", "at 2092-02-01T09:00:00Z"]].concat()).await.status.success());
    let ports = local.ports("punctual").await;
    let key: JobKey = "default/c-1/bill".to_owned().try_into().expect("a valid key");
    let jobs = ports.jobs.get_many(std::slice::from_ref(&key)).await.expect("jobs can be read");
    let bucket = jobs[&key].job().and_then(|job| job.due_bucket).expect("it is in the due index");
    ports.jobs.quarantine(&key, bucket, "it cannot be understood").await.expect("it can be set aside");
    let list = ["jobs", "list", "--state", "quarantined"];
    let listed = String::from_utf8_lossy(&local.punctual(&list).await.stdout).into_owned();
    assert!(listed.contains("c-1/bill") && listed.contains("it cannot be understood"), "{listed}");
    let released = local.punctual(&["jobs", "release", "c-1/bill"]).await;
    let said = String::from_utf8_lossy(&released.stdout).into_owned();
    assert!(said.contains("changed: active, version 2, its next run is due at 2092-02-01T09:00:00Z"), "{said}");
    let listed = String::from_utf8_lossy(&local.punctual(&list).await.stdout).into_owned();
    assert!(!listed.contains("c-1/bill"), "{listed}");
    local.stack.stop().await;
}

// As if all schedulers had been down from a minute after the job was made until now.
#[tokio::test]
async fn an_outage_is_one_late_run_and_one_row_for_the_others() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let ports = local.ports("punctual").await;
    let now = whole_second(SystemClock::new().now());
    let made_at = now - TimeDelta::minutes(49);
    let zones = Zones::embedded();
    let shards = ports.control.shards().await.expect("the store answers").expect("it is set up");
    let end_at = now.to_rfc3339();
    let text = ScheduleText {
        when: "cron * * * * *",
        tz: Some("Australia/Lord_Howe"),
        end_at: Some(&end_at),
        ..ScheduleText::default()
    };
    let (schedule, _) = text.read(made_at, &zones).expect("a valid schedule");
    let spec = JobSpec { schedule, ..reminder("c-1/bill", "every 24h") };
    let world = Timetable { shards: &shards, zones: &zones };
    let mut job = Job::create(spec, made_at, &world, None, "made".into(), "test").expect("a valid job");
    let shard = job.due_bucket.expect("it is due").shard;
    job.due_bucket = Some(DueBucket { minute: Minute::of(now), shard });
    assert_eq!(ports.jobs.create(&job).await, Ok(Create::Created));
    let first = job.next_scheduled_at.expect("it is due");
    let mut scheduler = start(&mut local.command(SCHEDULER, &["dispatch"]));
    let at_present = async || {
        let mut jobs = ports.jobs.get_many(std::slice::from_ref(&job.spec.key)).await.expect("the store answers");
        jobs.remove(&job.spec.key).and_then(|read| read.job().cloned()).expect("the job is there")
    };
    eventually("the job is done", || async { at_present().await.state == JobState::Done }).await;
    scheduler.kill().await;
    let row = ports.runs.list(&job.spec.key, 10).await.expect("the store answers").pop().expect("there is a row");
    let range = row.range.expect("it stands for several");
    assert_eq!((row.status, row.reason), (RunStatus::Skipped, Some(SkipReason::Missed)));
    assert_eq!(row.id.run_key, RunKey::scheduled(first));
    assert_eq!(range.to - first, TimeDelta::minutes(i64::from(range.count) - 1));
    let runs: Vec<_> =
        local.messages("punctual-normal").iter().map(|body| Message::decode(body).expect("ours")).collect();
    let fired: Vec<_> = runs.iter().map(|run| run.scheduled_at).collect();
    assert_eq!(fired, [range.to + TimeDelta::minutes(1)], "the latest one is run");
    let done = at_present().await;
    assert_eq!((done.next_scheduled_at, done.next_wall, done.tzdb, done.due_bucket), (None, None, None, None));
    let listed = local.punctual(&["runs", "list", "--tenant", "bank", "c-1/bill"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&format!("missed, {} firings up to", range.count)), "{listed}");
    local.stack.stop().await;
}

#[tokio::test]
async fn what_is_missing_is_one_clear_line() {
    let no_region = bare(SCHEDULER, &["jobs", "list"]).output().await.expect("the program starts");
    assert_eq!(no_region.status.code(), Some(1));
    assert!(one_line(&no_region).contains("set AWS_REGION"));

    let mut no_credentials = bare(SCHEDULER, &["jobs", "list"]);
    let no_credentials = no_credentials.env("AWS_REGION", "us-east-1").output().await.expect("the program starts");
    assert!(one_line(&no_credentials).contains("no AWS credentials"));

    let local = Local::start();
    for args in [&["jobs", "list"][..], &["dispatch"], &["runs", "list", "1"]] {
        let no_table = local.punctual(args).await;
        assert_eq!(no_table.status.code(), Some(1));
        assert!(one_line(&no_table).contains("run `punctual setup`"), "{}", stderr(&no_table));
    }
    let worker = local.command(WORKER, &[]).output().await.expect("the program starts");
    assert!(one_line(&worker).contains("run `punctual setup`"), "{}", stderr(&worker));

    let mut nobody_there = local.command(SCHEDULER, &["jobs", "list"]);
    let nobody_there = nobody_there.env("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1").output().await;
    let line = one_line(&nobody_there.expect("the program starts"));
    assert!(line.contains("punctual-control cannot be reached") && line.contains("refused"), "{line}");

    let wrong_settings = bare(WORKER, &["--sms-url", "nowhere", "--heartbeat-s", "60"]).output().await;
    let wrong_settings = wrong_settings.expect("the program starts");
    assert_eq!(wrong_settings.status.code(), Some(2));
    assert_eq!(stderr(&wrong_settings).lines().count(), 2, "all problems at once: {}", stderr(&wrong_settings));
    local.stack.stop().await;
}

#[tokio::test]
async fn an_unreadable_message_goes_to_the_dead_letters_and_the_rest_goes_on() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let ports = local.ports("punctual").await;
    let body = "nobody can read +447700900123".to_owned();
    ports.queue.send(Priority::Urgent, &[body]).await.expect("the queue answers")[0].clone().expect("it is taken");
    let at = "2026-10-05T03:30:00Z";
    let add =
        ["jobs", "add", "--id", "1", "--to", "+447700900123", "--text", "Due", "--priority", "urgent", "--schedule"];
    let added = local.punctual(&[&add[..], &[&format!("at {at}")]].concat()).await;
    assert!(added.status.success(), "{}", stderr(&added));
    let mut scheduler = start(&mut local.command(SCHEDULER, &["dispatch"]));
    let mut worker = start(&mut local.command(WORKER, &[]));
    let run_key = RunKey::scheduled(DateTime::from_timestamp(1_791_171_000, 0).expect("a valid instant"));
    let run = RunId { job_key: JobKey::new("default", "1").expect("a valid key"), run_key };
    eventually("the run has succeeded", || async {
        let row = ports.runs.get(&run).await.expect("the store answers");
        row.is_some_and(|row| row.status == RunStatus::Succeeded)
    })
    .await;
    eventually("the letter is there", || async { !local.messages("punctual-dead-letters").is_empty() }).await;
    let letters = local.messages("punctual-dead-letters");
    assert!(letters[0].contains("cannot be parsed"), "{letters:?}");
    let listed = local.punctual(&["runs", "list", "1"]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains("succeeded"));
    for process in [&mut scheduler, &mut worker] {
        process.kill().await;
    }
    assert_eq!(local.stack.gateway().stats().accepted, 1);
    local.stack.stop().await;
}

/// The demo in small, with crashes and with every log there is: the promises hold, and no log shows a phone number, a text
/// or a receipt handle.
#[tokio::test]
async fn the_demo_keeps_its_promises_while_processes_die_and_logs_nothing_personal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (report, logs) = (folder.path().join("r.json"), folder.path().join("logs"));
    let (report_arg, logs_arg) = (report.display().to_string(), logs.display().to_string());
    let args = ["--", "--jobs", "400", "--chaos", "--report", &report_arg, "--logs", &logs_arg];
    let output = bare("demo", &args).env("PUNCTUAL_LOG", "trace").output().await.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", stderr(&output));
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(report).expect("the report is written")).expect("it is JSON");
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {report}"));
    for (name, expected) in [
        ("jobs", 400),
        ("due", 400),
        ("distinct_enqueued", 400),
        ("left_due", 0),
        ("due_instants", 1),
        ("gateway_accepted", 400),
        ("gateway_sent_twice", 0),
        ("dead_letters", 0),
    ] {
        assert_eq!(number(name), expected, "{name}: {report}");
    }
    assert!(number("zones") >= 12, "{report}");
    assert_eq!(number("gateway_repeats"), number("gateway_repeats_dropped"));
    assert_eq!(report["killed"].as_array().map(Vec::len), Some(2));
    let schedulers: Vec<u64> =
        report["per_scheduler"].as_array().into_iter().flatten().filter_map(|n| n.as_u64()).collect();
    assert_eq!(schedulers.iter().sum::<u64>(), number("enqueued"));

    let reminders = include_bytes!("../../localstack/demo/reminders.csv");
    let mut reminders = csv::Reader::from_reader(&reminders[..]);
    let header = reminders.headers().expect("the demo's file has a header").clone();
    let rows: Vec<csv::StringRecord> = reminders.records().collect::<Result<_, _>>().expect("the demo's file is CSV");
    let column = |name: &str| header.iter().position(|column| column == name).expect("the column is there");
    let phones: BTreeSet<&str> = rows.iter().map(|row| &row[column("phone")]).collect();
    let texts: BTreeSet<&str> =
        rows.iter().map(|row| &row[column("template")]).filter(|text| text.chars().count() > 20).collect();
    assert!(phones.len() > 100 && texts.len() > 100, "{} phones, {} texts", phones.len(), texts.len());
    let mut bytes = 0;
    let written = std::fs::read_dir(&logs).expect("the logs are kept").map(|entry| entry.expect("readable").path());
    let logs = written.map(|path| std::fs::read_to_string(path).expect("a log is text"));
    for log in logs.chain([said, stderr(&output)]) {
        bytes += log.len();
        for phone in &phones {
            assert!(!log.contains(&phone[1..]), "a log shows a phone number");
        }
        for text in &texts {
            // Its beginning is enough: a log may cut it, or escape what comes later.
            let beginning: String = text.chars().take(20).collect();
            assert!(!log.contains(&beginning), "a log shows a text");
        }
        assert!(!holds_receipt(&log), "a log shows a receipt handle");
    }
    assert!(bytes > 1_000, "the logs hold something to look at: {bytes} bytes");
}

#[tokio::test]
async fn a_receipt_handle_would_be_recognised_in_a_log() {
    let local = Local::start();
    assert!(local.punctual(&["setup"]).await.status.success());
    let queue = local.ports("punctual").await.queue;
    queue.send(Priority::Normal, &["a body".into()]).await.expect("the queue answers")[0].clone().expect("it is taken");
    let received = queue.receive(Priority::Normal, 1, Duration::from_secs(5), PATIENCE).await;
    let receipt = received.expect("the queue answers")[0].receipt.clone();
    assert!(holds_receipt(&format!("deleted receipt=\"{receipt}\" of 1")), "{receipt}");
    local.stack.stop().await;
}

/// The local stack's receipt handles are 124 characters of Base64; nothing else that is logged has nearly as long a word.
fn holds_receipt(log: &str) -> bool {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    log.split(|c| !is_base64(c)).any(|word| word.len() >= 100)
}

#[tokio::test]
async fn the_doctor_compares_the_hosts_clock_with_the_stores() {
    let local = Local::start();
    let found = async || {
        let output = local.punctual(&["doctor"]).await;
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before_setup = found().await;
    assert!(before_setup.contains("agrees with the store's"), "{before_setup}");
    assert!(local.punctual(&["setup"]).await.status.success());
    let after_setup = found().await;
    assert!(after_setup.contains("answers") && after_setup.contains("agrees with the store's"), "{after_setup}");
    local.stack.stop().await;
}

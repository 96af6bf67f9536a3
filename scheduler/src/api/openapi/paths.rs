//! What each route takes and answers: one function for each thing that can be asked for, found by [`of`].

use super::super::ask::{DEFAULT_PAGE, LARGEST_PAGE, LONGEST_BODY_BYTES, MERGE_PATCH};
use super::super::import::NDJSON;
use super::super::routes::Op;
use super::incidents::{self, INCIDENTS};
use super::operation::{Operation, in_path, in_query, reference, shared};
use super::schemas::{job_id, job_id_or_prefix};
use serde_json::{Value, json};

/// The names of the groups of operations, and what they are about.
pub(super) const TAGS: [(&str, &str); 6] = [
    (JOBS, "Standing instructions: what to do, when, and to whom."),
    (RUNS, "What became of each firing, what is to come, and who changed what."),
    (MANY, "Thousands of jobs at once."),
    (INCIDENTS, "What needs a person: dead letters, and what the calendar asked for and no row shows."),
    (STEERING, "Holds, limits, and the state of the installation."),
    (SERVICE, "Whether the API is up, and what it is. Needs no key."),
];
const JOBS: &str = "Jobs";
const RUNS: &str = "Runs";
const MANY: &str = "Import";
const STEERING: &str = "Steering";
const SERVICE: &str = "Service";

/// What is taken and answered where this is asked for.
pub(super) fn of(op: Op) -> Operation {
    match op {
        Op::CreateJob => create_job(),
        Op::ListJobs => list_jobs(),
        Op::GetJob => get_job(),
        Op::PutJob => put_job(),
        Op::PatchJob => patch_job(),
        Op::DeleteJob => delete_job(),
        Op::PauseJobs => act("pauseJobs", "Hold a job back", PAUSE),
        Op::ResumeJobs => act("resumeJobs", "End a pause", RESUME),
        Op::CancelJobs => act("cancelJobs", "End a job for good", CANCEL),
        Op::ReleaseJobs => act("releaseJobs", "Let a quarantined job fire again", RELEASE),
        Op::RunJobs => run_jobs(),
        Op::ListRuns => list_runs(),
        Op::GetRun => get_run(),
        Op::NextFirings => next_firings(),
        Op::ListChanges => list_changes(),
        Op::PreviewSchedule => preview_schedule(),
        Op::ImportJobs => import_jobs(),
        Op::RequeueRun => incidents::requeue_run(),
        Op::ListDeadLetters => incidents::list_letters(),
        Op::ReplayDeadLetters => incidents::replay_letters(),
        Op::DropDeadLetters => incidents::drop_letters(),
        Op::Audit => incidents::audit(),
        Op::RequeueMissing => incidents::requeue_missing(),
        Op::ListHolds => list_holds(),
        Op::PutHold => put_hold(),
        Op::DeleteHold => delete_hold(),
        Op::ListRates => list_rates(),
        Op::PutRate => put_rate(),
        Op::DeleteRate => delete_rate(),
        Op::Status => status(),
        Op::Healthz => healthz(),
        Op::Readyz => readyz(),
        Op::OpenApi => contract(),
        Op::Docs => docs(),
    }
}

pub(super) fn id() -> Value {
    in_path("id", "The job's id. A `/` in it is written `%2F`, or as it is.", job_id())
}

fn id_or_prefix() -> Value {
    let about = "The job's id; or, with a `/` at its end, all jobs whose ids begin so. A `/` in it is written `%2F`, or as it is.";
    in_path("id", about, job_id_or_prefix())
}

pub(super) fn limit() -> Value {
    let about = format!("How many entries a page has at most; {DEFAULT_PAGE} where nothing is said.");
    in_query("limit", &about, json!({"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE}))
}

pub(super) fn cursor() -> Value {
    let schema = json!({"type": "string", "minLength": 1, "maxLength": 4_096, "pattern": "^[A-Za-z0-9_-]+$"});
    in_query("cursor", "The `next_cursor` of the page before, of this very listing.", schema)
}

pub(super) fn instant(name: &str, about: &str) -> Value {
    in_query(name, about, json!({"type": "string", "format": "date-time"}))
}

/// What can be asked of a job that was made or shown.
fn of_the_job() -> Value {
    let link = |operation: &str| json!({"operationId": operation, "parameters": {"id": "$response.body#/id"}});
    let links =
        ["getJob", "putJob", "patchJob", "deleteJob", "pauseJobs", "resumeJobs", "cancelJobs", "runJobs", "listRuns"];
    let more = ["nextFirings", "listChanges"];
    let links = links.iter().chain(&more).map(|operation| ((*operation).to_owned(), link(operation)));
    Value::Object(links.collect())
}

/// The page that follows.
fn next_page(operation: &str) -> Value {
    json!({"nextPage": {"operationId": operation, "parameters": {"cursor": "$response.body#/next_cursor"},
        "description": "Where `next_cursor` is not null."}})
}

/// Jobs that are worth looking at.
fn jobs() -> Value {
    let cron = json!({"cron": "0 9 * * 1-5", "tz": "Asia/Kolkata"});
    let sms = json!({"handler": "sms", "to": "+447700900123", "text": "Your bill is due"});
    json!({
        "reminder": {"summary": "A text message on working days", "value": {"id": "c-1/bill", "schedule": cron, "payload": sms}},
        "spread": {"summary": "An email at some second of half an hour, twelve times, with a text of its own", "value": {
            "id": "c-2/instalment", "name": "Instalment", "priority": "bulk",
            "schedule": {"cron": "0 9 1 * *", "tz": "Europe/Berlin", "max_runs": 12, "dst_gap": "next-valid"},
            "payload": {"handler": "email", "to": "ana@example.com", "subject": "Your instalment",
                "text": "{{ vars.amount }} is due on {{ local.date }}", "vars": {"amount": "12.50"}},
            "spread": {"window_s": 1_800, "key": "c-2"}, "missed": {"many": "all", "until_local": "20:00"},
        }},
        "hook": {"summary": "A signed webhook every day, with waits of its own", "value": {
            "id": "c-3/hook", "schedule": {"every": "24h"},
            "payload": {"handler": "webhook", "url": "https://hooks.example.com/bills",
                "body": "{\"run\": {{ run.id | tojson }}}", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
            "retry": {"waits_s": [5, 300, 1_800, 7_200]}, "missed": {"many": "latest", "start_within_s": 7_200},
        }},
        "once": {"summary": "A message to a queue, once", "value": {
            "id": "c-4/once", "schedule": {"at": "2030-12-05T09:00", "tz": "America/New_York"},
            "payload": {"handler": "queue", "url": "https://sqs.eu-west-1.amazonaws.com/123456789012/bills", "body": "c-4"},
        }},
        "probe": {"summary": "Nothing: it only shows that all works", "value": {
            "id": "probe", "schedule": {"cron": "H/15 * * * *", "hash_key": "probe"}, "payload": {"handler": "noop"},
            "retry": {"max_attempts": 3, "base_s": 10, "cap_s": 60},
        }},
    })
}

/// The same without ids, which the address gives.
fn jobs_without_ids() -> Value {
    let mut jobs = jobs();
    for (_, example) in jobs.as_object_mut().into_iter().flatten() {
        example["value"].as_object_mut().map(|job| job.remove("id"));
    }
    jobs
}

fn create_job() -> Operation {
    Operation::new(JOBS, "createJob", "Make a job")
        .says(
            "The first firing is worked out before the answer. Made twice with the same content it is made once (200). With an \
             `Idempotency-Key` a repeat within seven days is answered with the job that the first request made.",
        )
        .with(shared("IdempotencyKey"))
        .takes("JobInput", jobs())
        .shows(201, "It was made, by this request or by an earlier one with this key.", "Job")
        .tells(201, &["ETag", "Location", "Idempotency-Replayed"])
        .leads(201, of_the_job())
        .shows(200, "The very same job was there already.", "Job")
        .tells(200, &["ETag", "Location"])
        .fails(&[409])
}

fn list_jobs() -> Operation {
    let prefix = json!({"type": "string", "maxLength": 128, "pattern": "^([A-Za-z0-9._-][A-Za-z0-9._/-]*)?$"});
    let states = json!({"type": "string", "enum": ["active", "paused", "done", "cancelled", "quarantined"]});
    Operation::new(JOBS, "listJobs", "List jobs")
        .says("By id, in no order that means anything. A page may have fewer entries than asked for; the last one has no `next_cursor`.")
        .with(in_query("prefix", "Only jobs whose ids begin so.", prefix))
        .with(in_query("state", "Only jobs in this state.", states))
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "Jobs")
        .leads(200, next_page("listJobs"))
}

fn get_job() -> Operation {
    Operation::new(JOBS, "getJob", "Show a job")
        .with(id())
        .shows(200, "The job.", "Job")
        .tells(200, &["ETag"])
        .fails(&[409])
}

fn put_job() -> Operation {
    Operation::new(JOBS, "putJob", "Make a job, or make it what is said")
        .says("What is left out gets its default. A cancelled or done job is made again.")
        .with(id())
        .with(shared("IfMatch"))
        .with(shared("IfNoneMatch"))
        .takes("JobInput", jobs_without_ids())
        .shows(200, "It is what was said now, or was so already.", "Job")
        .tells(200, &["ETag"])
        .shows(201, "It was made.", "Job")
        .tells(201, &["ETag", "Location"])
        .leads(201, of_the_job())
        .fails(&[409, 412])
}

fn patch_job() -> Operation {
    let examples = json!({
        "time": {"summary": "Another time", "value": {"schedule": {"cron": "0 10 * * 1-5", "every": null, "from": null, "at": null}}},
        "text": {"summary": "Another name and priority", "value": {"name": "Bill", "priority": "bulk"}},
        "bounds": {"summary": "No spread window and no bound any more", "value": {"spread": null, "schedule": {"max_runs": null}}},
    });
    Operation::new(JOBS, "patchJob", "Change what is given of a job")
        .says("A new text reaches runs that are queued already. A new time decides from its own moment on.")
        .with(id())
        .with(shared("IfMatch"))
        .takes_as(&[MERGE_PATCH, "application/json"], &reference("JobPatch"), examples, true)
        .shows(200, "The job as it is now.", "Job")
        .tells(200, &["ETag"])
        .fails(&[409, 412])
}

fn delete_job() -> Operation {
    Operation::new(JOBS, "deleteJob", "End a job and erase what it was to do")
        .says("Its runs stay, and its id is kept for 60 days, so that nothing late is taken for new.")
        .with(id())
        .with(shared("IfMatch"))
        .shows(200, "What is left of it.", "Job")
        .tells(200, &["ETag"])
        .fails(&[409, 412])
}

const PAUSE: &str = "Nothing of it is sent, and nothing is lost: what falls due meanwhile is owed at the resume.";
const RESUME: &str = "What is owed goes by the job's rule for missed firings.";
const CANCEL: &str = "What is queued does not run either; a call under way is not stopped.";
const RELEASE: &str = "For a job that dispatch could not understand, and a version that can.";

fn act(id: &'static str, summary: &'static str, says: &str) -> Operation {
    let either = json!({"anyOf": [reference("Job"), reference("ManyJobs")]});
    at_jobs(id, summary, says)
        .with(shared("IfMatch"))
        .gives(200, "The job as it is now; for a prefix, what came of how many.", &either)
        .fails(&[409, 412])
}

/// What can be done to one job, or to all under a prefix.
fn at_jobs(id: &'static str, summary: &'static str, says: &str) -> Operation {
    let examples = json!({"nothing": {"value": {}}});
    let prefix =
        "For a prefix it does up to 10,000 jobs a call; `If-Match` goes with one job, and `cursor` with a prefix.";
    Operation::new(JOBS, id, summary).says(&format!("{says} {prefix}")).with(id_or_prefix()).with(cursor()).takes_as(
        &["application/json"],
        &reference("Nothing"),
        examples,
        false,
    )
}

fn run_jobs() -> Operation {
    let says = "One run besides the timetable, which stays as it is. With an `Idempotency-Key`, which a prefix needs, a repeat \
                within seven days is the same run.";
    at_jobs("runJobs", "Run a job now", says)
        .with(shared("IdempotencyKey"))
        .shows(202, "The run is in its queue. Its row is there once a worker has begun it.", "RunByHand")
        .shows(200, "For a prefix: what came of how many.", "ManyJobs")
        .fails(&[409])
}

fn list_runs() -> Operation {
    Operation::new(RUNS, "listRuns", "List a job's runs")
        .says("The latest first. Rows are kept for 60 days.")
        .with(id())
        .with(instant("from", "Only runs whose nominal instant is this or later."))
        .with(instant("to", "Only runs before this."))
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "Runs")
        .leads(200, next_page("listRuns"))
        .fails(&[409])
}

fn get_run() -> Operation {
    let run = json!({"type": "string", "pattern": "^-?[0-9][0-9A-Za-z]{0,62}$", "examples": ["1791171000"]});
    Operation::new(RUNS, "getRun", "Show a run")
        .with(id())
        .with(in_path(
            "run",
            "The run within its job: Unix seconds, with a mark behind them where it was made by hand or repeats one.",
            run,
        ))
        .shows(200, "The run, its attempts, and who saw to it where it is a dead letter.", "RunInFull")
}

fn next_firings() -> Operation {
    let count = json!({"type": "integer", "minimum": 1, "maximum": 1_000, "default": 10});
    Operation::new(RUNS, "nextFirings", "Show when a job fires next")
        .says("What a clock change moves, drops or repeats is marked.")
        .with(id())
        .with(in_query("count", "How many are shown.", count))
        .with(instant("after", "Only those after this; else from where the job stands."))
        .shows(200, "Firings, and marks of clock changes among them.", "NextFirings")
        .fails(&[409])
}

fn list_changes() -> Operation {
    Operation::new(RUNS, "listChanges", "Show who changed a job")
        .says("The latest first: the fields that differ, as they were and as they are.")
        .with(id())
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "Changes")
        .leads(200, next_page("listChanges"))
        .fails(&[409])
}

fn preview_schedule() -> Operation {
    let examples = json!({
        "night": {"summary": "Over a change of the clock", "value": {
            "schedule": {"cron": "30 2 * * *", "tz": "America/New_York"}, "after": "2026-03-07T12:00", "count": 2}},
        "window": {"summary": "With a spread window", "value": {
            "schedule": {"cron": "0 9 * * *"}, "spread": {"window_s": 1_800, "key": "c-10001"}}},
    });
    Operation::new(RUNS, "previewSchedule", "Show when a schedule would fire")
        .says("Nothing is written.")
        .takes("PreviewInput", examples)
        .shows(200, "Its firings.", "Preview")
}

fn import_jobs() -> Operation {
    let line = json!({"id": "c-1/bill", "schedule": {"cron": "0 9 * * 1-5", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill is due"}});
    let lines =
        json!({"type": "array", "items": reference("JobLine"), "description": "One JSON object a line, not an array."});
    let answers = json!({"type": "array", "items": reference("ImportAnswer"), "description": "One JSON object a line, not an array."});
    let answer = json!({"description": "An answer for each line, in order, while lines are still read; then a summary.",
        "content": {NDJSON: {"schema": answers}}});
    Operation::new(MANY, "importJobs", "Make or change the jobs of a stream of lines")
        .says(&format!(
            "Each line is a job's document with its id, {LONGEST_BODY_BYTES} bytes at most; the stream may be as long as it likes. A line \
             that is refused does not stop the others: the status is 200, and each line says what came of it. A repeat changes \
             nothing, so a stream that broke off is sent again. A job that was cancelled stays so."
        ))
        .with(in_query("dry_run", "Whether to read only, and write nothing.", json!({"type": "boolean", "default": false})))
        .takes_as(&[NDJSON], &lines, json!({"line": {"summary": "One line", "value": [line]}}), true)
        .answers(200, answer)
}

fn scope() -> Value {
    let host = r"[A-Za-z0-9_:\[\]-][A-Za-z0-9._:\[\]-]{0,252}";
    let pattern = format!(
        "^(all|tenant/[A-Za-z0-9._-]{{1,64}}|priority/(urgent|normal|bulk)|target/(sms|email|queue|noop|webhook/{host}))$"
    );
    let schema = json!({"type": "string", "pattern": pattern, "examples": ["tenant/fuzz"]});
    in_path(
        "scope",
        "`all`, `tenant/bank`, `priority/bulk` or `target/sms`. A `/` in it is written `%2F`, or as it is.",
        schema,
    )
}

fn target() -> Value {
    let pattern = r"^(sms|email|queue|noop|webhook/[A-Za-z0-9_:\[\]-][A-Za-z0-9._:\[\]-]{0,252})$";
    let schema = json!({"type": "string", "pattern": pattern, "examples": ["sms"]});
    in_path(
        "target",
        "`sms`, `email`, `queue`, `noop`, or `webhook/` and a host. A `/` in it is written `%2F`, or as it is.",
        schema,
    )
}

fn list_holds() -> Operation {
    Operation::new(STEERING, "listHolds", "List holds")
        .says("All of them; for a tenant's key those over its tenant, and over what everybody shares.")
        .shows(200, "All of them, on one page.", "Holds")
}

fn put_hold() -> Operation {
    let examples = json!({"mended": {"value": {"why": "the gateway is being mended"}}});
    Operation::new(STEERING, "putHold", "Hold all, a tenant, a priority or a target")
        .says("Within 5 s nothing more of it is begun. Nothing is lost. A tenant's key can hold its tenant alone.")
        .with(scope())
        .takes("HoldInput", examples)
        .shows(200, "The hold that stands.", "Hold")
}

fn delete_hold() -> Operation {
    Operation::new(STEERING, "deleteHold", "End a hold").with(scope()).shows(200, "It is released.", "Released")
}

fn list_rates() -> Operation {
    Operation::new(STEERING, "listRates", "List limits").shows(200, "All targets that have one, on one page.", "Rates")
}

fn put_rate() -> Operation {
    let examples = json!({"usual": {"value": {"per_second": 450}}});
    Operation::new(STEERING, "putRate", "Limit the calls to a target")
        .says("In force within 10 s, over all workers together. Needs a key for every tenant.")
        .with(target())
        .takes("RateInput", examples)
        .shows(200, "The limit that holds.", "Rate")
}

fn delete_rate() -> Operation {
    Operation::new(STEERING, "deleteRate", "Take the limit of a target away")
        .says("Text messages go back to 450 a second. Needs a key for every tenant.")
        .with(target())
        .shows(200, "The limit that holds now, if any.", "Rate")
}

fn status() -> Operation {
    Operation::new(STEERING, "getStatus", "Show shards, queues and workers")
        .says("Needs a key for every tenant.")
        .shows(200, "What is the case.", "Status")
}

fn healthz() -> Operation {
    Operation::new(SERVICE, "healthz", "Whether the process is up").shows(200, "It is.", "Up")
}

fn readyz() -> Operation {
    Operation::new(SERVICE, "readyz", "Whether store and queues can be reached")
        .shows(200, "They can.", "Readiness")
        .shows(503, "They cannot, or the clock of the host is off.", "Readiness")
}

fn contract() -> Operation {
    Operation::new(SERVICE, "getContract", "Show this contract").gives(
        200,
        "OpenAPI 3.1.",
        &json!({"type": "object", "required": ["openapi", "info", "paths"]}),
    )
}

fn docs() -> Operation {
    let page = json!({"description": "A page for people.", "content": {"text/html": {"schema": {"type": "string"}}}});
    Operation::new(SERVICE, "getDocs", "Show this contract as a page").answers(200, page)
}

//! What the routes of jobs take and answer: of one job, of all under a prefix, and of a stream of lines.

use super::super::operation::{Operation, in_path, in_query, reference, shared};
use super::super::schemas::job_id_or_prefix;
use super::{JOBS, MANY, cursor, id, limit, next_page, to_the_run};
use crate::api::ask::{LONGEST_BODY_BYTES, MERGE_PATCH};
use crate::api::import::NDJSON;
use serde_json::{Value, json};

pub(super) fn create_job() -> Operation {
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

pub(super) fn list_jobs() -> Operation {
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

// An id that is a word of the API names another path, and that has other methods: 405.
pub(super) fn get_job() -> Operation {
    Operation::new(JOBS, "getJob", "Show a job")
        .with(id())
        .shows(200, "The job.", "Job")
        .tells(200, &["ETag"])
        .fails(&[405, 409])
}

pub(super) fn put_job() -> Operation {
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
        .fails(&[405, 409, 412])
}

pub(super) fn patch_job() -> Operation {
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
        .fails(&[405, 409, 412])
}

pub(super) fn delete_job() -> Operation {
    Operation::new(JOBS, "deleteJob", "End a job and erase what it was to do")
        .says("Its runs stay, and its id is kept for 60 days, so that nothing late is taken for new.")
        .with(id())
        .with(shared("IfMatch"))
        .shows(200, "What is left of it.", "Job")
        .tells(200, &["ETag"])
        .fails(&[405, 409, 412])
}

pub(super) const PAUSE: &str =
    "Nothing of it is sent, and nothing is lost: what falls due meanwhile is owed at the resume.";
pub(super) const RESUME: &str = "What is owed goes by the job's rule for missed firings.";
pub(super) const CANCEL: &str = "What is queued does not run either; a call under way is not stopped.";
pub(super) const RELEASE: &str = "For a job that dispatch could not understand, and a version that can.";

pub(super) fn act(id: &'static str, summary: &'static str, says: &str) -> Operation {
    let either = json!({"anyOf": [reference("Job"), reference("ManyJobs")]});
    at_jobs(id, summary, says)
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

pub(super) fn run_jobs() -> Operation {
    let says = "One run besides the timetable, which stays as it is. With an `Idempotency-Key`, which a prefix needs, a repeat \
                within seven days is the same run.";
    at_jobs("runJobs", "Run a job now", says)
        .with(shared("IdempotencyKey"))
        .shows(202, "The run is in its queue. Its row is there once a worker has begun it.", "RunByHand")
        .leads(202, to_the_run("job/id", "run"))
        .shows(200, "For a prefix: what came of how many.", "ManyJobs")
        .fails(&[409, 412])
}

pub(super) fn import_jobs() -> Operation {
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

fn id_or_prefix() -> Value {
    let about = "The job's id; or, with a `/` at its end, all jobs whose ids begin so. A `/` in it is written `%2F`, or as it is.";
    in_path("id", about, job_id_or_prefix())
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

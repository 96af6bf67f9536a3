//! What the routes of runs, firings and changes take and answer.

use super::super::operation::{Operation, in_path, in_query};
use super::{RUNS, cursor, id, joined, limit, next_page, to_the_run};
use serde_json::{Value, json};

pub(super) fn list_runs() -> Operation {
    Operation::new(RUNS, "listRuns", "List a job's runs")
        .says("The latest first. Rows are kept for 60 days.")
        .with(id())
        .with(instant("from", "Only runs whose nominal instant is this or later."))
        .with(instant("to", "Only runs before this."))
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "Runs")
        .leads(200, joined(next_page("listRuns"), to_the_run("items/0/job", "items/0/run")))
        .fails(&[409])
}

pub(super) fn get_run() -> Operation {
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

pub(super) fn next_firings() -> Operation {
    let count = json!({"type": "integer", "minimum": 1, "maximum": 1_000, "default": 10});
    Operation::new(RUNS, "nextFirings", "Show when a job fires next")
        .says("What a clock change moves, drops or repeats is marked.")
        .with(id())
        .with(in_query("count", "How many are shown.", count))
        .with(instant("after", "Only those after this; else from where the job stands."))
        .shows(200, "Firings, and marks of clock changes among them.", "NextFirings")
        .fails(&[409])
}

pub(super) fn list_changes() -> Operation {
    Operation::new(RUNS, "listChanges", "Show who changed a job")
        .says("The latest first: the fields that differ, as they were and as they are.")
        .with(id())
        .with(limit())
        .with(cursor())
        .shows(200, "A page of them.", "Changes")
        .leads(200, next_page("listChanges"))
        .fails(&[409])
}

pub(super) fn preview_schedule() -> Operation {
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

fn instant(name: &str, about: &str) -> Value {
    in_query(name, about, json!({"type": "string", "format": "date-time"}))
}

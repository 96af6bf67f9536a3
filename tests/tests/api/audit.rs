//! The audit: what was due by the calendar against the rows, and what is missing enqueued again.

use super::{bill, town};
use punctual_core::run::RunStatus;
use punctual_tests::desk::Desk;
use punctual_tests::{Town, at, run_of};
use serde_json::{Value, json};
use std::time::Duration;

const SPAN: &str = "from=2026-10-05T03:13:00Z&to=2026-10-05T03:23:00Z";

/// A minutely job that ran ten times.
async fn with_ten_runs() -> (Town, Desk) {
    let (mut town, desk) = town().await;
    for id in ["c-1/ping", "c-2/ping"] {
        let mut document = bill(id);
        document["schedule"] = json!({"every": "60s", "from": "2026-10-05T03:13:28Z"});
        assert_eq!(desk.ask("POST", "/v1/jobs", Some(&document)).await.status, 201);
    }
    town.start_scheduler("s");
    town.start_worker("w");
    let done = |row: &punctual_core::run::RunRow| row.status == RunStatus::Succeeded;
    assert!(town.until(700, |world| world.rows().values().filter(|row| done(row)).count() >= 20).await);
    (town, desk)
}

async fn audit(desk: &Desk, query: &str) -> Value {
    let answer = desk.ask("GET", &format!("/v1/audit?{query}"), None).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

#[tokio::test(start_paused = true)]
async fn whole_rows_leave_nothing_missing_and_one_that_is_lost_is_named_and_run_again() {
    let (town, desk) = with_ten_runs().await;
    let found = audit(&desk, SPAN).await;
    assert_eq!((&found["summary"]["due"], &found["summary"]["succeeded"]), (&json!(20), &json!(20)), "{found}");
    assert_eq!((&found["summary"]["missing"], &found["jobs"]), (&json!(0), &json!(2)));
    let lost = run_of("c-1/ping", at(8 + 180));
    town.world.forget_row(&lost);
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    let found = audit(&desk, SPAN).await;
    assert_eq!((&found["summary"]["due"], &found["summary"]["missing"]), (&json!(20), &json!(1)));
    let named = &found["items"][0];
    assert_eq!((&named["job"], &named["run"]), (&json!("c-1/ping"), &json!(lost.run_key.as_str())));
    assert_eq!(audit(&desk, &format!("{SPAN}&prefix=c-2/")).await["summary"]["missing"], json!(0));
    assert_eq!(
        audit(&desk, &format!("{SPAN}&prefix=c-1/ping&show=all")).await["items"].as_array().map(Vec::len),
        Some(10)
    );
    assert_eq!(audit(&desk, &format!("{SPAN}&grace_s=100000")).await["summary"]["open"]["queued"], json!(1));
    let span = json!({"from": "2026-10-05T03:13:00Z", "to": "2026-10-05T03:23:00Z"});
    let sends = town.world.sends().len();
    let again = desk.ask("POST", "/v1/audit/requeue", Some(&span)).await;
    assert_eq!((again.status, &again.json["requeued"]), (200, &json!(1)), "{}", again.text);
    assert!(town.until(60, |world| world.row(&lost).is_some_and(|row| row.status == RunStatus::Succeeded)).await);
    assert_eq!(audit(&desk, SPAN).await["summary"]["missing"], json!(0));
    assert!(town.world.sends().len() > sends);
    let nothing = desk.ask("POST", "/v1/audit/requeue", Some(&span)).await;
    assert_eq!(nothing.json["requeued"], json!(0));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_requeued_only_if_it_was_due_and_nothing_shows_what_became_of_it() {
    let (town, desk) = with_ten_runs().await;
    let requeue =
        async |run: &str| desk.ask("POST", &format!("/v1/jobs/c-1%2Fping/runs/{run}/requeue"), None).await.status;
    let lost = run_of("c-1/ping", at(8 + 60));
    assert_eq!(requeue(lost.run_key.as_str()).await, 409, "it has its row");
    town.world.forget_row(&lost);
    assert_eq!(requeue(lost.run_key.as_str()).await, 202);
    assert!(town.until(60, |world| world.row(&lost).is_some_and(|row| row.status == RunStatus::Succeeded)).await);
    for (run, status) in
        [("1791170009", 409), ("1991170008", 409), ("1791170008r1", 409), ("1791170008mabc", 409), ("x", 404)]
    {
        assert_eq!(requeue(run).await, status, "{run}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_audited_by_what_it_said_at_each_time() {
    let (town, desk) = with_ten_runs().await;
    let edit = json!({"schedule": {"every": "120s", "from": "2026-10-05T03:13:28Z"}});
    assert_eq!(desk.ask("PATCH", "/v1/jobs/c-1%2Fping", Some(&edit)).await.status, 200);
    tokio::time::sleep(Duration::from_secs(600)).await;
    desk.ask("POST", "/v1/jobs/c-1%2Fping/cancel", None).await;
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    let found = audit(&desk, "prefix=c-1/ping&from=2026-10-05T03:00:00Z").await;
    let rows = town.world.rows().into_keys().filter(|run| run.job_key.id() == "c-1/ping").count() as u64;
    assert_eq!(found["summary"]["missing"], json!(0), "{found}");
    assert_eq!(found["summary"]["succeeded"], json!(rows), "each run belongs to an instant that was due: {found}");
    let late = desk.ask("GET", "/v1/audit?from=2026-01-01T00:00:00Z", None).await;
    assert_eq!((late.status, late.pointers()), (422, vec!["from"]), "what is kept no more is not vouched for");
    assert_eq!(desk.ask("GET", "/v1/audit?prefix=c-9/ping", None).await.status, 404);
}

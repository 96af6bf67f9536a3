//! The audit: what was due by the calendar against the rows, and what is missing enqueued again.

use super::{bill, town};
use async_trait::async_trait;
use punctual_core::job::JobKey;
use punctual_core::ports::{Attended, PageToken, PortResult, Ports, RowPage, RowRead, RowSpan, RunHistory, Waiting};
use punctual_core::run::{RunId, RunStatus};
use punctual_tests::desk::Desk;
use punctual_tests::{Town, at, run_of};
use serde_json::{Value, json};
use std::sync::Arc;
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

/// Rows that come slowly.
struct Slow(Arc<dyn RunHistory>);

#[async_trait]
impl RunHistory for Slow {
    async fn rows(&self, key: &JobKey, span: RowSpan, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        tokio::time::sleep(Duration::from_secs(15)).await;
        self.0.rows(key, span, after, limit).await
    }

    async fn row(&self, id: &RunId) -> PortResult<Option<RowRead>> {
        self.0.row(id).await
    }

    async fn waiting(&self, most: usize) -> PortResult<Waiting> {
        self.0.waiting(most).await
    }

    async fn attention(&self, tenant: &str, after: Option<PageToken>, limit: usize) -> PortResult<RowPage> {
        self.0.attention(tenant, after, limit).await
    }

    async fn attend(&self, id: &RunId, note: &Attended) -> PortResult<bool> {
        self.0.attend(id, note).await
    }

    async fn attended(&self, id: &RunId) -> PortResult<Option<Attended>> {
        self.0.attended(id).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_audit_that_takes_long_ends_within_a_job_and_goes_on_there() {
    let (mut town, desk) = town().await;
    // A listing is in parts: in each of them some ids come before the long job's and some behind it.
    let others: Vec<String> = (0..9).flat_map(|n| [format!("a-{n}/ping"), format!("d-{n}/ping")]).collect();
    let all = others.iter().map(|id| (id.as_str(), "24h")).chain([("c-1/tick", "60s")]);
    for (id, interval) in all {
        let mut document = bill(id);
        document["schedule"] = json!({"every": interval, "from": "2026-10-05T03:13:28Z"});
        document["payload"] = json!({"handler": "noop"});
        let made = desk.ask("POST", "/v1/jobs", Some(&document)).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    town.start_scheduler("s");
    town.start_worker("w");
    assert!(town.until(400, |world| world.rows().values().filter(|row| row.has_ended()).count() >= 18 + 5).await);
    town.stop().await;
    // What fell due since stands where it was due: a week of minutes is more than one step looks at.
    tokio::time::sleep(Duration::from_secs(8 * 86_400)).await;
    let lost: Vec<RunId> = others.iter().map(|id| run_of(id, at(8))).chain([run_of("c-1/tick", at(8 + 60))]).collect();
    for run in &lost {
        town.world.forget_row(run);
    }
    let span = "from=2026-10-05T03:13:00Z&to=2026-10-13T03:00:00Z&grace_s=0&show=missing";
    let at_once = audit(&desk, span).await;
    let summary = &at_once["summary"];
    assert_eq!((&at_once["jobs"], &at_once["next_cursor"]), (&json!(19), &Value::Null));
    assert_eq!((&summary["missing"], at_once["items"].as_array().map(Vec::len)), (&json!(19), Some(19)), "{summary}");
    assert!(summary["due"].as_u64() > Some(11_000), "{summary}");

    let ports = town.world.ports();
    let slow = Ports { history: Arc::new(Slow(ports.history.clone())), ..ports };
    let slow = Desk::on(&town, slow, 1_000).await.with_key(&desk.key);
    let (mut jobs, mut unreadable, mut calls, mut due, mut cursor) = (0, 0, 0, 0, String::new());
    let mut items = Vec::new();
    loop {
        let began = town.clock.monotonic();
        let found = audit(&slow, &format!("{span}{cursor}")).await;
        assert!(town.clock.monotonic() - began < Duration::from_secs(120), "it ends after one step too many at most");
        calls += 1;
        jobs += found["jobs"].as_u64().unwrap_or_default();
        unreadable += found["unreadable"].as_u64().unwrap_or_default();
        due += found["summary"]["due"].as_u64().unwrap_or_default();
        items.extend(found["items"].as_array().cloned().unwrap_or_default());
        match found["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let in_order = |items: &[Value]| {
        let mut items: Vec<String> = items.iter().map(Value::to_string).collect();
        items.sort();
        items
    };
    assert_eq!((jobs, unreadable, json!(due)), (19, 0, summary["due"].clone()), "in {calls} calls");
    assert_eq!(in_order(&items), in_order(at_once["items"].as_array().expect("items")));
    assert!(calls > 1, "it was one call");
    let wrong = desk.ask("GET", &format!("/v1/audit?{}{cursor}", span.replace("03:13", "03:12")), None).await;
    assert_eq!((wrong.status, wrong.pointers()), (400, vec!["cursor"]), "a cursor is of its own span");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_leaves_its_job_unaudited_and_hides_no_other() {
    let (town, desk) = with_ten_runs().await;
    let odd = run_of("c-1/ping", at(8 + 180));
    town.world.make_row_unreadable(&odd);
    let found = audit(&desk, SPAN).await;
    assert_eq!((&found["jobs"], &found["unreadable"], &found["summary"]["due"]), (&json!(1), &json!(1), &json!(10)));
    let runs = desk.ask("GET", "/v1/jobs/c-1%2Fping/runs?limit=500", None).await;
    let items = runs.json["items"].as_array().cloned().unwrap_or_default();
    let unreadable: Vec<&Value> = items.iter().filter(|run| run["status"] == "unreadable").collect();
    assert_eq!((runs.status, unreadable.len()), (200, 1), "{}", runs.text);
    assert_eq!((&unreadable[0]["id"], &unreadable[0]["run"]), (&json!(odd.to_string()), &json!(odd.run_key.as_str())));
    assert!(items.len() >= 10);
}

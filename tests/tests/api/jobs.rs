//! Jobs: made once, shown, changed by who knows them, ended, erased.

use super::{bill, town};
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, JobState};
use punctual_core::memory::{Fault, FaultPlan, Faults, Point};
use punctual_core::run::RunId;
use punctual_tests::Town;
use punctual_tests::desk::Desk;
use serde_json::json;
use std::collections::BTreeSet;

/// The runs that are in a queue, each once.
fn runs(town: &Town) -> BTreeSet<RunId> {
    town.world.enqueued().into_iter().filter_map(|one| one.message).map(|one| one.run_id()).collect()
}

fn failed() -> Fault {
    Fault::FailBefore(PortError::Temporary("injected".into()))
}

fn key(id: &str) -> JobKey {
    JobKey::new("bank", id).expect("a valid key")
}

#[tokio::test(start_paused = true)]
async fn a_new_job_says_where_it_is_and_when_it_runs() {
    let (town, desk) = town().await;
    let made = desk.ask("POST", "/v1/jobs", Some(&bill("c-1/bill"))).await;
    assert_eq!((made.status, made.header("etag"), made.header("location")), (201, "\"1\"", "/v1/jobs/c-1%2Fbill"));
    assert_eq!(made.json["next_run_at"], "2026-10-05T03:30:00Z");
    assert_eq!((&made.json["next_wall"], &made.json["state"]), (&json!("2026-10-05T09:00:00"), &json!("active")));
    for path in ["/v1/jobs/c-1%2Fbill", "/v1/jobs/c-1/bill"] {
        let shown = desk.ask("GET", path, None).await;
        assert_eq!((shown.status, &shown.json, shown.header("etag")), (200, &made.json, "\"1\""), "{path}");
    }
    let job = town.world.job(&key("c-1/bill")).expect("it is stored");
    assert!(job.updated_by.starts_with("test ("), "{}", job.updated_by);
    let unnamed = desk
        .ask("POST", "/v1/jobs", Some(&json!({"schedule": bill("x")["schedule"], "payload": {"handler": "noop"}})))
        .await;
    assert_eq!(unnamed.status, 201);
    assert!(unnamed.json["id"].as_str().is_some_and(|id| id.starts_with("j-")), "{}", unnamed.json["id"]);
}

#[tokio::test(start_paused = true)]
async fn creating_twice_with_one_idempotency_key_makes_one_job_and_another_body_is_refused() {
    let (town, desk) = town().await;
    let mut unnamed = bill("x");
    unnamed.as_object_mut().expect("an object").remove("id");
    let create = async |body| desk.ask_and("POST", "/v1/jobs", Some(body), ("idempotency-key", "order-7")).await;
    let (first, at_once) = tokio::join!(create(&unnamed), create(&unnamed));
    assert_eq!((first.status, at_once.status), (201, 201));
    assert_eq!(first.json["id"], at_once.json["id"]);
    let again = create(&unnamed).await;
    assert_eq!((again.status, &again.json, again.header("idempotency-replayed")), (201, &first.json, "true"));
    assert_eq!(town.world.jobs().len(), 1);
    let mut other = unnamed.clone();
    other["payload"]["text"] = json!("Your last bill is due");
    let refused = create(&other).await;
    assert_eq!((refused.status, &refused.json["type"]), (409, &json!("urn:punctual:problem:idempotency-key-reused")));
    // A repeat finds its job whatever became of it since.
    let path = format!("/v1/jobs/{}", first.json["id"].as_str().expect("an id"));
    assert_eq!(desk.ask("PATCH", &path, Some(&json!({"name": "Bill"}))).await.status, 200);
    let again = create(&unnamed).await;
    assert_eq!((again.status, &again.json["name"], &again.json["version"]), (201, &json!("Bill"), &json!(2)));
    assert_eq!(desk.ask("POST", &format!("{path}/cancel"), None).await.status, 200);
    assert_eq!(create(&unnamed).await.json["state"], "cancelled", "a repeat does not make it again");
    assert_eq!(town.world.jobs().len(), 1);
    assert_eq!(desk.ask("DELETE", &path, None).await.status, 200);
    let erased = create(&unnamed).await;
    assert_eq!((erased.status, &erased.json["type"]), (409, &json!("urn:punctual:problem:job-erased")));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_refused_does_not_use_up_its_key() {
    let (_town, desk) = town().await;
    let mut wrong = bill("c-1/bill");
    wrong["schedule"]["tz"] = json!("Europe/Atlantis");
    let create = async |body| desk.ask_and("POST", "/v1/jobs", Some(body), ("idempotency-key", "k")).await.status;
    assert_eq!(create(&wrong).await, 422);
    assert_eq!(create(&bill("c-1/bill")).await, 201);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_dies_anywhere_and_is_repeated_makes_one_job() {
    for (call, fault) in [
        ("control.once", Fault::LoseAnswer),
        ("control.once", failed()),
        ("jobs.create", Fault::LoseAnswer),
        ("jobs.create", failed()),
    ] {
        let (town, _) = town().await;
        let plan = FaultPlan::one(Point::Nth(call, 1), fault.clone());
        let ports = Faults::new(&plan, "api").wrap(town.world.ports());
        let desk = Desk::on(&town, ports, 1_000).await;
        let mut unnamed = bill("x");
        unnamed.as_object_mut().expect("an object").remove("id");
        let mut ids = BTreeSet::new();
        for _ in 0..3 {
            let made = desk.ask_and("POST", "/v1/jobs", Some(&unnamed), ("idempotency-key", "k")).await;
            if made.status == 201 {
                ids.insert(made.json["id"].to_string());
            }
        }
        assert!(plan.to_come().is_empty(), "{call} {fault:?} did not happen");
        assert_eq!((ids.len(), town.world.jobs().len()), (1, 1), "{call} {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_there_is_said_to_be_the_same_or_another() {
    let (_town, desk) = town().await;
    assert_eq!(desk.ask("POST", "/v1/jobs", Some(&bill("c-1/bill"))).await.status, 201);
    assert_eq!(desk.ask("POST", "/v1/jobs", Some(&bill("c-1/bill"))).await.status, 200);
    let mut other = bill("c-1/bill");
    other["priority"] = json!("bulk");
    let refused = desk.ask("POST", "/v1/jobs", Some(&other)).await;
    assert_eq!((refused.status, &refused.json["type"]), (409, &json!("urn:punctual:problem:job-exists")));
}

#[tokio::test(start_paused = true)]
async fn a_put_makes_changes_or_leaves_as_it_is() {
    let (town, desk) = town().await;
    let path = "/v1/jobs/c-1%2Fbill";
    let mut document = bill("c-1/bill");
    let made = desk.ask("PUT", path, Some(&document)).await;
    assert_eq!((made.status, made.header("location")), (201, path));
    let same = desk.ask("PUT", path, Some(&document)).await;
    assert_eq!((same.status, same.header("etag")), (200, "\"1\""), "an equal put changes nothing");
    document["schedule"]["cron"] = json!("0 10 * * *");
    let changed = desk.ask_and("PUT", path, Some(&document), ("if-match", "\"1\"")).await;
    assert_eq!((changed.status, changed.header("etag")), (200, "\"2\""));
    assert_eq!(changed.json["next_wall"], "2026-10-05T10:00:00");
    let late = desk.ask_and("PUT", path, Some(&bill("c-1/bill")), ("if-match", "\"1\"")).await;
    assert_eq!((late.status, &late.json["type"]), (412, &json!("urn:punctual:problem:changed")));
    assert_eq!(desk.ask_and("PUT", path, Some(&document), ("if-none-match", "*")).await.status, 412);
    assert_eq!(desk.ask_and("PUT", "/v1/jobs/new", Some(&bill("new")), ("if-match", "*")).await.status, 412);
    assert_eq!(desk.ask_and("PUT", "/v1/jobs/new", Some(&bill("new")), ("if-none-match", "*")).await.status, 201);
    assert_eq!(desk.ask("PUT", path, Some(&bill("another"))).await.pointers(), ["/id"]);
    assert_eq!(town.world.jobs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_patch_changes_what_it_names_and_what_was_shown_can_be_put_back() {
    let (_town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    let patch = json!({"name": "Bill", "spread": {"window_s": 1800}, "schedule": {"tz": null}});
    let auth = format!("Bearer {}", desk.key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/merge-patch+json")];
    let patched = desk.ask_with("PATCH", "/v1/jobs/c-1", Some(&patch), &headers).await;
    assert_eq!((patched.status, patched.header("etag")), (200, "\"2\""), "{}", patched.text);
    assert_eq!(patched.json["schedule"], json!({"cron": "0 9 * * *"}));
    assert_eq!((&patched.json["name"], &patched.json["payload"]["text"]), (&json!("Bill"), &json!("Your bill is due")));
    let nothing = desk.ask("PATCH", "/v1/jobs/c-1", Some(&json!({}))).await;
    assert_eq!((nothing.status, nothing.header("etag")), (200, "\"2\""));
    let wrong = desk.ask("PATCH", "/v1/jobs/c-1", Some(&json!({"payload": {"to": null}, "state": "paused"}))).await;
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/state", "/payload/to"]), "{}", wrong.text);
    assert_eq!(
        desk.ask_and("PATCH", "/v1/jobs/c-1", Some(&json!({"name": "x"})), ("if-match", "\"1\"")).await.status,
        412
    );
    assert_eq!(desk.ask("PATCH", "/v1/jobs/none", Some(&json!({}))).await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_job_is_gone_with_what_it_was_to_say_and_its_runs_do_not_run() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    desk.ask("PATCH", "/v1/jobs/c-1", Some(&json!({"payload": {"text": "Your last bill is due"}}))).await;
    assert_eq!(desk.ask_and("DELETE", "/v1/jobs/c-1", None, ("if-match", "\"1\"")).await.status, 412);
    let deleted = desk.ask("DELETE", "/v1/jobs/c-1", None).await;
    assert_eq!(
        (deleted.status, &deleted.json["state"], &deleted.json["next_run_at"]),
        (200, &json!("cancelled"), &json!(null))
    );
    assert!(!deleted.text.contains("7700") && !deleted.text.contains("last bill"), "{}", deleted.text);
    for (method, path, body) in [
        ("GET", "/v1/jobs/c-1", None),
        ("PATCH", "/v1/jobs/c-1", Some(json!({}))),
        ("PATCH", "/v1/jobs/c-1", Some(json!({"payload": {"text": "x"}}))),
        ("POST", "/v1/jobs/c-1/pause", None),
        ("POST", "/v1/jobs/c-1/run", None),
        ("GET", "/v1/jobs/c-1/next", None),
        ("GET", "/v1/jobs/c-1/changes", None),
        ("DELETE", "/v1/jobs/c-1", None),
    ] {
        assert_eq!(desk.ask(method, path, body.as_ref()).await.status, 404, "{method} {path}");
    }
    assert_eq!(desk.ask("GET", "/v1/jobs", None).await.json["items"], json!([]));
    let left = town.world.job(&key("c-1")).expect("its place is kept");
    assert_eq!((left.state, left.spec.payload.bytes()), (JobState::Cancelled, 0));
    let versions = town.world.ports().jobs.versions(&key("c-1"), 1..=9).await.expect("they can be read");
    assert!(versions.is_empty(), "what it was is forgotten");
    let again = desk.ask("PUT", "/v1/jobs/c-1", Some(&bill("c-1"))).await;
    assert_eq!((again.status, &again.json["state"]), (201, &json!("active")));
}

#[tokio::test(start_paused = true)]
async fn a_call_on_a_prefix_does_it_to_all_below_and_to_nobody_else() {
    let (town, desk) = town().await;
    for id in ["48213/bill", "48213/card/1", "48213/card/2", "48214/bill", "48213"] {
        assert_eq!(desk.ask("POST", "/v1/jobs", Some(&bill(id))).await.status, 201, "{id}");
    }
    let state = |id: &str| town.world.job(&key(id)).expect("it is there").state;
    let paused = desk.ask("POST", "/v1/jobs/48213%2Fcard%2F/pause", None).await;
    assert_eq!((paused.status, &paused.json["changed"]), (200, &json!(2)), "{}", paused.text);
    let cancelled = desk.ask("POST", "/v1/jobs/48213%2F/cancel", None).await;
    assert_eq!((&cancelled.json["changed"], &cancelled.json["next_cursor"]), (&json!(3), &json!(null)));
    let by_state = ["48213/bill", "48213/card/1", "48213/card/2", "48214/bill", "48213"].map(state);
    let (ended, stays) = (JobState::Cancelled, JobState::Active);
    assert_eq!(by_state, [ended, ended, ended, stays, stays]);
    let again = desk.ask("POST", "/v1/jobs/48213%2F/cancel", None).await;
    assert_eq!((again.status, &again.json["changed"]), (200, &json!(0)));
    let unkeyed = desk.ask("POST", "/v1/jobs/48214%2F/run", None).await;
    assert_eq!(unkeyed.status, 400, "a run of many needs an idempotency key");
    for _ in 0..2 {
        let ran = desk.ask_and("POST", "/v1/jobs/48214%2F/run", None, ("idempotency-key", "once")).await;
        assert_eq!((ran.status, &ran.json["changed"]), (200, &json!(1)));
    }
    assert_eq!(runs(&town).len(), 1, "repeats are the same run");
}

#[tokio::test(start_paused = true)]
async fn more_than_a_page_under_a_prefix_is_all_done_by_one_call() {
    let (town, desk) = town().await;
    for n in 0..450 {
        town.add(punctual_tests::reminder(&format!("48213/{n}"), "every 24h")).await;
    }
    let cancelled = desk.ask("POST", "/v1/jobs/48213%2F/cancel", None).await;
    assert_eq!((&cancelled.json["changed"], &cancelled.json["refused"]), (&json!(450), &json!(0)));
    assert!(town.world.jobs().values().all(|job| job.state == JobState::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_run_now_is_bound_to_its_idempotency_key() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    let run = async |key| desk.ask_and("POST", "/v1/jobs/c-1/run", None, ("idempotency-key", key)).await;
    let (first, again, other) = (run("a").await, run("a").await, run("b").await);
    assert_eq!((first.status, again.status), (202, 202));
    assert_eq!(first.json["run_id"], again.json["run_id"]);
    assert_ne!(first.json["run_id"], other.json["run_id"]);
    assert!(first.json["next_run_at"].is_string());
    assert_eq!(runs(&town).len(), 2);
    desk.ask("POST", "/v1/jobs/c-1/pause", None).await;
    assert_eq!(run("c").await.status, 409);
}

#[tokio::test(start_paused = true)]
async fn a_listing_shows_every_job_once_however_it_is_paged() {
    let (_town, desk) = town().await;
    for n in 0..25 {
        desk.ask("POST", "/v1/jobs", Some(&bill(&format!("c-{n}/bill")))).await;
    }
    desk.ask("POST", "/v1/jobs/c-7%2Fbill/pause", None).await;
    for (query, expected) in [("", 25), ("&prefix=c-1", 11), ("&state=paused", 1), ("&prefix=none", 0)] {
        let (mut ids, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let page = desk.ask("GET", &format!("/v1/jobs?limit=4{query}{cursor}"), None).await;
            assert_eq!(page.status, 200, "{}", page.text);
            for item in page.json["items"].as_array().expect("items") {
                assert!(ids.insert(item["id"].to_string()), "{item} twice");
            }
            match page.json["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(ids.len(), expected, "{query}");
    }
    let page = desk.ask("GET", "/v1/jobs?limit=4", None).await;
    let cursor = page.json["next_cursor"].as_str().expect("there is more");
    let wrong = desk.ask("GET", &format!("/v1/jobs?prefix=c-1&cursor={cursor}"), None).await;
    assert_eq!(wrong.status, 400, "a cursor is of its own listing");
}

#[tokio::test(start_paused = true)]
async fn every_change_can_be_read_later_and_no_crash_loses_one() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    for (name, fault) in [
        ("a", None),
        ("b", Some(Fault::LoseAnswer)),
        ("c", Some(Fault::CrashAfter)),
        ("d", None),
        ("e", Some(Fault::CrashBefore)),
    ] {
        let plan =
            fault.clone().map_or_else(FaultPlan::default, |fault| FaultPlan::one(Point::Nth("jobs.replace", 1), fault));
        let faults = Faults::new(&plan, "api");
        let desk = Desk::on(&town, faults.wrap(town.world.ports()), 1_000).await;
        let patch = json!({"name": name});
        tokio::select! {
            biased;
            () = faults.crashed() => {}
            changed = desk.ask("PATCH", "/v1/jobs/c-1", Some(&patch)) => assert_eq!(changed.status, 200),
        }
    }
    desk.ask("POST", "/v1/jobs/c-1/pause", None).await;
    let page = desk.ask("GET", "/v1/jobs/c-1/changes?limit=3", None).await;
    let next = page.json["next_cursor"].as_str().expect("there is more");
    let rest = desk.ask("GET", &format!("/v1/jobs/c-1/changes?cursor={next}"), None).await;
    let changes: Vec<_> =
        [&page, &rest].into_iter().flat_map(|page| page.json["items"].as_array().expect("items").clone()).collect();
    let names: Vec<_> = changes.iter().filter_map(|change| change["after"]["name"].as_str()).collect();
    assert_eq!(names, ["d", "c", "b", "a"], "what died before its write changed nothing");
    assert_eq!(
        (&changes[0]["before"], &changes[0]["after"]),
        (&json!({"state": "active"}), &json!({"state": "paused"}))
    );
    assert!(changes.iter().all(|change| change["by"].as_str().is_some_and(|by| by.starts_with("test ("))));
    assert!(changes.last().is_some_and(|made| made["before"].is_null() && made["version"] == 1));
}

#[tokio::test(start_paused = true)]
async fn firings_to_come_are_shown_for_a_job_and_for_a_schedule_alone() {
    let (_town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("c-1"))).await;
    let next = desk.ask("GET", "/v1/jobs/c-1/next?count=2", None).await;
    let at: Vec<_> =
        next.json["firings"].as_array().expect("firings").iter().map(|one| one["scheduled_at"].clone()).collect();
    assert_eq!(at, [json!("2026-10-05T03:30:00Z"), json!("2026-10-06T03:30:00Z")]);
    let asked =
        json!({"schedule": {"cron": "30 2 * * *", "tz": "America/New_York"}, "after": "2026-03-07T12:00", "count": 1});
    let preview = desk.ask("POST", "/v1/schedules/preview", Some(&asked)).await;
    assert_eq!((preview.status, &preview.json["firings"][0]["mark"]), (200, &json!("moved")), "{}", preview.text);
    assert_eq!(preview.json["next_run_at"], "2026-03-08T07:00:00Z");
    let wrong = desk.ask("POST", "/v1/schedules/preview", Some(&json!({"schedule": {"cron": "x"}, "count": 0}))).await;
    assert_eq!((wrong.status, wrong.pointers()), (422, vec!["/schedule/cron"]));
}

#[tokio::test(start_paused = true)]
async fn a_limited_series_is_counted_to_the_time_that_is_asked_about() {
    let (_town, desk) = town().await;
    let mut document = bill("c-1");
    document["schedule"]["max_runs"] = json!(5);
    desk.ask("POST", "/v1/jobs", Some(&document)).await;
    for (after, first, count) in [
        ("2026-10-01T00:00:00Z", Some("2026-10-05T03:30:00Z"), 5),
        ("2026-10-05T03:30:00Z", Some("2026-10-06T03:30:00Z"), 4),
        ("2026-10-07T03:30:00Z", Some("2026-10-08T03:30:00Z"), 2),
        ("2026-10-09T03:30:00Z", None, 0),
        ("2027-10-09T03:30:00Z", None, 0),
    ] {
        let next = desk.ask("GET", &format!("/v1/jobs/c-1/next?after={after}"), None).await;
        let firings = next.json["firings"].as_array().expect("firings");
        assert_eq!(
            (firings.len(), firings.first().and_then(|one| one["scheduled_at"].as_str())),
            (count, first),
            "{after}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_long_jobs_is_no_longer_than_a_function_may_answer() {
    let (_town, desk) = town().await;
    let long = "x".repeat(16_000);
    let line = |n| {
        let payload = json!({"handler": "webhook", "url": "https://hooks.example.com/", "body": format!("{{\"text\": \"{long}\"}}")});
        json!({"id": format!("c-{n}"), "schedule": {"every": "24h"}, "payload": payload})
    };
    let lines: String = (0..450).map(|n| format!("{}\n", line(n))).collect();
    let auth = format!("Bearer {}", desk.key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/x-ndjson")];
    let made = desk.send("POST", "/v1/jobs/import", lines.into(), &headers).await;
    assert!(made.text.contains("\"created\":450"), "{}", made.lines().last().expect("a line"));
    let (mut ids, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = desk.ask("GET", &format!("/v1/jobs?limit=500{cursor}"), None).await;
        assert!(page.text.len() < 6_000_000, "{} bytes", page.text.len());
        let items = page.json["items"].as_array().expect("items");
        assert!(items.iter().all(|item| ids.insert(item["id"].to_string())));
        match page.json["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids.len(), 450);
}

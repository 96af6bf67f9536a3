//! Dead letters: the rows that wait for a person.

use super::{bill, town};
use punctual_core::memory::Script;
use punctual_core::retry::Outcome;
use punctual_core::run::{RunId, RunStatus};
use punctual_tests::desk::Desk;
use punctual_tests::{Town, at, run_of};
use serde_json::{Value, json};
use std::time::Duration;

const PHONE: &str = "+447700900123";

/// Daily jobs that are due within seconds, whose first attempts fail for good.
async fn with_dead(ids: &[&str]) -> (Town, Desk) {
    let (mut town, desk) = town().await;
    town.work.circuit.failures = 0;
    town.world.script(
        PHONE,
        ids.iter().map(|_| Script::Answer(Outcome::Temporary { reason: "503".into(), retry_after: None })),
    );
    for id in ids {
        let mut document = bill(id);
        document["schedule"] = json!({"every": "24h", "from": "2026-10-05T03:13:28Z"});
        document["retry"] = json!({"max_attempts": 1});
        document["missed"] = json!({"start_within_s": 600});
        assert_eq!(desk.ask("POST", "/v1/jobs", Some(&document)).await.status, 201);
    }
    town.start_scheduler("s");
    town.start_worker("w");
    let dead = |town: &Town| town.world.rows().values().filter(|row| row.status == RunStatus::Dead).count();
    assert!(town.until(300, |world| world.rows().len() == ids.len() && world.waiting().is_empty()).await);
    assert_eq!(dead(&town), ids.len());
    (town, desk)
}

fn ids_of(answer: &Value) -> Vec<String> {
    let items = answer["items"].as_array().expect("items").iter();
    items.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

fn dead_run(id: &str) -> RunId {
    run_of(id, at(8))
}

#[tokio::test(start_paused = true)]
async fn letters_are_listed_from_their_rows_and_filtered() {
    let (_town, desk) = with_dead(&["c-1/bill", "c-1/card", "c-2/bill"]).await;
    let list = async |query: &str| desk.ask("GET", &format!("/v1/dead-letters{query}"), None).await;
    let all = list("").await;
    assert_eq!((all.status, ids_of(&all.json).len()), (200, 3), "{}", all.text);
    let first = &all.json["items"][0];
    assert_eq!((&first["status"], &first["class"]), (&json!("dead"), &json!("temporary")));
    assert!(!all.text.contains("7700"));
    for (query, expected) in [
        ("?prefix=c-1/", 2),
        ("?prefix=c-1/bill", 1),
        ("?prefix=c-1/bi", 0),
        ("?status=indeterminate", 0),
        ("?class=temporary", 3),
        ("?class=lost", 0),
        ("?older_than_s=100000", 0),
        ("?newer_than_s=100000", 3),
    ] {
        assert_eq!(ids_of(&list(query).await.json).len(), expected, "{query}");
    }
    let page = list("?limit=2").await;
    let next = page.json["next_cursor"].as_str().expect("there is more");
    let rest = list(&format!("?limit=2&cursor={next}")).await;
    let mut both = [ids_of(&page.json), ids_of(&rest.json)].concat();
    both.sort();
    both.dedup();
    assert_eq!(both.len(), 3);
    assert_eq!(list("?class=sudden").await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_tried_dry_then_done_and_leaves_the_list() {
    let (town, desk) = with_dead(&["c-1/bill", "c-1/card", "c-2/bill"]).await;
    let replay = async |body: Value| desk.ask("POST", "/v1/dead-letters/replay", Some(&body)).await;
    let dry = replay(json!({"prefix": "c-1/", "dry_run": true})).await;
    assert_eq!((dry.status, &dry.json["counts"]), (200, &json!({"would_be_replayed": 2})), "{}", dry.text);
    assert!(town.world.waiting().is_empty(), "nothing is sent");
    let done = replay(json!({"prefix": "c-1/", "per_second": 1000})).await;
    assert_eq!(done.json["counts"], json!({"replayed": 2}));
    let again = replay(json!({"prefix": "c-1/"})).await;
    assert_eq!(again.json["counts"], json!({}), "who has been seen to waits no more");
    let run = dead_run("c-1/bill");
    let replayed = RunId { run_key: run.run_key.replay(1), ..run.clone() };
    assert!(town.until(60, |world| world.row(&replayed).is_some_and(|row| row.status == RunStatus::Succeeded)).await);
    let by_id = replay(json!({"runs": [run.to_string(), "bank/none:1791171000"]})).await;
    assert_eq!(by_id.json["counts"], json!({"missing": 1, "stands": 1}));
    let shown = desk.ask("GET", "/v1/jobs/c-1%2Fbill/runs/1791170008", None).await;
    assert_eq!((&shown.json["status"], &shown.json["attended"]["replay"]), (&json!("dead"), &json!("1791170008r1")));
    assert_eq!(ids_of(&desk.ask("GET", "/v1/dead-letters", None).await.json), [dead_run("c-2/bill").to_string()]);
    tokio::time::sleep(Duration::from_secs(700)).await;
    let late = replay(json!({})).await;
    assert_eq!(late.json["counts"], json!({"too_late": 1}), "deadlines are looked at again");
}

#[tokio::test(start_paused = true)]
async fn a_replay_goes_at_the_pace_that_is_asked_for_and_gives_a_cursor_when_it_takes_long() {
    let ids: Vec<String> = (0..30).map(|n| format!("c-{n}/bill")).collect();
    let (town, desk) = with_dead(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (mut cursor, mut replayed, mut calls) = (Value::Null, 0, 0);
    let began = town.clock.monotonic();
    loop {
        let mut body = json!({"per_second": 1});
        if !cursor.is_null() {
            body["cursor"] = cursor;
        }
        let done = desk.ask("POST", "/v1/dead-letters/replay", Some(&body)).await;
        assert_eq!(done.status, 200, "{}", done.text);
        replayed += done.json["counts"]["replayed"].as_u64().unwrap_or_default();
        calls += 1;
        cursor = done.json["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!((replayed, calls), (30, 2));
    assert!(town.clock.monotonic() - began >= Duration::from_secs(30), "one a second");
    let capped = desk.ask("POST", "/v1/dead-letters/replay", Some(&json!({"limit": 0}))).await;
    assert_eq!((capped.status, capped.pointers()), (422, vec!["/limit"]));
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_listed_no_more_and_says_who_and_why() {
    let (town, desk) = with_dead(&["c-1/bill", "c-2/bill"]).await;
    let drop = async |body: Value| desk.ask("POST", "/v1/dead-letters/drop", Some(&body)).await;
    let unsaid = drop(json!({"prefix": "c-1/"})).await;
    assert_eq!((unsaid.status, unsaid.pointers()), (422, vec!["/why"]));
    let dry = drop(json!({"why": "they paid", "dry_run": true})).await;
    assert_eq!(dry.json["counts"], json!({"would_be_dropped": 2}));
    let row = town.world.row(&dead_run("c-1/bill"));
    let dropped = drop(json!({"prefix": "c-1/", "why": "they paid"})).await;
    assert_eq!(dropped.json["counts"], json!({"dropped": 1}));
    assert_eq!(town.world.row(&dead_run("c-1/bill")), row, "its row stays as it is");
    let shown = desk.ask("GET", "/v1/jobs/c-1%2Fbill/runs/1791170008", None).await;
    assert_eq!(shown.json["attended"]["why"], "they paid");
    assert!(shown.json["attended"]["by"].as_str().is_some_and(|by| by.starts_with("test (")));
    let again = drop(json!({"runs": [dead_run("c-1/bill").to_string()], "why": "they paid again"})).await;
    assert_eq!(again.json["counts"], json!({"stands": 1}), "the first note stays");
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_cannot_be_read_is_shown_as_one_and_stops_no_other() {
    let (town, desk) = with_dead(&["c-1/bill", "c-2/bill"]).await;
    let odd = dead_run("c-1/bill");
    town.world.make_row_unreadable(&odd);
    let list = async |query: &str| desk.ask("GET", &format!("/v1/dead-letters{query}"), None).await;
    let all = list("").await;
    assert_eq!((all.status, ids_of(&all.json).len()), (200, 2), "{}", all.text);
    let shown = all.json["items"].as_array().expect("items").iter().find(|item| item["status"] == "unreadable");
    assert_eq!(shown.map(|item| &item["id"]), Some(&json!(odd.to_string())));
    for (query, expected) in [("?prefix=c-1/", 1), ("?prefix=c-2/", 1), ("?prefix=c-3/", 0), ("?status=dead", 1)] {
        assert_eq!(ids_of(&list(query).await.json).len(), expected, "{query}");
    }
    let replay = async |body: Value| desk.ask("POST", "/v1/dead-letters/replay", Some(&body)).await;
    let both = [odd.to_string(), "bank/c-9/bill:1791171000".to_owned()];
    assert_eq!(replay(json!({"runs": both})).await.json["counts"], json!({"refused": 1, "missing": 1}));
    // One at a time: each is told once.
    let first = replay(json!({"limit": 1})).await;
    let rest = replay(json!({"cursor": first.json["next_cursor"]})).await;
    let told = [ids_of(&first.json), ids_of(&rest.json)].concat();
    assert_eq!(told.len(), 2, "{} {}", first.text, rest.text);
    assert!(told.contains(&odd.to_string()) && told.contains(&dead_run("c-2/bill").to_string()));
    let shown = desk.ask("GET", &format!("/v1/jobs/c-1%2Fbill/runs/{}", odd.run_key), None).await;
    assert_eq!((shown.status, &shown.json["type"]), (409, &json!("urn:punctual:problem:unreadable")), "{}", shown.text);
}

//! Odd inputs: each has a clear answer, and loses nothing.

use super::{bill, town};
use axum::body::Body;
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn what_is_long_foreign_or_late_is_taken_where_it_can_be_and_else_refused_with_what_to_write() {
    let (_town, desk) = town().await;
    let with = |pointer: &str, value: Value| {
        let mut document = bill("c-1");
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        document
    };
    let mut email = bill("c-1");
    email["payload"] =
        json!({"handler": "email", "to": "ana@example.com", "subject": "Bill", "text": "x".repeat(2_000)});
    let mut past = bill("c-1");
    past["schedule"] = json!({"at": "2026-10-01T09:00:00Z"});
    let mut named = bill("c-1");
    named["name"] = json!("فاتورة آنا");
    let mut window = bill("c-1");
    window["spread"] = json!({"window_s": -60});
    for (what, document, status, expected) in [
        ("2,000 characters by email", &email, 201, ""),
        ("2,000 characters by text", &with("/payload/text", json!("x".repeat(2_000))), 422, "10 are allowed"),
        ("2,001 bytes by text", &with("/payload/text", json!("x".repeat(2_001))), 422, "2000 are allowed"),
        ("an emoji", &with("/payload/text", json!("Your bill 🎉 is due")), 201, ""),
        ("a right-to-left name", &named, 201, ""),
        ("a zone that does not exist", &with("/schedule/tz", json!("Europe/Atlantis")), 422, "write an IANA name"),
        ("an instant in the past", &past, 201, ""),
        ("a negative window", &window, 422, "1 to 604800"),
        ("a day that never comes", &with("/schedule/cron", json!("0 9 31 2 *")), 422, "never fires"),
        ("an unknown field", &json!({"colour": "red"}), 422, "unknown here"),
    ] {
        let answer = desk.ask("PUT", "/v1/jobs/c-1", Some(document)).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        if status == 422 {
            assert!(answer.text.contains(expected), "{what}: {}", answer.text);
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert!(!answer.pointers().is_empty(), "{what}: {}", answer.text);
        }
        desk.ask("DELETE", "/v1/jobs/c-1", None).await;
    }
    past["id"] = json!("late");
    let late = desk.ask("PUT", "/v1/jobs/late", Some(&past)).await;
    assert_eq!(late.json["next_run_at"], "2026-10-01T09:00:00Z", "what is past is due at once, under its own instant");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_or_no_json_is_refused_before_it_is_read_whole() {
    let (_town, desk) = town().await;
    let auth = format!("Bearer {}", desk.key);
    let json_type = ("content-type", "application/json");
    let long = format!("{{\"id\": \"{}\"}}", "x".repeat(500_000));
    for (body, headers, status) in [
        (long, vec![json_type], 413),
        ("{".to_owned(), vec![json_type], 400),
        ("[".repeat(100_000), vec![json_type], 400),
        ("\u{feff}{}".to_owned(), vec![json_type], 400),
        ("{}".to_owned(), vec![("content-type", "text/plain")], 415),
        ("{}".to_owned(), vec![], 415),
        ("null".to_owned(), vec![json_type], 422),
        ("[]".to_owned(), vec![json_type], 422),
        ("{}".to_owned(), vec![json_type, ("idempotency-key", "")], 400),
        ("{}".to_owned(), vec![json_type, ("punctual-tenant", "other")], 403),
        ("{}".to_owned(), vec![json_type, ("punctual-tenant", "a/b")], 400),
    ] {
        let headers: Vec<_> = headers.into_iter().chain([("authorization", auth.as_str())]).collect();
        let answer = desk.send("POST", "/v1/jobs", Body::from(body), &headers).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    for (path, status) in [
        ("/v1/jobs/%ff", 404),
        ("/v1/jobs/a%2F%2Fb", 404),
        ("/v1/jobs/a:b", 404),
        ("/v1/jobs?limit=0", 400),
        ("/v1/jobs?colour=red", 400),
        ("/v1/jobs?cursor=abc", 400),
        ("/v1/jobs?prefix=%00", 400),
        ("/v1/nothing", 404),
    ] {
        assert_eq!(desk.ask("GET", path, None).await.status, status, "{path}");
    }
    let wrong_method = desk.ask("PUT", "/v1/jobs", Some(&json!({}))).await;
    assert_eq!((wrong_method.status, wrong_method.header("allow")), (405, "POST, GET"));
    for id in ["import", "..", "a%2F.."] {
        let answer = desk.ask("PUT", &format!("/v1/jobs/{id}"), Some(&bill("x"))).await;
        assert!([405, 422].contains(&answer.status), "{id}: {}", answer.text);
    }
}

//! Imports: line by line, again and again, cut off anywhere.

use super::{bill, town};
use axum::body::{Body, Bytes};
use futures::StreamExt;
use futures::stream;
use punctual_core::job::{JobKey, JobState};
use punctual_core::memory::{Fault, FaultPlan, Faults, Point};
use punctual_tests::desk::{Answer, Desk};
use serde_json::{Value, json};

async fn import(desk: &Desk, query: &str, lines: &[Value]) -> Answer {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    send(desk, query, Body::from(text)).await
}

async fn send(desk: &Desk, query: &str, body: Body) -> Answer {
    let auth = format!("Bearer {}", desk.key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/x-ndjson")];
    desk.send("POST", &format!("/v1/jobs/import{query}"), body, &headers).await
}

fn words(answer: &Answer) -> Vec<String> {
    let lines = answer.lines();
    lines.iter().filter_map(|line| line["result"].as_str().map(str::to_owned)).collect()
}

fn summary(answer: &Answer) -> Value {
    answer.lines().last().expect("there is a last line")["summary"].clone()
}

#[tokio::test(start_paused = true)]
async fn each_line_is_answered_in_order_and_says_what_came_of_it() {
    let (town, desk) = town().await;
    desk.ask("POST", "/v1/jobs", Some(&bill("same"))).await;
    desk.ask("POST", "/v1/jobs", Some(&bill("changed"))).await;
    desk.ask("POST", "/v1/jobs", Some(&bill("cancelled"))).await;
    desk.ask("POST", "/v1/jobs/cancelled/cancel", None).await;
    desk.ask("POST", "/v1/jobs", Some(&bill("erased"))).await;
    desk.ask("DELETE", "/v1/jobs/erased", None).await;
    let mut changed = bill("changed");
    changed["priority"] = json!("bulk");
    let mut wrong = bill("wrong");
    wrong["schedule"]["tz"] = json!("Europe/Atlantis");
    let mut unnamed = bill("x");
    unnamed.as_object_mut().expect("an object").remove("id");
    let lines = [
        bill("new"),
        bill("same"),
        changed,
        bill("cancelled"),
        bill("erased"),
        wrong,
        unnamed,
        json!([]),
        bill("new"),
        bill("import"),
    ];
    let expected =
        ["created", "same", "changed", "cancelled", "cancelled", "refused", "refused", "refused", "refused", "refused"];
    let before = town.world.jobs();
    let dry = import(&desk, "?dry_run=true", &lines).await;
    assert_eq!((dry.status, words(&dry)), (200, expected.map(str::to_owned).to_vec()), "{}", dry.text);
    assert_eq!(town.world.jobs(), before, "a dry run writes nothing");
    let done = import(&desk, "", &lines).await;
    assert_eq!(words(&done), expected);
    let told = done.lines();
    assert_eq!((&told[0]["line"], &told[0]["id"]), (&json!(1), &json!("new")));
    assert_eq!(told[0]["next_run_at"], "2026-10-05T03:30:00Z");
    assert_eq!(told[5]["problem"]["errors"][0]["pointer"], "/schedule/tz");
    assert!(told[8]["problem"]["detail"].as_str().is_some_and(|detail| detail.contains("line 1")), "{}", told[8]);
    assert!(!done.text.contains("7700"));
    let counts = json!({"cancelled": 2, "changed": 1, "created": 1, "refused": 5, "same": 1});
    assert_eq!(summary(&done), json!({"complete": true, "dry_run": false, "counts": counts}));
    let again = import(&desk, "", &lines[..3]).await;
    assert_eq!(words(&again), ["same", "same", "same"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_says_so_and_is_finished_by_sending_it_again() {
    let (town, desk) = town().await;
    let lines: Vec<Value> = (0..1_000).map(|n| bill(&format!("c-{n}"))).collect();
    let text: String = lines[..650].iter().map(|line| format!("{line}\n")).collect();
    let parts = text.as_bytes().chunks(7_001).map(|part| Ok(Bytes::copy_from_slice(part)));
    let broken = parts.chain([Err(std::io::Error::other("the connection broke"))]).collect::<Vec<_>>();
    let cut = send(&desk, "", Body::from_stream(futures::stream::iter(broken))).await;
    assert_eq!(summary(&cut)["complete"], json!(false));
    assert_eq!(town.world.jobs().len(), 650);
    let done = import(&desk, "", &lines).await;
    assert_eq!(summary(&done)["counts"], json!({"created": 350, "same": 650}));
    assert_eq!(town.world.jobs().len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_between_ends_the_stream_and_loses_nothing() {
    for (call, nth, fault) in [
        ("jobs.get_many", 3, Fault::LoseAnswer),
        ("jobs.create", 333, Fault::LoseAnswer),
        ("jobs.create", 444, Fault::CrashAfter),
    ] {
        let (town, sound) = town().await;
        let plan = FaultPlan::one(Point::Nth(call, nth), fault.clone());
        let faults = Faults::new(&plan, "api");
        let desk = Desk::on(&town, faults.wrap(town.world.ports()), 1_000).await;
        let lines: Vec<Value> = (0..700).map(|n| bill(&format!("c-{n}"))).collect();
        tokio::select! {
            biased;
            () = faults.crashed() => {}
            done = import(&desk, "", &lines) => {
                let complete = summary(&done)["complete"] == json!(true);
                assert!(complete || done.text.contains("send them again"), "{call}: {}", done.text);
            }
        }
        assert!(plan.to_come().is_empty(), "{call} {nth} did not happen");
        let done = import(&sound, "", &lines).await;
        assert_eq!(summary(&done)["complete"], json!(true));
        assert_eq!(town.world.jobs().len(), 700, "{call} {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn blank_lines_a_missing_end_and_lines_that_are_too_long_are_no_harm() {
    let (town, desk) = town().await;
    let long = format!("{{\"id\": \"{}\"}}", "x".repeat(300_000));
    let text = format!("\n  \n{}\r\n{long}\n{}", bill("a"), bill("b"));
    let done = send(&desk, "", Body::from(text)).await;
    assert_eq!(words(&done), ["created", "refused", "created"], "{}", done.text);
    assert_eq!(done.lines()[1]["problem"]["status"], json!(413));
    assert_eq!(done.lines()[2]["line"], json!(5));
    assert_eq!(town.world.jobs().len(), 2);
    let empty = send(&desk, "", Body::empty()).await;
    assert_eq!(summary(&empty)["complete"], json!(true));
    let other_type = desk.ask("POST", "/v1/jobs/import", Some(&bill("c"))).await;
    assert_eq!(other_type.status, 415);
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_while_a_file_was_read_stays_cancelled() {
    let (town, desk) = town().await;
    import(&desk, "", &[bill("a")]).await;
    desk.ask("POST", "/v1/jobs/a/cancel", None).await;
    let mut changed = bill("a");
    changed["priority"] = json!("bulk");
    assert_eq!(words(&import(&desk, "", &[changed]).await), ["cancelled"]);
    let job = town.world.job(&JobKey::new("bank", "a").expect("a valid key")).expect("it is there");
    assert_eq!(job.state, JobState::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_revoked_while_its_import_streams_opens_no_further() {
    let (town, desk) = town().await;
    let lines = |from: usize| -> Bytes {
        (from..from + 200).map(|n| format!("{}\n", bill(&format!("c-{n}")))).collect::<String>().into()
    };
    let (control, now) = (town.world.ports().control, town.clock.now());
    let rest = async move {
        let keys = control.api_keys().await.expect("keys can be read");
        let ids: Vec<String> = keys.keys.iter().map(|key| key.id.clone()).collect();
        let revision = keys.revision;
        let none = ids.iter().fold(keys, |keys, id| keys.without(id, now).unwrap_or(keys));
        control.change_api_keys(revision, &none).await.expect("keys can be written");
        // So long a revoked key may still open.
        tokio::time::sleep(std::time::Duration::from_secs(6)).await;
        Ok::<_, std::io::Error>(lines(200))
    };
    let body = stream::iter([Ok(lines(0))]).chain(stream::once(rest));
    let cut = send(&desk, "", Body::from_stream(body)).await;
    assert_eq!(summary(&cut), json!({"complete": false, "dry_run": false, "counts": {"created": 200, "failed": 1}}));
    let failed = &cut.lines()[200];
    assert_eq!((&failed["line"], &failed["problem"]["status"]), (&json!(201), &json!(401)), "{failed}");
    assert_eq!(town.world.jobs().len(), 200);
}

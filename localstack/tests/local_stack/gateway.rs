use crate::clients::{self, eventually, start};
use punctual_localstack::gateway::{Behaviour, GatewayConfig, GatewayStats};
use punctual_localstack::stack::{Stack, StackConfig};
use reqwest::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const PHONE: &str = "+447700900123";

fn stack(config: GatewayConfig) -> Stack {
    start(StackConfig { gateway: GatewayConfig { latency: Duration::ZERO, ..config }, ..StackConfig::default() })
}

async fn send(http: &reqwest::Client, stack: &Stack, reference: &str) -> reqwest::Result<Response> {
    http.post(format!("{}/v1/sms", stack.gateway_url()))
        .header("x-punctual-worker", "w1")
        .json(&json!({ "reference": reference, "to": PHONE, "text": "hello" }))
        .send()
        .await
}

async fn body(response: Response) -> Value {
    response.json().await.unwrap()
}

fn retry_after(response: &Response) -> Option<&str> {
    response.headers().get("retry-after").map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_answered_with_the_first_id() {
    let (stack, http) = (stack(GatewayConfig::default()), clients::http());
    let mut accepted = stack.gateway().accepted_watch();
    let first = body(send(&http, &stack, "r1").await.unwrap()).await;
    let second = body(send(&http, &stack, "r1").await.unwrap()).await;
    assert_eq!(first["repeat"], json!(false));
    assert_eq!(second, json!({ "id": first["id"], "repeat": true }));
    assert_eq!(*accepted.borrow_and_update(), 1);

    let stats: GatewayStats =
        http.get(format!("{}/stats", stack.gateway_url())).send().await.unwrap().json().await.unwrap();
    assert_eq!(stats, stack.gateway().stats());
    assert_eq!((stats.accepted, stats.repeats, stats.repeats_dropped, stats.peak_per_s), (1, 1, 1, 2));
    assert_eq!(stats.per_worker, BTreeMap::from([("w1".to_owned(), 1)]));
    let arrivals = stack.gateway().arrivals();
    assert_eq!((arrivals.len(), arrivals[0].reference.as_str(), arrivals[0].worker.as_str()), (1, "r1", "w1"));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_plays_over_http_in_its_order() {
    let (stack, http) = (stack(GatewayConfig::default()), clients::http());
    let script = json!({ PHONE: [
        "bad_number", "opted_out", { "unavailable": { "retry_after_s": 7 } }, { "unavailable": {} },
        { "throttle": { "retry_after_s": 3 } }, { "slow": { "ms": 1 } },
    ] });
    let set = http.post(format!("{}/script", stack.gateway_url())).json(&script).send().await.unwrap();
    assert_eq!(set.status(), 204);

    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), body(response).await), (400, json!({ "error": "bad_number" })));
    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), body(response).await), (403, json!({ "error": "opted_out" })));
    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), retry_after(&response)), (503, Some("7")));
    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), retry_after(&response)), (503, None));
    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), retry_after(&response)), (429, Some("3")));
    let response = send(&http, &stack, "r").await.unwrap();
    assert_eq!((response.status().as_u16(), body(response).await["repeat"].clone()), (200, json!(false)));

    let stats = stack.gateway().stats();
    assert_eq!((stats.refused_permanent, stats.unavailable, stats.rejected_429, stats.accepted), (2, 2, 1, 1));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_gives_no_answer_but_the_message_is_accepted() {
    let (stack, http) = (stack(GatewayConfig::default()), clients::http());
    let behaviours = vec![Behaviour::AcceptThenDropConnection, Behaviour::Hang { for_ms: 1 }, Behaviour::Accept];
    stack.gateway().set_script(BTreeMap::from([(PHONE.to_owned(), behaviours)]));

    assert!(send(&http, &stack, "r").await.unwrap_err().is_request());
    assert_eq!(stack.gateway().stats().accepted, 1);
    assert!(send(&http, &stack, "r").await.unwrap_err().is_request());
    assert_eq!(body(send(&http, &stack, "r").await.unwrap()).await["repeat"], json!(true));
    let stats = stack.gateway().stats();
    assert_eq!((stats.accepted, stats.unavailable, stats.repeats, stats.repeats_dropped), (1, 1, 2, 1));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_above_the_cap_are_told_to_wait_a_second() {
    let (stack, http) = (stack(GatewayConfig { per_second_cap: 3, ..GatewayConfig::default() }), clients::http());
    let mut refused = 0;
    eventually("ten references are accepted", async || {
        let response = send(&http, &stack, &format!("r{}", stack.gateway().stats().accepted)).await.unwrap();
        if response.status() == 429 {
            assert_eq!(retry_after(&response), Some("1"));
            refused += 1;
        }
        stack.gateway().stats().accepted == 10
    })
    .await;
    let stats = stack.gateway().stats();
    assert_eq!((stats.peak_per_s, stats.rejected_429), (3, refused));
    assert!(refused > 0);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_is_counted_once_and_holds_nothing_up() {
    let (stack, http) = (stack(GatewayConfig::default()), clients::http());
    let behaviours = vec![Behaviour::Slow { ms: 600_000 }];
    stack.gateway().set_script(BTreeMap::from([(PHONE.to_owned(), behaviours)]));
    let slow = send(&http, &stack, "r");
    let mut accepted = stack.gateway().accepted_watch();
    tokio::select! {
        _ = slow => panic!("answered ten minutes early"),
        seen = accepted.wait_for(|&count| count == 1) => drop(seen.unwrap()),
    }
    assert_eq!(stack.gateway().stats().accepted, 1);
    tokio::time::timeout(clients::DEADLINE, stack.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_requests_are_refused() {
    let (stack, http) = (stack(GatewayConfig::default()), clients::http());
    let url = format!("{}/v1/sms", stack.gateway_url());
    for text in ["", "{", "[]", r#"{"reference":"r","to":"+1"}"#] {
        let response = http.post(&url).header("content-type", "application/json").body(text).send().await.unwrap();
        assert_eq!((response.status().as_u16(), body(response).await), (400, json!({ "error": "bad_request" })));
    }
    assert_eq!(stack.gateway().stats().refused_permanent, 4);
    let health = http.get(format!("{}/healthz", stack.gateway_url())).send().await.unwrap();
    assert_eq!(health.text().await.unwrap(), "ok");
    stack.stop().await;
}

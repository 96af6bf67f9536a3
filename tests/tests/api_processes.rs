//! The Jobs API as its own process, over a socket and as a Lambda function behind its URL.

use anyhow::Context;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::Local;
use punctual_tests::runtime_api::RuntimeApi;
use serde_json::{Value, json};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const TIMEOUT: Duration = Duration::from_secs(30);

async fn local() -> anyhow::Result<(Local, String)> {
    let local = Local::start(PROGRAM, GatewayConfig::default(), &[("PUNCTUAL_LOG", "debug")]).await?;
    local.punctual(&["setup"]).await?;
    let key = local.punctual(&["keys", "add", "--tenant", "bank", "--role", "operate", "--label", "test"]).await?;
    Ok((local, key.trim().to_owned()))
}

fn bill() -> Value {
    json!({
        "id": "c-1/bill", "schedule": {"cron": "0 9 * * *", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill is due"},
    })
}

fn http() -> anyhow::Result<reqwest::Client> {
    // Another test of this process may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

#[tokio::test]
async fn the_api_is_served_until_it_is_told_to_stop_and_its_log_is_discreet() -> anyhow::Result<()> {
    let (local, key) = local().await?;
    let (mut process, url) = local.start_api("api", &[]).await?;
    let http = http()?;
    let ready = http.get(format!("{url}/readyz")).send().await?;
    assert_eq!(ready.status(), 200, "{}", ready.text().await?);
    let made = http.post(format!("{url}/v1/jobs")).bearer_auth(&key).json(&bill()).send().await?;
    assert_eq!((made.status().as_u16(), made.headers()["location"].to_str()?), (201, "/v1/jobs/c-1%2Fbill"));
    let shown = http.get(format!("{url}/v1/jobs/c-1/bill")).bearer_auth(&key).send().await?;
    assert_eq!(shown.json::<Value>().await?["state"], "active");
    let mut wrong = bill();
    wrong["payload"]["to"] = json!("447700900123");
    let refused = http.put(format!("{url}/v1/jobs/c-1/bill")).bearer_auth(&key).json(&wrong).send().await?;
    assert_eq!(refused.status(), 422);
    assert!(!refused.text().await?.contains("7700"));
    assert_eq!(http.get(format!("{url}/v1/jobs")).send().await?.status(), 401);
    let keys = local.punctual(&["keys", "list", "--json"]).await?;
    let id = serde_json::from_str::<Value>(keys.trim())?["id"].as_str().context("an id")?.to_owned();
    assert!(!keys.contains(&key), "a key is shown once");
    assert!(!process.log().contains(&key), "no key is in a log");
    local.punctual(&["keys", "revoke", &id]).await?;
    process.check()?;
    process.stop().await
}

/// What a function URL hands in (payload format 2.0).
fn event(method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Value {
    let mut headers = json!({"content-type": "application/json", "host": "x.lambda-url.us-east-1.on.aws"});
    if let Some(key) = key {
        headers["authorization"] = json!(format!("Bearer {key}"));
    }
    json!({
        "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": headers,
        "requestContext": {
            "accountId": "anonymous", "apiId": "x", "domainName": "x.lambda-url.us-east-1.on.aws", "domainPrefix": "x",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "test"},
            "requestId": "r", "routeKey": "$default", "stage": "$default",
            "time": "05/Oct/2026:03:13:20 +0000", "timeEpoch": 1_791_170_000_000_i64,
        },
        "body": body.map(Value::to_string), "isBase64Encoded": false,
    })
}

#[tokio::test]
async fn the_api_answers_as_a_function_behind_its_url() -> anyhow::Result<()> {
    let (local, key) = local().await?;
    let runtime = RuntimeApi::start().await?;
    let function = local.start_api_function("f", &runtime.address.to_string())?;
    let ask = async |id: &str, event: Value| {
        let answer = runtime.invoke_with(id, event, TIMEOUT).await.with_context(|| function.log())?;
        let body = answer["body"].as_str().map(serde_json::from_str::<Value>).transpose()?;
        anyhow::Ok((answer["statusCode"].as_u64(), body.unwrap_or_default()))
    };
    let (status, _) = ask("1", event("GET", "/v1/jobs", None, None)).await?;
    assert_eq!(status, Some(401));
    let (status, made) = ask("2", event("POST", "/v1/jobs", Some(&key), Some(&bill()))).await?;
    assert_eq!((status, &made["state"]), (Some(201), &json!("active")), "{made}");
    // The address may come decoded or as it was sent.
    for (n, path) in ["/v1/jobs/c-1/bill/pause", "/v1/jobs/c-1%2Fbill/resume"].into_iter().enumerate() {
        let (status, job) = ask(&format!("3-{n}"), event("POST", path, Some(&key), None)).await?;
        assert_eq!((status, &job["id"]), (Some(200), &json!("c-1/bill")), "{path}: {job}");
    }
    assert!(function.errors().is_empty(), "{:?}", function.errors());
    Ok(())
}

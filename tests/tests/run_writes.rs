//! Rows that are written together: what a slow store sees of it, and that nobody waits for somebody else's call.

use aws_sdk_dynamodb::config::{Credentials, Region};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use futures::FutureExt;
use futures::future::join_all;
use punctual_core::aws::{Aws, Names, config_loader};
use punctual_core::clock::AnchoredClock;
use punctual_core::ports::{Put, RunStore};
use punctual_core::run::{RunRow, RunStatus};
use punctual_tests::{at, run_of};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

const MOST_CALLS: usize = 8;
const MOST_STATEMENTS: usize = 25;
/// A run whose writes the store never answers.
const STALLED: &str = "stalled/bill";

/// What the store has seen.
#[derive(Default)]
struct Seen {
    /// The jobs of each call's rows.
    calls: Vec<Vec<String>>,
    under_way: usize,
    most_under_way: usize,
}

/// A store that takes every write, and its time for it.
#[derive(Clone)]
struct Store {
    seen: Arc<Mutex<Seen>>,
    takes: Duration,
}

impl Store {
    async fn start(takes: Duration) -> (Store, Arc<dyn RunStore>) {
        let store = Store { seen: Arc::default(), takes };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let service = Router::new().route("/", post(answer)).with_state(store.clone());
        tokio::spawn(async move { axum::serve(listener, service).await });
        let config = config_loader().region(Region::new("eu-west-1")).endpoint_url(url);
        let config = config.credentials_provider(Credentials::new("key", "secret", None, None, "test")).load().await;
        let (dynamodb, sqs) =
            (aws_sdk_dynamodb::config::Builder::from(&config), aws_sdk_sqs::config::Builder::from(&config));
        let names = Names::new("punctual").expect("a prefix");
        let aws = Aws::new(dynamodb, sqs, names, Arc::new(AnchoredClock::of_this_host()));
        (store, aws.ports().runs)
    }

    fn calls(&self) -> Vec<Vec<String>> {
        self.seen.lock().expect("no panic").calls.clone()
    }
}

async fn answer(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> String {
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let target = headers["x-amz-target"].to_str().expect("a name").rsplit('.').next().expect("an operation");
    // Where a statement names what a row is, the key is the only text with a slash.
    let key_in = |statement: &Value| {
        let values = statement["Parameters"].as_array().expect("values");
        let key = values.iter().filter_map(|value| value["S"].as_str()).find(|text| text.contains('/'));
        key.expect("a key").to_owned()
    };
    let rows: Vec<String> = match target {
        "PutItem" => vec![body["Item"]["job_key"]["S"].as_str().expect("a key").to_owned()],
        "BatchExecuteStatement" => body["Statements"].as_array().expect("statements").iter().map(key_in).collect(),
        other => panic!("{other} was not expected"),
    };
    let (count, is_stalled) = (rows.len(), rows.iter().any(|row| row.ends_with(STALLED)));
    {
        let mut seen = store.seen.lock().expect("no panic");
        seen.calls.push(rows);
        seen.under_way += 1;
        seen.most_under_way = seen.most_under_way.max(seen.under_way);
    }
    if is_stalled {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(store.takes).await;
    store.seen.lock().expect("no panic").under_way -= 1;
    match target {
        "PutItem" => "{}".into(),
        _ => json!({"Responses": vec![json!({}); count]}).to_string(),
    }
}

fn row(id: &str) -> RunRow {
    RunRow {
        id: run_of(id, at(8)),
        status: RunStatus::Running,
        attempt: 1,
        owner: Some("token".into()),
        lease_until: Some(at(30)),
        not_before: None,
        generation: 1,
        void_gen: None,
        due_at: at(8),
        first_enqueued_at: at(8),
        started_at: Some(at(8)),
        completed_at: None,
        attempts: Vec::new(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision: 1,
        write_token: "token".into(),
    }
}

/// Waits until the store has seen so many calls.
async fn seen(store: &Store, calls: usize) {
    let all = async {
        while store.calls().len() < calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("the calls come");
}

#[tokio::test]
async fn a_write_that_stalls_holds_up_nobody_else() {
    let (store, runs) = Store::start(Duration::ZERO).await;
    let stalled = tokio::spawn({
        let runs = runs.clone();
        async move { runs.put(&row(STALLED)).await }
    });
    seen(&store, 1).await;
    let rows: Vec<RunRow> = (0..5).map(|n| row(&format!("c-{n}/bill"))).collect();
    let others = join_all(rows.iter().map(|row| runs.put(row)));
    let others = tokio::time::timeout(Duration::from_secs(6), others).await.expect("they do not wait for it");
    assert!(others.iter().all(|put| *put == Ok(Put::Written)), "{others:?}");
    assert!(!stalled.is_finished(), "it is still under way");
    stalled.abort();
}

#[tokio::test]
async fn calls_and_statements_are_bounded_and_no_call_holds_a_row_twice() {
    let (store, runs) = Store::start(Duration::from_millis(200)).await;
    // Each tenth row twice, one right after the other.
    let each = (0..400).flat_map(|n| std::iter::repeat_n(n, 1 + usize::from(n % 10 == 0)));
    let rows: Vec<RunRow> = each.map(|n| row(&format!("c-{n}/bill"))).collect();
    let written = join_all(rows.iter().map(|row| runs.put(row))).await;
    assert!(written.iter().all(|put| *put == Ok(Put::Written)), "{written:?}");
    let calls = store.calls();
    assert_eq!(calls.iter().map(Vec::len).sum::<usize>(), rows.len());
    for call in &calls {
        assert!(call.len() <= MOST_STATEMENTS, "{} rows in a call", call.len());
        assert_eq!(call.iter().collect::<BTreeSet<_>>().len(), call.len(), "a row twice: {call:?}");
    }
    // They come at once and fill their calls.
    assert!(calls.len() <= rows.len().div_ceil(MOST_STATEMENTS) + MOST_CALLS, "{} calls", calls.len());
    let most = store.seen.lock().expect("no panic").most_under_way;
    assert!((2..=MOST_CALLS).contains(&most), "{most} at once");
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_written() {
    let (store, runs) = Store::start(Duration::ZERO).await;
    let stalled = tokio::spawn({
        let runs = runs.clone();
        async move { runs.put(&row(STALLED)).await }
    });
    seen(&store, 1).await;
    assert_eq!(runs.put(&row("given-up/bill")).now_or_never(), None, "it waits for the call under way");
    assert_eq!(runs.put(&row("c-1/bill")).await, Ok(Put::Written));
    assert!(!store.calls().concat().iter().any(|row| row.contains("given-up")), "{:?}", store.calls());
    stalled.abort();
}

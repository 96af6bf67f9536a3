use super::super::http::tests::server_without_body;
use super::*;
use async_trait::async_trait;
use chrono::DateTime;
use punctual_core::clock::TokioClock;
use punctual_core::job::JobKey;
use punctual_core::payload::Payload;
use punctual_core::retry::OutcomeClass::{self, Delivered, Permanent, Temporary, Unknown};
use punctual_core::run::RunKey;
use punctual_core::trace::TraceContext;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"amount": "12.50 €"}"#;
const TIME: Duration = Duration::from_secs(10);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn clock() -> Arc<dyn Clock> {
    Arc::new(TokioClock::new(DateTime::from_timestamp(1_796_441_400, 0).unwrap()))
}

fn run() -> RunId {
    let job_key = JobKey::new("bank", "c-1/bill").unwrap();
    RunId { job_key, run_key: RunKey::scheduled(DateTime::from_timestamp(1_796_441_400, 0).unwrap()) }
}

/// Names and what they stand for, answer by answer; the last answer stays.
#[derive(Default)]
struct Names {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<usize>,
}

impl Names {
    fn of(names: &[(&str, &[&str])]) -> Arc<Self> {
        let answers = names.iter().map(|(name, answers)| {
            let read = |answer: &&str| answer.split(' ').map(|ip| ip.parse().unwrap()).collect();
            ((*name).to_owned(), answers.iter().map(read).collect())
        });
        Arc::new(Names { answers: Mutex::new(answers.collect()), asked: Mutex::default() })
    }
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        *self.asked.lock().unwrap() += 1;
        let mut answers = self.answers.lock().unwrap();
        let answers = answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() })
    }
}

/// A server that says one thing, and keeps what it was told.
struct Server {
    address: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(at: &str, answer: &'static str) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let (address, told) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = told.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                kept.lock().unwrap().push(String::new());
                tokio::spawn(serve(stream, answer, kept.clone()));
            }
        });
        Server { address, told }
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    fn url(&self) -> String {
        format!("http://{}/bills?key=abc", self.address)
    }
}

async fn serve(mut stream: TcpStream, answer: &'static str, kept: Arc<Mutex<Vec<String>>>) {
    let (mut request, mut chunk) = (Vec::new(), [0; 4_096]);
    while !String::from_utf8_lossy(&request).ends_with('}') {
        match stream.read(&mut chunk).await {
            Ok(n) if n > 0 => request.extend_from_slice(&chunk[..n]),
            _ => return,
        }
    }
    *kept.lock().unwrap().last_mut().unwrap() = String::from_utf8(request).unwrap();
    if !answer.is_empty() {
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn webhooks(allowed: &str, names: &Arc<Names>) -> Webhooks {
    Webhooks::new(allowed.parse().unwrap(), names.clone(), TIME, clock()).unwrap()
}

fn attempt(reference: RunId, attempt: u32) -> Call {
    Call { reference, attempt, payload: Payload::Noop, trace: TraceContext::parse(TRACE), time: TIME }
}

async fn call(webhooks: &Webhooks, url: &str) -> Outcome {
    webhooks.send(&attempt(run(), 2), url, BODY, Some(&Secret::new(KEY))).await
}

#[tokio::test]
async fn no_address_inside_the_network_is_ever_connected_to() {
    let inside = Server::start("127.0.0.1:0", "200 OK").await;
    let port = inside.address.port();
    let names = Names::of(&[
        ("loopback.example.com", &["127.0.0.1"]),
        ("loopback6.example.com", &["::1"]),
        ("private.example.com", &["10.0.0.7"]),
        ("metadata.example.com", &["169.254.169.254"]),
        ("tasks.example.com", &["169.254.170.2"]),
        ("mapped.example.com", &["::ffff:127.0.0.1"]),
        ("nat64.example.com", &["64:ff9b::7f00:1"]),
        ("mixed.example.com", &["1.1.1.1 127.0.0.1"]),
        ("unspecified.example.com", &["0.0.0.0"]),
        ("ula.example.com", &["fd00:ec2::254"]),
    ]);
    let webhooks = webhooks("", &names);
    for (host, why) in [
        ("127.0.0.1", "loopback"),
        ("127.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("2130706433", "loopback"),
        ("0x7f000001", "loopback"),
        ("0x7f.0.0.1", "loopback"),
        ("0177.0.0.1", "loopback"),
        ("017700000001", "loopback"),
        ("localhost", "loopback"),
        ("LocalHost.", "loopback"),
        ("a.localhost", "loopback"),
        ("[::1]", "loopback"),
        ("[::ffff:127.0.0.1]", "loopback"),
        ("[::127.0.0.1]", "loopback"),
        ("[64:ff9b::127.0.0.1]", "loopback"),
        ("[2002:7f00:1::]", "loopback"),
        ("[64:ff9b:1::1]", "a local NAT64"),
        ("[2001:0:7f00:1::]", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("[::]", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.31.0.1", "private"),
        ("192.168.0.1", "private"),
        ("[fc00::1]", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("169.254.1.1", "link-local"),
        ("[fe80::1]", "link-local"),
        ("169.254.169.254", "a metadata service"),
        ("2852039166", "a metadata service"),
        ("169.254.170.2", "a metadata service"),
        ("[::ffff:169.254.169.254]", "a metadata service"),
        ("metadata.google.internal", "private network"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("user@127.0.0.1", "user name or password"),
        ("loopback.example.com", "loopback"),
        ("loopback6.example.com", "loopback"),
        ("private.example.com", "private"),
        ("metadata.example.com", "a metadata service"),
        ("tasks.example.com", "a metadata service"),
        ("mapped.example.com", "loopback"),
        ("nat64.example.com", "loopback"),
        ("mixed.example.com", "loopback"),
        ("unspecified.example.com", "unspecified"),
        ("ula.example.com", "a metadata service"),
    ] {
        let outcome = call(&webhooks, &format!("https://{host}:{port}/x?key=abc")).await;
        let Outcome::Permanent { reason } = &outcome else { panic!("{host}: {outcome:?}") };
        assert!(reason.contains(why) && !reason.contains("key=abc"), "{host}: {reason}");
    }
    let plain = call(&webhooks, "http://hooks.example.com/").await;
    assert!(matches!(&plain, Outcome::Permanent { reason } if reason.contains("https://")), "{plain:?}");
    assert_eq!(inside.told(), Vec::<String>::new());
}

#[tokio::test]
async fn without_the_guard_a_name_reaches_the_inside() {
    let inside = Server::start("127.0.0.1:0", "200 OK").await;
    let names = Names::of(&[("loopback.example.com", &["127.0.0.1"])]);
    let url: Url = format!("http://loopback.example.com:{}/", inside.address.port()).parse().unwrap();
    let nobody: Judge = |_| None;
    for (judge, class, told) in [(nobody, Delivered, 1), (address::forbidden, Permanent, 1)] {
        let webhooks = Webhooks::judging(judge, AllowList::default(), names.clone(), TIME, clock()).unwrap();
        let outcome = webhooks.post(&webhooks.guarded, url.clone(), &attempt(run(), 1), BODY, None).await;
        assert_eq!((outcome.class(), inside.told().len()), (class, told), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_was_checked_is_what_is_connected_to() {
    // For this test 127.0.0.2 is the world, and 127.0.0.1 is inside, on the same port.
    let outside = Server::start("127.0.0.2:0", "200 OK").await;
    let inside = Server::start(&format!("127.0.0.1:{}", outside.address.port()), "200 OK").await;
    let names =
        Names::of(&[("rebinding.example.com", &["127.0.0.2", "127.0.0.1", "127.0.0.2 127.0.0.1", "127.0.0.2"])]);
    let judge: Judge = |ip| (ip == IpAddr::from([127, 0, 0, 1])).then_some("loopback");
    let webhooks = Webhooks::judging(judge, AllowList::default(), names.clone(), TIME, clock()).unwrap();
    let url: Url = format!("http://rebinding.example.com:{}/", outside.address.port()).parse().unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let secret = Secret::new(KEY);
        let call = attempt(run(), 1);
        outcomes.push(webhooks.post(&webhooks.guarded, url.clone(), &call, BODY, Some(&secret)).await.class());
    }
    assert_eq!(outcomes, [Delivered, Permanent, Permanent, Delivered]);
    assert_eq!((outside.told().len(), inside.told().len()), (2, 0));
    assert_eq!(*names.asked.lock().unwrap(), 4, "each connection goes where the one look-up before it said");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Server::start("127.0.0.1:0", "200 OK").await;
    let location = format!("307 Temporary Redirect\r\nlocation: {}", target.url());
    let redirecting = Server::start("127.0.0.1:0", location.leak()).await;
    let webhooks = webhooks(&redirecting.address.to_string(), &Names::of(&[]));
    let outcome = call(&webhooks, &redirecting.url()).await;
    assert!(matches!(&outcome, Outcome::Permanent { reason } if reason.contains("307: redirects")), "{outcome:?}");
    assert_eq!((redirecting.told().len(), target.told().len()), (1, 0));
}

#[test]
fn no_proxy_is_asked_whatever_the_environment_says() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let run = |test: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", &format!("deliver::webhook::tests::{test}")])
            .env_remove("no_proxy")
            .env_remove("NO_PROXY");
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            child.env(name, &address);
        }
        child.output().unwrap()
    };
    for test in ["no_address_inside_the_network_is_ever_connected_to", "what_was_checked_is_what_is_connected_to"] {
        let output = run(test);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
    }
    assert_eq!(proxy.accept().err().map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
}

#[tokio::test]
async fn a_request_says_who_it_is_and_is_signed() {
    let server = Server::start("127.0.0.1:0", "204 No Content").await;
    let webhooks = webhooks("127.0.0.1", &Names::of(&[]));
    let outcome = call(&webhooks, &server.url()).await;
    assert_eq!(outcome, Outcome::Delivered { gateway_ref: "HTTP 204".into() });
    let unsigned = webhooks.send(&attempt(run(), 1), &server.url(), BODY, None).await;
    assert_eq!(unsigned.class(), Delivered);
    let [request, unsigned] = &server.told()[..] else { panic!() };
    let header = |name: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} is missing: {request}")).to_owned()
    };
    assert!(request.starts_with("POST /bills?key=abc HTTP/1.1") && request.ends_with(BODY), "{request}");
    assert_eq!(header("content-type"), "application/json");
    assert_eq!((header("webhook-id"), header("idempotency-key")), (run().to_string(), run().to_string()));
    assert_eq!((header("punctual-attempt").as_str(), header("traceparent").as_str()), ("2", TRACE));
    let timestamp = header("webhook-timestamp").parse().unwrap();
    assert!((1_796_441_400..1_796_441_460).contains(&timestamp), "{timestamp}");
    let expected = signature(&Secret::new(KEY), &run().to_string(), timestamp, BODY).unwrap();
    assert_eq!(header("webhook-signature"), expected);
    assert!(!unsigned.contains("webhook-signature") && unsigned.contains("webhook-id"));
}

#[tokio::test]
async fn what_is_signed_divides_in_one_way_only() {
    let server = Server::start("127.0.0.1:0", "204 No Content").await;
    let webhooks = webhooks("127.0.0.1", &Names::of(&[]));
    let reference = RunId { job_key: JobKey::new("bank", "a.1796441400.b").unwrap(), ..run() };
    let id = "bank/a=2E1796441400=2Eb:1796441400";
    assert_eq!(webhook_id(&reference), id);
    let outcome = webhooks.send(&attempt(reference, 1), &server.url(), BODY, Some(&Secret::new(KEY))).await;
    assert_eq!(outcome.class(), Delivered);
    let request = server.told().remove(0);
    assert!(request.contains(&format!("webhook-id: {id}\r\n")), "{request}");
    assert!(request.contains(&format!("idempotency-key: {id}\r\n")), "{request}");
    let timestamp = request.split("webhook-timestamp: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    let expected = signature(&Secret::new(KEY), id, timestamp.parse().unwrap(), BODY).unwrap();
    assert!(request.contains(&format!("webhook-signature: {expected}\r\n")), "{request}");
}

#[test]
fn a_signature_is_what_others_compute() {
    // The first is the example of the Standard Webhooks specification, the second was made by `openssl dgst -mac HMAC`.
    for (id, timestamp, body, expected) in [
        (
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        ("bank/c-1/bill:1796441400", 1_796_441_400, BODY, "v1,9izQb+XiRMDfBBDoo1EMtj9xzseuLdM/kElyLoHF9HI="),
    ] {
        assert_eq!(signature(&Secret::new(KEY), id, timestamp, body).as_deref(), Some(expected));
    }
    let unpadded = Secret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let padded = Secret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    assert_eq!((unpadded.check(), padded.check()), (Ok(()), Ok(())));
    assert_eq!(signature(&unpadded, "a", 1, "b"), signature(&padded, "a", 1, "b"));
}

#[test]
fn each_status_means_what_the_table_says() {
    let statuses: [(u16, OutcomeClass); 28] = [
        (200, Delivered),
        (202, Delivered),
        (204, Delivered),
        (301, Permanent),
        (304, Permanent),
        (308, Permanent),
        (400, Temporary),
        (401, Temporary),
        (403, Temporary),
        (404, Temporary),
        (408, Temporary),
        (409, Temporary),
        (410, Permanent),
        (413, Temporary),
        (422, Temporary),
        (425, Temporary),
        (429, Temporary),
        (500, Temporary),
        (502, Unknown),
        (503, Temporary),
        (504, Unknown),
        (520, Unknown),
        (521, Temporary),
        (522, Temporary),
        (523, Temporary),
        (524, Unknown),
        (525, Temporary),
        (599, Temporary),
    ];
    for (status, expected) in statuses {
        let outcome = judge(status, Some(Duration::from_secs(7)));
        assert_eq!(outcome.class(), expected, "{status}");
        assert_eq!(matches!(outcome, Outcome::Gone { .. }), status == 410);
        if let Outcome::Temporary { retry_after, .. } = outcome {
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
    }
}

#[tokio::test]
async fn a_known_outcome_comes_in_time_although_no_body_does() {
    // Shorter than a body is waited for.
    let time = Duration::from_millis(900);
    let call = Call { time, ..attempt(run(), 1) };
    let (url, webhooks) = (server_without_body().await, webhooks("127.0.0.1", &Names::of(&[])));
    let outcome = tokio::time::timeout(time, webhooks.send(&call, &url, BODY, None)).await;
    assert_eq!(outcome.map(|outcome| outcome.class()), Ok(Delivered));
}

#[tokio::test]
async fn never_connected_is_told_from_never_answered() {
    let silent = Server::start("127.0.0.1:0", "").await;
    let webhooks = webhooks("127.0.0.1,nowhere.example.com", &Names::of(&[]));
    let lost = call(&webhooks, &silent.url()).await;
    assert!(matches!(&lost, Outcome::Unknown { reason } if !reason.contains("key=abc")), "{lost:?}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{closed}/?key=abc"), "https://nowhere.example.com/?key=abc".into()] {
        let refused = call(&webhooks, &url).await;
        assert!(matches!(&refused, Outcome::Temporary { reason, .. } if !reason.contains("key=abc")), "{refused:?}");
    }
    let busy = Server::start("127.0.0.1:0", "429 Too Many Requests\r\nretry-after: 30").await;
    let asked = call(&webhooks, &busy.url()).await;
    assert!(matches!(asked, Outcome::Temporary { retry_after: Some(after), .. } if after == Duration::from_secs(30)));
}

use super::*;
use crate::clock::SystemClock;
use crate::telemetry::table::{REPEATS_CAUGHT, RUNS_DUE};
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANY_PORT: Exporter =
    Exporter::Prometheus { listen: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0) };
const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn the_environment_says_where_metrics_go() {
    let at = |listen: &str| Ok(Exporter::Prometheus { listen: listen.parse().unwrap() });
    for (choice, listen, is_function, expected) in [
        (None, None, false, at("127.0.0.1:9464")),
        (Some(""), Some(""), false, at("127.0.0.1:9464")),
        (Some("prometheus"), None, false, at("127.0.0.1:9464")),
        (None, Some("0.0.0.0:9000"), false, at("0.0.0.0:9000")),
        (None, Some("[::1]:0"), false, at("[::1]:0")),
        (Some("emf"), None, false, Ok(Exporter::Emf { every: MINUTE })),
        (Some("off"), None, false, Ok(Exporter::Off)),
        (None, None, true, Ok(Exporter::Emf { every: None })),
        (Some("emf"), None, true, Ok(Exporter::Emf { every: None })),
        (Some("prometheus"), None, true, at("127.0.0.1:9464")),
        (Some("off"), None, true, Ok(Exporter::Off)),
    ] {
        assert_eq!(Exporter::choose(choice, listen, is_function), expected, "{choice:?} {listen:?} {is_function}");
    }
}

#[test]
fn all_that_is_wrong_with_it_is_told_at_once() {
    let problems = Exporter::choose(Some("statsd"), Some("localhost"), false).unwrap_err();
    let expected = [
        "PUNCTUAL_METRICS_LISTEN: `localhost` is no address and port, such as `127.0.0.1:9464`",
        "PUNCTUAL_METRICS: `statsd` is none of `prometheus`, `emf` and `off`",
    ];
    assert_eq!(problems, expected);
    assert!(Exporter::choose(Some("emf"), Some(":9464"), false).is_err(), "wrong though it is not used");
}

async fn started(exporter: Exporter) -> (Recording, Telemetry) {
    let (recorder, telemetry) = start(exporter, Service::Worker, Arc::new(SystemClock::new())).await;
    (recorder.unwrap(), telemetry)
}

#[tokio::test]
async fn what_has_not_happened_yet_is_told_as_none_and_by_those_to_whom_it_can() {
    let (_recorder, telemetry) = started(ANY_PORT).await;
    let text = read(telemetry.address().unwrap()).await;
    for none in ["punctual_dead_letters_total{reason=\"exhausted\"} 0\n", "punctual_takeovers_total 0\n"] {
        assert!(text.contains(none), "{none} is missing: {text}");
    }
    assert!(!text.contains("punctual_jobs_advanced_total") && !text.contains("punctual_api_failures_total"), "{text}");
    telemetry.stop().await;
}

async fn read(address: SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn what_is_counted_can_be_read_until_the_stop() {
    let (recorder, telemetry) = started(ANY_PORT).await;
    let address = telemetry.address().unwrap();
    assert!(address.ip().is_loopback() && address.port() != 0);
    assert_eq!(telemetry.beside.len(), 1, "the upkeep");
    with_local_recorder(&recorder, || RUNS_DUE.counter(&[("priority", "bulk")]).increment(2));
    let text = read(address).await;
    assert!(text.contains("\npunctual_runs_due_total{priority=\"bulk\"} 2\n"), "{text}");
    let version = format!("\npunctual_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    telemetry.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
    with_local_recorder(&recorder, || RUNS_DUE.counter(&[("priority", "bulk")]).increment(2));
}

#[tokio::test]
async fn a_port_that_is_taken_stops_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    let (recorder, telemetry) = started(Exporter::Prometheus { listen }).await;
    assert_eq!(telemetry.address(), None);
    with_local_recorder(&recorder, || REPEATS_CAUGHT.counter(&[]).increment(1));
    telemetry.flush().await;
    telemetry.stop().await;
}

#[tokio::test]
async fn nothing_is_recorded_where_metrics_are_off() {
    let (recorder, telemetry) = start(Exporter::Off, Service::Worker, Arc::new(SystemClock::new())).await;
    assert!(recorder.is_none() && telemetry.address().is_none());
    telemetry.flush().await;
    telemetry.stop().await;
}

/// Hands on each line, or hangs until it is let go.
struct Pipe {
    lines: Sender<String>,
    hangs_until: Option<Receiver<()>>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(hangs_until) = self.hangs_until.take() {
            // Let go by a sender that is gone.
            let _ = hangs_until.recv();
        }
        self.lines.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn flushing(every: Option<Duration>, hangs_until: Option<Receiver<()>>) -> (Tabled<Emf>, Telemetry, Receiver<String>) {
    let (lines, told) = channel();
    let emf = Emf::default();
    let flusher = Flusher::start(emf.clone(), Service::Worker, Pipe { lines, hangs_until }).unwrap();
    let mut telemetry = Telemetry::idle(Arc::new(SystemClock::new()));
    telemetry.flush_with(flusher, every);
    (Tabled::new(emf), telemetry, told)
}

#[tokio::test]
async fn a_flush_has_written_all_when_it_returns() {
    let (recorder, telemetry, told) = flushing(None, None);
    let repeats = with_local_recorder(&recorder, || REPEATS_CAUGHT.counter(&[]));
    for n in 1..=3 {
        repeats.increment(n);
        telemetry.flush().await;
        let line = told.try_recv().unwrap();
        assert!(line.contains(&format!("\"punctual_repeats_caught_total\":{n}")) && line.ends_with("}\n"), "{line}");
        telemetry.flush().await;
        assert!(told.try_recv().is_err(), "nothing was counted since");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_written_each_minute_and_at_the_stop() {
    let (recorder, telemetry, told) = flushing(MINUTE, None);
    let repeats = with_local_recorder(&recorder, || REPEATS_CAUGHT.counter(&[]));
    let told = |within: &str| told.recv_timeout(Duration::from_secs(30)).expect(within);
    repeats.increment(1);
    tokio::time::sleep(FLUSH_EVERY + Duration::from_secs(5)).await;
    assert!(told("the first minute").contains("\"punctual_repeats_caught_total\":1"));
    repeats.increment(1);
    tokio::time::sleep(FLUSH_EVERY + Duration::from_secs(5)).await;
    assert!(told("the second minute").contains("\"punctual_repeats_caught_total\":1"));
    repeats.increment(5);
    telemetry.stop().await;
    assert!(told("the stop").contains("\"punctual_repeats_caught_total\":5"));
}

#[tokio::test(start_paused = true)]
async fn an_output_that_hangs_holds_nobody_up() {
    let (let_go, hangs_until) = channel::<()>();
    let (recorder, telemetry, told) = flushing(None, Some(hangs_until));
    let repeats = with_local_recorder(&recorder, || REPEATS_CAUGHT.counter(&[]));
    for _ in 0..1_000 {
        repeats.increment(1);
        telemetry.flush().await;
    }
    drop(let_go);
    drop(telemetry);
    let line = |text: String| -> u64 {
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        event["punctual_repeats_caught_total"].as_u64().unwrap()
    };
    assert_eq!(told.iter().map(line).sum::<u64>(), 1_000, "what could not be written then is written now");
}

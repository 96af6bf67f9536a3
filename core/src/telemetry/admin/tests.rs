use super::*;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

async fn served() -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let render: Render = Arc::new(|| "punctual_runs_in_flight 3\n".to_owned());
    let serving = tokio::spawn(serve(listener, render, async move { stopped.await.unwrap() }));
    Served { address, stop, serving }
}

impl Served {
    async fn connection(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends this and reads until the end; what was read before a reset counts too.
    async fn ask(&self, request: &[u8]) -> String {
        let mut connection = self.connection().await;
        // The server may refuse before it has read all.
        let _ = connection.write_all(request).await;
        read_to_end(&mut connection).await
    }
}

async fn read_to_end(connection: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = connection.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn metrics_are_served_as_text_of_version_0_0_4() {
    let answer = served().await.ask(&get("/metrics")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\npunctual_runs_in_flight 3\n"), "{answer}");
    let answer = served().await.ask(&get("/metrics?name=x")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn all_else_is_told_what_there_is() {
    let served = served().await;
    for (request, status, text) in [
        (get("/healthz"), "200 OK", "\r\n\r\nok\n"),
        (get("/"), "404 Not Found", "/metrics"),
        (get("/metrics/"), "404 Not Found", "/metrics"),
        (get("/../etc/passwd"), "404 Not Found", "/metrics"),
        (b"POST /metrics HTTP/1.1\r\nhost: here\r\ncontent-length: 2\r\n\r\n{}".to_vec(), "405", "\r\nallow: GET\r\n"),
        (b"DELETE /healthz HTTP/1.1\r\nhost: here\r\n\r\n".to_vec(), "405", "\r\nallow: GET\r\n"),
        (b"POST /else HTTP/1.1\r\nhost: here\r\ncontent-length: 0\r\n\r\n".to_vec(), "404", ""),
        (b"what is this\r\n\r\n".to_vec(), "400", ""),
    ] {
        let answer = served.ask(&request).await;
        let asked = String::from_utf8_lossy(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text), "{asked}: {answer}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = served().await;
    let large = format!("GET /metrics HTTP/1.1\r\nhost: here\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /metrics HTTP/1.1\r\nhost: here\r\n{}\r\n", "x: 1\r\n".repeat(1_000));
    for request in [large, many] {
        let answer = served.ask(request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert!(served.ask(&get("/healthz")).await.contains("ok"));
}

#[tokio::test(start_paused = true)]
async fn whoever_sends_no_whole_head_is_let_go_of() {
    let served = served().await;
    let mut slow = served.connection().await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\nhost: h").await.unwrap();
    let answer = tokio::time::timeout(HEAD_TIME * 2, read_to_end(&mut slow)).await.unwrap();
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn many_slow_callers_keep_nobody_out_for_long() {
    let served = served().await;
    let mut slow = Vec::new();
    for _ in 0..3 * MOST_CONNECTIONS {
        let mut connection = served.connection().await;
        connection.write_all(b"GET /metr").await.unwrap();
        slow.push(connection);
    }
    let asked = tokio::time::timeout(HEAD_TIME * 8, served.ask(&get("/healthz"))).await.unwrap();
    assert!(asked.contains("ok"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_read_the_answer_is_let_go_of() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // More than the kernel keeps for a reader who does not read.
    let render: Render = Arc::new(|| "a".repeat(64 << 20));
    let accepted = tokio::spawn(async move { listener.accept().await.unwrap().0 });
    let mut lazy = TcpStream::connect(address).await.unwrap();
    lazy.write_all(&get("/metrics")).await.unwrap();
    let stream = accepted.await.unwrap();
    tokio::time::timeout(CONNECTION_TIME * 2, serve_connection(stream, render)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_nobody_for_long() {
    let served = served().await;
    let mut idle = served.connection().await;
    idle.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    assert!(served.ask(&get("/healthz")).await.contains("ok"));
    let Served { address, stop, serving } = served;
    stop.send(()).unwrap();
    tokio::time::timeout(GRACE * 2, serving).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

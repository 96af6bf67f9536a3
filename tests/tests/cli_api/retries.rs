//! What a command does when the API answers badly, or not at all.

use super::{PROGRAM, text};
use punctual_localstack::multicall::SCHEDULER;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const JOB: &str = r#"{"id": "c-1/bill", "tenant": "bank", "state": "active", "version": 2, "next_due_at": null,
    "schedule": {"cron": "0 9 * * *"}, "payload": {"handler": "noop"}}"#;
const CHANGED: &str = r#"{"status": 412, "title": "changed", "detail": "the job has version 2 by now"}"#;
const GONE: &str = r#"{"status": 404, "title": "missing", "detail": "there is no job c-1/bill"}"#;
const UNAVAILABLE: &str = r#"{"status": 503, "title": "unavailable", "detail": "the store does not answer"}"#;

/// What becomes of a request.
#[derive(Clone, Copy)]
enum Fate {
    /// It is answered.
    Answered(u16, &'static str),
    /// It is read, and the connection closed.
    Lost,
}

/// Reads a request to its end; returns its first line.
async fn read_request(socket: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let read = socket.read_buf(&mut bytes).await?;
        let request = text(&bytes);
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
        if body.len() >= head.lines().find_map(length).unwrap_or(0) || read == 0 {
            return Ok(head.lines().next().unwrap_or_default().to_owned());
        }
    }
}

async fn serve(listener: TcpListener, fates: &'static [Fate], asked: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    loop {
        let (mut socket, _) = listener.accept().await?;
        let request = read_request(&mut socket).await?;
        let fate = {
            let mut asked = asked.lock().expect("nobody panics here");
            asked.push(request);
            fates.get(asked.len() - 1).copied()
        };
        if let Some(Fate::Answered(status, body)) = fate {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            socket.write_all(format!("{head}{body}").as_bytes()).await?;
            socket.shutdown().await?;
        }
    }
}

/// Runs a command against a server that does this with its requests, one after the other; returns its code, what it says,
/// and the requests.
async fn against(fates: &'static [Fate], words: &str) -> anyhow::Result<(Option<i32>, String, Vec<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let asked = Arc::new(Mutex::default());
    let server = tokio::spawn(serve(listener, fates, asked.clone()));
    let mut command = Command::new(PROGRAM);
    command.arg(SCHEDULER).args(words.split(' ')).kill_on_drop(true);
    command.env("PUNCTUAL_API_URL", url).env("PUNCTUAL_API_KEY", "punctual_x");
    let output = command.output().await?;
    server.abort();
    let asked = asked.lock().expect("nobody panics here").clone();
    Ok((output.status.code(), text(&output.stdout) + &text(&output.stderr), asked))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_repeat_does_not_do_twice_is_asked_again() -> anyhow::Result<()> {
    use Fate::{Answered, Lost};
    // It looks first how the job is, and then changes it.
    let fates = &[
        Answered(503, UNAVAILABLE),
        Lost,
        Answered(429, UNAVAILABLE),
        Answered(200, JOB),
        Answered(503, UNAVAILABLE),
        Lost,
        Answered(200, JOB),
    ];
    let (code, said, asked) = against(fates, "jobs pause c-1/bill").await?;
    assert_eq!((code, asked.len()), (Some(0), 7), "{said}: {asked:?}");
    let (code, said, asked) = against(&[Answered(503, UNAVAILABLE); 9], "jobs pause c-1/bill").await?;
    assert_eq!((code, asked.len()), (Some(1), 5), "{said}: {asked:?}");
    assert!(said.contains("the store does not answer"), "{said}");
    let (code, said, asked) = against(&[Answered(502, "<html>"), Answered(200, JOB)], "jobs pause c-1/bill").await?;
    assert_eq!((code, asked.len()), (Some(1), 1), "{said}: {asked:?}");
    assert!(said.contains("PUNCTUAL_API_URL"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_repeat_may_do_twice_is_asked_once_and_the_doubt_is_told() -> anyhow::Result<()> {
    use Fate::{Answered, Lost};
    // A repeat of what was done would be refused for the version that it made.
    let lost = &[Answered(200, JOB), Lost, Answered(200, JOB)];
    let unavailable = &[Answered(200, JOB), Answered(503, UNAVAILABLE), Answered(200, JOB)];
    for (fates, expected) in [(lost, "nobody knows whether it was done"), (unavailable, "the store does not answer")] {
        let (code, said, asked) = against(fates, "jobs pause c-1/bill --if-version 2").await?;
        assert_eq!((code, asked.len()), (Some(1), 2), "{said}: {asked:?}");
        assert!(said.contains(expected), "{said}");
    }
    // An edit is asked again; the refusal may then be its own work.
    let edit = "jobs edit c-1/bill --name x --if-version 1";
    let (code, said, asked) = against(&[Answered(200, JOB), Lost, Answered(412, CHANGED)], edit).await?;
    assert_eq!((code, asked.len()), (Some(1), 3), "{said}: {asked:?}");
    assert!(said.contains("may be its own work"), "{said}");
    let (code, said, asked) = against(&[Lost, Answered(404, GONE)], "jobs delete c-1/bill").await?;
    assert_eq!((code, asked.len()), (Some(1), 2), "{said}: {asked:?}");
    assert!(said.contains("may be its own work"), "{said}");
    let (code, said, _) = against(&[Answered(200, JOB), Answered(412, CHANGED)], edit).await?;
    assert!(code == Some(1) && !said.contains("its own work"), "{said}");
    Ok(())
}

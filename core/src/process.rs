//! What every process of Punctual does at its edges: logs, ids, the signal to stop, and how it ends.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// All went well.
pub const EXIT_OK: u8 = 0;
/// Something failed that may work at another time.
pub const EXIT_FAILED: u8 = 1;
/// The input is wrong; nothing was done.
pub const EXIT_BAD_INPUT: u8 = 2;

/// Sends logs to standard error: compact for a terminal, JSON with `PUNCTUAL_LOG_FORMAT=json`. `PUNCTUAL_LOG` filters,
/// otherwise `default_filter` does, with the SDK's search for settings held at ERROR: what it does not find, we say in
/// one line of our own. Foreign crates are held at INFO whatever the filter says: below that some of them
/// print what they send, phone numbers included. Does nothing if logs are already set up.
pub fn init_logs(default_filter: &str) {
    use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
    use tracing_subscriber::prelude::*;
    let chosen = EnvFilter::try_from_env("PUNCTUAL_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{default_filter},aws_config=error")));
    let discreet = filter_fn(|event| event.target().starts_with("punctual") || *event.level() <= tracing::Level::INFO);
    let filter = chosen.and(discreet);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    let is_json = std::env::var("PUNCTUAL_LOG_FORMAT").is_ok_and(|format| format == "json");
    // An error means that a subscriber is there already, as in tests that run two services in one process.
    let _ = if is_json {
        let lines = lines.json().flatten_event(true).with_span_list(false);
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
    } else {
        tracing_subscriber::registry().with(lines.compact().with_filter(filter)).try_init()
    };
}

/// Prints a text and a line end to standard output, or nothing if it is empty. A reader who has seen enough and is gone,
/// as in `| head -1`, is no failure.
///
/// # Errors
/// When standard output cannot be written otherwise.
pub fn print_line(text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A fresh random token of 96 bits, as text.
pub fn random_token() -> String {
    let bytes: [u8; 12] = rand::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// An id for one process start: what it is, and a random part that no other start shares.
pub fn process_id(kind: &str) -> String {
    format!("{kind}-{:08x}", rand::random::<u32>())
}

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// When the signals cannot be listened for.
pub async fn stop_signal() -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Prints an error with its causes on one line and returns the exit code for it.
pub fn fail(program: &str, error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("{program}: {line}");
    ExitCode::from(code)
}

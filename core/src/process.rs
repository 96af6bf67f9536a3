//! What every process of Punctual does at its edges: logs, ids, the time, the signal to stop, and how it ends.

mod log_writer;
mod random;
#[cfg(test)]
mod tests;

pub(crate) use log_writer::tell_lost;
#[cfg(feature = "test-util")]
pub use random::{forget_seed, seed};
pub use random::{process_id, random_fraction, random_number, random_token};

use crate::clock::{Clock, Standing};
use crate::ports::Control;
use chrono::TimeDelta;
use log_writer::LogWriter;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// All went well.
pub const EXIT_OK: u8 = 0;
/// Something failed that may work at another time.
pub const EXIT_FAILED: u8 = 1;
/// The input is wrong; nothing was done.
pub const EXIT_BAD_INPUT: u8 = 2;
/// Done in part: some of what was given was refused.
pub const EXIT_PARTLY: u8 = 3;

/// Sends logs to standard error: compact for a terminal, JSON with `PUNCTUAL_LOG_FORMAT=json`. `PUNCTUAL_LOG` filters,
/// otherwise `default_filter` does, with the SDK's search for settings held at ERROR: what it does not find, we say in
/// one line of our own. Foreign crates are held at INFO whatever the filter says: below that some of them
/// print what they send, phone numbers included. What cannot be written, on a full disk or to a reader that is gone or
/// stands still, is lost and counted, and nothing stops for it. Does nothing if logs are already set up.
pub fn init_logs(default_filter: &str) {
    use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
    use tracing_subscriber::prelude::*;
    let chosen = EnvFilter::try_from_env("PUNCTUAL_LOG")
        .unwrap_or_else(|_| EnvFilter::new(format!("{default_filter},aws_config=error")));
    let discreet = filter_fn(|event| event.target().starts_with("punctual") || *event.level() <= tracing::Level::INFO);
    let filter = chosen.and(discreet);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(LogWriter::to_standard_error())
        .with_target(false)
        .with_ansi(false);
    // It would be told on standard error, which just failed, and by a macro that panics then.
    let lines = lines.log_internal_errors(false);
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

/// Tells people when work stops because the host's clock is off, and when it goes on: once each.
pub struct ClockWatch {
    what_stops: &'static str,
    told: bool,
}

impl ClockWatch {
    /// A watch that says what stops.
    pub fn new(what_stops: &'static str) -> Self {
        ClockWatch { what_stops, told: false }
    }

    /// Looks at the clock; returns the host's offset, if the store's time is known.
    pub fn look(&mut self, clock: &dyn Clock) -> Option<TimeDelta> {
        let checked = clock.check();
        match &checked {
            Err(off) if !self.told => tracing::error!(%off, "{}", self.what_stops),
            Ok(()) if self.told => tracing::info!("the host's clock is right: work goes on"),
            _ => {}
        }
        self.told = checked.is_err();
        match clock.standing() {
            Standing::Anchored { offset } | Standing::Off { offset } => Some(offset),
            Standing::Unanchored => None,
        }
    }
}

/// The store is asked once a second until its time is known as exactly as this, or no better: the answers' way takes time.
const EXACT_ENOUGH: Duration = Duration::from_millis(10);
/// Answers in a row that told nothing new: more questions tell no more.
const ENOUGH: u32 = 3;
/// Then this long not at all; what is known gets looser by 30 ms meanwhile. Whole seconds.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The same while nothing may be written or fired by the clock.
const ASK_EVERY_WHEN_OFF: Duration = Duration::from_secs(5);

/// Asks the store for its time, for ever, each time at the moment whose answer halves what is unknown. So a few seconds
/// after its start a process knows the time to its round trip, and one that has nothing to do keeps knowing it. What the
/// answers say is heard by `clock`, not here.
pub async fn keep_time(clock: &dyn Clock, control: &dyn Control) {
    let mut told_nothing = 0;
    loop {
        let before = clock.reading().map(|reading| reading.exact_to());
        if before.is_none() && clock.standing() != Standing::Unanchored {
            // A clock that is itself the time of its world needs no answers.
            return std::future::pending().await;
        }
        if let Err(error) = control.shards().await {
            tracing::debug!(class = error.class(), %error, "the store could not be asked for its time");
        }
        let after = clock.reading();
        let exact_to = after.map(|reading| reading.exact_to());
        let improved = exact_to.is_some_and(|now| before.is_none_or(|before| now * 10 < before * 9));
        told_nothing = if improved { 0 } else { told_nothing + 1 };
        let is_enough = told_nothing == ENOUGH || exact_to.is_none_or(|now| now <= EXACT_ENOUGH);
        let pause = match (is_enough, clock.check()) {
            (false, _) => Duration::ZERO,
            (true, Ok(())) => ASK_EVERY,
            (true, Err(_)) => ASK_EVERY_WHEN_OFF,
        };
        if is_enough {
            told_nothing = 0;
        }
        tokio::time::sleep(pause + after.map(|reading| reading.until_best_asked()).unwrap_or_default()).await;
    }
}

/// Waits for SIGTERM or SIGINT.
///
/// # Errors
/// When the signals cannot be listened for.
pub async fn stop_signal() -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        biased;
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

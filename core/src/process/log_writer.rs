//! Lines of the log on their way to standard error, whose reader may stand still: a terminal stopped by Ctrl-S, a pipe that
//! nobody empties, a container's log driver. Whoever logs goes on all the same, and what could not be written is counted.
//!
//! The first piece of an event is written if that is possible at once. A line that is begun is waited for, though not for
//! long. Nothing here ever logs, or panics.

#[cfg(test)]
mod tests;

use crate::clock::{Clock, SystemClock};
use crate::telemetry::table::LOG_LINES_LOST;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that a pipe takes whole or not at all (PIPE_BUF), and for which there is room where it says that it can be written.
const PIECE: usize = 4_096;
/// How long the rest of an event is waited for in all, once its beginning is written.
const PATIENCE: Duration = Duration::from_millis(50);

/// Events of this process that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Tells how many lines were lost, those before there was an exporter included.
pub(crate) fn tell_lost() {
    LOG_LINES_LOST.counter(&[]).absolute(LOST.load(Relaxed));
}

/// What the layer that formats events writes to. One event is written at a time.
pub(super) struct LogWriter<O> {
    lines: Mutex<Lines<O>>,
}

impl LogWriter<Outlet> {
    pub(super) fn to_standard_error() -> Self {
        LogWriter::new(Outlet::to(io::stderr()))
    }
}

impl<O: Out> LogWriter<O> {
    fn new(out: O) -> Self {
        LogWriter { lines: Mutex::new(Lines { out, is_cut: false }) }
    }

    /// Writes an event; whether all of it was written.
    fn log(&self, event: &[u8]) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).write(event)
    }
}

impl<'a, O: Out + 'a> MakeWriter<'a> for LogWriter<O> {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Takes one event a write, as the layer gives them.
impl<O: Out> Write for &LogWriter<O> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if !self.log(event) {
            LOST.fetch_add(1, Relaxed);
            tell_lost();
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where lines go.
pub(super) trait Out {
    /// Waits until something can be written, for so long at most. How long that took; none if it still cannot.
    fn wait(&mut self, at_most: Duration) -> Option<Duration>;

    /// Writes what can be written of a piece.
    fn put(&mut self, piece: &[u8]) -> io::Result<usize>;
}

/// Decides what becomes of an event: written whole, in part, or not.
struct Lines<O> {
    out: O,
    /// The last line that was begun lacks its end.
    is_cut: bool,
}

impl<O: Out> Lines<O> {
    /// Writes an event; whether all of it was written.
    fn write(&mut self, event: &[u8]) -> bool {
        let text = if self.is_cut { Cow::Owned([b"\n", event].concat()) } else { Cow::Borrowed(event) };
        let (mut written, mut patience) = (0, PATIENCE);
        while written < text.len() {
            // Else each event would wait in vain again while the reader stands still.
            let at_most = if written == 0 { Duration::ZERO } else { patience };
            let Some(waited) = self.out.wait(at_most) else { break };
            patience = patience.saturating_sub(waited);
            match self.out.put(&text[written..text.len().min(written + PIECE)]) {
                Ok(0) => break,
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let is_whole = written == text.len();
        if written > 0 {
            self.is_cut = !is_whole;
        }
        is_whole
    }
}

/// A descriptor that lines are written to.
pub(super) struct Outlet {
    out: Box<dyn AsFd + Send>,
    clock: SystemClock,
}

impl Outlet {
    fn to(shared: impl AsFd + Send + 'static) -> Self {
        // Without a way of its own a write waits in the worst case: where another process fills the same pipe after this one
        // was told that there is room, or a terminal has room for less than it is given.
        let out: Box<dyn AsFd + Send> = match own_way(&shared) {
            Some(own) => Box::new(own),
            None => Box::new(shared),
        };
        Outlet { out, clock: SystemClock::new() }
    }
}

/// The same pipe or terminal, opened once more so that writes to it never wait. To set that on `shared` itself would set it
/// for every process that has it too. None for all else, which is opened at another place or not at all, and where the
/// system does not let it.
fn own_way(shared: &impl AsFd) -> Option<OwnedFd> {
    let shared = shared.as_fd();
    let is_pipe = fstat(shared).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    if !is_pipe && !shared.is_terminal() {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(format!("/proc/self/fd/{}", shared.as_raw_fd()), flags, Mode::empty()).ok()
}

impl Out for Outlet {
    fn wait(&mut self, at_most: Duration) -> Option<Duration> {
        let began = self.clock.monotonic();
        loop {
            let waited = self.clock.monotonic().saturating_sub(began);
            let timeout = Timespec::try_from(at_most.saturating_sub(waited)).ok()?;
            match poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], Some(&timeout)) {
                Ok(0) => return None,
                // Also where it is broken, or cannot be asked: the write says so.
                Ok(_) => return Some(self.clock.monotonic().saturating_sub(began)),
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    fn put(&mut self, piece: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.out, piece)?)
    }
}

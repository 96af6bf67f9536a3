//! The thread that writes lines: a full disk or a pipe that nobody reads holds up this thread and nothing else.

use super::Emf;
use crate::telemetry::table::Service;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a flush is waited for.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// Behind a piece of a line.
const CUT_OFF: &[u8] = b" (cut off)\n";

struct Request {
    timestamp_ms: i64,
    done: oneshot::Sender<()>,
}

/// Asks the thread to write. The thread ends with it.
pub(in crate::telemetry) struct Flusher {
    requests: SyncSender<Request>,
}

impl Flusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(in crate::telemetry) fn start(
        emf: Emf,
        service: Service,
        out: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, asked) = sync_channel(1);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || write_when_asked(&emf, service, out, &asked))?;
        Ok(Flusher { requests })
    }

    /// Has all that is to be told written, and waits for that, though not for long. Nothing is lost if it takes longer: it
    /// is written when that is possible, or told by a later flush.
    pub(in crate::telemetry) async fn flush(&self, timestamp_ms: i64) {
        let (done, written) = oneshot::channel();
        // With a flush that waits already, this one would tell the same.
        if self.requests.try_send(Request { timestamp_ms, done }).is_ok() {
            let _ = tokio::time::timeout(FLUSH_TIME, written).await;
        }
    }
}

fn write_when_asked(emf: &Emf, service: Service, out: impl Write, asked: &Receiver<Request>) {
    let mut lines = Lines { out, is_broken: false };
    let mut fails = false;
    while let Ok(request) = asked.recv() {
        match emf.flush(service, request.timestamp_ms, &mut lines) {
            Err(error) if !fails => {
                tracing::warn!(%error, "metrics cannot be written to standard output; they are kept until they can");
                fails = true;
            }
            Ok(()) if fails => {
                tracing::info!("metrics are written again");
                fails = false;
            }
            Ok(()) | Err(_) => {}
        }
        // Whoever asked may have given up.
        let _ = request.done.send(());
    }
}

/// A write that fails may leave a piece of a line behind, or all of it but its end. Its figures are told again, so it is
/// made no event before the next line begins.
pub(super) struct Lines<W> {
    pub(super) out: W,
    pub(super) is_broken: bool,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_broken {
            self.out.write_all(CUT_OFF)?;
            self.is_broken = false;
        }
        let written = self.out.write(bytes);
        self.is_broken = match &written {
            Ok(n) => *n == 0,
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

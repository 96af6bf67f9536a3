//! What the processes of a test log.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

/// What was logged in this thread since [`Logs::keep`]: one line an event, its level first.
pub struct Logs {
    kept: Kept,
    _guard: DefaultGuard,
}

/// A second listener, for as long as the process lives. While there is only one, an event that another thread, without a
/// listener, is the first to reach is taken for one that nobody wants to hear.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Keeps what is logged in this thread from INFO on, until it is dropped.
    pub fn keep() -> Self {
        Self::keep_from(Level::INFO)
    }

    /// Keeps what is logged in this thread from this level on, until it is dropped.
    pub fn keep_from(level: Level) -> Self {
        LazyLock::force(&ANOTHER);
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(kept.clone());
        let lines = lines.without_time().with_ansi(false);
        let _guard = tracing::subscriber::set_default(lines.finish());
        Logs { kept, _guard }
    }

    /// The lines of one level, in order.
    pub fn of(&self, level: Level) -> Vec<String> {
        let kept = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).into_owned();
        let is_of_level = |line: &&str| line.trim_start().starts_with(level.as_str());
        text.lines().filter(is_of_level).map(str::to_owned).collect()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

//! Whether the worker gets anywhere. A process that is up and does nothing is worse than one that is gone: nobody starts it
//! again.
//!
//! Each of its loops says when it begins something that has to end within a time, and when that has ended. What is overdue
//! ends the worker; and while nothing is, a file says so for a health check from outside, which notices also when the whole
//! process stands still. How long a call or the record of an outcome takes is not judged here: an outage of the store is
//! no reason to throw away what is known.

use punctual_core::clock::Clock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file older than this says that the worker stands still.
pub const STALE: Duration = Duration::from_secs(30);

/// What the worker's loops are at.
pub struct Alive {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// Looks so far. Time is counted in looks: a process that stood still as a whole is not to blame for what that took.
    looks: u32,
    under_way: BTreeMap<u64, (&'static str, u32)>,
}

/// Something that has to end in time; it has when this is dropped.
pub struct UnderWay<'a> {
    alive: &'a Alive,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.alive.lock().under_way.remove(&self.number);
    }
}

impl Alive {
    /// Nothing is under way.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Alive { clock, state: Mutex::default() }
    }

    /// From now on `what` is under way and has to end within `time`.
    pub fn begin(&self, what: &'static str, time: Duration) -> UnderWay<'_> {
        let mut state = self.lock();
        state.last += 1;
        let (number, due) = (state.last, state.looks + time.div_duration_f64(LOOK_EVERY).ceil() as u32);
        state.under_way.insert(number, (what, due));
        UnderWay { alive: self, number }
    }

    /// Looks once more, and says what should have ended by now.
    fn look(&self) -> Option<&'static str> {
        let mut state = self.lock();
        state.looks += 1;
        state.under_way.values().find(|(_, due)| *due < state.looks).map(|(what, _)| *what)
    }

    /// Returns as soon as something is overdue, and says what. Until then it keeps `file` fresh, if one is given.
    pub async fn watch(&self, file: Option<&Path>) -> &'static str {
        loop {
            if let Some(what) = self.look() {
                return what;
            }
            if let Some(file) = file
                && let Err(error) = write(file, self.clock.boottime())
            {
                tracing::warn!(%error, "the file for the health check cannot be written");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the file beside, and puts it in place whole: whoever reads it never finds half of it. A few bytes a second are not
/// worth a thread of their own.
fn write(file: &Path, now: Duration) -> std::io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, now.as_millis().to_string())?;
    std::fs::rename(&beside, file)
}

/// Whether the worker that keeps `file` gets anywhere, by a clock of the same host.
///
/// # Errors
/// Says what is wrong.
pub fn check(file: &Path, clock: &dyn Clock) -> Result<(), String> {
    let shown = std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let written_ms = shown.trim().parse().map_err(|_| format!("{} is no file of a worker", file.display()))?;
    // Ahead of the clock: written before the host was started anew.
    let age = clock.boottime().checked_sub(Duration::from_millis(written_ms)).unwrap_or(Duration::MAX);
    if age < STALE {
        return Ok(());
    }
    Err(format!("the worker has not said for {} s that it gets anywhere", age.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::clock::TokioClock;

    fn clock() -> Arc<dyn Clock> {
        Arc::new(TokioClock::new(chrono::DateTime::UNIX_EPOCH))
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_does_not_end_in_time_is_overdue() {
        let alive = Alive::new(clock());
        drop(alive.begin("a receive", Duration::from_secs(5)));
        let _slow = alive.begin("a heartbeat", Duration::from_secs(60));
        assert!(tokio::time::timeout(Duration::from_secs(50), alive.watch(None)).await.is_err());
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(alive.look().is_none(), "nobody looked meanwhile: all stood still");
        assert_eq!(alive.watch(None).await, "a heartbeat");
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_fresh_while_the_worker_gets_somewhere_and_goes_stale_when_it_does_not() {
        let (clock, folder) = (clock(), tempfile::tempdir().unwrap());
        let file = folder.path().join("alive");
        assert!(check(&file, &*clock).unwrap_err().contains("cannot be read"));
        let alive = Alive::new(clock.clone());
        let watch = tokio::time::timeout(Duration::from_secs(10), alive.watch(Some(&file)));
        assert!(watch.await.is_err(), "nothing is overdue");
        assert_eq!(check(&file, &*clock), Ok(()));
        tokio::time::sleep(STALE).await;
        assert!(check(&file, &*clock).unwrap_err().contains("gets anywhere"));
        std::fs::write(&file, "soon").unwrap();
        assert!(check(&file, &*clock).unwrap_err().contains("no file of a worker"));
    }
}

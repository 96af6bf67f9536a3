//! What Lambda does for a function: it receives batches, hands them in, and deletes what the function reports as done.

use punctual_core::clock::Clock;
use punctual_core::ports::{BATCH, LONGEST_WAIT, RunQueue};
use punctual_core::priority::Priority;
use punctual_worker::lambda::Function;
use punctual_worker::rate::Sharing;
use punctual_worker::service::Equipment;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The function's timeout, as Lambda is told.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The most environments at once, so that each has a fixed part of every limit.
pub const CONCURRENCY: Sharing = Sharing::Static(NonZeroU32::new(3).expect("not zero"));
/// For how long the mapping hides a batch: far longer than the function may take.
pub const VISIBILITY: Duration = Duration::from_secs(120);

/// What Lambda deletes: made of the receipts that were handed in, and of those that the function reports as done.
pub type Deletes = Arc<dyn Fn(&[String], BTreeSet<String>) -> BTreeSet<String> + Send + Sync>;

/// As Lambda does: what is done.
pub fn what_is_done() -> Deletes {
    Arc::new(|_, done| done)
}

/// Invokes one environment of the function for each of the queues in turn, for ever. `queue` is Lambda's own view of the
/// queues: nothing that goes wrong in the function's process touches it.
pub async fn invoke_for_ever(
    queue: Arc<dyn RunQueue>,
    clock: Arc<dyn Clock>,
    mut equipment: Equipment,
    deletes: Deletes,
) {
    equipment.settings.sharing = CONCURRENCY;
    let function = Function::new(equipment);
    loop {
        let mut is_idle = true;
        for priority in Priority::ALL {
            let batch = queue.receive(priority, BATCH, Duration::ZERO, VISIBILITY).await.unwrap_or_default();
            if batch.is_empty() {
                continue;
            }
            is_idle = false;
            let handed_in: Vec<String> = batch.iter().map(|delivery| delivery.receipt.clone()).collect();
            let invoked_at = clock.monotonic();
            let invocation = function.work(batch, TIMEOUT);
            // Whatever has not answered by then is ended.
            let done = tokio::time::timeout(TIMEOUT, invocation).await.unwrap_or_default();
            assert!(clock.monotonic() - invoked_at <= TIMEOUT);
            let deleted: Vec<String> = deletes(&handed_in, done).into_iter().collect();
            for some in deleted.chunks(BATCH) {
                // A delete that fails means that the message comes again.
                let _ = queue.delete(priority, some).await;
            }
        }
        if is_idle {
            tokio::time::sleep(LONGEST_WAIT / 100).await;
        }
    }
}

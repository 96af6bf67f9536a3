//! What stands at a moment, told again and again: runs in flight, shares, circuits, holds. Nothing goes by it.

use crate::metrics::Standing;
use crate::pipeline::Context;
use std::time::Duration;

/// Time between two looks: below that of whoever collects.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Tells it for ever.
pub(crate) async fn keep(context: &Context) {
    loop {
        tell(context);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Tells it once.
pub(crate) fn tell(context: &Context) {
    context.metrics.set(&Standing {
        holds: context.steered.current().map(|steering| steering.holds.len()),
        shares: context.permits.held(),
        circuits: context.slots.open_circuits(),
    });
}

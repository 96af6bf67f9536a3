//! What a [`Control`](crate::ports::Control) must do.

use crate::due::Shards;
use crate::ports::Ports;

/// Whoever comes later gets the counts in force.
pub async fn shard_counts_are_set_once(ports: &Ports) {
    let before = ports.control.shards().await.expect("the shard counts can be read");
    let first = Shards { urgent: 2, standard: 5 };
    let in_force = ports.control.init_shards(first).await.expect("the shard counts can be set");
    assert_eq!(in_force, before.unwrap_or(first));
    for later in [first, Shards { urgent: 8, standard: 24 }] {
        assert_eq!(ports.control.init_shards(later).await, Ok(in_force));
        assert_eq!(ports.control.shards().await, Ok(Some(in_force)));
    }
}

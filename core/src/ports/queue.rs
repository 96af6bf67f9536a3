//! Step 4: the priority queues, whose messages are leases, and the dead letters.

use super::PortResult;
use crate::error::PortError;
use crate::lease::LONGEST_HOLD;
use crate::message::DeadLetter;
use crate::priority::Priority;
use async_trait::async_trait;
use std::time::Duration;

/// The longest time for which one receive waits.
pub const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The longest time for which a sent message can be kept back.
pub const LONGEST_DELAY: Duration = Duration::from_secs(900);

/// The most messages that one call sends, receives, extends or deletes.
pub const BATCH: usize = 10;

/// The longest body of a message; ten of them fit into one call.
pub const LONGEST_BODY_BYTES: usize = 25_000;

/// One queue per priority, and the dead letters. Adapters check AWS's limits themselves: emulators do not.
#[async_trait]
pub trait RunQueue: Send + Sync {
    /// Sends up to ten bodies that become visible after `delay`, which is cut to whole seconds; the answer has one result
    /// per body, in order.
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>>;

    /// Sends up to ten bodies that are visible at once.
    async fn send(&self, priority: Priority, bodies: &[String]) -> PortResult<Vec<SendResult>> {
        self.send_after(priority, bodies, Duration::ZERO).await
    }

    /// Takes up to `max` messages (ten if it is more), waiting up to `wait` (20 s if it is more) for the first. Each stays invisible to others for
    /// `visibility`.
    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>>;

    /// Sets for how long up to ten held messages stay invisible from now on. One result per receipt, in order.
    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>>;

    /// Deletes up to ten messages. One result per receipt, in order.
    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>>;

    /// Adds a dead letter.
    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()>;

    /// How many messages wait, roughly.
    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth>;
}

/// What SQS takes as a body: length, and the characters of its API reference.
///
/// # Errors
/// Permanent; names the limit that is broken, never the body.
pub fn check_body(body: &str) -> SendResult {
    if body.is_empty() || body.len() > LONGEST_BODY_BYTES {
        return Err(PortError::Permanent(format!(
            "a body of {} bytes cannot be sent: 1-{LONGEST_BODY_BYTES} are allowed",
            body.len()
        )));
    }
    // `char` rules out the surrogates.
    let taken = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    match body.chars().find(|c| !taken(*c)) {
        Some(c) => Err(PortError::Permanent(format!("a body cannot hold the character {}", c.escape_unicode()))),
        None => Ok(()),
    }
}

/// How many entries SQS takes in one call.
///
/// # Errors
/// Permanent; names the limit.
pub fn check_batch(entries: usize) -> SendResult {
    if entries > BATCH {
        return Err(PortError::Permanent(format!("{entries} entries in one call: at most {BATCH} are allowed")));
    }
    Ok(())
}

/// For how long SQS keeps a sent message back.
///
/// # Errors
/// Permanent; names the limit.
pub fn check_delay(delay: Duration) -> SendResult {
    if delay > LONGEST_DELAY {
        return Err(PortError::Permanent(format!(
            "a delay of {} s is too long: {} s are allowed",
            delay.as_secs(),
            LONGEST_DELAY.as_secs()
        )));
    }
    Ok(())
}

/// For how long SQS hides a message.
///
/// # Errors
/// Permanent; names the limit.
pub fn check_visibility(visibility: Duration) -> SendResult {
    if visibility > LONGEST_HOLD {
        return Err(PortError::Permanent(format!(
            "a visibility of {} s is too long: {} s are allowed",
            visibility.as_secs(),
            LONGEST_HOLD.as_secs()
        )));
    }
    Ok(())
}

/// What came of one entry of a batch.
pub type SendResult = Result<(), PortError>;

/// A message in a worker's hands.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which queue.
    pub priority: Priority,
    /// The handle of this very delivery.
    pub receipt: String,
    /// The body.
    pub body: String,
    /// How often it was received, this time included.
    pub receive_count: u32,
}

/// Never shows the receipt.
impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("priority", &self.priority)
            .field("receive_count", &self.receive_count)
            .finish()
    }
}

/// What a queue holds, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Ready to be received.
    pub visible: u64,
    /// In somebody's hands, or hidden.
    pub in_flight: u64,
    /// Sent with a delay that is not over.
    pub delayed: u64,
}

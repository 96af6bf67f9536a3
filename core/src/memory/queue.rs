//! The queues in memory, after SQS's standard queues.

use super::World;
use super::inspect::{Effect, Enqueued};
use crate::error::PortError;
use crate::lease::LONGEST_HOLD;
use crate::message::{DeadLetter, Message};
use crate::ports::{
    BATCH, Delivery, LONGEST_WAIT, PortResult, QueueDepth, RunQueue, SendResult, check_batch, check_body, check_delay,
    check_visibility,
};
use crate::priority::Priority;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

/// How long a message is kept: the most that SQS offers.
const RETENTION: Duration = Duration::from_secs(14 * 86_400);

#[derive(Default)]
pub(super) struct Queue {
    sent: u64,
    pub(super) messages: BTreeMap<u64, Stored>,
    // What becomes visible first comes first, and of that what was sent first.
    order: BTreeSet<(Duration, u64)>,
}

pub(super) struct Stored {
    pub(super) body: String,
    pub(super) visible_at: Duration,
    pub(super) receive_count: u32,
    sent_at: Duration,
    received_at: Duration,
}

/// A receipt names the message and which delivery of it: an older delivery's receipt is stale.
struct Receipt {
    number: u64,
    delivery: u32,
}

impl Receipt {
    fn text(&self, priority: Priority) -> String {
        format!("{priority}/{}/{}", self.number, self.delivery)
    }

    fn parse(text: &str, priority: Priority) -> Result<Receipt, PortError> {
        let parse = || {
            let (number, delivery) = text.strip_prefix(priority.as_str())?.strip_prefix('/')?.split_once('/')?;
            Some(Receipt { number: number.parse().ok()?, delivery: delivery.parse().ok()? })
        };
        parse().ok_or_else(|| PortError::Permanent(format!("the receipt is not of the {priority} queue")))
    }
}

impl Queue {
    fn send(&mut self, body: &str, now: Duration, visible_at: Duration) {
        let stored =
            Stored { body: body.to_owned(), visible_at, receive_count: 0, sent_at: now, received_at: Duration::ZERO };
        self.order.insert((visible_at, self.sent));
        self.messages.insert(self.sent, stored);
        self.sent += 1;
    }

    fn take(&mut self, priority: Priority, max: usize, visibility: Duration, now: Duration) -> Vec<Delivery> {
        let ready: Vec<u64> = self.order.range(..=(now, u64::MAX)).take(max).map(|(_, number)| *number).collect();
        let take = |number| {
            self.hide(number, now + visibility);
            let stored = self.messages.get_mut(&number).expect("the order names only messages that exist");
            stored.receive_count += 1;
            stored.received_at = now;
            let receipt = Receipt { number, delivery: stored.receive_count }.text(priority);
            Delivery { priority, receipt, body: stored.body.clone(), receive_count: stored.receive_count }
        };
        ready.into_iter().map(take).collect()
    }

    fn hide(&mut self, number: u64, until: Duration) {
        if let Some(stored) = self.messages.get_mut(&number) {
            self.order.remove(&(stored.visible_at, number));
            stored.visible_at = until;
            self.order.insert((until, number));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Stored> {
        let stored = self.messages.remove(&number)?;
        self.order.remove(&(stored.visible_at, number));
        Some(stored)
    }

    fn current(&self, receipt: &Receipt) -> Option<&Stored> {
        self.messages.get(&receipt.number).filter(|stored| stored.receive_count == receipt.delivery)
    }

    fn extend(&mut self, receipt: &Receipt, by: Duration, now: Duration) -> SendResult {
        let Some(stored) = self.current(receipt).filter(|stored| now < stored.visible_at) else {
            return Err(PortError::Permanent("the receipt is stale: its message is gone or no longer held".into()));
        };
        if now + by > stored.received_at + LONGEST_HOLD {
            return Err(PortError::Permanent(format!("held for more than {} s in all", LONGEST_HOLD.as_secs())));
        }
        self.hide(receipt.number, now + by);
        Ok(())
    }

    fn expire(&mut self, now: Duration) -> Vec<String> {
        let old = |(_, stored): &(&u64, &Stored)| now >= stored.sent_at + RETENTION;
        // Numbers rise with the time of sending.
        let numbers: Vec<u64> = self.messages.iter().take_while(old).map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove(number)).map(|stored| stored.body).collect()
    }
}

#[async_trait]
impl RunQueue for World {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        check_batch(bodies.len())?;
        check_delay(delay)?;
        let delay = Duration::from_secs(delay.as_secs());
        let (at, now) = (self.now(), self.monotonic());
        let mut state = self.state();
        let mut send = |body: &String| {
            check_body(body)?;
            state.queues[priority as usize].send(body, now, now + delay);
            let message = Message::decode(body).ok();
            state.record(at, Effect::Enqueued(Enqueued { priority, message, body: body.clone(), delay }));
            Ok(())
        };
        let results = bodies.iter().map(&mut send).collect();
        self.inner.arrivals[priority as usize].notify_waiters();
        Ok(results)
    }

    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        check_visibility(visibility)?;
        let max = max.clamp(1, BATCH);
        let give_up_at = self.monotonic() + wait.min(LONGEST_WAIT);
        loop {
            // Listens before it looks, so that nothing arrives unheard in between.
            let mut arrival = pin!(self.inner.arrivals[priority as usize].notified());
            arrival.as_mut().enable();
            let now = self.monotonic();
            let next_visible_at = {
                let at = self.now();
                let mut state = self.state();
                for body in state.queues[priority as usize].expire(now) {
                    state.record(at, Effect::Expired { body });
                }
                let queue = &mut state.queues[priority as usize];
                let taken = queue.take(priority, max, visibility, now);
                if !taken.is_empty() || now >= give_up_at {
                    return Ok(taken);
                }
                queue.order.first().map(|(visible_at, _)| *visible_at)
            };
            let look_at = next_visible_at.map_or(give_up_at, |visible_at| visible_at.min(give_up_at));
            tokio::select! {
                biased;
                () = arrival => {}
                () = tokio::time::sleep(look_at.saturating_sub(now)) => {}
            }
        }
    }

    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        check_batch(receipts.len())?;
        let now = self.monotonic();
        let mut state = self.state();
        let queue = &mut state.queues[priority as usize];
        let mut extend = |(receipt, by): &(String, Duration)| {
            check_visibility(*by)?;
            queue.extend(&Receipt::parse(receipt, priority)?, *by, now)
        };
        let results = receipts.iter().map(&mut extend).collect();
        self.inner.arrivals[priority as usize].notify_waiters();
        Ok(results)
    }

    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        check_batch(receipts.len())?;
        let mut state = self.state();
        let queue = &mut state.queues[priority as usize];
        let mut delete = |receipt: &String| {
            let receipt = Receipt::parse(receipt, priority)?;
            // A stale receipt is no error to SQS; it deletes nothing.
            if queue.current(&receipt).is_some() {
                queue.remove(receipt.number);
            }
            Ok(())
        };
        Ok(receipts.iter().map(&mut delete).collect())
    }

    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        let at = self.now();
        let mut state = self.state();
        state.dead_letters.push(letter.clone());
        state.record(at, Effect::DeadLetter { run_id: letter.run_id.clone() });
        Ok(())
    }

    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        let now = self.monotonic();
        let state = self.state();
        let queue = &state.queues[priority as usize];
        let visible = queue.order.range(..=(now, u64::MAX)).count() as u64;
        let is_delayed = |stored: &&Stored| stored.receive_count == 0 && stored.visible_at > now;
        let delayed = queue.messages.values().filter(is_delayed).count() as u64;
        Ok(QueueDepth { visible, in_flight: queue.messages.len() as u64 - visible - delayed, delayed })
    }
}

//! Step 4: the SQS queues. AWS's limits are checked here, because emulators accept what AWS refuses.

use super::client::long_poll_timeouts;
use super::error::{entry_error, queue_error};
use super::{Aws, Names};
use crate::error::PortError;
use crate::message::{DeadLetter, Message};
use crate::ports::{
    BATCH, Delivery, LONGEST_WAIT, PortResult, QueueDepth, RunQueue, SendResult, check_batch, check_body, check_delay,
    check_visibility,
};
use crate::priority::Priority;
use async_trait::async_trait;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry,
};
use std::time::Duration;
use tokio::sync::OnceCell;

pub(super) struct SqsQueue {
    client: aws_sdk_sqs::Client,
    names: Names,
    fair_queues: bool,
    urls: [OnceCell<String>; Priority::ALL.len()],
    dead_letters: OnceCell<String>,
}

impl SqsQueue {
    pub(super) fn new(aws: &Aws) -> Self {
        Self {
            client: aws.sqs.clone(),
            names: aws.names.clone(),
            fair_queues: aws.fair_queues,
            urls: Default::default(),
            dead_letters: OnceCell::new(),
        }
    }

    pub(super) async fn check(&self) -> PortResult<()> {
        for priority in Priority::ALL {
            self.url(priority).await?;
        }
        self.dead_letters_url().await.map(|_| ())
    }

    async fn url(&self, priority: Priority) -> PortResult<&str> {
        let name = self.names.queue(priority);
        self.urls[priority as usize].get_or_try_init(|| self.look_up(&name)).await.map(String::as_str)
    }

    async fn dead_letters_url(&self) -> PortResult<&str> {
        let name = self.names.dead_letters();
        self.dead_letters.get_or_try_init(|| self.look_up(&name)).await.map(String::as_str)
    }

    async fn look_up(&self, name: &str) -> PortResult<String> {
        let answer = self.client.get_queue_url().queue_name(name).send().await;
        let answer = answer.map_err(|e| queue_error(&format!("queue {name}"), e))?;
        answer.queue_url.ok_or_else(|| PortError::Temporary(format!("queue {name} was found without its address")))
    }
}

#[async_trait]
impl RunQueue for SqsQueue {
    async fn send_after(&self, priority: Priority, bodies: &[String], delay: Duration) -> PortResult<Vec<SendResult>> {
        let name = self.names.queue(priority);
        check_batch(bodies.len())?;
        check_delay(delay)?;
        let delay_s = i32::try_from(delay.as_secs()).expect("a delay is at most 900 s");
        let mut results: Vec<SendResult> = bodies.iter().map(|body| check_body(body)).collect();
        let entries = bodies.iter().enumerate().filter(|(i, _)| results[*i].is_ok()).map(|(i, body)| {
            let entry = SendMessageBatchRequestEntry::builder().id(i.to_string()).message_body(body);
            let group = self.fair_queues.then(|| group_of(body)).flatten();
            entry.delay_seconds(delay_s).set_message_group_id(group).build().expect("id and body are given")
        });
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return Ok(results);
        }
        let call = self.client.send_message_batch().queue_url(self.url(priority).await?).set_entries(Some(entries));
        let answer = call.send().await.map_err(|e| queue_error(&name, e))?;
        let accepted: Vec<&str> = answer.successful.iter().map(|entry| entry.id.as_str()).collect();
        settle(&name, &mut results, &accepted, &answer.failed);
        Ok(results)
    }

    async fn receive(
        &self,
        priority: Priority,
        max: usize,
        wait: Duration,
        visibility: Duration,
    ) -> PortResult<Vec<Delivery>> {
        let name = self.names.queue(priority);
        let wait = wait.min(LONGEST_WAIT);
        check_visibility(visibility)?;
        let call = self
            .client
            .receive_message()
            .queue_url(self.url(priority).await?)
            .max_number_of_messages(max.clamp(1, BATCH) as i32)
            .wait_time_seconds(wait.as_secs() as i32)
            .visibility_timeout(whole_seconds(visibility))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .customize()
            .config_override(aws_sdk_sqs::config::Builder::new().timeout_config(long_poll_timeouts(wait)));
        let answer = call.send().await.map_err(|e| queue_error(&name, e))?;
        let deliveries = answer.messages.unwrap_or_default().into_iter().filter_map(|message| {
            let count =
                message.attributes.as_ref().and_then(|a| a.get(&MessageSystemAttributeName::ApproximateReceiveCount));
            Some(Delivery {
                priority,
                receipt: message.receipt_handle?,
                body: message.body.unwrap_or_default(),
                receive_count: count.and_then(|n| n.parse().ok()).unwrap_or(1),
            })
        });
        Ok(deliveries.collect())
    }

    async fn extend(&self, priority: Priority, receipts: &[(String, Duration)]) -> PortResult<Vec<SendResult>> {
        let name = self.names.queue(priority);
        check_batch(receipts.len())?;
        let mut results: Vec<SendResult> = receipts.iter().map(|(_, v)| check_visibility(*v)).collect();
        let entries =
            receipts.iter().enumerate().filter(|(i, _)| results[*i].is_ok()).map(|(i, (receipt, visibility))| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(i.to_string())
                    .receipt_handle(receipt)
                    .visibility_timeout(whole_seconds(*visibility))
                    .build()
                    .expect("id and receipt are given")
            });
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return Ok(results);
        }
        let url = self.url(priority).await?;
        let call = self.client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
        let answer = call.send().await.map_err(|e| queue_error(&name, e))?;
        let accepted: Vec<&str> = answer.successful.iter().map(|entry| entry.id.as_str()).collect();
        settle(&name, &mut results, &accepted, &answer.failed);
        Ok(results)
    }

    async fn delete(&self, priority: Priority, receipts: &[String]) -> PortResult<Vec<SendResult>> {
        let name = self.names.queue(priority);
        check_batch(receipts.len())?;
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let entries = receipts.iter().enumerate().map(|(i, receipt)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(i.to_string()).receipt_handle(receipt).build();
            entry.expect("id and receipt are given")
        });
        let url = self.url(priority).await?;
        let call = self.client.delete_message_batch().queue_url(url).set_entries(Some(entries.collect()));
        let answer = call.send().await.map_err(|e| queue_error(&name, e))?;
        let accepted: Vec<&str> = answer.successful.iter().map(|entry| entry.id.as_str()).collect();
        let mut results = vec![Ok(()); receipts.len()];
        settle(&name, &mut results, &accepted, &answer.failed);
        Ok(results)
    }

    async fn send_dead_letter(&self, letter: &DeadLetter) -> PortResult<()> {
        let call = self.client.send_message().queue_url(self.dead_letters_url().await?).message_body(letter.encode());
        call.send().await.map(|_| ()).map_err(|e| queue_error(&self.names.dead_letters(), e))
    }

    async fn depth(&self, priority: Priority) -> PortResult<QueueDepth> {
        let name = self.names.queue(priority);
        let call = self
            .client
            .get_queue_attributes()
            .queue_url(self.url(priority).await?)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessages)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesDelayed);
        let answer = call.send().await.map_err(|e| queue_error(&name, e))?;
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name| attributes.get(&name).and_then(|n| n.parse().ok()).unwrap_or(0);
        Ok(QueueDepth {
            visible: count(QueueAttributeName::ApproximateNumberOfMessages),
            in_flight: count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
            delayed: count(QueueAttributeName::ApproximateNumberOfMessagesDelayed),
        })
    }
}

/// The group of a message in a fair queue: its tenant; none for a body that names no tenant here. A tenant's name is always
/// a group's: that may have 128 letters, digits and marks of punctuation.
fn group_of(body: &str) -> Option<String> {
    Message::decode(body).ok().map(|message| message.job_key.tenant().to_owned())
}

/// Only what the queue says it did is done: an entry that the answer does not name is unknown.
fn settle(name: &str, results: &mut [SendResult], accepted: &[&str], failed: &[BatchResultErrorEntry]) {
    for (i, result) in results.iter_mut().enumerate().filter(|(_, r)| r.is_ok()) {
        let id = i.to_string();
        if let Some(entry) = failed.iter().find(|entry| entry.id == id) {
            *result = Err(entry_error(name, entry));
        } else if !accepted.contains(&id.as_str()) {
            *result = Err(PortError::Unknown(format!("{name} did not say what came of an entry")));
        }
    }
}

/// SQS counts in seconds: a fraction is rounded up, so that nothing is shown before its time.
fn whole_seconds(time: Duration) -> i32 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobKey, check_tenant};
    use crate::message::MESSAGE_VERSION;
    use crate::run::RunKey;
    use chrono::DateTime;

    fn message_of(tenant: &str) -> Message {
        let at = DateTime::from_timestamp(1_791_170_000, 0).unwrap();
        Message {
            v: MESSAGE_VERSION,
            job_key: JobKey::new(tenant, "48213/bill").unwrap(),
            run_key: RunKey::scheduled(at),
            generation: 1,
            scheduled_at: at,
            due_at: at,
            first_enqueued_at: at,
            scheduler: "s".into(),
            trace: None,
        }
    }

    #[test]
    fn the_group_of_a_message_is_its_tenant_and_a_foreign_body_has_none() {
        assert_eq!(group_of(&message_of("bank").encode()).as_deref(), Some("bank"));
        let newer = message_of("bank").encode().replacen("\"v\":1", "\"v\":9", 1);
        for foreign in ["", "{}", "not json", newer.as_str()] {
            assert_eq!(group_of(foreign), None, "{foreign}");
        }
    }

    // MessageGroupId: 1 to 128 characters, letters, digits and !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ (Amazon SQS API Reference).
    #[test]
    fn every_tenants_name_can_be_a_group() {
        let of_length = |length| (0..=length).rev().find(|n| check_tenant(&"t".repeat(*n)).is_ok());
        assert!(of_length(1_000).is_some_and(|longest| longest <= 128));
        assert!(check_tenant("").is_err());
        let allowed = (0..=0x2ffu32).filter_map(char::from_u32).filter(|c| check_tenant(&c.to_string()).is_ok());
        assert!(allowed.into_iter().all(|c| c.is_ascii_alphanumeric() || c.is_ascii_punctuation()));
    }
}

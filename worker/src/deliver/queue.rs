//! The `queue` handler: the payload as a message on another SQS queue, at least once, as SQS itself promises.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{Builder, Region};
use aws_sdk_sqs::error::{ConnectorError, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::send_message::SendMessageError;
use aws_sdk_sqs::types::MessageAttributeValue;
use punctual_core::address::{AllowList, check_queue_url};
use punctual_core::aws::Names;
use punctual_core::ports::Call;
use punctual_core::priority::Priority;
use punctual_core::retry::Outcome;
use punctual_core::trace::TRACEPARENT;
use std::error::Error;

/// The attribute that holds the run's id: the same for every attempt.
const RUN_ID: &str = "punctual-run-id";

const THROTTLES: [&str; 5] =
    ["ThrottlingException", "Throttling", "RequestThrottled", "RequestLimitExceeded", "OverLimit"];
const UNFIT: [&str; 3] = ["InvalidMessageContents", "BatchRequestTooLong", "InvalidParameterValue"];

/// Sends to queues.
pub struct Queues {
    client: Client,
    allowed: AllowList,
    /// Punctual's own: whoever can make a job must not make runs of others' jobs.
    own: Vec<String>,
}

impl Queues {
    /// Sends by `client` to any queue but those of `names`; hosts that `allowed` names need not be SQS's own.
    pub fn new(client: Client, allowed: AllowList, names: &Names) -> Self {
        let own = Priority::ALL.iter().map(|priority| names.queue(*priority)).chain([names.dead_letters()]).collect();
        Queues { client, allowed, own }
    }

    pub(super) async fn send(&self, call: &Call, url: &str, body: &str) -> Outcome {
        let queue = match check_queue_url(url, &self.allowed) {
            Ok(queue) => queue,
            Err(reason) => return Outcome::Permanent { reason },
        };
        if self.own.contains(&queue.name) {
            return Outcome::Permanent {
                reason: "the queue is one of Punctual's own: runs are made by jobs alone".into(),
            };
        }
        let send = self.client.send_message().queue_url(queue.url).message_body(body);
        let send = send.message_attributes(RUN_ID, text(call.reference.to_string()));
        let send = match call.trace {
            Some(trace) => send.message_attributes(TRACEPARENT, text(trace.to_string())),
            None => send,
        };
        // Tries of the SDK's own could each put a message, and only the last one would be judged.
        let once = Builder::new().retry_config(RetryConfig::disabled());
        let config = match queue.region {
            Some(region) => once.region(Region::new(region)),
            None => once,
        };
        match send.customize().config_override(config).send().await {
            Ok(answer) => Outcome::Delivered { gateway_ref: answer.message_id.unwrap_or_default() },
            Err(error) => failed(&error),
        }
    }
}

fn text(value: String) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type("String").string_value(value).build().expect("its type is set")
}

fn failed(error: &SdkError<SendMessageError>) -> Outcome {
    match error {
        SdkError::DispatchFailure(failure) if failure.as_connector_error().is_some_and(never_connected) => {
            temporary("SQS cannot be reached".into())
        }
        SdkError::ConstructionFailure(_) => temporary("no request can be made".into()),
        SdkError::ServiceError(answer) => {
            judge(answer.err().code().unwrap_or("an unnamed error"), answer.raw().status().as_u16())
        }
        _ => Outcome::Unknown { reason: "SQS did not answer".into() },
    }
}

/// Whether a request never went out, because no connection came to be. One that broke later may have taken it along.
fn never_connected(error: &ConnectorError) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        next = error.source();
    }
    false
}

/// What an error of SQS means.
fn judge(code: &str, status: u16) -> Outcome {
    match status {
        _ if THROTTLES.contains(&code) => temporary(format!("SQS asks for fewer calls ({code})")),
        500.. => Outcome::Unknown { reason: format!("SQS answered {status}") },
        _ if UNFIT.iter().any(|unfit| code.ends_with(unfit)) => {
            Outcome::Permanent { reason: format!("SQS does not take the body ({code})") }
        }
        _ => temporary(format!("SQS refused the call ({code}): check the queue's URL, and the worker's right to it")),
    }
}

fn temporary(reason: String) -> Outcome {
    Outcome::Temporary { reason, retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::retry::OutcomeClass::{self, Permanent, Temporary, Unknown};

    #[test]
    fn each_error_means_what_the_table_says() {
        let errors: [(&str, u16, OutcomeClass); 8] = [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Temporary),
            ("QueueDoesNotExist", 400, Temporary),
            ("AccessDenied", 403, Temporary),
            ("RequestThrottled", 400, Temporary),
            ("ThrottlingException", 503, Temporary),
            ("InvalidMessageContents", 400, Permanent),
            ("AWS.SimpleQueueService.BatchRequestTooLong", 400, Permanent),
            ("InternalError", 500, Unknown),
        ];
        for (code, status, expected) in errors {
            assert_eq!(judge(code, status).class(), expected, "{code}");
        }
    }
}

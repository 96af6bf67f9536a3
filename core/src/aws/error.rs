//! What the SDK's errors mean to the callers of ports.

use super::job_item::Item;
use crate::error::PortError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{BatchStatementError, BatchStatementErrorCodeEnum as Code};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use std::error::Error;

const THROTTLES: [&str; 6] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "RequestThrottled",
    "OverLimit",
];
const MISSING: [&str; 3] =
    ["ResourceNotFoundException", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"];

/// Classes a failed call about a table.
pub(super) fn port_error<E>(what: &str, error: SdkError<E>) -> PortError
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    counted("dynamodb", classed(what, error))
}

/// Classes a failed call about a queue.
pub(super) fn queue_error<E>(what: &str, error: SdkError<E>) -> PortError
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    counted("sqs", classed(what, error))
}

fn counted(_service: &'static str, error: PortError) -> PortError {
    #[cfg(feature = "process")]
    if matches!(error, PortError::Throttled(_)) {
        crate::telemetry::table::THROTTLES.counter(&[("aws_service", _service)]).increment(1);
    }
    error
}

fn classed<E>(what: &str, error: SdkError<E>) -> PortError
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    match &error {
        SdkError::ConstructionFailure(_) => PortError::Permanent(format!("{what}: {}", chain(&error))),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            PortError::Unknown(format!("{what}: no answer: {}", chain(&error)))
        }
        SdkError::DispatchFailure(_) => PortError::Temporary(format!("{what} cannot be reached: {}", chain(&error))),
        SdkError::TimeoutError(_) => PortError::Unknown(format!("{what}: no answer in time")),
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or("an unnamed error");
            let status = service.raw().status().as_u16();
            if THROTTLES.contains(&code) {
                PortError::Throttled(format!("{what} is throttled ({code})"))
            } else if MISSING.contains(&code) {
                PortError::Permanent(format!("{what} does not exist: run `punctual setup`"))
            } else if status >= 500 {
                PortError::Unknown(format!("{what} answered {status} {code}"))
            } else {
                let detail = service.err().message().unwrap_or_default();
                PortError::Permanent(format!("{what} refused the call: {code}: {}", without_quotes(detail)))
            }
        }
        _ => PortError::Unknown(format!("{what}: the answer could not be read: {}", chain(&error))),
    }
}

/// The item that a put's failed condition met (empty = there is none); none when the put failed otherwise.
pub(super) fn met_by_put(error: &SdkError<PutItemError>) -> Option<Item> {
    match error.as_service_error() {
        Some(PutItemError::ConditionalCheckFailedException(refused)) => Some(refused.item.clone().unwrap_or_default()),
        _ => None,
    }
}

/// The same for an update.
pub(super) fn met_by_update(error: &SdkError<UpdateItemError>) -> Option<Item> {
    match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
            Some(refused.item.clone().unwrap_or_default())
        }
        _ => None,
    }
}

/// Whether a statement of a batch was refused by its condition.
pub(super) fn is_refused(error: &BatchStatementError) -> bool {
    matches!(error.code, Some(Code::ConditionalCheckFailed | Code::DuplicateItem))
}

/// An error of one statement of a batch.
pub(super) fn statement_error(what: &str, error: BatchStatementError) -> PortError {
    counted("dynamodb", classed_statement(what, error))
}

fn classed_statement(what: &str, error: BatchStatementError) -> PortError {
    let detail = error.message.unwrap_or_default();
    match error.code {
        Some(Code::ThrottlingError | Code::ProvisionedThroughputExceeded | Code::RequestLimitExceeded) => {
            PortError::Throttled(format!("{what} is throttled"))
        }
        Some(Code::InternalServerError | Code::TransactionConflict) => {
            PortError::Unknown(format!("{what} failed on a statement: {}", without_quotes(&detail)))
        }
        code => {
            let code = code.map_or_else(|| "an unnamed error".into(), |code| code.as_str().to_owned());
            PortError::Permanent(format!("{what} refused a statement: {code}: {}", without_quotes(&detail)))
        }
    }
}

/// An error of one entry of a batch.
pub(super) fn entry_error(what: &str, entry: &BatchResultErrorEntry) -> PortError {
    let code = entry.code.as_str();
    if THROTTLES.contains(&code) {
        counted("sqs", PortError::Throttled(format!("{what} is throttled ({code})")))
    } else if entry.sender_fault {
        let detail = entry.message.as_deref().unwrap_or_default();
        PortError::Permanent(format!("{what} refused an entry: {code}: {}", without_quotes(detail)))
    } else {
        PortError::Temporary(format!("{what} failed on an entry: {code}"))
    }
}

fn chain(error: &dyn Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

/// Cuts quoted values out of a foreign error text: they may be personal data.
pub(super) fn without_quotes(text: &str) -> String {
    let pieces = text.split('"').enumerate();
    pieces.map(|(i, piece)| if i % 2 == 0 { piece } else { "\"…\"" }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_cut_out_of_a_foreign_text() {
        assert_eq!(
            without_quotes(r#"invalid type: string "+447700900123", expected u8"#),
            r#"invalid type: string "…", expected u8"#
        );
        assert_eq!(without_quotes("plain"), "plain");
    }
}

//! How the AWS clients are made: one HTTP client, bounded times, quick back-off.

use super::{Aws, Names};
use crate::clock::AnchoredClock;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// Tries of one call inside the SDK: a lost answer is worth one more look, the rest is the caller's slow-down.
const SDK_ATTEMPTS: u32 = 3;
/// The SDK's own default starts at a second, which is longer than a lease can spare.
const FIRST_BACKOFF: Duration = Duration::from_millis(25);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// Why no connection could be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No region.
    #[error("no AWS region is configured: set AWS_REGION, or start `cargo stack` and use the exports it prints")]
    NoRegion,
    /// No credentials.
    #[error(
        "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile, or start `cargo \
         stack` and use the exports it prints"
    )]
    NoCredentials,
    /// A setting with a value that it does not have.
    #[error(
        "{FAIR_QUEUES} is neither 0 nor 1: write 1 to give each tenant a message group of its own, 0 for no groups"
    )]
    FairQueues,
}

/// Turns fair queues on.
const FAIR_QUEUES: &str = "PUNCTUAL_FAIR_QUEUES";

/// Prepares clients from the environment, as all AWS tools read it (`AWS_REGION`, credentials,
/// `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL_SQS`), with fair queues if `PUNCTUAL_FAIR_QUEUES` is 1. Their clock is this
/// host's, set right by the store's answers.
///
/// # Errors
/// When region or credentials are missing, or the setting is neither 0 nor 1. Nothing is called yet.
pub async fn connect(names: Names) -> Result<Aws, ConnectError> {
    let fair_queues = fair_queues(std::env::var_os(FAIR_QUEUES).as_deref())?;
    let config = config_loader().load().await;
    if config.region().is_none() {
        return Err(ConnectError::NoRegion);
    }
    let credentials = config.credentials_provider().ok_or(ConnectError::NoCredentials)?;
    aws_sdk_dynamodb::config::ProvideCredentials::provide_credentials(&credentials)
        .await
        .map_err(|_| ConnectError::NoCredentials)?;
    let (dynamodb, sqs) =
        (aws_sdk_dynamodb::config::Builder::from(&config), aws_sdk_sqs::config::Builder::from(&config));
    Ok(Aws { fair_queues, ..Aws::new(dynamodb, sqs, names, Arc::new(AnchoredClock::of_this_host())) })
}

/// Whether the setting turns fair queues on; off where it is not set.
fn fair_queues(setting: Option<&OsStr>) -> Result<bool, ConnectError> {
    match setting.map(OsStr::as_encoded_bytes) {
        None | Some(b"0") => Ok(false),
        Some(b"1") => Ok(true),
        Some(_) => Err(ConnectError::FairQueues),
    }
}

/// What all clients share: one HTTP client for TLS and plain HTTP, bounded times, quick back-off. Whoever knows region,
/// credentials and endpoints otherwise than from the environment sets them here.
pub fn config_loader() -> aws_config::ConfigLoader {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let retries = RetryConfig::standard()
        .with_max_attempts(SDK_ATTEMPTS)
        .with_initial_backoff(FIRST_BACKOFF)
        .with_max_backoff(LONGEST_BACKOFF);
    aws_config::defaults(aws_config::BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .retry_config(retries)
}

/// For a call that waits for messages: the wait, and time for the answer to arrive.
pub(super) fn long_poll_timeouts(wait: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(wait + ATTEMPT_TIMEOUT)
        .operation_timeout(wait + CALL_TIMEOUT)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fair_queues_are_on_by_1_only_and_other_words_are_refused() {
        let read = |setting: Option<&str>| fair_queues(setting.map(OsStr::new)).map_err(|error| error.to_string());
        assert_eq!((read(None), read(Some("0")), read(Some("1"))), (Ok(false), Ok(false), Ok(true)));
        for bad in ["", "true", "on", "2", " 1"] {
            assert!(read(Some(bad)).unwrap_err().contains("PUNCTUAL_FAIR_QUEUES is neither 0 nor 1"), "{bad}");
        }
    }
}

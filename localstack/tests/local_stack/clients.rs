//! Clients as the product builds them, pointed at a stack, and waiting without sleeping blindly.

use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use punctual_localstack::stack::{Stack, StackConfig};
use std::time::Duration;

/// Longest wait of any test for something that must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn start(config: StackConfig) -> Stack {
    Stack::start(config).unwrap()
}

fn http_client() -> aws_sdk_sqs::config::SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https()
}

pub fn dynamodb(stack: &Stack) -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(stack.dynamodb_url())
        .build();
    aws_sdk_dynamodb::Client::from_conf(config)
}

pub fn sqs(stack: &Stack) -> aws_sdk_sqs::Client {
    sqs_at(&stack.sqs_url())
}

pub fn sqs_at(url: &str) -> aws_sdk_sqs::Client {
    use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(url)
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

pub fn http() -> reqwest::Client {
    // The second test to come here finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Asks again and again until `ready` says yes.
pub async fn eventually(what: &str, mut ready: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !ready().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, asked).await.is_ok(), "never happened: {what}");
}

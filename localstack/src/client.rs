//! Clients for this very stack, for whoever runs in its process.

use crate::stack::Stack;
use aws_config::Region;
use aws_sdk_dynamodb::config::Credentials;
use punctual_core::aws::{Aws, Names, config_loader};
use punctual_core::clock::AnchoredClock;
use std::sync::Arc;

impl Stack {
    /// Product clients that know this stack's addresses without the environment.
    pub async fn aws(&self, names: Names) -> Aws {
        self.aws_by(names, Arc::new(AnchoredClock::of_this_host())).await
    }

    /// Such clients, of a process that goes by `clock`.
    pub async fn aws_by(&self, names: Names, clock: Arc<AnchoredClock>) -> Aws {
        let credentials = Credentials::new("local", "local", None, None, "local stack");
        let config = config_loader().region(Region::new("us-east-1")).credentials_provider(credentials).load().await;
        let dynamodb = aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(self.dynamodb_url());
        let sqs = aws_sdk_sqs::config::Builder::from(&config).endpoint_url(self.sqs_url());
        Aws::new(dynamodb, sqs, names, clock)
    }
}

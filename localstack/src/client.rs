//! Clients for this very stack, for whoever runs in its process.

use crate::stack::Stack;
use aws_config::Region;
use aws_sdk_dynamodb::config::Credentials;
use punctual_core::aws::{Aws, Names, config_loader};

impl Stack {
    /// Product clients that know this stack's addresses without the environment.
    pub async fn aws(&self, names: Names) -> Aws {
        let credentials = Credentials::new("local", "local", None, None, "local stack");
        let config = config_loader().region(Region::new("us-east-1")).credentials_provider(credentials).load().await;
        let dynamodb = aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(self.dynamodb_url()).build();
        let sqs = aws_sdk_sqs::config::Builder::from(&config).endpoint_url(self.sqs_url()).build();
        Aws { dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb), sqs: aws_sdk_sqs::Client::from_conf(sqs), names }
    }
}

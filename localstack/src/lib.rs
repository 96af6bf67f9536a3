//! The local stack: DynamoDB, SQS and an SMS gateway in this process, with no Docker and no account.

mod dynamodb;
pub mod gateway;
mod listener;
mod sqs;
pub mod stack;

//! The local stack, through the clients that use it: the real AWS SDK, and plain HTTP for the SMS gateway.

#![expect(clippy::unwrap_used, reason = "that is how these tests fail")]

mod clients;
mod demo_data;
mod dynamodb;
mod gateway;
mod handlers;
mod sqs;
mod stack;

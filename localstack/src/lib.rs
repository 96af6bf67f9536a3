//! The local stack: DynamoDB, SQS and an SMS gateway in this process, with no Docker and no account; and the demo that
//! runs Punctual's own processes on it.
//!
//! This package's binary holds both services as well, so that the processes it starts are never older than itself.

pub mod cli;
mod client;
pub mod demo;
mod dynamodb;
pub mod gateway;
mod listener;
pub mod multicall;
mod sqs;
pub mod stack;

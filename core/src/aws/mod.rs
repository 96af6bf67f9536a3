//! The DynamoDB and SQS adapters.

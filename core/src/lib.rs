//! Punctual's rules, the ports they work through, and the adapters behind those.
//!
//! A run goes nine steps: **job → due → dispatch → queue → lease → idempotency → rate → deliver → record.** The rules of
//! each are pure functions over values: [`job`] and [`schedule`], [`due`], [`dispatch`], [`message`], [`lease`],
//! [`idempotency`], [`rate`] and [`steering`], [`render`] (what a call carries), [`retry`] (what a delivery's outcome
//! means), [`run`] (the row and its state machine), [`audit`] (whether each instant that was due was done).
//! [`ports`] are what the services need of the world, `aws` and `memory` the two worlds they run in, and `conformance`
//! the suites that both must pass. With default features nothing here knows AWS, reads a clock, or performs I/O.

pub mod access;
pub mod address;
pub mod audit;
#[cfg(feature = "aws")]
pub mod aws;
pub mod circuit;
pub mod clock;
#[cfg(feature = "test-util")]
pub mod conformance;
pub mod cost;
pub mod deadline;
pub mod dispatch;
pub mod due;
pub mod error;
pub mod heartbeat;
pub mod idempotency;
pub mod job;
pub mod lease;
#[cfg(feature = "test-util")]
pub mod memory;
pub mod message;
pub mod missed;
pub mod pacing;
pub mod payload;
pub mod ports;
pub mod priority;
#[cfg(feature = "process")]
pub mod process;
pub mod rate;
pub mod render;
pub mod report;
pub mod retry;
pub mod rezone;
pub mod run;
pub mod scale;
pub mod schedule;
pub mod sms;
pub mod spread;
pub mod steering;
pub mod target;
pub mod telemetry;
pub mod template;
pub mod trace;
pub mod turns;
pub mod zone;

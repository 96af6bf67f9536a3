//! All steps: what Punctual costs, in the units that AWS counts and bills.
//!
//! Each constant is what one step of one run takes; a test that counts units on a real or embedded store can hold it to
//! account. [`monthly`] adds them up for a [`Load`], [`idle`] says what shards, copies and workers take while nothing is
//! due, [`Prices`] turns both into dollars. Lambda, Fargate, data transfer and the gateway are not in it. Nothing here
//! asks AWS anything.

mod idle;
mod prices;

pub use idle::{BucketReads, IdleLoad, idle};
pub use prices::Prices;

use crate::job::{JobSpec, RETENTION};
use crate::ports::{ADVANCES, BATCH};
use crate::schedule::Timing;
use std::ops::{Add, Mul};
use std::time::Duration;

/// The month of all figures here.
pub const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// Bytes that one write unit covers (DynamoDB, read and write units).
pub const WRITE_UNIT_BYTES: f64 = 1_024.0;
/// Bytes that one consistent read unit covers; an eventually consistent one costs half (DynamoDB, likewise).
pub const READ_UNIT_BYTES: f64 = 4_096.0;
/// Bytes of a call's bodies that are billed as one request (SQS pricing).
pub const SQS_CHUNK_BYTES: f64 = 65_536.0;
/// Bytes that are stored with each item and each index entry beside its own (DynamoDB, item sizes).
pub const OVERHEAD_BYTES: f64 = 100.0;

/// Write units in the indexes when a job is made: an entry in `due`, one in `tenant`.
pub const INDEX_UNITS_OF_MAKING: f64 = 2.0;
/// Write units in the indexes when a job is advanced: its entry leaves one due bucket and arrives in another. The entry
/// in `tenant` holds keys only, which stay.
pub const INDEX_UNITS_OF_ADVANCE: f64 = 2.0;
/// Write units in the indexes behind a job's last run: its entry leaves its due bucket.
pub const INDEX_UNITS_OF_LAST_ADVANCE: f64 = 1.0;
/// Write units in the index `attention` when a row becomes dead or indeterminate.
pub const INDEX_UNITS_OF_ATTENTION: f64 = 1.0;
/// Keys that one read of jobs takes.
pub const KEYS_PER_READ: u64 = 100;
/// Entries of the due index that one query takes.
pub const ENTRIES_PER_PAGE: u64 = 500;

/// What some work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// DynamoDB write request units.
    pub write_units: f64,
    /// DynamoDB read request units.
    pub read_units: f64,
    /// Calls to DynamoDB. They are not billed by themselves.
    pub dynamodb_requests: f64,
    /// SQS requests as billed.
    pub sqs_requests: f64,
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            write_units: self.write_units + other.write_units,
            read_units: self.read_units + other.read_units,
            dynamodb_requests: self.dynamodb_requests + other.dynamodb_requests,
            sqs_requests: self.sqs_requests + other.sqs_requests,
        }
    }
}

impl Mul<f64> for Usage {
    type Output = Usage;

    fn mul(self, times: f64) -> Usage {
        Usage {
            write_units: self.write_units * times,
            read_units: self.read_units * times,
            dynamodb_requests: self.dynamodb_requests * times,
            sqs_requests: self.sqs_requests * times,
        }
    }
}

impl Usage {
    fn writes(units: f64, requests: f64) -> Self {
        Usage { write_units: units, dynamodb_requests: requests, ..Usage::default() }
    }

    fn reads(units: f64, requests: f64) -> Self {
        Usage { read_units: units, dynamodb_requests: requests, ..Usage::default() }
    }

    fn sqs(requests: f64) -> Self {
        Usage { sqs_requests: requests, ..Usage::default() }
    }
}

/// What one step takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which.
    pub step: &'static str,
    /// How much.
    pub usage: Usage,
}

/// The sum of all lines.
pub fn total(lines: &[Line]) -> Usage {
    lines.iter().fold(Usage::default(), |sum, line| sum + line.usage)
}

/// Average sizes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// A run's row.
    pub row: f64,
    /// An entry of an index: its keys.
    pub index_entry: f64,
    /// The body of a message.
    pub message: f64,
}

impl Default for Sizes {
    /// Measured with keys such as `bank/c-10001/bill` and one attempt a row; a further attempt adds about 110 bytes.
    fn default() -> Self {
        Sizes { row: 380.0, index_entry: 78.0, message: 205.0 }
    }
}

/// How many runs share a call, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batches {
    /// A query of a due bucket, at most [`ENTRIES_PER_PAGE`].
    pub page: f64,
    /// A read of jobs, at most [`KEYS_PER_READ`].
    pub read: f64,
    /// A send, at most [`BATCH`]. Receives, extensions and deletes are taken to share as many.
    pub send: f64,
    /// An advance, at most [`ADVANCES`].
    pub advance: f64,
}

impl Batches {
    /// What is reached when `sizes` runs fall due together: one number for each second, shard and priority.
    pub fn reached(sizes: impl IntoIterator<Item = u64>) -> Self {
        let (mut runs, mut calls) = (0, [0; 4]);
        for size in sizes.into_iter().filter(|size| *size > 0) {
            runs += size;
            // A page that is full does not say whether it was the last.
            calls[0] += size / ENTRIES_PER_PAGE + 1;
            calls[1] += size.div_ceil(KEYS_PER_READ);
            calls[2] += size.div_ceil(BATCH as u64);
            calls[3] += size.div_ceil(ADVANCES as u64);
        }
        let [page, read, send, advance] = calls.map(|calls| if runs == 0 { 1.0 } else { runs as f64 / calls as f64 });
        Batches { page, read, send, advance }
    }
}

/// Jobs of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Bytes of a job's item.
    pub job_bytes: f64,
    /// Jobs stored.
    pub jobs: f64,
    /// Jobs made in a month.
    pub made: f64,
    /// Runs in a month behind which another is to come.
    pub runs: f64,
    /// Runs in a month that are a job's last: every one-shot, and the end of what is bounded.
    pub last_runs: f64,
}

/// What a month brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The jobs, by size.
    pub classes: Vec<Class>,
    /// Attempts of a run, on average; 1 at least.
    pub attempts_per_run: f64,
    /// The share of runs that end dead or indeterminate.
    pub attention_share: f64,
    /// Screens of an attempt: 1, or 2 where it waits longer than two seconds for its slot and permit.
    pub screens_per_attempt: f64,
    /// Extensions of a message while it is in hand, for each attempt: one for each twenty seconds.
    pub extensions_per_attempt: f64,
    /// Average sizes.
    pub sizes: Sizes,
    /// How many share a call.
    pub batches: Batches,
}

impl Load {
    /// Jobs, runs and sizes, with one attempt a run that does not wait.
    pub fn of(classes: Vec<Class>, batches: Batches) -> Self {
        Load {
            classes,
            attempts_per_run: 1.0,
            attention_share: 0.0,
            screens_per_attempt: 1.0,
            extensions_per_attempt: 0.0,
            sizes: Sizes::default(),
            batches,
        }
    }

    /// Runs in a month.
    pub fn runs(&self) -> f64 {
        self.classes.iter().map(|class| class.runs + class.last_runs).sum()
    }

    /// Jobs stored.
    pub fn jobs(&self) -> f64 {
        self.classes.iter().map(|class| class.jobs).sum()
    }

    /// Bytes stored: jobs with an entry in each of their two indexes, and the rows of as long as rows are kept.
    pub fn stored_bytes(&self) -> f64 {
        let entries = 2.0 * (self.sizes.index_entry + OVERHEAD_BYTES);
        let jobs = self.classes.iter().map(|class| class.jobs * (class.job_bytes + OVERHEAD_BYTES + entries));
        let months = RETENTION.as_secs_f64() / MONTH.as_secs_f64();
        jobs.sum::<f64>() + self.runs() * months * (self.sizes.row + OVERHEAD_BYTES)
    }
}

/// What a month of `load` takes, step by step.
pub fn monthly(load: &Load) -> Vec<Line> {
    let sum = |of: &dyn Fn(&Class) -> Usage| load.classes.iter().fold(Usage::default(), |sum, class| sum + of(class));
    let runs = load.runs();
    let attempts = runs * load.attempts_per_run;
    let (batches, sizes) = (&load.batches, &load.sizes);
    let row_units = write_units(sizes.row);
    let lines = [
        ("job: make", sum(&|class| making(class.job_bytes) * class.made)),
        ("due: read buckets", due_page(sizes, batches.page) * (runs / batches.page)),
        ("dispatch: read jobs", sum(&|class| read_job(class, batches.read))),
        ("queue: send", sqs_calls(sizes, batches.send) * runs),
        ("dispatch: advance", sum(&|class| advances(class, batches.advance))),
        ("lease: receive", sqs_calls(sizes, batches.send) * attempts),
        ("lease: extend", Usage::sqs(load.extensions_per_attempt / batches.send) * attempts),
        ("idempotency: screen", sum(&|class| screens(class, load) * share_of(class, runs))),
        ("idempotency: begin", Usage::writes(row_units, 1.0) * attempts),
        ("record", Usage::writes(row_units, 1.0) * attempts),
        ("record: dead letter", dead_letter(load) * runs),
        // Back-offs end at different times: few messages are hidden together.
        ("lease: put back", Usage::sqs(1.0) * (attempts - runs)),
        ("lease: delete", Usage::sqs(1.0 / batches.send) * runs),
    ];
    lines.into_iter().map(|(step, usage)| Line { step, usage }).collect()
}

/// Write units of an item of so many bytes: those of the larger of before and after.
pub fn write_units(bytes: f64) -> f64 {
    (bytes / WRITE_UNIT_BYTES).ceil().max(1.0)
}

/// Read units of a consistent read of an item of so many bytes.
pub fn read_units(bytes: f64) -> f64 {
    (bytes / READ_UNIT_BYTES).ceil().max(1.0)
}

/// Bytes of a job's item, to a tenth: what it says, and what each item has beside.
pub fn job_bytes(spec: &JobSpec) -> f64 {
    let schedule = match &spec.schedule.timing {
        Timing::At(_) | Timing::AtLocal(_) => 25,
        Timing::Every { .. } => 55,
        Timing::Cron(cron) => cron.written().len() + 45,
    };
    let zone = spec.schedule.tz.name().len();
    let spread = spec.spread.as_ref().map_or(0, |spread| spread.key.len() + 30);
    let name = spec.name.as_ref().map_or(0, |name| name.len() + 4);
    let told = spec.key.as_str().len() + spec.key.tenant().len() + spec.payload.bytes();
    (JOB_BYTES_BESIDE + schedule + zone + spread + name + told) as f64
}

/// Bytes of each job's item: names of attributes, instants, tokens, the retry rule.
const JOB_BYTES_BESIDE: usize = 345;

fn making(job_bytes: f64) -> Usage {
    Usage::writes(write_units(job_bytes) + INDEX_UNITS_OF_MAKING, 1.0)
}

/// One query that finds `entries`, not consistent.
fn due_page(sizes: &Sizes, entries: f64) -> Usage {
    Usage::reads(read_units(entries * sizes.index_entry) / 2.0, 1.0)
}

fn read_job(class: &Class, batch: f64) -> Usage {
    Usage::reads(read_units(class.job_bytes), 1.0 / batch) * (class.runs + class.last_runs)
}

fn advances(class: &Class, batch: f64) -> Usage {
    let of = |index_units| Usage::writes(write_units(class.job_bytes) + index_units, 1.0 / batch);
    of(INDEX_UNITS_OF_ADVANCE) * class.runs + of(INDEX_UNITS_OF_LAST_ADVANCE) * class.last_runs
}

fn share_of(class: &Class, runs: f64) -> f64 {
    if runs == 0.0 { 0.0 } else { (class.runs + class.last_runs) / runs }
}

/// The jobs of what is received together are read together, consistent; when a run has waited for long its job is read once
/// more, alone. A row is read only of what is not new.
fn screens(class: &Class, load: &Load) -> Usage {
    let (runs, attempts) = (load.runs(), load.runs() * load.attempts_per_run);
    let job = read_units(class.job_bytes);
    Usage::reads(job, 1.0 / load.batches.send) * attempts
        + Usage::reads(job, 1.0) * (attempts * (load.screens_per_attempt - 1.0))
        + Usage::reads(read_units(load.sizes.row), 1.0) * ((attempts - runs) * load.screens_per_attempt)
}

/// For one run, its part of a call with `batch` bodies.
fn sqs_calls(sizes: &Sizes, batch: f64) -> Usage {
    Usage::sqs((batch * sizes.message / SQS_CHUNK_BYTES).ceil().max(1.0) / batch)
}

/// For one run: the row's entry in `attention`, and the letter.
fn dead_letter(load: &Load) -> Usage {
    (Usage::writes(INDEX_UNITS_OF_ATTENTION, 0.0) + Usage::sqs(1.0)) * load.attention_share
}

#[cfg(test)]
mod tests;

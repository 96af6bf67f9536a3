//! The words that look at one job and change it.

use crate::payload_text::{PayloadText, RetryText};
use crate::timetable::{ClockText, RunText};
use clap::Args;

pub(super) const EDIT_HELP: &str = "\
A run that is queued already, or was due before the change, goes on; what was decided for later is decided anew.
Examples:
  punctual jobs edit --tenant bank c-1/bill --schedule 'cron 0 10 * * 1-5'
  punctual jobs edit --tenant bank c-1/bill --text 'Your last bill is due' --if-version 3
  punctual jobs edit --tenant bank c-1/bill --spread none --until-local 20:00";

pub(super) const RUN_HELP: &str = "\
Examples:
  punctual jobs run --tenant bank c-1/bill
  punctual jobs run --tenant bank c-1/bill --idempotency-key 2026-12-05-resend";

/// `jobs show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// The job's id.
    pub id: String,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `jobs pause`, `resume`, `cancel` and `release`.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// The job's id.
    pub id: String,
    /// Only if the job still has this version.
    #[arg(long)]
    pub if_version: Option<u64>,
    /// Show the job as it is then, as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `jobs edit`.
#[derive(Debug, Args)]
pub struct EditArgs {
    /// Which job, and how to answer.
    #[command(flatten)]
    pub job: ChangeArgs,
    /// A name for people.
    #[arg(long)]
    pub name: Option<String>,
    /// What its runs do. What is given of the same kind changes alone; another kind needs all that it takes.
    #[command(flatten)]
    pub payload: PayloadText,
    /// As for `jobs add`; on the clock that the job has, unless `--tz` is given.
    #[arg(long)]
    pub schedule: Option<String>,
    /// `urgent`, `normal` or `bulk`.
    #[arg(long)]
    pub priority: Option<String>,
    /// On whose clock.
    #[command(flatten)]
    pub clock: ClockText,
    /// Where runs start.
    #[command(flatten)]
    pub runs: RunText,
    /// How often they are tried.
    #[command(flatten)]
    pub retry: RetryText,
}

/// `jobs run`.
#[derive(Debug, Args)]
pub struct RunNowArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// The job's id.
    pub id: String,
    /// Makes a repeat of this command the same run, for a week.
    #[arg(long)]
    pub idempotency_key: Option<String>,
}

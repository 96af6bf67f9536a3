//! The words that change jobs.

use crate::payload_text::{PayloadText, RetryText};
use crate::timetable::{ClockText, RunText};
use clap::Args;

pub(super) const EDIT_HELP: &str = "\
A run that is queued already, or was due before the change, goes on; what was decided for later is decided anew.
Examples:
  punctual jobs edit --tenant bank c-1/bill --schedule 'cron 0 10 * * 1-5'
  punctual jobs edit --tenant bank c-1/bill --text 'Your last bill is due' --if-version 3
  punctual jobs edit --tenant bank c-1/bill --spread none --until-local 20:00";

pub(super) const PAUSE_HELP: &str = "\
Examples:
  punctual jobs pause c-1/bill
  punctual jobs pause c-1/        # all jobs of customer c-1";

pub(super) const RESUME_HELP: &str = "\
Examples:
  punctual jobs resume c-1/bill
  punctual jobs resume c-1/";

pub(super) const CANCEL_HELP: &str = "\
Examples:
  punctual jobs cancel c-1/bill --if-version 3
  punctual jobs cancel c-1/";

pub(super) const DELETE_HELP: &str = "\
Example:
  punctual jobs delete c-1/bill";

pub(super) const RELEASE_HELP: &str = "\
Examples:
  punctual jobs release c-1/bill
  punctual jobs release c-1/";

pub(super) const RUN_HELP: &str = "\
Examples:
  punctual jobs run --tenant bank c-1/bill
  punctual jobs run --tenant bank c-1/bill --idempotency-key 2026-12-05-resend
  punctual jobs run c-1/          # all jobs of customer c-1, each once, however often the command is repeated with its key";

/// `jobs pause`, `resume`, `cancel`, `release` and `delete`.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id. What ends at `/` means all jobs whose ids begin so, for pause, resume, cancel and release.
    pub id: String,
    /// Only if the job still has this version.
    #[arg(long)]
    pub if_version: Option<u64>,
    /// What the API answers, as one JSON object: the job as it is then.
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
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id, or what ends at `/` for all whose ids begin so.
    pub id: String,
    /// Makes a repeat of this command the same run, for a week.
    #[arg(long)]
    pub idempotency_key: Option<String>,
    /// What the API answers, as one JSON object.
    #[arg(long)]
    pub json: bool,
}

//! The words that look at runs.

use super::usize_in;
use clap::{Args, Subcommand};

const LIST_EXAMPLES: &str = "\
Examples:
  punctual runs list c-1/bill
  punctual runs list --tenant bank c-1/bill --limit 500 --json";

const SHOW_EXAMPLES: &str = "\
Example:
  punctual runs show c-1/bill 1791171000";

const REPLAY_EXAMPLES: &str = "\
Example:
  punctual runs replay c-1/bill 1791171000";

const REQUEUE_EXAMPLES: &str = "\
Example:
  punctual runs requeue c-1/bill 1791171000";

/// `runs`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List the runs of a job, the newest first.
    #[command(after_help = LIST_EXAMPLES)]
    List(RunsListArgs),
    /// Show one run with its attempts.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(RunShowArgs),
    /// Run once more what became dead or indeterminate, as a run of its own with the original's deadline.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Enqueue a run of the timetable again that was due, and of which no row shows what became of it.
    #[command(after_help = REQUEUE_EXAMPLES)]
    Requeue(ReplayArgs),
}

/// `runs list`.
#[derive(Debug, Args)]
pub struct RunsListArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id.
    pub job: String,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = usize_in(1..=10_000))]
    pub limit: usize,
    /// One JSON object a line, as the API shows it.
    #[arg(long)]
    pub json: bool,
}

/// `runs show`.
#[derive(Debug, Args)]
pub struct RunShowArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id.
    pub job: String,
    /// The run's key, as `runs list` shows it.
    pub run: String,
    /// One JSON object, as the API shows it.
    #[arg(long)]
    pub json: bool,
}

/// `runs replay` and `runs requeue`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id.
    pub job: String,
    /// The run's key, as `runs list` shows it.
    pub run: String,
}

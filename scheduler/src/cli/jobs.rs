//! The words that make jobs and look at them.

use super::change::{self, ChangeArgs, EditArgs, RunNowArgs};
use super::import::{IMPORT_HELP, ImportArgs};
use super::usize_in;
use crate::payload_text::{PayloadText, RetryText};
use crate::timetable::{ClockText, RunText};
use clap::{Args, Subcommand};
use std::path::PathBuf;

const ADD_EXAMPLES: &str = "\
Examples:
  punctual jobs add --tenant bank --id c-1/bill --to +447700900123 --text 'Your bill is due' \\
      --schedule 'cron 0 9 * * 1-5' --tz Asia/Kolkata --until-local 20:00
  punctual jobs add --id c-1/mail --email-to ana@example.com --subject 'Bill of {{ local.date }}' \\
      --text '{{ vars.amount }} is due' --var amount=12.50 --schedule 'cron 0 9 1 * *'
  punctual jobs add --id c-1/hook --webhook https://hooks.example.com/bills --body '{\"run\": {{ run.id | tojson }}}' \\
      --secret-file hook.secret --retry-waits 5s,5m,30m,2h --schedule 'every 24h'";

const LIST_EXAMPLES: &str = "\
Examples:
  punctual jobs list --tenant bank --state quarantined
  punctual jobs list --prefix c-1/ --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  punctual jobs show c-1/bill
  punctual jobs show c-1/bill --payload";

const EXPORT_EXAMPLES: &str = "\
One JSON document a line, as `jobs import` takes it. A secret is written as `(kept)`: imported over its job it stays what it is, and
a job that is not there needs it anew.
Examples:
  punctual jobs export --prefix c-1/ > c-1.ndjson
  punctual jobs export --tenant bank --output bank.ndjson";

const CHANGES_EXAMPLES: &str = "\
Examples:
  punctual jobs changes c-1/bill
  punctual jobs changes c-1/bill --json | jq .after";

/// `jobs`.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Make one job. Making it twice makes it once.
    #[command(after_help = ADD_EXAMPLES)]
    Add(Box<AddArgs>),
    /// Make and change jobs as a file says: CSV, lines of JSON, or a crontab. Shows on a terminal what it would do, and does it
    /// with --yes, or where it is no terminal.
    #[command(after_help = IMPORT_HELP)]
    Import(Box<ImportArgs>),
    /// Write jobs as lines of JSON, which `jobs import` takes.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// List a tenant's jobs.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Show one job.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Show who changed a job, when, and what.
    #[command(after_help = CHANGES_EXAMPLES)]
    Changes(ChangesArgs),
    /// Change what is given of a job, and leave the rest. `none` takes a name, window, bound or deadline away.
    #[command(after_help = change::EDIT_HELP)]
    Edit(Box<EditArgs>),
    /// Hold a job back, or all whose ids begin with what ends at `/`: they fire no more, and what is queued waits, until resumed.
    #[command(after_help = change::PAUSE_HELP)]
    Pause(ChangeArgs),
    /// End a pause. What fell due meanwhile is owed, and goes by the job's rule for missed firings.
    #[command(after_help = change::RESUME_HELP)]
    Resume(ChangeArgs),
    /// End jobs for good, with all that is queued. `jobs add` makes them again.
    #[command(after_help = change::CANCEL_HELP)]
    Cancel(ChangeArgs),
    /// End a job for good and erase what it was to do.
    #[command(after_help = change::DELETE_HELP)]
    Delete(ChangeArgs),
    /// Let quarantined jobs fire again.
    #[command(after_help = change::RELEASE_HELP)]
    Release(ChangeArgs),
    /// Run jobs now, besides their timetables.
    #[command(after_help = change::RUN_HELP)]
    Run(RunNowArgs),
}

/// `jobs add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Whose job it is: `default` on the store, the key's own tenant over the API.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// Its id: letters, digits and `._/-`.
    #[arg(long)]
    pub id: String,
    /// A name for people.
    #[arg(long)]
    pub name: Option<String>,
    /// What its runs do.
    #[command(flatten)]
    pub payload: PayloadText,
    /// `cron 0 9 * * *`, `at 2026-12-05T09:00` (on the zone's clock), `at 2026-12-05T09:00:00Z` or `every 24h [from …]`.
    #[arg(long)]
    pub schedule: String,
    /// `urgent`, `normal` or `bulk`.
    #[arg(long, default_value = "normal")]
    pub priority: String,
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

/// `jobs list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Whose jobs.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// Only those whose ids begin so.
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only those in this state.
    #[arg(long, value_parser = ["active", "paused", "done", "cancelled", "quarantined"])]
    pub state: Option<String>,
    /// Show at most this many.
    #[arg(long, default_value_t = 50, value_parser = usize_in(1..=1_000_000))]
    pub limit: usize,
    /// One JSON object a line, as the API shows it.
    #[arg(long)]
    pub json: bool,
}

/// `jobs show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id.
    pub id: String,
    /// Show what its runs do as well: addresses and texts, never a secret.
    #[arg(long)]
    pub payload: bool,
    /// One JSON object, as the API shows it.
    #[arg(long)]
    pub json: bool,
}

/// `jobs export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Whose jobs.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// Only those whose ids begin so.
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only those in this state.
    #[arg(long, value_parser = ["active", "paused", "done", "quarantined"])]
    pub state: Option<String>,
    /// The file to write; standard output without it.
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// `jobs changes`.
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// The job's id.
    pub id: String,
    /// Show at most this many, the latest first.
    #[arg(long, default_value_t = 20, value_parser = usize_in(1..=10_000))]
    pub limit: usize,
    /// One JSON object a line: the fields as they were, and as they are since.
    #[arg(long)]
    pub json: bool,
}

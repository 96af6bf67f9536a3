//! The words for what needs a person: dead letters, and the audit.

use super::{RunShowArgs, usize_in};
use clap::{Args, Subcommand};

pub(super) const LETTERS_HELP: &str = "\
What waits for a person is read from the rows; what was replayed or dropped is not among it any more.
Examples:
  punctual dead-letters list --prefix 48213/ --class temporary
  punctual dead-letters replay --older-than 10m --per-second 20 --dry-run
  punctual dead-letters replay --run bank/c-1/bill:1791171000
  punctual dead-letters drop --prefix 48213/ --why 'the customer was called'";

pub(super) const AUDIT_HELP: &str = "\
Every instant that was due by the calendar, by what each job said at that time, against the rows: succeeded, failed, skipped, dead,
indeterminate, open, or missing, where no row shows what became of it. Ends with 1 if anything is missing. What is missing and enqueued
again keeps its id: whatever is found of it after all, it is not run twice.
Examples:
  punctual audit --from 2026-12-05T00:00:00Z --to 2026-12-06T00:00:00Z
  punctual audit --prefix 48213/ --grace 1h --show problems
  punctual audit --prefix c-1/bill --requeue";

/// `dead-letters`.
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List them, the oldest first.
    List(LettersListArgs),
    /// Show one with its attempts.
    Show(RunShowArgs),
    /// Run them once more, each as a run of its own with the original's deadline.
    Replay(LettersReplayArgs),
    /// Leave them at that, with a reason.
    Drop(LettersDropArgs),
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct LettersArgs {
    /// Whose.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// One job's, by its id, or those of all jobs under a prefix that ends at `/`.
    #[arg(long)]
    pub prefix: Option<String>,
    /// Attempts used up (`dead`), or nobody knows (`indeterminate`).
    #[arg(long, value_parser = ["dead", "indeterminate"])]
    pub status: Option<String>,
    /// How the last attempt ended.
    #[arg(long, value_parser = ["temporary", "permanent", "unknown", "lost"])]
    pub class: Option<String>,
    /// Those that ended so long ago, or earlier: `10m`.
    #[arg(long)]
    pub older_than: Option<String>,
    /// Those that ended within this time: `24h`.
    #[arg(long)]
    pub newer_than: Option<String>,
    /// As the API says it: one JSON object a line, or one in all.
    #[arg(long)]
    pub json: bool,
}

/// `dead-letters list`.
#[derive(Debug, Args)]
pub struct LettersListArgs {
    /// Which.
    #[command(flatten)]
    pub which: LettersArgs,
    /// Show at most this many.
    #[arg(long, default_value_t = 50, value_parser = usize_in(1..=10_000))]
    pub limit: usize,
}

/// `dead-letters replay`.
#[derive(Debug, Args)]
pub struct LettersReplayArgs {
    /// Which.
    #[command(flatten)]
    pub which: LettersArgs,
    /// Just this run, by its whole id; can be given several times.
    #[arg(long = "run", conflicts_with_all = ["prefix", "status", "class", "older_than", "newer_than"])]
    pub runs: Vec<String>,
    /// Replays a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub per_second: u32,
    /// Only say what would come of it.
    #[arg(long)]
    pub dry_run: bool,
}

/// `dead-letters drop`.
#[derive(Debug, Args)]
pub struct LettersDropArgs {
    /// Which.
    #[command(flatten)]
    pub which: LettersArgs,
    /// Just this run, by its whole id; can be given several times.
    #[arg(long = "run", conflicts_with_all = ["prefix", "status", "class", "older_than", "newer_than"])]
    pub runs: Vec<String>,
    /// The reason.
    #[arg(long)]
    pub why: String,
    /// Only say what would come of it.
    #[arg(long)]
    pub dry_run: bool,
}

/// `audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Whose jobs.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// One job, by its id, or all under a prefix that ends at `/`; all of the tenant's without it.
    #[arg(long)]
    pub prefix: Option<String>,
    /// The first instant that is asked about; a day ago without it.
    #[arg(long)]
    pub from: Option<String>,
    /// Behind the last one; now without it.
    #[arg(long)]
    pub to: Option<String>,
    /// How long after it was due a run may be in a queue without a row.
    #[arg(long, default_value = "15m")]
    pub grace: String,
    /// Which instants to name: those that are `missing`, all `problems`, or `all`.
    #[arg(long, default_value = "missing", value_parser = ["missing", "problems", "all"])]
    pub show: String,
    /// Enqueue what is missing again.
    #[arg(long)]
    pub requeue: bool,
    /// As the API says it, one JSON object a call.
    #[arg(long)]
    pub json: bool,
}

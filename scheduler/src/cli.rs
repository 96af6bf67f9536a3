//! The words of the `punctual` command.

use crate::next::Format;
use crate::timetable::{ClockText, RunText};
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Cron at scale: jobs in DynamoDB, due runs to SQS.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, about, long_about = None, after_help = "\
AWS is found as all AWS tools find it: AWS_REGION, credentials, AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_SQS.
Logs go to standard error; PUNCTUAL_LOG filters them (default `info`), PUNCTUAL_LOG_FORMAT=json for machines.
Exit codes: 0 done, 1 failed, 2 wrong input (nothing was done).")]
pub struct Cli {
    /// First part of the names of all tables and queues.
    #[arg(long, global = true, env = "PUNCTUAL_STORE_PREFIX", default_value = "punctual")]
    pub prefix: String,
    /// Directory of zone rules (TZif); without it the newer of the embedded rules and the system's.
    #[arg(long, global = true, env = "PUNCTUAL_TZDIR")]
    pub tzdir: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the tables and queues that are missing.
    Setup(SetupArgs),
    /// Run one scheduler copy: find due jobs, enqueue their runs. Stops on SIGTERM.
    Dispatch(DispatchArgs),
    /// Make and list jobs.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Look at runs.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Show when a schedule fires next. Needs no server.
    #[command(after_help = NEXT_EXAMPLES)]
    Next(Box<NextArgs>),
    /// Say which zone rules are in use and where they come from, and how this host's clock stands to the store's.
    Doctor,
}

const NEXT_EXAMPLES: &str = "\
Examples:
  punctual next --cron '0 9 * * 1-5' --tz Asia/Kolkata
  punctual next --cron '30 2 * * *' --tz America/New_York --after 2026-03-07T00:00 --dst-gap skip
  punctual next --cron 'H 9 L * *' --tz Europe/London --key c-10001 --spread 30m
  punctual next --schedule 'every 90m from 2026-12-05T09:00' --tz Asia/Kathmandu --count 3 --format lines";

/// `next`.
#[derive(Debug, Args)]
pub struct NextArgs {
    /// Five Unix cron fields: minute hour day-of-month month weekday.
    #[arg(long, required_unless_present = "schedule", conflicts_with = "schedule")]
    pub cron: Option<String>,
    /// A schedule of another kind: `at 2026-12-05T09:00` or `every 24h [from MOMENT]`.
    #[arg(long)]
    pub schedule: Option<String>,
    /// On whose clock.
    #[command(flatten)]
    pub clock: ClockText,
    /// Show firings after this moment: an instant, or a wall time of the zone. Now by default.
    #[arg(long)]
    pub after: Option<String>,
    /// How many.
    #[arg(long, default_value_t = 5, value_parser = usize_in(1..=10_000))]
    pub count: usize,
    /// What chooses the values of hashed fields (`H`) and the place in a spread window: a customer id.
    #[arg(long)]
    pub key: Option<String>,
    /// Spread window, `30m`: shows when the runs are due.
    #[arg(long, requires = "key")]
    pub spread: Option<String>,
    /// `lines` (one UTC instant a line), `table` (the default on a terminal) or `json`.
    #[arg(long)]
    pub format: Option<Format>,
}

/// `setup`.
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Shards of urgent jobs, fixed by the first setup.
    #[arg(long, env = "PUNCTUAL_SETUP_URGENT_SHARDS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub urgent_shards: u16,
    /// Shards of all other jobs, fixed by the first setup.
    #[arg(long, env = "PUNCTUAL_SETUP_STANDARD_SHARDS", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub standard_shards: u16,
}

/// `dispatch`.
#[derive(Debug, Args)]
pub struct DispatchArgs {
    /// Name of this copy in messages and logs; a random part is added.
    #[arg(long, env = "PUNCTUAL_DISPATCH_ID", default_value = "scheduler")]
    pub id: String,
    /// After how many seconds without a renewal another copy may take a shard over.
    #[arg(long, env = "PUNCTUAL_DISPATCH_LEASE_S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(3..=3_600))]
    pub lease_s: u64,
    /// Seconds between renewals of a lease.
    #[arg(long, env = "PUNCTUAL_DISPATCH_RENEW_S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_200))]
    pub renew_s: u64,
    /// How many seconds earlier a copy stops trusting its own lease.
    #[arg(long, env = "PUNCTUAL_DISPATCH_MARGIN_S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub margin_s: u64,
    /// Milliseconds between two looks at the timetable.
    #[arg(long, env = "PUNCTUAL_DISPATCH_TICK_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub tick_ms: u64,
    /// Entries of the due index read at a time.
    #[arg(long, env = "PUNCTUAL_DISPATCH_PAGE", default_value_t = 500, value_parser = usize_in(1..=500))]
    pub page: usize,
    /// Calls to store and queues under way at once.
    #[arg(long, env = "PUNCTUAL_DISPATCH_CALLS_IN_FLIGHT", default_value_t = 64, value_parser = usize_in(1..=1_000))]
    pub calls_in_flight: usize,
}

/// `jobs`.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Make one job. Making it twice makes it once.
    #[command(
        after_help = "Example:\n  punctual jobs add --tenant bank --id c-1/bill --to +447700900123 --text 'Your bill is due' \\\n      --schedule 'cron 0 9 * * 1-5' --tz Asia/Kolkata --until-local 20:00"
    )]
    Add(Box<AddArgs>),
    /// Make the jobs of a CSV file: customer,phone,kind,priority,schedule,template, and what `jobs add` takes besides as
    /// further columns (tz, spread, missed, …). Nothing is made if any row is wrong.
    Import(ImportArgs),
    /// List a tenant's jobs.
    List(ListArgs),
}

/// `jobs add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Whose job it is.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// Its id: letters, digits and `._/-`.
    #[arg(long)]
    pub id: String,
    /// A name for people.
    #[arg(long)]
    pub name: Option<String>,
    /// Phone number, E.164.
    #[arg(long)]
    pub to: String,
    /// The text.
    #[arg(long)]
    pub text: String,
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
}

/// `jobs import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file.
    pub file: PathBuf,
    /// Whose jobs they are.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
}

/// `jobs list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Whose jobs.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// Show at most this many.
    #[arg(long, default_value_t = 50, value_parser = usize_in(1..=10_000))]
    pub limit: usize,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// `runs`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List the runs of a job, the newest first.
    List(RunsListArgs),
}

/// `runs list`.
#[derive(Debug, Args)]
pub struct RunsListArgs {
    /// Whose job.
    #[arg(long, env = "PUNCTUAL_TENANT", default_value = "default")]
    pub tenant: String,
    /// The job's id.
    pub job: String,
    /// Show at most this many.
    #[arg(long, default_value_t = 20, value_parser = usize_in(1..=10_000))]
    pub limit: usize,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

fn usize_in(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn every_number_out_of_its_range_is_refused() {
        for words in [
            "dispatch --lease-s 2",
            "dispatch --lease-s 3601",
            "dispatch --renew-s 0",
            "dispatch --renew-s 18446744073709551615",
            "dispatch --margin-s 601",
            "dispatch --tick-ms 49",
            "dispatch --page 501",
            "dispatch --calls-in-flight 0",
            "jobs list --limit 0",
            "runs list c-1/bill --limit 10001",
        ] {
            let error = Cli::try_parse_from(["punctual"].into_iter().chain(words.split(' '))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{words}: {error}");
            assert_eq!(error.exit_code(), i32::from(punctual_core::process::EXIT_BAD_INPUT));
            assert!(error.to_string().contains("is not in "), "{error}");
        }
        for words in ["dispatch --lease-s 3600 --page 500", "jobs list --limit 1", "runs list c-1/bill --limit 10000"] {
            assert!(Cli::try_parse_from(["punctual"].into_iter().chain(words.split(' '))).is_ok(), "{words}");
        }
    }
}

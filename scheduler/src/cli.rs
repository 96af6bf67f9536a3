//! The words of the `punctual` command.

mod api;
mod change;
mod import;
mod incidents;
mod jobs;
mod runs;
mod steer;

pub use api::{ApiArgs, KeyAddArgs, KeysCommand};
pub use change::{ChangeArgs, EditArgs, RunNowArgs};
pub use import::{Format as ImportFormat, ImportArgs};
pub use incidents::{AuditArgs, DeadLettersCommand, LettersArgs, LettersDropArgs, LettersListArgs, LettersReplayArgs};
pub use jobs::{AddArgs, ChangesArgs, ExportArgs, JobsCommand, ListArgs, ShowArgs};
pub use runs::{ReplayArgs, RunShowArgs, RunsCommand, RunsListArgs};
pub use steer::{HoldCommand, RatesArgs, RatesCommand, ReleaseCommand, WhyArgs};

use crate::next::Format;
use crate::timetable::ClockText;
use api::{API_HELP, KEYS_HELP};
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use punctual_core::due::ShardId;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Cron at scale: jobs in DynamoDB, due runs to SQS.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, about, long_about = None, after_help = "\
jobs, runs, dead-letters, audit, hold, release, rates and status ask the Jobs API: at PUNCTUAL_API_URL, with the key in PUNCTUAL_API_KEY or in the file of
--api-key-file, or, where no address is given, the same API within this command, on the store.
AWS is found as all AWS tools find it: AWS_REGION, credentials, AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_SQS.
PUNCTUAL_FAIR_QUEUES=1, here and on all workers, makes the tenant the message group of SQS's fair queues.
Logs go to standard error; PUNCTUAL_LOG filters them (default `info`), PUNCTUAL_LOG_FORMAT=json for machines.
Exit codes: 0 done; 1 failed (store, network, key, not there, changed meanwhile): may work at another time; 2 wrong input, nothing was
done; 3 done in part: some lines or jobs were refused.")]
pub struct Cli {
    /// First part of the names of all tables and queues.
    #[arg(long, global = true, env = "PUNCTUAL_STORE_PREFIX", default_value = "punctual")]
    pub store_prefix: String,
    /// Directory of zone rules (TZif); without it the newer of the embedded rules and the system's.
    #[arg(long, global = true, env = "PUNCTUAL_TZDIR")]
    pub tzdir: Option<PathBuf>,
    /// How the Jobs API is reached.
    #[command(flatten)]
    pub api: ApiAccess,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How the Jobs API is reached. The key itself is no option: every process of the host could read it.
#[derive(Clone, Debug, Args)]
pub struct ApiAccess {
    /// Address of the Jobs API, `https://punctual.example.com`; without it the commands work on the store themselves.
    #[arg(long, global = true, env = "PUNCTUAL_API_URL")]
    pub api_url: Option<String>,
    /// File with the key; without it the key is in PUNCTUAL_API_KEY.
    #[arg(long, global = true, env = "PUNCTUAL_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the tables and queues that are missing.
    Setup(SetupArgs),
    /// Run one scheduler copy: find due jobs, enqueue their runs. Stops on SIGTERM.
    Dispatch(DispatchArgs),
    /// Serve the Jobs API over HTTP, or as a Lambda function behind its URL. Stops on SIGTERM.
    #[command(after_help = API_HELP)]
    Api(ApiArgs),
    /// Make, list and revoke the keys of the API. Needs the store: no key makes keys.
    #[command(subcommand, after_help = KEYS_HELP)]
    Keys(KeysCommand),
    /// Make, list and change jobs.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Show shards and who holds them, what is due, the queues, limits and holds.
    Status(StatusArgs),
    /// Show the limits of calls, or change them while everything runs.
    #[command(after_help = steer::RATES_HELP)]
    Rates(RatesArgs),
    /// Stop the start of new calls: of all, a tenant, a priority or a target.
    #[command(subcommand, after_help = steer::HOLD_HELP)]
    Hold(HoldCommand),
    /// End a hold.
    #[command(subcommand)]
    Release(ReleaseCommand),
    /// Move the places up to which the timetable has been read.
    #[command(subcommand)]
    Cursors(CursorsCommand),
    /// Free shards, or add some.
    #[command(subcommand)]
    Shards(ShardsCommand),
    /// Look at runs.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Look at what needs a person, run it once more, or leave it at that.
    #[command(subcommand, after_help = incidents::LETTERS_HELP)]
    DeadLetters(DeadLettersCommand),
    /// Hold every instant that was due against the rows, and enqueue again what is missing.
    #[command(after_help = incidents::AUDIT_HELP)]
    Audit(AuditArgs),
    /// Print what makes a shell complete the words and options of this command.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Show when a schedule fires next. Needs no server.
    #[command(after_help = NEXT_EXAMPLES)]
    Next(Box<NextArgs>),
    /// Say what jobs cost in a month, by step. Needs no server.
    #[command(after_help = COST_EXAMPLES)]
    Cost(Box<CostArgs>),
    /// Say which zone rules are in use and where they come from, how this host's clock stands to the store's, and whether the
    /// API is ready, where PUNCTUAL_API_URL names one.
    Doctor,
}

const NEXT_EXAMPLES: &str = "\
Examples:
  punctual next --cron '0 9 * * 1-5' --tz Asia/Kolkata
  punctual next --cron '30 2 * * *' --tz America/New_York --after 2026-03-07T00:00 --dst-gap skip
  punctual next --cron 'H 9 L * *' --tz Europe/London --key c-10001 --spread 30m
  punctual next --schedule 'every 90m from 2026-12-05T09:00' --tz Asia/Kathmandu --count 3 --format lines";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  punctual completions bash > /etc/bash_completion.d/punctual
  punctual completions zsh > \"${fpath[1]}/_punctual\"
  punctual completions fish > ~/.config/fish/completions/punctual.fish";

const COST_EXAMPLES: &str = "\
Examples:
  punctual cost --jobs 1200000 --every 24h --together 480000
  punctual cost --jobs 50000 --once --attempts 1.2
  punctual cost --file jobs.csv --json

A price file is JSON with as_of, region, write_units_per_million, read_units_per_million, storage_per_gb_month and
sqs_requests_per_million; `punctual cost --json` shows those that are known here.";

/// `cost`.
#[derive(Debug, Args)]
pub struct CostArgs {
    /// How many jobs.
    #[arg(long, required_unless_present = "file", conflicts_with = "file", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub jobs: Option<u64>,
    /// Time between two firings of each, `24h`.
    #[arg(long, default_value = "24h", conflicts_with_all = ["file", "once"])]
    pub every: String,
    /// Each fires once; as many new ones are made each month.
    #[arg(long, conflicts_with = "file")]
    pub once: bool,
    /// Bytes of a text.
    #[arg(long, default_value_t = 160, conflicts_with = "file", value_parser = clap::value_parser!(u32).range(0..=300_000))]
    pub text_bytes: u32,
    /// How many fall due in the same second and so share calls. Spread evenly by default.
    #[arg(long, conflicts_with = "file", value_parser = clap::value_parser!(u64).range(1..))]
    pub together: Option<u64>,
    /// Count the firings of the jobs of a file in the next thirty days: CSV, as `jobs import` takes it.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Attempts of a run, on average.
    #[arg(long, default_value_t = 1.0)]
    pub attempts: f64,
    /// The share of runs that become dead letters.
    #[arg(long, default_value_t = 0.0)]
    pub dead: f64,
    /// Shards of urgent jobs.
    #[arg(long, env = "PUNCTUAL_SETUP_URGENT_SHARDS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub urgent_shards: u16,
    /// Shards of all other jobs.
    #[arg(long, env = "PUNCTUAL_SETUP_STANDARD_SHARDS", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub standard_shards: u16,
    /// Scheduler copies.
    #[arg(long, default_value_t = 3)]
    pub copies: u32,
    /// Workers.
    #[arg(long, default_value_t = 1)]
    pub workers: u32,
    /// Milliseconds between two looks at the timetable.
    #[arg(long, env = "PUNCTUAL_DISPATCH_TICK_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub tick_ms: u64,
    /// Seconds between renewals of a lease.
    #[arg(long, env = "PUNCTUAL_DISPATCH_RENEW_S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_200))]
    pub renew_s: u64,
    /// Prices to use instead of those of us-east-1 that are known here.
    #[arg(long, env = "PUNCTUAL_COST_PRICE_FILE")]
    pub price_file: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

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
    /// Make the heartbeat as well: a job that does nothing every minute, and shows by that that the whole way works.
    #[arg(long)]
    pub heartbeat: bool,
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
    /// Seconds by which the timetable is read ahead, so that runs are sent at their instants; 0 turns it off.
    #[arg(long, env = "PUNCTUAL_DISPATCH_LOOK_AHEAD_S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=50))]
    pub look_ahead_s: u64,
}

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `cursors`.
#[derive(Debug, Subcommand)]
pub enum CursorsCommand {
    /// Read the timetable again from an earlier moment on: after the jobs were restored from a backup. What was run since
    /// has its rows and is not run again.
    #[command(after_help = "Example:\n  punctual cursors rewind --to 2026-12-05T03:00:00Z")]
    Rewind(RewindArgs),
}

/// `cursors rewind`.
#[derive(Debug, Args)]
pub struct RewindArgs {
    /// From when on: an instant, such as 2026-12-05T03:00:00Z.
    #[arg(long)]
    pub to: String,
    /// Only this shard: `0007` or `u003`.
    #[arg(long)]
    pub shard: Option<ShardId>,
}

/// `shards`.
#[derive(Debug, Subcommand)]
pub enum ShardsCommand {
    /// Free a shard, whoever holds it: a copy that may hold one more takes it at its next look. Where every copy holds its
    /// share, the old holder takes it again.
    Release {
        /// Which: `0007` or `u003`.
        shard: ShardId,
    },
    /// Add shards while everything runs. Running it again after a failure goes on.
    Grow(GrowArgs),
}

/// `shards grow`.
#[derive(Debug, Args)]
pub struct GrowArgs {
    /// How many shards of urgent jobs there are to be; as many as now by default.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub urgent: Option<u16>,
    /// How many shards of all other jobs there are to be; as many as now by default.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub standard: Option<u16>,
}

fn usize_in(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn no_word_means_two_things() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        // A global option of the same name would give its own value.
        let listed = Cli::try_parse_from(["punctual", "jobs", "list"]).unwrap().command;
        let Command::Jobs(JobsCommand::List(args)) = listed else { panic!("{listed:?}") };
        assert_eq!(args.prefix, None);
    }

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
            "dispatch --look-ahead-s 51",
            "jobs list --limit 0",
            "runs list c-1/bill --limit 10001",
            "jobs list --limit 1000001",
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

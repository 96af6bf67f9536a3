//! The words that import files.

use clap::{Args, ValueEnum};
use punctual_core::priority::Priority;
use punctual_core::zone::{Tz, parse_name};
use std::path::PathBuf;

pub(super) const IMPORT_HELP: &str = "\
A job's line makes it, or changes it to what the line says; a job that was cancelled stays so. Importing again makes nothing twice: what
was cut off is simply repeated.
CSV has the columns customer,phone,kind,priority,schedule,template, and what `jobs add` takes besides as further ones (tz, spread,
missed, …); a job's id is customer/kind. Lines of JSON are those of `jobs export`. Of these files nothing is imported if any line is
wrong, unless --skip-refused is given.
Entries of a crontab become what --map says of their commands: `*` stands for anything, $1, $2 … for what it stood for. What cannot be
taken is named, the rest is imported, and the command ends with 3.
Examples:
  punctual jobs import jobs.csv --yes
  punctual jobs import c-1.ndjson --dry-run
  punctual jobs import /etc/crontab --crontab --with-user --tz Europe/Berlin \\
      --map '/opt/bill *=>webhook:https://hooks.example.com/bill?args=$1' --map '*=>noop'
  punctual jobs import jobs.csv --spread-over 30m --gone-under c-1/ --dry-run";

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One row, one job.
    Csv,
    /// One JSON document a line.
    Ndjson,
    /// One entry, one job.
    Crontab,
}

/// `jobs import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file. It is read twice.
    pub file: PathBuf,
    /// Whose jobs they are.
    #[arg(long, env = "PUNCTUAL_TENANT")]
    pub tenant: Option<String>,
    /// What the file is; by its name otherwise: .csv, .ndjson, .jsonl, .crontab.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// It is a crontab.
    #[arg(long, conflicts_with = "format")]
    pub crontab: bool,
    /// On whose clock the entries of a crontab fire where it does not say; UTC by default.
    #[arg(long, value_parser = parse_name)]
    pub tz: Option<Tz>,
    /// What commands of a crontab become, the first rule that means one counts: `PATTERN=>webhook:URL`, `=>queue:URL` or `=>noop`.
    #[arg(long = "map", value_name = "PATTERN=>TARGET")]
    pub maps: Vec<String>,
    /// A file with such rules, one a line, behind those of --map.
    #[arg(long)]
    pub map_file: Option<PathBuf>,
    /// A user stands between schedule and command, as in /etc/crontab and /etc/cron.d.
    #[arg(long)]
    pub with_user: bool,
    /// What the ids of a crontab's jobs begin with; `cron/` and the file's name by default.
    #[arg(long)]
    pub id_prefix: Option<String>,
    /// `urgent`, `normal` or `bulk`: for the jobs of a crontab.
    #[arg(long)]
    pub priority: Option<Priority>,
    /// Hosts that webhooks and queues may name whatever their addresses are; what the workers are given.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ALLOW", default_value = "")]
    pub webhook_allow: String,
    /// Give jobs without a spread window this one, `30m`, by the first part of their ids. Urgent jobs, and those that fire too often
    /// for it, are left as they are.
    #[arg(long)]
    pub spread_over: Option<String>,
    /// Say which jobs whose ids begin with this, up to a `/`, are not in the file any more. A crontab's own prefix by default.
    #[arg(long)]
    pub gone_under: Option<String>,
    /// Cancel them.
    #[arg(long)]
    pub cancel_gone: bool,
    /// Show what would be done, with the tenant's other jobs in the forecast. All of them are read for that.
    #[arg(long, conflicts_with = "yes")]
    pub with_stored: bool,
    /// Import what can be taken although some lines are wrong.
    #[arg(long)]
    pub skip_refused: bool,
    /// Show what would be done, and do nothing.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it, also on a terminal.
    #[arg(long)]
    pub yes: bool,
}

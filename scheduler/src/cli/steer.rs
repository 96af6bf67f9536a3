//! The words that steer the workers while they run: limits and holds.

use clap::{Args, Subcommand};
use punctual_core::priority::Priority;
use punctual_core::target::Target;

pub(super) const RATES_HELP: &str = "\
Targets are `sms`, `email`, `queue`, and `webhook/` and a host. A limit counts over all workers together; a change is in force within
10 seconds, and meanwhile no more is sent than by the larger of both. Where none was set, `sms` has 450 a second, others none.
Examples:
  punctual rates
  punctual rates set sms 100
  punctual rates set webhook/hooks.example.com 20
  punctual rates unset sms";

pub(super) const HOLD_HELP: &str = "\
What is held waits in its queue, and nothing is lost. Within 5 seconds nothing more of it is begun; calls under way go on.
Examples:
  punctual hold target sms --why 'the gateway is being mended'
  punctual hold tenant bank --why 'they called: wrong texts'
  punctual hold list
  punctual release target sms";

/// `rates`.
#[derive(Debug, Args)]
pub struct RatesArgs {
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
    /// What to do; without it, limits are listed.
    #[command(subcommand)]
    pub command: Option<RatesCommand>,
}

/// `rates set` and `rates unset`.
#[derive(Debug, Subcommand)]
pub enum RatesCommand {
    /// Limit the calls to a target.
    Set {
        /// Which: `sms`, `email`, `queue`, `webhook/hooks.example.com`.
        target: Target,
        /// Calls a second over all workers, 1 to 100000.
        per_second: u32,
    },
    /// Take the limit of a target away; `sms` then has its default again.
    Unset {
        /// Which.
        target: Target,
    },
}

/// `hold`.
#[derive(Debug, Subcommand)]
pub enum HoldCommand {
    /// Hold everything.
    All(WhyArgs),
    /// Hold the jobs of a tenant.
    Tenant {
        /// Which.
        tenant: String,
        /// The reason.
        #[command(flatten)]
        why: WhyArgs,
    },
    /// Hold a priority's queue.
    Priority {
        /// `urgent`, `normal` or `bulk`.
        priority: Priority,
        /// The reason.
        #[command(flatten)]
        why: WhyArgs,
    },
    /// Hold the calls to a target.
    Target {
        /// Which: `sms`, `email`, `queue`, `webhook/hooks.example.com`.
        target: Target,
        /// The reason.
        #[command(flatten)]
        why: WhyArgs,
    },
    /// List the holds that stand.
    List {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

/// Why something is held.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The reason, for whoever finds the hold.
    #[arg(long)]
    pub why: String,
}

/// `release`.
#[derive(Debug, Subcommand)]
pub enum ReleaseCommand {
    /// End the hold over everything. Holds of parts stay.
    All,
    /// End the hold over a tenant.
    Tenant {
        /// Which.
        tenant: String,
    },
    /// End the hold over a priority's queue.
    Priority {
        /// Which.
        priority: Priority,
    },
    /// End the hold over a target.
    Target {
        /// Which.
        target: Target,
    },
}

//! The words that serve the API, and make its keys.

use clap::{Args, Subcommand};
use punctual_core::access::{Reach, Role};
use std::net::SocketAddr;

pub(super) const API_HELP: &str = "\
Without a key nothing is answered but /healthz, /readyz, /openapi.json and /docs; there is no default key. TLS is the load balancer's.
As a Lambda function (AWS_LAMBDA_RUNTIME_API is set) it needs no address.
Examples:
  punctual api
  punctual api --listen 0.0.0.0:8080 --key-requests-per-s 200";

pub(super) const KEYS_HELP: &str = "\
A key is shown once, when it is made; only its hash is kept. A revoked key opens nothing after 5 seconds.
Roles: read looks, without payloads; write makes, changes and runs jobs; operate holds, limits and replays.
Examples:
  punctual keys add --tenant bank --role write --label 'billing service'
  punctual keys add --tenant '*' --role operate --label 'on call'
  punctual keys revoke 7f3a0c1d";

/// `api`.
#[derive(Debug, Args)]
pub struct ApiArgs {
    /// Where to listen. Beyond this machine only behind a load balancer that speaks TLS.
    #[arg(long, env = "PUNCTUAL_API_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Requests a second that one key is good for, in this process.
    #[arg(long, env = "PUNCTUAL_API_KEY_REQUESTS_PER_S", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub key_requests_per_s: u32,
    /// Hosts that webhooks and queues may name whatever their addresses are; what the workers are given.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ALLOW", default_value = "")]
    pub webhook_allow: String,
}

/// `keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key, and show it this once.
    Add(KeyAddArgs),
    /// List the keys, without what opens.
    List {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key.
    Revoke {
        /// Its id, as `keys list` shows it.
        id: String,
    },
}

/// `keys add`.
#[derive(Debug, Args)]
pub struct KeyAddArgs {
    /// Whose jobs it opens; `*` for everybody's, and for what concerns all.
    #[arg(long)]
    pub tenant: Reach,
    /// What it opens of them: `read`, `write` or `operate`.
    #[arg(long)]
    pub role: Role,
    /// Who holds it, for people.
    #[arg(long)]
    pub label: String,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

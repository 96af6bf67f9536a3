//! The words of this package's own binary: the proofs at full size, the copies that they compare with, and all words of
//! the local stack's program.

use crate::outage::{self, OutageArgs};
use crate::rounds::{self, RoundsArgs};
use crate::simulation;
use clap::{Parser, Subcommand};
use punctual_core::aws::{Names, connect};
use punctual_core::clock::Clock;
use punctual_core::due::{Minute, SETTLE};
use punctual_core::lease::LeaseId;
use punctual_core::memory::World;
use punctual_core::ports::Ports;
use punctual_core::process::{EXIT_FAILED, EXIT_OK, fail, init_logs, keep_time, process_id, stop_signal};
use punctual_core::zone::Zones;
use punctual_scheduler::dispatch::{DispatchSettings, service};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The word of a scheduler copy that sees leases which no other copy sees.
pub const WITHOUT_LEASES: &str = "__dispatch-without-leases";

/// The emulators log each refused condition as a warning, and a refused condition is a normal answer here.
const QUIET: &str = "warn,dynoxide=error";

/// Proofs of Punctual at full size.
#[derive(Debug, Parser)]
#[command(name = "punctual-tests", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Three scheduler copies, round after round of jobs due at one instant: each run is enqueued once.
    Rounds(RoundsArgs),
    /// Jobs that fell due while no scheduler was up: each run is late or a row with its reason.
    Outage(OutageArgs),
    /// A scheduler copy with leases of its own.
    #[command(name = WITHOUT_LEASES, hide = true)]
    WithoutLeases {
        /// Its name.
        #[arg(long)]
        id: String,
        /// Seconds by which it reads ahead.
        #[arg(long)]
        look_ahead_s: u64,
    },
}

/// The whole program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|word| word == "sim") {
        let words: Vec<String> =
            args.split_off(2).into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        return simulation::runner::main(&words);
    }
    let is_ours = |word: &OsString| ["rounds", "outage", WITHOUT_LEASES].iter().any(|ours| word == ours);
    if !args.get(1).is_some_and(is_ours) {
        return punctual_localstack::cli::main(args);
    }
    // `cargo rounds -- --rounds 3` arrives as `rounds -- --rounds 3`.
    if args.get(2).is_some_and(|word| word == "--") {
        args.remove(2);
    }
    let cli = Cli::parse_from(args);
    init_logs(if matches!(cli.command, Command::WithoutLeases { .. }) { "info" } else { QUIET });
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail("punctual-tests", &error, EXIT_FAILED),
    };
    let ended = match cli.command {
        Command::Rounds(args) => runtime.block_on(rounds::run(args)),
        Command::Outage(args) => runtime.block_on(outage::run(args)),
        Command::WithoutLeases { id, look_ahead_s } => {
            let settings =
                DispatchSettings { look_ahead: Duration::from_secs(look_ahead_s), ..DispatchSettings::default() };
            runtime.block_on(dispatch_without_leases(&id, settings)).map(|()| true)
        }
    };
    match ended {
        Ok(true) => ExitCode::from(EXIT_OK),
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(error) => fail("punctual-tests", &format!("{error:#}"), EXIT_FAILED),
    }
}

/// A scheduler copy as `punctual dispatch` is one, but for its leases: they lie in its own memory, so it takes all shards.
async fn dispatch_without_leases(id: &str, settings: DispatchSettings) -> anyhow::Result<()> {
    let aws = connect(Names::new("punctual").map_err(anyhow::Error::msg)?).await?;
    let ports = aws.ports();
    let layout = ports.control.layout().await?.ok_or_else(|| anyhow::anyhow!("the store was never set up"))?;
    let clock: Arc<dyn Clock> = aws.clock.clone();
    let own = World::new(clock.clone()).ports().leases;
    for shard in layout.read.all() {
        own.init(&LeaseId::Shard(shard), Minute::of(clock.now() - SETTLE)).await?;
    }
    let zones = Arc::new(Zones::load(None)?);
    let stop = async {
        if let Err(error) = stop_signal().await {
            tracing::error!(%error, "the stop signal cannot be listened for: stopping");
        }
    };
    let control = ports.control.clone();
    let alone = Ports { leases: own, ..ports };
    tokio::select! {
        () = service::run(alone, clock, layout, zones, settings, process_id(id), stop) => {}
        // Copies that disagree about the time do not meet, and one that does not ask it is not as the real ones are.
        () = keep_time(&*aws.clock, &*control) => {}
    }
    Ok(())
}

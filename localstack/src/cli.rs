//! The words of the `punctual-local` command: `stack` and `demo`.

use crate::demo::{self, DemoArgs};
use crate::gateway::GatewayConfig;
use crate::multicall::contained_program;
use crate::stack::{Stack, StackConfig};
use clap::{Args, Parser, Subcommand};
use punctual_core::process::{EXIT_FAILED, EXIT_OK, fail, init_logs, print_line, stop_signal};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The local stack of Punctual, and the demo that runs on it.
#[derive(Debug, Parser)]
#[command(name = "punctual-local", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep DynamoDB, SQS and an SMS gateway up until interrupted; prints the exports to use them.
    Stack(StackArgs),
    /// Send thousands of reminders through schedulers and workers in processes of their own.
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
struct StackArgs {
    /// Port of DynamoDB; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    dynamodb_port: u16,
    /// Port of SQS; 0 takes a free one.
    #[arg(long, default_value_t = 9324)]
    sqs_port: u16,
    /// Port of the SMS gateway; 0 takes a free one.
    #[arg(long, default_value_t = 8025)]
    gateway_port: u16,
    /// SQLite file that keeps the tables; without it they end with the stack.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Requests a second above which the gateway answers 429.
    #[arg(long, default_value_t = 500)]
    gateway_cap: u32,
    /// The gateway sends a repeat of a reference again, instead of dropping it.
    #[arg(long)]
    gateway_sends_repeats: bool,
}

/// The emulators log each refused condition as a warning, and a refused condition is a normal answer here.
const QUIET: &str = "warn,dynoxide=error";

/// The whole program.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = contained_program(&args) {
        return code;
    }
    // `cargo demo -- --jobs 5` arrives as `demo -- --jobs 5`.
    if args.get(2).is_some_and(|word| word == "--") {
        args.remove(2);
    }
    let cli = Cli::parse_from(args);
    init_logs(QUIET);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail("punctual-local", &error, EXIT_FAILED),
    };
    let ended = match cli.command {
        Command::Stack(args) => runtime.block_on(stack(args)).map(|()| EXIT_OK),
        Command::Demo(args) => runtime.block_on(demo::run(args)),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail("punctual-local", &format!("{error:#}"), EXIT_FAILED),
    }
}

async fn stack(args: StackArgs) -> anyhow::Result<()> {
    let config = StackConfig {
        dynamodb_port: args.dynamodb_port,
        sqs_port: args.sqs_port,
        gateway_port: args.gateway_port,
        data: args.data,
        gateway: GatewayConfig {
            per_second_cap: args.gateway_cap,
            drops_repeats: !args.gateway_sends_repeats,
            ..GatewayConfig::default()
        },
        on_message: None,
    };
    let stack = Stack::start(config)?;
    for (name, value) in stack.exports() {
        print_line(&format!("export {name}={value}"))?;
    }
    eprintln!("\nThe local stack is up. In another terminal, with these exports: `cargo punctual setup`,");
    eprintln!("`cargo punctual dispatch`, `cargo punctual-worker`, `cargo punctual jobs add --help`.");
    eprintln!("What the gateway did: {}/stats. Ctrl-C ends it.", stack.gateway_url());
    stop_signal().await?;
    stack.stop().await;
    Ok(())
}

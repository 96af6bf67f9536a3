//! The `punctual` command: one scheduler copy, and the operator's commands.
//!
//! A run begins here: [`operations`] makes jobs, [`dispatch`] turns due jobs into messages. It never calls a handler.

pub mod api;
pub mod cli;
pub mod client;
pub mod commands;
pub mod cost;
pub mod dispatch;
mod doctor;
pub mod import;
pub mod listing;
pub mod next;
pub mod operations;
pub mod operator;
pub mod payload_text;
pub mod status;
pub mod timetable;

use clap::Parser;
use commands::CommandError;
use punctual_core::process::{EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, EXIT_PARTLY, fail, init_logs};
use std::ffi::OsString;
use std::process::ExitCode;

/// The whole program, for its own binary and for others that contain it.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = cli::Cli::parse_from(args);
    init_logs("info");
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail("punctual", &error, EXIT_FAILED),
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(()) => ExitCode::from(EXIT_OK),
        Err(CommandError::BadInput(problems)) => {
            problems.iter().for_each(|problem| eprintln!("punctual: {problem}"));
            ExitCode::from(EXIT_BAD_INPUT)
        }
        Err(CommandError::Failed(problem)) => fail("punctual", &problem, EXIT_FAILED),
        Err(CommandError::Partly(problem)) => fail("punctual", &problem, EXIT_PARTLY),
    }
}

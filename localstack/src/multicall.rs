//! One binary, several programs: a hidden first word makes it `punctual` or `punctual-worker`.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// The first word that makes the binary a scheduler.
pub const SCHEDULER: &str = "__punctual";
/// The first word that makes the binary a worker.
pub const WORKER: &str = "__punctual-worker";

/// Runs a contained program if the arguments ask for one.
pub fn contained_program(args: &[OsString]) -> Option<ExitCode> {
    let word = args.get(1).map(OsString::as_os_str);
    let rest =
        |name: &str| std::iter::once(OsString::from(name)).chain(args.iter().skip(2).cloned()).collect::<Vec<_>>();
    if word == Some(OsStr::new(SCHEDULER)) {
        Some(punctual_scheduler::main(rest("punctual")))
    } else if word == Some(OsStr::new(WORKER)) {
        Some(punctual_worker::main(rest("punctual-worker")))
    } else {
        None
    }
}

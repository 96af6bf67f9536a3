//! The `punctual` command.

fn main() -> std::process::ExitCode {
    punctual_scheduler::main(std::env::args_os())
}

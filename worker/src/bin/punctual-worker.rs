//! The `punctual-worker` command.

fn main() -> std::process::ExitCode {
    punctual_worker::main(std::env::args_os())
}

//! The `punctual-local` command.

fn main() -> std::process::ExitCode {
    punctual_localstack::cli::main(std::env::args_os())
}

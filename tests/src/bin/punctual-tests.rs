//! The local stack's program under a name that this package's tests can start.

fn main() -> std::process::ExitCode {
    punctual_localstack::cli::main(std::env::args_os())
}

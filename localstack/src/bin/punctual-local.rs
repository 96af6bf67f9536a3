//! The `punctual-local` command.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    punctual_localstack::cli::main(std::env::args_os())
}

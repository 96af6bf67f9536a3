//! The `punctual-worker` command.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    punctual_worker::main(std::env::args_os())
}

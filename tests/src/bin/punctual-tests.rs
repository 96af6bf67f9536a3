//! Everything that this package's tests start as processes, and the proofs at full size.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    punctual_tests::multicall::main(std::env::args_os())
}

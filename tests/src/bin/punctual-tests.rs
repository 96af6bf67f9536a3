//! The local stack's program under a name that this package's tests can start, and the simulation.

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((word, rest)) if word == "sim" => punctual_tests::simulation::runner::main(rest),
        _ => punctual_localstack::cli::main(std::env::args_os()),
    }
}

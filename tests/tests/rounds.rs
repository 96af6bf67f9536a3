//! Three scheduler copies in processes of their own share due jobs, and enqueue each run once. At full size:
//! `cargo rounds`.

use punctual_tests::rounds::{Outcome, RoundsArgs, play};

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");

async fn played(rounds: u32, jobs: u64, without_leases: bool) -> Outcome {
    let args = RoundsArgs { rounds, jobs, look_ahead_s: 5, without_leases, report: None };
    let told = |round: &punctual_tests::rounds::Round| {
        println!("{}", round.line());
        Ok(())
    };
    play(PROGRAM, &args, told).await.expect("every round comes to its end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_copies_enqueue_every_run_of_every_round_once_and_share_the_work() {
    let outcome = played(3, 1_500, false).await;
    assert_eq!(outcome.problems(false), [""; 0]);
    assert_eq!((outcome.rounds.len(), outcome.enqueued), (3, 4_500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_shared_leases_the_same_round_is_enqueued_again_and_again() {
    let outcome = played(1, 600, true).await;
    assert_eq!(outcome.problems(true), [""; 0]);
    let problems = outcome.problems(false);
    assert!(problems.iter().any(|problem| problem.contains("600 due: ")), "the round would not hold: {problems:?}");
}

//! Three scheduler copies in processes of their own share due jobs, and enqueue each run once. At full size:
//! `cargo rounds`.

use punctual_tests::rounds::{Outcome, RoundsArgs, play};

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");

async fn played(args: RoundsArgs) -> Outcome {
    let told = |round: &punctual_tests::rounds::Round| {
        println!("{}", round.line());
        Ok(())
    };
    play(PROGRAM, &args, told).await.expect("every round comes to its end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_copies_enqueue_every_run_of_every_round_once_and_share_the_work() {
    let outcome =
        played(RoundsArgs { rounds: 3, jobs: 1_500, look_ahead_s: 8, without_leases: false, report: None }).await;
    assert_eq!(outcome.problems(false), [""; 0]);
    assert_eq!((outcome.rounds.len(), outcome.enqueued), (3, 4_500));
}

// What all copies have read ahead is sent by all of them at its instant. They read on every five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_shared_leases_the_same_round_is_enqueued_again_and_again() {
    let outcome =
        played(RoundsArgs { rounds: 1, jobs: 600, look_ahead_s: 15, without_leases: true, report: None }).await;
    assert_eq!(outcome.problems(true), [""; 0]);
    let problems = outcome.problems(false);
    assert!(problems.iter().any(|problem| problem.contains("600 due: ")), "the round would not hold: {problems:?}");
}

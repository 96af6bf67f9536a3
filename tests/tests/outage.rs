//! Schedulers start after an outage, in processes of their own. At full size: `cargo outage`.

use punctual_tests::outage::play;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_firing_of_an_outage_is_enqueued_late_or_stands_in_one_row_with_its_reason() {
    let outcome = play(PROGRAM, 3_000).await.expect("the backlog is worked off");
    println!("{}", outcome.line());
    assert_eq!(outcome.problems, [""; 0]);
    let tally = outcome.tally;
    // 180 minutely jobs owe 50 firings each.
    assert_eq!((tally.owed, outcome.left_due), (2_820 + 180 * 50, 0));
    assert_eq!(tally.fired + tally.missed + tally.late, tally.owed);
    assert!(
        [tally.fired, tally.missed, tally.late, tally.ranges].iter().all(|n| *n > 50),
        "no rule is left out: {tally:?}"
    );
}

//! Small worlds in trouble, each drawn from a seed and held against the reference model.

use punctual_core::zone::Zones;
use punctual_tests::simulation::processes::Sabotage;
use punctual_tests::simulation::{play, runner::play_all};
use std::sync::Arc;

#[test]
fn three_hundred_seeds_keep_every_invariant() {
    match play_all(1..301, |_| {}) {
        Ok(totals) => println!("{totals:?}"),
        Err(trace) => panic!("{trace}"),
    }
}

#[test]
fn a_seed_is_the_same_history_each_time() {
    let zones = Arc::new(Zones::embedded());
    for seed in 1..=20 {
        let digest = || play(seed, &zones, Sabotage::none()).digest();
        assert_eq!(digest(), digest(), "seed {seed}");
    }
}

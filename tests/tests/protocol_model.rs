//! The protocol of dispatch, work and changes, explored exhaustively within bounds ([`model`]).

mod model;

use model::{Broken, CALLED_AFTER_CANCEL, Protocol, RANGE_OVER_A_RUN, Real, Rules};
use punctual_core::missed::Many;
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;

/// How far a model reaches: firings, changes, crashes, and the job's rule for several missed firings.
type Bounds = (u8, u8, u8, Many);

fn protocol((instants, most_changes, most_crashes, many): Bounds, rules: Rules) -> Protocol {
    let real = Real::new(instants, instants, many);
    Protocol { rules, real, instants, most_changes, most_crashes, holds_lost: false }
}

/// Explores all states that the system can reach; returns which of the windows it reaches.
fn nothing_breaks(protocol: Protocol) -> BTreeSet<&'static str> {
    let bounds = (protocol.instants, protocol.most_changes, protocol.most_crashes);
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    let found = checker.discoveries();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{bounds:?}: {states} states, {} steps, depth {depth}", checker.state_count());
    for broken in Broken::ALL {
        let path = found.get(broken.name()).map(|path| path.clone().into_actions());
        assert_eq!(path, None, "{} is broken within {bounds:?}", broken.name());
    }
    found.into_keys().collect()
}

#[test]
fn one_firing_two_changes_and_a_crash_break_nothing() {
    let reached = nothing_breaks(protocol((1, 2, 1, Many::Latest), Rules::ALL));
    assert!(reached.contains(CALLED_AFTER_CANCEL), "the promise on cancel has a window");
}

#[test]
fn two_firings_a_change_and_a_crash_break_nothing() {
    nothing_breaks(protocol((2, 1, 1, Many::Latest), Rules::ALL));
}

#[test]
fn a_firing_that_an_edit_adds_is_not_lost() {
    let real = Real::new(2, 1, Many::Latest);
    nothing_breaks(Protocol { real, ..protocol((2, 1, 1, Many::Latest), Rules::ALL) });
}

#[test]
fn firings_skipped_as_a_range_break_nothing() {
    let reached = nothing_breaks(protocol(RANGE, Rules::ALL));
    assert!(reached.contains(RANGE_OVER_A_RUN), "a range row has a window");
}

#[test]
fn firings_that_are_all_run_break_nothing() {
    nothing_breaks(protocol((2, 0, 1, Many::All), Rules::ALL));
    nothing_breaks(protocol((2, 1, 0, Many::All), Rules::ALL));
}

// Otherwise a crash between a call and its record, or a freeze, excuses a second delivery.
#[test]
fn where_a_lost_run_is_held_no_crash_delivers_it_twice() {
    nothing_breaks(Protocol { holds_lost: true, ..protocol(ONE_CHANGED, Rules::ALL) });
}

/// Each rule, the property that breaks without it, and where.
const ABLATIONS: [(&str, Broken, Bounds); 25] = [
    ("enqueue_first", Broken::Lost, ONE),
    ("skip_row_first", Broken::Lost, ONE),
    ("advance_compared", Broken::Zombie, ONE_CHANGED),
    ("conditional_skip", Broken::False, ONE),
    ("row_bounds_range", Broken::Lost, RANGE),
    ("owed_stays_owed", Broken::Lost, ONE_CHANGED),
    ("sent_ahead_known", Broken::Lost, TWO_CHANGED),
    ("void_from_boundary", Broken::Lost, TWO_CHANGED),
    ("generation_kept", Broken::Cancel, ONE_MADE_AGAIN),
    ("void_gets_row", Broken::Stuck, ONE_CHANGED),
    ("void_gen_compared", Broken::Stuck, ONE_CHANGED),
    ("done_is_live", Broken::Lost, ONE),
    ("void_keeps_back_off", Broken::Early, ONE_CHANGED),
    ("pause_keeps", Broken::Pause, ONE_CHANGED),
    ("not_due_waits", Broken::Early, ONE),
    ("consistent_read", Broken::Cancel, ONE_CHANGED),
    ("back_off", Broken::Early, ONE),
    ("row_compared", Broken::Twice, ONE),
    ("lease_outlives_call", Broken::Twice, ONE),
    ("last_attempt_dies", Broken::Attempts, ONE),
    ("unknown_is_held", Broken::Twice, ONE),
    ("fenced_record", Broken::Final, ONE),
    ("fenced_give_up", Broken::Twice, ONE),
    ("known_outcome_recorded", Broken::Twice, ONE),
    ("letter_again", Broken::DeadLetter, ONE),
];
const ONE: Bounds = (1, 0, 1, Many::Latest);
const ONE_CHANGED: Bounds = (1, 1, 1, Many::Latest);
const ONE_MADE_AGAIN: Bounds = (1, 2, 0, Many::Latest);
const TWO_CHANGED: Bounds = (2, 1, 0, Many::Latest);
const RANGE: Bounds = (2, 0, 1, Many::None);

#[test]
fn without_any_one_rule_a_property_breaks() {
    for (rule, property, bounds) in ABLATIONS {
        let model = protocol(bounds, Rules::ALL.without(rule));
        let until = HasDiscoveries::AnyOf(BTreeSet::from([property.name()]));
        let checker = model.checker().finish_when(until).spawn_bfs().join();
        let found = checker.discoveries();
        let path = found.get(property.name()).map(|path| path.clone().into_actions());
        let path = path.unwrap_or_else(|| panic!("without {rule}, {} holds within {bounds:?}", property.name()));
        println!("without {rule}: {}, {} steps: {path:?}", property.name(), path.len());
    }
}

#[test]
fn each_rule_is_taken_away_and_each_property_is_broken() {
    let rules: BTreeSet<&str> = ABLATIONS.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(rules, Rules::NAMES.iter().copied().collect());
    let broken: BTreeSet<Broken> = ABLATIONS.iter().map(|(_, broken, _)| *broken).collect();
    assert_eq!(broken, Broken::ALL.iter().copied().collect());
}

use super::*;

const PHONE: &str = "+12025550100";

fn config() -> GatewayConfig {
    GatewayConfig { latency: Duration::ZERO, ..GatewayConfig::default() }
}

fn scripted(behaviours: &[Behaviour]) -> GatewayState {
    GatewayState::new(GatewayConfig { script: BTreeMap::from([(PHONE.to_owned(), behaviours.to_vec())]), ..config() })
}

fn offer(state: &mut GatewayState, reference: &str, at_ms: u64) -> Answer {
    offer_from(state, reference, "w1", at_ms).answer
}

fn offer_from(state: &mut GatewayState, reference: &str, worker: &str, at_ms: u64) -> Reply {
    let request = SmsRequest { reference: reference.to_owned(), to: PHONE.to_owned(), _text: "hello".to_owned() };
    let now = Duration::from_millis(at_ms);
    state.take(&request, worker, now, DateTime::UNIX_EPOCH + now)
}

fn accepted(number: u64) -> Answer {
    Answer::Accepted { id: message_id(number), repeat: false }
}

fn repeat(number: u64) -> Answer {
    Answer::Accepted { id: message_id(number), repeat: true }
}

#[test]
fn no_second_lets_through_more_than_the_cap() {
    let mut state = GatewayState::new(GatewayConfig { per_second_cap: 10, ..config() });
    let mut let_through = Vec::new();
    for at_ms in (0..5_000).step_by(37) {
        match offer(&mut state, &format!("r{at_ms}"), at_ms) {
            Answer::Throttled { retry_after_s: 1 } => {}
            Answer::Accepted { .. } => let_through.push(at_ms),
            other => panic!("unexpected {other:?}"),
        }
    }
    for &from in &let_through {
        let in_second = let_through.iter().filter(|&&at| at >= from && at < from + 1_000).count();
        assert!(in_second <= 10, "{in_second} in the second from {from} ms");
    }
    let stats = state.stats();
    assert_eq!(stats.accepted, let_through.len() as u64);
    assert_eq!(stats.accepted + stats.rejected_429, 5_000u64.div_ceil(37));
    assert_eq!(stats.peak_per_s, 10);
}

#[test]
fn the_cap_slides_over_the_edge_of_a_calendar_second() {
    let mut state = GatewayState::new(GatewayConfig { per_second_cap: 2, ..config() });
    assert_eq!(offer(&mut state, "a", 900), accepted(1));
    assert_eq!(offer(&mut state, "b", 950), accepted(2));
    assert_eq!(offer(&mut state, "c", 1_899), Answer::Throttled { retry_after_s: 1 });
    assert_eq!(offer(&mut state, "c", 1_900), accepted(3));
}

#[test]
fn the_peak_counts_everything_but_429() {
    let mut state = scripted(&[Behaviour::BadNumber, Behaviour::Throttle { retry_after_s: 3 }, Behaviour::Accept]);
    assert_eq!(offer(&mut state, "a", 0), Answer::BadNumber);
    assert_eq!(offer(&mut state, "b", 1), Answer::Throttled { retry_after_s: 3 });
    assert_eq!(offer(&mut state, "b", 2), accepted(1));
    assert_eq!(offer(&mut state, "b", 3), repeat(1));
    assert_eq!(state.take_unreadable(Duration::from_millis(4)).answer, Answer::BadRequest);
    let stats = state.stats();
    assert_eq!(stats.peak_per_s, 4);
    assert_eq!(stats.rejected_429, 1);
    assert_eq!(stats.refused_permanent, 2);
}

#[test]
fn a_repeat_is_dropped_and_answered_with_the_first_id() {
    let mut state = GatewayState::new(config());
    assert_eq!(offer(&mut state, "a", 0), accepted(1));
    assert_eq!(offer(&mut state, "b", 1), accepted(2));
    assert_eq!(offer(&mut state, "a", 90_000), repeat(1));
    let stats = state.stats();
    assert_eq!((stats.accepted, stats.repeats, stats.repeats_dropped, stats.sent_twice), (2, 1, 1, 0));
}

#[test]
fn without_dropping_a_reference_is_counted_once_however_often_it_is_sent() {
    let mut state = GatewayState::new(GatewayConfig { drops_repeats: false, ..config() });
    for at_ms in 0..4 {
        assert_eq!(offer(&mut state, "a", at_ms), accepted(1));
    }
    let stats = state.stats();
    assert_eq!((stats.accepted, stats.repeats, stats.repeats_dropped, stats.sent_twice), (1, 3, 0, 1));
}

#[test]
fn a_reference_refused_or_throttled_before_is_no_repeat() {
    let mut state = scripted(&[
        Behaviour::Unavailable { retry_after_s: None },
        Behaviour::Throttle { retry_after_s: 1 },
        Behaviour::Hang { for_ms: 30_000 },
        Behaviour::Accept,
    ]);
    assert_eq!(offer(&mut state, "a", 0), Answer::Unavailable { retry_after_s: None });
    assert_eq!(offer(&mut state, "a", 1), Answer::Throttled { retry_after_s: 1 });
    let hung = offer_from(&mut state, "a", "w1", 2);
    assert_eq!(hung, Reply { answer: Answer::ConnectionClosed, after: Duration::from_secs(30) });
    assert_eq!(offer(&mut state, "a", 3), accepted(1));
    let stats = state.stats();
    assert_eq!((stats.unavailable, stats.rejected_429, stats.repeats), (2, 1, 0));
}

#[test]
fn a_dropped_connection_after_acceptance_makes_the_next_try_a_repeat() {
    let mut state = scripted(&[Behaviour::AcceptThenDropConnection, Behaviour::Slow { ms: 40 }]);
    assert_eq!(offer(&mut state, "a", 0), Answer::ConnectionClosed);
    assert_eq!(state.accepted(), 1);
    let second = offer_from(&mut state, "a", "w2", 1);
    assert_eq!(second, Reply { answer: repeat(1), after: Duration::from_millis(40) });
    assert_eq!(state.stats().per_worker, BTreeMap::from([("w1".to_owned(), 1)]));
}

#[test]
fn the_last_behaviour_repeats_until_the_script_is_replaced() {
    let mut state = scripted(&[Behaviour::Accept, Behaviour::OptedOut]);
    assert_eq!(offer(&mut state, "a", 0), accepted(1));
    for at_ms in 1..4 {
        assert_eq!(offer(&mut state, "b", at_ms), Answer::OptedOut);
    }
    state.set_script(BTreeMap::from([(PHONE.to_owned(), Vec::new())]));
    assert_eq!(offer(&mut state, "b", 4), accepted(2));
}

#[test]
fn a_request_above_the_cap_plays_no_behaviour() {
    let mut state = scripted(&[Behaviour::BadNumber, Behaviour::Accept]);
    state.config.per_second_cap = 1;
    assert_eq!(offer(&mut state, "a", 0), Answer::BadNumber);
    assert_eq!(offer(&mut state, "a", 1), Answer::Throttled { retry_after_s: 1 });
    assert_eq!(offer(&mut state, "a", 1_000), accepted(1));
}

#[test]
fn only_the_first_arrival_of_a_reference_is_kept_even_if_it_is_throttled() {
    let mut state = GatewayState::new(GatewayConfig { per_second_cap: 0, ..config() });
    assert_eq!(offer(&mut state, "a", 10), Answer::Throttled { retry_after_s: 1 });
    state.config.per_second_cap = 1;
    assert_eq!(offer_from(&mut state, "a", "w2", 20).answer, accepted(1));
    let arrived_at = DateTime::UNIX_EPOCH + Duration::from_millis(10);
    assert_eq!(state.arrivals(), [Arrival { reference: "a".to_owned(), worker: "w1".to_owned(), arrived_at }]);
}

#[test]
fn the_script_reads_as_documented() {
    let script: Vec<Behaviour> = serde_json::from_str(
        r#"["accept","bad_number","opted_out",{"unavailable":{}},{"unavailable":{"retry_after_s":2}},
            {"throttle":{"retry_after_s":1}},{"hang":{"for_ms":5}},"accept_then_drop_connection",{"slow":{"ms":9}}]"#,
    )
    .unwrap();
    assert_eq!(script.len(), 9);
    assert_eq!(script[3], Behaviour::Unavailable { retry_after_s: None });
    assert_eq!(script[8], Behaviour::Slow { ms: 9 });
}

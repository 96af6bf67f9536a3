//! A hundred million jobs due at midnight: what the paper says, replayed through the real decisions in virtual time.

use punctual_core::scale::{Limit, Limits, Night};
use punctual_tests::midnight::{Held, Placement, Replay, Replayed, replay};

/// The night of `docs/scale.md`, with fewer shards so that a small part of it still fills each.
const NIGHT: Night = Night { due: 1e8, shards: 64, copies: 16, window_s: 0.0 };

/// Generous enough that the due buckets are what limits.
const LIMITS: Limits =
    Limits { partition_writes: 1e3, shard_runs: 2.5e3, copy_runs: 1e4, table_writes: 1e5, index_writes: 2.56e5 };

const PART: f64 = 1.0 / 4_000.0;

fn replay_of(night: Night, limits: Limits, part: f64) -> Replay {
    Replay { night, limits, part, held: Held::Both, placement: Placement::Apart }
}

/// What the paper says of the part that is replayed.
fn paper(replay: &Replay) -> (Limit, f64) {
    Night { due: replay.night.due * replay.part, ..replay.night }.until_queued(&replay.limits.scaled(replay.part))
}

/// Replays, and compares with the paper: within one part in twenty.
fn agrees(replayed: &Replay, expected: Limit) -> Replayed {
    let (limit, seconds) = paper(replayed);
    assert_eq!(limit, expected);
    let found = replay(*replayed);
    assert_eq!(found.queued, (replayed.night.due * replayed.part).round() as usize);
    assert!((found.seconds / seconds - 1.0).abs() <= 0.05, "{} s replayed, {seconds} s on paper", found.seconds);
    found
}

#[test]
fn one_full_shard_at_its_real_limit_takes_as_long_as_the_paper_says() {
    // Shards share no bucket: where buckets limit, one of 1,024 shards takes as long as all of them.
    let night = Night { shards: 1_024, copies: 256, ..NIGHT };
    let (limit, whole) = night.until_queued(&Limits { table_writes: 2e6, index_writes: 4e6, ..LIMITS });
    assert_eq!(limit, Limit::Bucket);
    let one = Night { due: night.due / 1_024.0, shards: 1, copies: 1, window_s: 0.0 };
    let found = agrees(&replay_of(one, LIMITS, 1.0), Limit::Bucket);
    assert!((found.seconds / whole - 1.0).abs() <= 0.05, "{} s replayed, {whole} s on paper", found.seconds);
    assert_eq!((found.busiest_leaving, found.busiest_arriving), (1_000, 1_000));
}

#[test]
fn a_part_of_the_night_takes_the_minutes_of_the_whole() {
    let found = agrees(&replay_of(NIGHT, LIMITS, PART), Limit::Bucket);
    let (_, whole) = NIGHT.until_queued(&LIMITS);
    // The part hashes less evenly than the whole: by no more than a fifth.
    assert!((1.0..1.2).contains(&(found.seconds / whole)), "{} s for {whole} s", found.seconds);
}

#[test]
fn the_minutes_grow_as_the_shards_get_fewer() {
    for shards in [16, 32] {
        let fewer = Night { shards, ..NIGHT };
        agrees(&replay_of(fewer, LIMITS, PART), Limit::Bucket);
    }
}

#[test]
fn the_bucket_that_jobs_arrive_in_limits_as_much_as_the_one_they_leave() {
    let limits = Limits { table_writes: 2e5, index_writes: 5.12e5, ..LIMITS };
    let seconds = |held| replay(Replay { held, ..replay_of(NIGHT, limits, PART / 2.0) }).seconds;
    let both = seconds(Held::Both);
    for one in [Held::Leaving, Held::Arriving].map(seconds) {
        assert!((one / both - 1.0).abs() < 0.01, "{one} s with one side held, {both} s with both");
    }
    let neither = seconds(Held::Neither);
    assert!(neither < both / 1.5, "{neither} s with neither side held, {both} s with both");
}

#[test]
fn a_spread_window_that_is_long_enough_leaves_no_backlog() {
    let burst = Night { shards: 64, ..NIGHT };
    let spread = Night { window_s: 7_200.0, ..burst };
    let found = agrees(&replay_of(spread, LIMITS, PART), Limit::Window);
    let late = replay(replay_of(burst, LIMITS, PART)).lag_s;
    assert!(found.lag_s < late / 20.0, "{} s late with a window, {late} s without", found.lag_s);
}

#[test]
fn a_spread_window_that_is_too_short_only_hides_its_own_length() {
    let short = Night { window_s: 600.0, ..NIGHT };
    let found = agrees(&replay_of(short, LIMITS, PART), Limit::Bucket);
    let on_paper = Night { due: short.due * PART, ..short }.lag_s(&LIMITS.scaled(PART));
    assert!((found.lag_s / on_paper - 1.0).abs() <= 0.1, "{} s late, {on_paper} s on paper", found.lag_s);
}

#[test]
fn a_table_that_was_never_warmed_is_what_limits() {
    // What an account may use of one table unless more was asked for.
    agrees(&replay_of(NIGHT, Limits { table_writes: 4e4, ..LIMITS }, PART), Limit::Table);
}

#[test]
fn too_few_copies_are_what_limits() {
    agrees(&replay_of(NIGHT, Limits { copy_runs: 2e3, ..LIMITS }, PART), Limit::Copies);
}

#[test]
fn hot_buckets_that_lie_together_take_as_long_as_the_fullest_partition() {
    let limits = Limits { index_writes: 1.28e5, ..LIMITS };
    let hashed = Replay { placement: Placement::Hashed, ..replay_of(NIGHT, limits, PART) };
    let found = replay(hashed);
    let part = Night { due: NIGHT.due * PART, ..NIGHT };
    let apart = part.until_queued(&limits.scaled(PART)).1;
    let unmoved = part.until_queued_unmoved(&limits.scaled(PART));
    assert!(found.seconds > 2.0 * apart, "{} s, {apart} s apart", found.seconds);
    assert!((0.5..1.5).contains(&(found.seconds / unmoved)), "{} s, {unmoved} s on paper", found.seconds);
}

use super::*;
use crate::due::Audit;

/// A month with one run in each of so many full batches, of jobs with `job_bytes`.
fn one_run(job_bytes: f64, runs: f64, last_runs: f64) -> Load {
    let class = Class { job_bytes, jobs: 1.0, made: 0.0, runs, last_runs };
    Load::of(vec![class], Batches::reached([500 * 100]))
}

fn usage_of(lines: &[Line], step: &str) -> Usage {
    lines.iter().find(|line| line.step == step).unwrap().usage
}

#[test]
fn a_recurring_run_costs_three_write_units_at_dispatch_and_two_at_the_worker() {
    let lines = monthly(&one_run(1_000.0, 1.0, 0.0));
    assert_eq!(usage_of(&lines, "dispatch: advance").write_units, 3.0);
    assert_eq!(usage_of(&lines, "idempotency: begin").write_units, 1.0);
    assert_eq!(usage_of(&lines, "record").write_units, 1.0);
    assert_eq!(total(&lines).write_units, 5.0);
}

#[test]
fn the_last_run_of_a_job_only_leaves_its_bucket() {
    let lines = monthly(&one_run(1_000.0, 0.0, 1.0));
    assert_eq!(usage_of(&lines, "dispatch: advance").write_units, 2.0);
}

#[test]
fn reads_are_the_job_at_dispatch_and_again_at_the_screen() {
    let lines = monthly(&one_run(1_000.0, 1.0, 0.0));
    assert_eq!(usage_of(&lines, "dispatch: read jobs").read_units, 1.0);
    assert_eq!(usage_of(&lines, "idempotency: screen").read_units, 1.0);
    let page = usage_of(&lines, "due: read buckets").read_units;
    assert!((0.01..0.02).contains(&page), "{page}");
}

#[test]
fn in_full_batches_a_run_is_a_tenth_of_a_send_a_receive_and_a_delete() {
    let sqs = total(&monthly(&one_run(1_000.0, 1.0, 0.0))).sqs_requests;
    assert!((sqs - 0.3).abs() < 1e-9, "{sqs}");
}

#[test]
fn an_item_above_a_kilobyte_costs_another_unit_at_each_advance_but_none_in_the_index() {
    let lines = monthly(&one_run(1_025.0, 1.0, 0.0));
    assert_eq!(usage_of(&lines, "dispatch: advance").write_units, 4.0);
    assert_eq!((write_units(0.0), write_units(1_024.0), write_units(1_025.0)), (1.0, 1.0, 2.0));
    assert_eq!((read_units(0.0), read_units(4_096.0), read_units(4_097.0)), (1.0, 1.0, 2.0));
}

#[test]
fn making_a_job_writes_it_and_its_two_entries() {
    let class = Class { job_bytes: 600.0, jobs: 1.0, made: 1.0, runs: 0.0, last_runs: 0.0 };
    let lines = monthly(&Load::of(vec![class], Batches::reached([])));
    assert_eq!(total(&lines).write_units, 3.0);
}

#[test]
fn another_attempt_costs_a_receive_a_screen_two_writes_and_a_call_to_put_it_back() {
    let once = one_run(1_000.0, 1.0, 0.0);
    let twice = Load { attempts_per_run: 2.0, ..once.clone() };
    let more = total(&monthly(&twice)) + total(&monthly(&once)) * -1.0;
    for (found, expected) in [(more.write_units, 2.0), (more.read_units, 2.0), (more.sqs_requests, 1.1)] {
        assert!((found - expected).abs() < 1e-9, "{more:?}");
    }
}

#[test]
fn a_dead_run_costs_its_entry_for_people_and_its_letter() {
    let dead = Load { attention_share: 1.0, ..one_run(1_000.0, 1.0, 0.0) };
    let letter = usage_of(&monthly(&dead), "record: dead letter");
    assert_eq!((letter.write_units, letter.sqs_requests), (1.0, 1.0));
}

#[test]
fn batches_are_what_groups_reach_on_average() {
    let one = Batches::reached([1, 1, 1]);
    assert_eq!((one.page, one.read, one.send, one.advance), (1.0, 1.0, 1.0, 1.0));
    // Eleven runs in two sends, one run in one: twelve in three.
    assert_eq!(Batches::reached([11, 1]).send, 4.0);
    // A full page is followed by an empty one.
    assert_eq!(Batches::reached([500]).page, 250.0);
    assert_eq!(Batches::reached([]), Batches::reached([1]));
}

#[test]
fn storage_counts_both_indexes_and_the_rows_of_sixty_days() {
    let load = one_run(700.0, 30.0, 0.0);
    let Sizes { row, index_entry, .. } = load.sizes;
    let job = 700.0 + 100.0 + 2.0 * (index_entry + 100.0);
    assert_eq!(load.stored_bytes(), job + 60.0 * (row + 100.0));
}

#[test]
fn an_idle_shard_reads_its_latest_minutes_each_tick_and_seven_each_ten_seconds() {
    let reads = BucketReads::of_loop(Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(5));
    assert_eq!((reads.latest, reads.unsettled), (3_240.0 * 2.0, 360.0 * 7.0));
    assert_eq!((reads.ahead, reads.audit), (720.0, Audit::reads_per_hour()));
    // An hour's minutes every minute, a day's every hour, fourteen days' every day, and a little for the sweeps' ends.
    assert!((5_880.0..6_100.0).contains(&(reads.audit + 60.0 + 57.5)), "{}", reads.audit);
}

#[test]
fn an_idle_hour_renews_each_lease_and_lists_them_every_second() {
    let load = IdleLoad {
        shards: 32,
        copies: 3,
        renew_every: Duration::from_secs(3),
        look_every: Duration::from_secs(1),
        layout_every: Duration::from_secs(10),
        reads: BucketReads { latest: 100.0, ..BucketReads::default() },
        workers: 2,
        poll: Duration::from_secs(5),
    };
    let lines = idle(&load);
    assert_eq!(usage_of(&lines, "lease: renew").write_units, 35.0 * 1_200.0);
    assert_eq!(usage_of(&lines, "lease: list").read_units, 3.0 * 3_600.0);
    assert_eq!(usage_of(&lines, "lease: shard counts").read_units, 3.0 * 360.0);
    assert_eq!(usage_of(&lines, "due: latest minutes").read_units, 32.0 * 100.0 * 0.5);
    assert_eq!(usage_of(&lines, "lease: receive").sqs_requests, 2.0 * 3.0 * 720.0);
}

#[test]
fn an_idle_worker_beats_every_three_seconds_looks_at_shares_in_between_and_reads_limits_every_two() {
    let hour = Duration::from_secs(3_600);
    let (renew_every, look_every, layout_every, poll) = (hour, hour, hour, hour);
    let reads = BucketReads::default();
    let of =
        |workers| idle(&IdleLoad { shards: 0, copies: 0, renew_every, look_every, layout_every, reads, workers, poll });
    let ten = of(10);
    assert_eq!(usage_of(&ten, "rate: keep shares").write_units, 10.0 * 1_200.0);
    assert_eq!(usage_of(&ten, "rate: look at shares").read_units, 10.0 * 2_400.0);
    assert_eq!(usage_of(&ten, "rate: limits and holds").read_units, 10.0 * 1_800.0);
    assert_eq!(
        usage_of(&of(40), "rate: keep shares").write_units,
        40.0 * 1_200.0 * 2.0,
        "above a kilobyte a beat costs two"
    );
    assert_eq!(usage_of(&of(0), "rate: keep shares").write_units, 0.0);
}

#[test]
fn dollars_are_units_times_their_prices() {
    let prices = Prices::default();
    let usage = Usage { write_units: 1e6, read_units: 1e6, dynamodb_requests: 1e9, sqs_requests: 1e6 };
    assert!((prices.dollars(&usage) - (0.625 + 0.125 + 0.40)).abs() < 1e-9);
    assert!((prices.storage_dollars(4e9) - 1.0).abs() < 1e-9);
    let wrong = Prices { storage_per_gb_month: f64::NAN, ..prices };
    assert!(wrong.check().unwrap_err().contains("storage_per_gb_month"));
}

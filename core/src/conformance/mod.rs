//! What every adapter must do: one suite per port, which the in-memory adapters and those of AWS both pass.
//!
//! A case gets the [`Ports`](crate::ports::Ports) of one adapter and panics when they do otherwise than the port says. Jobs, rows and leases
//! are made under random names, so that cases can share one store; the cases of [`queue`] need queues that are empty at
//! first and nobody else's. Instants are arguments and lie far ahead, so nothing depends on the machine's clock. Where an
//! emulator is coarse or an index lags, a case looks again until a deadline.
//!
//! [`for_each_conformance_case!`](crate::for_each_conformance_case) makes tests of them.

pub mod control;
pub mod due;
pub mod history;
pub mod jobs;
pub mod leases;
pub mod queue;
pub mod reports;
pub mod runs;
mod samples;
pub mod shares;

use std::time::Duration;

/// How long a case waits for what must come.
const DEADLINE: Duration = Duration::from_secs(20);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Hands the names of all suites and their cases to a macro of the caller, as `suite: [case, case, …]` for each suite.
/// Case `c` of suite `s` is the function `punctual_core::conformance::s::c(&ports)`.
#[macro_export]
macro_rules! for_each_conformance_case {
    ($callback:ident) => {
        $callback! {
            jobs: [
                a_job_survives_the_round_trip_whole,
                a_replaced_job_survives_the_round_trip_whole,
                a_creation_whose_answer_was_lost_is_created,
                a_creation_over_another_job_shows_that_job,
                of_two_creations_of_one_key_one_wins,
                dispatch_reads_of_a_job_what_it_decides_by,
                a_job_without_its_payload_is_not_written,
                many_jobs_are_read_at_once,
                a_replace_needs_the_version_it_was_decided_from,
                a_replace_needs_the_firing_it_was_decided_from,
                a_replace_needs_the_state_it_was_decided_from,
                a_replace_whose_answer_was_lost_is_replaced,
                of_two_replaces_one_wins,
                an_advance_moves_the_firing_and_nothing_else,
                a_batch_moves_each_job_for_itself,
                an_advance_needs_firing_version_and_an_active_job,
                a_second_advance_changes_nothing,
                of_two_advances_one_wins,
                an_advance_to_the_end_makes_a_job_done,
                only_an_inactive_job_in_its_bucket_is_unindexed,
                a_quarantined_job_shows_its_error_and_does_not_advance,
                all_jobs_are_scanned_once_each,
                a_tenants_jobs_are_listed_once_each,
                jobs_are_listed_by_what_their_ids_begin_with,
                kept_versions_are_read_as_they_were,
            ]
            due: [
                only_jobs_with_a_bucket_are_in_the_index,
                a_page_goes_by_due_time_up_to_the_bound,
                a_span_begins_behind_its_bound,
                pages_show_each_entry_once,
                buckets_do_not_mix,
                an_advanced_job_changes_its_bucket,
                a_done_job_leaves_the_index,
                an_unindexed_job_leaves_the_index,
                a_quarantined_job_leaves_its_bucket,
                quarantined_jobs_are_listed_by_their_shard,
            ]
            runs: [
                a_row_survives_the_round_trip_whole,
                a_row_that_is_not_there_is_none,
                the_first_revision_needs_that_there_is_no_row,
                a_revision_is_written_over_the_one_before_it_only,
                a_row_that_is_gone_conflicts_with_none,
                a_put_whose_answer_was_lost_is_written,
                of_two_puts_over_one_revision_one_wins,
                rows_that_are_put_at_once_have_each_an_outcome_of_its_own,
                rows_are_listed_newest_first,
            ]
            history: [
                rows_of_a_span_are_read_in_order,
                what_waits_for_a_person_is_listed_until_it_is_seen_to,
                a_note_is_made_once,
            ]
            leases: [
                a_lease_is_made_once_and_keeps_what_it_has,
                a_lease_is_taken_only_as_it_was_observed,
                a_take_whose_answer_was_lost_is_mine,
                of_two_takes_one_wins,
                a_renewal_raises_the_counter_and_stores_the_cursor,
                a_renewal_whose_answer_was_lost_is_mine,
                a_renewal_of_anothers_lease_is_lost,
                a_released_lease_keeps_its_cursor_for_the_next_holder,
                a_lease_can_be_asked_for_while_it_is_held,
                a_release_by_another_or_of_an_older_counter_does_nothing,
                a_lease_is_removed_only_as_it_was_observed,
                a_free_lease_can_be_removed,
            ]
            shares: [
                shares_that_nobody_holds_are_empty,
                shares_survive_the_round_trip_whole,
                shares_change_only_from_what_they_were,
                of_two_changes_of_shares_one_wins,
                a_beat_shows_the_shares_and_raises_the_revision,
                a_beat_whose_answer_was_lost_is_held,
                a_beat_that_comes_too_late_is_lost,
                shares_are_not_listed_among_leases,
            ]
            reports: [
                a_report_survives_the_round_trip_whole,
                a_report_takes_the_place_of_the_last_one,
                a_removed_report_is_gone,
                reports_and_leases_are_not_listed_among_each_other,
            ]
            control: [
                shard_counts_are_set_once,
                shard_counts_change_only_from_what_they_were,
                what_is_kept_once_stays,
                limits_and_holds_survive_the_round_trip_whole,
                limits_and_holds_change_only_from_what_they_were,
                api_keys_survive_the_round_trip_whole,
                api_keys_change_only_from_what_they_were,
            ]
            queue: [
                a_batch_is_answered_in_order_and_arrives_whole,
                text_of_any_script_arrives_unchanged,
                a_receiver_gets_no_more_than_it_asked_for,
                a_waiting_receiver_gets_what_is_sent_meanwhile,
                priorities_do_not_mix,
                a_received_message_is_hidden,
                a_message_comes_again_when_its_visibility_ends,
                a_message_given_back_comes_again_with_a_new_receipt,
                an_extended_message_stays_hidden,
                an_extension_below_a_second_hides_all_the_same,
                a_deleted_message_is_gone,
                a_stale_receipt_deletes_nothing,
                a_stale_receipt_extends_nothing,
                a_batch_of_more_than_ten_is_refused,
                an_empty_batch_does_nothing,
                a_body_that_cannot_be_sent_is_refused_alone,
                a_delayed_message_comes_later,
                a_delay_above_a_quarter_of_an_hour_is_refused,
                a_visibility_above_twelve_hours_is_refused,
                the_depth_tells_visible_from_held,
                a_dead_letter_goes_out,
            ]
        }
    };
}

/// Looks until there is something to be seen.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {} s", DEADLINE.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    // A case that the list forgets would never run.
    #[test]
    fn every_case_is_in_the_list() {
        macro_rules! listed {
            ($($suite:ident: [$($case:ident),* $(,)?])*) => {
                [$((stringify!($suite), include_str!(concat!(stringify!($suite), ".rs")), vec![$(stringify!($case)),*])),*]
            };
        }
        for (suite, source, listed) in for_each_conformance_case!(listed) {
            let cases = source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('('));
            let cases: Vec<&str> = cases.map(|(name, _)| name).collect();
            assert_eq!(cases, listed, "suite {suite}");
        }
    }
}

//! Holds what became of a job's owed firings against its rule.

use super::cases::{Case, Owed};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::message::Message;
use punctual_core::missed::Many;
use punctual_core::run::{RunRow, RunStatus, SkipReason};

/// Later than this is missed: the rule's own figure, written out.
const MISSED_AFTER: TimeDelta = TimeDelta::minutes(2);

/// What became of owed firings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were owed.
    pub owed: usize,
    /// Enqueued once.
    pub fired: usize,
    /// In a row as missed.
    pub missed: usize,
    /// In a row as past their deadline.
    pub late: usize,
    /// Such rows.
    pub rows: usize,
    /// The rows among them that stand for several firings.
    pub ranges: usize,
}

/// Counts a case in; `fired` are the messages of its runs.
///
/// # Errors
/// The first firing that is not accounted for once and as the job's rule says.
pub(super) fn account(case: &Case, fired: &[Message], rows: &[RunRow], tally: &mut Tally) -> Result<(), String> {
    let (mut counted, mut covered) = (0, 0);
    tally.rows += rows.len();
    tally.ranges += rows.iter().filter(|row| row.range.is_some()).count();
    for (index, owed) in case.owed.iter().enumerate() {
        let is_last = index + 1 == case.owed.len();
        let sent: Vec<_> = fired.iter().filter(|message| message.scheduled_at == owed.scheduled_at).collect();
        let in_rows: Vec<&RunRow> = rows.iter().filter(|row| stands_for(row, owed)).collect();
        let verdict = match (sent.as_slice(), in_rows.as_slice()) {
            ([message], []) => {
                tally.fired += 1;
                may_fire(case.spec.missed.many, owed, is_last, message.first_enqueued_at)
            }
            ([], [row]) => {
                *(if row.reason == Some(SkipReason::Missed) { &mut tally.missed } else { &mut tally.late }) += 1;
                may_skip(case.spec.missed.many, owed, is_last, row)
            }
            _ => Err(format!("it was enqueued {} times and is in {} rows", sent.len(), in_rows.len())),
        };
        verdict.map_err(|problem| format!("firing {} of {}: {problem}", index + 1, case.owed.len()))?;
        tally.owed += 1;
        counted += sent.len();
        covered += in_rows.len();
    }
    let said: usize = rows.iter().map(|row| row.range.map_or(1, |range| range.count as usize)).sum();
    if (counted, covered) != (fired.len(), said) {
        return Err(format!(
            "{} messages and rows for {said} firings, of which {counted} and {covered} are owed",
            fired.len()
        ));
    }
    Ok(())
}

fn stands_for(row: &RunRow, owed: &Owed) -> bool {
    let from = row.id.run_key.instant();
    let to = row.range.map(|range| range.to).or(from);
    from <= Some(owed.scheduled_at) && Some(owed.scheduled_at) <= to
}

/// A firing is missed or not as of the moment at which its job was read: its message leaves so much later, at most.
const DECIDED_BEFORE: TimeDelta = TimeDelta::seconds(5);

fn may_fire(many: Many, owed: &Owed, is_last: bool, sent_at: DateTime<Utc>) -> Result<(), String> {
    if owed.deadline.is_some_and(|deadline| sent_at > deadline) {
        return Err("it was enqueued past its deadline".into());
    }
    match many {
        Many::None if sent_at - owed.due_at > MISSED_AFTER + DECIDED_BEFORE => {
            Err("it was enqueued although it was missed".into())
        }
        Many::Latest if !is_last => Err("it was enqueued although a later one was owed".into()),
        _ => Ok(()),
    }
}

fn may_skip(many: Many, owed: &Owed, is_last: bool, row: &RunRow) -> Result<(), String> {
    let at = row
        .completed_at
        .filter(|_| row.status == RunStatus::Skipped)
        .ok_or("its row does not say when it was skipped")?;
    let is_missed = at - owed.due_at > MISSED_AFTER;
    let is_right = match (row.reason, many) {
        (Some(SkipReason::Deadline), Many::None) => !is_missed,
        (Some(SkipReason::Deadline), _) => owed.deadline.is_some_and(|deadline| at > deadline),
        (Some(SkipReason::Missed), Many::None) => true,
        (Some(SkipReason::Missed), Many::Latest) => !is_last,
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("it was skipped as {:?} by the rule `{many}`", row.reason)) }
}

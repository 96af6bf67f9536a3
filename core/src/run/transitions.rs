//! The table of [`super`], line by line.

use super::{Attempt, Begin, Event, Record, RunFacts, RunRow, RunStatus, SkipReason, SkippedBy, Transition, plus};
use crate::retry::{MOST_ATTEMPTS, Outcome, OutcomeClass, Verdict, after_attempt};
use chrono::{DateTime, Utc};
use std::time::Duration;

const WORKER_GONE: &str = "its worker is gone";
/// A run during whose attempts so many workers died is taken to have killed them.
const MOST_LOST: usize = 3;

/// Decides what `event` may do to `row` at `now`. `write_token` marks the row that a permitted change makes.
pub fn apply(
    row: Option<&RunRow>,
    facts: &RunFacts,
    event: &Event<'_>,
    now: DateTime<Utc>,
    write_token: &str,
) -> Transition {
    let mut new = row.cloned().unwrap_or_else(|| fresh(facts));
    new.revision += 1;
    new.write_token = write_token.to_owned();
    match event {
        Event::Begin(begin) => self::begin(row, new, facts, begin, now),
        Event::Record(record) => self::record(row, new, record, now),
        Event::GiveUp { token } => give_up(row, new, token, now),
        Event::Void { void_gen, reason, takeover_grace } => void(row, new, *void_gen, *reason, *takeover_grace, now),
        Event::Skip { reason, range, by, takeover_grace } => {
            new.range = *range;
            skip(row, new, facts, (*reason, *by), *takeover_grace, now)
        }
    }
}

fn fresh(facts: &RunFacts) -> RunRow {
    RunRow {
        id: facts.id.clone(),
        status: RunStatus::Skipped,
        attempt: 0,
        owner: None,
        lease_until: None,
        not_before: None,
        generation: facts.generation,
        void_gen: None,
        due_at: facts.due_at,
        first_enqueued_at: facts.first_enqueued_at,
        started_at: None,
        completed_at: None,
        attempts: Vec::new(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision: 0,
        write_token: String::new(),
    }
}

fn begin(row: Option<&RunRow>, mut new: RunRow, facts: &RunFacts, begin: &Begin<'_>, now: DateTime<Utc>) -> Transition {
    if let Some(old) = row {
        match old.status {
            RunStatus::Retrying => {}
            RunStatus::Running => {
                let free_at = takeover_at(old, begin.takeover_grace);
                if now < free_at {
                    return Transition::LookLater { at: free_at };
                }
                close_attempt(&mut new, now, OutcomeClass::Lost, Some(WORKER_GONE));
            }
            RunStatus::Skipped if is_void_up_to(old, facts.generation) => {}
            status => return Transition::Refused(status),
        }
        if let Some(at) = old.not_before.filter(|at| now < *at) {
            return Transition::LookLater { at };
        }
        new.void_gen = None;
        new.reason = None;
        // The call goes out while the lease lasts: then, too, a repeat must be dropped.
        if new.needs_a_person(&begin.gateway, plus(now, begin.lease)) {
            return end(new, RunStatus::Indeterminate, now);
        }
        if old.attempt >= begin.rule.max_attempts {
            return end(new, RunStatus::Dead, now);
        }
        let lost = new.attempts.iter().filter(|attempt| attempt.class == Some(OutcomeClass::Lost)).count();
        if lost >= MOST_LOST {
            new.error = Some(format!("{lost} workers died while they worked on it: it is not run again"));
            return end(new, RunStatus::Dead, now);
        }
    }
    new.status = RunStatus::Running;
    new.attempt += 1;
    new.owner = Some(begin.token.to_owned());
    new.lease_until = Some(plus(now, begin.lease));
    new.not_before = None;
    new.generation = new.generation.max(facts.generation);
    new.completed_at = None;
    new.started_at.get_or_insert(now);
    new.attempts.push(Attempt {
        n: new.attempt,
        started_at: now,
        ended_at: None,
        worker: begin.worker.to_owned(),
        job_version: begin.job_version,
        class: None,
        detail: None,
    });
    let surplus = new.attempts.len().saturating_sub(MOST_ATTEMPTS as usize);
    new.attempts.drain(..surplus);
    Transition::Write(Box::new(new))
}

fn record(row: Option<&RunRow>, mut new: RunRow, record: &Record<'_>, now: DateTime<Utc>) -> Transition {
    let Some(old) = row else {
        // The row was there at begin; without it there is nothing that says the run is mine.
        return Transition::Refused(RunStatus::Running);
    };
    if old.status != RunStatus::Running || old.owner.as_deref() != Some(record.token) {
        return Transition::Refused(old.status);
    }
    close_attempt(&mut new, now, record.outcome.class(), record.outcome.reason());
    if let Outcome::Delivered { gateway_ref } = record.outcome {
        new.gateway_ref = Some(gateway_ref.clone());
    }
    let first_unknown = new.first_unknown_at();
    match after_attempt(record.outcome, new.attempt, &record.rule, &record.gateway, first_unknown, now, record.random) {
        Verdict::RetryAfter(wait) => {
            new.status = RunStatus::Retrying;
            new.owner = None;
            new.lease_until = None;
            new.not_before = Some(plus(now, wait));
            Transition::Write(Box::new(new))
        }
        Verdict::Succeeded => end(new, RunStatus::Succeeded, now),
        Verdict::Failed => end(new, RunStatus::Failed, now),
        Verdict::Dead => end(new, RunStatus::Dead, now),
        Verdict::Indeterminate => end(new, RunStatus::Indeterminate, now),
    }
}

fn give_up(row: Option<&RunRow>, mut new: RunRow, token: &str, now: DateTime<Utc>) -> Transition {
    let Some(old) = row else { return Transition::Refused(RunStatus::Running) };
    if old.status != RunStatus::Running || old.owner.as_deref() != Some(token) {
        return Transition::Refused(old.status);
    }
    new.attempts.pop();
    new.attempt -= 1;
    if new.attempt == 0 {
        new.started_at = None;
    }
    new.status = RunStatus::Retrying;
    (new.owner, new.lease_until, new.not_before) = (None, None, Some(now));
    Transition::Write(Box::new(new))
}

fn void(
    row: Option<&RunRow>,
    mut new: RunRow,
    void_gen: u64,
    reason: SkipReason,
    grace: Duration,
    now: DateTime<Utc>,
) -> Transition {
    match row {
        None => {}
        Some(old) => match old.status {
            // Begun for the very change that voids this message: the run is that change's, and goes on.
            RunStatus::Running | RunStatus::Retrying if !reason.ends_all() && old.generation >= void_gen => {
                let busy_until = old.not_before.max(old.lease_until).unwrap_or(now).max(now);
                return Transition::LookLater { at: plus(busy_until, grace) };
            }
            RunStatus::Retrying => {}
            RunStatus::Running => return end_running(old, new, grace, now),
            RunStatus::Skipped if old.reason.is_some_and(SkipReason::is_void) => {
                if old.void_gen >= Some(void_gen) {
                    return Transition::Refused(old.status);
                }
            }
            status => return Transition::Refused(status),
        },
    }
    // Attempts and back-off stay: a later generation that runs this instant goes on from there.
    new.void_gen = Some(void_gen);
    new.reason = Some(reason);
    end(new, RunStatus::Skipped, now)
}

fn skip(
    row: Option<&RunRow>,
    mut new: RunRow,
    facts: &RunFacts,
    (reason, by): (SkipReason, SkippedBy),
    grace: Duration,
    now: DateTime<Utc>,
) -> Transition {
    match row {
        None => {}
        Some(old) => match old.status {
            RunStatus::Skipped if is_void_up_to(old, facts.generation) => {}
            RunStatus::Retrying if by == SkippedBy::Worker => {}
            RunStatus::Running if by == SkippedBy::Worker => return end_running(old, new, grace, now),
            status => return Transition::Refused(status),
        },
    }
    new.generation = new.generation.max(facts.generation);
    new.void_gen = None;
    new.reason = Some(reason);
    end(new, RunStatus::Skipped, now)
}

/// A run that is not to go on, although a worker began it: wait for that worker, or, when it is gone, say that nobody
/// knows.
fn end_running(old: &RunRow, mut new: RunRow, grace: Duration, now: DateTime<Utc>) -> Transition {
    let free_at = takeover_at(old, grace);
    if now < free_at {
        return Transition::LookLater { at: free_at };
    }
    close_attempt(&mut new, now, OutcomeClass::Lost, Some(WORKER_GONE));
    end(new, RunStatus::Indeterminate, now)
}

fn end(mut new: RunRow, status: RunStatus, now: DateTime<Utc>) -> Transition {
    new.status = status;
    new.owner = None;
    new.lease_until = None;
    new.completed_at = Some(now);
    Transition::Write(Box::new(new))
}

fn close_attempt(row: &mut RunRow, now: DateTime<Utc>, class: OutcomeClass, detail: Option<&str>) {
    if let Some(attempt) = row.attempts.last_mut() {
        attempt.ended_at = Some(now);
        attempt.class = Some(class);
        attempt.detail = detail.map(str::to_owned);
    }
    row.error = detail.map(str::to_owned);
}

fn takeover_at(row: &RunRow, grace: Duration) -> DateTime<Utc> {
    row.lease_until.map_or(DateTime::<Utc>::MIN_UTC, |until| plus(until, grace))
}

fn is_void_up_to(row: &RunRow, generation: u64) -> bool {
    row.reason.is_some_and(SkipReason::is_void) && row.void_gen.is_none_or(|g| g <= generation)
}

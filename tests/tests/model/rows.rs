//! Run rows: the real ones behind the model's small ones, and the table of [`punctual_core::run`] asked about them.

use super::real::{STEP_S, at, exact_step, generation, generation_number, step};
use super::state::{Ending, MOST_ATTEMPTS, Outcome, Row, Status};
use punctual_core::retry::{self, GatewayPolicy, RetryRule, WhenUnknown};
use punctual_core::run::{self, Attempt, RunFacts, RunId, RunRow, RunStatus, SkipReason, SkippedBy, SkippedRange};
use std::time::Duration;

/// Lease and grace end within the step.
const LEASE: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(30);
/// The longest wait, so that a back-off ends at the next step.
const RANDOM: f64 = 0.999;
const HOLDER: &str = "holder";

/// What wants to change a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Begin { most_attempts: u8, outlives_call: bool, holds_lost: bool },
    Record { is_owner: bool, outcome: Outcome, holds_unknown: bool },
    GiveUp { is_owner: bool },
    End(Ending),
    SkipByDispatch { covers: u8 },
}

/// What the row's table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    Write(Row),
    LookLater,
    Refused,
}

/// What `event`, of a message with these facts, may do to a row.
pub fn apply(row: &Row, facts: &RunFacts, event: Event, now: u8) -> Transition {
    let outcome = outcome(event);
    let event = real_event(event, &outcome);
    match run::apply(real_row(row, &facts.id, now).as_ref(), facts, &event, at(now), "w") {
        run::Transition::Write(new) => Transition::Write(row_image(&new, now)),
        run::Transition::LookLater { .. } => Transition::LookLater,
        run::Transition::Refused(_) => Transition::Refused,
    }
}

pub fn rule(max_attempts: u8) -> RetryRule {
    RetryRule { max_attempts: u32::from(max_attempts), base_s: STEP_S as u32, cap_s: STEP_S as u32, waits_s: None }
}

fn real_row(row: &Row, id: &RunId, now: u8) -> Option<RunRow> {
    let status = match row.status {
        Status::None => return None,
        Status::Running => RunStatus::Running,
        Status::Retrying => RunStatus::Retrying,
        Status::Void | Status::Skipped => RunStatus::Skipped,
        Status::Succeeded | Status::Ended => RunStatus::Succeeded,
        Status::Failed => RunStatus::Failed,
        Status::Dead => RunStatus::Dead,
        Status::Indeterminate => RunStatus::Indeterminate,
    };
    let is_running = status == RunStatus::Running;
    let lease_until = if row.is_expired { at(now) - GRACE } else { at(now) + LEASE };
    Some(RunRow {
        id: id.clone(),
        status,
        attempt: u32::from(row.attempt),
        owner: is_running.then(|| HOLDER.into()),
        lease_until: is_running.then_some(lease_until),
        not_before: (row.not_before > 0).then(|| at(row.not_before)),
        generation: generation(row.generation),
        void_gen: (row.status == Status::Void).then(|| generation(row.void_gen)),
        due_at: at(1),
        first_enqueued_at: at(0),
        started_at: None,
        completed_at: None,
        attempts: (1..=row.attempt).map(|n| attempt(u32::from(n))).collect(),
        error: None,
        gateway_ref: None,
        reason: match row.status {
            Status::Void => Some(SkipReason::Superseded),
            Status::Skipped => Some(SkipReason::Missed),
            _ => None,
        },
        range: range(row.covers),
        revision: 1,
        write_token: "w".into(),
    })
}

fn attempt(n: u32) -> Attempt {
    let class = Some(retry::OutcomeClass::Temporary);
    Attempt { n, started_at: at(0), ended_at: None, worker: "w".into(), job_version: 1, class, detail: None }
}

fn outcome(event: Event) -> retry::Outcome {
    let Event::Record { outcome, .. } = event else {
        return retry::Outcome::Delivered { gateway_ref: "g".into() };
    };
    match outcome {
        Outcome::Delivered => retry::Outcome::Delivered { gateway_ref: "g".into() },
        Outcome::Temporary => retry::Outcome::Temporary { reason: "busy".into(), retry_after: None },
        Outcome::Permanent => retry::Outcome::Permanent { reason: "bad number".into() },
        Outcome::Unknown => retry::Outcome::Unknown { reason: "no answer".into() },
    }
}

fn real_event(event: Event, outcome: &retry::Outcome) -> run::Event<'_> {
    let skip =
        |reason, covers, by, takeover_grace| run::Event::Skip { reason, range: range(covers), by, takeover_grace };
    match event {
        Event::Begin { most_attempts, outlives_call, holds_lost } => {
            let (lease, takeover_grace) = if outlives_call { (LEASE, GRACE) } else { Default::default() };
            let gateway = GatewayPolicy { on_takeover: when_unknown(holds_lost), ..GatewayPolicy::default() };
            let (token, rule) = (HOLDER, rule(most_attempts));
            let begin = run::Begin { token, worker: "w", job_version: 1, lease, takeover_grace, rule, gateway };
            run::Event::Begin(begin)
        }
        Event::Record { is_owner, holds_unknown, .. } => {
            let token = token(is_owner);
            let gateway = GatewayPolicy { on_unknown: when_unknown(holds_unknown), ..GatewayPolicy::default() };
            let rule = rule(MOST_ATTEMPTS);
            run::Event::Record(run::Record { token, outcome, rule, gateway, random: RANDOM })
        }
        Event::GiveUp { is_owner } => run::Event::GiveUp { token: token(is_owner) },
        Event::End(Ending::Void { void_gen, is_cancel }) => {
            let reason = if is_cancel { SkipReason::Cancelled } else { SkipReason::Superseded };
            run::Event::Void { void_gen: generation(void_gen), reason, takeover_grace: GRACE }
        }
        Event::End(Ending::TooLate) => skip(SkipReason::Deadline, 0, SkippedBy::Worker, GRACE),
        Event::SkipByDispatch { covers } => skip(SkipReason::Missed, covers, SkippedBy::Dispatch, Duration::ZERO),
    }
}

fn token(is_owner: bool) -> &'static str {
    if is_owner { HOLDER } else { "overtaken" }
}

/// The range that ends at this instant; none for zero. How many it counts makes no difference to a row.
fn range(covers: u8) -> Option<SkippedRange> {
    (covers > 0).then(|| SkippedRange { to: at(covers), count: u32::from(covers) })
}

fn when_unknown(holds: bool) -> WhenUnknown {
    if holds { WhenUnknown::Hold } else { WhenUnknown::Retry }
}

fn row_image(real: &RunRow, now: u8) -> Row {
    let is_void = real.reason.is_some_and(SkipReason::is_void);
    Row {
        status: match real.status {
            RunStatus::Running => Status::Running,
            RunStatus::Retrying => Status::Retrying,
            RunStatus::Skipped if is_void => Status::Void,
            RunStatus::Skipped => Status::Skipped,
            RunStatus::Succeeded => Status::Succeeded,
            RunStatus::Dead => Status::Dead,
            RunStatus::Indeterminate => Status::Indeterminate,
            RunStatus::Failed => Status::Failed,
        },
        attempt: real.attempt as u8,
        is_expired: real.lease_until.is_some_and(|until| until <= at(now)),
        not_before: real.not_before.map_or(0, step),
        generation: generation_number(real.generation),
        void_gen: real.void_gen.map_or(0, generation_number),
        covers: real.range.map_or(0, |range| exact_step(range.to)),
    }
}

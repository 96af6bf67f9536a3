//! What operators say must be true: nothing begins under a hold, and no limit is broken.

use super::Played;
use super::plan::{Event, Steer};
use super::witness::What;
use crate::event_source::CONCURRENCY;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::memory::{Effect, Fault};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunStatus};
use punctual_core::steering::{DEFAULT_SMS_LIMIT, Scope};
use punctual_worker::rate::Sharing;
use std::collections::{BTreeMap, BTreeSet};

/// The promise: a hold acts within this; and what a process's clock may be off the store's.
const HOLD_ACTS: TimeDelta = TimeDelta::seconds(5 + 1);
/// A limit that is lowered is in force everywhere within ten seconds, and a call that has its permit is made within its
/// row's lease.
const LIMIT_ACTS: TimeDelta = TimeDelta::seconds(10 + 15);

/// What is wrong.
pub fn problems(played: &Played) -> Vec<String> {
    let mut problems = begun_under_a_hold(played);
    problems.extend(too_many_calls(played));
    problems
}

/// From when to when what was held.
fn holds(played: &Played) -> Vec<(DateTime<Utc>, DateTime<Utc>, Scope)> {
    let mut spans: Vec<(DateTime<Utc>, DateTime<Utc>, Scope)> = Vec::new();
    for note in &played.notes {
        let What::Steered(how) = &note.what else { continue };
        let (Steer::Hold(scope) | Steer::Release(scope)) = how else { continue };
        let open = spans.iter_mut().find(|(_, until, held)| held == scope && *until == DateTime::<Utc>::MAX_UTC);
        match (open, how) {
            (Some(open), Steer::Release(_)) => open.1 = note.at,
            (None, Steer::Hold(_)) => spans.push((note.at, DateTime::<Utc>::MAX_UTC, scope.clone())),
            _ => {}
        }
    }
    spans
}

fn begun_under_a_hold(played: &Played) -> Vec<String> {
    let holds = holds(played);
    let mut queues = BTreeMap::<RunId, BTreeSet<Priority>>::new();
    let mut problems = Vec::new();
    for recorded in &played.history {
        match &recorded.effect {
            Effect::Enqueued(sent) => {
                if let Some(message) = &sent.message {
                    queues.entry(message.run_id()).or_default().insert(sent.priority);
                }
            }
            Effect::Row(row) if row.status == RunStatus::Running => {
                let Some(attempt) = row.attempts.last() else { continue };
                let process = attempt.worker.split('-').next().unwrap_or_default();
                let of_all_queues =
                    |held: &Priority| queues.get(&row.id).is_some_and(|of| of.iter().all(|of| of == held));
                let is_over = |scope: &Scope| match scope {
                    Scope::Priority(held) => of_all_queues(held),
                    Scope::All | Scope::Tenant(_) | Scope::Target(_) => true,
                };
                let began = attempt.started_at;
                let held = holds.iter().find(|(since, until, scope)| {
                    began > *since + HOLD_ACTS && began < *until - TimeDelta::seconds(1) && is_over(scope)
                });
                if let Some((since, _, scope)) = held
                    && !played.was_frozen(process, recorded.at)
                    && !played.is_slow(process, "runs.put")
                {
                    let run = &row.id;
                    problems.push(format!("{run} at {began}: begun by {process} although {scope} was held at {since}"));
                }
            }
            _ => {}
        }
    }
    problems
}

/// No more calls within any second than the largest limit that may still have been in force, and one more for each process:
/// its permit of the second before.
fn too_many_calls(played: &Played) -> Vec<String> {
    let is_delayed = |process: &String| {
        played.is_slow(process, "gateway.send")
            || played.notes.iter().any(|note| note.process == *process && matches!(note.what, What::Frozen(true)))
    };
    let names: Vec<String> = (0..played.scenario.workers).map(super::plan::worker).collect();
    if names.iter().any(is_delayed) {
        return Vec::new();
    }
    let said: Vec<(DateTime<Utc>, u32)> = played
        .notes
        .iter()
        .filter_map(|note| match note.what {
            What::Steered(Steer::Limit(limit)) => Some((note.at, limit)),
            _ => None,
        })
        .collect();
    let limit_at = |at: DateTime<Utc>| {
        let before = said.iter().rev().find(|(said_at, _)| *said_at <= at - LIMIT_ACTS).map(|(_, limit)| *limit);
        let since = said.iter().filter(|(said_at, _)| *said_at > at - LIMIT_ACTS && *said_at <= at);
        since.map(|(_, limit)| *limit).chain([before.unwrap_or(DEFAULT_SMS_LIMIT.get())]).max().expect("one at least")
    };
    let Sharing::Static(concurrency) = CONCURRENCY else { return Vec::new() };
    // Functions have fixed parts, beside the shares of all other workers.
    let parts = 1.0 + played.scenario.functions.len() as f64 / f64::from(concurrency.get());
    let calls: Vec<DateTime<Utc>> = played.world.sends().into_iter().map(|send| send.at).collect();
    let mut problems = Vec::new();
    for (n, at) in calls.iter().enumerate() {
        let count = calls[..=n].iter().rev().take_while(|before| *at - **before < TimeDelta::seconds(1)).count();
        let most = f64::from(limit_at(*at)) * parts + names.len() as f64;
        if count as f64 > most {
            problems.push(format!("{count} calls within the second before {at}: {most} at most by the limit"));
        }
    }
    problems
}

impl Played {
    /// Whether the scenario lets such calls of a process take effect late.
    fn is_slow(&self, process: &str, name: &str) -> bool {
        let late = |fault: &Fault| matches!(fault, Fault::Delay(_) | Fault::LandLate(_));
        self.scenario.events.iter().any(|(_, event)| match event {
            Event::Next(who, call, fault) | Event::Every(who, call, fault, _) => {
                who == process && *call == name && late(fault)
            }
            _ => false,
        })
    }
}

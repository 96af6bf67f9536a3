//! What must be true of every run, whatever its job's timetable says: calls, screens, leases, repeats, rest.

use super::Played;
use super::plan::Event;
use super::witness::{Note, What};
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::ShardId;
use punctual_core::job::{JobKey, JobState};
use punctual_core::memory::{Effect, Fault};
use punctual_core::retry::OutcomeClass;
use punctual_core::run::{RunId, RunRow, RunStatus};
use std::collections::{BTreeMap, BTreeSet};

/// The promise: nothing starts earlier than this before it is due.
const EARLY: TimeDelta = TimeDelta::seconds(1);
/// A look at a job may be this old when its call goes out, with all that store and process may be late.
const LOOK_VALID: TimeDelta = TimeDelta::seconds(60);

/// A process that has just begun takes its shards within this, and in twice the time what an index lagged by and what was
/// put off by trouble is over.
const COMING_UP: TimeDelta = TimeDelta::seconds(30);

/// What is wrong.
pub fn problems(played: &Played) -> Vec<String> {
    let mut problems = Vec::new();
    if played.rested_at.is_none() {
        problems.push(unrest(played));
    }
    problems.extend(calls(played));
    problems.extend(stops(played));
    problems.extend(repeats(played));
    problems.extend(senders(played));
    problems.extend(lag(played));
    problems.extend(letters(played));
    problems.extend(errors(played));
    problems
}

fn unrest(played: &Played) -> String {
    let open: Vec<String> = played
        .world
        .rows()
        .into_values()
        .filter(|row| matches!(row.status, RunStatus::Running | RunStatus::Retrying))
        .map(|row| format!("{} {:?}", row.id, row.status))
        .collect();
    let now = played.ended_at;
    let due =
        played.world.jobs().into_values().filter(|job| job.state == JobState::Active && job.next_due_at <= Some(now));
    let due: Vec<String> = due.map(|job| format!("{} due {:?}", job.spec.key, job.next_due_at)).collect();
    format!("it does not come to rest: open {open:?}, due {due:?}, waiting {:?}", played.world.waiting())
}

fn clock(at: DateTime<Utc>) -> impl std::fmt::Display {
    at.format("%H:%M:%S%.3f")
}

/// Every call has its begin, and none is early.
fn calls(played: &Played) -> Vec<String> {
    let (mut begun, mut called) = (BTreeMap::<&RunId, u32>::new(), BTreeMap::<&RunId, u32>::new());
    let mut due = BTreeMap::<RunId, DateTime<Utc>>::new();
    let mut problems = Vec::new();
    for recorded in &played.history {
        let at = recorded.at;
        match &recorded.effect {
            Effect::Enqueued(sent) => {
                if let Some(message) = &sent.message {
                    let earliest = due.entry(message.run_id()).or_insert(message.due_at);
                    *earliest = message.due_at.min(*earliest);
                }
            }
            Effect::Row(row) => {
                begun.insert(&row.id, row.attempt);
            }
            Effect::Sent { reference } => {
                let calls = called.entry(reference).or_default();
                *calls += 1;
                if *calls > begun.get(reference).copied().unwrap_or(0) {
                    problems.push(format!("{reference} at {}: called without begin", clock(at)));
                }
                match due.get(reference) {
                    Some(due_at) if at < *due_at - EARLY => {
                        problems.push(format!("{reference} at {}: {} early", clock(at), *due_at - at));
                    }
                    Some(_) => {}
                    None => problems.push(format!("{reference} at {}: called and never enqueued", clock(at))),
                }
            }
            _ => {}
        }
    }
    problems
}

/// From where to where in the history a job's runs must not start, and why.
fn held(played: &Played, key: &JobKey) -> Vec<(usize, usize, JobState)> {
    let mut spans: Vec<(usize, usize, JobState)> = Vec::new();
    let mut state = JobState::Active;
    for (index, recorded) in played.history.iter().enumerate() {
        let Effect::Job(job) = &recorded.effect else { continue };
        if job.spec.key != *key || job.state == state {
            continue;
        }
        if let Some(open) = spans.last_mut().filter(|(_, until, _)| *until == usize::MAX) {
            open.1 = index;
        }
        state = job.state;
        if matches!(state, JobState::Paused | JobState::Cancelled) {
            spans.push((index, usize::MAX, state));
        }
    }
    spans
}

/// No call whose look at the job began after it was cancelled or paused.
fn stops(played: &Played) -> Vec<String> {
    let keys: BTreeSet<JobKey> = played.scenario.jobs.iter().map(|job| job.spec.key.clone()).collect();
    let held: BTreeMap<JobKey, _> = keys.into_iter().map(|key| (key.clone(), held(played, &key))).collect();
    let mut looks: BTreeMap<(&str, &JobKey), Vec<&Note>> = BTreeMap::new();
    let mut problems = Vec::new();
    for note in &played.notes {
        match &note.what {
            What::Read(key) => looks.entry((&note.process, key)).or_default().push(note),
            What::Called(run) => {
                let spans = held.get(&run.job_key).into_iter().flatten();
                let Some((since, _, state)) =
                    spans.copied().find(|(from, until, _)| (*from..*until).contains(&(note.after.saturating_sub(1))))
                else {
                    continue;
                };
                let looks = looks.get(&(note.process.as_str(), &run.job_key)).map_or(&[][..], Vec::as_slice);
                // Another delivery, or another run of the job, may have looked later than the one that calls.
                let has_early_look = looks.iter().any(|look| look.after <= since && note.at - look.at <= LOOK_VALID);
                let was_frozen = played.was_frozen(&note.process, note.at);
                if !has_early_look && !was_frozen {
                    problems.push(format!(
                        "{run} at {}: called by {} although {state:?} before its look",
                        clock(note.at),
                        note.process
                    ));
                }
            }
            _ => {}
        }
    }
    problems
}

/// A text goes out again only behind an attempt of which nobody knows what it did.
fn repeats(played: &Played) -> Vec<String> {
    let mut out = BTreeMap::<RunId, (usize, usize)>::new();
    for send in played.world.sends() {
        let counts = out.entry(send.reference).or_default();
        counts.0 += 1;
        counts.1 += usize::from(send.reached_phone);
    }
    let rows = played.world.rows();
    let mut problems = Vec::new();
    for (run, (calls, texts)) in out {
        let Some(row) = rows.get(&run) else {
            problems.push(format!("{run}: called {calls} times, and it has no row"));
            continue;
        };
        let unknown = |row: &RunRow| {
            row.attempts
                .iter()
                .filter(|a| matches!(a.class, None | Some(OutcomeClass::Lost | OutcomeClass::Unknown)))
                .count()
        };
        if texts > 1 && (played.scenario.drops_repeats || texts > 1 + unknown(row)) {
            problems.push(format!("{run}: {texts} texts went out, and the row explains {}", 1 + unknown(row)));
        }
        if !played.scenario.is_troubled && (calls != 1 || row.status != RunStatus::Succeeded) {
            problems.push(format!("{run}: {calls} calls, {:?}, and nothing went wrong", row.status));
        }
    }
    problems
}

/// Runs are enqueued by who holds the shard, unless it stood still in between or its send was late.
fn senders(played: &Played) -> Vec<String> {
    let mut notes = played.notes.iter().peekable();
    let mut owners = BTreeMap::<ShardId, Option<String>>::new();
    let mut problems = Vec::new();
    for (index, recorded) in played.history.iter().enumerate() {
        while let Some(note) = notes.next_if(|note| note.after <= index) {
            if let What::Lease(shard, owner) = &note.what {
                owners.insert(*shard, owner.clone());
            }
        }
        let Effect::Enqueued(sent) = &recorded.effect else { continue };
        let Some(message) = sent.message.as_ref().filter(|message| !message.run_key.is_manual()) else { continue };
        let shard = played.scenario.shards.of(&message.job_key, sent.priority);
        let process = message.scheduler.split('-').next().unwrap_or_default();
        let owner = owners.get(&shard).cloned().flatten();
        if owner.as_ref() != Some(&message.scheduler) && !played.is_late_sender(process) {
            let (run, at) = (message.run_id(), clock(recorded.at));
            problems
                .push(format!("{run} at {at}: enqueued by {}, but {shard} is held by {owner:?}", message.scheduler));
        }
    }
    problems
}

/// When the trouble is over, runs are in their queue when they are due.
fn lag(played: &Played) -> Vec<String> {
    let Some(rested_at) = played.rested_at else { return Vec::new() };
    let calm_at = played.scenario.start + TimeDelta::from_std(played.scenario.lasts).expect("it is short");
    let ups = played.notes.iter().filter(|note| matches!(note.what, What::Began | What::Frozen(false)));
    let quiet_from =
        ups.map(|note| note.at + COMING_UP).chain([rested_at, calm_at + COMING_UP * 2]).max().unwrap_or(rested_at);
    let most = TimeDelta::from_std(played.scenario.tick).expect("a tick is short") + TimeDelta::milliseconds(1_500);
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for recorded in &played.history {
        let Effect::Enqueued(sent) = &recorded.effect else { continue };
        let Some(message) = &sent.message else { continue };
        let lag = recorded.at - message.due_at;
        if seen.insert(message.run_id()) && message.due_at > quiet_from && lag > most {
            problems.push(format!(
                "{} at {}: in its queue {lag} late, with nothing in its way",
                message.run_id(),
                clock(recorded.at)
            ));
        }
    }
    problems
}

/// Dead letters and the rows that say so belong together.
fn letters(played: &Played) -> Vec<String> {
    let rows = played.world.rows();
    let letters: BTreeSet<String> =
        played.world.dead_letters().into_iter().filter_map(|letter| letter.run_id).collect();
    let must: BTreeSet<String> =
        rows.values().filter(|row| row.status.has_letter()).map(|row| row.id.to_string()).collect();
    let lost = must.difference(&letters).map(|run| format!("{run}: ended without its dead letter"));
    let false_ones =
        letters.difference(&must).map(|run| format!("{run}: has a dead letter and its row says nothing of it"));
    lost.chain(false_ones).collect()
}

/// Nothing that a person must look at, but for dead letters.
fn errors(played: &Played) -> Vec<String> {
    let is_letter = |line: &&String| line.contains("a message went to the dead letters");
    played.errors.iter().filter(|line| !is_letter(line)).map(|line| format!("logged: {line}")).collect()
}

impl Played {
    /// Whether a process stood still at some time within the last two minutes.
    pub(super) fn was_frozen(&self, process: &str, at: DateTime<Utc>) -> bool {
        let mut since = None;
        for note in self.notes.iter().filter(|note| note.process == process && note.at <= at) {
            match note.what {
                What::Frozen(true) => since = Some(DateTime::<Utc>::MAX_UTC),
                What::Frozen(false) => since = Some(note.at),
                _ => {}
            }
        }
        since.is_some_and(|since| since >= at - TimeDelta::minutes(2))
    }

    /// Whether the scenario lets a scheduler's sends land after its lease may be another's.
    fn is_late_sender(&self, process: &str) -> bool {
        let late = |fault: &Fault| matches!(fault, Fault::Delay(_) | Fault::LandLate(_));
        self.scenario.events.iter().any(|(_, event)| match event {
            Event::Next(who, call, fault) | Event::Every(who, call, fault, _) => {
                who == process && *call == "queue.send" && late(fault)
            }
            Event::Freeze(who, _) => who == process,
            _ => false,
        })
    }
}

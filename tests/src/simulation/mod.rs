//! The simulation: everything that one seed draws, played in virtual time, and held against a reference model.
//!
//! [`plan`] draws a small world, what goes wrong in it and what people ask for. [`processes`] runs the real scheduler and
//! worker services in it, [`people`] the real operations. [`reference`] follows each job through the acknowledged history
//! by rules of its own, [`steering`] what operators say, [`check`] everything else that must be true. A seed is played in one thread and in paused
//! time, and all that is drawn by chance follows from it: the same seed is the same history.

pub mod check;
pub mod people;
pub mod plan;
pub mod processes;
pub mod reference;
pub mod runner;
pub mod sabotage;
pub mod steering;
pub mod timetables;
pub mod witness;

use crate::logs::Logs;
use chrono::{DateTime, TimeDelta, Utc};
use people::{People, Reply};
use plan::{Ask, Event, Scenario};
use processes::{Sabotage, Stage};
use punctual_core::job::{JobKey, JobState};
use punctual_core::memory::{Fault, Point, Recorded, World};
use punctual_core::process;
use punctual_core::run::RunStatus;
use punctual_core::zone::Zones;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;
use witness::Note;

/// How long a world may take to come to rest when the trouble is over.
const REST_WITHIN: TimeDelta = TimeDelta::hours(1);
/// How long it is watched at rest.
const WATCHED_AT_REST: Duration = Duration::from_secs(180);

/// A seed that was played.
pub struct Played {
    /// The seed.
    pub seed: u64,
    /// What it drew.
    pub scenario: Arc<Scenario>,
    /// What is left of the world.
    pub world: World,
    /// Everything that happened.
    pub history: Vec<Recorded>,
    /// What passed at the ports.
    pub notes: Vec<Note>,
    /// What people were told.
    pub replies: Vec<Reply>,
    /// What was logged at ERROR.
    pub errors: Vec<String>,
    /// When everything was done for the first time after the trouble; none = never.
    pub rested_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// Plays one seed, with a guard taken away or not.
pub fn play(seed: u64, zones: &Arc<Zones>, sabotage: Sabotage) -> Played {
    let mut random = StdRng::seed_from_u64(seed);
    let scenario = Arc::new(Scenario::draw(&mut random, zones));
    process::seed(seed);
    let logs = Logs::keep_from(Level::ERROR);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    let mut played = runtime.block_on(act(seed, scenario, zones.clone(), sabotage, random));
    drop(runtime);
    process::forget_seed();
    played.errors = logs.of(Level::ERROR);
    played
}

async fn act(seed: u64, scenario: Arc<Scenario>, zones: Arc<Zones>, sabotage: Sabotage, mut random: StdRng) -> Played {
    let mut stage = Stage::set(scenario.clone(), zones, sabotage).await;
    let mut people = People::default();
    let mut lasting: Vec<(Duration, Point, Fault)> = Vec::new();
    for (at, event) in &scenario.events {
        while let Some((until, point, fault)) = lasting.iter().min_by_key(|(until, ..)| *until).cloned() {
            if until > *at {
                break;
            }
            wait_until(&stage, until).await;
            stage.plan.remove(&point, &fault);
            lasting.retain(|one| *one != (until, point.clone(), fault.clone()));
        }
        wait_until(&stage, *at).await;
        happen(&mut stage, &mut people, &mut lasting, *at, event).await;
    }
    wait_until(&stage, scenario.lasts).await;
    stage.calm_down().await;
    for job in stage.world.jobs().into_values().filter(|job| job.state == JobState::Paused) {
        if random.random_bool(0.7) {
            people.ask(&stage, &job.spec.key, Ask::Resume);
        }
    }
    let replies = people.replies().await;
    let calm_at = stage.clock.now();
    let rested_at = rest(&stage, calm_at + REST_WITHIN).await;
    if rested_at.is_some() {
        tokio::time::sleep(WATCHED_AT_REST).await;
        rest(&stage, calm_at + REST_WITHIN).await;
    }
    let ended_at = stage.clock.now();
    stage.strike().await;
    let (history, notes) = (stage.world.history(), stage.witness.notes());
    let world = stage.world.clone();
    Played { seed, scenario, world, history, notes, replies, errors: Vec::new(), rested_at, ended_at }
}

async fn wait_until(stage: &Stage, since_start: Duration) {
    tokio::time::sleep(since_start.saturating_sub(stage.clock.monotonic())).await;
}

async fn happen(
    stage: &mut Stage,
    people: &mut People,
    lasting: &mut Vec<(Duration, Point, Fault)>,
    at: Duration,
    event: &Event,
) {
    match event.clone() {
        Event::Next(process, call, fault) => stage.plan.add(Point::NextOf(process, call), fault),
        Event::Every(process, call, fault, lasts) => {
            let point = Point::EveryOf(process, call);
            stage.plan.add(point.clone(), fault.clone());
            lasting.push((at + lasts, point, fault));
        }
        Event::Crash(process, again_after) => stage.crash(&process, again_after),
        Event::Freeze(process, lasts) => stage.freeze(&process, lasts),
        Event::Lag(lag) => stage.world.set_index_lag(lag),
        Event::Latency(latency) => stage.world.set_gateway_latency(latency),
        Event::Clock(process, ahead_s) => stage.set_clock(&process, ahead_s),
        Event::Ask(n, ask) => people.ask(stage, &stage.key_of(n), ask),
        Event::Steer(how) => stage.steer(&how).await,
    }
}

/// Waits until nothing is due, queued or under way, but for what paused jobs hold back; says when that was.
async fn rest(stage: &Stage, until: DateTime<Utc>) -> Option<DateTime<Utc>> {
    while stage.clock.now() < until {
        if is_at_rest(&stage.world, stage.clock.now()) {
            return Some(stage.clock.now());
        }
        tokio::time::sleep(Duration::from_millis(5_137)).await;
    }
    None
}

fn is_at_rest(world: &World, now: DateTime<Utc>) -> bool {
    let jobs = world.jobs();
    let is_paused = |key: &JobKey| jobs.get(key).is_some_and(|job| job.state == JobState::Paused);
    let is_open = |status| matches!(status, RunStatus::Running | RunStatus::Retrying);
    jobs.values().all(|job| job.state != JobState::Active || job.next_due_at.is_none_or(|due_at| due_at > now))
        && world.waiting().iter().all(|one| one.message.as_ref().is_some_and(|message| is_paused(&message.job_key)))
        && world.rows().values().all(|row| !is_open(row.status) || is_paused(&row.id.job_key))
}

impl Played {
    /// What is wrong, one line each; nothing if all is as it must be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = reference::problems(self);
        problems.extend(check::problems(self));
        problems.extend(steering::problems(self));
        problems
    }

    /// A digest of the history: equal for equal histories.
    pub fn digest(&self) -> u64 {
        // FNV-1a.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let text = self.history.iter().map(|one| format!("{one:?}\n"));
        text.fold(0xcbf2_9ce4_8422_2325, |hash, line| line.bytes().fold(hash, step))
    }

    /// Scenario, problems, and all that happened to the jobs concerned.
    pub fn trace(&self, problems: &[String]) -> String {
        let mut text = String::new();
        let jobs = self.scenario.jobs.iter().map(|job| job.spec.key.clone());
        let concerned: Vec<JobKey> =
            jobs.filter(|key| problems.iter().any(|problem| problem.contains(key.as_str()))).collect();
        let _ = writeln!(text, "seed {}: {}", self.seed, self.scenario.summary());
        for (at, event) in &self.scenario.events {
            let _ = writeln!(text, "  {:>8.3} {event:?}", at.as_secs_f64());
        }
        self.tell(&mut text, &concerned);
        for problem in problems {
            let _ = writeln!(text, "PROBLEM {problem}");
        }
        let _ = writeln!(text, "run it alone: cargo sim --seed {} --trace", self.seed);
        text
    }
}

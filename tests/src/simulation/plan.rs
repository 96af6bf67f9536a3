//! What one seed draws: a small world, what goes wrong in it and when, and what people ask for.

use super::timetables;
use chrono::{DateTime, Utc};
use punctual_core::deadline::StartRule;
use punctual_core::due::Shards;
use punctual_core::error::PortError;
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::memory::{Fault, Script};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::{GatewayPolicy, Outcome, RetryRule, WhenUnknown};
use punctual_core::schedule::{Anchor, Schedule};
use punctual_core::spread::Spread;
use punctual_core::steering::Scope;
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use punctual_scheduler::dispatch::DispatchSettings;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use std::time::Duration;

/// Everything that one seed draws.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The world's first instant.
    pub start: DateTime<Utc>,
    /// Shards of the timetable.
    pub shards: Shards,
    /// Scheduler copies.
    pub schedulers: usize,
    /// Workers.
    pub workers: usize,
    /// Those of them that are Lambda functions.
    pub functions: BTreeSet<String>,
    /// Time between two passes over a shard.
    pub tick: Duration,
    /// Entries of the due index read at a time.
    pub page: usize,
    /// How far ahead the timetable is read.
    pub look_ahead: Duration,
    /// More runs than this in a second are sent early.
    pub light_second: usize,
    /// Whether the gateway drops repeats of a reference.
    pub drops_repeats: bool,
    /// What the workers believe of the gateway.
    pub gateway: GatewayPolicy,
    /// The jobs.
    pub jobs: Vec<PlannedJob>,
    /// What happens, by time since the start.
    pub events: Vec<(Duration, Event)>,
    /// Whether anything goes wrong at all.
    pub is_troubled: bool,
    /// How long trouble and changes go on.
    pub lasts: Duration,
}

/// A job that somebody makes.
#[derive(Clone, Debug)]
pub struct PlannedJob {
    /// What it is.
    pub spec: JobSpec,
    /// Whom its texts go to.
    pub number: String,
    /// What the gateway does with the first calls for its number.
    pub scripts: Vec<Script>,
}

/// Something that happens at its time.
#[derive(Clone, Debug)]
pub enum Event {
    /// The next call of this name by this process goes wrong.
    Next(String, &'static str, Fault),
    /// All such calls go wrong for a while.
    Every(String, &'static str, Fault, Duration),
    /// A process dies and is started again after a while.
    Crash(String, Duration),
    /// A process stands still for a while.
    Freeze(String, Duration),
    /// The due index lags by this much from now on.
    Lag(Duration),
    /// The gateway takes this long to answer from now on.
    Latency(Duration),
    /// A host's wall clock is set this many seconds ahead of the right time.
    Clock(String, i64),
    /// Somebody asks for something about the n-th job.
    Ask(usize, Ask),
    /// An operator says something.
    Steer(Steer),
}

/// What operators say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Nothing of this is called.
    Hold(Scope),
    /// The hold of this scope ends.
    Release(Scope),
    /// So many text messages a second.
    Limit(u32),
}

/// What people ask for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Make the job, or make it again.
    Make(Box<JobSpec>),
    /// Another schedule.
    Reschedule(Box<Schedule>),
    /// Another window.
    Spread(Option<Spread>),
    /// Another queue.
    Queue(Priority),
    /// Another missed-run rule.
    Missed(MissedRule),
    /// Another text.
    Text(String),
    /// Hold it.
    Pause,
    /// End the hold.
    Resume,
    /// End it for good.
    Cancel,
    /// Run it now, under an idempotency key or not.
    Run(Option<String>),
}

const BY_SCHEDULERS: [&str; 12] = [
    "due.page",
    "jobs.get_many",
    "queue.send",
    "queue.send",
    "jobs.advance",
    "jobs.advance",
    "leases.take",
    "leases.renew",
    "leases.list",
    "leases.release",
    "runs.get",
    "runs.put",
];
const BY_WORKERS: [&str; 10] = [
    "queue.receive",
    "jobs.get_many",
    "runs.get",
    "runs.put",
    "runs.put",
    "gateway.send",
    "gateway.send",
    "queue.extend",
    "queue.delete",
    "queue.send_dead_letter",
];
const BY_PEOPLE: [&str; 5] = ["jobs.create", "jobs.get_many", "jobs.replace", "queue.send", "control.once"];

/// Who makes the changes.
pub const PEOPLE: &str = "people";
/// Who holds, releases and sets limits.
pub const OPERATOR: &str = "operator";

/// The n-th scheduler copy.
pub fn scheduler(n: usize) -> String {
    format!("s{}", n + 1)
}

/// The n-th worker.
pub fn worker(n: usize) -> String {
    format!("w{}", n + 1)
}

impl Scenario {
    /// Draws one.
    pub fn draw(random: &mut StdRng, zones: &Zones) -> Self {
        let is_troubled = random.random_bool(0.9);
        let (start, zone) = timetables::start(random);
        let lasts = Duration::from_secs(random.random_range(420..900));
        let urgent = random.random_range(1..=2);
        let shards = Shards { urgent, standard: random.random_range(1..=(5 - urgent)) };
        let (schedulers, workers) = (random.random_range(1..=3), random.random_range(1..=3));
        let drops_repeats = random.random_bool(0.5);
        let count = random.random_range(3..=12);
        let jobs: Vec<PlannedJob> = (0..count).map(|n| draw_job(n, start, zone, zones, is_troubled, random)).collect();
        let mut scenario = Scenario {
            start,
            shards,
            schedulers,
            workers,
            functions: BTreeSet::new(),
            tick: Duration::from_millis(random.random_range(500..=3_000)),
            page: *[2, 500].choose(random).expect("not empty"),
            look_ahead: Duration::from_secs(*[0, 10, 30, 30].choose(random).expect("not empty")),
            light_second: DispatchSettings::default().light_second,
            drops_repeats,
            gateway: policy(drops_repeats, random),
            jobs,
            events: Vec::new(),
            is_troubled,
            lasts,
        };
        scenario.draw_people(zone, zones, random);
        if is_troubled {
            scenario.draw_trouble(random);
        }
        scenario.events.sort_by_key(|(at, _)| *at);
        if random.random_bool(0.5) {
            scenario.light_second = random.random_range(0..=1);
        }
        scenario.functions = (0..workers).map(worker).filter(|_| random.random_bool(0.3)).collect();
        if is_troubled {
            scenario.draw_operator(random);
            scenario.events.sort_by_key(|(at, _)| *at);
        }
        scenario
    }

    /// A moment within the trouble, after the processes have come up.
    fn moment(&self, random: &mut StdRng) -> Duration {
        Duration::from_millis(random.random_range(5_000..self.lasts.as_millis() as u64))
    }

    /// A moment for a change: as often as not about when jobs are due.
    fn moment_for_people(&self, random: &mut StdRng) -> Duration {
        let any = self.moment(random);
        if random.random_bool(0.5) {
            return any;
        }
        let into_minute = Duration::from_secs((self.start.timestamp() as u64 + any.as_secs()) % 60);
        let minute =
            any.saturating_sub(into_minute).saturating_sub(Duration::from_nanos(u64::from(any.subsec_nanos())));
        let about = minute + Duration::from_millis(random.random_range(0..3_000));
        about.saturating_sub(Duration::from_millis(1_500)).max(Duration::from_secs(2))
    }

    fn draw_people(&mut self, zone: &str, zones: &Zones, random: &mut StdRng) {
        for n in 0..self.jobs.len() {
            let spec = self.jobs[n].spec.clone();
            // Most jobs are there from the start.
            let made_at = if random.random_bool(0.8) { Duration::ZERO } else { self.moment_for_people(random) };
            self.events.push((made_at, Event::Ask(n, Ask::Make(Box::new(spec.clone())))));
            let changes = if random.random_bool(0.4) { 0 } else { random.random_range(1..=5) };
            for _ in 0..changes {
                let at = self.moment_for_people(random);
                let ask = draw_ask(&spec, self.start + at, zone, zones, random);
                let back = match ask {
                    Ask::Pause => Some(Ask::Resume),
                    Ask::Cancel => Some(Ask::Make(Box::new(JobSpec {
                        schedule: timetables::draw(self.start + at, zone, zones, random),
                        ..spec.clone()
                    }))),
                    _ => None,
                };
                self.events.push((at, Event::Ask(n, ask)));
                if let Some(back) = back.filter(|_| random.random_bool(0.6)) {
                    let later = at + Duration::from_millis(random.random_range(100..240_000));
                    self.events.push((later.min(self.lasts), Event::Ask(n, back)));
                }
            }
        }
    }

    fn draw_trouble(&mut self, random: &mut StdRng) {
        let s = Duration::from_secs;
        for _ in 0..random.random_range(0..25) {
            let (process, call) = self.draw_call(random);
            let fault = draw_fault(call, random);
            let at = self.moment(random);
            self.events.push((at, Event::Next(process, call, fault)));
        }
        for _ in 0..random.random_range(0..4) {
            let (process, call) = self.draw_call(random);
            let at = self.moment(random);
            let lasts = s(random.random_range(2..60));
            self.events.push((at, Event::Every(process, call, draw_lasting(call, random), lasts)));
        }
        for _ in 0..random.random_range(0..4) {
            let process = self.draw_process(random);
            let most = if random.random_bool(0.2) { 240 } else { 20 };
            let again = s(random.random_range(0..most));
            let at = self.moment(random);
            self.events.push((at, Event::Crash(process, again)));
        }
        if random.random_bool(0.3) {
            // People's requests take long: much happens between their reads and their writes.
            let slow = Fault::Delay(Duration::from_millis(random.random_range(100..8_000)));
            self.events.push((Duration::ZERO, Event::Every(PEOPLE.into(), "jobs.replace", slow, self.lasts)));
        }
        if random.random_bool(0.15) {
            let (at, again) = (self.moment(random), s(random.random_range(100..300)));
            (0..self.schedulers).for_each(|n| self.events.push((at, Event::Crash(scheduler(n), again))));
        }
        for _ in 0..random.random_range(0..3) {
            let process = self.draw_process(random);
            let most = if random.random_bool(0.3) { 120 } else { 30 };
            let lasts = s(random.random_range(2..most));
            let at = self.moment(random);
            self.events.push((at, Event::Freeze(process, lasts)));
        }
        for _ in 0..random.random_range(0..4) {
            let at = self.moment(random);
            self.events.push((at, Event::Lag(Duration::from_millis(random.random_range(0..30_000)))));
        }
        for _ in 0..random.random_range(0..3) {
            let at = self.moment(random);
            let most = if random.random_bool(0.2) { 12_000 } else { 2_000 };
            self.events.push((at, Event::Latency(Duration::from_millis(random.random_range(0..most)))));
        }
        for _ in 0..random.random_range(0..3) {
            let process = self.draw_process(random);
            let at = self.moment(random);
            self.events.push((at, Event::Clock(process, random.random_range(-20..=20))));
        }
    }

    fn draw_operator(&mut self, random: &mut StdRng) {
        for _ in 0..random.random_range(0..3) {
            let scope = match random.random_range(0..4) {
                0 => Scope::All,
                1 => Scope::Tenant("bank".into()),
                2 => Scope::Priority(*Priority::ALL.choose(random).expect("not empty")),
                _ => Scope::Target(Target::sms()),
            };
            let (at, lasts) = (self.moment(random), Duration::from_secs(random.random_range(5..90)));
            self.events.push((at, Event::Steer(Steer::Hold(scope.clone()))));
            self.events.push(((at + lasts).min(self.lasts), Event::Steer(Steer::Release(scope))));
        }
        if random.random_bool(0.4) {
            let at = self.moment(random);
            self.events.push((at, Event::Steer(Steer::Limit(random.random_range(1..=2)))));
        }
    }

    fn draw_process(&self, random: &mut StdRng) -> String {
        let n = random.random_range(0..self.schedulers + self.workers);
        if n < self.schedulers { scheduler(n) } else { worker(n - self.schedulers) }
    }

    fn draw_call(&self, random: &mut StdRng) -> (String, &'static str) {
        if random.random_bool(0.1) {
            return (PEOPLE.to_owned(), BY_PEOPLE.choose(random).expect("not empty"));
        }
        let process = self.draw_process(random);
        let calls: &[&'static str] = if process.starts_with('s') { &BY_SCHEDULERS } else { &BY_WORKERS };
        (process, calls.choose(random).expect("not empty"))
    }
}

fn policy(drops_repeats: bool, random: &mut StdRng) -> GatewayPolicy {
    let mut either = || if random.random_bool(0.5) { WhenUnknown::Retry } else { WhenUnknown::Hold };
    GatewayPolicy {
        dedupe_window: Duration::from_secs(if drops_repeats { 86_400 } else { 0 }),
        on_unknown: either(),
        on_takeover: either(),
    }
}

fn draw_job(
    n: usize,
    start: DateTime<Utc>,
    zone: &str,
    zones: &Zones,
    is_troubled: bool,
    random: &mut StdRng,
) -> PlannedJob {
    let priority = *Priority::ALL.choose(random).expect("not empty");
    let number = format!("+4477009001{n:02}");
    let spec = JobSpec {
        key: JobKey::new("bank", &format!("c-{n}/bill")).expect("a valid id"),
        name: None,
        schedule: timetables::draw(start, zone, zones, random),
        anchor: Anchor::Stated,
        priority,
        payload: Payload::sms(number.as_str(), "Your bill is due"),
        retry: RetryRule { max_attempts: random.random_range(2..=5), base_s: 5, cap_s: 20, waits_s: None },
        spread: draw_spread(priority, random),
        missed: draw_missed(random),
    };
    let scripts = if is_troubled { random.random_range(0..6) } else { 0 };
    PlannedJob { spec, number, scripts: (0..scripts).map(|_| draw_script(random)).collect() }
}

fn draw_spread(priority: Priority, random: &mut StdRng) -> Option<Spread> {
    let has_window = priority != Priority::Urgent && random.random_bool(0.3);
    let key = format!("c-{}", random.random_range(0..1_000));
    has_window.then(|| Spread { key, window_s: random.random_range(1..=60) })
}

fn draw_missed(random: &mut StdRng) -> MissedRule {
    let many = *[Many::All, Many::Latest, Many::Latest, Many::None].choose(random).expect("not empty");
    let start = match random.random_range(0..4) {
        0 => StartRule::WithinS(random.random_range(30..300)),
        _ => StartRule::Always,
    };
    MissedRule { many, start }
}

fn draw_script(random: &mut StdRng) -> Script {
    let reason = String::from("scripted");
    match random.random_range(0..10) {
        0..5 => Script::Answer(Outcome::Delivered { gateway_ref: "gw-scripted".into() }),
        5..8 => Script::Answer(Outcome::Temporary { reason, retry_after: None }),
        8 if random.random_bool(0.3) => Script::Answer(Outcome::Permanent { reason }),
        8 => Script::Answer(Outcome::Unknown { reason }),
        _ => Script::NeverAnswers,
    }
}

fn draw_ask(spec: &JobSpec, now: DateTime<Utc>, zone: &str, zones: &Zones, random: &mut StdRng) -> Ask {
    match random.random_range(0..12) {
        0..3 => Ask::Reschedule(Box::new(timetables::draw(now, zone, zones, random))),
        3 => Ask::Spread(draw_spread(spec.priority, random)),
        4 => Ask::Queue(*Priority::ALL.choose(random).expect("not empty")),
        5 => Ask::Missed(draw_missed(random)),
        6 => Ask::Text(format!("Your bill was corrected {}", random.random_range(0..100))),
        7..9 => Ask::Pause,
        9 => Ask::Cancel,
        _ => Ask::Run(random.random_bool(0.5).then(|| format!("request {}", random.random_range(0..3)))),
    }
}

fn draw_fault(call: &'static str, random: &mut StdRng) -> Fault {
    let kinds = Fault::kinds_for(call);
    match kinds.choose(random).expect("not empty").clone() {
        Fault::Delay(_) => Fault::Delay(Duration::from_millis(random.random_range(10..15_000))),
        Fault::LandLate(_) => Fault::LandLate(Duration::from_millis(random.random_range(10..40_000))),
        other => other,
    }
}

/// A fault that a call may have again and again: no crashes.
fn draw_lasting(call: &'static str, random: &mut StdRng) -> Fault {
    match draw_fault(call, random) {
        Fault::CrashBefore | Fault::CrashAfter => Fault::FailBefore(PortError::Throttled("injected".into())),
        // Every delivery again at once, for ever: no time would pass.
        Fault::Duplicate if call == "queue.receive" => Fault::LoseAnswer,
        other => other,
    }
}

impl Scenario {
    /// One line about it.
    pub fn summary(&self) -> String {
        format!(
            "{} for {:.0} s, {} schedulers (tick {} ms, page {}, look-ahead {} s, light {}), {} workers ({} functions), {} + {} shards, {} jobs, {}",
            self.start,
            self.lasts.as_secs_f64(),
            self.schedulers,
            self.tick.as_millis(),
            self.page,
            self.look_ahead.as_secs(),
            self.light_second,
            self.workers,
            self.functions.len(),
            self.shards.urgent,
            self.shards.standard,
            self.jobs.len(),
            if self.drops_repeats { "a gateway that drops repeats" } else { "a gateway that sends repeats" },
        )
    }
}

//! Tests over the whole of Punctual: what they share.
//!
//! [`Town`] is a small world in memory and in virtual time, with schedulers and workers that are the real services. A
//! process that a fault crashes is started again, as an operator's platform would. [`watch`] looks at what passes through
//! a port, [`broken`] breaks a part of one, [`logs`] looks at what is logged,
//! [`counters`] at what is counted, [`scrape`] reads it from a process's port. [`local`] starts real processes on the local stack; [`rounds`] and [`outage`] are proofs
//! with them, small in the tests and at full size by the words of [`multicall`]; [`measure`] is what the benchmarks share.

pub mod broken;
pub mod collector;
pub mod counters;
pub mod desk;
pub mod event_source;
pub mod local;
pub mod logs;
pub mod measure;
pub mod midnight;
pub mod multicall;
pub mod outage;
pub mod rounds;
pub mod runtime_api;
pub mod scrape;
pub mod simulation;
pub mod watch;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::address::AllowList;
use punctual_core::circuit::CircuitRule;
use punctual_core::clock::{AnchoredClock, Clock, TokioClock};
use punctual_core::deadline::StartRule;
use punctual_core::due::{Layout, Minute, SETTLE, Shards};
use punctual_core::job::{JobKey, JobSpec, Timetable};
use punctual_core::lease::{LeaseId, LeaseTimes};
use punctual_core::memory::{FaultPlan, Faults, World};
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::missed::{Many, MissedRule};
use punctual_core::payload::Payload;
use punctual_core::ports::{Gateway, Ports};
use punctual_core::priority::Priority;
use punctual_core::process::process_id;
use punctual_core::retry::{GatewayPolicy, RetryRule, WhenUnknown};
use punctual_core::run::{RunId, RunKey};
use punctual_core::schedule::Schedule;
use punctual_core::target::Target;
use punctual_core::turns::SlotCounts;
use punctual_core::zone::Zones;
use punctual_scheduler::dispatch::{DispatchSettings, service as scheduler};
use punctual_scheduler::operations::{Created, create_job};
use punctual_worker::rate::Sharing;
use punctual_worker::service::{self as worker, Equipment};
use punctual_worker::settings::{Policies, WorkSettings};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Changes the ports of a process, to take a guard away.
pub type PortChange = Arc<dyn Fn(Ports) -> Ports + Send + Sync>;

type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A world in memory and the processes in it.
pub struct Town {
    /// Store, queues and gateway.
    pub world: World,
    /// Virtual time, for all.
    pub clock: Arc<dyn Clock>,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// Shards of the timetable.
    pub shards: Shards,
    /// What the clocks of the world show.
    pub zones: Arc<Zones>,
    /// Settings of all workers.
    pub work: WorkSettings,
    change: PortChange,
    processes: JoinSet<()>,
}

/// Time as seen by a host whose wall clock can be set wrong; its other clocks go on as all others do.
pub struct WrongClock {
    right: Arc<dyn Clock>,
    ahead_ms: AtomicI64,
}

impl WrongClock {
    /// A host's clocks that agree with `right` until the wall clock is set.
    pub fn over(right: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(WrongClock { right, ahead_ms: AtomicI64::new(0) })
    }

    /// Sets the wall clock this far ahead of the right time; negative = behind.
    pub fn set_ahead(&self, by: TimeDelta) {
        self.ahead_ms.store(by.num_milliseconds(), Ordering::Release);
    }
}

impl Clock for WrongClock {
    fn now(&self) -> DateTime<Utc> {
        self.right.now() + TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Acquire))
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    fn boottime(&self) -> Duration {
        self.right.boottime()
    }
}

/// A process that can be told to stop in order. A fault that crashes it ends it; nobody starts it again.
pub struct Stoppable {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Duration>,
}

impl Stoppable {
    /// Tells it to stop, as SIGTERM does. Its end, by the monotonic clock, is what the handle gives.
    pub fn tell(self) -> JoinHandle<Duration> {
        self.stop.send(()).expect("it is running");
        self.ended
    }

    /// Ends it at once, as SIGKILL does.
    pub fn kill(self) {
        self.ended.abort();
    }
}

/// The first instant of every test: a Monday.
pub fn start_of_time() -> DateTime<Utc> {
    DateTime::from_timestamp(1_791_170_000, 0).expect("a valid instant")
}

/// Worker settings with the product's times, and a gateway that drops repeats for a day.
pub fn work_settings() -> WorkSettings {
    let s = Duration::from_secs;
    WorkSettings {
        priorities: Priority::ALL.to_vec(),
        slots: SlotCounts::of(20),
        prefetch: 40,
        tenant_in_hand: usize::MAX,
        circuit: CircuitRule::default(),
        sharing: Sharing::Leased,
        share_leases: LeaseTimes::default(),
        policies: Policies::all(GatewayPolicy {
            dedupe_window: s(86_400),
            on_unknown: WhenUnknown::Hold,
            on_takeover: WhenUnknown::Retry,
        }),
        webhook_allow: AllowList::default(),
        attempt_timeout: s(10),
        row_lease: s(15),
        takeover_grace: s(30),
        visibility: s(60),
        heartbeat: s(20),
        trust: s(50),
        poll: s(5),
        stop: s(25),
        alive_file: None,
    }
}

/// A reminder for job `id`.
pub fn reminder(id: &str, schedule: &str) -> JobSpec {
    JobSpec {
        key: JobKey::new("bank", id).expect("a valid id"),
        name: None,
        schedule: Schedule::parse(schedule, start_of_time()).expect("a valid schedule"),
        anchor: punctual_core::schedule::Anchor::Stated,
        priority: Priority::Normal,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule::default(),
    }
}

/// The rule that a run must start within some seconds.
pub fn within(seconds: u32) -> MissedRule {
    MissedRule { many: Many::default(), start: StartRule::WithinS(seconds) }
}

/// The run of job `id` at `scheduled_at`.
pub fn run_of(id: &str, scheduled_at: DateTime<Utc>) -> RunId {
    RunId { job_key: JobKey::new("bank", id).expect("a valid id"), run_key: RunKey::scheduled(scheduled_at) }
}

/// `seconds` after the start of time.
pub fn at(seconds: i64) -> DateTime<Utc> {
    start_of_time() + TimeDelta::seconds(seconds)
}

impl Town {
    /// An empty town in which nothing goes wrong. Needs paused time.
    pub async fn new(shards: Shards) -> Self {
        Self::with(shards, FaultPlan::default(), Arc::new(|ports| ports)).await
    }

    /// An empty town with faults, whose processes get changed ports.
    pub async fn with(shards: Shards, plan: FaultPlan, change: PortChange) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(start_of_time()));
        let world = World::new(clock.clone());
        let ports = world.ports();
        ports.control.init_shards(shards).await.expect("memory does not fail");
        for shard in shards.all() {
            // As `punctual setup` does.
            ports.leases.init(&LeaseId::Shard(shard), Minute::of(at(0) - SETTLE)).await.expect("memory does not fail");
        }
        let zones = Arc::new(Zones::embedded());
        Town { world, clock, plan, shards, zones, work: work_settings(), change, processes: JoinSet::new() }
    }

    /// Makes a job.
    pub async fn add(&self, spec: JobSpec) {
        let ports = self.world.ports();
        let created = create_job(&*ports.jobs, &*self.clock, &self.timetable(), spec, "test").await;
        assert!(matches!(created, Ok(Created::New(_))), "{created:?}");
    }

    /// What firings are placed by.
    pub fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    /// The message of a job's run, as dispatch would write it now.
    pub fn message(&self, id: &str, scheduled_at: DateTime<Utc>) -> Message {
        let run = run_of(id, scheduled_at);
        let job = self.world.job(&run.job_key).expect("the job is there");
        Message {
            v: MESSAGE_VERSION,
            job_key: run.job_key,
            run_key: run.run_key,
            generation: job.generation,
            scheduled_at,
            due_at: scheduled_at,
            first_enqueued_at: self.clock.now(),
            scheduler: "by hand".into(),
            trace: None,
        }
    }

    /// Puts messages into their job's queue without a scheduler.
    pub async fn send(&self, messages: &[Message]) {
        for message in messages {
            let job = self.world.job(&message.job_key).expect("the job is there");
            let sent = self.world.ports().queue.send(job.spec.priority, &[message.encode()]).await;
            assert_eq!(sent, Ok(vec![Ok(())]));
        }
    }

    /// Sets how many text messages all workers together may send a second.
    pub async fn set_sms_limit(&self, per_second: u32) {
        self.set_limit(Target::sms(), per_second).await;
    }

    /// Sets how many calls a second all workers together may make to a target.
    pub async fn set_limit(&self, target: Target, per_second: u32) {
        let control = self.world.ports().control;
        let from = control.steering().await.expect("memory does not fail");
        let to = from.with_limit(target, per_second).expect("a limit in range");
        assert_eq!(control.change_steering(from.revision, &to).await, Ok(to));
    }

    /// A clock that agrees with all others until it is set.
    pub fn wrong_clock(&self) -> Arc<WrongClock> {
        WrongClock::over(self.clock.clone())
    }

    /// Starts a scheduler that is started again when it crashes.
    pub fn start_scheduler(&mut self, name: &str) {
        self.start_scheduler_by(self.clock.clone(), name);
    }

    /// Starts such a scheduler on a host with this clock, which goes by that clock alone.
    pub fn start_scheduler_by(&mut self, clock: Arc<dyn Clock>, name: &str) {
        self.start_scheduler_with(clock, None, name);
    }

    /// Starts such a scheduler on a host with this clock, which goes by the store's time: the clock given back.
    pub fn start_scheduler_on(&mut self, host: Arc<WrongClock>, name: &str) -> Arc<AnchoredClock> {
        let clock = Arc::new(AnchoredClock::new(host));
        self.start_scheduler_with(clock.clone(), Some(clock.clone()), name);
        clock
    }

    fn start_scheduler_with(&mut self, clock: Arc<dyn Clock>, anchored: Option<Arc<AnchoredClock>>, name: &str) {
        let (layout, zones, settings) = (Layout::of(self.shards), self.zones.clone(), DispatchSettings::default());
        self.supervise(anchored, name, move |ports, _, id| {
            scheduler::run(ports, clock.clone(), layout, zones.clone(), settings, id, pending())
        });
    }

    /// Starts a worker that is started again when it crashes.
    pub fn start_worker(&mut self, name: &str) {
        self.start_worker_by(self.clock.clone(), name);
    }

    /// Starts such a worker on a host with this clock, which goes by the store's time: the clock given back.
    pub fn start_worker_on(&mut self, host: Arc<WrongClock>, name: &str) -> Arc<AnchoredClock> {
        let clock = Arc::new(AnchoredClock::new(host));
        self.start_worker_with(clock.clone(), Some(clock.clone()), name);
        clock
    }

    /// Starts such a worker on a host with this clock, which goes by that clock alone: the guard taken away.
    pub fn start_worker_by(&mut self, clock: Arc<dyn Clock>, name: &str) {
        self.start_worker_with(clock, None, name);
    }

    fn start_worker_with(&mut self, clock: Arc<dyn Clock>, anchored: Option<Arc<AnchoredClock>>, name: &str) {
        let (zones, settings) = (self.zones.clone(), self.work.clone());
        self.supervise(anchored, name, move |ports, gateway, id| {
            let (clock, zones, settings) = (clock.clone(), zones.clone(), settings.clone());
            async move {
                let equipment = Equipment { ports, gateway, clock, zones, settings, id };
                worker::run(equipment, pending()).await;
            }
        });
    }

    /// Starts an environment of the worker as a Lambda function, which is started again when it crashes.
    pub fn start_function(&mut self, name: &str) {
        let (clock, zones, settings) = (self.clock.clone(), self.zones.clone(), self.work.clone());
        let queue = self.world.ports().queue;
        self.supervise(None, name, move |ports, gateway, id| {
            let (clock, zones, settings) = (clock.clone(), zones.clone(), settings.clone());
            let equipment = Equipment { ports, gateway, clock: clock.clone(), zones, settings, id };
            event_source::invoke_for_ever(queue.clone(), clock, equipment, event_source::what_is_done())
        });
    }

    /// Starts a scheduler that can be told to stop.
    pub fn start_stoppable_scheduler(&self, name: &str) -> Stoppable {
        let (clock, shards, zones) = (self.clock.clone(), self.shards, self.zones.clone());
        self.stoppable(name, move |ports, _, id, stop| {
            scheduler::run(ports, clock, Layout::of(shards), zones, DispatchSettings::default(), id, stop)
        })
    }

    /// Starts a worker that can be told to stop.
    pub fn start_stoppable_worker(&self, name: &str) -> Stoppable {
        let (clock, zones, settings) = (self.clock.clone(), self.zones.clone(), self.work.clone());
        self.stoppable(name, move |ports, gateway, id, stop| {
            work(Equipment { ports, gateway, clock, zones, settings, id }, stop)
        })
    }

    fn stoppable<F, R>(&self, name: &str, service: F) -> Stoppable
    where
        F: FnOnce(Ports, Arc<dyn Gateway>, String, Stop) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let faults = Faults::new(&self.plan, name);
        let ports = (self.change)(faults.wrap(self.world.ports()));
        let gateway = faults.wrap_gateway(self.world.gateway());
        let (clock, id) = (self.clock.clone(), process_id(name));
        let ended = tokio::spawn(async move {
            // A test that drops the handle has no use for the process any more: that stops it too.
            let stop: Stop = Box::pin(async move { stopped.await.unwrap_or_default() });
            tokio::select! {
                () = service(ports, gateway, id, stop) => {}
                () = faults.crashed() => {}
            }
            clock.monotonic()
        });
        Stoppable { stop, ended }
    }

    /// Starts a process again and again; the store tells its time to the clock, if there is one.
    fn supervise<F, R>(&mut self, anchored: Option<Arc<AnchoredClock>>, name: &str, service: F)
    where
        F: Fn(Ports, Arc<dyn Gateway>, String) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (world, plan, change, name) = (self.world.clone(), self.plan.clone(), self.change.clone(), name.to_owned());
        let right = self.clock.clone();
        self.processes.spawn(async move {
            loop {
                let mut faults = Faults::new(&plan, &name);
                if let Some(host) = &anchored {
                    faults = faults.telling_time(right.clone(), host.clone());
                }
                let ports = change(faults.wrap(world.ports()));
                let gateway = faults.wrap_gateway(world.gateway());
                tokio::select! {
                    () = service(ports, gateway, process_id(&name)) => return,
                    () = faults.crashed() => {}
                }
            }
        });
    }

    /// Ends all processes, as a power cut would. None of them may have broken before.
    pub async fn stop(&mut self) {
        self.processes.abort_all();
        while let Some(ended) = self.processes.join_next().await {
            assert!(!ended.is_err_and(|error| error.is_panic()), "a process broke");
        }
    }

    /// Lets virtual time pass until something holds, or `seconds` have gone by; says whether it holds.
    pub async fn until(&self, seconds: u64, holds: impl Fn(&World) -> bool) -> bool {
        self.until_ms(seconds * 1_000, 500, holds).await
    }

    /// The same in milliseconds, looking so often.
    pub async fn until_ms(&self, within: u64, every: u64, holds: impl Fn(&World) -> bool) -> bool {
        let give_up_at = self.clock.monotonic() + Duration::from_millis(within);
        while !holds(&self.world) {
            if self.clock.monotonic() >= give_up_at {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(every)).await;
        }
        true
    }
}

/// A worker, none of whose own loops may break.
async fn work(equipment: Equipment, stop: impl Future<Output = ()>) {
    let ended = worker::run(equipment, stop).await;
    assert_eq!(ended, worker::Ended::InOrder);
}

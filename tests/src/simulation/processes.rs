//! The processes of a simulation: each on a host with clocks of its own, started again when it dies, frozen now and then.

use super::plan::{OPERATOR, PEOPLE, Scenario, Steer, scheduler, worker};
use super::witness::{What, Witness};
use crate::event_source::{self, Deletes};
use crate::{PortChange, WrongClock, work_settings};
use chrono::TimeDelta;
use punctual_core::clock::{AnchoredClock, Clock, TokioClock};
use punctual_core::due::{Minute, SETTLE};
use punctual_core::job::{JobKey, Timetable};
use punctual_core::lease::LeaseId;
use punctual_core::memory::{FaultPlan, Faults, World};
use punctual_core::ports::{Gateway, Ports, RunQueue};
use punctual_core::process::{keep_time, process_id};
use punctual_core::steering::{DEFAULT_SMS_LIMIT, Hold};
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use punctual_scheduler::dispatch::{DispatchSettings, service as dispatch};
use punctual_worker::service::{self as work, Equipment};
use punctual_worker::settings::{Policies, WorkSettings};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// A guard taken away, to see that its loss is noticed.
#[derive(Clone)]
pub struct Sabotage {
    /// Changes the ports of every process.
    pub ports: PortChange,
    /// Lets every process go by its host's wall clock.
    pub unanchored: bool,
    /// Lets Lambda delete all that it handed in, whatever the function says.
    pub deletes_all: bool,
}

impl Sabotage {
    /// Nothing is taken away.
    pub fn none() -> Self {
        Self::of_ports(Arc::new(|ports| ports))
    }

    /// Ports are changed.
    pub fn of_ports(ports: PortChange) -> Self {
        Sabotage { ports, unanchored: false, deletes_all: false }
    }
}

/// The world of one seed and the processes in it.
pub struct Stage {
    /// Store, queues and gateway.
    pub world: World,
    /// The right time.
    pub clock: Arc<dyn Clock>,
    /// What goes wrong.
    pub plan: FaultPlan,
    /// What passed.
    pub witness: Witness,
    scenario: Arc<Scenario>,
    zones: Arc<Zones>,
    sabotage: Sabotage,
    processes: BTreeMap<String, Process>,
    tasks: JoinSet<()>,
}

/// One process, through all of its lives.
#[derive(Clone)]
struct Process {
    host: Arc<WrongClock>,
    life: Arc<Mutex<Life>>,
}

struct Life {
    faults: Faults,
    again_after: Duration,
}

impl Process {
    fn life<T>(&self, with: impl FnOnce(&mut Life) -> T) -> T {
        with(&mut self.life.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Stage {
    /// An empty world with its processes started. Needs paused time.
    pub async fn set(scenario: Arc<Scenario>, zones: Arc<Zones>, sabotage: Sabotage) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(scenario.start));
        let world = World::new(clock.clone());
        let ports = world.ports();
        ports.control.init_shards(scenario.shards).await.expect("memory does not fail");
        for shard in scenario.shards.all() {
            let cursor = Minute::of(scenario.start - SETTLE);
            ports.leases.init(&LeaseId::Shard(shard), cursor).await.expect("memory does not fail");
        }
        if scenario.drops_repeats {
            world.drop_repeats();
        }
        for job in &scenario.jobs {
            world.script(&job.number, job.scripts.iter().cloned());
        }
        let (witness, plan) = (Witness::of(world.clone(), clock.clone()), FaultPlan::default());
        let (processes, tasks) = (BTreeMap::new(), JoinSet::new());
        let mut stage = Stage { world, clock, plan, witness, scenario, zones, sabotage, processes, tasks };
        for n in 0..stage.scenario.schedulers {
            stage.start(scheduler(n));
        }
        for n in 0..stage.scenario.workers {
            stage.start(worker(n));
        }
        stage
    }

    /// What firings are placed by.
    pub fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.scenario.shards, zones: &self.zones }
    }

    /// The key of the n-th job.
    pub fn key_of(&self, n: usize) -> JobKey {
        self.scenario.jobs[n].spec.key.clone()
    }

    /// The zone rules of all.
    pub fn zones(&self) -> Arc<Zones> {
        self.zones.clone()
    }

    /// The ports of one person's request, and the end of the one who asks.
    pub fn person(&self) -> (Ports, Faults) {
        let faults = Faults::new(&self.plan, PEOPLE);
        ((self.sabotage.ports)(faults.wrap(self.world.ports())), faults)
    }

    /// Kills a process; it comes again after a while.
    pub fn crash(&self, name: &str, again_after: Duration) {
        self.processes[name].life(|life| {
            life.again_after = again_after;
            life.faults.crash();
        });
    }

    /// Freezes a process for a while.
    pub fn freeze(&mut self, name: &str, lasts: Duration) {
        let faults = self.processes[name].life(|life| life.faults.clone());
        faults.freeze();
        let (witness, name) = (self.witness.clone(), name.to_owned());
        witness.note(&name, What::Frozen(true));
        self.tasks.spawn(async move {
            tokio::time::sleep(lasts).await;
            faults.thaw();
            witness.note(&name, What::Frozen(false));
        });
    }

    /// Sets a host's wall clock.
    pub fn set_clock(&self, name: &str, ahead_s: i64) {
        self.processes[name].host.set_ahead(TimeDelta::seconds(ahead_s));
    }

    /// Lets an operator say something; it is in force when this returns.
    pub async fn steer(&self, how: &Steer) {
        let control = self.world.ports().control;
        let from = control.steering().await.expect("memory does not fail");
        let to = match how {
            Steer::Hold(scope) => {
                let (scope, since) = (scope.clone(), self.clock.now());
                from.with_hold(Hold { scope, by: OPERATOR.into(), why: "a try".into(), since })
            }
            Steer::Release(scope) => Ok(from.without_hold(scope)),
            Steer::Limit(per_second) => from.with_limit(Target::sms(), *per_second),
        };
        let to = to.expect("few holds and small limits are allowed");
        assert_eq!(control.change_steering(from.revision, &to).await, Ok(to), "there is one operator");
        self.witness.note(OPERATOR, What::Steered(how.clone()));
    }

    /// Ends all trouble: nothing fails, stands still, is held or is late any more.
    pub async fn calm_down(&self) {
        for hold in self.world.steering().holds {
            self.steer(&Steer::Release(hold.scope)).await;
        }
        self.steer(&Steer::Limit(DEFAULT_SMS_LIMIT.get())).await;
        self.plan.clear();
        self.world.set_index_lag(Duration::ZERO);
        self.world.set_gateway_latency(Duration::from_millis(200));
        for process in self.processes.values() {
            process.host.set_ahead(TimeDelta::zero());
            process.life(|life| life.faults.thaw());
        }
    }

    /// Ends all processes. None may have broken.
    pub async fn strike(&mut self) {
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    fn start(&mut self, name: String) {
        let life = Life { faults: Faults::new(&self.plan, &name), again_after: Duration::from_secs(1) };
        let process = Process { host: WrongClock::over(self.clock.clone()), life: Arc::new(Mutex::new(life)) };
        self.processes.insert(name.clone(), process.clone());
        let host = Host {
            name,
            process,
            right: self.clock.clone(),
            plan: self.plan.clone(),
            witness: self.witness.clone(),
            scenario: self.scenario.clone(),
            zones: self.zones.clone(),
            sabotage: self.sabotage.clone(),
            queue: self.world.ports().queue,
        };
        self.tasks.spawn(host.run());
    }
}

/// Where one process lives.
struct Host {
    name: String,
    process: Process,
    right: Arc<dyn Clock>,
    plan: FaultPlan,
    witness: Witness,
    scenario: Arc<Scenario>,
    zones: Arc<Zones>,
    sabotage: Sabotage,
    /// The queues as Lambda sees them.
    queue: Arc<dyn RunQueue>,
}

impl Host {
    /// Starts the process again and again.
    async fn run(self) {
        loop {
            let anchored = Arc::new(AnchoredClock::new(self.process.host.clone()));
            let faults = Faults::new(&self.plan, &self.name).telling_time(self.right.clone(), anchored.clone());
            self.process.life(|life| life.faults = faults.clone());
            let ports = (self.sabotage.ports)(faults.wrap(self.witness.ports(&self.name)));
            let gateway = faults.wrap_gateway(self.witness.gateway(&self.name));
            let clock: Arc<dyn Clock> = if self.sabotage.unanchored { self.process.host.clone() } else { anchored };
            self.witness.note(&self.name, What::Began);
            tokio::select! {
                biased;
                () = faults.crashed() => self.witness.note(&self.name, What::Died),
                () = self.live(ports, gateway, clock) => unreachable!("nobody told it to stop"),
            }
            let again_after =
                self.process.life(|life| std::mem::replace(&mut life.again_after, Duration::from_secs(1)));
            tokio::time::sleep(again_after).await;
        }
    }

    async fn live(&self, ports: Ports, gateway: Arc<dyn Gateway>, clock: Arc<dyn Clock>) {
        let layout = loop {
            // As the commands do, before anything else: an operator's platform starts them until the store answers.
            match ports.control.layout().await {
                Ok(layout) => break layout.expect("the store is set up"),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        };
        let (id, zones) = (process_id(&self.name), self.zones.clone());
        if self.name.starts_with('s') {
            let settings = DispatchSettings {
                tick: self.scenario.tick,
                page: self.scenario.page,
                look_ahead: self.scenario.look_ahead,
                light_second: self.scenario.light_second,
                ..DispatchSettings::default()
            };
            let control = ports.control.clone();
            tokio::join!(
                dispatch::run(ports, clock.clone(), layout, zones, settings, id, pending()),
                keep_time(&*clock, &*control)
            );
        } else {
            let settings = WorkSettings { policies: Policies::all(self.scenario.gateway), ..work_settings() };
            let equipment = Equipment { ports, gateway, clock: clock.clone(), zones, settings, id };
            if self.scenario.functions.contains(&self.name) {
                event_source::invoke_for_ever(self.queue.clone(), clock, equipment, self.deletes()).await;
            } else {
                work::run(equipment, pending()).await;
            }
        }
    }

    /// What Lambda deletes of a function's batch.
    fn deletes(&self) -> Deletes {
        let (witness, name, deletes_all) = (self.witness.clone(), self.name.clone(), self.sabotage.deletes_all);
        Arc::new(move |handed_in, done| {
            let given_back = handed_in.iter().filter(|receipt| !done.contains(*receipt)).count();
            witness.note(&name, What::Answered { done: done.len(), given_back });
            if deletes_all { handed_in.iter().cloned().collect() } else { done }
        })
    }
}

//! Faults at every call to a port: what emulators never show.
//!
//! Each process of a test gets its ports through [`Faults`], all of them driven by one [`FaultPlan`]. Each call passes a
//! numbered point. A test first runs without faults and counts the points ([`FaultPlan::calls`]), then once for each
//! point and each kind of fault ([`Fault::kinds_for`]).

mod ports;

use crate::clock::{AnchoredClock, Clock};
use crate::error::PortError;
use crate::ports::{Gateway, PortResult, Ports};
use crate::retry::Outcome;
use ports::Faulty;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// What goes wrong with one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and the caller gets this error.
    FailBefore(PortError),
    /// It happens, but the caller gets an unknown outcome.
    LoseAnswer,
    /// The caller gets an unknown outcome at once; it happens this much later, whatever became of the caller.
    LandLate(Duration),
    /// The process dies before it happens: the call never returns.
    CrashBefore,
    /// The process dies after it happened: the call never returns.
    CrashAfter,
    /// It happens this much later, and the caller waits.
    Delay(Duration),
    /// For sends to a queue: it happens twice. For a receive: the next receive delivers the same messages again, although
    /// they are held. For any other call: nothing goes wrong.
    Duplicate,
    /// For batches: the first entry, and each second one after it, is refused as temporary; the others go through. For
    /// any other call: nothing goes wrong.
    FailSome,
}

impl Fault {
    /// Every kind that means something for calls of this name, with short delays.
    pub fn kinds_for(name: &str) -> Vec<Fault> {
        let mut kinds = vec![
            Fault::FailBefore(PortError::Temporary("injected".into())),
            Fault::FailBefore(PortError::Throttled("injected".into())),
            Fault::LoseAnswer,
            Fault::CrashBefore,
            Fault::CrashAfter,
            Fault::Delay(Duration::from_secs(1)),
        ];
        if name != "gateway.send" {
            kinds.push(Fault::LandLate(Duration::from_secs(5)));
        }
        if matches!(name, "queue.send" | "queue.receive") {
            kinds.push(Fault::Duplicate);
        }
        if matches!(name, "queue.send" | "queue.extend" | "queue.delete" | "jobs.advance") {
            kinds.push(Fault::FailSome);
        }
        kinds
    }
}

/// At which call a fault happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// The n-th call of all, counted from 1. Happens once.
    Call(u64),
    /// The n-th call of this name, such as `jobs.advance`, counted from 1. Happens once.
    Nth(&'static str, u64),
    /// Every call of this name, until the plan is cleared.
    Every(&'static str),
    /// Every call of this name that this process makes, until the plan is cleared.
    EveryOf(String, &'static str),
    /// The next call of this name that this process makes. Happens once.
    NextOf(String, &'static str),
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number among all calls, from 1.
    pub number: u64,
    /// Its number among the calls of its name, from 1.
    pub nth: u64,
    /// Its name: port, dot, method.
    pub name: &'static str,
    /// The process that made it.
    pub process: String,
}

/// What goes wrong and when, and which calls were made. Shared by all processes of a test.
#[derive(Clone, Default)]
pub struct FaultPlan {
    inner: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    faults: Vec<(Point, Fault)>,
    calls: Vec<Call>,
    by_name: BTreeMap<&'static str, u64>,
}

impl FaultPlan {
    /// A plan with one fault.
    pub fn one(point: Point, fault: Fault) -> Self {
        let plan = FaultPlan::default();
        plan.add(point, fault);
        plan
    }

    /// Adds a fault. Where several fit one call, the first added happens.
    pub fn add(&self, point: Point, fault: Fault) {
        self.plan().faults.push((point, fault));
    }

    /// Removes all faults that have not happened; calls are counted on.
    pub fn clear(&self) {
        self.plan().faults.clear();
    }

    /// Removes one fault, if it has not happened.
    pub fn remove(&self, point: &Point, fault: &Fault) {
        let mut plan = self.plan();
        if let Some(found) = plan.faults.iter().position(|(at, what)| at == point && what == fault) {
            plan.faults.remove(found);
        }
    }

    /// The faults still to come. A test that expects a fault must find it gone.
    pub fn to_come(&self) -> Vec<(Point, Fault)> {
        self.plan().faults.clone()
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.plan().calls.clone()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, process: &str, name: &'static str) -> Option<Fault> {
        let mut plan = self.plan();
        let number = plan.calls.len() as u64 + 1;
        let count = plan.by_name.entry(name).or_default();
        *count += 1;
        let nth = *count;
        plan.calls.push(Call { number, nth, name, process: process.to_owned() });
        let fits = |point: &Point| match point {
            Point::Call(n) => *n == number,
            Point::Nth(of, n) => *of == name && *n == nth,
            Point::Every(of) => *of == name,
            Point::EveryOf(by, of) | Point::NextOf(by, of) => by == process && *of == name,
        };
        let found = plan.faults.iter().position(|(point, _)| fits(point))?;
        match &plan.faults[found].0 {
            Point::Every(_) | Point::EveryOf(..) => Some(plan.faults[found].1.clone()),
            Point::Call(_) | Point::Nth(..) | Point::NextOf(..) => Some(plan.faults.remove(found).1),
        }
    }
}

/// One process's way to the ports. A process that was started again needs new ones.
#[derive(Clone)]
pub struct Faults {
    plan: FaultPlan,
    process: String,
    crashed: Arc<watch::Sender<bool>>,
    frost: Arc<Frost>,
    time: Option<StoreTime>,
}

/// Whether a process is frozen. Calls go on in the order in which they stopped: that is why this is no watch, which wakes in
/// any order, and a seed must be the same history each time.
#[derive(Default)]
struct Frost {
    is_frozen: AtomicBool,
    thaws: Notify,
}

/// The store's time, and the clock of a process that reads it off the store's answers.
#[derive(Clone)]
struct StoreTime {
    store: Arc<dyn Clock>,
    host: Arc<AnchoredClock>,
}

impl Faults {
    /// Faults for the process of this name, after `plan`.
    pub fn new(plan: &FaultPlan, process: &str) -> Self {
        let crashed = Arc::new(watch::Sender::new(false));
        Faults { plan: plan.clone(), process: process.to_owned(), crashed, frost: Arc::default(), time: None }
    }

    /// Lets `host` hear what time it is by `store` with each of the store's answers, to the second, as DynamoDB tells it.
    pub fn telling_time(mut self, store: Arc<dyn Clock>, host: Arc<AnchoredClock>) -> Self {
        self.time = Some(StoreTime { store, host });
        self
    }

    /// The ports, with faults.
    pub fn wrap(&self, ports: Ports) -> Ports {
        Ports {
            jobs: Arc::new(Faulty::new(ports.jobs, self)),
            due: Arc::new(Faulty::new(ports.due, self)),
            runs: Arc::new(Faulty::new(ports.runs, self)),
            history: Arc::new(Faulty::new(ports.history, self)),
            leases: Arc::new(Faulty::new(ports.leases, self)),
            shares: Arc::new(Faulty::new(ports.shares, self)),
            reports: Arc::new(Faulty::new(ports.reports, self)),
            control: Arc::new(Faulty::new(ports.control, self)),
            queue: Arc::new(Faulty::new(ports.queue, self)),
        }
    }

    /// The gateway, with faults.
    pub fn wrap_gateway(&self, gateway: Arc<dyn Gateway>) -> Arc<dyn Gateway> {
        Arc::new(Faulty::new(gateway, self))
    }

    /// Waits until a fault crashes this process: the test must now drop its tasks. Until then its calls hang.
    pub async fn crashed(&self) {
        // The sender lives as long as `self`, so that the wait can only end with the crash.
        let _ = self.crashed.subscribe().wait_for(|crashed| *crashed).await;
    }

    /// Whether a fault has crashed this process.
    pub fn has_crashed(&self) -> bool {
        *self.crashed.borrow()
    }

    /// Crashes this process now: none of its calls returns or begins any more.
    pub fn crash(&self) {
        self.crashed.send_replace(true);
    }

    /// Freezes this process, as a paused machine would be: until [`Faults::thaw`] it begins no call and hears no answer, while
    /// its clocks go on. What is under way already happens.
    pub fn freeze(&self) {
        self.frost.is_frozen.store(true, Ordering::Release);
    }

    /// Lets it go on where it stood.
    pub fn thaw(&self) {
        self.frost.is_frozen.store(false, Ordering::Release);
        self.frost.thaws.notify_waiters();
    }

    async fn thawed(&self) {
        loop {
            let thaw = self.frost.thaws.notified();
            if !self.frost.is_frozen.load(Ordering::Acquire) {
                return;
            }
            thaw.await;
        }
    }

    /// Performs `effect` as call `name`, with the fault that the plan has for it.
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        effect: impl Future<Output = PortResult<T>> + Send + 'static,
    ) -> PortResult<T> {
        let fault = self.pass(name).await;
        self.perform(name, fault, effect).await
    }

    /// Counts a call. A crashed process makes none.
    async fn pass(&self, name: &'static str) -> Option<Fault> {
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
        self.thawed().await;
        self.plan.pass(&self.process, name)
    }

    /// Performs `effect` with this fault. The caller hears of it when it is not frozen.
    async fn perform<T: Send + 'static>(
        &self,
        name: &'static str,
        fault: Option<Fault>,
        effect: impl Future<Output = PortResult<T>> + Send + 'static,
    ) -> PortResult<T> {
        let result = self.happen(name, fault, effect).await;
        self.thawed().await;
        result
    }

    async fn happen<T: Send + 'static>(
        &self,
        name: &'static str,
        fault: Option<Fault>,
        effect: impl Future<Output = PortResult<T>> + Send + 'static,
    ) -> PortResult<T> {
        let unknown = || PortError::Unknown(format!("injected: the answer of {name} was lost"));
        match fault {
            Some(Fault::FailBefore(error)) => return Err(error),
            Some(Fault::LoseAnswer) => {
                effect.await?;
                return Err(unknown());
            }
            Some(Fault::LandLate(by)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    effect.await
                });
                return Err(unknown());
            }
            Some(Fault::CrashBefore) => self.crash(),
            Some(Fault::CrashAfter) => {
                let _ = effect.await;
                self.crash();
                return std::future::pending().await;
            }
            Some(Fault::Delay(by)) => tokio::time::sleep(by).await,
            Some(Fault::Duplicate | Fault::FailSome) | None => {}
        }
        if self.has_crashed() {
            return std::future::pending().await;
        }
        let sent = self.time.as_ref().map(|time| time.host.boottime());
        let result = effect.await;
        if self.has_crashed() {
            return std::future::pending().await;
        }
        let is_store = !name.starts_with("queue.") && !name.starts_with("gateway.");
        if let (Some(time), Some(sent), true) = (&self.time, sent, is_store) {
            time.host.hear(sent, time.store.now());
        }
        result
    }
}

/// The error class as a gateway's outcome.
fn outcome_of(error: PortError) -> Outcome {
    match error {
        PortError::Temporary(reason) | PortError::Throttled(reason) => Outcome::Temporary { reason, retry_after: None },
        PortError::Permanent(reason) => Outcome::Permanent { reason },
        PortError::Unknown(reason) => Outcome::Unknown { reason },
    }
}

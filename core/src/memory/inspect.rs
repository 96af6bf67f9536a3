//! What tests see of a world, and the few things they may change in it behind the ports' backs.

use super::gateway::{GatewaySend, Script};
use super::{State, World};
use crate::job::{Job, JobKey};
use crate::lease::Lease;
use crate::message::{DeadLetter, Message};
use crate::payload::Handler;
use crate::priority::Priority;
use crate::rate::Shares;
use crate::report::WorkerReport;
use crate::run::{RunId, RunRow};
use crate::steering::Steering;
use crate::target::Target;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something that happened, in the order in which it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// When, by the world's clock.
    pub at: DateTime<Utc>,
    /// What.
    pub effect: Effect,
}

/// What happened. Calls that changed nothing leave no trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A message was put into a queue.
    Enqueued(Enqueued),
    /// A job was made or changed by a person, and now is this.
    Job(Box<Job>),
    /// A job moved on.
    Advanced {
        /// The job.
        key: JobKey,
        /// The firing it is done with.
        from: DateTime<Utc>,
        /// The next firing; none = its schedule is over.
        to: Option<DateTime<Utc>>,
    },
    /// A run row was written, and now is this.
    Row(Box<RunRow>),
    /// A call reached the gateway.
    Sent {
        /// The run's id.
        reference: RunId,
    },
    /// A dead letter was written.
    DeadLetter {
        /// The run's id, if it has one.
        run_id: Option<String>,
    },
    /// A queue threw a message away because it had kept it for 14 days.
    Expired {
        /// Its body.
        body: String,
    },
}

/// A message as it was put into a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Which queue.
    pub priority: Priority,
    /// What it says; none if it cannot be read.
    pub message: Option<Message>,
    /// Its body.
    pub body: String,
    /// For how long it was kept back.
    pub delay: Duration,
}

/// A message that is still in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which queue.
    pub priority: Priority,
    /// What it says; none if it cannot be read.
    pub message: Option<Message>,
    /// Its body.
    pub body: String,
    /// How often it was received.
    pub receive_count: u32,
    /// For how much longer it is hidden; zero = visible.
    pub hidden_for: Duration,
}

impl State {
    pub(super) fn record(&mut self, at: DateTime<Utc>, effect: Effect) {
        self.history.push(Recorded { at, effect });
    }
}

/// What tests see.
impl World {
    /// All that happened so far, in order.
    pub fn history(&self) -> Vec<Recorded> {
        self.state().history.clone()
    }

    /// How many effects there were so far: a moment in the history.
    pub fn happened(&self) -> usize {
        self.state().history.len()
    }

    /// All jobs.
    pub fn jobs(&self) -> BTreeMap<JobKey, Job> {
        self.state().jobs.records.iter().map(|(key, record)| (key.clone(), record.job.clone())).collect()
    }

    /// One job.
    pub fn job(&self, key: &JobKey) -> Option<Job> {
        self.state().jobs.records.get(key).map(|record| record.job.clone())
    }

    /// All run rows.
    pub fn rows(&self) -> BTreeMap<RunId, RunRow> {
        self.state().rows.0.values().flat_map(|rows| rows.values()).map(|row| (row.id.clone(), row.clone())).collect()
    }

    /// One run row.
    pub fn row(&self, id: &RunId) -> Option<RunRow> {
        self.state().rows.get(id).cloned()
    }

    /// All leases, by id.
    pub fn leases(&self) -> Vec<Lease> {
        self.state().leases.values().cloned().collect()
    }

    /// Who holds how many shares of a target's limit.
    pub fn shares(&self, target: &Target) -> Shares {
        self.state().shares.get(target).cloned().unwrap_or_default()
    }

    /// What workers say of themselves, by their ids.
    pub fn reports(&self) -> Vec<WorkerReport> {
        self.state().reports.values().cloned().collect()
    }

    /// Limits and holds in force.
    pub fn steering(&self) -> Steering {
        self.state().steering.clone()
    }

    /// All messages ever put into a queue, in order.
    pub fn enqueued(&self) -> Vec<Enqueued> {
        self.select(|effect| match effect {
            Effect::Enqueued(enqueued) => Some(enqueued.clone()),
            _ => None,
        })
    }

    /// The firings that a job was advanced from, in order: one per advance that took effect.
    pub fn advances(&self, key: &JobKey) -> Vec<DateTime<Utc>> {
        self.select(|effect| match effect {
            Effect::Advanced { key: advanced, from, .. } if advanced == key => Some(*from),
            _ => None,
        })
    }

    /// The messages still in the queues, visible or hidden.
    pub fn waiting(&self) -> Vec<Waiting> {
        let now = self.monotonic();
        let state = self.state();
        let of = |priority: Priority| state.queues[priority as usize].messages.values().map(move |m| (priority, m));
        let all = Priority::ALL.into_iter().flat_map(of);
        let waiting = all.map(|(priority, stored)| Waiting {
            priority,
            message: Message::decode(&stored.body).ok(),
            body: stored.body.clone(),
            receive_count: stored.receive_count,
            hidden_for: stored.visible_at.saturating_sub(now),
        });
        waiting.collect()
    }

    /// All dead letters, in order.
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.state().dead_letters.clone()
    }

    /// All calls that reached the gateway, in order.
    pub fn sends(&self) -> Vec<GatewaySend> {
        self.state().gateway.sends.clone()
    }

    /// How many calls with this reference reached the gateway.
    pub fn sends_of(&self, reference: &RunId) -> usize {
        self.state().gateway.sends.iter().filter(|send| send.reference == *reference).count()
    }

    /// How many texts with this reference went out to the phone.
    pub fn deliveries_of(&self, reference: &RunId) -> usize {
        self.state().gateway.sends.iter().filter(|send| send.reference == *reference && send.reached_phone).count()
    }

    fn select<T>(&self, pick: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        self.state().history.iter().filter_map(|recorded| pick(&recorded.effect)).collect()
    }
}

/// What tests may change.
impl World {
    /// Appends to what the gateway does with calls to a phone number, a mailbox or an address (`noop` for those that go
    /// nowhere); after that it delivers.
    pub fn script(&self, to: &str, scripts: impl IntoIterator<Item = Script>) {
        self.state().gateway.script(to, scripts);
    }

    /// Says of all workers whether they can do such work; at first they can.
    pub fn serve(&self, handler: Handler, is_served: bool) {
        let unserved = &mut self.state().gateway.unserved;
        if is_served {
            unserved.remove(&handler)
        } else {
            unserved.insert(handler)
        };
    }

    /// Makes the gateway drop repeats of a reference that reached the phone before. It answers them as delivered.
    pub fn drop_repeats(&self) {
        self.state().gateway.drops_repeats = true;
    }

    /// Sets how long the gateway takes to answer.
    pub fn set_gateway_latency(&self, latency: Duration) {
        self.state().gateway.latency = latency;
    }

    /// Sets by how much the due index lags behind the jobs, from now on.
    pub fn set_index_lag(&self, lag: Duration) {
        self.state().jobs.lag = lag;
    }

    /// Makes a job one that this program cannot read, until it is replaced.
    pub fn make_unreadable(&self, key: &JobKey, why: &str) {
        if let Some(record) = self.state().jobs.records.get_mut(key) {
            record.unreadable = Some(why.to_owned());
        }
    }

    /// Makes a row one that whoever looks at rows cannot read.
    pub fn make_row_unreadable(&self, id: &RunId) {
        self.state().unreadable_rows.insert(id.clone());
    }

    /// Forgets all that happened so far.
    pub fn forget_history(&self) {
        self.state().history.clear();
    }

    /// Makes a job readable again, as a program that knows its format would find it.
    pub fn make_readable(&self, key: &JobKey) {
        if let Some(record) = self.state().jobs.records.get_mut(key) {
            record.unreadable = None;
        }
    }

    /// Removes a job, as if it had expired or been deleted.
    pub fn forget_job(&self, key: &JobKey) {
        let now = self.monotonic();
        self.state().jobs.remove(key, now);
    }

    /// Removes a run row, as if it had expired.
    pub fn forget_row(&self, id: &RunId) {
        if let Some(rows) = self.state().rows.0.get_mut(&id.job_key) {
            rows.remove(&id.run_key);
        }
    }
}

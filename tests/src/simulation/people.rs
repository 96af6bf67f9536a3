//! People: they ask for changes, and note what they were told.

use super::plan::Ask;
use super::processes::Stage;
use chrono::{DateTime, Utc};
use punctual_core::clock::Clock;
use punctual_core::due::Shards;
use punctual_core::job::{Change, JobKey, JobSpec, Timetable};
use punctual_core::memory::{Faults, World};
use punctual_core::ports::Ports;
use punctual_core::run::RunId;
use punctual_core::zone::Zones;
use punctual_scheduler::operations::{
    Created, OperationError, Outcome, RunNow, change_job, create_job, edit_job, run_now,
};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// What somebody was told.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The job.
    pub key: JobKey,
    /// What was asked.
    pub ask: Ask,
    /// When.
    pub asked_at: DateTime<Utc>,
    /// When the answer came.
    pub told_at: DateTime<Utc>,
    /// Behind so many effects of the world's history.
    pub after: usize,
    /// The answer.
    pub answer: Answer,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The job has this version now.
    Done {
        /// The version.
        version: u64,
        /// Its generation.
        generation: u64,
    },
    /// Nothing had to be done.
    Nothing,
    /// The run is in its queue.
    Enqueued(RunId),
    /// It cannot be done.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// All the people.
#[derive(Default)]
pub struct People {
    replies: Arc<Mutex<Vec<Reply>>>,
    requests: JoinSet<()>,
}

struct Request {
    ports: Ports,
    faults: Faults,
    clock: Arc<dyn Clock>,
    world: World,
    shards: Shards,
    zones: Arc<Zones>,
    key: JobKey,
    ask: Ask,
}

impl People {
    /// Lets somebody ask for something.
    pub fn ask(&mut self, stage: &Stage, key: &JobKey, ask: Ask) {
        let (ports, faults) = stage.person();
        let request = Request {
            ports,
            faults,
            clock: stage.clock.clone(),
            world: stage.world.clone(),
            shards: *stage.timetable().shards,
            zones: stage.zones(),
            key: key.clone(),
            ask,
        };
        let replies = self.replies.clone();
        self.requests.spawn(async move {
            let asked_at = request.clock.now();
            let answer = tokio::select! {
                biased;
                () = request.faults.crashed() => Answer::Unknown("who asked is gone".into()),
                answer = request.perform() => answer,
            };
            let Request { key, ask, clock, world, .. } = request;
            let reply = Reply { key, ask, asked_at, told_at: clock.now(), after: world.happened(), answer };
            replies.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
        });
    }

    /// Waits until all requests are answered, and says what everybody was told.
    pub async fn replies(&mut self) -> Vec<Reply> {
        while let Some(ended) = self.requests.join_next().await {
            ended.expect("nobody breaks");
        }
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Request {
    async fn perform(&self) -> Answer {
        let answer = match &self.ask {
            Ask::Make(spec) => return told(self.make(spec).await),
            Ask::Run(request) => return told(self.run(request.as_deref()).await),
            Ask::Pause => self.change(&Change::Pause).await,
            Ask::Resume => self.change(&Change::Resume).await,
            Ask::Cancel => self.change(&Change::Cancel).await,
            Ask::Reschedule(schedule) => self.edit(&|spec| spec.schedule = (**schedule).clone()).await,
            Ask::Spread(spread) => self.edit(&|spec| spec.spread = spread.clone()).await,
            Ask::Queue(priority) => self.edit(&|spec| spec.priority = *priority).await,
            Ask::Missed(missed) => self.edit(&|spec| spec.missed = *missed).await,
            Ask::Text(text) => self.edit(&|spec| spec.payload = spec.payload.with_text(text.clone())).await,
        };
        told(answer.map(|outcome| match outcome {
            Outcome::Changed(job) => Answer::Done { version: job.version, generation: job.generation },
            Outcome::Same(_) => Answer::Nothing,
            Outcome::Conflict { .. } | Outcome::Missing => Answer::Refused("there is no such job".into()),
        }))
    }

    fn timetable(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    async fn change(&self, change: &Change) -> Result<Outcome, OperationError> {
        change_job(&*self.ports.jobs, &*self.clock, &self.timetable(), &self.key, change, None, "ann").await
    }

    async fn edit(&self, how: &(dyn Fn(&mut JobSpec) + Send + Sync)) -> Result<Outcome, OperationError> {
        let patch = |spec: &JobSpec| {
            let mut spec = spec.clone();
            how(&mut spec);
            Ok(spec)
        };
        edit_job(&*self.ports.jobs, &*self.clock, &self.timetable(), &self.key, &patch, None, "ann").await
    }

    async fn make(&self, spec: &JobSpec) -> Result<Answer, OperationError> {
        let made = create_job(&*self.ports.jobs, &*self.clock, &self.timetable(), spec.clone(), "ann").await?;
        Ok(match made {
            Created::New(job) => Answer::Done { version: job.version, generation: job.generation },
            Created::Same(_) | Created::Before(_) => Answer::Nothing,
            Created::Different | Created::Erased => Answer::Refused("another job is there".into()),
            Created::Over => Answer::Refused("its schedule is over".into()),
        })
    }

    async fn run(&self, request: Option<&str>) -> Result<Answer, OperationError> {
        Ok(match run_now(&self.ports, &*self.clock, &self.zones, &self.key, request, None).await? {
            RunNow::Enqueued(run) => Answer::Enqueued(run),
            RunNow::Missing => Answer::Refused("there is no such job".into()),
        })
    }
}

fn told(answer: Result<Answer, OperationError>) -> Answer {
    answer.unwrap_or_else(|error| match error {
        OperationError::Store(..) | OperationError::Busy(_) => Answer::Unknown(error.to_string()),
        refused => Answer::Refused(refused.to_string()),
    })
}

//! Runs that are in their queues without a scheduler's doing.

use super::{CALLS_AT_ONCE, Local};
use chrono::TimeDelta;
use futures::stream::{self, StreamExt, TryStreamExt};
use punctual_core::job::JobSpec;
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::ports::BATCH;
use punctual_core::run::{RunId, RunKey};
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;

impl Local {
    /// Makes jobs that have fired so many times, each minute until a minute ago, and puts the messages of all these firings
    /// into the jobs' queues; returns their runs, firing by firing. `make` makes the jobs of a schedule.
    ///
    /// # Errors
    /// When a job is refused, or the store or a queue fails.
    pub async fn enqueue(&self, firings: u32, make: impl FnOnce(&str) -> Vec<JobSpec>) -> anyhow::Result<Vec<RunId>> {
        let minutes = |n: u32| TimeDelta::minutes(n.into());
        let first = whole_second(self.now()) - minutes(firings);
        let made_at = first - minutes(1);
        let specs = make(&format!("every 1m from {}", first.to_rfc3339()));
        self.load(specs.clone(), made_at, &Zones::embedded()).await?;
        let mut runs = Vec::new();
        let mut batches = Vec::new();
        for scheduled_at in (0..firings).map(|n| first + minutes(n)) {
            for alike in specs.chunk_by(|a, b| a.priority == b.priority) {
                let messages: Vec<Message> = alike
                    .iter()
                    .map(|spec| Message {
                        v: MESSAGE_VERSION,
                        job_key: spec.key.clone(),
                        run_key: RunKey::scheduled(scheduled_at),
                        generation: made_at.timestamp_millis() as u64,
                        scheduled_at,
                        due_at: scheduled_at,
                        first_enqueued_at: scheduled_at,
                        scheduler: "by hand".into(),
                        trace: None,
                    })
                    .collect();
                runs.extend(messages.iter().map(Message::run_id));
                for batch in messages.chunks(BATCH) {
                    batches.push((alike[0].priority, batch.iter().map(Message::encode).collect::<Vec<_>>()));
                }
            }
        }
        let sends = batches.into_iter().map(|(priority, bodies)| async move {
            let sent = self.ports.queue.send(priority, &bodies).await?;
            anyhow::ensure!(sent.iter().all(Result::is_ok), "a queue refused a message: {sent:?}");
            Ok(())
        });
        stream::iter(sends).buffer_unordered(CALLS_AT_ONCE).try_collect::<()>().await?;
        Ok(runs)
    }
}

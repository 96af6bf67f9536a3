//! Jobs for the store, made by the product's own rules and put into its tables without a request each.

use anyhow::{Context, bail};
use aws_sdk_dynamodb::types::AttributeValue as Sent;
use chrono::{DateTime, TimeDelta, Utc};
use dynoxide::{AttributeValue as Held, Database, ImportOptions};
use futures::stream::{self, StreamExt, TryStreamExt};
use punctual_core::aws::item_of;
use punctual_core::clock::Clock;
use punctual_core::due::{DueBucket, Minute, Shards};
use punctual_core::job::{Job, JobKey, JobSpec, Timetable};
use punctual_core::message::{MESSAGE_VERSION, Message};
use punctual_core::missed::MissedRule;
use punctual_core::payload::Payload;
use punctual_core::ports::{BATCH, DueSpan, Ports};
use punctual_core::priority::Priority;
use punctual_core::retry::RetryRule;
use punctual_core::run::RunKey;
use punctual_core::schedule::{Anchor, Schedule, ScheduleText};
use punctual_core::zone::{Zones, parse_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Whose jobs they are.
const TENANT: &str = "bank";
/// On whose clock the jobs are that are due together, as in the peer's measurement.
const ZONE: &str = "Asia/Kolkata";
/// Jobs that are written in one transaction: a request waits for no longer than that takes.
const CHUNK: usize = 5_000;
/// Jobs whose messages one of several senders puts into the queues at a time.
const MESSAGES_AT_ONCE: usize = 100;
/// Such senders.
const CALLS_AT_ONCE: usize = 8;
/// Jobs of a load that are read back through the adapter and compared.
const READ_BACK: usize = 20;
/// Far jobs begin so long after now, and are spread over so many minutes.
const FAR_FROM: TimeDelta = TimeDelta::days(1);
const FAR_MINUTES: usize = 30 * 1_440;

/// Jobs to be made.
#[derive(Clone, Copy, Debug)]
pub enum Batch {
    /// Daily by cron on India's clock, all due at one instant, a whole minute.
    AtOnce {
        /// The minute.
        due: Minute,
    },
    /// Daily, so many due at each second from an instant on; all due at that instant if there are no more.
    EachSecond {
        /// First part of their ids.
        name: &'static str,
        /// The first second.
        from: DateTime<Utc>,
        /// How many a second.
        rate: usize,
        /// What the n-th job's priority is.
        priority: fn(usize) -> Priority,
    },
    /// Daily, due between tomorrow and a month from now.
    Far {
        /// Counted from when.
        now: DateTime<Utc>,
        /// How many were made before.
        before: usize,
        /// Over how many in all they are spread.
        of: usize,
    },
}

impl Batch {
    fn job(&self, n: usize, shards: &Shards, zones: &Zones) -> anyhow::Result<Job> {
        let (id, priority, schedule, now) = match *self {
            Batch::AtOnce { due } => {
                let now = due.start() - TimeDelta::seconds(1);
                let wall = zones.wall(parse_name(ZONE).map_err(anyhow::Error::msg)?, due.start());
                let when = format!("cron {} * * *", wall.format("%-M %-H"));
                let text = ScheduleText { when: &when, tz: Some(ZONE), ..ScheduleText::default() };
                (format!("burst/{n:07}"), Priority::Normal, text.read(now, zones)?.0, now)
            }
            Batch::EachSecond { name, from, rate, priority } => {
                let now = from - TimeDelta::seconds(60);
                let due_at = from + TimeDelta::seconds((n / rate) as i64);
                (format!("{name}/{n:07}"), priority(n), daily(due_at)?, now)
            }
            Batch::Far { now, before, of } => {
                let n = n + before;
                // In order of their minutes, so that what is written together lies together. A few dozen share one.
                let minute = (n * FAR_MINUTES / of) as i64;
                let due_at = now + FAR_FROM + TimeDelta::minutes(minute) + TimeDelta::seconds((n % 60) as i64);
                (format!("far/{n:07}"), mixed(n), daily(due_at)?, now)
            }
        };
        let spec = JobSpec {
            key: JobKey::new(TENANT, &id).map_err(anyhow::Error::msg)?,
            name: None,
            schedule,
            anchor: Anchor::Stated,
            priority,
            payload: Payload::sms(
                format!("+447700900{:03}", n % 1_000),
                "Your instalment of 1,250.00 is due on Friday. Reply STOP to opt out.",
            ),
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        };
        Ok(Job::create(spec, now, &Timetable { shards, zones }, None, format!("{n:032x}"), "benchmark")?)
    }
}

/// One urgent and one bulk job among ten.
pub fn mixed(n: usize) -> Priority {
    match n % 10 {
        0 => Priority::Urgent,
        1 => Priority::Bulk,
        _ => Priority::Normal,
    }
}

fn daily(from: DateTime<Utc>) -> anyhow::Result<Schedule> {
    Ok(Schedule::parse(&format!("every 24h from {}", from.format("%Y-%m-%dT%H:%M:%SZ")), from)?)
}

/// Makes `count` jobs and puts them into the table; then reads some of them back through the adapter.
pub(super) async fn load(
    batch: Batch,
    count: usize,
    table: &str,
    database: &Database,
    ports: &Ports,
    shards: Shards,
    zones: &Arc<Zones>,
) -> anyhow::Result<()> {
    let (table, database) = (table.to_owned(), database.clone());
    let of_making = zones.clone();
    let loading = move || {
        let (to_table, from_maker) = sync_channel::<Vec<dynoxide::Item>>(4);
        std::thread::scope(|scope| {
            let maker = scope.spawn(move || {
                for start in (0..count).step_by(CHUNK) {
                    let chunk = start..(start + CHUNK).min(count);
                    let items = chunk.map(|n| batch.job(n, &shards, &of_making).map(|job| item(&job)));
                    if to_table.send(items.collect::<anyhow::Result<_>>()?).is_err() {
                        // The table has refused a chunk: it says why.
                        return Ok(());
                    }
                }
                anyhow::Ok(())
            });
            let put = put_all(&database, &table, from_maker);
            maker.join().expect("making a job does not panic").and(put)
        })
    };
    tokio::task::spawn_blocking(loading).await??;
    for n in (0..count).step_by((count / READ_BACK).max(1)) {
        read_back(&batch.job(n, &shards, zones)?, ports).await?;
    }
    Ok(())
}

/// Puts the messages of the first firings of `count` jobs into their queues, as dispatch would, without advancing any.
pub(super) async fn enqueue(
    batch: Batch,
    count: usize,
    clock: &dyn Clock,
    ports: &Ports,
    shards: Shards,
    zones: &Zones,
) -> anyhow::Result<()> {
    let chunks = (0..count).step_by(MESSAGES_AT_ONCE).map(|start| async move {
        let mut bodies: BTreeMap<Priority, Vec<String>> = BTreeMap::new();
        for n in start..(start + MESSAGES_AT_ONCE).min(count) {
            let job = batch.job(n, &shards, zones)?;
            bodies.entry(job.spec.priority).or_default().push(message(job, clock.now())?.encode());
        }
        for (priority, bodies) in bodies {
            for bodies in bodies.chunks(BATCH) {
                let sent = ports.queue.send(priority, bodies).await?;
                sent.into_iter().collect::<Result<(), _>>()?;
            }
        }
        anyhow::Ok(())
    });
    // Collected first: the compiler cannot see that a lazy iterator of futures over borrows may move between threads.
    let chunks: Vec<_> = chunks.collect();
    stream::iter(chunks).buffer_unordered(CALLS_AT_ONCE).try_collect().await
}

/// What dispatch says of a job's first firing.
fn message(job: Job, now: DateTime<Utc>) -> anyhow::Result<Message> {
    let scheduled_at = job.next_scheduled_at.context("a new job has a firing")?;
    Ok(Message {
        v: MESSAGE_VERSION,
        job_key: job.spec.key,
        run_key: RunKey::scheduled(scheduled_at),
        generation: job.generation,
        scheduled_at,
        due_at: job.next_due_at.context("a new job has a due time")?,
        first_enqueued_at: now,
        scheduler: "benchmark".to_owned(),
        trace: None,
    })
}

fn put_all(database: &Database, table: &str, chunks: Receiver<Vec<dynoxide::Item>>) -> anyhow::Result<()> {
    database.enable_bulk_loading()?;
    let put = chunks.into_iter().try_for_each(|items| {
        let wanted = items.len();
        let put = database.import_items(table, items, ImportOptions::default())?.items_imported;
        if put == wanted { Ok(()) } else { bail!("{put} of {wanted} jobs were stored") }
    });
    database.disable_bulk_loading()?;
    put
}

/// Fails unless the adapter reads the job as it was made, and the due index shows it where it is due.
async fn read_back(job: &Job, ports: &Ports) -> anyhow::Result<()> {
    let key = &job.spec.key;
    let stored = ports.jobs.get_many(std::slice::from_ref(key)).await?;
    let standing = |job: &Job| (job.spec.schedule.clone(), job.next_due_at, job.due_bucket, job.generation);
    if stored.get(key).and_then(|read| read.job()).map(standing) != Some(standing(job)) {
        bail!("{key} does not read back as it was stored");
    }
    let bucket: DueBucket = job.due_bucket.context("a new job has a due bucket")?;
    let due_at = job.next_due_at.context("a new job has a due time")?;
    let span = DueSpan { after: Some(due_at - TimeDelta::seconds(1)), until: due_at };
    let mut after = None;
    loop {
        let page = ports.due.page(bucket, span, after, 500).await?;
        if page.entries.iter().any(|entry| entry.key == *key) {
            return Ok(());
        }
        after = page.next;
        if after.is_none() {
            bail!("{key} is not in the due index");
        }
    }
}

fn item(job: &Job) -> dynoxide::Item {
    item_of(job).into_iter().map(|(name, value)| (name, held(value))).collect()
}

/// A value as the tables hold it.
fn held(value: Sent) -> Held {
    match value {
        Sent::S(text) => Held::S(text),
        Sent::N(number) => Held::N(number),
        Sent::Bool(is) => Held::BOOL(is),
        Sent::Null(is) => Held::NULL(is),
        Sent::L(list) => Held::L(list.into_iter().map(held).collect()),
        Sent::M(map) => Held::M(map.into_iter().map(|(name, value)| (name, held(value))).collect()),
        other => unreachable!("a job's item has no sets and no binary values: {other:?}"),
    }
}

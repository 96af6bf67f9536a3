//! Jobs and the due index in memory.

use super::inspect::Effect;
use super::{World, to_ms};
use crate::due::{DueBucket, ShardId};
use crate::error::PortError;
use crate::job::{Job, JobKey, JobSpec, JobState, Voids};
use crate::payload::Payload;
use crate::ports::{
    ADVANCES, Advance, Create, DueEntry, DueIndex, DuePage, DueSpan, JobPage, JobRead, JobStore, JobsUnder, Move,
    PageToken, PortResult, Replace, ReplaceIf,
};
use crate::retry::RetryRule;
use crate::schedule::whole_second;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) records: BTreeMap<JobKey, Record>,
    index: BTreeMap<Partition, BTreeMap<Place, Shown>>,
    pub(super) lag: Duration,
}

/// A job, and what its item has besides.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) job: Job,
    /// Where it sits in place of a due bucket.
    quarantined_in: Option<ShardId>,
    pub(super) unreadable: Option<String>,
}

/// A partition of the due index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Partition {
    Due(DueBucket),
    Quarantine(ShardId),
}

/// Where in its bucket an entry sits.
type Place = (DateTime<Utc>, JobKey);

/// From when until when (by the world's monotonic clock) the index shows an entry.
struct Shown {
    from: Duration,
    until: Option<Duration>,
}

impl Record {
    pub(super) fn read(&self) -> JobRead {
        match &self.unreadable {
            Some(why) => JobRead::Unreadable(why.clone()),
            None => JobRead::Job(Box::new(self.job.clone())),
        }
    }

    // The index is sparse: it has what has both of its keys, whatever the state.
    fn place(&self) -> Option<(Partition, Place)> {
        let due = self.job.due_bucket.map(Partition::Due);
        let partition = due.or(self.quarantined_in.map(Partition::Quarantine))?;
        Some((partition, (self.job.next_due_at?, self.job.spec.key.clone())))
    }
}

/// Parts of a listing.
const LISTED_PARTS: u32 = 3;

/// The part in which a job is listed.
fn part_of(key: &JobKey) -> u32 {
    key.as_str().bytes().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % LISTED_PARTS
}

impl Jobs {
    fn store(&mut self, job: Job, now: Duration) {
        let record = Record { job: as_kept(job), quarantined_in: None, unreadable: None };
        self.put(record, now);
    }

    fn put(&mut self, record: Record, now: Duration) {
        let key = record.job.spec.key.clone();
        let place = record.place();
        let left = self.records.insert(key, record).and_then(|old| old.place());
        self.moved(left, place, now);
    }

    pub(super) fn remove(&mut self, key: &JobKey, now: Duration) {
        let left = self.records.remove(key).and_then(|old| old.place());
        self.moved(left, None, now);
    }

    fn moved(&mut self, from: Option<(Partition, Place)>, to: Option<(Partition, Place)>, now: Duration) {
        if from == to {
            return;
        }
        let change_at = now + self.lag;
        if let Some((partition, place)) = from {
            if let Some(shown) = self.index.get_mut(&partition).and_then(|entries| entries.get_mut(&place)) {
                shown.until = Some(change_at);
            }
            self.purge(partition, now);
        }
        if let Some((partition, place)) = to {
            self.index.entry(partition).or_default().insert(place, Shown { from: change_at, until: None });
        }
    }

    fn purge(&mut self, partition: Partition, now: Duration) {
        if let Some(entries) = self.index.get_mut(&partition) {
            entries.retain(|_, shown| shown.until.is_none_or(|until| now < until));
            if entries.is_empty() {
                self.index.remove(&partition);
            }
        }
    }

    /// In parts, as the table lists them: ordered within each, and no page goes over two.
    fn listed(
        &self,
        after: Option<PageToken>,
        limit: usize,
        is_asked: impl Fn(&JobKey) -> bool,
    ) -> PortResult<JobPage> {
        let (part, after) = match &after {
            None => (0, None),
            Some(PageToken(token)) => {
                let place = token.split_once('|').and_then(|(part, key)| {
                    let key = if key.is_empty() { None } else { Some(JobKey::try_from(key.to_owned()).ok()?) };
                    Some((part.parse().ok()?, key))
                });
                place.ok_or_else(|| not_a_token(token.clone()))?
            }
        };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let of_part = self.records.range((start, Bound::Unbounded)).filter(|(key, _)| part_of(key) == part);
        let asked = of_part.filter(|(key, _)| is_asked(key));
        let jobs: BTreeMap<JobKey, JobRead> =
            asked.take(limit).map(|(key, record)| (key.clone(), record.read())).collect();
        // As DynamoDB does: a full page has a successor, even if that turns out empty.
        let next = match jobs.last_key_value().filter(|_| jobs.len() == limit) {
            Some((key, _)) => Some(format!("{part}|{key}")),
            None if part + 1 < LISTED_PARTS => Some(format!("{}|", part + 1)),
            None => None,
        };
        Ok(JobPage { next: next.map(PageToken), jobs })
    }

    /// What the index shows of a partition, due within `span`.
    fn page(
        &mut self,
        partition: Partition,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
        now: Duration,
    ) -> PortResult<DuePage> {
        self.purge(partition, now);
        let after = after.map(|token| place_of(&token)).transpose().map_err(not_a_token)?;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries: Vec<DueEntry> = self
            .index
            .get(&partition)
            .into_iter()
            .flat_map(|entries| entries.range((start.clone(), Bound::Unbounded)))
            .skip_while(|((due_at, _), _)| span.after.is_some_and(|after| *due_at <= whole_second(after)))
            .take_while(|((due_at, _), _)| *due_at <= span.until)
            .filter(|(_, shown)| shown.from <= now)
            .take(limit)
            .map(|((due_at, key), _)| DueEntry { key: key.clone(), due_at: *due_at })
            .collect();
        let last = entries.last().filter(|_| entries.len() == limit);
        Ok(DuePage { next: last.map(token_of), entries })
    }
}

impl World {
    fn advance_one(&self, Move { key, from, to }: &Move) -> Advance {
        let (at, now) = (self.now(), self.monotonic());
        let mut state = self.state();
        let stands = |job: &Job| {
            job.state == JobState::Active
                && job.version == from.version
                && job.next_scheduled_at == Some(whole_second(from.next_scheduled_at))
        };
        let Some(mut record) = state.jobs.records.get(key).filter(|record| stands(&record.job)).cloned() else {
            return Advance::Changed;
        };
        record.job.advance(to);
        record.job = as_kept(record.job);
        state.jobs.put(record, now);
        let to = to.next.as_ref().map(|next| next.scheduled_at);
        state.record(at, Effect::Advanced { key: key.clone(), from: from.next_scheduled_at, to });
        Advance::Advanced
    }
}

#[async_trait]
impl JobStore for World {
    async fn create(&self, job: &Job) -> PortResult<Create> {
        refuse_if_unread(job)?;
        let (at, now) = (self.now(), self.monotonic());
        let mut state = self.state();
        match state.jobs.records.get(&job.spec.key) {
            Some(record) if record.job.edit_token == job.edit_token => Ok(Create::Created),
            Some(record) => Ok(Create::Exists(Box::new(record.read()))),
            None => {
                state.record(at, Effect::Job(Box::new(as_kept(job.clone()))));
                state.jobs.store(job.clone(), now);
                Ok(Create::Created)
            }
        }
    }

    async fn get_many(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let state = self.state();
        Ok(keys.iter().filter_map(|key| Some((key.clone(), state.jobs.records.get(key)?.read()))).collect())
    }

    async fn get_due(&self, keys: &[JobKey]) -> PortResult<BTreeMap<JobKey, JobRead>> {
        let jobs = self.get_many(keys).await?;
        let in_part = |read| match read {
            JobRead::Job(job) => JobRead::Job(Box::new(as_dispatch_reads(*job))),
            unreadable => unreadable,
        };
        Ok(jobs.into_iter().map(|(key, read)| (key, in_part(read))).collect())
    }

    async fn replace(&self, job: &Job, if_still: &ReplaceIf) -> PortResult<Replace> {
        refuse_if_unread(job)?;
        let (at, now) = (self.now(), self.monotonic());
        let mut state = self.state();
        let stood = ReplaceIf { next_scheduled_at: if_still.next_scheduled_at.map(whole_second), ..*if_still };
        match state.jobs.records.get(&job.spec.key) {
            Some(record) if record.job.edit_token == job.edit_token => Ok(Replace::Replaced),
            Some(record) if ReplaceIf::from(&record.job) == stood => {
                state.record(at, Effect::Job(Box::new(as_kept(job.clone()))));
                state.jobs.store(job.clone(), now);
                Ok(Replace::Replaced)
            }
            _ => Ok(Replace::Changed),
        }
    }

    async fn advance_many(&self, moves: &[Move]) -> PortResult<Vec<PortResult<Advance>>> {
        if moves.len() > ADVANCES {
            return Err(PortError::Permanent(format!(
                "{} moves in one call: at most {ADVANCES} are allowed",
                moves.len()
            )));
        }
        Ok(moves.iter().map(|one| Ok(self.advance_one(one))).collect())
    }

    async fn unindex(&self, key: &JobKey, bucket: DueBucket) -> PortResult<()> {
        self.change_in(key, bucket, |record| {
            if record.job.state != JobState::Active {
                record.job.due_bucket = None;
            }
        });
        Ok(())
    }

    async fn quarantine(&self, key: &JobKey, bucket: DueBucket, error: &str) -> PortResult<()> {
        self.change_in(key, bucket, |record| {
            record.job.state = JobState::Quarantined;
            record.job.error = Some(error.to_owned());
            record.job.due_bucket = None;
            record.quarantined_in = Some(bucket.shard);
        });
        Ok(())
    }

    async fn scan(&self, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.state().jobs.listed(after, limit, |_| true)
    }

    async fn list(&self, of: &JobsUnder, after: Option<PageToken>, limit: usize) -> PortResult<JobPage> {
        self.state().jobs.listed(after, limit, |key| of.covers(key))
    }

    async fn keep_version(&self, job: &Job, _: DateTime<Utc>) -> PortResult<()> {
        let mut state = self.state();
        let versions = state.versions.entry(job.spec.key.clone()).or_default();
        let place = |job: &Job| job.next_scheduled_at.map_or(i64::MAX, |next| next.timestamp());
        if versions.get(&job.version).is_none_or(|kept| place(kept) <= place(job)) {
            versions.insert(job.version, as_kept(job.clone()));
        }
        Ok(())
    }

    async fn versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<BTreeMap<u64, JobRead>> {
        let state = self.state();
        let kept = state.versions.get(key).into_iter().flat_map(|versions| versions.range(numbers.clone()));
        Ok(kept.map(|(number, job)| (*number, JobRead::Job(Box::new(job.clone())))).collect())
    }

    async fn forget_versions(&self, key: &JobKey, numbers: RangeInclusive<u64>) -> PortResult<()> {
        if let Some(versions) = self.state().versions.get_mut(key) {
            versions.retain(|number, _| !numbers.contains(number));
        }
        Ok(())
    }
}

impl World {
    fn change_in(&self, key: &JobKey, bucket: DueBucket, change: impl FnOnce(&mut Record)) {
        let now = self.monotonic();
        let mut state = self.state();
        let sits = |record: &&Record| record.job.due_bucket == Some(bucket);
        if let Some(mut record) = state.jobs.records.get(key).filter(sits).cloned() {
            change(&mut record);
            state.jobs.put(record, now);
        }
    }
}

#[async_trait]
impl DueIndex for World {
    async fn page(
        &self,
        bucket: DueBucket,
        span: DueSpan,
        after: Option<PageToken>,
        limit: usize,
    ) -> PortResult<DuePage> {
        let now = self.monotonic();
        self.state().jobs.page(Partition::Due(bucket), span, after, limit, now)
    }

    async fn quarantined(&self, shard: ShardId, after: Option<PageToken>, limit: usize) -> PortResult<DuePage> {
        let now = self.monotonic();
        self.state().jobs.page(
            Partition::Quarantine(shard),
            DueSpan::up_to(DateTime::<Utc>::MAX_UTC),
            after,
            limit,
            now,
        )
    }
}

fn token_of(entry: &DueEntry) -> PageToken {
    PageToken(format!("{}|{}", entry.due_at.timestamp_millis(), entry.key))
}

fn place_of(token: &PageToken) -> Result<Place, String> {
    let place = token.0.split_once('|').and_then(|(ms, key)| {
        let due_at = DateTime::from_timestamp_millis(ms.parse().ok()?)?;
        Some((due_at, JobKey::try_from(key.to_owned()).ok()?))
    });
    place.ok_or_else(|| "the token is of another listing".to_owned())
}

fn not_a_token(why: String) -> PortError {
    PortError::Permanent(format!("not a page token: {why}"))
}

/// What dispatch reads of a job.
pub(crate) fn as_dispatch_reads(job: Job) -> Job {
    let payload = Payload::Unread(job.spec.payload.handler());
    let spec = JobSpec { name: None, payload, retry: RetryRule::default(), ..job.spec };
    Job {
        spec,
        passed: None,
        voids: Voids::new(job.generation),
        edit_token: String::new(),
        updated_by: String::new(),
        created_at: DateTime::UNIX_EPOCH,
        updated_at: DateTime::UNIX_EPOCH,
        made_for: None,
        is_erased: false,
        error: None,
        expires_at: None,
        ..job
    }
}

fn refuse_if_unread(job: &Job) -> PortResult<()> {
    if job.spec.payload.is_unread() {
        return Err(PortError::Permanent("a job without its payload cannot be written".into()));
    }
    Ok(())
}

fn as_kept(mut job: Job) -> Job {
    job.next_scheduled_at = job.next_scheduled_at.map(whole_second);
    job.next_due_at = job.next_due_at.map(whole_second);
    job.decided_at = job.decided_at.map(whole_second);
    job.expires_at = job.expires_at.map(whole_second);
    job.created_at = to_ms(job.created_at);
    job.updated_at = to_ms(job.updated_at);
    job
}

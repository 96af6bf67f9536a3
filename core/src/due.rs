//! Step 2, *due*: where in the timetable a job stands, and how far a shard has been read.
//!
//! The timetable is cut into minutes and each minute into shards. A job sits in exactly one due bucket (or none, when it
//! has nothing to come). The shard is a hash of the job's key, so that no minute is one hot partition; urgent jobs have
//! shards of their own. Nothing here knows the store.

mod audit;

pub use audit::{Audit, TIERS, Tier};

use crate::job::JobKey;
use crate::priority::Priority;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long a minute is read again after it has passed: above the five minutes for which a signed request stays valid,
/// an index's lag and a writer's pauses.
pub const SETTLE: Duration = Duration::from_secs(360);

/// How far back a shard without a cursor starts: as long as a queue keeps a message.
pub const AUDIT_HORIZON: Duration = Duration::from_secs(14 * 86_400);

/// How many shards each minute is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    /// Shards of urgent jobs.
    pub urgent: u16,
    /// Shards of all other jobs.
    pub standard: u16,
}

impl Default for Shards {
    /// 32, of which 8 are urgent: one index partition takes 1,000 writes a second, and 480,000 jobs at 09:00 need at
    /// least eight on each side of the advance.
    fn default() -> Self {
        Shards { urgent: 8, standard: 24 }
    }
}

impl Shards {
    /// The shard of a job.
    pub fn of(&self, key: &JobKey, priority: Priority) -> ShardId {
        let digest = Sha256::digest(key.as_str().as_bytes());
        let hash = u64::from_be_bytes(std::array::from_fn(|i| digest[i]));
        let (class, count) = match priority {
            Priority::Urgent => (ShardClass::Urgent, self.urgent),
            Priority::Normal | Priority::Bulk => (ShardClass::Standard, self.standard),
        };
        ShardId { class, number: (hash % u64::from(count.max(1))) as u16 }
    }

    /// All shards of one class.
    pub fn of_class(&self, class: ShardClass) -> impl Iterator<Item = ShardId> {
        let count = match class {
            ShardClass::Urgent => self.urgent,
            ShardClass::Standard => self.standard,
        };
        (0..count).map(move |number| ShardId { class, number })
    }

    /// All shards.
    pub fn all(&self) -> impl Iterator<Item = ShardId> {
        ShardClass::ALL.into_iter().flat_map(|class| self.of_class(class))
    }
}

/// Which shards are read and which are written. They differ while the counts grow: readers go first, so that no job is
/// written where nobody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What schedulers hold and read.
    pub read: Shards,
    /// Where jobs are put.
    pub write: Shards,
}

impl Layout {
    /// Shards that are read and written.
    pub fn of(shards: Shards) -> Self {
        Layout { read: shards, write: shards }
    }

    /// Whether readers have begun with shards that nobody writes to yet.
    pub fn is_growing(&self) -> bool {
        self.read != self.write
    }
}

/// Whether a shard holds urgent jobs or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShardClass {
    /// Urgent jobs only.
    Urgent,
    /// Normal and bulk jobs.
    Standard,
}

impl ShardClass {
    /// Both classes.
    pub const ALL: [ShardClass; 2] = [ShardClass::Urgent, ShardClass::Standard];
}

/// One slice of the timetable: `0007`, or `u003` among the urgent ones. The class is part of the name, so that either
/// count can grow without renaming a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId {
    /// Urgent or not.
    pub class: ShardClass,
    /// Its number within the class.
    pub number: u16,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            ShardClass::Urgent => write!(f, "u{:03}", self.number),
            ShardClass::Standard => write!(f, "{:04}", self.number),
        }
    }
}

impl FromStr for ShardId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (class, digits) = match text.strip_prefix('u') {
            Some(digits) => (ShardClass::Urgent, digits),
            None => (ShardClass::Standard, text),
        };
        let number = digits.parse().map_err(|_| format!("`{text}` is not a shard: write `0007` or `u003`"))?;
        Ok(ShardId { class, number })
    }
}

/// A minute of the timetable, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Minute(pub i64);

impl Minute {
    /// The minute that holds an instant.
    pub fn of(at: DateTime<Utc>) -> Self {
        Minute(at.timestamp().div_euclid(60))
    }

    /// Its first instant.
    pub fn start(self) -> DateTime<Utc> {
        DateTime::from_timestamp(self.0 * 60, 0).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// The minute after it.
    pub fn next(self) -> Self {
        Minute(self.0 + 1)
    }
}

/// The partition of the due index that a job sits in: `2026-12-05T03:30Z/0007`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DueBucket {
    /// The minute.
    pub minute: Minute,
    /// The shard.
    pub shard: ShardId,
}

impl DueBucket {
    /// The bucket for a job due at `due_at` that is written at `now`. Never a minute that has passed: the shard's reader
    /// may already have left it behind.
    pub fn for_write(due_at: DateTime<Utc>, now: DateTime<Utc>, shard: ShardId) -> Self {
        DueBucket { minute: Minute::of(due_at.max(now)), shard }
    }

    /// Whether a write that took this long may have landed in a minute already left behind, so that the job must be put
    /// into a bucket again.
    pub fn is_stale_after(write_took: Duration) -> bool {
        write_took > SETTLE / 2
    }
}

impl fmt::Display for DueBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.minute.start().format("%Y-%m-%dT%H:%MZ"), self.shard)
    }
}

impl FromStr for DueBucket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || format!("`{text}` is not a due bucket: expected `2026-12-05T03:30Z/0007`");
        let (minute, shard) = text.split_once('/').ok_or_else(refused)?;
        let minute = chrono::NaiveDateTime::parse_from_str(minute, "%Y-%m-%dT%H:%MZ").map_err(|_| refused())?;
        Ok(DueBucket { minute: Minute::of(minute.and_utc()), shard: shard.parse()? })
    }
}

/// How far one shard has been read. Minutes before the cursor are drained for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub Minute);

impl Cursor {
    /// Where to begin with what the lease item says.
    pub fn start(stored: Option<Minute>, now: DateTime<Utc>) -> Self {
        Cursor(stored.unwrap_or_else(|| Minute::of(now - AUDIT_HORIZON)))
    }

    /// The minutes to read at `now`, oldest first.
    pub fn minutes(self, now: DateTime<Utc>) -> impl Iterator<Item = Minute> {
        (self.0.0..=Minute::of(now).0).map(Minute)
    }

    /// The minutes in which something may have become due since the last pass, one second or so ago: the present one and
    /// the one before it.
    pub fn latest_minutes(self, now: DateTime<Utc>) -> impl Iterator<Item = Minute> {
        let last = Minute::of(now).0;
        (self.0.0.max(last - 1)..=last).map(Minute)
    }

    /// The cursor after `drained`, and all minutes before it, were found drained by a pass that began at `now`: never past
    /// `now` less the settle time, never back.
    pub fn after(self, drained: Minute, now: DateTime<Utc>) -> Self {
        Cursor(self.0.max(drained.next().min(Minute::of(now - SETTLE))))
    }

    /// The cursor itself, or, if it stands where no cursor can stand at `now`, the last place where it can. A clock that
    /// was ahead may have moved it there.
    pub fn not_ahead_of(self, now: DateTime<Utc>) -> Self {
        Cursor(self.0.min(Minute::of(now - SETTLE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(s, 0).unwrap()
    }

    #[test]
    fn a_bucket_reads_back_from_its_text() {
        let bucket: DueBucket = "2026-12-05T03:30Z/0007".parse().unwrap();
        assert_eq!(bucket.minute, Minute(1_796_441_400 / 60));
        assert_eq!(bucket.to_string(), "2026-12-05T03:30Z/0007");
        assert_eq!("2026-12-05T03:30Z/u003".parse::<DueBucket>().unwrap().shard.class, ShardClass::Urgent);
        assert!("2026-12-05/0007".parse::<DueBucket>().is_err());
    }

    #[test]
    fn a_late_write_goes_into_the_present_minute() {
        let shard = ShardId { class: ShardClass::Standard, number: 1 };
        assert_eq!(DueBucket::for_write(at(60), at(600), shard).minute, Minute(10));
        assert_eq!(DueBucket::for_write(at(6_000), at(600), shard).minute, Minute(100));
        assert!(DueBucket::is_stale_after(SETTLE / 2 + Duration::from_secs(1)));
    }

    #[test]
    fn the_cursor_never_passes_the_settle_time_nor_an_undrained_minute() {
        let now = at(100 * 60 + 30);
        assert_eq!(Cursor(Minute(50)).after(Minute(100), now), Cursor(Minute(94)));
        assert_eq!(Cursor(Minute(50)).after(Minute(59), now), Cursor(Minute(60)));
        assert_eq!(Cursor(Minute(97)).after(Minute(100), now), Cursor(Minute(97)));
        assert_eq!(Cursor(Minute(97)).not_ahead_of(now), Cursor(Minute(94)));
        assert_eq!(Cursor(Minute(50)).not_ahead_of(now), Cursor(Minute(50)));
        assert_eq!(Cursor(Minute(98)).minutes(now).collect::<Vec<_>>(), [98, 99, 100].map(Minute));
        assert_eq!(Cursor(Minute(50)).latest_minutes(now).collect::<Vec<_>>(), [99, 100].map(Minute));
        assert_eq!(Cursor(Minute(100)).latest_minutes(now).collect::<Vec<_>>(), [100].map(Minute));
        assert_eq!(Cursor::start(None, now).0, Minute(100 - 14 * 1440));
    }

    #[test]
    fn keys_spread_evenly_over_the_shards_of_their_class() {
        let shards = Shards::default();
        let mut counts = std::collections::BTreeMap::new();
        for i in 0..24_000 {
            let key = JobKey::new("t", &format!("c-{i}/bill")).unwrap();
            *counts.entry(shards.of(&key, Priority::Bulk)).or_insert(0) += 1;
            assert_eq!(shards.of(&key, Priority::Urgent).class, ShardClass::Urgent);
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|n| (880..1120).contains(n)), "{counts:?}");
        assert_eq!(shards.all().count(), 32);
    }
}

//! A port to what became of runs: rows by time, and those that wait for a person.

use super::{PageToken, PortResult};
use crate::job::JobKey;
use crate::run::{RunId, RunKey, RunRow};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

/// Step 9, read: rows as people and auditors look at them.
#[async_trait]
pub trait RunHistory: Send + Sync {
    /// A page of a job's rows whose instants lie in `span`, consistent.
    async fn rows(&self, key: &JobKey, span: RowSpan, after: Option<PageToken>, limit: usize) -> PortResult<RowPage>;

    /// Reads one row, consistent.
    async fn row(&self, id: &RunId) -> PortResult<Option<RowRead>>;

    /// A page of a tenant's rows that are dead or indeterminate and that nobody has seen to, the oldest first. May lag behind
    /// what was written last.
    async fn attention(&self, tenant: &str, after: Option<PageToken>, limit: usize) -> PortResult<RowPage>;

    /// How many rows of all tenants wait for a person, counted up to `most`, and since when the oldest of those does. May lag
    /// behind what was written last.
    async fn waiting(&self, most: usize) -> PortResult<Waiting>;

    /// Notes who saw to a row that is dead or indeterminate, which takes it from those that wait. Returns whether there is
    /// such a row that nobody had seen to; a repeat of the same note is one.
    async fn attend(&self, id: &RunId, note: &Attended) -> PortResult<bool>;

    /// What was noted about a row.
    async fn attended(&self, id: &RunId) -> PortResult<Option<Attended>>;
}

/// A stretch of instants, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan {
    /// Of this instant or later.
    pub from: DateTime<Utc>,
    /// Before this instant.
    pub until: DateTime<Utc>,
    /// Whether the latest come first.
    pub newest_first: bool,
}

impl RowSpan {
    /// All rows, the latest first. Instants that no run has are left out: before 2001, after 2286.
    pub fn newest_first() -> Self {
        RowSpan { newest_first: true, ..RowSpan::between(DateTime::UNIX_EPOCH, DateTime::<Utc>::MAX_UTC) }
    }

    /// Those of `[from, until)`, the earliest first.
    pub fn between(from: DateTime<Utc>, until: DateTime<Utc>) -> Self {
        RowSpan { from, until, newest_first: false }
    }

    /// The first and last run keys that can be in it, as the table sorts them: as text, which goes by time as long as the
    /// seconds have ten digits.
    pub fn keys(&self) -> (String, String) {
        let seconds = |at: DateTime<Utc>| at.timestamp().clamp(1_000_000_000, 9_999_999_999);
        // Below every suffix of the second that is out of the span, above every one of the last second in it.
        let last = (seconds(self.until) - 1).max(1_000_000_000);
        (seconds(self.from).to_string(), format!("{last}~"))
    }

    /// Whether a run key is in it.
    pub fn covers(&self, run_key: &RunKey) -> bool {
        let (first, last) = self.keys();
        (first.as_str()..=last.as_str()).contains(&run_key.as_str())
    }
}

/// What waits for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many rows, at least.
    pub rows: usize,
    /// When the oldest of them ended.
    pub oldest: Option<DateTime<Utc>>,
}

/// A page of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowPage {
    /// The rows, in the order asked for.
    pub rows: Vec<RowRead>,
    /// Where the next page starts; none = that was all.
    pub next: Option<PageToken>,
}

/// A row as read.
#[derive(Clone, Debug, PartialEq)]
pub enum RowRead {
    /// Understood.
    Row(Box<RunRow>),
    /// Written by something that this program does not know.
    Unreadable(UnreadableRow),
}

impl RowRead {
    /// The row, if it could be read.
    pub fn row(&self) -> Option<&RunRow> {
        match self {
            RowRead::Row(row) => Some(row),
            RowRead::Unreadable(_) => None,
        }
    }

    /// What its key says: the run's id, mostly.
    pub fn id(&self) -> String {
        match self {
            RowRead::Row(row) => row.id.to_string(),
            RowRead::Unreadable(row) => row.id.clone(),
        }
    }
}

/// A row that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    /// What its key says, which may be no key of a run.
    pub id: String,
    /// When it ended, in milliseconds, as far as that is known.
    pub completed_at_ms: i64,
    /// Why it cannot be read.
    pub problem: String,
}

impl UnreadableRow {
    /// Whether it may be the row of a firing: what is none of its job's timetable says so by its key.
    pub fn may_be_scheduled(&self) -> bool {
        let run_key = self.id.rsplit_once(':').map_or("", |(_, run_key)| run_key);
        RunKey::try_from(run_key.to_owned()).map_or(true, |run_key| run_key.is_scheduled())
    }
}

/// Where a row stands in the listing of what waits for a person: a page that starts behind it begins with the next one,
/// whether the row still waits or not.
pub fn place_in_attention(row: &RowRead) -> PageToken {
    let ended_ms = match row {
        RowRead::Row(row) => row.completed_at.map_or(0, |at| at.timestamp_millis()),
        RowRead::Unreadable(row) => row.completed_at_ms,
    };
    PageToken(format!("{ended_ms}|{}", row.id()))
}

/// That somebody saw to a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attended {
    /// Who.
    pub by: String,
    /// When, to the millisecond.
    pub at: DateTime<Utc>,
    /// The run that repeats it; none = it was left at that.
    pub replay: Option<RunKey>,
    /// Why it was left at that.
    pub why: Option<String>,
}

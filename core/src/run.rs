//! Step 9, *record*: one firing of a job, its row, and every change that the row allows.
//!
//! The row is the idempotency record and the history in one. [`apply`] is the whole state machine: total, pure, and the
//! only place that makes a row. A store writes what it returns if, and only if, the row is still the one that was looked
//! at; so whatever this table refuses cannot happen, in whatever order processes act.
//!
//! | event | allowed when the row is |
//! |---|---|
//! | begin | none · void with `void_gen` ≤ the message's generation, its back-off over · retrying, back-off over, attempts left · running past its lease and grace (take-over) |
//! | record | running with the recorder's token |
//! | give up | running with the giver's token → retrying, at once, the attempt not counted |
//! | void | none · void (raises `void_gen`) · retrying → skipped; expired running → indeterminate; live running → look later; a run of the superseding generation → look later |
//! | skip | none · void with `void_gen` ≤ the message's generation · by a worker also: retrying; expired running → indeterminate; live running → look later |
//! | begin with no attempt left, or after three workers died of it | → dead |

mod transitions;

pub use transitions::apply;

use crate::job::JobKey;
use crate::retry::{GatewayPolicy, Outcome, OutcomeClass, RetryRule, WhenUnknown};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Identity of a run within its job: the Unix seconds of its nominal instant, never local or ISO text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunKey(String);

impl RunKey {
    /// The key of the firing at `scheduled_at`.
    pub fn scheduled(scheduled_at: DateTime<Utc>) -> Self {
        RunKey(scheduled_at.timestamp().to_string())
    }

    /// The key of a run made by hand at `at`: the seconds, `m`, and a token that no other request shares. It never meets
    /// the key of a firing.
    ///
    /// # Panics
    /// Unless the token is 1 to 40 hexadecimal digits: it is a hash or random, never what a person wrote.
    pub fn manual(at: DateTime<Utc>, token: &str) -> Self {
        let is_token = (1..=40).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_token, "the token of a run key is 1 to 40 hexadecimal digits");
        RunKey(format!("{}m{token}", at.timestamp()))
    }

    /// The key of the `n`-th replay of this run, or of the run that this one replays: `r` and the number, counted from 1.
    pub fn replay(&self, n: u32) -> Self {
        RunKey(format!("{}r{n}", self.original()))
    }

    /// The key of the run that this one replays; its own, if it replays none.
    pub fn original(&self) -> Self {
        let replays = self.0.rsplit_once('r').filter(|(_, n)| n.parse::<u32>().is_ok());
        RunKey(replays.map_or(&*self.0, |(original, _)| original).to_owned())
    }

    /// Whether it is the key of a firing, and neither of a run made by hand nor of a replay.
    pub fn is_scheduled(&self) -> bool {
        self.split().1.is_empty()
    }

    /// Whether the run was made by hand, and not by its job's schedule. A replay of such a run counts as one.
    pub fn is_manual(&self) -> bool {
        let (_, suffix) = self.split();
        suffix.starts_with('m')
    }

    /// The instant that the key begins with; none if no calendar has it.
    pub fn instant(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(self.split().0.parse().ok()?, 0)
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The seconds, and what marks a run by hand or a replay.
    fn split(&self) -> (&str, &str) {
        let sign = usize::from(self.0.starts_with('-'));
        let digits = self.0[sign..].find(|c: char| !c.is_ascii_digit());
        self.0.split_at(digits.map_or(self.0.len(), |end| sign + end))
    }
}

impl TryFrom<String> for RunKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // Suffixes mark runs made by hand and replays; the seconds stand first in all of them.
        let seconds = text.strip_prefix('-').unwrap_or(&text);
        let known =
            seconds.starts_with(|c: char| c.is_ascii_digit()) && seconds.bytes().all(|b| b.is_ascii_alphanumeric());
        if known && text.len() <= 64 {
            Ok(RunKey(text))
        } else {
            Err("a run key is Unix seconds, such as `1791171000`".into())
        }
    }
}

impl From<RunKey> for String {
    fn from(key: RunKey) -> String {
        key.0
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identity of a run: job key, `:`, run key. Also the reference given to the gateway, where it replays no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunId {
    /// The job.
    pub job_key: JobKey,
    /// The firing.
    pub run_key: RunKey,
}

impl RunId {
    /// The run that this one replays, or itself: what a gateway knows it by, so that one which drops repeats drops those
    /// of the original too.
    pub fn original(&self) -> Self {
        RunId { job_key: self.job_key.clone(), run_key: self.run_key.original() }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.job_key, self.run_key)
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// A worker holds it.
    Running,
    /// Waiting for its next attempt.
    Retrying,
    /// Delivered.
    Succeeded,
    /// Refused for good; the row says why.
    Failed,
    /// Attempts used up; a dead letter exists.
    Dead,
    /// Nobody knows whether it went out; a dead letter exists.
    Indeterminate,
    /// Not run, with its reason.
    Skipped,
}

impl RunStatus {
    /// The word for tables and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Retrying => "retrying",
            RunStatus::Succeeded => "succeeded",
            RunStatus::Failed => "failed",
            RunStatus::Dead => "dead",
            RunStatus::Indeterminate => "indeterminate",
            RunStatus::Skipped => "skipped",
        }
    }

    /// Whether a dead letter belongs to it.
    pub fn has_letter(self) -> bool {
        matches!(self, RunStatus::Dead | RunStatus::Indeterminate)
    }
}

/// Why a run was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The job was cancelled.
    Cancelled,
    /// A change of the job decided anew.
    Superseded,
    /// It was too late to start.
    Deadline,
    /// It was missed, and the job's rule runs a later firing or none.
    Missed,
}

impl SkipReason {
    /// The word for tables and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            SkipReason::Cancelled => "cancelled",
            SkipReason::Superseded => "superseded",
            SkipReason::Deadline => "deadline",
            SkipReason::Missed => "missed",
        }
    }

    /// Whether a later generation may still run the instant.
    pub fn is_void(self) -> bool {
        matches!(self, SkipReason::Cancelled | SkipReason::Superseded)
    }

    /// Whether it stops runs of its own generation too.
    fn ends_all(self) -> bool {
        self == SkipReason::Cancelled
    }
}

/// Several firings that one skipped row stands for. The first of them is the row's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedRange {
    /// The nominal instant of the last of them.
    pub to: DateTime<Utc>,
    /// How many they are, the first included.
    pub count: u32,
}

/// One try of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Counted from 1.
    pub n: u32,
    /// Start of the call.
    pub started_at: DateTime<Utc>,
    /// Its end; none while it goes on.
    pub ended_at: Option<DateTime<Utc>>,
    /// Who made it.
    pub worker: String,
    /// The job's version that it ran.
    pub job_version: u64,
    /// How it ended; none while it goes on.
    pub class: Option<OutcomeClass>,
    /// What happened, without personal data.
    pub detail: Option<String>,
}

/// A run's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Whose row it is.
    pub id: RunId,
    /// Where the run stands.
    pub status: RunStatus,
    /// Attempts begun so far.
    pub attempt: u32,
    /// Token of the worker that holds it.
    pub owner: Option<String>,
    /// Until when that worker holds it.
    pub lease_until: Option<DateTime<Utc>>,
    /// Before this, no attempt.
    pub not_before: Option<DateTime<Utc>>,
    /// Generation of the message that began or skipped it.
    pub generation: u64,
    /// For a void row: the generation that voided it.
    pub void_gen: Option<u64>,
    /// When it should have started.
    pub due_at: DateTime<Utc>,
    /// When its message was first put in the queue.
    pub first_enqueued_at: DateTime<Utc>,
    /// Start of its first attempt.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub completed_at: Option<DateTime<Utc>>,
    /// Its attempts.
    pub attempts: Vec<Attempt>,
    /// The last failure.
    pub error: Option<String>,
    /// The gateway's own id of the message.
    pub gateway_ref: Option<String>,
    /// For a skipped row: why.
    pub reason: Option<SkipReason>,
    /// For a skipped row: the firings it stands for, if there are several.
    pub range: Option<SkippedRange>,
    /// Counts the writes to this row; a write is allowed only over the revision it was decided from.
    pub revision: u64,
    /// Marks the write that made this revision, so that its writer knows it again after a lost answer.
    pub write_token: String,
}

impl RunRow {
    /// Whether nothing can change it any more. A void row has not ended: a later generation may run its instant.
    pub fn has_ended(&self) -> bool {
        match self.status {
            RunStatus::Running | RunStatus::Retrying => false,
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Dead | RunStatus::Indeterminate => true,
            RunStatus::Skipped => !self.reason.is_some_and(SkipReason::is_void),
        }
    }

    /// The start of the earliest attempt that may have reached the phone although no answer says so.
    pub fn first_unknown_at(&self) -> Option<DateTime<Utc>> {
        let unknown = |a: &&Attempt| matches!(a.class, Some(OutcomeClass::Unknown | OutcomeClass::Lost));
        self.attempts.iter().find(unknown).map(|a| a.started_at)
    }

    /// Whether a repeat sent at `now` might reach a customer who has the message already, and a person must decide.
    pub fn needs_a_person(&self, gateway: &GatewayPolicy, now: DateTime<Utc>) -> bool {
        let held = |a: &Attempt| a.class.and_then(|c| gateway.when_unknown(c)) == Some(WhenUnknown::Hold);
        let is_dropped = self.first_unknown_at().is_some_and(|first| gateway.drops_repeat(first, now));
        self.attempts.iter().any(held) && !is_dropped
    }
}

/// What a message says of its run: all that a new row needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    /// Which run.
    pub id: RunId,
    /// The message's generation.
    pub generation: u64,
    /// When the run should start.
    pub due_at: DateTime<Utc>,
    /// When its message was first put in the queue.
    pub first_enqueued_at: DateTime<Utc>,
}

/// Something that wants to change a row.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A worker wants to start an attempt.
    Begin(Begin<'a>),
    /// A worker knows how its attempt ended.
    Record(Record<'a>),
    /// A worker gives back an attempt that it did not make: nothing was called.
    GiveUp {
        /// The token it began with.
        token: &'a str,
    },
    /// The message is void: cancelled or superseded.
    Void {
        /// The generation that voids it.
        void_gen: u64,
        /// Cancelled or superseded.
        reason: SkipReason,
        /// How long a holder is given beyond its lease.
        takeover_grace: Duration,
    },
    /// The run is not to be run for another reason.
    Skip {
        /// Why.
        reason: SkipReason,
        /// The firings that are skipped with it, as one row.
        range: Option<SkippedRange>,
        /// Who decided.
        by: SkippedBy,
        /// How long a holder is given beyond its lease.
        takeover_grace: Duration,
    },
}

/// Who skips: dispatch leaves open rows to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedBy {
    /// The scheduler, before enqueueing.
    Dispatch,
    /// The worker, before calling.
    Worker,
}

/// What a worker brings to start an attempt.
#[derive(Clone, Debug)]
pub struct Begin<'a> {
    /// A fresh random token, made before the first try of the write.
    pub token: &'a str,
    /// Who.
    pub worker: &'a str,
    /// The job's version it read.
    pub job_version: u64,
    /// How long the attempt may take, margin included.
    pub lease: Duration,
    /// How long a holder is given beyond its lease before its run is taken over.
    pub takeover_grace: Duration,
    /// The job's retry rule.
    pub rule: RetryRule,
    /// What the gateway does with repeats.
    pub gateway: GatewayPolicy,
}

/// What a worker brings to record an attempt.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The token it began with.
    pub token: &'a str,
    /// How the attempt ended.
    pub outcome: &'a Outcome,
    /// The job's retry rule.
    pub rule: RetryRule,
    /// What the gateway does with repeats.
    pub gateway: GatewayPolicy,
    /// In `[0, 1)`, for the jitter.
    pub random: f64,
}

/// What the table says to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Allowed: write this row over the one that was looked at.
    Write(Box<RunRow>),
    /// Not now: somebody holds it, or its back-off is not over.
    LookLater {
        /// When it is worth looking again.
        at: DateTime<Utc>,
    },
    /// Refused: the row stays as it is.
    Refused(RunStatus),
}

pub(crate) fn plus(at: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(by).ok().and_then(|by| at.checked_add_signed(by)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
mod tests;

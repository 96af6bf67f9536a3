//! Works off what one job owes: firings that were missed, by the job's rule, and runs that are too late to start.
//!
//! One step at a time, each safe to repeat: decide, perform, advance, decide again. A row is written before its job passes
//! it, and a job passes no more than its row says.

use super::fire::Firing;
use super::pass::{Dispatcher, Permission, Tally};
use chrono::{DateTime, Utc};
use punctual_core::dispatch::{Coalesce, Decision, DueRun, after_skip, decide};
use punctual_core::due::DueBucket;
use punctual_core::error::PortError;
use punctual_core::job::{Advanced, Job};
use punctual_core::message::Message;
use punctual_core::missed::Many;
use punctual_core::ports::{AdvanceFrom, Move, Put};
use punctual_core::priority::Priority;
use punctual_core::process::random_token;
use punctual_core::run::{Event, RunStatus, SkipReason, SkippedBy, SkippedRange, Transition, apply};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Steps of one job in one pass: a row for what was missed, and then the run of the latest firing, with one to spare.
const STEPS: usize = 3;

/// Rows that one step writes for runs that are each too late, before the job is advanced behind them.
const ROWS_OF_A_STEP: usize = 100;

/// Runs that backlogs of one page may send in one pass: what is on time waits for no more than that.
const RUNS_OF_A_PAGE: usize = 2_000;

/// What is left of a page's share for backlogs.
pub(super) struct Budget(AtomicUsize);

impl Budget {
    pub(super) fn of_a_page() -> Self {
        Budget(AtomicUsize::new(RUNS_OF_A_PAGE))
    }

    fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Takes up to so many, and says how many.
    fn take(&self, runs: usize) -> usize {
        let left = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| Some(left.saturating_sub(runs)));
        left.unwrap_or_else(|left| left).min(runs)
    }
}

/// What working off came to.
pub(super) enum WorkedOff {
    /// What could be done was done.
    Done(Tally),
    /// The row of this run is open: it must be sent after all, the worker decides.
    Send(Box<Firing>),
}

/// The row of a skip, when it is dealt with.
enum SkipRow {
    /// It says what it was to say.
    Written,
    /// It was there already, and stands for these firings.
    Covers(SkippedRange),
    /// Its run has ended otherwise.
    Ended,
    /// A worker has it, or will.
    Open,
}

/// How far a skip got.
enum Skipped {
    /// The job goes there.
    To(Advanced),
    /// The first run must be sent.
    Send(Box<Firing>),
}

impl Dispatcher {
    /// Works off what `job`, read in `bucket` at `now`, owes.
    pub(super) async fn work_off(
        &self,
        mut job: Job,
        mut bucket: DueBucket,
        mut now: DateTime<Utc>,
        permission: &dyn Permission,
        budget: &Budget,
    ) -> Result<WorkedOff, PortError> {
        for _ in 0..STEPS {
            // Deciding about a thousand firings takes milliseconds: others get their turn in between.
            tokio::task::yield_now().await;
            if !permission.holds() {
                return Ok(WorkedOff::Done(Tally::left()));
            }
            if budget.is_used_up() && job.spec.missed.many == Many::All {
                return Ok(WorkedOff::Done(Tally::left()));
            }
            let skipped = match decide(&job, bucket, now, &self.world().timetable(), &self.id) {
                Decision::Fire { priority, runs } => {
                    // One run of a job that is not to have all of them is what the job is for: it does not wait.
                    let is_bounded = job.spec.missed.many == Many::All;
                    let allowed = if is_bounded { budget.take(runs.len()) } else { runs.len() };
                    let mut tally = self.fire_in_order(priority, &runs[..allowed], &job, permission).await;
                    tally.left |= allowed < runs.len();
                    return Ok(WorkedOff::Done(tally));
                }
                Decision::Skip { reason, priority, runs } => {
                    let rows = budget.take(runs.len().min(ROWS_OF_A_STEP));
                    if rows == 0 {
                        return Ok(WorkedOff::Done(Tally::left()));
                    }
                    self.skip_each(&job, reason, priority, &runs[..rows], permission).await?
                }
                Decision::Coalesce(skip) => {
                    let Coalesce { reason, range, priority, first, to } = *skip;
                    match self.write_skip(&first.message, reason, Some(range)).await? {
                        SkipRow::Written => Skipped::To(to),
                        SkipRow::Covers(range) => {
                            Skipped::To(after_skip(&job, range, self.clock.now(), &self.world().timetable()))
                        }
                        SkipRow::Ended => Skipped::To(first.to),
                        SkipRow::Open => Skipped::Send(Box::new(Firing::new(priority, first, &job))),
                    }
                }
                Decision::Stale | Decision::Unindex | Decision::Broken(_) => break,
            };
            let to = match skipped {
                Skipped::To(to) => to,
                Skipped::Send(firing) => return Ok(WorkedOff::Send(firing)),
            };
            // The job is known to stand there from the moment of the advance on.
            now = self.clock.now();
            let tally = self.advance_to(&job, to.clone()).await;
            if tally.moved.is_empty() {
                return tally.error.map_or(Ok(WorkedOff::Done(Tally::left())), Err);
            }
            permission.progress();
            job.advance(&to);
            match job.due_bucket {
                Some(next) => bucket = next,
                None => break,
            }
        }
        Ok(WorkedOff::Done(Tally::default()))
    }

    /// Writes a row for each run, at least one, up to one whose row is open or cannot be written.
    async fn skip_each(
        &self,
        job: &Job,
        reason: SkipReason,
        priority: Priority,
        runs: &[DueRun],
        permission: &dyn Permission,
    ) -> Result<Skipped, PortError> {
        let mut passed: Option<Advanced> = None;
        for run in runs {
            if passed.is_some() && !permission.holds() {
                break;
            }
            let row = match (self.write_skip(&run.message, reason, None).await, &passed) {
                (Ok(row), _) => row,
                (Err(error), None) => return Err(error),
                // What has its row is passed first; the next step meets the trouble again.
                (Err(_), Some(_)) => break,
            };
            match (row, passed.take()) {
                (SkipRow::Open, None) => return Ok(Skipped::Send(Box::new(Firing::new(priority, run.clone(), job)))),
                (SkipRow::Open, Some(to)) => return Ok(Skipped::To(to)),
                (SkipRow::Covers(range), None) => {
                    return Ok(Skipped::To(after_skip(job, range, self.clock.now(), &self.world().timetable())));
                }
                // It stands for more than this run: the next step looks at it by itself.
                (SkipRow::Covers(_), Some(to)) => return Ok(Skipped::To(to)),
                (SkipRow::Written | SkipRow::Ended, _) => {
                    permission.progress();
                    passed = Some(run.to.clone());
                }
            }
        }
        Ok(Skipped::To(passed.expect("a decision to skip names at least one run")))
    }

    /// Moves one job on behind what has its row.
    async fn advance_to(&self, job: &Job, to: Advanced) -> Tally {
        let Some(scheduled_at) = job.next_scheduled_at else { return Tally::left() };
        let from = AdvanceFrom { next_scheduled_at: scheduled_at, version: job.version };
        self.advance(vec![Move { key: job.spec.key.clone(), from, to }]).await
    }

    async fn write_skip(
        &self,
        message: &Message,
        reason: SkipReason,
        range: Option<SkippedRange>,
    ) -> Result<SkipRow, PortError> {
        let token = random_token();
        let event = Event::Skip { reason, range, by: SkippedBy::Dispatch, takeover_grace: Duration::ZERO };
        let mut row = self.ports.runs.get(&message.run_id()).await?;
        loop {
            match apply(row.as_ref(), &message.facts(), &event, self.clock.now(), &token) {
                Transition::Write(new) => match self.ports.runs.put(&new).await? {
                    Put::Written => {
                        self.metrics.skipped(reason, range.map_or(1, |range| u64::from(range.count)));
                        return Ok(SkipRow::Written);
                    }
                    Put::Conflict(current) => row = current.map(|row| *row),
                },
                Transition::Refused(RunStatus::Running | RunStatus::Retrying) | Transition::LookLater { .. } => {
                    return Ok(SkipRow::Open);
                }
                Transition::Refused(_) => {
                    // A row by an older schedule says nothing of how far this one may go.
                    let range = row.filter(|row| row.generation == message.generation).and_then(|row| row.range);
                    return Ok(range.map_or(SkipRow::Ended, SkipRow::Covers));
                }
            }
        }
    }
}

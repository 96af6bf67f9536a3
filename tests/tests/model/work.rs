//! A worker: screen, begin, call (or give the attempt up), record, delete. Each function is one step; a crash may come between any two.

use super::Protocol;
use super::properties::Broken;
use super::real::Screened;
use super::rows::{Event, Transition};
use super::state::{Bar, Ending, Job, JobState, MOST_ATTEMPTS, Message, Outcome, Row, State, Status, Worker};

impl Protocol {
    /// Looks at the row and at `job`, as it was read, and decides.
    pub fn screen(&self, s: &mut State, m: Message, job: Job) -> Worker {
        let row = s.row(m.instant);
        if row.status.is_final() {
            return self.found(s, m, row.status);
        }
        let is_cancelled = m.is_former || m.instant < s.job.first || s.job.state == JobState::Cancelled;
        let bar = match s.job.state {
            _ if is_cancelled => Bar::Cancelled,
            JobState::Paused => Bar::Paused,
            _ => Bar::Free,
        };
        let job = match job.state {
            JobState::Done if !self.rules.done_is_live => Job { state: JobState::Cancelled, ..job },
            JobState::Paused if !self.rules.pause_keeps => Job { state: JobState::Active, ..job },
            _ => job,
        };
        let asked = if self.rules.not_due_waits { m } else { Message { due: m.due.min(s.now), ..m } };
        match self.real.screen(asked, job, s.now) {
            Screened::PutBack => Worker::Idle,
            Screened::End(ending) => Worker::Ending { m, ending },
            // What begin would refuse needs no slot.
            Screened::Run => match self.real.apply(self.as_begin_sees(row, m), m.generation, self.begin_event(), s.now)
            {
                Transition::Write(_) => {
                    let seen = if self.rules.row_compared { Row::NONE } else { row };
                    Worker::Screened { m, bar, seen }
                }
                Transition::LookLater => Worker::Idle,
                Transition::Refused => self.found(s, m, row.status),
            },
        }
    }

    /// Writes the row of a message that is not to be run.
    pub fn end(&self, s: &mut State, m: Message, ending: Ending) -> Worker {
        let row = s.row(m.instant);
        if matches!(ending, Ending::Void { .. }) && !self.rules.void_gets_row {
            s.delete(m);
            return Worker::Idle;
        }
        match self.real.apply(row, m.generation, Event::End(ending), s.now) {
            Transition::Write(new) => {
                let forgets = new.status == Status::Void && !self.rules.void_keeps_back_off;
                let not_before = if forgets { 0 } else { new.not_before };
                s.write_row(m.instant, Row { not_before, ..new });
                self.settle(s, m, new.status)
            }
            Transition::LookLater => Worker::Idle,
            Transition::Refused => self.found(s, m, row.status),
        }
    }

    /// The conditional write that makes the run this worker's own.
    pub fn begin(&self, s: &mut State, m: Message, bar: Bar, seen: Row) -> Worker {
        let row = if self.rules.row_compared { s.row(m.instant) } else { seen };
        let new = match self.real.apply(self.as_begin_sees(row, m), m.generation, self.begin_event(), s.now) {
            Transition::Write(new) => new,
            Transition::LookLater => return Worker::Idle,
            Transition::Refused => return self.found(s, m, row.status),
        };
        s.write_row(m.instant, new);
        if new.status != Status::Running {
            return self.settle(s, m, new.status); // no attempt left
        }
        s.workers.iter_mut().filter(|w| w.runs(m.instant)).for_each(Worker::disown);
        let now = s.now;
        let run = s.run(m.instant);
        let is_early = now < run.rests_until;
        (run.begun, run.rests_until) = ((run.begun + 1).min(MOST_ATTEMPTS + 1), 0);
        let is_too_many = run.begun > MOST_ATTEMPTS;
        if is_early || now < m.due {
            s.breaks(Broken::Early);
        }
        if is_too_many {
            s.breaks(Broken::Attempts);
        }
        Worker::Calling { m, is_owner: true, bar, was_frozen: false }
    }

    fn begin_event(&self) -> Event {
        let most_attempts = if self.rules.last_attempt_dies { MOST_ATTEMPTS } else { MOST_ATTEMPTS + 1 };
        Event::Begin { most_attempts, outlives_call: self.rules.lease_outlives_call, holds_lost: self.holds_lost }
    }

    /// The row that begin is asked about: the one that is there, less what a rule that was taken away would look at.
    fn as_begin_sees(&self, row: Row, m: Message) -> Row {
        match row.status {
            Status::Retrying if !self.rules.back_off => Row { not_before: 0, ..row },
            Status::Void if !self.rules.void_gen_compared => Row { void_gen: row.void_gen.min(m.generation), ..row },
            _ => row,
        }
    }

    /// The call itself. What came of it is the adversary's choice.
    pub fn call(&self, s: &mut State, worker: Worker, outcome: Outcome) -> Option<Worker> {
        let Worker::Calling { m, is_owner, bar, was_frozen } = worker else { return None };
        match bar {
            Bar::Cancelled => s.breaks(Broken::Cancel),
            Bar::Paused => s.breaks(Broken::Pause),
            Bar::Free => {}
        }
        let run = s.run(m.instant);
        run.is_excused |= was_frozen && self.excuses();
        if matches!(outcome, Outcome::Delivered | Outcome::Unknown) {
            let is_twice = run.is_delivered && !run.is_excused;
            run.is_delivered = true;
            if is_twice {
                s.breaks(Broken::Twice);
            }
        }
        Some(Worker::Called { m, is_owner, outcome })
    }

    /// Gives back the attempt, whose call is not made, if the row still carries this worker's token.
    pub fn give_up(&self, s: &mut State, m: Message, is_owner: bool) -> Worker {
        let event = Event::GiveUp { is_owner: is_owner || !self.rules.fenced_give_up };
        if let Transition::Write(new) = self.real.apply(s.row(m.instant), m.generation, event, s.now) {
            s.write_row(m.instant, new);
            s.run(m.instant).begun -= 1;
        }
        Worker::Idle
    }

    /// Records the outcome, if the row still carries this worker's token.
    pub fn record(&self, s: &mut State, m: Message, is_owner: bool, outcome: Outcome) -> Worker {
        let row = match self.rules.fenced_record {
            true => s.row(m.instant),
            // What it wrote when it began, whatever stands there by now.
            false => Row { status: Status::Running, is_expired: false, ..s.row(m.instant) },
        };
        let event = Event::Record {
            is_owner: is_owner || !self.rules.fenced_record,
            outcome,
            holds_unknown: self.rules.unknown_is_held,
        };
        let Transition::Write(new) = self.real.apply(row, m.generation, event, s.now) else {
            return Worker::Idle; // a fenced worker touches nothing
        };
        s.write_row(m.instant, new);
        s.run(m.instant).rests_until = new.not_before;
        self.settle(s, m, new.status)
    }

    /// What becomes of a message by the row that this worker wrote: row first, then dead letter, then delete. The delete
    /// follows at once; a crash before it is `Action::WorkKeep`.
    fn settle(&self, s: &mut State, m: Message, status: Status) -> Worker {
        match status {
            Status::Dead | Status::Indeterminate => Worker::Letter { m },
            // Somebody has it, or it waits: the message comes again.
            Status::None | Status::Running | Status::Retrying => Worker::Idle,
            Status::Succeeded | Status::Failed | Status::Skipped | Status::Void | Status::Ended => {
                s.delete(m);
                Worker::Idle
            }
        }
    }

    /// What becomes of a message by the row that it found.
    fn found(&self, s: &mut State, m: Message, status: Status) -> Worker {
        if status.has_letter() && !self.rules.letter_again {
            s.delete(m);
            return Worker::Idle;
        }
        self.settle(s, m, status)
    }
}

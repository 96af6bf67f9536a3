//! A scheduler: read and decide, enqueue or skip, advance. Each arm is one step; a crash may come between any two.

use super::Protocol;
use super::properties::Broken;
use super::real::Plan;
use super::rows::{Event, Transition};
use super::state::{JobState, Message, Reading, Row, Scheduler, State, Status};

impl Protocol {
    /// The next step of a scheduler; none when it has none, or when it would leave the model's bounds.
    pub fn dispatch(&self, s: &mut State, scheduler: Scheduler) -> Option<Scheduler> {
        match scheduler {
            Scheduler::Idle => self.read(s),
            Scheduler::Fire { reading, to, .. } if !self.rules.enqueue_first => {
                self.advance(s, reading.from, reading.is_fresh, to);
                Some(Scheduler::FireLate { reading })
            }
            Scheduler::Fire { reading, last, to } => s.send(reading.message).then(|| match following(reading, last) {
                Some(reading) => Scheduler::Fire { reading, last, to },
                None => advance(reading, to),
            }),
            Scheduler::FireLate { reading } => s.send(reading.message).then_some(Scheduler::Idle),
            Scheduler::Skip { reading, covers, to, .. } if !self.rules.skip_row_first => {
                self.advance(s, reading.from, reading.is_fresh, to);
                Some(Scheduler::SkipLate { reading, covers })
            }
            Scheduler::Skip { reading, covers, last, to } => Some(self.skip(s, reading, covers, last, to)),
            Scheduler::SkipLate { reading, covers } => {
                self.skip(s, reading, covers, reading.from, 0);
                Some(Scheduler::Idle)
            }
            Scheduler::Advance { from, is_fresh, to } => {
                self.advance(s, from, is_fresh, to);
                Some(Scheduler::Idle)
            }
        }
    }

    /// Reads the job, consistently, and decides.
    fn read(&self, s: &State) -> Option<Scheduler> {
        let job = s.job;
        let reading = |due| {
            let message = Message { instant: job.next, due, generation: job.generation, is_former: false, copy: 0 };
            Reading { from: job.next, message, is_fresh: true }
        };
        match self.real.decide(job, s.now) {
            Plan::Nothing => None,
            Plan::Fire { due, last, to } => Some(Scheduler::Fire { reading: reading(due), last, to }),
            Plan::Skip { due, covers, last, to } => Some(Scheduler::Skip { reading: reading(due), covers, last, to }),
        }
    }

    /// Writes the row of a skip over the row that is there, if the table allows it.
    fn skip(&self, s: &mut State, reading: Reading, covers: u8, last: u8, to: u8) -> Scheduler {
        let Message { instant, generation, .. } = reading.message;
        let behind = if covers > instant || last > instant { instant + 1 } else { to };
        let found = if self.rules.conditional_skip { s.row(instant) } else { Row::NONE };
        match self.real.apply(found, generation, Event::SkipByDispatch { covers }, s.now) {
            Transition::Write(row) => {
                s.write_row(instant, row);
                next_skip(reading, covers, last, to)
            }
            // What has its row is passed first.
            _ if found.status.is_open() && instant > reading.from => advance(reading, instant),
            // Its run is open: it is enqueued after all, the worker decides.
            _ if found.status.is_open() => Scheduler::Fire { reading, last: instant, to: behind },
            _ if !self.rules.row_bounds_range => advance(reading, to),
            // A range row is there already. A row by an older schedule says nothing of how far this one may go.
            _ if found.covers > 0 && found.generation == generation => {
                advance(reading, self.real.after_skip(instant, found.covers, s.now))
            }
            _ if instant < last => next_skip(reading, covers, last, to),
            _ => advance(reading, behind),
        }
    }

    /// A run of several could not be enqueued: the job advances behind those that were.
    pub fn fail_send(&self, scheduler: Scheduler) -> Option<Scheduler> {
        match scheduler {
            Scheduler::Fire { reading, .. } => Some(advance(reading, reading.message.instant)),
            _ => None,
        }
    }

    /// The condition of an advance: the job stands where it was read, unchanged and active.
    fn may_advance(&self, s: &State, from: u8, is_fresh: bool) -> bool {
        s.job.next == from && (!self.rules.advance_compared || (is_fresh && s.job.state == JobState::Active))
    }

    fn advance(&self, s: &mut State, from: u8, is_fresh: bool, to: u8) {
        if self.may_advance(s, from, is_fresh) {
            if s.job.state != JobState::Active {
                s.breaks(Broken::Zombie);
            }
            s.job = self.real.advance(s.job, to, s.now);
        }
    }

    /// A scheduler whose advance can only be refused is as good as idle, or will be when it has sent its run.
    pub fn forget_refused_advances(&self, s: &mut State) {
        for p in 0..s.schedulers.len() {
            match s.schedulers[p] {
                Scheduler::Advance { from, is_fresh, .. } if !self.may_advance(s, from, is_fresh) => {
                    s.schedulers[p] = Scheduler::Idle;
                }
                Scheduler::Fire { reading, last, .. } if !self.may_advance(s, reading.from, reading.is_fresh) => {
                    let is_over = reading.message.instant == last && s.is_over(last);
                    let reading = Reading { from: 0, is_fresh: false, ..reading };
                    s.schedulers[p] = if is_over { Scheduler::Idle } else { Scheduler::Fire { reading, last, to: 0 } };
                }
                _ => {}
            }
        }
    }
}

fn advance(reading: Reading, to: u8) -> Scheduler {
    Scheduler::Advance { from: reading.from, is_fresh: reading.is_fresh, to }
}

/// The same reading, one firing on; none behind the last one.
fn following(reading: Reading, last: u8) -> Option<Reading> {
    let instant = reading.message.instant + 1;
    (instant <= last).then_some(Reading { message: Message { instant, due: instant, ..reading.message }, ..reading })
}

fn next_skip(reading: Reading, covers: u8, last: u8, to: u8) -> Scheduler {
    match following(reading, last) {
        Some(reading) => Scheduler::Skip { reading, covers, last, to },
        None => advance(reading, to),
    }
}

impl State {
    /// Every change of a row passes here, so that history is watched.
    pub fn write_row(&mut self, instant: u8, new: Row) {
        let old = self.row(instant);
        if old.status.is_final() && old != new {
            self.breaks(Broken::Final);
        }
        let is_skip = matches!(new.status, Status::Skipped | Status::Void);
        if is_skip && (old.status == Status::Succeeded || old.is_live()) {
            self.breaks(Broken::False);
        }
        self.run(instant).row = new;
    }
}

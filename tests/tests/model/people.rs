//! Changes by people. Each is one write on the condition that the job still stands where it was read, so it is one step.

use super::Protocol;
use super::adversary::Action;
use super::state::{Job, JobState, Scheduler, State, Worker};

/// What a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Another missed-run rule: decides anew, the timetable stays.
    EditRule,
    /// Another schedule: with one firing more, if it has not got all of them.
    EditSchedule,
    Pause,
    Resume,
    Cancel,
    /// The same job again, over a cancelled or done one.
    Recreate,
}

const COUNTED: [Change; 5] = [Change::EditRule, Change::EditSchedule, Change::Pause, Change::Cancel, Change::Recreate];

impl Protocol {
    pub fn changes(&self, s: &State, actions: &mut Vec<Action>) {
        let may_change = s.changes < self.most_changes;
        actions.extend(COUNTED.iter().filter(|_| may_change).map(|change| Action::Change(*change)));
        if s.job.state == JobState::Paused {
            actions.push(Action::Change(Change::Resume)); // it follows a counted pause, and is free
        }
    }

    /// None when the real rule refuses the change, or finds nothing to change.
    pub fn change(&self, s: &mut State, change: Change) -> Option<()> {
        let old = if self.rules.sent_ahead_known { s.job } else { Job { passed: 0, ..s.job } };
        let new = self.real.change(old, change, s.now)?;
        s.job = self.less_the_rules_taken_away(old, new, change, s.now);
        if new.last > s.now {
            s.job.owes = new.last;
        }
        s.stale = (!self.rules.consistent_read).then_some(old);
        s.changes += u8::from(change != Change::Resume);
        s.schedulers.iter_mut().for_each(Scheduler::outdate);
        if change == Change::Recreate && old.state == JobState::Cancelled {
            s.job.first = s.job.next;
            let decided = s.schedulers.iter_mut().filter_map(Scheduler::message_mut);
            let queued = s.queue.iter_mut().flatten();
            let held = s.workers.iter_mut().filter_map(Worker::message_mut);
            decided.chain(queued).chain(held).for_each(|m| m.is_former = true);
        }
        Some(())
    }

    fn less_the_rules_taken_away(&self, old: Job, new: Job, change: Change, now: u8) -> Job {
        let mut job = new;
        let is_edit = matches!(change, Change::EditRule | Change::EditSchedule);
        if is_edit && old.next <= now && !self.rules.owed_stays_owed {
            let state = job.state;
            job = self.real.advance(job, self.real.first_after(job, now), now);
            job.state = if state == JobState::Paused { state } else { job.state };
        }
        if new.generation > old.generation && !self.rules.void_from_boundary {
            job.decides = [job.generation; 2];
        }
        if change == Change::Recreate && !self.rules.generation_kept {
            (job.generation, job.decides) = (0, [0; 2]); // as low as any that was used
        }
        job
    }
}

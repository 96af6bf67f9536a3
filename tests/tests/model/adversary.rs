//! What may happen, in any order: a step of any process, a crash before or after it, a lost answer, a freeze, a message
//! given to two workers, the passing of time.

use super::Protocol;
use super::people::Change;
use super::properties::Broken;
use super::state::{END, Job, JobState, MOST_INSTANTS, Outcome, Run, Scheduler, State, Status, Worker};
use stateright::{Model, Property};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Change(Change),
    /// The next step of a scheduler.
    Dispatch(usize),
    /// The same, but the answer of the send is lost and it is sent again.
    SendTwice(usize),
    /// The queue refuses the next of several runs.
    FailSend(usize),
    DispatchCrash(usize),
    /// A worker receives the message in this place of the queue, and screens it.
    Receive(usize, usize),
    /// The same, by a read of the job that is out of date.
    ReceiveStale(usize, usize),
    /// The next step of a worker.
    Work(usize),
    /// The same, but it crashes before it deletes the message.
    WorkKeep(usize),
    WorkCrash(usize),
    Call(usize, Outcome),
    /// A worker that has not begun gives its message back: it stops, or its function's time is nearly over.
    GiveBack(usize),
    /// A worker that has begun gives the attempt back before its call. If its write fails, it is as if it had crashed.
    GiveUp(usize),
    /// A worker that has called loses its message's lease and gives up.
    LoseHeartbeat(usize),
    /// The lease of a run is over: its holder is gone, or frozen.
    Expire(u8),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            job: self.real.created(),
            stale: None,
            runs: [Run::NEW; MOST_INSTANTS],
            queue: [None; 3],
            schedulers: [Scheduler::Idle; 2],
            workers: [Worker::Idle; 2],
            changes: 0,
            crashes: 0,
            freezes: 0,
            lapses: 0,
            broken: None,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        let is_idle = s.schedulers == [Scheduler::Idle; 2] && s.workers == [Worker::Idle; 2];
        let is_over = is_idle && (1..=self.instants).all(|instant| s.is_over(instant));
        if s.broken.is_some() || is_over {
            return;
        }
        if s.now < END {
            actions.push(Action::Tick);
        }
        self.changes(s, actions);
        let may_crash = s.crashes < self.most_crashes;
        (0..2).for_each(|p| self.scheduler_actions(s, p, may_crash, actions));
        (0..2).for_each(|w| self.worker_actions(s, w, may_crash, actions));
        for instant in 1..=self.instants {
            let is_held = s.workers.iter().any(|w| w.owns(instant));
            if s.row(instant).is_live() && (!is_held || s.freezes < 1) {
                actions.push(Action::Expire(instant));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut s = *before;
        self.perform(&mut s, action)?;
        self.watch(&mut s);
        self.forget_refused_records(&mut s);
        s.normalise();
        self.forget_refused_advances(&mut s);
        s.schedulers.sort_unstable();
        (s != *before).then_some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! always {
            ($($name:ident)*) => { vec![$(Property::<Self>::always(Broken::$name.name(), |_, s: &State| {
                s.broken != Some(Broken::$name)
            })),*] };
        }
        let mut all = always!(Lost Twice Early Cancel Pause Final False Zombie DeadLetter Stuck Attempts);
        // The promises have windows, and the model reaches them.
        all.push(Property::sometimes(super::CALLED_AFTER_CANCEL, |_, s: &State| {
            s.job.state == JobState::Cancelled && s.workers.iter().any(|w| matches!(w, Worker::Called { .. }))
        }));
        all.push(Property::sometimes(super::RANGE_OVER_A_RUN, |_, s: &State| {
            (1..=MOST_INSTANTS as u8).any(|instant| s.is_in_range(instant) && s.row(instant).is_live())
        }));
        all
    }
}

impl Protocol {
    fn scheduler_actions(&self, s: &State, p: usize, may_crash: bool, actions: &mut Vec<Action>) {
        match s.schedulers[p] {
            Scheduler::Idle => {
                let is_read = s.job.state == JobState::Active && s.job.due <= s.now + 1; // the look-ahead
                if is_read && s.job.next <= self.instants {
                    actions.push(Action::Dispatch(p));
                }
            }
            Scheduler::Fire { reading, .. } | Scheduler::Skip { reading, .. } => {
                let is_fire = matches!(s.schedulers[p], Scheduler::Fire { .. });
                let is_under_way = reading.message.instant > reading.from && reading.is_fresh;
                actions.push(Action::Dispatch(p));
                if is_fire && is_under_way {
                    actions.push(Action::FailSend(p));
                }
                if is_fire && may_crash && s.messages().count() < 2 {
                    actions.push(Action::SendTwice(p));
                }
                // A crash after a mere read leaves nothing behind.
                if is_under_way && may_crash {
                    actions.push(Action::DispatchCrash(p));
                }
            }
            Scheduler::Advance { .. } | Scheduler::FireLate { .. } | Scheduler::SkipLate { .. } => {
                actions.push(Action::Dispatch(p));
                if may_crash {
                    actions.push(Action::DispatchCrash(p));
                }
            }
        }
    }

    fn worker_actions(&self, s: &State, w: usize, may_crash: bool, actions: &mut Vec<Action>) {
        match s.workers[w] {
            Worker::Idle => {
                for (place, m) in s.queue.iter().enumerate() {
                    if m.is_some_and(|m| s.lapses < 1 || !s.is_held(m)) {
                        actions.push(Action::Receive(w, place));
                        actions.extend(s.stale.map(|_| Action::ReceiveStale(w, place)));
                    }
                }
                return;
            }
            Worker::Calling { .. } => {
                actions.extend(Outcome::ALL.map(|outcome| Action::Call(w, outcome)));
                actions.push(Action::GiveUp(w));
            }
            Worker::Called { .. } if s.freezes < 1 && !self.rules.known_outcome_recorded => {
                actions.extend([Action::Work(w), Action::LoseHeartbeat(w)]);
            }
            _ => actions.push(Action::Work(w)),
        }
        // Before anything is written, a crash equals never having received the message.
        let has_written = !matches!(s.workers[w], Worker::Screened { .. } | Worker::Ending { .. });
        if !has_written {
            actions.push(Action::GiveBack(w));
        }
        if may_crash && has_written {
            actions.push(Action::WorkCrash(w));
        }
        if may_crash && matches!(s.workers[w], Worker::Called { .. } | Worker::Letter { .. } | Worker::Ending { .. }) {
            actions.push(Action::WorkKeep(w));
        }
    }

    fn perform(&self, s: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => {
                s.now += 1;
                s.forget_what_is_no_longer_ahead();
            }
            Action::Change(change) => self.change(s, change)?,
            Action::Dispatch(p) => s.schedulers[p] = self.dispatch(s, s.schedulers[p])?,
            Action::SendTwice(p) => {
                let Scheduler::Fire { reading, .. } = s.schedulers[p] else { return None };
                s.schedulers[p] = self.dispatch(s, s.schedulers[p])?;
                s.crashes += 1;
                s.send(reading.message);
            }
            Action::FailSend(p) => s.schedulers[p] = self.fail_send(s.schedulers[p])?,
            Action::DispatchCrash(p) => {
                s.crashes += 1;
                s.schedulers[p] = Scheduler::Idle;
            }
            Action::Receive(w, place) => self.receive(s, w, place, s.job)?,
            Action::ReceiveStale(w, place) => self.receive(s, w, place, s.stale?)?,
            Action::Work(w) => self.work(s, w),
            Action::WorkKeep(w) => {
                let queue = s.queue;
                s.crashes += 1;
                self.work(s, w);
                s.queue = queue;
                s.workers[w] = Worker::Idle;
            }
            Action::WorkCrash(w) => {
                s.crashes += 1;
                if let Worker::Called { m, .. } = s.workers[w] {
                    s.run(m.instant).is_excused |= self.excuses();
                }
                s.workers[w] = Worker::Idle;
            }
            Action::Call(w, outcome) => s.workers[w] = self.call(s, s.workers[w], outcome)?,
            Action::GiveBack(w) => s.workers[w] = Worker::Idle,
            Action::GiveUp(w) => {
                let Worker::Calling { m, is_owner, .. } = s.workers[w] else { return None };
                s.workers[w] = self.give_up(s, m, is_owner);
            }
            Action::LoseHeartbeat(w) => {
                s.freezes += 1;
                s.workers[w] = Worker::Idle;
            }
            Action::Expire(instant) => {
                if let Some(holder) = s.workers.iter_mut().find(|w| w.owns(instant)) {
                    s.freezes += 1;
                    match holder {
                        Worker::Calling { was_frozen, .. } => *was_frozen = true,
                        _ => s.run(instant).is_excused |= self.excuses(),
                    }
                }
                s.run(instant).row.is_expired = true;
            }
        }
        Some(())
    }

    fn receive(&self, s: &mut State, w: usize, place: usize, job: Job) -> Option<()> {
        let m = s.queue[place]?;
        s.lapses += u8::from(s.is_held(m));
        s.workers[w] = self.screen(s, m, job);
        Some(())
    }

    fn work(&self, s: &mut State, w: usize) {
        s.workers[w] = match s.workers[w] {
            Worker::Ending { m, ending } => self.end(s, m, ending),
            Worker::Screened { m, bar, seen } => self.begin(s, m, bar, seen),
            Worker::Called { m, is_owner, outcome } => self.record(s, m, is_owner, outcome),
            Worker::Letter { m } => {
                s.run(m.instant).has_letter = true;
                s.delete(m);
                Worker::Idle
            }
            worker @ (Worker::Calling { .. } | Worker::Idle) => worker,
        };
    }

    /// Where a run whose holder is gone is tried again, a crash or a freeze excuses a second delivery.
    pub fn excuses(&self) -> bool {
        !self.holds_lost
    }

    /// A worker whose record can only be refused is as good as idle.
    fn forget_refused_records(&self, s: &mut State) {
        for w in 0..s.workers.len() {
            let Worker::Called { m, is_owner, .. } = s.workers[w] else { continue };
            if self.rules.fenced_record && !(is_owner && s.row(m.instant).status == Status::Running) {
                s.workers[w] = Worker::Idle;
            }
        }
    }
}

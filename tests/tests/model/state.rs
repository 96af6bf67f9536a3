//! What exists: one job, the rows of its runs, one queue, and the processes at work on them.
//!
//! Every value is the small image of a real one ([`super::real`]): instants, back-offs and the clock are steps of ten minutes,
//! generations are numbered by their order, tokens and versions are known only as "the present one" or not. Fields marked
//! *ghost* are no part of the system; they serve the properties alone.

use super::properties::Broken;

/// The last step of the clock, which begins at 0. The job's firings are at 1 and, if there are two, at 2.
pub const END: u8 = 3;
/// Attempts of a run.
pub const MOST_ATTEMPTS: u8 = 2;
/// Firings of the job, at most.
pub const MOST_INSTANTS: usize = 2;
/// Messages in the queue, at most.
pub const MOST_MESSAGES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    Active,
    Paused,
    Done,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job {
    pub state: JobState,
    /// The next firing; one more than the last instant when nothing is to come.
    pub next: u8,
    /// When that firing is due: later than its instant if a change made it due.
    pub due: u8,
    /// The last firing of its schedule.
    pub last: u8,
    /// The last firing it passed, if that lies ahead; zero = none does.
    pub passed: u8,
    /// Since when the schedule decides what follows that firing; zero = it always did.
    pub decided: u8,
    pub generation: u8,
    /// For each instant, the generation that decides it.
    pub decides: [u8; MOST_INSTANTS],
    /// Ghost: the first instant that this life of the job owes.
    pub first: u8,
    /// Ghost: the last one. An edit owes nothing that is past already.
    pub owes: u8,
}

impl Job {
    pub fn deciding(&self, instant: u8) -> u8 {
        self.decides[usize::from(instant) - 1]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// There is no row.
    None,
    Running,
    Retrying,
    /// Skipped as cancelled or superseded: a later generation may still run the instant.
    Void,
    /// Skipped by its deadline or as missed.
    Skipped,
    Succeeded,
    Failed,
    Dead,
    Indeterminate,
    /// Any of the five, with its dead letter if it needs one: how it ended makes no difference any more.
    Ended,
}

impl Status {
    /// Whether a dead letter belongs to it.
    pub fn has_letter(self) -> bool {
        matches!(self, Status::Dead | Status::Indeterminate)
    }

    pub fn is_open(self) -> bool {
        matches!(self, Status::Running | Status::Retrying)
    }

    pub fn is_final(self) -> bool {
        self.has_letter() || matches!(self, Status::Skipped | Status::Succeeded | Status::Failed | Status::Ended)
    }
}

/// A row. What its status makes meaningless is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    pub status: Status,
    pub attempt: u8,
    /// Running: its lease and grace are over.
    pub is_expired: bool,
    /// Its back-off ends here.
    pub not_before: u8,
    pub generation: u8,
    pub void_gen: u8,
    /// Skipped: the last instant of the range that it stands for; zero = its own only.
    pub covers: u8,
}

impl Row {
    pub const NONE: Row = Row {
        status: Status::None,
        attempt: 0,
        is_expired: false,
        not_before: 0,
        generation: 0,
        void_gen: 0,
        covers: 0,
    };

    pub fn is_live(self) -> bool {
        self.status == Status::Running && !self.is_expired
    }

    /// The row without what no rule will ask about again.
    pub fn normal(mut self, now: u8) -> Row {
        self.not_before = if self.not_before > now { self.not_before } else { 0 };
        match self.status {
            Status::None => Row::NONE,
            Status::Running => Row { not_before: 0, void_gen: 0, covers: 0, ..self },
            Status::Retrying => Row { is_expired: false, void_gen: 0, covers: 0, ..self },
            Status::Void => Row { is_expired: false, covers: 0, ..self },
            Status::Skipped if self.covers > 0 => {
                Row { status: Status::Skipped, generation: self.generation, covers: self.covers, ..Row::NONE }
            }
            status @ (Status::Dead | Status::Indeterminate) => Row { status, ..Row::NONE },
            Status::Skipped | Status::Succeeded | Status::Failed | Status::Ended => {
                Row { status: Status::Ended, ..Row::NONE }
            }
        }
    }

    fn generations(&mut self) -> [Option<&mut u8>; 2] {
        let is_void = self.status == Status::Void;
        let counts = is_void || self.status.is_open() || self.covers > 0;
        [counts.then_some(&mut self.generation), is_void.then_some(&mut self.void_gen)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    pub instant: u8,
    pub due: u8,
    pub generation: u8,
    /// Ghost: enqueued for a life of the job that was cancelled since.
    pub is_former: bool,
    /// Tells physical copies apart: a delete removes only its own.
    pub copy: u8,
}

/// What a scheduler found due, with what it read: it may be out of date by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reading {
    /// The firing that the job stood at.
    pub from: u8,
    /// The message of that firing, or of a later one whose turn it is.
    pub message: Message,
    /// The job's version is still the one that was read.
    pub is_fresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheduler {
    Idle,
    /// Decided: enqueue the runs up to `last`, then advance to `to`.
    Fire {
        reading: Reading,
        last: u8,
        to: u8,
    },
    /// Decided: write a row for each firing up to `last`, or, unless `covers` is zero, one for all up to there; then advance
    /// to `to`.
    Skip {
        reading: Reading,
        covers: u8,
        last: u8,
        to: u8,
    },
    /// The run is in the queue, or the skip is a row: advance from where the job was read.
    Advance {
        from: u8,
        is_fresh: bool,
        to: u8,
    },
    /// Advanced already: enqueue (only without `enqueue_first`).
    FireLate {
        reading: Reading,
    },
    /// Advanced already: write the row (only without `skip_row_first`).
    SkipLate {
        reading: Reading,
        covers: u8,
    },
}

impl Scheduler {
    pub fn message_mut(&mut self) -> Option<&mut Message> {
        match self {
            Scheduler::Idle | Scheduler::Advance { .. } => None,
            Scheduler::Fire { reading, .. } | Scheduler::Skip { reading, .. } => Some(&mut reading.message),
            Scheduler::FireLate { reading } | Scheduler::SkipLate { reading, .. } => Some(&mut reading.message),
        }
    }

    /// Somebody changed the job since it was read.
    pub fn outdate(&mut self) {
        match self {
            Scheduler::Idle | Scheduler::FireLate { .. } | Scheduler::SkipLate { .. } => {}
            Scheduler::Advance { is_fresh, .. } => *is_fresh = false,
            Scheduler::Fire { reading, .. } | Scheduler::Skip { reading, .. } => reading.is_fresh = false,
        }
    }
}

/// Why no call may come of this screen. Ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bar {
    Free,
    Paused,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Delivered,
    Temporary,
    Permanent,
    /// It may have been delivered: the adversary says that it was.
    Unknown,
}

impl Outcome {
    pub const ALL: [Outcome; 4] = [Outcome::Delivered, Outcome::Temporary, Outcome::Permanent, Outcome::Unknown];
}

/// How a message ends without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    Void { void_gen: u8, is_cancel: bool },
    TooLate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Worker {
    Idle,
    /// The screen says how the message ends: write its row.
    Ending {
        m: Message,
        ending: Ending,
    },
    /// The screen lets it pass: begin. `seen` is the row that was looked at (kept only without `row_compared`).
    Screened {
        m: Message,
        bar: Bar,
        seen: Row,
    },
    /// Begun: call. `is_owner`: the row still carries my token. `was_frozen` (ghost): it stood still since, and may go on
    /// as if nothing had been.
    Calling {
        m: Message,
        is_owner: bool,
        bar: Bar,
        was_frozen: bool,
    },
    /// Called: record.
    Called {
        m: Message,
        is_owner: bool,
        outcome: Outcome,
    },
    /// The row is dead or indeterminate: dead letter, then delete.
    Letter {
        m: Message,
    },
}

impl Worker {
    pub fn message(mut self) -> Option<Message> {
        self.message_mut().copied()
    }

    pub fn message_mut(&mut self) -> Option<&mut Message> {
        match self {
            Worker::Idle => None,
            Worker::Letter { m } | Worker::Ending { m, .. } | Worker::Screened { m, .. } => Some(m),
            Worker::Calling { m, .. } | Worker::Called { m, .. } => Some(m),
        }
    }

    /// Between begin and record.
    pub fn runs(&self, instant: u8) -> bool {
        matches!(self, Worker::Calling { m, .. } | Worker::Called { m, .. } if m.instant == instant)
    }

    pub fn owns(&self, instant: u8) -> bool {
        let is_owner = matches!(self, Worker::Calling { is_owner: true, .. } | Worker::Called { is_owner: true, .. });
        is_owner && self.runs(instant)
    }

    pub fn disown(&mut self) {
        if let Worker::Calling { is_owner, .. } | Worker::Called { is_owner, .. } = self {
            *is_owner = false;
        }
    }
}

/// One firing: its row, and what the properties must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    pub row: Row,
    /// Its dead letter exists.
    pub has_letter: bool,
    /// Ghost: attempts begun and not given back.
    pub begun: u8,
    /// Ghost: the back-off that the last failed attempt asked for ends here.
    pub rests_until: u8,
    /// Ghost: it was delivered.
    pub is_delivered: bool,
    /// Ghost: a crash or a freeze between a call and its record, or a freeze before it, explains a second delivery.
    pub is_excused: bool,
}

impl Run {
    pub const NEW: Run =
        Run { row: Row::NONE, has_letter: false, begun: 0, rests_until: 0, is_delivered: false, is_excused: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    pub job: Job,
    /// What an eventually consistent read may still return (only without `consistent_read`).
    pub stale: Option<Job>,
    pub runs: [Run; MOST_INSTANTS],
    /// Sorted, the free places last.
    pub queue: [Option<Message>; MOST_MESSAGES],
    pub schedulers: [Scheduler; 2],
    pub workers: [Worker; 2],
    pub changes: u8,
    pub crashes: u8,
    pub freezes: u8,
    /// How often a message was given to a second worker while the first held it.
    pub lapses: u8,
    pub broken: Option<Broken>,
}

impl State {
    pub fn run(&mut self, instant: u8) -> &mut Run {
        &mut self.runs[usize::from(instant) - 1]
    }

    pub fn row(&self, instant: u8) -> Row {
        self.runs[usize::from(instant) - 1].row
    }

    /// Whether a row of an earlier firing stands for this one, too.
    pub fn is_in_range(&self, instant: u8) -> bool {
        self.runs.iter().any(|run| run.row.covers >= instant)
    }

    pub fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.queue.iter().flatten().copied()
    }

    pub fn is_queued(&self, m: Message) -> bool {
        self.messages().any(|queued| queued == m)
    }

    pub fn is_held(&self, m: Message) -> bool {
        self.workers.iter().any(|w| w.message() == Some(m))
    }

    /// Puts a message into the queue; false when that would leave the model's bounds.
    pub fn send(&mut self, message: Message) -> bool {
        let mut m = Message { copy: 0, ..message };
        let copies = self.messages().filter(|queued| Message { copy: 0, ..*queued } == m).count();
        let free = self.queue.iter().position(Option::is_none).filter(|_| copies < 2);
        let Some(free) = free else { return false };
        while self.is_queued(m) || self.is_held(m) {
            m.copy += 1;
        }
        self.queue[free] = Some(m);
        true
    }

    pub fn delete(&mut self, m: Message) {
        self.queue.iter_mut().filter(|queued| **queued == Some(m)).for_each(|queued| *queued = None);
    }

    pub fn breaks(&mut self, property: Broken) {
        self.broken.get_or_insert(property);
    }

    /// Whether nothing can change the run any more, and nothing is left to do about it.
    pub fn is_over(&self, instant: u8) -> bool {
        let run = &self.runs[usize::from(instant) - 1];
        matches!(run.row.status, Status::Ended | Status::Skipped)
    }

    /// Gives states that behave alike one name: what can have no effect is dropped, what is interchangeable is put in
    /// order.
    pub fn normalise(&mut self) {
        for instant in 1..=MOST_INSTANTS as u8 {
            self.normalise_run(instant);
        }
        self.normalise_decides();
        self.number_copies();
        self.number_generations();
        self.queue.sort_unstable_by_key(|m| (m.is_none(), *m));
        self.workers.sort_unstable();
        self.schedulers.sort_unstable();
    }

    fn normalise_run(&mut self, instant: u8) {
        let now = self.now;
        let run = self.run(instant);
        if run.row.status.has_letter() && run.has_letter {
            (run.row.status, run.has_letter) = (Status::Ended, false);
        }
        run.row = run.row.normal(now);
        run.rests_until = if run.rests_until > now { run.rests_until } else { 0 };
        // A second delivery that is excused breaks nothing.
        run.is_delivered &= !run.is_excused;
        if run.row.status.is_final() {
            (run.begun, run.rests_until) = (0, 0);
        }
        if self.is_over(instant) {
            self.forget(instant);
        }
    }

    /// Who decides an instant that is over makes no difference: the nearest other one that is not is named.
    fn normalise_decides(&mut self) {
        let [first, second] = self.job.decides;
        self.job.decides = match (self.is_over(1), self.is_over(2)) {
            (false, false) => [first, second],
            (true, false) => [second, second],
            (false, true) => [first, first],
            (true, true) => [self.job.generation; 2],
        };
    }

    /// A delivery of a run that is over is deleted when it comes. Nothing else is left of it but what is in hand.
    fn forget(&mut self, instant: u8) {
        for place in 0..MOST_MESSAGES {
            if self.queue[place].is_some_and(|m| m.instant == instant && !self.is_held(m)) {
                self.queue[place] = None;
            }
        }
        if !self.workers.iter().any(|w| w.message().is_some_and(|m| m.instant == instant)) {
            let run = self.run(instant);
            (run.is_delivered, run.is_excused) = (false, false);
        }
    }

    /// The copy that is held, or the only one, is number 0.
    fn number_copies(&mut self) {
        for k in 0..MOST_MESSAGES {
            let Some(m) = self.queue[k].filter(|m| m.copy > 0) else { continue };
            let zero = Message { copy: 0, ..m };
            if !self.is_held(zero) && (self.is_held(m) || !self.is_queued(zero)) {
                let swap = |x: &mut Message| {
                    *x = match *x {
                        x if x == m => zero,
                        x if x == zero => m,
                        x => x,
                    }
                };
                self.queue.iter_mut().flatten().for_each(swap);
                self.workers.iter_mut().filter_map(Worker::message_mut).for_each(swap);
            }
        }
    }

    /// A firing that was passed concerns nobody once its instant has come.
    pub fn forget_what_is_no_longer_ahead(&mut self) {
        for job in [Some(&mut self.job), self.stale.as_mut()].into_iter().flatten() {
            job.passed = if job.passed > self.now { job.passed } else { 0 };
        }
    }

    /// Generations are compared and nothing else: the lowest in use is 0, and so on.
    fn number_generations(&mut self) {
        let mut used = 0u32;
        self.each_generation(|g| used |= 1 << *g);
        if used & (used + 1) != 0 {
            self.each_generation(|g| *g = (used & ((1 << *g) - 1)).count_ones() as u8);
        }
    }

    fn each_generation(&mut self, mut visit: impl FnMut(&mut u8)) {
        for job in [Some(&mut self.job), self.stale.as_mut()].into_iter().flatten() {
            visit(&mut job.generation);
            job.decides.iter_mut().for_each(&mut visit);
        }
        self.runs.iter_mut().flat_map(|run| run.row.generations()).flatten().for_each(&mut visit);
        self.queue.iter_mut().flatten().for_each(|m| visit(&mut m.generation));
        let decided = self.schedulers.iter_mut().filter_map(Scheduler::message_mut);
        decided.for_each(|m| visit(&mut m.generation));
        for worker in &mut self.workers {
            match worker {
                Worker::Ending { ending: Ending::Void { void_gen, .. }, .. } => visit(void_gen),
                Worker::Screened { seen, .. } => seen.generations().into_iter().flatten().for_each(&mut visit),
                _ => {}
            }
            if let Some(m) = worker.message_mut() {
                visit(&mut m.generation);
            }
        }
    }
}

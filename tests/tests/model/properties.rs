//! What must hold after every step.

use super::Protocol;
use super::state::{JobState, State, Status, Worker};

macro_rules! properties {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// A property that a step broke.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Broken { $($(#[doc = $doc])+ $name),* }

        impl Broken {
            /// All of them.
            pub const ALL: &'static [Broken] = &[$(Broken::$name),*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Broken::$name => stringify!($name)),* }
            }
        }
    };
}

properties! {
    /// The job was advanced past a firing that has neither a row that ends it nor a message that may run it.
    Lost,
    /// A second delivery, and neither a crash nor a freeze between a call and its record.
    Twice,
    /// A call before the run was due, or inside its back-off.
    Early,
    /// A call whose screen began after the cancel.
    Cancel,
    /// A call whose screen began after the pause.
    Pause,
    /// A row that had ended was changed.
    Final,
    /// History says "skipped" over a run that is under way or was delivered.
    False,
    /// An advance put a job back into the index that is not active.
    Zombie,
    /// A dead or indeterminate run without a dead letter, and nobody who would send one.
    DeadLetter,
    /// An open row without a message.
    Stuck,
    /// More attempts than the job's rule allows.
    Attempts,
}

impl Protocol {
    /// The properties that are about what is there. The others are checked where a step is made.
    pub fn watch(&self, s: &mut State) {
        if let Some(broken) = (1..=self.instants).find_map(|instant| missing(s, instant)) {
            s.breaks(broken);
        }
    }
}

/// What is missing for one firing, if anything.
fn missing(s: &State, instant: u8) -> Option<Broken> {
    let (job, run) = (s.job, s.runs[usize::from(instant) - 1]);
    let is_alive = job.state != JobState::Cancelled;
    if is_alive && job.next <= instant {
        return None; // dispatch will come to it
    }
    let is_queued = s.messages().any(|m| m.instant == instant);
    let may_run = |deciding| s.messages().any(|m| m.instant == instant && m.generation >= deciding);
    let is_held = s.workers.iter().any(|w| match w {
        Worker::Letter { m } => m.instant == instant,
        w => w.runs(instant),
    });
    match run.row.status {
        Status::None | Status::Void
            if is_alive && (job.first..=job.owes).contains(&instant) && !s.is_in_range(instant) =>
        {
            (!may_run(job.deciding(instant))).then_some(Broken::Lost)
        }
        Status::Running | Status::Retrying if !is_queued && !is_held => Some(Broken::Stuck),
        Status::Dead | Status::Indeterminate if !run.has_letter && !is_queued && !is_held => Some(Broken::DeadLetter),
        _ => None,
    }
}

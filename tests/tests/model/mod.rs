//! An executable model of dispatch, work and changes: one job with one or two firings, two schedulers, two workers, one
//! queue, and people who edit, pause, resume, cancel and make the job again. What a step does is asked of the functions of
//! `punctual_core` that the services ask; the model restates only what the services do with the answers.
//!
//! | module | holds |
//! |---|---|
//! | `state` | what exists, and which states are the same |
//! | `real`, `rows` | the real values behind the small ones, and the real rules asked about them |
//! | `people`, `dispatch`, `work` | the processes, one function a step |
//! | `adversary` | what may happen, in any order |
//! | `properties` | what must hold after every step |
//! | `rules` | what can be taken away, to see that a property needs it |
//!
//! The adversary lets any process take its next step; crash it before or after each write that matters; have a message
//! sent twice; let the lease of one run end under a holder that is not dead but frozen; give one message to a second worker
//! while the first holds it; have a worker give back what it has not begun, or what it has begun and not called; let time pass.
//! Bounds: the clock ends at step 3, a run is too late two steps after it is due, a scheduler looks one step ahead, a run has
//! two attempts, the queue holds three messages, at most two of them alike.
//!
//! Taken on trust: that a conditional write happens once and wholly, so that a change, an advance or a row is one step; that
//! a loop of look, decide and write on a row comes to deciding over the row that is there.
//!
//! Not modelled: leases of shards and rates, the due index and its cursor, spread, quarantine, runs by hand, edits that add
//! or drop a firing, expiry of rows, and whether anything happens at all (only that nothing is
//! left without a message or a due job).

mod adversary;
mod dispatch;
mod people;
mod properties;
mod real;
mod rows;
mod rules;
mod state;
mod work;

pub use properties::Broken;
pub use real::Real;
pub use rules::Rules;

/// A run that is called after the acknowledgement of a cancel, because its screen began before.
pub const CALLED_AFTER_CANCEL: &str = "called after a cancel, screened before";
/// A range row that covers a firing which another scheduler has sent meanwhile: the firing's own row is the one that counts.
pub const RANGE_OVER_A_RUN: &str = "a range row over a firing that runs";

/// One job and all that may happen around it.
pub struct Protocol {
    pub rules: Rules,
    pub real: Real,
    pub instants: u8,
    pub most_changes: u8,
    pub most_crashes: u8,
    /// A run whose holder is gone is left to a person, and not tried again.
    pub holds_lost: bool,
}

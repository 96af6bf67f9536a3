//! An executable model of dispatch, work and changes.

mod adversary;
mod dispatch;
mod people;
mod properties;
mod real;
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
}

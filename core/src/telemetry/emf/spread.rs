//! The values that samples are rounded to: 0, and from a tenth of a millisecond to two months steps of a tenth.
//!
//! A sample differs from its value by at most 5 %, so percentiles do too. Samples from 1 ms to 10 s are 98 values,
//! which fit into one line.

/// The smallest value that is told apart from 0.
const FLOOR: f64 = 1e-4;
/// From each value to the next.
const STEP: f64 = 1.1;
/// 0, and enough steps to get beyond 60 days, for which rows are kept: no lag is longer.
pub(super) const VALUES: usize = 261;

/// The number of the value that a sample is rounded to; none for what is no number. What is larger than all goes to the largest.
pub(super) fn index(sample: f64) -> Option<usize> {
    if sample.is_nan() {
        return None;
    }
    if sample < FLOOR / STEP.sqrt() {
        return Some(0);
    }
    let steps = ((sample / FLOOR).ln() / STEP.ln()).round();
    Some(steps.min((VALUES - 2) as f64) as usize + 1)
}

/// The value of this number, to four digits: more would only make lines longer.
pub(super) fn value(index: usize) -> f64 {
    let Some(steps) = index.checked_sub(1) else { return 0.0 };
    let exact = FLOOR * STEP.powi(i32::try_from(steps).unwrap_or(i32::MAX));
    let digits = 3 - exact.log10().floor() as i32;
    let rounded = (exact * 10f64.powi(digits)).round();
    if digits >= 0 { rounded / 10f64.powi(digits) } else { rounded * 10f64.powi(-digits) }
}

//! What it costs a process to tell its metrics: the same work with and without, turn by turn.

use super::figures::{median, row};
use serde::Serialize;

/// The most that telling should add.
const TARGET_TIMES: f64 = 1.05;

/// CPU time of one piece of work, in microseconds, in pairs.
#[derive(Debug, Default, Serialize)]
pub struct Telling {
    /// Without metrics.
    pub without_us: Vec<f64>,
    /// With them, as they are where nothing is set.
    pub with_us: Vec<f64>,
    /// With by without: the median of all pairs.
    pub times: f64,
}

impl Telling {
    /// The setting of what is measured next; the first of a pair differs from pair to pair, so that what goes before what
    /// does not count.
    pub fn next(&self) -> &'static str {
        let (without, with) = (self.without_us.len(), self.with_us.len());
        let is_with = if without == with { with % 2 == 1 } else { with < without };
        if is_with { "prometheus" } else { "off" }
    }

    /// Takes the figure of what [`next`](Self::next) said.
    pub fn note(&mut self, cpu_us: f64) {
        if self.next() == "off" {
            self.without_us.push(cpu_us)
        } else {
            self.with_us.push(cpu_us)
        }
        let pairs = self.with_us.iter().zip(&self.without_us);
        let times: Vec<f64> = pairs.map(|(with, without)| with / without).collect();
        if !times.is_empty() {
            self.times = median(times);
        }
    }

    /// Shows it.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn show(&self) -> std::io::Result<()> {
        row("CPU without metrics", format!("{:.1} µs a run {:.1?}", median(self.without_us.clone()), self.without_us))?;
        row("CPU with metrics", format!("{:.1} µs a run {:.1?}", median(self.with_us.clone()), self.with_us))?;
        row("with by without", format!("{:.3}×, median of the pairs (target {TARGET_TIMES})", self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_both_and_each_goes_first_in_turn() {
        let mut telling = Telling::default();
        let mut order = Vec::new();
        for n in 0..6 {
            order.push(telling.next());
            telling.note(if telling.next() == "off" { 100.0 } else { 100.0 + f64::from(n) });
        }
        assert_eq!(order, ["off", "prometheus", "prometheus", "off", "off", "prometheus"]);
        assert_eq!((telling.without_us.len(), telling.with_us.len()), (3, 3));
        assert!((telling.times - 1.02).abs() < 1e-9, "{telling:?}");
    }
}

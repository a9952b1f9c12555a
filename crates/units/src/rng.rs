//! The seeded random generator: the same seed gives the same stream on every machine.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A reproducible generator (xoshiro256++, Blackman and Vigna 2019). Not for keys: those come from
/// the operating system.
#[derive(Clone, Debug)]
pub struct SeededRng(Xoshiro256PlusPlus);

impl SeededRng {
    /// The stream that belongs to `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent stream for part `index` of the work, so that parts may run in any order.
    pub fn from_seed_and_index(seed: u64, index: u64) -> Self {
        // SplitMix64's increment keeps neighbouring indices apart (Steele et al. 2014).
        Self::from_seed(seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Uniform over all 64-bit values.
    pub fn next_u64(&mut self) -> u64 {
        self.0.random()
    }

    /// Uniform in [0, 1).
    pub fn next_uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Uniform in 0..`bound`; `bound` must not be 0.
    pub fn next_below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// A standard normal value (Box and Muller, Annals of Mathematical Statistics 29, 1958).
    pub fn next_normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.next_uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_uniform()).cos()
    }

    /// A random order of `items` (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.next_below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn seed_names_one_stream() {
        let mut first = SeededRng::from_seed(7);
        let mut second = SeededRng::from_seed(7);
        let mut other = SeededRng::from_seed_and_index(7, 1);
        let drawn: Vec<u64> = (0..8).map(|_| first.next_u64()).collect();
        assert!(drawn.iter().all(|value| *value == second.next_u64()));
        assert!(drawn.iter().any(|value| *value != other.next_u64()));
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        SeededRng::from_seed(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn every_order_is_equally_likely() {
        let mut rng = SeededRng::from_seed(3);
        let mut counts = BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            rng.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6, "{counts:?}");
        // Of each 1000 are expected, and 29 is a standard deviation.
        assert!(counts.values().all(|count| (870..=1130).contains(count)), "{counts:?}");
    }
}

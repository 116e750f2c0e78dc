//! Seeded random numbers, with a separate stream for each consumer.
//!
//! A stream is keyed by the run's seed and the path of its consumer, so that adding a stage never changes the draws of
//! another one. The generator is PCG-XSL-RR 128/64 (O'Neill 2014). It must not change: the same seed gives the same
//! traffic on every machine and in every release.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    /// The stream for `path` in a run with `seed`.
    #[must_use]
    pub fn stream(seed: u64, path: &str) -> Self {
        // FNV-1a with 128 bits. Any stable hash would do; the one of the standard library is not stable.
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in seed.to_le_bytes().iter().chain(path.as_bytes()) {
            hash ^= u128::from(*byte);
            hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Random(Pcg64::new(hash, hash.rotate_left(64)))
    }

    /// The stream `name` below this one. Does not change the draws of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Random::stream(self.clone().bits(), name)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer in `0..bound`, without bias (Lemire 2019).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no integer below zero");
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            let low = product as u64;
            // Rejects draws that would favour small values. The comparison with the bound comes first because it avoids
            // most of the divisions.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform integer in `0..bound`. Draws the same values as [`below`](Random::below) if the bound fits.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub(crate) fn below_wide(&mut self, bound: u128) -> u128 {
        if let Ok(bound) = u64::try_from(bound) {
            return self.below(bound).into();
        }
        let unused = (bound - 1).leading_zeros();
        loop {
            // More than half of the numbers with this many bits are below the bound.
            let drawn = (u128::from(self.bits()) << 64 | u128::from(self.bits())) >> unused;
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: units::Share) -> bool {
        self.below(u64::from(units::Share::ONE.ppb())) < u64::from(share.ppb())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned() {
        // These numbers must never change: recorded runs depend on them.
        let mut random = Random::stream(7, "sizes");
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(drawn, PINNED);
    }

    #[test]
    fn draws_match_the_definition_for_all_bounds() {
        for bound in
            (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1, 3 << bit >> 1]).chain([u64::MAX - 1, u64::MAX])
        {
            let (mut random, mut bits) = (Random::stream(7, "rule"), Random::stream(7, "rule"));
            for _ in 0..20 {
                let by_rule = std::iter::repeat_with(|| u128::from(bits.bits()) * u128::from(bound))
                    .find(|product| *product as u64 >= bound.wrapping_neg() % bound);
                assert_eq!(Some(random.below(bound)), by_rule.map(|product| (product >> 64) as u64), "{bound}");
            }
        }
    }

    const PINNED: [u64; 4] = [930_873, 31_471, 87_151, 372_902];

    #[test]
    fn streams_differ_by_seed_and_path() {
        let first = |seed, path| Random::stream(seed, path).bits();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }

    #[test]
    fn integers_are_uniform() {
        let mut random = Random::stream(1, "uniform");
        let mut counts = [0_i64; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // Six standard deviations of a binomial with n = 70 000, p = 1/7.
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 6 * 93), "{counts:?}");
    }
    #[test]
    fn wide_integers_are_uniform_and_narrow_ones_unchanged() {
        let (mut narrow, mut wide) = (Random::stream(7, "sizes"), Random::stream(7, "sizes"));
        assert!((0..100).all(|_| u128::from(narrow.below(1_000_000)) == wide.below_wide(1_000_000)));
        // Five quarters of 2⁹⁶: each quarter is equally likely.
        let mut counts = [0_i64; 5];
        for _ in 0..50_000 {
            counts[(wide.below_wide(5 << 94) >> 94) as usize] += 1;
        }
        // Six standard deviations of a binomial with n = 50 000, p = 1/5.
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 6 * 90), "{counts:?}");
        assert_ne!(wide.below_wide(u128::MAX) >> 64, 0);
    }
}

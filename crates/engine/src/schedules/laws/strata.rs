use crate::random::Random;

/// Uniform values, one from each of `count` equally likely strata, in random order; then again.
///
/// The order is a permutation that is computed and not stored: a Feistel network of four rounds over
/// the next even number of bits, walked until the value is one of those wanted (Black and Rogaway
/// 2002). So a run of any length takes no memory.
#[derive(Clone, Debug)]
pub(super) struct Strata {
    random: Random,
    count: u64,
    width: u64,
    half: u32,
    keys: [u64; 4],
    next: u64,
}

impl Strata {
    /// # Panics
    /// If `count` is zero.
    pub(super) fn new(count: u64, random: Random) -> Self {
        assert!(count > 0, "there is one stratum at least");
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        let width = u64::MAX / count;
        Strata { random, count, width, half: bits.div_ceil(2), keys: [0; 4], next: 0 }
    }

    /// The next uniform value as a fraction of 2⁶⁴.
    pub(super) fn bits(&mut self) -> u64 {
        if self.next == 0 {
            self.keys = std::array::from_fn(|_| self.random.bits());
        }
        let stratum = self.place(self.next);
        self.next = (self.next + 1) % self.count;
        let within = (u128::from(self.random.bits()) * u128::from(self.width)) >> 64;
        stratum * self.width + within as u64
    }

    fn place(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.permute(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn permute(&self, value: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (value >> self.half, value & mask);
        for key in self.keys {
            // High bits of a product depend on all bits below them.
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (left, right) = (right, (left ^ mixed) & mask);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stratum_once_in_an_order_that_tells_nothing() {
        for count in [1, 2, 3, 5, 64, 1_000, 99_999] {
            let mut strata = Strata::new(count, Random::stream(1, "strata"));
            for round in 0..2 {
                let drawn: Vec<u64> = (0..count).map(|_| strata.bits() / strata.width).collect();
                let mut sorted = drawn.clone();
                sorted.sort_unstable();
                assert!(sorted.iter().copied().eq(0..count), "{count} in round {round}");
                if count > 60_000 {
                    let n = count as f64;
                    let middle = (n - 1.0) / 2.0;
                    let product = |pair: &[u64]| (pair[0] as f64 - middle) * (pair[1] as f64 - middle);
                    let lag1 = drawn.windows(2).map(product).sum::<f64>() / (n * n * n / 12.0);
                    assert!(lag1.abs() < 5.0 / n.sqrt(), "neighbours correlate by {lag1}");
                }
            }
        }
    }
}

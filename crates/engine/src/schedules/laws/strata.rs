use crate::random::Random;

/// Uniform values, one from each of `count` equally likely strata, in random order. Then a new round starts.
///
/// The order is a permutation that is computed, not stored, so a run of any length needs no memory. It is a Feistel
/// network of four rounds whose halves are numbers below about √count instead of bit strings. The network is applied
/// again until the result is in range (Black and Rogaway 2002). At most about √count values are out of range, so
/// repetitions are rare.
#[derive(Clone, Debug)]
pub(super) struct Strata {
    random: Random,
    count: u64,
    /// Width of a stratum in the space of uniform values.
    width: u64,
    /// Upper bounds of the high and the low half.
    halves: (u64, u64),
    keys: [u64; 4],
    /// The halves of the next index.
    next: (u64, u64),
}

impl Strata {
    /// # Panics
    /// If `count` is zero.
    pub(super) fn new(count: u64, random: Random) -> Self {
        assert!(count > 0, "there is one stratum at least");
        let low = (count - 1).isqrt() + 1;
        let halves = (count.div_ceil(low), low);
        Strata { random, count, width: u64::MAX / count, halves, keys: [0; 4], next: (0, 0) }
    }

    /// The next uniform value as a fraction of 2⁶⁴.
    pub(super) fn bits(&mut self) -> u64 {
        let (high, low) = self.next;
        if (high, low) == (0, 0) {
            self.keys = std::array::from_fn(|_| self.random.bits());
        }
        let stratum = self.stratum_of(high, low);
        let next = if low + 1 == self.halves.1 { (high + 1, 0) } else { (high, low + 1) };
        self.next = if next.0 * self.halves.1 + next.1 == self.count { (0, 0) } else { next };
        let within = (u128::from(self.random.bits()) * u128::from(self.width)) >> 64;
        stratum * self.width + within as u64
    }

    fn stratum_of(&self, mut high: u64, mut low: u64) -> u64 {
        loop {
            (high, low) = self.permute(high, low);
            let value = high * self.halves.1 + low;
            if value < self.count {
                return value;
            }
        }
    }

    fn permute(&self, mut high: u64, mut low: u64) -> (u64, u64) {
        for keys in self.keys.chunks_exact(2) {
            high = turned(high, mixed(low, keys[0]), self.halves.0);
            low = turned(low, mixed(high, keys[1]), self.halves.1);
        }
        (high, low)
    }
}

/// A 32-bit hash of `value` and `key`.
fn mixed(value: u64, key: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    // The high bits of a product depend on all lower bits.
    let product = (value ^ key).wrapping_mul(ODD);
    (product ^ (product >> 32)).wrapping_mul(ODD) >> 32
}

/// `value` rotated modulo `count` by the fraction `by` ÷ 2³² of `count`.
fn turned(value: u64, by: u64, count: u64) -> u64 {
    let sum = value + ((by * count) >> 32);
    // The branch would be unpredictable and more expensive.
    std::hint::select_unpredictable(sum >= count, sum.wrapping_sub(count), sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_each_stratum_once_in_uncorrelated_order() {
        for count in [1, 2, 3, 5, 64, 1_000, 99_999, 99_856, 99_857] {
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
                    // Includes the lags at which one half of the index repeats.
                    for lag in (1..8).chain(314..320) {
                        let pairs = drawn.iter().zip(&drawn[lag..]).map(|(a, b)| product(&[*a, *b]));
                        let correlation = pairs.sum::<f64>() / (n * n * n / 12.0);
                        assert!(correlation.abs() < 5.0 / n.sqrt(), "those {lag} apart correlate by {correlation}");
                    }
                }
            }
        }
    }
}

use crate::held::DelayFigures;
use crate::histogram::Counts;
use crate::moments::Moments;
use crate::streams::Quantiles;

/// Delays whose quantiles are precise to 0.1 % of their distance from the first delay, because clocks may be far apart
/// and delays negative.
#[derive(Debug)]
pub(crate) struct Delays {
    first: i64,
    below: Counts,
    above: Counts,
    moments: Moments,
}

impl Delays {
    pub(crate) fn around(first: i64) -> Self {
        Delays { first, below: Counts::default(), above: Counts::default(), moments: Moments::default() }
    }

    pub(crate) fn record(&mut self, delay: i64) {
        self.moments.add(delay);
        let off = delay.saturating_sub(self.first);
        let side = if off < 0 { &mut self.below } else { &mut self.above };
        side.count(off.unsigned_abs(), 1);
    }

    /// Adds the delays of `other`, which may count from another first delay.
    pub(crate) fn merge(&mut self, other: &Delays) {
        self.moments.merge(&other.moments);
        let below = other.below.buckets().map(|bucket| (-1, bucket));
        for (sign, (off, times)) in below.chain(other.above.buckets().map(|bucket| (1, bucket))) {
            let off = i64::try_from(off).unwrap_or(i64::MAX);
            let off = other.first.saturating_add(sign * off).saturating_sub(self.first);
            let side = if off < 0 { &mut self.below } else { &mut self.above };
            side.count(off.unsigned_abs(), times);
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let (below, above) = (self.below.len(), self.above.len());
        let rank = ((below + above) as f64 * share).ceil().max(1.0) as u64;
        let off = if rank <= below {
            // The lowest rank is the farthest below.
            -(self.below.at_rank(below - rank + 1) as f64)
        } else {
            self.above.at_rank(rank - below) as f64
        };
        (self.first as f64 + off).clamp(self.moments.min() as f64, self.moments.max() as f64)
    }

    pub(crate) fn report(&self) -> DelayFigures {
        DelayFigures {
            mean_ns: self.moments.mean(),
            std_ns: self.moments.deviation(),
            min_ns: self.moments.min() as f64,
            max_ns: self.moments.max() as f64,
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            p999_ns: self.quantile(0.999),
        }
    }

    pub(crate) fn variation(&self) -> Quantiles {
        let least = self.moments.min() as f64;
        Quantiles {
            p50_ns: self.quantile(0.5) - least,
            p99_ns: self.quantile(0.99) - least,
            p999_ns: self.quantile(0.999) - least,
            max_ns: self.moments.max() as f64 - least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each rank is one delay: a quantile is the value of its rank, not of the next one.
    #[test]
    fn quantiles_of_few_delays_are_exact_ranks() {
        for count in 1..=60_u64 {
            for first in 0..count {
                let delay = |i: u64| (1_000 + (first + i) % count * 3) as i64;
                let mut delays = Delays::around(delay(0));
                (0..count).for_each(|i| delays.record(delay(i)));
                for share in [0.5, 0.99, 0.999] {
                    let rank = (count as f64 * share).ceil() as u64;
                    let expected = (1_000 + (rank - 1) * 3) as f64;
                    let got = delays.quantile(share);
                    assert!((got - expected).abs() < 1e-9, "{share} of {count} around {first}: {got}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn median_on_either_side_of_the_first_delay_is_its_rank() {
        // In floating point, 7 ÷ 50 × 50 is more than 7.
        for side in [1_i64, -1] {
            let mut delays = Delays::around(0);
            (0..50).chain(-36..0).for_each(|ms: i64| delays.record(side * ms * 1_000_000));
            let median = delays.quantile(0.5) / 1e6;
            assert!((median - if side > 0 { 6.0 } else { -7.0 }).abs() < 0.01, "{median}");
        }
    }
}

use crate::held::DelayFigures;
use crate::moments::Moments;
use crate::streams::Quantiles;
use hdrhistogram::Histogram;

/// Delays whose quantiles are precise to 0.1 % of their distance from the first delay, because clocks may be far apart
/// and delays negative.
#[derive(Debug)]
pub(crate) struct Delays {
    first: i64,
    below: Histogram<u64>,
    above: Histogram<u64>,
    moments: Moments,
}

/// A histogram that grows to any value.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("one to five digits are possible")
}

impl Delays {
    pub(crate) fn around(first: i64) -> Self {
        Delays { first, below: histogram(), above: histogram(), moments: Moments::default() }
    }

    pub(crate) fn record(&mut self, delay: i64) {
        self.moments.add(delay);
        let off = delay.saturating_sub(self.first);
        let side = if off < 0 { &mut self.below } else { &mut self.above };
        side.record(off.unsigned_abs()).expect("the histogram grows to any value");
    }

    /// Adds the delays of `other`, which may count from another first delay.
    pub(crate) fn merge(&mut self, other: &Delays) {
        self.moments.merge(&other.moments);
        let (below, above) = (other.below.iter_recorded(), other.above.iter_recorded());
        let offs = below.map(|value| (-1, value)).chain(above.map(|value| (1, value)));
        for (sign, value) in offs {
            let off = i64::try_from(value.value_iterated_to()).unwrap_or(i64::MAX);
            let off = other.first.saturating_add(sign * off).saturating_sub(self.first);
            let side = if off < 0 { &mut self.below } else { &mut self.above };
            side.record_n(off.unsigned_abs(), value.count_at_value()).expect("the histogram grows to any value");
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let (below, above) = (self.below.len(), self.above.len());
        let rank = ((below + above) as f64 * share).ceil().max(1.0) as u64;
        // Uses the middle of a rank, because its end may round into the next rank when divided and multiplied again.
        let at =
            |side: &Histogram<u64>, rank: u64| side.value_at_quantile((rank as f64 - 0.5) / side.len() as f64) as f64;
        let off = if rank <= below {
            // The lowest rank is the farthest below.
            -at(&self.below, below - rank + 1)
        } else if above == 0 {
            0.0
        } else {
            at(&self.above, rank - below)
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

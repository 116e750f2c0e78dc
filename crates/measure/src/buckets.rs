//! Histograms with few buckets, for reports and pages.

use crate::ns;
use hdrhistogram::Histogram;

/// Counts by value: (upper end in ns, number of values above the preceding bucket and up to this end). Values are
/// assigned to ends with a resolution of 0.1 %.
pub type Buckets = Vec<(f64, u64)>;

/// The buckets of a histogram in ps that end at `steps` × 10ⁿ ns, from 1 ns up to the last non-empty one, including
/// empty ones in between.
pub(crate) fn steps(histogram: &Histogram<u64>, steps: &[f64]) -> Buckets {
    let mut ends = (0..20).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    let mut buckets = Buckets::new();
    let mut end = f64::NEG_INFINITY;
    for value in histogram.iter_recorded() {
        let least = ns(histogram.lowest_equivalent(value.value_iterated_to()) as f64);
        while least > end {
            end = ends.next().expect("u64 of ps ends before 10^20 ns");
            buckets.push((end, 0));
        }
        if let Some(bucket) = buckets.last_mut() {
            bucket.1 += value.count_since_last_iteration();
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Tallies;

    #[test]
    fn bucket_includes_its_upper_end() {
        let mut histogram = Tallies::default();
        for ps in [0, 999, 1_000, 1_001, 2_000, 4_900, 10_000, 90_000] {
            histogram.count(ps);
        }
        let expected = [(1.0, 3), (2.0, 2), (5.0, 1), (10.0, 1), (20.0, 0), (50.0, 0), (100.0, 1)];
        assert_eq!(steps(&histogram.all(), &[1.0, 2.0, 5.0]), expected);
    }

    #[test]
    fn every_value_has_a_bucket() {
        let mut histogram = Tallies::default();
        assert!(steps(&histogram.all(), &[1.0]).is_empty());
        histogram.count(u64::MAX / 2);
        assert_eq!(steps(&histogram.all(), &[1.0]).iter().map(|bucket| bucket.1).sum::<u64>(), 1);
    }
}

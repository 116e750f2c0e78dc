use crate::conformance::Within;
use crate::histogram::{Tallies, whole};
use crate::moments::Moments;
use crate::ns;
use crate::report::{GapError, GapReport};
use hdrhistogram::Histogram;
use units::{Span, Time};

/// Inter-departure times (start to start) and, if a fixed gap was asked, their error.
#[derive(Clone)]
pub struct GapMeter {
    last: Option<Time>,
    gaps: Moments,
    histogram: Tallies,
    against: Option<Against>,
}

/// State for a fixed gap.
#[derive(Clone)]
struct Against {
    ask: Span,
    errors: Moments,
    sizes: Tallies,
    within: Within,
}

impl GapMeter {
    /// Creates a meter; `ask` is the fixed gap to compare with, `byte_time` that of the line, if there is one.
    #[must_use]
    pub fn new(ask: Option<Span>, byte_time: Option<Span>) -> Self {
        let against = ask.map(|ask| Against {
            ask,
            errors: Moments::default(),
            sizes: Tallies::default(),
            within: Within::new(byte_time),
        });
        GapMeter { last: None, gaps: Moments::default(), histogram: Tallies::default(), against }
    }

    /// Allocates memory for all gaps in advance, so that no frame waits for it.
    #[must_use]
    pub fn at_hand(mut self) -> Self {
        self.histogram.at_hand();
        if let Some(against) = &mut self.against {
            against.sizes.at_hand();
        }
        self
    }

    /// Records that a frame started at `start`. Frames come in the order seen. A timestamp that goes back counts as a
    /// gap of zero in quantiles, and as its negative value elsewhere.
    pub fn record(&mut self, start: Time) {
        if let Some(last) = self.last.replace(start) {
            self.count(start.signed_ps_since(last), 1);
        }
    }

    /// The distribution: the smallest gap, the largest gap (both in ps) and the number of gaps of each non-empty
    /// quantile bucket.
    #[must_use]
    pub fn buckets(&self) -> Vec<(u64, u64, u64)> {
        let all = self.histogram.all();
        let bucket = |value: u64, count| (all.lowest_equivalent(value), all.highest_equivalent(value), count);
        all.iter_recorded().map(|value| bucket(value.value_iterated_to(), value.count_since_last_iteration())).collect()
    }

    /// Counts a gap in ps that occurred `times` times.
    pub(crate) fn count(&mut self, gap: i64, times: u64) {
        self.gaps.add_many(gap, times);
        self.histogram.count_many(gap.max(0).cast_unsigned(), times);
        if let Some(against) = &mut self.against {
            against.count(gap, times);
        }
    }

    /// All gaps in ps.
    #[must_use]
    pub fn whole(&self) -> Vec<(u64, u64)> {
        if self.gaps.count() == 0 { Vec::new() } else { whole(&self.histogram.all()) }
    }

    /// The gaps in ps.
    pub(crate) fn histogram(&self) -> Histogram<u64> {
        self.histogram.all()
    }

    /// The figures so far; `None` before the first gap.
    #[must_use]
    pub fn report(&self) -> Option<GapReport> {
        if self.gaps.count() == 0 {
            return None;
        }
        let histogram = self.histogram.all();
        let quantile = |q| ns(histogram.value_at_quantile(q) as f64);
        let clip = |value: f64| value.clamp(ns(self.gaps.min() as f64), ns(self.gaps.max() as f64));
        Some(GapReport {
            count: self.gaps.count(),
            mean_ns: ns(self.gaps.mean()),
            std_ns: ns(self.gaps.deviation()),
            min_ns: ns(self.gaps.min() as f64),
            max_ns: ns(self.gaps.max() as f64),
            p1_ns: clip(quantile(0.01)),
            p50_ns: clip(quantile(0.50)),
            p99_ns: clip(quantile(0.99)),
            p999_ns: clip(quantile(0.999)),
            error: self.against.as_ref().map(Against::report),
        })
    }
}

impl Against {
    fn count(&mut self, gap: i64, times: u64) {
        let error = gap - self.ask.as_ps().cast_signed();
        self.errors.add_many(error, times);
        let size = error.unsigned_abs();
        self.sizes.count_many(size, times);
        self.within.count(size, times);
    }

    fn report(&self) -> GapError {
        let sizes = self.sizes.all();
        let largest = self.errors.max().unsigned_abs().max(self.errors.min().unsigned_abs()) as f64;
        GapError {
            asked_ns: self.ask.as_ns_f64(),
            mean_ns: ns(self.errors.mean()),
            max_ns: ns(largest),
            p50_ns: ns((sizes.value_at_quantile(0.50) as f64).min(largest)),
            p99_ns: ns((sizes.value_at_quantile(0.99) as f64).min(largest)),
            shares: self.within.shares(self.errors.count()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_gaps_have_no_error() {
        let mut meter = GapMeter::new(Some(Span::from_us(10)), Some(Span::from_ps(800)));
        for i in 0..1_000 {
            meter.record(Time::from_ps(i * 10_000_000));
        }
        let report = meter.report().expect("gaps were recorded");
        assert_eq!(report.count, 999);
        assert!((report.mean_ns - 10_000.0).abs() < 1e-9 && report.std_ns < 1e-9);
        let error = report.error.expect("a gap was asked");
        assert!(error.max_ns < 1e-9 && error.p99_ns < 1e-9);
        assert!((error.shares.within_1us_ratio - 1.0).abs() < 1e-12);
        assert!((report.p50_ns - 10_000.0).abs() < 1e-9, "quantiles stay within least and largest");
    }

    #[test]
    fn quantiles_match_the_values() {
        let mut meter = GapMeter::new(None, None);
        let mut at = 0;
        for i in 0..=1_000 {
            meter.record(Time::from_ps(at));
            at += (i + 1) * 1_000_000;
        }
        let report = meter.report().expect("gaps were recorded");
        for (quantile, expected) in [(report.p1_ns, 10_000.0), (report.p50_ns, 500_000.0), (report.p99_ns, 990_000.0)] {
            assert!((quantile / expected - 1.0).abs() <= 0.001, "{quantile} instead of {expected}");
        }
    }

    #[test]
    fn shares_count_both_sides_of_their_bounds() {
        let mut meter = GapMeter::new(Some(Span::from_us(10)), None);
        let mut at = 0;
        for error in [0_i64, 64, -64, 65, 256, -257, 1_000, 1_001] {
            meter.record(Time::from_ps(at));
            at += (10_000_000 + error * 1_000).cast_unsigned();
        }
        meter.record(Time::from_ps(at));
        let error = meter.report().and_then(|report| report.error).expect("a gap was asked");
        assert!((error.shares.within_64ns_ratio - 3.0 / 8.0).abs() < 1e-12);
        assert!((error.shares.within_256ns_ratio - 5.0 / 8.0).abs() < 1e-12);
        assert!((error.shares.within_1us_ratio - 7.0 / 8.0).abs() < 1e-12);
        assert!(error.shares.within_1_byte_time_ratio.is_none());
    }
}

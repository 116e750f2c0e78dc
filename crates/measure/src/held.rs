use crate::histogram::{Tallies, whole};
use crate::moments::Moments;
use crate::ns;
use crate::octaves::Octaves;
use crate::plots::GapPlot;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use units::{Span, Time};

/// The delay of a frame when it is ready to depart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Delay decided by the stages, counted from the arrival.
    pub asked: Span,
    /// Wait in the port, if no stage accounted for it.
    pub waited: Span,
}

/// Delays of departed frames: decided by the stages, and measured.
#[derive(Clone, Debug, Default)]
pub struct HeldMeter {
    asked: Delays,
    got: Delays,
    /// Absolute differences between the two, in ps, and the largest.
    off: Tallies,
    most_off: u64,
}

#[derive(Clone, Debug, Default)]
struct Delays {
    moments: Moments,
    tallies: Tallies,
}

impl HeldMeter {
    /// Records that a frame due at `ask` started at `start`. Neither delay includes the wait for its schedule.
    #[inline]
    pub fn departed(&mut self, held: Held, ask: Time, start: Time) {
        let asked = held.asked.signed_ps();
        let late = start.signed_ps_since(ask);
        self.asked.add(asked);
        let error = held.waited.signed_ps().saturating_add(late);
        self.got.add(asked.saturating_add(error));
        self.off.count(error.unsigned_abs());
        self.most_off = self.most_off.max(error.unsigned_abs());
    }

    /// The delays, if any frame left.
    #[must_use]
    pub fn report(&self) -> Option<DelayReport> {
        let got = self.got.figures()?;
        let asked = self.asked.figures()?;
        let all = self.off.all();
        let max_ns = ns(self.most_off as f64);
        let quantile = |q: f64| ns(all.value_at_quantile(q) as f64).min(max_ns);
        let error =
            DelayError { mean_ns: got.mean_ns - asked.mean_ns, max_ns, p50_ns: quantile(0.5), p99_ns: quantile(0.99) };
        Some(DelayReport { count: self.got.moments.count(), got, asked, error })
    }

    /// All measured delays, by powers of two.
    #[must_use]
    pub fn octaves(&self) -> Octaves {
        self.got.tallies.octaves()
    }

    /// All measured delays.
    pub(crate) fn whole(&self) -> Vec<(u64, u64)> {
        whole(&self.got.tallies.all())
    }

    /// A plot of measured and asked delays; `law` has the delays according to the law, if there is one.
    pub(crate) fn plot(&self, law: Option<&Histogram<u64>>) -> Option<GapPlot> {
        let asked = self.asked.tallies.all();
        GapPlot::of(&self.got.tallies.all(), Some(law.unwrap_or(&asked)))
    }
}

impl Delays {
    fn add(&mut self, ps: i64) {
        self.moments.add(ps);
        self.tallies.count(ps.max(0).unsigned_abs());
    }

    fn figures(&self) -> Option<DelayFigures> {
        if self.moments.count() == 0 {
            return None;
        }
        let all = self.tallies.all();
        let (min_ns, max_ns) = (ns(self.moments.min() as f64), ns(self.moments.max() as f64));
        // The upper end of a bucket may exceed every value in it.
        let quantile = |q: f64| ns(all.value_at_quantile(q) as f64).clamp(min_ns, max_ns);
        Some(DelayFigures {
            mean_ns: ns(self.moments.mean()),
            std_ns: ns(self.moments.deviation()),
            min_ns,
            max_ns,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        })
    }
}

/// Delays by stages, of departed frames. Measured: from arrival to departure, without waits other than the delay, such
/// as for a schedule. Asked: as decided by the stages.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct DelayReport {
    /// Number of frames.
    pub count: u64,
    /// Measured delays.
    #[serde(flatten)]
    pub got: DelayFigures,
    /// Delays decided by the stages.
    pub asked: DelayFigures,
    /// Delay obtained − delay asked, frame by frame.
    pub error: DelayError,
}

/// Difference between the delays obtained and asked of the same frames.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct DelayError {
    /// Signed mean.
    pub mean_ns: f64,
    /// Largest absolute difference.
    pub max_ns: f64,
    /// Median absolute difference, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile of the absolute difference, to 0.1 %.
    pub p99_ns: f64,
}

/// Figures of delays, in ns.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct DelayFigures {
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub std_ns: f64,
    /// Smallest.
    pub min_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// Median, to 0.1 %.
    pub p50_ns: f64,
    /// 99th percentile, to 0.1 %.
    pub p99_ns: f64,
    /// 99.9th percentile, to 0.1 %.
    pub p999_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_delay_is_the_asked_one_plus_lateness() {
        let mut meter = HeldMeter::default();
        assert!(meter.report().is_none());
        for us in [10, 20, 30] {
            let held = Held { asked: Span::from_us(us), waited: Span::ZERO };
            meter.departed(held, Time::from_ps(5), Time::from_ps(5));
        }
        let waited = Held { asked: Span::from_us(20), waited: Span::from_us(3) };
        meter.departed(waited, Time::ZERO, Time::ZERO + Span::from_us(4));
        let delay = meter.report().expect("delays");
        assert_eq!(delay.count, 4);
        assert!((delay.asked.mean_ns - 20_000.0).abs() < 1e-6 && (delay.asked.max_ns - 30_000.0).abs() < 1e-6);
        assert!((delay.got.mean_ns - 21_750.0).abs() < 1e-6 && (delay.got.max_ns - 30_000.0).abs() < 1e-6);
        // Three frames were as asked, one was 7 µs off.
        assert!((delay.error.mean_ns - 1_750.0).abs() < 1e-6 && delay.error.p50_ns < 1e-6, "{delay:?}");
        assert!(
            (delay.error.max_ns - 7_000.0).abs() < 1e-6 && (delay.error.p99_ns - 7_000.0).abs() < 1e-6,
            "{delay:?}"
        );
        assert!((delay.got.p99_ns - delay.got.max_ns).abs() < 1e-6, "no quantile is above the largest: {delay:?}");
    }

    #[test]
    fn early_departures_shorten_the_measured_delay() {
        let mut meter = HeldMeter::default();
        let held = Held { asked: Span::from_us(10), waited: Span::ZERO };
        meter.departed(held, Time::from_ps(400_000), Time::ZERO);
        let delay = meter.report().expect("a delay");
        assert!((delay.got.min_ns - 9_600.0).abs() < 1e-6, "{delay:?}");
    }
}

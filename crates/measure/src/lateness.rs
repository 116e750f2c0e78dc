use crate::buckets::steps;
use crate::gaps::{count, three_digits};
use crate::report::{Hiccups, LatenessReport};
use hdrhistogram::Histogram;
use units::{PS_PER_NS, Time};

/// How far departures were from the instants asked for.
pub(crate) struct LatenessMeter {
    late: Histogram<u64>,
    latest: u64,
    earliest: u64,
    /// Departures later than [`HICCUP`], runs of them, and whether the last one was.
    hiccups: Hiccups,
    in_hiccup: bool,
}

/// A departure later than this, in ps, is part of a hiccup: no loop that has the CPU to itself is.
const HICCUP: u64 = 5_000 * PS_PER_NS;

impl Default for LatenessMeter {
    fn default() -> Self {
        LatenessMeter {
            late: three_digits(),
            latest: 0,
            earliest: 0,
            hiccups: Hiccups { above_ns: ns(HICCUP), ..Hiccups::default() },
            in_hiccup: false,
        }
    }
}

impl LatenessMeter {
    /// A frame that should have departed at `asked` did so at `departed`.
    pub(crate) fn record(&mut self, asked: Time, departed: Time) {
        let late = departed.signed_ps_since(asked);
        let hiccup = late > HICCUP.cast_signed();
        self.hiccups.count += u64::from(hiccup && !self.in_hiccup);
        self.hiccups.frames += u64::from(hiccup);
        self.in_hiccup = hiccup;
        if late >= 0 {
            self.latest = self.latest.max(late.unsigned_abs());
            count(&mut self.late, late.unsigned_abs());
        } else {
            self.earliest = self.earliest.max(late.unsigned_abs());
            count(&mut self.late, 0);
        }
    }

    /// The figures so far; `None` when nothing departed.
    pub(crate) fn report(&self) -> Option<LatenessReport> {
        if self.late.is_empty() {
            return None;
        }
        let quantile = |q| ns(self.late.value_at_quantile(q).min(self.latest));
        Some(LatenessReport {
            p50: quantile(0.50),
            p99: quantile(0.99),
            max: ns(self.latest),
            early_max: ns(self.earliest),
            histogram: steps(&self.late, &[1.0, 2.0, 5.0]),
            hiccups: Some(Hiccups {
                longest_ns: if self.latest > HICCUP { ns(self.latest) } else { 0.0 },
                ..self.hiccups
            }),
        })
    }
}

fn ns(ps: u64) -> f64 {
    ps as f64 / PS_PER_NS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_and_late_are_kept_apart() {
        let mut meter = LatenessMeter::default();
        for (asked, departed) in [(1_000, 1_000), (2_000, 7_000), (9_000, 6_000)] {
            meter.record(Time::from_ps(asked), Time::from_ps(departed));
        }
        let report = meter.report().expect("three departures");
        assert!((report.max - 5.0).abs() < 1e-9 && (report.early_max - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_hiccup_is_a_run_of_late_departures() {
        let mut meter = LatenessMeter::default();
        for (i, late_ns) in (0..).zip([0, 9_000, 5_001, 5_000, 0, 7_000, 20]) {
            let asked = Time::from_ps(i * 10_000_000);
            meter.record(asked, asked + units::Span::from_ns(late_ns));
        }
        let report = meter.report().expect("departures");
        let hiccups = report.hiccups.expect("they are counted");
        assert_eq!((hiccups.count, hiccups.frames), (2, 3), "5 µs itself is none");
        assert!((hiccups.longest_ns - 9_000.0).abs() < 1e-9);
        assert_eq!(report.histogram.iter().map(|bucket| bucket.1).sum::<u64>(), 7);
        assert_eq!(report.histogram.last(), Some(&(10_000.0, 2)), "5001 is 5000 to 0.1 %");
    }
}

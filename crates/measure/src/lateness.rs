use crate::gaps::{count, three_digits};
use crate::report::LatenessReport;
use hdrhistogram::Histogram;
use units::{PS_PER_NS, Time};

/// How far departures were from the instants asked for.
pub(crate) struct LatenessMeter {
    late: Histogram<u64>,
    latest: u64,
    earliest: u64,
}

impl Default for LatenessMeter {
    fn default() -> Self {
        LatenessMeter { late: three_digits(), latest: 0, earliest: 0 }
    }
}

impl LatenessMeter {
    /// A frame that should have departed at `asked` did so at `departed`.
    pub(crate) fn record(&mut self, asked: Time, departed: Time) {
        let late = departed.signed_ps_since(asked);
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
        let ns = |ps: u64| ps as f64 / PS_PER_NS as f64;
        let quantile = |q| ns(self.late.value_at_quantile(q).min(self.latest));
        Some(LatenessReport {
            p50: quantile(0.50),
            p99: quantile(0.99),
            max: ns(self.latest),
            early_max: ns(self.earliest),
        })
    }
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
}

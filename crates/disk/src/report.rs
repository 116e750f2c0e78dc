//! Figures per operation: counts, asked delays and measured times.

use crate::operations::Operation;
use hdrhistogram::Histogram;
use std::time::Instant;
use units::{PS_PER_NS, Span};

/// Figures of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations answered.
    pub count: u64,
    /// Bytes read or written; zero for operations that move none.
    pub bytes: u64,
    /// Operations with an injected error.
    pub injected: u64,
    /// Operations that failed otherwise: not found, full, not permitted.
    pub failed: u64,
    /// Operations answered before they were due because the disk ended.
    pub cut_short: u64,
    /// The delays drawn; empty for operations without a delay.
    pub asked: Times,
    /// Time from the receipt of an operation to its answer, including the backing directory and the rate. Excludes
    /// operations that were cut short.
    pub obtained: Times,
    /// Bytes of operations that were not cut short.
    pub passed: u64,
    /// Arrival of the first of these operations, and the last answer.
    pub span: Option<(Instant, Instant)>,
}

/// An answered operation.
pub(crate) struct Answered {
    pub(crate) bytes: u64,
    pub(crate) asked: Option<Span>,
    pub(crate) arrived: Instant,
    pub(crate) now: Instant,
    /// The error was injected.
    pub(crate) injected: bool,
    /// It failed without injection.
    pub(crate) failed: bool,
    /// It was answered before it was due.
    pub(crate) cut_short: bool,
}

impl Tally {
    pub(crate) fn count(&mut self, answered: &Answered) {
        let Answered { bytes, arrived, now, .. } = *answered;
        self.count += 1;
        self.bytes += bytes;
        self.injected += u64::from(answered.injected);
        self.failed += u64::from(answered.failed);
        if let Some(asked) = answered.asked {
            self.asked.record(asked.as_ps() / PS_PER_NS);
        }
        if answered.cut_short {
            self.cut_short += 1;
            return;
        }
        self.obtained.record(u64::try_from((now - arrived).as_nanos()).unwrap_or(u64::MAX));
        self.passed += bytes;
        let (first, last) = self.span.unwrap_or((arrived, now));
        self.span = Some((first.min(arrived), last.max(now)));
    }
}

/// Times in ns: count, mean, smallest and largest are exact, quantiles to 0.1 %.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    least: u64,
    longest: u64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("one to five digits are possible");
        Times { histogram, sum: 0, least: u64::MAX, longest: 0 }
    }
}

impl Times {
    fn record(&mut self, ns: u64) {
        self.histogram.record(ns).expect("the histogram grows to any value");
        self.sum += u128::from(ns);
        self.least = self.least.min(ns);
        self.longest = self.longest.max(ns);
    }

    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean; NaN if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count() as f64
    }

    /// The smallest; `u64::MAX` if there are none.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The largest; zero if there are none.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// The quantile for this share; zero if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        // The upper end of a bucket may exceed every value in it.
        self.histogram.value_at_quantile(share).max(self.least.min(self.longest)).min(self.longest)
    }
}

/// Figures of all operations.
#[derive(Clone, Debug, Default)]
pub struct Tallies(Vec<(Operation, Tally)>);

impl Tallies {
    pub(crate) fn of(&mut self, operation: Operation) -> &mut Tally {
        let index = self.0.iter().position(|(other, _)| *other == operation).unwrap_or_else(|| {
            self.0.push((operation, Tally::default()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    /// Operations that occurred, in the order of [`Operation::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Operation, &Tally)> {
        Operation::ALL.iter().filter_map(|operation| {
            self.0.iter().find(|(other, _)| other == operation).map(|(operation, tally)| (*operation, tally))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_are_reported_exactly() {
        let mut times = Times::default();
        assert_eq!((times.count(), times.longest(), times.quantile(0.5)), (0, 0, 0));
        for _ in 0..1_000 {
            times.record(10_000_000);
        }
        let reported = (times.count(), times.least(), times.quantile(0.5), times.quantile(0.99), times.longest());
        assert_eq!(reported, (1_000, 10_000_000, 10_000_000, 10_000_000, 10_000_000));
        assert!((times.mean() - 1e7).abs() < 1e-9);
        times.record(20_000_000);
        assert_eq!((times.least(), times.longest()), (10_000_000, 20_000_000));
        let median = times.quantile(0.5);
        assert!((10_000_000..=10_010_000).contains(&median), "{median}");
    }
}

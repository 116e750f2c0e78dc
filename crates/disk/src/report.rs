//! What happened: how many operations of each kind, what was asked of them, what was obtained.

use crate::operations::Operation;
use hdrhistogram::Histogram;
use std::time::Instant;
use units::{PS_PER_NS, Span};

/// What one kind of operation came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many were answered.
    pub count: u64,
    /// Bytes read or written; zero for operations that move none.
    pub bytes: u64,
    /// How many were told to fail, and did.
    pub injected: u64,
    /// How many failed by themselves: what is not there, is full, is not permitted.
    pub failed: u64,
    /// How many were answered before their time, since the disk ended.
    pub cut_short: u64,
    /// The delays drawn; of operations without one there is none.
    pub asked: Times,
    /// From being given an operation to answering it, with what the backing directory and the rate took;
    /// without those that were cut short.
    pub obtained: Times,
    /// The bytes of those that were not cut short.
    pub passed: u64,
    /// When the first of those came and when the last was answered.
    pub span: Option<(Instant, Instant)>,
}

/// An operation that is answered.
pub(crate) struct Answered {
    pub(crate) bytes: u64,
    pub(crate) asked: Option<Span>,
    pub(crate) arrived: Instant,
    pub(crate) now: Instant,
    /// It was told to fail.
    pub(crate) injected: bool,
    /// It failed by itself.
    pub(crate) failed: bool,
    /// Its time was not over.
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

/// Times in ns: count, mean, least and longest exactly, quantiles to 0.1 %.
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

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean; of none it is no number.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count() as f64
    }

    /// The least; of none the most there is.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The longest; of none zero.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// The time that such a share of all are within; of none zero.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        // The upper end of a bucket may be above all that is in it.
        self.histogram.value_at_quantile(share).max(self.least.min(self.longest)).min(self.longest)
    }
}

/// The tallies of all operations.
#[derive(Clone, Debug, Default)]
pub struct Tallies(Vec<(Operation, Tally)>);

impl Tallies {
    pub(crate) fn of(&mut self, operation: Operation) -> &mut Tally {
        let place = self.0.iter().position(|(other, _)| *other == operation).unwrap_or_else(|| {
            self.0.push((operation, Tally::default()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Those of which there was at least one, in the order of [`Operation::ALL`].
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
    fn what_is_told_of_equal_times_is_that_time() {
        let mut times = Times::default();
        assert_eq!((times.count(), times.longest(), times.quantile(0.5)), (0, 0, 0));
        for _ in 0..1_000 {
            times.record(10_000_000);
        }
        let told = (times.count(), times.least(), times.quantile(0.5), times.quantile(0.99), times.longest());
        assert_eq!(told, (1_000, 10_000_000, 10_000_000, 10_000_000, 10_000_000));
        assert!((times.mean() - 1e7).abs() < 1e-9);
        times.record(20_000_000);
        assert_eq!((times.least(), times.longest()), (10_000_000, 20_000_000));
        let median = times.quantile(0.5);
        assert!((10_000_000..=10_010_000).contains(&median), "{median}");
    }
}

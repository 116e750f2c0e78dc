use hdrhistogram::Histogram;
use units::PS_PER_S;

/// Values of three significant digits and how often each came.
///
/// Exact departures are the same many times in a row: a value is put in its bucket when it changes.
/// There is room for 100 s of ps from the start, and more is found when it is needed: to grow and to
/// touch new memory takes 0.3 ms, during which nothing departs.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    buckets: Histogram<u64>,
    /// The last value, and how often it came since it is the last.
    value: u64,
    times: u64,
}

impl Default for Tallies {
    fn default() -> Self {
        let mut buckets = Histogram::new_with_max(100 * PS_PER_S, 3).expect("one to five digits are possible");
        buckets.auto(true);
        // Writes to all of it.
        buckets.reset();
        Tallies { buckets, value: 0, times: 0 }
    }
}

impl Tallies {
    /// Counts a value.
    #[inline]
    pub(crate) fn count(&mut self, value: u64) {
        self.count_many(value, 1);
    }

    /// Counts a value that came `times` times.
    #[inline]
    pub(crate) fn count_many(&mut self, value: u64, times: u64) {
        if value != self.value {
            record(&mut self.buckets, self.value, self.times);
            (self.value, self.times) = (value, 0);
        }
        self.times += times;
    }

    /// How many values were counted.
    pub(crate) fn len(&self) -> u64 {
        self.buckets.len() + self.times
    }

    /// All of them.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = self.buckets.clone();
        record(&mut all, self.value, self.times);
        all
    }
}

fn record(buckets: &mut Histogram<u64>, value: u64, times: u64) {
    buckets.record_n(value, times).expect("the histogram grows to any value");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_values_are_all_there() {
        let mut tallies = Tallies::default();
        for value in [0, 0, 7, 7, 7, 9, 7, 200 * PS_PER_S] {
            tallies.count(value);
        }
        let all = tallies.all();
        assert_eq!((tallies.len(), all.len()), (8, 8));
        assert_eq!((all.count_at(0), all.count_at(7), all.count_at(9)), (2, 4, 1));
        assert_eq!(Tallies::default().all().len(), 0);
    }
}

use crate::octaves::Octaves;
use hdrhistogram::Histogram;
use units::PS_PER_S;

/// Counts of values with three significant digits.
///
/// Each eighth of a power of two has a table, which is allocated on first use within a fraction of a microsecond.
/// Callers that must not wait allocate all of them at the start ([`Counts::at_hand`]): a third of a megabyte.
///
/// The buckets are those of `HdrHistogram`, which is used for reading. Counting in it would take 2 ns longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    tables: Vec<Option<Box<Table>>>,
}

/// Counts of values that often repeat many times in a row, like exact departures: a value goes into its bucket when it
/// changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies {
    counts: Counts,
    counted: u64,
    octaves: Octaves,
    /// The last value, and how often it has repeated.
    value: u64,
    times: u64,
}

/// Smaller values than twice this have one bucket each; above, each power of two has this many buckets.
const BUCKETS: u64 = 1 << BITS;
const BITS: u32 = 10;
/// Buckets per table.
const TABLE: usize = BUCKETS as usize / 8;
type Table = [u64; TABLE];

/// The highest value of the bucket that contains this quantile.
pub(crate) fn at_quantile(histogram: &Histogram<u64>, quantile: f64) -> u64 {
    histogram.value_at_quantile(quantile)
}

/// The non-empty buckets of a histogram: the smallest value of each, and its count.
pub(crate) fn whole(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded.map(|value| (histogram.lowest_equivalent(value.value_iterated_to()), value.count_at_value())).collect()
}

/// The histogram with these buckets, each named by a value in it.
pub(crate) fn of_buckets(buckets: impl Iterator<Item = (u64, u64)>) -> Histogram<u64> {
    let mut counts = Counts::default();
    buckets.for_each(|(value, times)| counts.count(value, times));
    counts.all()
}

/// The bucket of a value.
#[inline]
fn bucket(value: u64) -> usize {
    let shift = (63 - BITS) - (value | (2 * BUCKETS - 1)).leading_zeros();
    ((u64::from(shift) << BITS) + (value >> shift)) as usize
}

/// The smallest value of a bucket.
fn least(bucket: usize) -> u64 {
    let shift = (bucket as u64 >> BITS).saturating_sub(1);
    (bucket as u64 - (shift << BITS)) << shift
}

/// The largest value of a bucket.
fn largest(bucket: usize) -> u64 {
    // The bucket after the last one begins at 2⁶⁴.
    least(bucket + 1).wrapping_sub(1)
}

impl Counts {
    /// Allocates memory for values up to 100 s in ps, so that nothing waits for it later.
    pub(crate) fn at_hand(&mut self) {
        for table in 0..=bucket(100 * PS_PER_S) / TABLE {
            self.find(table);
        }
    }

    /// Counts a value that occurred `times` times.
    #[inline]
    pub(crate) fn count(&mut self, value: u64, times: u64) {
        let bucket = bucket(value);
        match self.tables.get_mut(bucket / TABLE) {
            Some(Some(table)) => table[bucket % TABLE] += times,
            _ => self.begin(bucket, times),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self, bucket: usize, times: u64) {
        self.find(bucket / TABLE)[bucket % TABLE] = times;
    }

    fn find(&mut self, table: usize) -> &mut Table {
        if self.tables.len() <= table {
            self.tables.resize_with(table + 1, || None);
        }
        // Writes to the whole table.
        self.tables[table].get_or_insert_with(|| Box::new([std::hint::black_box(0); TABLE]))
    }

    /// The allocated tables with their indices.
    fn found(&self) -> impl Iterator<Item = (usize, &Table)> {
        self.tables.iter().enumerate().filter_map(|(n, table)| Some((n, &**table.as_ref()?)))
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Counts) {
        for (n, table) in other.found() {
            self.find(n).iter_mut().zip(table).for_each(|(count, more)| *count += more);
        }
    }

    /// The non-empty buckets from the lowest on: the largest value of each, and its count.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.found().flat_map(|(n, table)| (n * TABLE..).zip(table));
        counts.filter(|(_, times)| **times > 0).map(|(bucket, times)| (largest(bucket), *times))
    }

    /// The number of values.
    pub(crate) fn len(&self) -> u64 {
        self.found().map(|(_, table)| table.iter().sum::<u64>()).sum()
    }

    /// The largest value of the bucket with the value of this rank, counted from 1; 0 beyond the number of values.
    pub(crate) fn at_rank(&self, rank: u64) -> u64 {
        let mut up_to = 0;
        let reached = self.buckets().find(|(_, times)| {
            up_to += times;
            up_to >= rank
        });
        reached.map_or(0, |(value, _)| value)
    }

    /// The largest value of the bucket that contains this quantile, as in `HdrHistogram`; 0 without values.
    /// `HdrHistogram` itself would first allocate a table of a quarter of a megabyte.
    pub(crate) fn at_quantile(&self, quantile: f64) -> u64 {
        self.at_rank(((quantile * self.len() as f64).ceil() as u64).max(1))
    }

    /// All values.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = Histogram::new_with_max(100 * PS_PER_S, 3).expect("one to five digits are possible");
        all.auto(true);
        for (n, table) in self.found() {
            for (bucket, times) in table.iter().enumerate().filter(|(_, times)| **times > 0) {
                record(&mut all, least(n * TABLE + bucket), *times);
            }
        }
        all
    }
}

impl Tallies {
    /// Allocates memory for values up to 100 s in ps, so that nothing waits for it later.
    pub(crate) fn at_hand(&mut self) {
        self.counts.at_hand();
    }

    /// Counts a value.
    #[inline]
    pub(crate) fn count(&mut self, value: u64) {
        self.count_many(value, 1);
    }

    /// Counts a value that occurred `times` times.
    #[inline]
    pub(crate) fn count_many(&mut self, value: u64, times: u64) {
        if value != self.value {
            self.counts.count(self.value, self.times);
            self.counted += self.times;
            self.octaves.count(self.value, self.times);
            (self.value, self.times) = (value, 0);
        }
        self.times += times;
    }

    /// Adds the values of `other`.
    pub(crate) fn add(&mut self, other: &Tallies) {
        self.counts.add(&other.counts);
        self.counted += other.counted;
        self.octaves.add(&other.octaves);
        self.count_many(other.value, other.times);
    }

    /// The number of values.
    pub(crate) fn len(&self) -> u64 {
        self.counted + self.times
    }

    /// All values in ps, by powers of two. Fast enough to call while a run goes on.
    pub(crate) fn octaves(&self) -> Octaves {
        let mut octaves = self.octaves;
        octaves.count(self.value, self.times);
        octaves
    }

    /// All values.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = self.counts.all();
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
    fn counts_all_repeated_values() {
        let mut tallies = Tallies::default();
        for value in [0, 0, 7, 7, 7, 9, 7, 200 * PS_PER_S] {
            tallies.count(value);
        }
        let all = tallies.all();
        assert_eq!((tallies.len(), all.len()), (8, 8));
        assert_eq!((all.count_at(0), all.count_at(7), all.count_at(9)), (2, 4, 1));
        assert_eq!(Tallies::default().all().len(), 0);
    }

    #[test]
    fn buckets_match_hdr_histogram() {
        let mut values: Vec<u64> = (0..62).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1, 3 << bit >> 1]).collect();
        values.extend((0..5_000).map(|n| n * n * n * 97));
        values.extend([100 * PS_PER_S, 100 * PS_PER_S + 1]);
        let mut tallies = Tallies::default();
        let mut expected = Histogram::<u64>::new_with_max(100 * PS_PER_S, 3).expect("three digits");
        expected.auto(true);
        for value in values {
            tallies.count(value);
            expected.record(value).expect("it grows");
            assert_eq!(least(bucket(value)), expected.lowest_equivalent(value), "{value}");
        }
        let all = tallies.all();
        let recorded = |histogram: &Histogram<u64>| -> Vec<(u64, u64)> {
            histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
        };
        assert_eq!(recorded(&all), recorded(&expected));
        assert_eq!((all.len(), all.min(), all.max()), (expected.len(), expected.min(), expected.max()));
        for quantile in [0.0, 0.01, 0.5, 0.99, 1.0] {
            assert_eq!(all.value_at_quantile(quantile), expected.value_at_quantile(quantile));
        }
        tallies.count(0); // moves the last value into its bucket
        for quantile in [1e-6, 0.01, 0.3, 0.5, 0.9, 0.99, 0.999, 1.0] {
            assert_eq!(tallies.counts.at_quantile(quantile), expected.value_at_quantile(quantile), "{quantile}");
        }
        assert_eq!(
            Counts::default().at_quantile(0.5),
            Histogram::<u64>::new(3).expect("digits").value_at_quantile(0.5)
        );
    }
}

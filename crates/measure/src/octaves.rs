use schemars::JsonSchema;
use serde::Serialize;

/// Counts of times by powers of two of a second. They are few enough to be published during a run, and are the buckets
/// of a native Prometheus histogram with schema 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octaves {
    /// The first octave counts times up to 2⁻³⁰ s, each further one up to twice the previous bound, the last all longer
    /// times.
    pub counts: [u64; Octaves::NUMBER],
    total_ps: u128,
}

/// The longest time in ps of each octave but the last.
const BOUNDS_PS: [u64; Octaves::NUMBER - 1] = {
    let mut bounds = [0; Octaves::NUMBER - 1];
    let mut octave = 0;
    while octave < bounds.len() {
        bounds[octave] = (units::PS_PER_S << 8) >> (38 - octave);
        octave += 1;
    }
    bounds
};

impl Default for Octaves {
    fn default() -> Self {
        Octaves { counts: [0; Octaves::NUMBER], total_ps: 0 }
    }
}

impl Octaves {
    /// Number of octaves: bounds from 2⁻³⁰ s (0.93 ns) to 2⁸ s, and one for longer times.
    pub const NUMBER: usize = 40;

    /// Creates octaves from these counts and the sum of their times.
    #[must_use]
    pub fn published(counts: [u64; Octaves::NUMBER], total_ns: u64) -> Self {
        Octaves { counts, total_ps: u128::from(total_ns) * u128::from(units::PS_PER_NS) }
    }

    /// Counts a time in ps that occurred `times` times.
    #[inline]
    pub(crate) fn count(&mut self, ps: u64, times: u64) {
        // A second is between 2³⁹ and 2⁴⁰ ps, so the time belongs to this octave or the next.
        let octave = (u64::BITS - ps.leading_zeros()).saturating_sub(10) as usize;
        let octave = octave.min(BOUNDS_PS.len());
        let octave = octave + usize::from(BOUNDS_PS.get(octave).is_some_and(|bound| ps > *bound));
        self.counts[octave] += times;
        self.total_ps += u128::from(ps) * u128::from(times);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Octaves) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.total_ps += other.total_ps;
    }

    /// The sum of all times, in ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        u64::try_from(self.total_ps / u128::from(units::PS_PER_NS)).unwrap_or(u64::MAX)
    }

    /// The octaves that are not empty: the exponent of each upper bound, as a power of two of a second, and the count.
    /// Longer times have the exponent 9.
    #[must_use]
    pub fn pairs(&self) -> Vec<(i32, u64)> {
        let counts = (-30..).zip(self.counts);
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Distributions of departures so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distributions {
    /// Lateness; early departures count as 0.
    pub lateness: Octaves,
    /// Difference between each inter-departure time and the asked one.
    pub gap_error: Octaves,
    /// Measured delays by stages.
    pub delay: Octaves,
}

/// Distributions by powers of two of a second, as the metrics of a run have them: pairs of a power from -30 to 8 and the number
/// of times up to it and above the power before, and the sum of all times. Times above 2⁸ s have power 9.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct OctavesReport {
    /// Lateness; early departures count as 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lateness: Vec<(i32, u64)>,
    /// Sum of all lateness.
    pub lateness_total_ns: u64,
    /// Difference between each inter-departure time and the asked one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gap_error: Vec<(i32, u64)>,
    /// Sum of all gap errors.
    pub gap_error_total_ns: u64,
    /// Measured delays by stages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delay: Vec<(i32, u64)>,
    /// Sum of all delays.
    pub delay_total_ns: u64,
}

impl OctavesReport {
    /// `None` if nothing was counted.
    #[must_use]
    pub fn of(distributions: &Distributions) -> Option<Self> {
        let Distributions { lateness, gap_error, delay } = distributions;
        let report = OctavesReport {
            lateness: lateness.pairs(),
            lateness_total_ns: lateness.total_ns(),
            gap_error: gap_error.pairs(),
            gap_error_total_ns: gap_error.total_ns(),
            delay: delay.pairs(),
            delay_total_ns: delay.total_ns(),
        };
        (report != OctavesReport::default()).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_up_to_their_bound() {
        let mut octaves = Octaves::default();
        let second = units::PS_PER_S;
        for (ps, times) in
            [(0, 1), (931, 2), (932, 4), (second, 8), (second + 1, 16), (256 * second + 1, 32), (u64::MAX, 64)]
        {
            octaves.count(ps, times);
        }
        assert_eq!(octaves.pairs(), [(-30, 3), (-29, 4), (0, 8), (1, 16), (9, 96)]);
        for ps in (0..63).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1, 3 << bit >> 1]) {
            let mut one = Octaves::default();
            one.count(ps, 1);
            let below = BOUNDS_PS.iter().filter(|bound| ps > **bound).count();
            assert_eq!(one.counts[below], 1, "{ps}");
        }
        let mut twice = octaves;
        twice.add(&octaves);
        assert_eq!(twice.pairs().iter().map(|(_, count)| count).sum::<u64>(), 2 * 127);
        assert_eq!(Octaves::default().total_ns(), 0);
    }
}

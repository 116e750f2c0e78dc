use crate::buckets::steps;
use crate::histogram::{Tallies, whole};
use crate::ns;
use crate::octaves::Octaves;
use crate::report::{Hiccups, LatenessReport};
use units::{PS_PER_NS, Time};

/// Distance of departures from their targets.
#[derive(Clone)]
pub(crate) struct LatenessMeter {
    late: Tallies,
    /// Departures by lateness in ns, with four buckets per octave, for a quick median.
    coarse: [u64; 256],
    latest: u64,
    earliest: u64,
    /// Departures later than [`HICCUP`], runs of such departures, and whether the last departure was one.
    hiccups: Hiccups,
    in_hiccup: bool,
}

/// A departure later than this in ps belongs to a hiccup: a loop with its own CPU is never this late.
const HICCUP: u64 = 5_000 * PS_PER_NS;

impl Default for LatenessMeter {
    fn default() -> Self {
        LatenessMeter {
            late: Tallies::default(),
            coarse: [0; 256],
            latest: 0,
            earliest: 0,
            hiccups: Hiccups { above_ns: ns(HICCUP as f64), ..Hiccups::default() },
            in_hiccup: false,
        }
    }
}

impl LatenessMeter {
    /// Allocates all memory in advance, so that no departure waits for it.
    pub(crate) fn at_hand(mut self) -> Self {
        self.late.at_hand();
        self
    }

    /// Records that a frame with target `asked` departed at `departed`.
    pub(crate) fn record(&mut self, asked: Time, departed: Time) {
        self.record_many(departed.signed_ps_since(asked), 1);
    }

    /// Records `times` consecutive departures that were each late by `late` ps.
    pub(crate) fn record_many(&mut self, late: i64, times: u64) {
        if times == 0 {
            return;
        }
        let hiccup = late > HICCUP.cast_signed();
        self.hiccups.count += u64::from(hiccup && !self.in_hiccup);
        self.hiccups.frames += if hiccup { times } else { 0 };
        self.in_hiccup = hiccup;
        self.coarse[bucket(late.max(0).unsigned_abs() / PS_PER_NS)] += times;
        if late >= 0 {
            self.latest = self.latest.max(late.unsigned_abs());
            self.late.count_many(late.unsigned_abs(), times);
        } else {
            self.earliest = self.earliest.max(late.unsigned_abs());
            self.late.count_many(0, times);
        }
    }

    /// Adds the departures of another queue. Their order is unknown, so hiccups at the same time count as two.
    pub(crate) fn add(&mut self, other: &LatenessMeter) {
        self.late.add(&other.late);
        self.coarse.iter_mut().zip(other.coarse).for_each(|(count, more)| *count += more);
        self.latest = self.latest.max(other.latest);
        self.earliest = self.earliest.max(other.earliest);
        self.hiccups.count += other.hiccups.count;
        self.hiccups.frames += other.hiccups.frames;
    }

    /// The number of departures.
    pub(crate) fn len(&self) -> u64 {
        self.late.len()
    }

    /// Median (with a resolution of one eighth) and largest lateness in ns. Cheap enough for a pacing loop.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let half = self.late.len().div_ceil(2);
        let mut sum = 0;
        let middle = self.coarse.iter().position(|departures| {
            sum += departures;
            sum >= half
        });
        let (least, next) = middle.map_or((0, 0), |middle| (least(middle), least(middle + 1)));
        (u64::midpoint(least, next.saturating_sub(1).max(least)), self.latest / PS_PER_NS)
    }

    /// All lateness values, by powers of two.
    pub(crate) fn octaves(&self) -> Octaves {
        self.late.octaves()
    }

    /// All lateness values in ps.
    pub(crate) fn whole(&self) -> Vec<(u64, u64)> {
        if self.late.len() == 0 { Vec::new() } else { whole(&self.late.all()) }
    }

    /// The figures so far; `None` before the first departure.
    pub(crate) fn report(&self) -> Option<LatenessReport> {
        if self.late.len() == 0 {
            return None;
        }
        let late = self.late.all();
        let quantile = |q| ns(late.value_at_quantile(q).min(self.latest) as f64);
        Some(LatenessReport {
            p50_ns: quantile(0.50),
            p99_ns: quantile(0.99),
            max_ns: ns(self.latest as f64),
            early_max_ns: ns(self.earliest as f64),
            histogram: steps(&late, &[1.0, 2.0, 5.0]),
            hiccups: Some(Hiccups {
                longest_ns: if self.latest > HICCUP { ns(self.latest as f64) } else { 0.0 },
                ..self.hiccups
            }),
        })
    }
}

/// The coarse bucket of a lateness in ns: 0, 1, 2, 3, then four per octave.
fn bucket(ns: u64) -> usize {
    match ns.checked_ilog2() {
        None | Some(0 | 1) => ns as usize,
        Some(octave) => (u64::from(octave - 1) * 4 + ((ns >> (octave - 2)) & 3)) as usize,
    }
}

/// The smallest lateness in ns of a coarse bucket.
fn least(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    match bucket {
        0..4 => bucket as u64,
        _ if octave < 64 => (4 + quarter) << (octave - 2),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_early_and_late_departures() {
        let mut meter = LatenessMeter::default();
        for (asked, departed) in [(1_000, 1_000), (2_000, 7_000), (9_000, 6_000)] {
            meter.record(Time::from_ps(asked), Time::from_ps(departed));
        }
        let report = meter.report().expect("three departures");
        assert!((report.max_ns - 5.0).abs() < 1e-9 && (report.early_max_ns - 3.0).abs() < 1e-9);
    }

    #[test]
    fn run_of_late_departures_is_one_hiccup() {
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

    #[test]
    fn coarse_buckets_cover_every_lateness() {
        for ns in (0..5_000).chain([u64::from(u32::MAX), u64::MAX / 3, u64::MAX]) {
            let bucket = bucket(ns);
            assert!(least(bucket) <= ns && ns <= least(bucket + 1), "{ns}");
            assert!(least(bucket + 1) - least(bucket) <= 1 + least(bucket) / 4, "{ns}");
        }
    }

    #[test]
    fn median_so_far_is_within_an_eighth() {
        let mut meter = LatenessMeter::default();
        assert_eq!(meter.so_far(), (0, 0));
        for late_ns in 0..=2_000 {
            meter.record(Time::ZERO, Time::ZERO + units::Span::from_ns(late_ns));
        }
        let (median, max) = meter.so_far();
        assert!(median.abs_diff(1_000) <= 125 && max == 2_000, "{median}, {max}");
    }
}

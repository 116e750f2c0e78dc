use crate::buckets::{Buckets, steps};
use crate::histogram::Tallies;
use crate::moments::Moments;
use crate::ns;
use crate::octaves::Octaves;
use crate::report::{ConformanceReport, SharesWithin};
use hdrhistogram::Histogram;
use units::{FrameLen, PS_PER_NS, Span, Time};

/// Compares each inter-departure time with the one that the schedule asked for at that point. Works for any law and any
/// rate, since every departure comes with its own target.
#[derive(Clone)]
pub struct ConformanceMeter {
    /// Duration of a byte, if the output has a line rate.
    byte_time: Option<Span>,
    last: Option<Departure>,
    asked: Moments,
    asked_gaps: Tallies,
    errors: Tallies,
    largest: u64,
    within: Within,
    back_to_back: u64,
}

/// Number of errors within the bounds in reports: 64 ns, 256 ns, 1 µs, and one byte time of the line, if it has one.
#[derive(Clone)]
pub(crate) struct Within {
    bounds_ps: [u64; 4],
    counts: [u64; 4],
    has_line: bool,
}

impl Within {
    pub(crate) fn new(byte_time: Option<Span>) -> Self {
        let [near, far, farthest] = [64, 256, 1_000].map(|ns| ns * PS_PER_NS);
        let bounds_ps = [near, far, farthest, byte_time.map_or(0, Span::as_ps)];
        Within { bounds_ps, counts: [0; 4], has_line: byte_time.is_some() }
    }

    /// Counts an error in ps that occurred `times` times.
    pub(crate) fn count(&mut self, error: u64, times: u64) {
        for (count, bound) in self.counts.iter_mut().zip(self.bounds_ps) {
            *count += if error <= bound { times } else { 0 };
        }
    }

    /// The shares of `all` errors; `all` is at least 1.
    pub(crate) fn shares(&self, all: u64) -> SharesWithin {
        let [within_64ns, within_256ns, within_1us, byte_time] = self.counts.map(|n| n as f64 / all as f64);
        SharesWithin {
            within_1_byte_time_ratio: self.has_line.then_some(byte_time),
            within_64ns_ratio: within_64ns,
            within_256ns_ratio: within_256ns,
            within_1us_ratio: within_1us,
        }
    }
}

/// A departure and its target.
#[derive(Clone)]
struct Departure {
    asked: Time,
    start: Time,
    length: FrameLen,
}

impl ConformanceMeter {
    /// Creates a meter; `byte_time` is that of the line, if there is one.
    #[must_use]
    pub fn new(byte_time: Option<Span>) -> Self {
        ConformanceMeter {
            byte_time,
            last: None,
            asked: Moments::default(),
            asked_gaps: Tallies::default(),
            errors: Tallies::default(),
            largest: 0,
            within: Within::new(byte_time),
            back_to_back: 0,
        }
    }

    /// Allocates memory for all gaps in advance, so that no frame waits for it.
    #[must_use]
    pub fn at_hand(mut self) -> Self {
        self.asked_gaps.at_hand();
        self.errors.at_hand();
        self
    }

    /// Records that a frame of `length` with target `asked` started at `start`.
    pub fn record(&mut self, asked: Time, start: Time, length: FrameLen) {
        if let Some(last) = self.last.replace(Departure { asked, start, length }) {
            let (ask, gap) = (asked.signed_ps_since(last.asked), start.signed_ps_since(last.start));
            self.count(ask, gap, self.is_back_to_back(ask, gap, last.length), 1);
        }
    }

    /// Records that a frame of `length` started at `start`, with a target of `ask` after the actual start of the
    /// preceding frame.
    pub fn record_after(&mut self, ask: Span, start: Time, length: FrameLen) {
        if let Some(last) = self.last.replace(Departure { asked: start, start, length }) {
            let (ask, gap) = (ask.signed_ps(), start.signed_ps_since(last.start));
            self.count(ask, gap, self.is_back_to_back(ask, gap, last.length), 1);
        }
    }

    /// Whether the line did not idle between a frame of length `before` and the next one `gap` ps later.
    #[inline]
    pub(crate) fn is_back_to_back(&self, ask: i64, gap: i64, before: FrameLen) -> bool {
        match self.byte_time {
            Some(byte) => gap <= (byte * (u64::from(before.on_wire().bytes()) + 1)).as_ps().cast_signed(),
            None => gap < ask / 10,
        }
    }

    /// Counts a gap and its target in ps, both of which occurred `times` times.
    pub(crate) fn count(&mut self, ask: i64, gap: i64, back_to_back: bool, times: u64) {
        self.asked.add_many(ask, times);
        self.asked_gaps.count_many(ask.max(0).cast_unsigned(), times);
        let error = gap.abs_diff(ask);
        self.errors.count_many(error, times);
        self.largest = self.largest.max(error);
        self.within.count(error, times);
        self.back_to_back += if back_to_back { times } else { 0 };
    }

    /// All errors, by powers of two.
    pub(crate) fn octaves(&self) -> Octaves {
        self.errors.octaves()
    }

    /// The figures so far; `None` before the first gap.
    #[must_use]
    pub fn report(&self) -> Option<ConformanceReport> {
        if self.errors.len() == 0 {
            return None;
        }
        let gaps = self.errors.len();
        let errors = self.errors.all();
        let quantile = |q| ns(errors.value_at_quantile(q).min(self.largest) as f64);
        Some(ConformanceReport {
            count: gaps,
            asked_mean_ns: ns(self.asked.mean()),
            asked_min_ns: ns(self.asked.min() as f64),
            asked_max_ns: ns(self.asked.max() as f64),
            p50_ns: quantile(0.50),
            p99_ns: quantile(0.99),
            max_ns: ns(self.largest as f64),
            shares: self.within.shares(gaps),
            back_to_back_ratio: self.back_to_back as f64 / gaps as f64,
        })
    }

    /// The asked gaps, as a histogram in ps.
    pub(crate) fn asked(&self) -> Histogram<u64> {
        self.asked_gaps.all()
    }

    /// Histogram of the gap errors.
    pub(crate) fn errors(&self) -> Buckets {
        steps(&self.errors.all(), &[1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Departures of 64 B frames with these asked and measured gaps, in ns.
    fn measured(byte_time: Option<Span>, gaps: &[(u64, u64)]) -> ConformanceReport {
        let mut meter = ConformanceMeter::new(byte_time);
        let (mut asked, mut start) = (Time::ZERO, Time::from_ps(5_000_000));
        meter.record(asked, start, FrameLen::MIN);
        for (ask, got) in gaps {
            asked += Span::from_ns(*ask);
            start += Span::from_ns(*got);
            meter.record(asked, start, FrameLen::MIN);
        }
        meter.report().expect("gaps")
    }

    #[test]
    fn compares_each_gap_with_its_own_target() {
        let report = measured(None, &[(10_000, 10_000), (30_000, 30_064), (20_000, 19_935), (40_000, 41_001)]);
        assert_eq!(report.count, 4);
        assert!((report.asked_mean_ns - 25_000.0).abs() < 1e-9);
        assert!((report.asked_min_ns - 10_000.0).abs() < 1e-9 && (report.asked_max_ns - 40_000.0).abs() < 1e-9);
        assert!((report.shares.within_64ns_ratio - 0.5).abs() < 1e-12, "64 is within, 65 is not");
        assert!((report.shares.within_256ns_ratio - 0.75).abs() < 1e-12);
        assert!((report.shares.within_1us_ratio - 0.75).abs() < 1e-12, "1001 is not within");
        assert!((report.max_ns - 1_001.0).abs() < 1e-9);
        assert!(report.shares.within_1_byte_time_ratio.is_none());
    }

    #[test]
    fn constant_lateness_is_not_a_gap_error() {
        let report = measured(None, &[(10_000, 10_000); 3]);
        assert!(report.max_ns < 1e-9 && (report.shares.within_64ns_ratio - 1.0).abs() < 1e-12);
    }

    #[test]
    fn back_to_back_without_a_line_is_a_tenth_of_the_target() {
        let report = measured(None, &[(10_000, 999), (10_000, 1_000), (0, 0), (50_000, 4_999), (50_000, 1)]);
        assert!((report.back_to_back_ratio - 0.6).abs() < 1e-12, "0 where 0 was asked is what was asked");
    }

    #[test]
    fn back_to_back_on_a_line_is_the_preceding_frame_and_a_byte() {
        // 84 byte times of 1 ns, and one byte time more, for any target.
        let report = measured(Some(Span::from_ns(1)), &[(84, 84), (100, 85), (100, 86), (5_000, 5_000), (90, 80)]);
        assert!((report.back_to_back_ratio - 0.6).abs() < 1e-12);
        assert!((report.shares.within_1_byte_time_ratio.expect("a line") - 0.4).abs() < 1e-12);
    }

    #[test]
    fn single_departure_has_no_gap() {
        let mut meter = ConformanceMeter::new(None);
        assert!(meter.report().is_none());
        meter.record(Time::ZERO, Time::ZERO, FrameLen::MIN);
        assert!(meter.report().is_none());
    }

    /// As in `measure --expect`, which knows gaps but no target instants.
    #[test]
    fn relative_targets_equal_absolute_ones() {
        let (mut instants, mut gaps) = (ConformanceMeter::new(None), ConformanceMeter::new(None));
        let (mut asked, mut start) = (Time::ZERO, Time::from_ps(5_000_000));
        for (ask, got) in [(10, 0), (10, 12), (30, 30), (20, 1), (10, 19)] {
            asked += Span::from_us(ask);
            start += Span::from_us(got);
            instants.record(asked, start, FrameLen::MIN);
            gaps.record_after(Span::from_us(ask), start, FrameLen::MIN);
        }
        let text = |meter: &ConformanceMeter| serde_json::to_string(&meter.report()).expect("JSON");
        assert_eq!(text(&gaps), text(&instants));
        assert_eq!(gaps.errors().iter().map(|bucket| bucket.1).sum::<u64>(), 4);
        assert_eq!(gaps.report().map(|report| report.count), Some(4));
    }

    #[test]
    fn histogram_contains_all_repeated_targets() {
        let mut meter = ConformanceMeter::new(None);
        for ask in [0, 10, 20, 30, 35, 40, 50] {
            meter.record(Time::from_ps(ask), Time::from_ps(ask), FrameLen::MIN);
        }
        let asked = meter.asked();
        assert_eq!((asked.len(), asked.count_at(10), asked.count_at(5)), (6, 4, 2));
    }
}

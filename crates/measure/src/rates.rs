use crate::moments::Moments;
use crate::report::RateReport;
use units::{FrameLen, PS_PER_S, Span, Time};

/// The rate of a stream: overall, and per window of fixed length since the first frame.
#[derive(Clone)]
pub struct RateMeter {
    window: Span,
    first: Option<Time>,
    last: Time,
    window_end: Time,
    in_window: u64,
    /// Bytes of all frames except the last, then of the last.
    before_last: u64,
    last_bytes: u64,
    windows: Moments,
}

impl RateMeter {
    /// Creates a meter with windows of `window`.
    #[must_use]
    pub fn new(window: Span) -> Self {
        RateMeter {
            window,
            first: None,
            last: Time::ZERO,
            window_end: Time::ZERO,
            in_window: 0,
            before_last: 0,
            last_bytes: 0,
            windows: Moments::default(),
        }
    }

    /// Records that a frame of `length` started at `start`.
    pub fn record(&mut self, start: Time, length: FrameLen) {
        self.record_burst(start, u64::from(length.bytes()), length);
    }

    /// Records frames of `bytes` bytes in total that started at `start`; the last one has length `last`.
    pub(crate) fn record_burst(&mut self, start: Time, bytes: u64, last: FrameLen) {
        if self.first.is_none() {
            self.first = Some(start);
            self.window_end = start + self.window;
        }
        if start >= self.window_end {
            self.windows.add(self.in_window.cast_signed());
            self.in_window = 0;
            let silent = start.since(self.window_end).as_ps() / self.window.as_ps();
            self.windows.add_many(0, silent);
            self.window_end += self.window * (silent + 1);
        }
        self.in_window += bytes;
        self.before_last += self.last_bytes + (bytes - u64::from(last.bytes()));
        self.last_bytes = last.bytes().into();
        self.last = self.last.max(start);
    }

    /// End of the window of the last frame.
    pub(crate) fn window_end(&self) -> Time {
        self.window_end
    }

    /// The figures so far; `None` before the second frame.
    #[must_use]
    pub fn report(&self) -> Option<RateReport> {
        let elapsed = self.last.since(self.first?).as_ps();
        if elapsed == 0 {
            return None;
        }
        let per_window = 8.0 * PS_PER_S as f64 / self.window.as_ps() as f64;
        let whole = (self.windows.count() > 0).then_some(&self.windows);
        Some(RateReport {
            mean_fps: None,
            asked: None,
            steps: Vec::new(),
            window_ns: self.window.as_ns_f64(),
            windows: self.windows.count(),
            mean_bps: self.before_last as f64 * 8.0 * PS_PER_S as f64 / elapsed as f64,
            min_bps: whole.map(|w| w.min() as f64 * per_window),
            max_bps: whole.map(|w| w.max() as f64 * per_window),
            range_bytes_per_second: whole.map(|w| (w.max() - w.min()) as f64 * per_window / 8.0),
            std_bps: whole.map(|w| w.deviation() * per_window),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_excludes_the_length_of_the_last_frame() {
        let mut meter = RateMeter::new(Span::from_us(10));
        for i in 0..101 {
            meter.record(Time::from_ps(i * 1_000_000), FrameLen::new(125));
        }
        let report = meter.report().expect("101 frames");
        assert!((report.mean_bps - 1e9).abs() < 1e-3);
        assert_eq!(report.windows, 10);
        assert_eq!(report.min_bps.map(f64::round), Some(1e9));
        assert_eq!(report.range_bytes_per_second.map(f64::round), Some(0.0));
    }

    #[test]
    fn only_the_mean_is_known_before_the_first_complete_window() {
        let mut meter = RateMeter::new(Span::from_us(10));
        meter.record(Time::ZERO, FrameLen::new(1_000));
        meter.record(Time::from_ps(5_000_000), FrameLen::new(1_000));
        let report = meter.report().expect("two frames");
        assert_eq!((report.windows, report.mean_bps.round() as u64), (0, 1_600_000_000));
        assert_eq!(
            (report.min_bps, report.max_bps, report.range_bytes_per_second, report.std_bps),
            (None, None, None, None)
        );
    }

    #[test]
    fn silent_windows_count_as_zero() {
        let mut meter = RateMeter::new(Span::from_us(10));
        meter.record(Time::ZERO, FrameLen::new(1_000));
        meter.record(Time::from_ps(35_000_000), FrameLen::new(1_000));
        let report = meter.report().expect("two frames");
        assert_eq!((report.windows, report.min_bps.map(f64::round)), (3, Some(0.0)));
    }

    #[test]
    fn uneven_windows_have_a_range_and_a_deviation() {
        let mut meter = RateMeter::new(Span::from_us(10));
        for (us, bytes) in [(0, 1_000), (10, 1_000), (15, 1_000), (20, 1_000), (22, 500), (31, 1_000)] {
            meter.record(Time::from_ps(us * 1_000_000), FrameLen::new(bytes));
        }
        // Windows of 1000, 2000 and 1500 B; 1 B per 10 µs is 800 kbit/s.
        let report = meter.report().expect("six frames");
        let of = |figure: Option<f64>| figure.expect("whole windows").round() as u64;
        assert_eq!((report.windows, of(report.min_bps), of(report.max_bps)), (3, 800_000_000, 1_600_000_000));
        assert_eq!(of(report.range_bytes_per_second), 100_000_000);
        assert_eq!(of(report.std_bps), (f64::sqrt(500_000.0 / 3.0) * 8e5).round() as u64);
    }
}

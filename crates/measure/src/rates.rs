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
    /// In place of `windows`, if the meter will be joined with those of other queues.
    of_queue: Option<QueueWindows>,
}

/// Bytes in each window since an origin that several queues have in common.
#[derive(Clone, Default)]
struct QueueWindows {
    origin: Time,
    bytes: Vec<u64>,
    /// There were more windows than are kept.
    too_many: bool,
}

/// Limit on the number of windows that are kept: 8 MB per queue.
const MOST_KEPT: usize = 1 << 20;

impl QueueWindows {
    fn add(&mut self, window: u64, bytes: u64) {
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        if window >= MOST_KEPT {
            self.too_many = true;
            return;
        }
        if window >= self.bytes.len() {
            self.bytes.resize(window + 1, 0);
        }
        self.bytes[window] += bytes;
    }

    /// The bytes of the windows that ended by `last`. None if there were too many.
    fn moments(&self, last: Time, window: Span) -> Moments {
        let mut all = Moments::default();
        if !self.too_many {
            let whole = (last.since(self.origin).as_ps() / window.as_ps()) as usize;
            let windows = self.bytes.iter().copied().chain(std::iter::repeat(0)).take(whole);
            windows.for_each(|bytes| all.add(bytes.cast_signed()));
        }
        all
    }
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
            of_queue: None,
        }
    }

    /// A meter of one of several queues, whose windows count from a common origin, so that those of all can be joined.
    /// After 2²⁰ windows it has none.
    #[must_use]
    pub(crate) fn of_queue(window: Span) -> Self {
        RateMeter { of_queue: Some(QueueWindows::default()), ..RateMeter::new(window) }
    }

    /// Sets the origin of the windows.
    pub(crate) fn begin_at(&mut self, origin: Time) {
        if let Some(windows) = &mut self.of_queue {
            windows.origin = origin;
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
        if let Some(windows) = &mut self.of_queue {
            let window = start.since(windows.origin).as_ps() / self.window.as_ps();
            windows.add(window, bytes);
            self.window_end = windows.origin + self.window * (window + 1);
        } else if start >= self.window_end {
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

    /// Adds the frames of another queue with the same origin.
    pub(crate) fn join(&mut self, other: RateMeter) {
        let bytes = self.before_last + self.last_bytes + other.before_last + other.last_bytes;
        if other.last > self.last {
            (self.last, self.last_bytes) = (other.last, other.last_bytes);
        }
        self.before_last = bytes - self.last_bytes;
        self.first = self.first.into_iter().chain(other.first).min();
        if let (Some(own), Some(other)) = (&mut self.of_queue, other.of_queue) {
            own.too_many |= other.too_many;
            (0..).zip(other.bytes).for_each(|(window, bytes)| own.add(window, bytes));
        }
    }

    /// Time between the first frame and the last.
    pub(crate) fn elapsed(&self) -> Span {
        self.first.map_or(Span::ZERO, |first| self.last.since(first))
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
        let windows = self.of_queue.as_ref().map_or(self.windows, |queue| queue.moments(self.last, self.window));
        let whole = Some(&windows).filter(|windows| windows.count() > 0);
        Some(RateReport {
            mean_fps: None,
            asked: None,
            steps: Vec::new(),
            window_ns: self.window.as_ns_f64(),
            windows: windows.count(),
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

use crate::plots::RatePlot;
use units::{FrameLen, PS_PER_S, Span, Time};

/// Bytes over time, asked and measured, in windows that double in length when there are too many: a run of any length
/// takes constant memory.
#[derive(Clone)]
pub struct Timeline {
    origin: Option<Time>,
    /// Length of a window in ps.
    width: u64,
    asked: Vec<u64>,
    got: Vec<u64>,
    frames: u64,
    last: Time,
    /// Start and index of the window found last, which usually contains the next frame as well.
    found: (u64, usize),
}

/// Limit on the number of windows.
const MOST: usize = 512;
/// Initial length of a window in ps.
const NARROWEST: u64 = 1_000_000;
/// A window with fewer frames than this shows single frames, not a rate.
const FRAMES: u64 = 32;

impl Default for Timeline {
    fn default() -> Self {
        Timeline {
            origin: None,
            width: NARROWEST,
            asked: Vec::new(),
            got: Vec::new(),
            frames: 0,
            last: Time::ZERO,
            found: (0, 0),
        }
    }
}

impl Timeline {
    /// Records the target `at` of a frame of `length`.
    pub fn ask(&mut self, at: Time, length: FrameLen) {
        let window = self.window(at);
        add(&mut self.asked, window, length.bytes().into());
    }

    /// Records that `frames` frames of `bytes` bytes in total started at `at`.
    pub(crate) fn got_burst(&mut self, at: Time, frames: u64, bytes: u64) {
        let window = self.window(at);
        add(&mut self.got, window, bytes);
        self.frames += frames;
        self.last = self.last.max(at);
    }

    /// Records that a frame of `length` started at `at`.
    pub fn got(&mut self, at: Time, length: FrameLen) {
        let window = self.window(at);
        add(&mut self.got, window, length.bytes().into());
        self.frames += 1;
        self.last = self.last.max(at);
    }

    /// Records `frames` frames of `length` with target and start in the window of the preceding frame.
    pub(crate) fn repeat(&mut self, frames: u64, length: FrameLen, last: Time) {
        let bytes = frames * u64::from(length.bytes());
        let window = self.found.1;
        add(&mut self.asked, window, bytes);
        add(&mut self.got, window, bytes);
        self.frames += frames;
        self.last = self.last.max(last);
    }

    /// End of the window found last, if it contains both target and start of the last frame.
    pub(crate) fn window_end(&self, asked: Time, start: Time) -> Option<Time> {
        let begin = self.origin?.as_ps() + self.found.0;
        // The last window may extend beyond the end of time.
        let end = begin.checked_add(self.width)?;
        let within = |at: Time| (begin..end).contains(&at.as_ps());
        (within(asked) && within(start)).then_some(Time::from_ps(end))
    }

    /// Index of the window of `at`, after doubling as often as necessary.
    fn window(&mut self, at: Time) -> usize {
        let passed = at.as_ps().saturating_sub(self.origin.get_or_insert(at).as_ps());
        if passed.wrapping_sub(self.found.0) < self.width {
            return self.found.1;
        }
        while passed / self.width >= MOST as u64 {
            self.widen();
        }
        let number = passed / self.width;
        self.found = (number * self.width, number as usize);
        self.found.1
    }

    /// Merges windows in pairs.
    fn widen(&mut self) {
        self.width *= 2;
        halve(&mut self.asked);
        halve(&mut self.got);
        // The window found last has another index now.
        self.found = (0, 0);
    }

    /// Adds the frames of `other`, whose windows have the same origin.
    pub(crate) fn join(&mut self, mut other: Timeline) {
        while self.width < other.width {
            self.widen();
        }
        while other.width < self.width {
            other.widen();
        }
        for (windows, more) in [(&mut self.asked, other.asked), (&mut self.got, other.got)] {
            more.into_iter().enumerate().for_each(|(window, bytes)| add(windows, window, bytes));
        }
        self.frames += other.frames;
        self.last = self.last.max(other.last);
    }

    /// Sets the start of the first window to `origin`, unless it is set.
    pub fn begin(&mut self, origin: Time) {
        self.origin.get_or_insert(origin);
    }

    /// The rates of the complete windows so far; `None` if there are fewer than two.
    #[must_use]
    pub fn report(&self) -> Option<RatePlot> {
        self.of_windows(FRAMES)
    }

    /// As `report`, with narrow windows that show where crests begin and end rather than their rates.
    #[must_use]
    pub fn crests(&self) -> Option<RatePlot> {
        self.of_windows(2)
    }

    fn of_windows(&self, least_frames: u64) -> Option<RatePlot> {
        let passed = self.last.as_ps() - self.origin?.as_ps().min(self.last.as_ps());
        let (mut width, mut asked, mut got) = (self.width, self.asked.clone(), self.got.clone());
        while got.len() > 1 && self.frames < least_frames * got.len() as u64 {
            // A single window of few frames may extend beyond the end of time.
            width = width.saturating_mul(2);
            halve(&mut asked);
            halve(&mut got);
        }
        let whole = (passed / width) as usize;
        let per_window = 8.0 * PS_PER_S as f64 / width as f64;
        let rates = |bytes: &[u64]| {
            (0..whole).map(|i| bytes.get(i).copied().unwrap_or(0) as f64 * per_window).collect::<Vec<_>>()
        };
        (whole >= 2).then(|| RatePlot {
            window_ns: Span::from_ps(width).as_ns_f64(),
            asked_bps: (!asked.is_empty()).then(|| rates(&asked)),
            got_bps: rates(&got),
            changes_ns: Vec::new(),
            first: self.origin.unwrap_or(Time::ZERO),
        })
    }
}

#[inline]
fn add(windows: &mut Vec<u64>, window: usize, bytes: u64) {
    if window >= windows.len() {
        windows.resize(window + 1, 0);
    }
    windows[window] += bytes;
}

/// Merges windows in pairs.
fn halve(windows: &mut Vec<u64>) {
    let halved = windows.chunks(2).map(|pair| pair.iter().sum()).collect();
    *windows = halved;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(frames: u64, gap: Span) -> Timeline {
        let mut timeline = Timeline::default();
        for i in 0..frames {
            let at = Time::from_ps(7_000_000_000) + gap * i;
            timeline.ask(at, FrameLen::new(125));
            timeline.got(at + Span::from_ns(50), FrameLen::new(125));
        }
        timeline
    }

    /// Frames of a long run; Miri takes a thousand times as long for each.
    const MANY: u64 = if cfg!(miri) { 5_000 } else { 100_000 };

    #[test]
    fn runs_of_any_length_take_constant_memory_and_keep_their_bytes() {
        for (frames, gap) in [(MANY, Span::from_us(1)), (MANY, Span::from_ms(86_400)), (3, Span::from_ms(1))] {
            let timeline = even(frames, gap);
            assert!(timeline.got.len() <= MOST && timeline.asked.len() <= MOST);
            assert_eq!(timeline.got.iter().sum::<u64>(), frames * 125);
            assert_eq!(timeline.asked.iter().sum::<u64>(), frames * 125);
        }
    }

    #[test]
    fn even_stream_is_a_constant_line() {
        let plot = even(MANY, Span::from_us(1)).report().expect("windows");
        assert!(plot.got_bps.len() >= 250, "{} windows", plot.got_bps.len());
        for rate in plot.got_bps.iter().chain(plot.asked_bps.as_ref().expect("asks")) {
            assert!((rate / 1e9 - 1.0).abs() < 0.02, "{rate}");
        }
    }

    #[test]
    fn few_frames_give_few_windows() {
        assert!(Timeline::default().report().is_none());
        assert!(even(1, Span::from_us(1)).report().is_none());
        assert!(even(40, Span::from_us(10)).report().is_none());
        let plot = even(200, Span::from_us(10)).report().expect("windows");
        assert!((2..=6).contains(&plot.got_bps.len()), "{} windows", plot.got_bps.len());
    }

    #[test]
    fn few_frames_over_all_of_time_have_no_rate() {
        for frames in 2..=40 {
            assert!(even(frames, Span::from_ms(212 * 86_400_000 / (frames - 1))).report().is_none(), "{frames}");
        }
    }

    #[test]
    fn start_before_the_first_target_is_in_the_first_window() {
        let mut timeline = Timeline::default();
        timeline.ask(Time::from_ps(1_000), FrameLen::MIN);
        timeline.got(Time::from_ps(400), FrameLen::MIN);
        assert_eq!(timeline.got, [64]);
        assert!(timeline.report().is_none());
    }
}

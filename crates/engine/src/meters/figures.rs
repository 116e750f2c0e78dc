use units::{Span, Time};

/// Maximum number of watched users: those in the first slots. The totals cover all users.
const WATCHED: usize = 1 << 16;
/// Windows over which the obtained rate is compared with the configured rate. Each is ten times the preceding one.
const WINDOWS: [(&str, Span); 3] =
    [("10ms", Span::from_ms(10)), ("100ms", Span::from_ms(100)), ("1s", Span::from_ms(1_000))];
/// Number of windows in the next longer window.
const IN_LONGER: u32 = 10;
/// Histogram steps per ratio of 1.
const STEPS: f64 = 10_000.0;
/// Above this ratio, steps widen with the ratio. A step is then the upper bits of the floating-point number, enough to
/// resolve 1/10 000 of the ratio.
const WIDER_FROM: f64 = 5.0;
const LOWER_BITS: u32 = f64::MANTISSA_DIGITS - 1 - 14;
/// Last step below `WIDER_FROM`.
const LAST: usize = WIDER_FROM as usize * STEPS as usize;
const TABLE: usize = 512;

/// Accuracy of users' rates: obtained ÷ asked over windows of 10 ms, 100 ms and 1 s.
///
/// A window of a user counts if the user wanted more than its rate both in that window and in the preceding one. If the
/// limiter refuses frames, this means that it refused some and that at least as much arrived as the rate allows.
/// If frames wait, all of them must have waited. The user should then have obtained its rate × the window, to within
/// one frame at either end.
///
/// A frame updates 16 bytes: the user's shortest window. When that window ends it is added to the longer ones.
#[derive(Debug)]
pub struct Figures {
    cells: Vec<Cell>,
    longer: Vec<[Longer; WINDOWS.len() - 1]>,
    ratios: [Ratios; WINDOWS.len()],
    at: Time,
    number: u32,
    /// The first shortest window during which all current rates were in force throughout.
    since: u32,
    /// Frames wait instead of being refused.
    queues: bool,
    /// Length of the longest frame so far, as the rate counts it.
    longest: u32,
}

/// The current shortest window of a user. No line carries 4 GB in 10 ms; if that many bytes share one instant, the
/// excess is not counted.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Obtained bytes.
    got: u32,
    asked: u32,
    number: u32,
    state: State,
}

/// The current longer window of a user.
#[derive(Clone, Copy, Debug, Default)]
struct Longer {
    got: u64,
    asked: u64,
    number: u32,
    state: State,
}

/// Events of a window.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Some frame was refused or had to wait.
    held_back: bool,
    at_once: bool,
    /// The preceding window was limited throughout.
    limited_before: bool,
}

/// Histogram of ratios, to 1/10 000 below 5 and to 1/10 000 of themselves above; the smallest and largest are exact.
#[derive(Debug)]
struct Ratios {
    /// Counts per step, in tables allocated on first use. All tables take 0.4 MB; most limits need only a few kB.
    counts: Vec<Vec<u64>>,
    windows: u64,
    least: f64,
    largest: f64,
    /// Largest share of a user's window that one frame took.
    one_frame: f64,
}

/// Accuracy over windows of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Obtained {
    /// Length of the window.
    pub window: &'static str,
    /// Windows of users that were limited.
    pub windows: u64,
    /// Smallest obtained ÷ asked.
    pub least: f64,
    /// Median of obtained ÷ asked.
    pub median: f64,
    /// Largest obtained ÷ asked.
    pub largest: f64,
    /// 99th percentile of |obtained ÷ asked − 1|.
    pub p99_error: f64,
    /// Largest |obtained ÷ asked − 1|.
    pub worst_error: f64,
    /// Largest share of a user's window that one frame took.
    pub one_frame: f64,
}

impl Figures {
    /// Figures for a table of `capacity` users. `queues` is true if frames wait.
    #[must_use]
    pub fn new(capacity: usize, queues: bool) -> Self {
        let ratios = || Ratios { counts: Vec::new(), windows: 0, least: f64::INFINITY, largest: 0.0, one_frame: 0.0 };
        let watched = capacity.min(WATCHED);
        Figures {
            cells: vec![Cell::default(); watched],
            longer: vec![Default::default(); watched],
            ratios: std::array::from_fn(|_| ratios()),
            at: Time::ZERO,
            number: 0,
            since: 0,
            queues,
            longest: 0,
        }
    }

    /// Records a change of rates. Windows that have already begun do not count, because part of them has another rate.
    pub fn changed(&mut self) {
        self.since = self.number + 1;
    }

    /// Number of users that are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.cells.len()
    }

    /// Prefetches the data that [`Figures::record`] will need. Use the result so that the compiler keeps the read; its
    /// value has no meaning.
    #[must_use]
    #[inline]
    pub(crate) fn touch(&self, slot: u32) -> u32 {
        self.cells.get(slot as usize).map_or(0, |cell| cell.number)
    }

    /// Records that a new user enters the slot at `at`. Closes the windows of the previous user and discards unfinished
    /// ones. `bps` returns the rate of the previous user.
    #[cold]
    pub fn begin(&mut self, slot: u32, at: Time, bps: impl FnOnce() -> Option<u64>) {
        self.enter(slot, at, bps);
        if let Some(cell) = self.cells.get_mut(slot as usize) {
            *cell = Cell { number: self.number, ..Cell::default() };
            let mut number = self.number;
            for longer in &mut self.longer[slot as usize] {
                number /= IN_LONGER;
                *longer = Longer { number, ..Longer::default() };
            }
        }
    }

    /// Records that a frame of `asked` bytes of the user in `slot` left or was refused at `at`. The user obtained `got`
    /// bytes of it. `held_back` means that the frame was refused or had to wait. `bps` returns the user's rate. A frame
    /// whose time is in a past window counts in the current one.
    #[inline]
    pub fn record(
        &mut self,
        slot: u32,
        at: Time,
        (asked, got): (u32, u32),
        bps: impl FnOnce() -> Option<u64>,
        held_back: bool,
    ) {
        self.enter(slot, at, bps);
        let Some(cell) = self.cells.get_mut(slot as usize) else { return };
        self.longest = self.longest.max(asked);
        cell.got = cell.got.saturating_add(got);
        cell.asked = cell.asked.saturating_add(asked);
        cell.state.held_back |= held_back;
        cell.state.at_once |= !held_back;
    }

    /// Moves to the window of `at` if the slot's window has ended.
    #[inline]
    fn enter(&mut self, slot: u32, at: Time, bps: impl FnOnce() -> Option<u64>) {
        let Some(cell) = self.cells.get_mut(slot as usize) else { return };
        if at != self.at {
            self.at = at;
            self.number = (at.as_ps() / WINDOWS[0].1.as_ps()) as u32;
        }
        if self.number > cell.number {
            let over = std::mem::replace(cell, Cell { number: self.number, ..Cell::default() });
            let limited_before = bps().is_some_and(|bps| self.over(slot as usize, &over, bps));
            self.cells[slot as usize].state.limited_before = limited_before;
        }
    }

    /// Closes a window, and the longer windows that end with it. True if the user was limited in it and the next window
    /// follows directly.
    #[cold]
    fn over(&mut self, slot: usize, cell: &Cell, bps: u64) -> bool {
        let mut now = self.number;
        let mut done =
            Longer { got: cell.got.into(), asked: cell.asked.into(), number: cell.number, state: cell.state };
        let mut first = false;
        let mut since = self.since;
        for (i, (_, window)) in WINDOWS.iter().enumerate() {
            let due = bps as f64 * window.as_secs_f64() / 8.0;
            let enough = if self.queues { !done.state.at_once } else { done.asked as f64 >= due };
            let limited = done.state.held_back && enough && done.number >= since;
            if limited && done.state.limited_before {
                let ratios = &mut self.ratios[i];
                ratios.add(done.got as f64 / due);
                ratios.one_frame = ratios.one_frame.max(f64::from(self.longest) / due);
            }
            let before = limited && done.number + 1 == now;
            if i == 0 {
                first = before;
            } else {
                let state = State { limited_before: before, ..State::default() };
                self.longer[slot][i - 1] = Longer { number: now, state, ..Longer::default() };
            }
            let Some(longer) = self.longer[slot].get_mut(i) else { break };
            longer.got += done.got;
            longer.asked += done.asked;
            longer.state.held_back |= done.state.held_back;
            longer.state.at_once |= done.state.at_once;
            now /= IN_LONGER;
            since = since.div_ceil(IN_LONGER);
            if now <= longer.number {
                break;
            }
            done = *longer;
        }
        first
    }

    /// The accuracy for each window length in which some user was limited.
    #[must_use]
    pub fn obtained(&self) -> Vec<Obtained> {
        let seen = WINDOWS.iter().zip(&self.ratios).filter(|(_, ratios)| ratios.windows > 0);
        seen.map(|((window, _), ratios)| ratios.obtained(window)).collect()
    }
}

impl Ratios {
    fn add(&mut self, ratio: f64) {
        let step = step(ratio);
        if self.counts.len() <= step / TABLE {
            self.counts.resize_with(step / TABLE + 1, Vec::new);
        }
        let table = &mut self.counts[step / TABLE];
        if table.is_empty() {
            table.resize(TABLE, 0);
        }
        table[step % TABLE] += 1;
        self.windows += 1;
        self.least = self.least.min(ratio);
        self.largest = self.largest.max(ratio);
    }

    /// The steps that occurred, with their counts.
    fn steps(&self) -> impl Iterator<Item = (usize, u64)> {
        let tables = self.counts.iter().zip((0..).step_by(TABLE));
        tables.flat_map(|(table, first)| (first..).zip(table.iter().copied())).filter(|(_, count)| *count > 0)
    }

    fn obtained(&self, window: &'static str) -> Obtained {
        let mut median = 0.0;
        let mut below = 0;
        let mut errors = Vec::new();
        for (step, count) in self.steps() {
            let ratio = ratio(step);
            if below * 2 < self.windows {
                median = ratio;
            }
            below += count;
            errors.push(((ratio - 1.0).abs(), count));
        }
        errors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut p99 = 0.0;
        below = 0;
        for (error, count) in errors {
            if below * 100 >= self.windows * 99 {
                break;
            }
            p99 = error;
            below += count;
        }
        let worst_error = (self.largest - 1.0).abs().max((self.least - 1.0).abs());
        Obtained {
            window,
            windows: self.windows,
            least: self.least,
            median: median.clamp(self.least, self.largest),
            largest: self.largest,
            p99_error: p99.min(worst_error),
            worst_error,
            one_frame: self.one_frame,
        }
    }
}

/// The histogram step of a ratio.
fn step(ratio: f64) -> usize {
    let upper = |ratio: f64| (ratio.to_bits() >> LOWER_BITS) as usize;
    if ratio < WIDER_FROM { (ratio * STEPS + 0.5) as usize } else { LAST + upper(ratio) - upper(WIDER_FROM) }
}

/// The ratio in the middle of a step.
fn ratio(step: usize) -> f64 {
    match step.checked_sub(LAST) {
        None | Some(0) => step as f64 / STEPS,
        Some(wider) => {
            let upper = (WIDER_FROM.to_bits() >> LOWER_BITS) + wider as u64;
            f64::from_bits(upper << LOWER_BITS | 1 << (LOWER_BITS - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_windows_in_which_a_user_was_limited() {
        let mut figures = Figures::new(4, false);
        // 1 Mbit/s is 1 250 B per 10 ms. One frame and one refusal in each window except the sixth.
        for window in 0..10_u64 {
            let at = Time::ZERO + Span::from_ms(window * 10 + 1);
            let got = if window == 3 { 1_500 } else { 1_000 };
            figures.record(1, at, (got, got), || Some(1_000_000), false);
            figures.record(1, at, (250, 0), || Some(1_000_000), window != 6);
            figures.record(3, at, (1_125, 500), || Some(1_000_000), true);
        }
        let obtained = figures.obtained();
        assert_eq!(obtained.len(), 1, "100 ms never were full");
        let short = obtained[0];
        // Windows 1 to 5 and 8 count. Windows 0, 6 and 7 do not, and window 9 is unfinished.
        assert_eq!((short.window, short.windows), ("10ms", 6));
        assert!((short.one_frame - 1.2).abs() < 1e-9, "1500 B of 1250 B");
        assert!((short.median - 0.8).abs() < 1e-9 && (short.largest - 1.2).abs() < 1e-9);
        assert!((short.worst_error - 0.2).abs() < 1e-9 && (short.p99_error - 0.2).abs() < 1e-9);
        assert!((short.least - 0.8).abs() < 1e-9);
    }

    #[test]
    fn median_holds_for_multiples_of_the_rate() {
        // 1 kbit/s is 1.25 B per 10 ms: yellow frames, or a bucket that passes one long frame now and then.
        for got in [7, 64, 1_518, 9_018, u32::MAX] {
            let mut figures = Figures::new(1, false);
            for window in 0..200_u64 {
                let at = Time::ZERO + Span::from_ms(window * 10);
                figures.record(0, at, (got, got), || Some(1_000), true);
            }
            let short = figures.obtained()[0];
            let asked = f64::from(got) / 1.25;
            assert_eq!((short.windows, short.largest), (198, asked));
            assert!((short.median / asked - 1.0).abs() < 1e-4, "{short:?}");
            assert!((short.p99_error / (asked - 1.0) - 1.0).abs() < 1e-4, "{short:?}");
        }
    }

    #[test]
    fn histogram_steps_have_the_stated_resolution() {
        let ratios = (0..2_000_000).map(|i| f64::from(i) * 0.000_007).chain((0..40).map(|i| 3.7_f64.powi(i)));
        for exact in ratios {
            let off = (ratio(step(exact)) - exact).abs();
            assert!(off < 0.51e-4 * exact.max(1.0), "{exact} is off by {off}");
        }
    }

    #[test]
    fn longer_windows_sum_the_short_ones() {
        let mut figures = Figures::new(1, false);
        // 1 Mbit/s is 625 B per 5 ms; 618 of 703 B are granted.
        let (asked, got) = (703, 618);
        for frame in 0..1_000_u64 {
            let at = Time::ZERO + Span::from_ms(frame * 5);
            figures.record(0, at, (asked, got), || Some(1_000_000), true);
        }
        let obtained = figures.obtained();
        let seen: Vec<_> = obtained.iter().map(|window| (window.window, window.windows)).collect();
        // 5 s. The first window of each length has no predecessor, and the last is unfinished.
        assert_eq!(seen, [("10ms", 498), ("100ms", 48), ("1s", 3)]);
        for window in &obtained {
            assert!((window.least - 0.988_8).abs() < 1e-9 && (window.largest - 0.988_8).abs() < 1e-9, "{window:?}");
        }
        // Windows after a pause have no predecessor.
        let later = Time::ZERO + Span::from_ms(60_000);
        figures.record(0, later, (asked, got), || Some(1_000_000), true);
        figures.record(0, later + Span::from_ms(5), (asked, got), || Some(1_000_000), true);
        figures.record(0, later + Span::from_ms(10), (asked, got), || Some(1_000_000), true);
        let windows: Vec<_> = figures.obtained().iter().map(|window| window.windows).collect();
        assert_eq!(windows, [499, 49, 4], "those before the pause, and none since");
    }

    #[test]
    fn excludes_windows_in_which_rates_change() {
        let mut figures = Figures::new(1, false);
        // 1 Mbit/s, and 2 Mbit/s from the middle of the 251st window on.
        for frame in 0..1_000_u64 {
            let at = Time::ZERO + Span::from_ms(frame * 5);
            let (bps, bytes) = if frame < 501 { (1_000_000, 625) } else { (2_000_000, 1_250) };
            if frame == 501 {
                figures.changed();
            }
            figures.record(0, at, (bytes, bytes), || Some(bps), true);
        }
        let obtained = figures.obtained();
        let seen: Vec<_> = obtained.iter().map(|window| (window.window, window.windows)).collect();
        // Also excluded: the window of the change, and the next one, whose predecessor does not count.
        assert_eq!(seen, [("10ms", 496), ("100ms", 46), ("1s", 1)]);
        for window in &obtained {
            assert!(window.worst_error < 1e-9, "{window:?}");
        }
    }

    #[test]
    fn counts_queueing_windows_only_if_every_frame_waits() {
        let mut figures = Figures::new(1, true);
        for window in 0..10_u64 {
            let at = Time::ZERO + Span::from_ms(window * 10 + 1);
            figures.record(0, at, (625, 625), || Some(1_000_000), true);
            figures.record(0, at, (625, 625), || Some(1_000_000), window != 6);
        }
        assert_eq!(figures.obtained()[0].windows, 6);
    }

    #[test]
    fn reused_slot_starts_without_history() {
        let mut figures = Figures::new(1, false);
        let rate = || Some(1_000_000);
        // Four users take turns of 500 ms. 1 Mbit/s is 625 B per 5 ms, and each user is limited at once.
        for frame in 0..400_u64 {
            let at = Time::ZERO + Span::from_ms(frame * 5);
            if frame % 100 == 0 {
                figures.begin(0, at, rate);
            }
            figures.record(0, at, (1_300, 600), rate, true);
        }
        let seen: Vec<_> = figures.obtained().iter().map(|window| (window.window, window.windows)).collect();
        // The first window of each user has no predecessor, and the last window of the last user is unfinished.
        assert_eq!(seen, [("10ms", 4 * 49 - 1), ("100ms", 4 * 4 - 1)], "no user was present for 1 s");
    }

    #[test]
    fn users_beyond_the_watched_ones_are_not_recorded() {
        let mut figures = Figures::new(2, false);
        figures.record(2, Time::ZERO, (1, 1), || Some(1), true);
        assert!(figures.obtained().is_empty());
        assert_eq!(figures.watched(), 2);
    }
}

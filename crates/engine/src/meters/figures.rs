use units::{Span, Time};

/// Users that are watched: those in the first slots. What all get together is counted for all.
const WATCHED: usize = 1 << 16;
/// Windows over which what users obtain is held against what they asked.
const WINDOWS: [(&str, Span); 3] =
    [("10ms", Span::from_ms(10)), ("100ms", Span::from_ms(100)), ("1s", Span::from_ms(1_000))];
/// Steps of a histogram in a whole.
const STEPS: f64 = 10_000.0;
/// The largest ratio that has a step of its own.
const MOST: usize = 5;

/// How near users come to their rates: obtained ÷ asked over windows of 10 ms, 100 ms and 1 s.
///
/// A window of a user counts if the user asked for more than its rate in it and in the one before: where frames
/// are refused, if some were, and as much came as the rate allows at least; where they wait, if all of them
/// did. Then what the user should have got is its rate × the window, to a frame at either end.
#[derive(Debug)]
pub struct Figures {
    cells: Vec<[Cell; WINDOWS.len()]>,
    ratios: [Ratios; WINDOWS.len()],
    at: Time,
    numbers: [u32; WINDOWS.len()],
    /// Frames wait, rather than being refused.
    queues: bool,
}

/// The window that a user is in.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    got: u64,
    asked: u64,
    number: u32,
    /// Something was held back, something was not.
    held_back: bool,
    at_once: bool,
    /// The window before counts.
    limited_before: bool,
}

/// Ratios that were obtained, to 1/10 000, and the least and largest exactly.
#[derive(Clone, Debug)]
struct Ratios {
    counts: Vec<u64>,
    windows: u64,
    least: f64,
    largest: f64,
}

/// What was obtained over windows of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Obtained {
    /// Length of the window.
    pub window: &'static str,
    /// Windows of users that were held back.
    pub windows: u64,
    /// Least obtained ÷ asked.
    pub least: f64,
    /// Median of obtained ÷ asked.
    pub median: f64,
    /// Largest obtained ÷ asked.
    pub largest: f64,
    /// 99th percentile of |obtained ÷ asked − 1|.
    pub p99_error: f64,
    /// Largest |obtained ÷ asked − 1|.
    pub worst_error: f64,
}

impl Figures {
    /// For a table of `capacity` users; `queues` where frames wait.
    #[must_use]
    pub fn new(capacity: usize, queues: bool) -> Self {
        let ratios =
            Ratios { counts: vec![0; MOST * STEPS as usize + 1], windows: 0, least: f64::INFINITY, largest: 0.0 };
        Figures {
            cells: vec![[Cell::default(); WINDOWS.len()]; capacity.min(WATCHED)],
            ratios: std::array::from_fn(|_| ratios.clone()),
            at: Time::ZERO,
            numbers: [0; WINDOWS.len()],
            queues,
        }
    }

    /// Users that are watched at most.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.cells.len()
    }

    /// At `at` a frame of `asked` bits of the user in `slot` left, or was refused, and the user `got` so many
    /// bits of it, at a rate of `bps`; `held_back` if the frame was refused or had to wait. Times of one user
    /// do not go back.
    #[inline]
    pub fn record(&mut self, slot: u32, at: Time, (asked, got): (u64, u64), bps: u64, held_back: bool) {
        let Some(cells) = self.cells.get_mut(slot as usize) else { return };
        if at != self.at {
            self.at = at;
            self.numbers = WINDOWS.map(|(_, window)| (at.as_ps() / window.as_ps()) as u32);
        }
        for (i, cell) in cells.iter_mut().enumerate() {
            if cell.number != self.numbers[i] {
                let due = bps as f64 * WINDOWS[i].1.as_secs_f64();
                let enough = if self.queues { !cell.at_once } else { cell.asked as f64 >= due };
                let limited = cell.held_back && enough;
                if limited && cell.limited_before {
                    self.ratios[i].add(cell.got as f64 / due);
                }
                let limited_before = limited && cell.number + 1 == self.numbers[i];
                *cell = Cell { number: self.numbers[i], limited_before, ..Cell::default() };
            }
            cell.got += got;
            cell.asked += asked;
            cell.held_back |= held_back;
            cell.at_once |= !held_back;
        }
    }

    /// What was obtained, for each length of windows in which any user was held back.
    #[must_use]
    pub fn obtained(&self) -> Vec<Obtained> {
        let seen = WINDOWS.iter().zip(&self.ratios).filter(|(_, ratios)| ratios.windows > 0);
        seen.map(|((window, _), ratios)| ratios.obtained(window)).collect()
    }
}

impl Ratios {
    fn add(&mut self, ratio: f64) {
        let step = (ratio * STEPS + 0.5) as usize;
        let last = self.counts.len() - 1;
        self.counts[step.min(last)] += 1;
        self.windows += 1;
        self.least = self.least.min(ratio);
        self.largest = self.largest.max(ratio);
    }

    fn obtained(&self, window: &'static str) -> Obtained {
        let ratio = |step: usize| step as f64 / STEPS;
        let mut median = 0;
        let mut below = 0;
        let mut errors = vec![0_u64; self.counts.len()];
        for (step, count) in self.counts.iter().enumerate() {
            if below * 2 < self.windows {
                median = step;
            }
            below += count;
            errors[step.abs_diff(STEPS as usize)] += count;
        }
        let mut p99 = 0;
        below = 0;
        for (step, count) in errors.iter().enumerate() {
            if below * 100 >= self.windows * 99 {
                break;
            }
            p99 = step;
            below += count;
        }
        let worst_error = (self.largest - 1.0).abs().max((self.least - 1.0).abs());
        Obtained {
            window,
            windows: self.windows,
            least: self.least,
            median: ratio(median),
            largest: self.largest,
            p99_error: ratio(p99).min(worst_error),
            worst_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_in_which_a_user_was_held_back_count() {
        let mut figures = Figures::new(4, false);
        // 1 Mbit/s is 10 000 bits in 10 ms. One frame and one refusal in each window but the sixth.
        for window in 0..10_u64 {
            let at = Time::ZERO + Span::from_ms(window * 10 + 1);
            let got = if window == 3 { 12_000 } else { 8_000 };
            figures.record(1, at, (got, got), 1_000_000, false);
            figures.record(1, at, (2_000, 0), 1_000_000, window != 6);
            figures.record(3, at, (9_000, 4_000), 1_000_000, true);
        }
        let obtained = figures.obtained();
        assert_eq!(obtained.len(), 1, "100 ms never were full");
        let short = obtained[0];
        // Windows 1 to 5 and 8: the first, the sixth and the one after it do not count, the last is not over.
        assert_eq!((short.window, short.windows), ("10ms", 6));
        assert!((short.median - 0.8).abs() < 1e-9 && (short.largest - 1.2).abs() < 1e-9);
        assert!((short.worst_error - 0.2).abs() < 1e-9 && (short.p99_error - 0.2).abs() < 1e-9);
        assert!((short.least - 0.8).abs() < 1e-9);
    }

    #[test]
    fn where_frames_wait_all_of_them_must() {
        let mut figures = Figures::new(1, true);
        for window in 0..10_u64 {
            let at = Time::ZERO + Span::from_ms(window * 10 + 1);
            figures.record(0, at, (5_000, 5_000), 1_000_000, true);
            figures.record(0, at, (5_000, 5_000), 1_000_000, window != 6);
        }
        assert_eq!(figures.obtained()[0].windows, 6);
    }

    #[test]
    fn users_beyond_those_that_are_watched_cost_nothing() {
        let mut figures = Figures::new(2, false);
        figures.record(2, Time::ZERO, (1, 1), 1, true);
        assert!(figures.obtained().is_empty());
        assert_eq!(figures.watched(), 2);
    }
}

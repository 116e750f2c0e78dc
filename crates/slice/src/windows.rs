//! Probes that are attached only in short windows, so their cost is paid for a share of the time.

use crate::error::Error;
use crate::kernel::Kernel;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;
use std::time::{Duration, Instant};
use units::{ParseError, Span};

/// Minimum length of a window: packets must start and arrive in it.
const LEAST: Span = Span::from_ms(1);
/// Minimum ratio of the interval to the window. Probes are attached for twice the window, and attaching them takes time
/// too.
const LEAST_RATIO: u64 = 4;

/// One window per `every`. A window traces new packets for `open`, then waits as long again for packets in flight.
/// Outside windows the probes are detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// How long new packets are traced.
    pub open: Span,
    /// Interval with one window at a random position in it, so that a periodic activity of a program is neither always
    /// nor never hit.
    pub every: Span,
}

impl FromStr for Windows {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Windows, ParseError> {
        let wrong = |remedy: &str| ParseError::new(format!("'{text}' is not a pair of windows"), remedy);
        let form = "write for how long and in what time, such as 20ms/1s";
        let (open, every) = text.split_once('/').ok_or_else(|| wrong(form))?;
        let (open, every): (Span, Span) = (open.trim().parse()?, every.trim().parse()?);
        if open < LEAST {
            return Err(wrong("a window is open for 1ms or more"));
        }
        if every.as_ps() / LEAST_RATIO < open.as_ps() {
            return Err(wrong("packets are followed for twice that time: a quarter of the whole is the most"));
        }
        Ok(Windows { open, every })
    }
}

/// State of the probes after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// They are attached and trace new packets.
    Opened,
    /// They trace no new packets.
    Closed,
    /// The probes were detached; this many packets in flight were given up.
    Rested(u64),
}

/// A sequence of windows. The first is open from the start.
pub struct Turns {
    windows: Windows,
    /// Start of the present interval.
    begun: Instant,
    last: Turn,
    next: Instant,
    /// Since when the probes are attached, and how long they were attached before.
    since: Option<Instant>,
    in_place: Duration,
    opened: u64,
}

impl Turns {
    /// Opens the first window. The probes are already attached and tracing.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn begin(windows: Windows, kernel: &mut Kernel) -> Result<Turns, Error> {
        kernel.open_for(windows.open.to_std())?;
        Ok(Turns::begun(windows, Instant::now()))
    }

    fn begun(windows: Windows, now: Instant) -> Turns {
        let next = now + windows.open.to_std();
        Turns { windows, begun: now, last: Turn::Opened, next, since: Some(now), in_place: Duration::ZERO, opened: 1 }
    }

    /// When the next turn is due.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Number of windows so far.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// How long the probes have been attached in total until `now`.
    #[must_use]
    pub fn in_place(&self, now: Instant) -> Duration {
        self.in_place + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Performs the turn that is due at [`Turns::next`].
    ///
    /// # Errors
    /// As [`Kernel::resume`] and [`Kernel::rest`].
    pub fn turn(&mut self, kernel: &mut Kernel) -> Result<Turn, Error> {
        let turn = match self.last {
            // The kernel has closed the window itself.
            Turn::Opened => Turn::Closed,
            Turn::Closed => Turn::Rested(kernel.rest()?),
            Turn::Rested(_) => {
                self.since = Some(Instant::now());
                kernel.resume()?;
                kernel.open_for(self.windows.open.to_std())?;
                Turn::Opened
            }
        };
        self.done(turn, Instant::now(), RandomState::new().build_hasher().finish());
        Ok(turn)
    }

    /// Records a turn at `now`. `random` sets the position of the next window in its interval.
    fn done(&mut self, turn: Turn, now: Instant, random: u64) {
        let (open, every) = (self.windows.open.to_std(), self.windows.every.to_std());
        self.last = turn;
        self.next = now + open;
        match turn {
            Turn::Opened => self.opened += 1,
            Turn::Closed => {}
            Turn::Rested(_) => {
                self.in_place = self.in_place(now);
                self.since = None;
                // If attaching took long, whole intervals may have passed without a window.
                while self.begun <= now {
                    self.begun += every;
                }
                self.next = self.begun + (every - 2 * open).mul_f64(random as f64 / u64::MAX as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read() {
        let windows: Windows = "20ms/1s".parse().expect("windows");
        assert_eq!(windows, Windows { open: Span::from_ms(20), every: Span::from_ms(1_000) });
        assert!("1ms / 4ms".parse::<Windows>().is_ok());
        let refused = |text: &str| text.parse::<Windows>().expect_err(text).to_string();
        assert!(refused("20ms").contains("such as 20ms/1s"));
        assert!(refused("20/1s").contains("20"));
        assert!(refused("500us/1s").contains("1ms or more"));
        assert!(refused("20ms/79ms").contains("a quarter"));
    }

    #[test]
    fn one_window_in_each_time_and_the_next_after_its_rest() {
        let start = Instant::now();
        let windows: Windows = "20ms/1s".parse().expect("windows");
        let mut turns = Turns::begun(windows, start);
        let ms = |at: Instant| at.duration_since(start).as_millis();
        assert_eq!((ms(turns.next()), turns.opened()), (20, 1));
        turns.done(Turn::Closed, start + Duration::from_millis(21), 0);
        assert_eq!(ms(turns.next()), 41);
        turns.done(Turn::Rested(0), start + Duration::from_millis(43), 0);
        assert_eq!(ms(turns.next()), 1_000, "the earliest place in the second second");
        assert_eq!(turns.in_place(start + Duration::from_millis(900)).as_millis(), 43);
        turns.since = Some(start + Duration::from_millis(1_000));
        turns.done(Turn::Opened, start + Duration::from_millis(1_015), 0);
        assert_eq!((ms(turns.next()), turns.opened()), (1_035, 2));
        turns.done(Turn::Closed, start + Duration::from_millis(1_035), 0);
        turns.done(Turn::Rested(0), start + Duration::from_millis(3_200), u64::MAX);
        assert_eq!(ms(turns.next()), 4_960, "the third and fourth second are over; the latest place in the fifth");
    }
}

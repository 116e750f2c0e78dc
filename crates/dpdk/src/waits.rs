//! Computes how long frames waited from the kernel's stamps, even if the stamp clock is set or slewed.

use crate::clock::{TscClock, kernel_ns};
use units::{Span, Time};

/// Two readings closer than this were not interrupted.
const CLOSE: Span = Span::from_us(1);

/// Returns the result of `read` and the time on `clock` directly after it. Repeats the reading if the thread was
/// interrupted, up to four times in total.
#[inline]
pub(crate) fn beside<R>(clock: &TscClock, read: impl Fn() -> R) -> (R, Time) {
    let mut tries = 4;
    loop {
        let before = clock.now();
        let reading = read();
        let after = clock.now();
        tries -= 1;
        if tries == 0 || after.since(before) < CLOSE {
            return (reading, after);
        }
    }
}

/// The kernel's two clocks, in ns: the stamp clock, which can be set, and the steady clock, which cannot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    wall: u64,
    steady: u64,
    /// The same moment on the run's clock.
    at: Time,
}

impl Reading {
    #[inline]
    pub(crate) fn of_kernel(clock: &TscClock) -> Reading {
        let both = || (kernel_ns(libc::CLOCK_MONOTONIC), kernel_ns(libc::CLOCK_REALTIME));
        let ((steady, wall), at) = beside(clock, both);
        Reading { wall, steady, at }
    }

    /// Reads both clocks, for a run whose own clock is the steady clock.
    pub(crate) fn of_both_clocks() -> Reading {
        let (steady, wall) = (kernel_ns(libc::CLOCK_MONOTONIC), kernel_ns(libc::CLOCK_REALTIME));
        Reading { wall, steady, at: Time::ZERO }
    }

    /// The difference between the clocks in ns. Slewing moves both equally.
    fn apart(self) -> u64 {
        self.wall.wrapping_sub(self.steady)
    }
}

/// Converts stamps to waits.
#[derive(Debug)]
pub(crate) struct Clocks {
    now: Reading,
    /// The difference between the clocks when the stamp clock was last set.
    apart: u64,
    /// Stamps read before this time of the steady clock may date from before the stamp clock was set.
    doubted_until: u64,
    /// The last frame's stamp.
    last: u64,
}

/// Stamps older than this, in ns, are ignored: either the stamp is wrong or the frame arrived before the first poll.
/// The limit is longer than a usual stop of the polling thread, because after a stop frames really have waited that
/// long, and an ignored stamp would make all frames behind it look new.
pub(crate) const OLDEST: u64 = 4_000_000_000;

/// Time after a step of the stamp clock, in ns, in which stamps may still date from before the step.
const DOUBT: u64 = 1_000_000_000;

/// If the difference between the clocks changes by more than this, in ns, the stamp clock was set, unless this thread
/// was interrupted between the readings.
const STEP: u64 = 1_000_000;

impl Clocks {
    pub(crate) fn new(now: Reading) -> Clocks {
        Clocks { now, apart: now.apart(), doubted_until: 0, last: 0 }
    }

    #[inline]
    pub(crate) fn read(&mut self, read: impl Fn() -> Reading) {
        let is_set = |now: Reading| now.apart().wrapping_sub(self.apart).cast_signed().unsigned_abs() > STEP;
        self.now = read();
        for _ in 0..3 {
            if !is_set(self.now) {
                return;
            }
            self.now = read();
        }
        (self.apart, self.last) = (self.now.apart(), 0);
        self.doubted_until = self.now.steady + DOUBT;
    }

    /// The last reading's time on the run's clock.
    pub(crate) fn at(&self) -> Time {
        self.now.at
    }

    /// The wait from a frame's stamp to the last reading, in nanoseconds. A frame never counts as older than its
    /// predecessor.
    #[inline]
    pub(crate) fn waited(&mut self, stamp: u64) -> u32 {
        if self.now.steady < self.doubted_until {
            return 0;
        }
        let stamp = stamp.max(self.last);
        match self.now.wall.checked_sub(stamp) {
            Some(waited) if waited <= OLDEST => {
                self.last = stamp;
                waited as u32 // OLDEST fits a u32
            }
            _ => 0,
        }
    }
}

/// Keeps the frames of a queue in order. The kernel's clock and the run's clock cannot be read at the same instant.
/// This error must not make a frame older than its predecessor, or a stage would let it overtake.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: Time,
}

impl Arrivals {
    /// The wait of the next frame until `at`, in ns, given the wait `ns` from its stamp.
    #[inline]
    pub(crate) fn wait(&mut self, at: Time, ns: u32) -> u32 {
        let most = at.since(self.last).as_ps() / PS_PER_NS;
        let ns = u64::from(ns).min(most) as u32; // no larger than the `ns` passed
        self.last = Time::ZERO + at.since(Time::ZERO + Span::from_ns(ns.into()));
        ns
    }
}

const PS_PER_NS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    /// The initial wall clock, when the steady clock reads 0.
    const WALL: u64 = 1_790_000_000 * S;

    fn at(steady: u64, set_by: i64) -> Reading {
        Reading { wall: (WALL + steady).wrapping_add_signed(set_by), steady, at: Time::from_ps(steady * 1_000) }
    }

    /// Reads the clocks and returns the wait of a frame that arrived at `arrived`, stamped by the clock of that time.
    fn waited(clocks: &mut Clocks, now: Reading, arrived: Reading) -> u64 {
        clocks.read(|| now);
        clocks.waited(arrived.wall).into()
    }

    #[test]
    fn waits_are_from_the_stamp() {
        let mut clocks = Clocks::new(at(0, 0));
        assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(3 * MS, 0)), 17 * MS);
        assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(2 * MS, 0)), 17 * MS, "not before the frame ahead of it");
        assert_eq!(waited(&mut clocks, at(21 * MS, 0), at(22 * MS, 0)), 0, "never later than now");
        assert_eq!(waited(&mut clocks, at(23 * MS, 0), at(22 * MS, 0)), MS, "that stamp bounds no other");
        assert_eq!(waited(&mut clocks, at(3 * S, 0), at(2 * S, 0)), S);
        assert_eq!(waited(&mut clocks, at(6 * S, 0), at(2 * S, 0)), 4 * S, "a thread that was stopped");
        assert_eq!(waited(&mut clocks, at(7 * S, 0), at(3 * S - 1, 0)), 0, "too old");
    }

    #[test]
    fn a_thread_that_was_interrupted_lets_no_frame_overtake() {
        let mut arrivals = Arrivals::default();
        let at = |us: u64| Time::from_ps(us * 1_000_000);
        // The run's clock was read 300 µs late: the frames seem to arrive at 960 and 990 µs, not at 660 and 690 µs.
        assert_eq!([40_000, 10_000].map(|ns| arrivals.wait(at(1_000), ns)), [40_000, 10_000]);
        // The next frames arrived at 710, 950 and 1 010 µs.
        assert_eq!([310_000, 70_000, 10_000].map(|ns| arrivals.wait(at(1_020), ns)), [30_000, 30_000, 10_000]);
        assert_eq!(arrivals.wait(at(1_000), 5), 0, "a clock that seems to go back");
    }

    #[test]
    fn a_stepped_clock_gives_no_offset_for_a_while() {
        for by in [-3_600, -1, 1, 3_600].map(|s: i64| s * S as i64 / 10) {
            let mut clocks = Clocks::new(at(0, 0));
            assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(3 * MS, 0)), 17 * MS);
            assert_eq!(waited(&mut clocks, at(30 * MS, by), at(25 * MS, 0)), 0, "it was set by {by} ns meanwhile");
            assert_eq!(waited(&mut clocks, at(40 * MS, by), at(26 * MS, 0)), 0, "more of that time was there");
            assert_eq!(waited(&mut clocks, at(S, by), at(S - MS, by)), 0);
            assert_eq!(waited(&mut clocks, at(2 * S, by), at(2 * S - MS, by)), MS, "known anew");
        }
    }

    #[test]
    fn interrupted_reading_is_repeated() {
        let mut clocks = Clocks::new(at(0, 0));
        let readings = std::cell::Cell::new(0);
        clocks.read(|| {
            readings.set(readings.get() + 1);
            let stopped = if readings.get() == 1 { 5 * MS as i64 } else { 0 };
            at(20 * MS, -stopped)
        });
        assert_eq!((readings.get(), clocks.waited(at(3 * MS, 0).wall)), (2, 17 * MS as u32));
    }
}

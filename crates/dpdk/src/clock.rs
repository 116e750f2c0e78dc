use crate::Eal;
use std::sync::OnceLock;
use units::{PS_PER_S, Time};

/// The time-stamp counter as a clock of picoseconds since it was made.
///
/// EAL's figure for the counter's rate is rounded to 10 MHz where the CPU does not tell it, which
/// can be off by 0.2 %. So the rate is measured against the kernel's CLOCK_MONOTONIC, over the time
/// that EAL takes to start and at least 100 ms: good to about 1 ppm, as the stamps of captures are.
/// All clocks of a process have the same rate; ticks are scaled with 64 fractional bits, so that
/// rounding never adds up to a picosecond within 213 days.
///
/// It needs a counter that runs at a constant rate on all CPUs alike, as all since about 2008 do.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    zero: u64,
    rate: Rate,
    wall_at_zero: u64,
}

/// Picoseconds per tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    whole: u64,
    fraction: u64, // of 2⁶⁴
}

impl Rate {
    /// `ticks` passed in `ps`.
    fn of(ticks: u64, ps: u64) -> Rate {
        let scaled = (u128::from(ps) << 64) / u128::from(ticks.max(1));
        Rate { whole: (scaled >> 64) as u64, fraction: scaled as u64 }
    }

    fn ps(self, ticks: u64) -> u64 {
        let part = (u128::from(ticks) * u128::from(self.fraction)) >> 64;
        ticks.wrapping_mul(self.whole).wrapping_add(part as u64)
    }
}

/// The counter and a clock of the kernel at one moment, to the width of a call.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
}

impl Moment {
    /// The closest of some readings: what interrupts one does not interrupt all.
    fn of(clock: libc::clockid_t) -> Moment {
        let mut best = (u64::MAX, Moment { ticks: 0, ns: 0 });
        for _ in 0..32 {
            let before = ticks();
            let ns = kernel_ns(clock);
            let width = ticks().wrapping_sub(before);
            if width < best.0 {
                best = (width, Moment { ticks: before.wrapping_add(width / 2), ns });
            }
        }
        best.1
    }
}

static FIRST: OnceLock<Moment> = OnceLock::new();
static RATE: OnceLock<Rate> = OnceLock::new();

/// The least that the rate is measured over, in nanoseconds.
const CALIBRATION: u64 = 100_000_000;

pub(crate) fn calibration_begins() {
    FIRST.get_or_init(|| Moment::of(libc::CLOCK_MONOTONIC));
}

fn rate() -> Rate {
    *RATE.get_or_init(|| {
        calibration_begins();
        let first = *FIRST.get().expect("set above");
        let mut last = Moment::of(libc::CLOCK_MONOTONIC);
        let passed = last.ns - first.ns;
        if passed < CALIBRATION {
            std::thread::sleep(std::time::Duration::from_nanos(CALIBRATION - passed));
            last = Moment::of(libc::CLOCK_MONOTONIC);
        }
        // Nanoseconds × 1000 stay in range for 213 days, like Time itself.
        Rate::of(last.ticks.wrapping_sub(first.ticks), (last.ns - first.ns) * 1000)
    })
}

impl TscClock {
    /// A clock that begins now. The first of a process may take 100 ms to be calibrated.
    #[must_use]
    pub fn new(_eal: &Eal) -> TscClock {
        let rate = rate();
        let moment = Moment::of(libc::CLOCK_REALTIME);
        TscClock { zero: moment.ticks, rate, wall_at_zero: moment.ns }
    }

    /// Time since the clock began.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_ps(self.rate.ps(ticks().wrapping_sub(self.zero)))
    }

    /// Waits, without sleeping, until `time`, and gives the time at which it stopped waiting.
    #[inline]
    pub fn spin_until(&self, time: Time) -> Time {
        loop {
            let now = self.now();
            if now >= time {
                return now;
            }
            // The pause of some CPUs lasts 60 ns and more: not at the very end.
            if time.since(now).as_ps() > 500_000 {
                std::hint::spin_loop();
            }
        }
    }

    /// The UNIX time, in nanoseconds, at which the clock began; to within 100 ns of CLOCK_REALTIME
    /// then, and not adjusted when that is set later.
    #[must_use]
    pub fn wall_at_zero(&self) -> u64 {
        self.wall_at_zero
    }

    /// Ticks per second, measured.
    #[must_use]
    pub fn hz(&self) -> u64 {
        let per_tick = (u128::from(self.rate.whole) << 64) + u128::from(self.rate.fraction);
        // Multiplied by 2⁶⁴ the numerator has 104 bits.
        ((u128::from(PS_PER_S) << 64) / per_tick.max(1)) as u64
    }

    /// EAL's own figure for the ticks per second.
    #[must_use]
    pub fn eal_hz(_eal: &Eal) -> u64 {
        // SAFETY: takes nothing; EAL runs.
        unsafe { dpdk_sys::shim_tsc_hz() }
    }
}

#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space use it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: takes nothing, reads a counter.
    unsafe {
        dpdk_sys::shim_tsc()
    }
}

pub(crate) fn kernel_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clocks named here exist everywhere; a timespec is written.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_does_not_drift_within_213_days() {
        for hz in [999_999_937_u64, 1_000_000_000, 2_299_998_117, 2_300_000_000, 5_100_000_011] {
            let rate = Rate::of(hz, PS_PER_S);
            for days in [0_u64, 1, 213] {
                let ticks = hz * 86_400 * days + hz / 3;
                let exact = (u128::from(ticks) * u128::from(PS_PER_S) / u128::from(hz)) as u64;
                assert!(exact - rate.ps(ticks) <= 1, "{hz} Hz, day {days}");
            }
        }
    }

    #[test]
    fn the_rate_agrees_with_the_kernel() {
        let rate = rate();
        let a = Moment::of(libc::CLOCK_MONOTONIC);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let b = Moment::of(libc::CLOCK_MONOTONIC);
        let measured = rate.ps(b.ticks - a.ticks) as f64;
        let told = ((b.ns - a.ns) * 1000) as f64;
        assert!((measured / told - 1.0).abs() < 20e-6, "{} ppm", (measured / told - 1.0) * 1e6);
    }
}

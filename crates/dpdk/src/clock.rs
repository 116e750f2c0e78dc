use crate::Eal;
use std::sync::OnceLock;
use units::{PS_PER_S, Time};

/// A clock that reads the time-stamp counter, in picoseconds since its creation.
///
/// If the CPU does not report the counter's rate, EAL's value is rounded to 10 MHz, an error of up to 0.2 %. So we
/// measure the rate against the kernel's CLOCK_MONOTONIC while EAL starts, for at least 100 ms. The result is good to
/// about 1 ppm, like the stamps of captures. All clocks of a process have the same rate. Ticks are scaled with 64
/// fractional bits, so rounding errors stay below one picosecond for 213 days.
///
/// The counter must run at the same constant rate on all CPUs, as it has since about 2008.
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
    fraction: u64, // in units of 2⁻⁶⁴
}

impl Rate {
    /// The rate at which `ticks` pass in `ps` picoseconds.
    fn of(ticks: u64, ps: u64) -> Rate {
        let scaled = (u128::from(ps) << 64) / u128::from(ticks.max(1));
        Rate { whole: (scaled >> 64) as u64, fraction: scaled as u64 }
    }

    fn ps(self, ticks: u64) -> u64 {
        let part = (u128::from(ticks) * u128::from(self.fraction)) >> 64;
        ticks.wrapping_mul(self.whole).wrapping_add(part as u64)
    }
}

/// A simultaneous reading of the counter and a kernel clock, accurate to the duration of a call.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
}

impl Moment {
    /// The tightest of several readings, because an interruption does not affect all of them.
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

/// The minimum duration of the rate measurement, in nanoseconds.
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
        // Nanoseconds × 1000 stay in range for 213 days, as in Time.
        Rate::of(last.ticks.wrapping_sub(first.ticks), (last.ns - first.ns) * 1000)
    })
}

impl TscClock {
    /// Creates a clock that starts now. The first call in a process may take 100 ms to calibrate.
    #[must_use]
    pub fn new(_eal: &Eal) -> TscClock {
        let rate = rate();
        let moment = Moment::of(libc::CLOCK_REALTIME);
        TscClock { zero: moment.ticks, rate, wall_at_zero: moment.ns }
    }

    /// The time since the clock started.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_ps(self.rate.ps(ticks().wrapping_sub(self.zero)))
    }

    /// Spins until `time` without sleeping. Returns the time at which it stopped.
    #[inline]
    pub fn spin_until(&self, time: Time) -> Time {
        loop {
            let now = self.now();
            if now >= time {
                return now;
            }
            // On some CPUs a pause takes 60 ns or more, so do not pause near the end.
            if time.since(now).as_ps() > 500_000 {
                std::hint::spin_loop();
            }
        }
    }

    /// The UNIX time in nanoseconds at which the clock started. It is within 100 ns of CLOCK_REALTIME at that moment
    /// and is not adjusted when that clock is set later.
    #[must_use]
    pub fn wall_at_zero(&self) -> u64 {
        self.wall_at_zero
    }

    /// The UNIX time now in nanoseconds, by CLOCK_REALTIME.
    #[must_use]
    pub fn wall_now() -> u64 {
        kernel_ns(libc::CLOCK_REALTIME)
    }

    /// Converts a UNIX time in nanoseconds to a time of this clock, by the current setting of CLOCK_REALTIME. The error
    /// is 100 ns plus about a millionth of the distance from now. Times before the clock's start return its start.
    #[must_use]
    pub fn at_wall(&self, unix_ns: u64) -> Time {
        let moment = Moment::of(libc::CLOCK_REALTIME);
        let now = self.rate.ps(moment.ticks.wrapping_sub(self.zero));
        let ahead = i128::from(unix_ns) - i128::from(moment.ns);
        Time::from_ps(u64::try_from(i128::from(now) + ahead * 1000).unwrap_or(0))
    }

    /// The measured rate in ticks per second.
    #[must_use]
    pub fn hz(&self) -> u64 {
        let per_tick = (u128::from(self.rate.whole) << 64) + u128::from(self.rate.fraction);
        // The numerator, multiplied by 2⁶⁴, has 104 bits.
        ((u128::from(PS_PER_S) << 64) / per_tick.max(1)) as u64
    }

    /// EAL's value for the rate in ticks per second.
    #[must_use]
    pub fn eal_hz(_eal: &Eal) -> u64 {
        // SAFETY: takes no arguments; EAL runs.
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
    // SAFETY: takes no arguments and reads a counter.
    unsafe {
        dpdk_sys::shim_tsc()
    }
}

pub(crate) fn kernel_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec, and the clocks used here always exist.
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
        let elapsed = ((b.ns - a.ns) * 1000) as f64;
        assert!((measured / elapsed - 1.0).abs() < 20e-6, "{} ppm", (measured / elapsed - 1.0) * 1e6);
    }
}

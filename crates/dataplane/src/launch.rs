//! Launch time: frames are handed over early, each with the instant at which the NIC sends it.
//!
//! A NIC has its own clock, with unknown rate and offset. It is read repeatedly between two readings of ours, and
//! tracked.

use dpdk::{LaunchField, Mbuf, NicClock, TscClock};
use std::time::Duration;
use units::{Span, Time};

/// How early a frame is handed over: longer than the pauses of a busy machine, and within the horizon of every NIC that
/// supports this (half a second for Intel's i225).
pub(crate) const LEAD: Span = Span::from_ms(5);
/// With less time than this, the instant has passed before the NIC reads it.
const LEAST: Span = Span::from_us(5);
/// Interval between readings of the NIC's clock. Crystals drift apart by less than 0.1 ns in this time.
const EVERY: Span = Span::from_ms(10);
/// Period over which the rate is measured before the first frame.
const FIRST: Duration = Duration::from_millis(50);
/// Number of readings, of which the narrowest counts.
const TRIES: usize = 8;

/// A foreign clock.
pub(crate) trait OtherClock: Send {
    /// The reading, in ticks of the clock.
    fn ticks(&self) -> Option<u64>;
}

impl OtherClock for NicClock {
    fn ticks(&self) -> Option<u64> {
        self.read()
    }
}

/// Writes departure times into frames, by the NIC's clock.
pub(crate) struct Launch {
    field: LaunchField,
    clock: TscClock,
    nic: Box<dyn OtherClock>,
    translation: Translation,
    due: Time,
}

impl Launch {
    /// Measures the NIC's clock; `None` if it cannot be read or stands still.
    pub(crate) fn new(field: LaunchField, clock: TscClock, nic: Box<dyn OtherClock>) -> Option<Launch> {
        let first = read(&clock, &*nic)?;
        std::thread::sleep(FIRST);
        let second = read(&clock, &*nic)?;
        let translation = Translation::new(first, second)?;
        Some(Launch { field, clock, nic, translation, due: second.at + EVERY })
    }

    /// Updates the tracking of the NIC's clock, if it is due.
    pub(crate) fn keep_up(&mut self, now: Time) {
        if now < self.due {
            return;
        }
        if let Some(reading) = read(&self.clock, &*self.nic) {
            self.translation.follow(reading);
        }
        self.due = now + EVERY;
    }

    /// Sets the launch time of `frame` to `at`. If `at` is too near for a NIC, the frame departs at once.
    pub(crate) fn stamp(&self, frame: &mut Mbuf, at: Time, now: Time) {
        if at > now + LEAST {
            self.field.set(frame, self.translation.ticks_at(at));
        } else {
            self.field.clear(frame);
        }
    }
}

/// Readings of both clocks at one instant.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Time,
    ticks: u64,
}

/// The narrowest of several readings, since an interruption does not affect all of them.
fn read(clock: &TscClock, nic: &dyn OtherClock) -> Option<Reading> {
    let mut best = None;
    for _ in 0..TRIES {
        let before = clock.now();
        let ticks = nic.ticks()?;
        let width = clock.now().since(before);
        let reading = Reading { at: before + Span::from_ps(width.as_ps() / 2), ticks };
        if best.is_none_or(|(narrowest, _)| width < narrowest) {
            best = Some((width, reading));
        }
    }
    best.map(|(_, reading)| reading)
}

/// Converts our time to ticks of another clock, by a line that tracks the readings.
///
/// The slope comes from a long base, which reduces the effect of a single reading's width. The line moves only by a
/// part of each reading's error, because most of that error belongs to the reading.
#[derive(Debug)]
struct Translation {
    /// Start of the base, and the next start once the base is old.
    base: Reading,
    next_base: Reading,
    /// A point of the line: our time, and ticks since the base.
    at: Time,
    ticks: f64,
    /// Ticks per picosecond.
    slope: f64,
}

impl Translation {
    /// Length at which the older half of the base is dropped, because a crystal's rate changes with temperature.
    const LONGEST_BASE: Span = Span::from_ms(20_000);
    /// Part of an error by which the line moves.
    const PART: f64 = 0.125;
    /// A clock that is off by more than this was stepped.
    const STEP: Span = Span::from_us(50);

    fn new(first: Reading, second: Reading) -> Option<Translation> {
        let ticks = second.ticks.wrapping_sub(first.ticks).cast_signed();
        if ticks <= 0 || second.at <= first.at {
            return None;
        }
        let slope = ticks as f64 / second.at.since(first.at).as_ps() as f64;
        Some(Translation { base: first, next_base: second, at: second.at, ticks: ticks as f64, slope })
    }

    fn ticks_at(&self, time: Time) -> u64 {
        let ahead =
            if time >= self.at { time.since(self.at).as_ps() as f64 } else { -(self.at.since(time).as_ps() as f64) };
        let ticks = libm::round(self.ticks + ahead * self.slope) as i64;
        self.base.ticks.wrapping_add_signed(ticks)
    }

    fn follow(&mut self, reading: Reading) {
        let error = reading.ticks.wrapping_sub(self.ticks_at(reading.at)).cast_signed() as f64;
        if error.abs() > Self::STEP.as_ps() as f64 * self.slope {
            // The clock was stepped: only the learnt rate still holds.
            *self = Translation { base: reading, next_base: reading, at: reading.at, ticks: 0.0, slope: self.slope };
            return;
        }
        let measured = reading.ticks.wrapping_sub(self.base.ticks).cast_signed() as f64;
        let passed = reading.at.since(self.base.at).as_ps() as f64;
        let expected = self.ticks + reading.at.since(self.at).as_ps() as f64 * self.slope;
        (self.at, self.ticks) = (reading.at, expected + (measured - expected) * Self::PART);
        // A short base is less precise than the known slope.
        if reading.at.since(self.base.at) >= Span::from_ms(50) {
            self.slope = measured / passed;
        }
        if reading.at.since(self.next_base.at) > Self::LONGEST_BASE {
            let moved = self.next_base.ticks.wrapping_sub(self.base.ticks).cast_signed() as f64;
            (self.base, self.next_base, self.ticks) = (self.next_base, reading, self.ticks - moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::deadline::DeadlinePacer;
    use crate::intake::Intake;
    use crate::outlet::Outlet;
    use crate::rounds::Rounds;
    use crate::worker::RunContext;
    use dpdk::{Burst, Eal, EalConfig, HugePages, Pool, Port};
    use engine::Pipeline;
    use engine::schedules::{Draw, Target};
    use std::sync::atomic::AtomicBool;

    /// A clock of `hz` that runs fast by `ppm`, read with alternating errors of up to ±`noise` ps.
    fn reading(ms: u64, hz: f64, ppm: f64, noise: f64) -> Reading {
        let at = Time::from_ps(ms * 1_000_000_000);
        let wobble = [0.0, 1.0, -0.7, 0.4, -1.0, 0.2][ms as usize / 10 % 6] * noise;
        let ticks = (at.as_ps() as f64 + wobble) * hz * (1.0 + ppm * 1e-6) / 1e12;
        Reading { at, ticks: (ticks as u64).wrapping_add(u64::MAX - 5_000_000) }
    }

    #[test]
    fn tracks_another_clock_within_its_reading_error() {
        for (hz, ppm) in [(1e9, 50.0), (125e6, -100.0), (2.3e9, 0.0)] {
            let mut translation =
                Translation::new(reading(0, hz, ppm, 0.0), reading(50, hz, ppm, 300_000.0)).expect("it runs");
            let mut worst: f64 = 0.0;
            for ms in (60..100_000).step_by(10) {
                translation.follow(reading(ms, hz, ppm, 300_000.0));
                let ahead = reading(ms + 5, hz, ppm, 0.0);
                let error = translation.ticks_at(ahead.at).wrapping_sub(ahead.ticks).cast_signed() as f64 / hz * 1e9;
                if ms > 2_000 {
                    worst = worst.max(error.abs());
                }
            }
            // Readings are off by up to 300 ns; a tick of 125 MHz is 8 ns.
            assert!(worst < 70.0, "{hz} Hz, {ppm} ppm: off by {worst} ns");
        }
    }

    #[test]
    fn follows_a_stepped_clock_at_once() {
        let mut translation =
            Translation::new(reading(0, 1e9, 20.0, 0.0), reading(50, 1e9, 20.0, 0.0)).expect("it runs");
        let mut set = reading(60, 1e9, 20.0, 0.0);
        set.ticks = 1_000_000_000_000;
        translation.follow(set);
        assert_eq!(translation.ticks_at(set.at), set.ticks);
        let later = translation.ticks_at(set.at + Span::from_ms(1));
        assert!(later.abs_diff(set.ticks + 1_000_020) <= 1, "{later}");
    }

    #[test]
    fn rejects_a_clock_that_stands_still() {
        let first = reading(0, 1e9, 0.0, 0.0);
        assert!(Translation::new(first, Reading { at: first.at + Span::from_ms(50), ..first }).is_none());
    }

    /// A fake NIC whose clock runs at 125 MHz and 40 ppm fast from some instant on.
    #[derive(Clone, Copy)]
    struct FakeNic(TscClock);

    impl FakeNic {
        const HZ: f64 = 125e6 * (1.0 + 40e-6);
        const ZERO: u64 = u64::MAX - 1_000;

        fn instant_of(ticks: u64) -> f64 {
            ticks.wrapping_sub(Self::ZERO) as f64 / Self::HZ * 1e12
        }
    }

    impl OtherClock for FakeNic {
        fn ticks(&self) -> Option<u64> {
            let ticks = self.0.now().as_ps() as f64 / 1e12 * Self::HZ;
            Some((ticks as u64).wrapping_add(Self::ZERO))
        }
    }

    #[test]
    fn gives_the_nic_every_departure_by_its_own_clock() {
        const FRAMES: u64 = 2_000;
        let gap = Span::from_us(10);
        let config = EalConfig::new("launch").memory_mib(64).hugepages(HugePages::Never);
        let eal = Eal::init(&config).expect("DPDK starts");
        let pool = Pool::new(eal, "launch", 4_095, 2_048).expect("a pool");
        let started = Port::ring(eal, 4_096, 1, &pool).and_then(Port::start).expect("a ring");
        let clock = TscClock::new(eal);
        let field = LaunchField::register(eal).expect("a field");
        let launch = Launch::new(field, clock, Box::new(FakeNic(clock))).expect("a clock that runs");

        let draw = Draw { seed: 1, path: "launch", frames: None };
        let schedule = Target::Gap(gap).schedule(None, draw).expect("a schedule");
        let mut pipeline = Pipeline::new(Vec::new(), schedule).measuring(Some(gap), None, Span::from_ms(1));
        for _ in 0..FRAMES {
            let mut frame = pool.alloc().expect("a frame");
            frame.copy_from(&[2; 60]).expect("room");
            let now = clock.now();
            pipeline.push(now, now, frame);
        }
        let (_, nothing_more) = rtrb::RingBuffer::new(1);
        let (stop, counters) = (AtomicBool::new(false), Counters::default());
        let run = RunContext {
            clock,
            start: None,
            duration: None,
            stop: &stop,
            counters: &counters,
            pulse: None,
            beats: None,
        };
        let rounds = Rounds::new(run, pipeline, Intake::of_thread(nothing_more, true));
        let report = DeadlinePacer::new(Outlet::new(started.tx, Some(launch)), None, true).run(rounds);
        assert_eq!((report.left.frames, report.held), (FRAMES, 0));
        assert!(report.lateness.expect("it is paced").p50_ns < 1.0, "what the NIC was given in time is not late");

        let mut rx = started.rx;
        let mut instants = Vec::new();
        let mut burst = Burst::new();
        while rx[0].poll(&mut burst) > 0 {
            instants.extend(burst.drain().map(|frame| field.get(&frame).map(FakeNic::instant_of)));
        }
        assert_eq!(instants.len() as u64, FRAMES);
        // The first frame is due at once, and so are frames that a pause of this machine made late.
        let launched: Vec<f64> = instants.iter().flatten().copied().collect();
        assert!(launched.len() as u64 > FRAMES / 2, "only {} frames say when they depart", launched.len());
        let mut errors: Vec<f64> =
            instants.windows(2).filter_map(|pair| Some((pair[1]? - pair[0]? - gap.as_ps() as f64).abs())).collect();
        errors.sort_by(f64::total_cmp);
        // A tick is 8 ns.
        assert!(errors[errors.len() / 2] < 10_000.0, "median error of a gap: {} ps", errors[errors.len() / 2]);
    }
}

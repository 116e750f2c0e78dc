use crate::random::Random;
use crate::schedules::laws::{Distribution, Values};
use crate::schedules::{Files, delivery_opportunities};
use packet::Frame;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{BitRate, PS_PER_S, ParseError, Span, Time};

/// Capacity of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Frames, including those that are only delayed, as in netem.
    Frames(u64),
    /// Bytes without FCS.
    Bytes(u64),
    /// Wait for the rate, in addition to a frame's own delay.
    Wait(Span),
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Frames(frames) => write!(f, "{frames}"),
            QueueLimit::Bytes(bytes) => write!(f, "{bytes}B"),
            QueueLimit::Wait(span) => write!(f, "{span}"),
        }
    }
}

/// The source of the rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Bottleneck {
    /// Bits per second of frames without FCS, with the overhead of a link layer.
    Rate {
        /// The rate.
        rate: BitRate,
        /// Bytes added to each frame; may be negative.
        overhead: i32,
        /// Payload bytes per cell; 0 for no cells.
        cell: u32,
        /// Bytes added to each cell.
        cell_overhead: i32,
    },
    /// Delivery opportunities.
    Trace(Opportunities),
}

impl Bottleneck {
    /// Mean rate in bits per second.
    pub(super) fn mean_bps(&self) -> f64 {
        match self {
            Bottleneck::Rate { rate, .. } => rate.bps() as f64,
            Bottleneck::Trace(trace) => {
                let last_ms =
                    trace.times.last().map_or(1, |last| last.as_ps().div_ceil(Span::from_ms(1).as_ps()).max(1));
                trace.times.len() as f64 * (OPPORTUNITY * 8 * 1_000) as f64 / last_ms as f64
            }
        }
    }

    /// Bytes that a frame of `length` B without FCS takes, by tc's formula.
    pub(super) fn bytes(overhead: i32, cell: u32, cell_overhead: i32, length: u32) -> u64 {
        let length = (i64::from(length) + i64::from(overhead)).max(0).cast_unsigned();
        if cell == 0 {
            return length;
        }
        let each = (i64::from(cell) + i64::from(cell_overhead)).max(0).cast_unsigned();
        length.div_ceil(u64::from(cell)) * each
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bottleneck::Rate { rate, overhead, cell, cell_overhead } => {
                write!(f, "{}bit {overhead} {cell} {cell_overhead}", rate.bps())
            }
            Bottleneck::Trace(trace) => write!(f, "trace {}", trace.file.display()),
        }
    }
}

/// A Mahimahi trace (Netravali et al. 2015): each line is a millisecond at which 1500 bytes of IP packets may be sent.
/// The trace restarts at its end.
#[derive(Clone, Debug)]
pub struct Opportunities {
    /// The file.
    pub file: PathBuf,
    times: Arc<Vec<Span>>,
}

impl PartialEq for Opportunities {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Opportunities {
    pub(super) fn of(file: &str) -> Self {
        Opportunities { file: file.into(), times: Arc::default() }
    }

    pub(super) fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        self.times = Arc::new(delivery_opportunities(files, &self.file)?);
        Ok(())
    }
}

/// The running bottleneck: computes when the transmission of frames ends.
pub(super) enum Serving {
    Nothing,
    Rate { rate: u128, overhead: i32, cell: u32, cell_overhead: i32, rest: u128 },
    Trace { times: Arc<Vec<Span>>, round: u64, next: usize, left: u64 },
}

/// Bytes per delivery opportunity.
const OPPORTUNITY: u64 = 1_500;

/// The time of an opportunity in round `round` of the trace.
fn opportunity(times: &[Span], round: u64, number: usize) -> Time {
    let period = times.last().copied().unwrap_or_default();
    Time::ZERO + period * round + times[number]
}

impl Serving {
    pub(super) fn new(rate: Option<&Bottleneck>) -> Self {
        match rate {
            None => Serving::Nothing,
            Some(Bottleneck::Rate { rate, overhead, cell, cell_overhead }) => Serving::Rate {
                rate: rate.bps().into(),
                overhead: *overhead,
                cell: *cell,
                cell_overhead: *cell_overhead,
                rest: 0,
            },
            Some(Bottleneck::Trace(trace)) => Serving::Trace { times: trace.times.clone(), round: 0, next: 0, left: 0 },
        }
    }

    /// True if a frame waits for the frames before it.
    pub(super) fn queues(&self) -> bool {
        !matches!(self, Serving::Nothing)
    }

    /// The bytes that count for a frame. A trace counts its IP packet, or everything after the Ethernet header if there
    /// is none. A rate counts the frame without FCS, like tc.
    pub(super) fn charged<F: Frame>(&self, frame: &F) -> u32 {
        let length = frame.length();
        let whole = length.bytes() - 4;
        match self {
            Serving::Trace { .. } => packet::ip_length(frame.bytes(), length).unwrap_or(whole - 14),
            _ => whole,
        }
    }

    /// When the transmission of a frame that may start at `ready` begins. The preceding one ended at `last`.
    pub(super) fn opens(&mut self, ready: Time, last: Time) -> Time {
        let Serving::Trace { times, round, next, left } = self else { return ready.max(last) };
        let Some(period) = times.last() else { return ready };
        if ready > last {
            // Unused opportunities expire.
            *left = 0;
            // An opportunity at exactly `ready` is still available, even the last one of a round.
            let now = (ready.as_ps() - 1) / period.as_ps();
            if now > *round {
                (*round, *next) = (now, 0);
            }
            while opportunity(times, *round, *next) < ready {
                (*next, *round) = if *next + 1 == times.len() { (0, *round + 1) } else { (*next + 1, *round) };
            }
        }
        let starts = ready.max(last);
        if *left > 0 { starts } else { starts.max(opportunity(times, *round, *next)) }
    }

    /// When the transmission of a frame that counts as `length` B and may start at `ready` ends. The preceding one
    /// ended at `last`.
    pub(super) fn pass(&mut self, ready: Time, last: Time, length: u32) -> Time {
        let starts = self.opens(ready, last);
        match self {
            Serving::Nothing => ready,
            Serving::Rate { rate, overhead, cell, cell_overhead, rest } => {
                if ready > last {
                    *rest = 0;
                }
                // Fractions of a picosecond are carried over to the next frame, so that the rate is exact.
                let bits = u128::from(Bottleneck::bytes(*overhead, *cell, *cell_overhead, length)) * 8;
                let units = bits * u128::from(PS_PER_S) + *rest;
                *rest = units % *rate;
                let took = u64::try_from(units / *rate).unwrap_or(u64::MAX);
                starts + Span::from_ps(took)
            }
            Serving::Trace { times, round, next, left } => {
                if times.is_empty() {
                    return ready;
                }
                let mut wanted = u64::from(length);
                let mut passed = starts;
                while wanted > *left {
                    wanted -= *left;
                    passed = passed.max(opportunity(times, *round, *next));
                    *left = OPPORTUNITY;
                    (*next, *round) = if *next + 1 == times.len() { (0, *round + 1) } else { (*next + 1, *round) };
                }
                *left -= wanted;
                passed
            }
        }
    }
}

/// Frames leave only in slots, as over Wi-Fi.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Time between slots.
    pub times: SlotTimes,
    /// Maximum number of frames per slot; 0 for none.
    pub packets: u64,
    /// Maximum number of bytes per slot, not counting the last frame; 0 for none.
    pub bytes: u64,
}

/// Time between slots.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotTimes {
    /// Uniform in a range.
    Between(Span, Span),
    /// Around a mean.
    Drawn(Distribution, Span, Span),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.times {
            SlotTimes::Between(min, max) => write!(f, "{min} {max}")?,
            SlotTimes::Drawn(distribution, mean, jitter) => write!(f, "distribution {distribution} {mean} {jitter}")?,
        }
        if self.packets > 0 {
            write!(f, " packets {}", self.packets)?;
        }
        if self.bytes > 0 {
            write!(f, " bytes {}", self.bytes)?;
        }
        Ok(())
    }
}

/// The running slots.
pub(super) struct Slots {
    gap: SlotGap,
    packets: u64,
    bytes: u64,
    pub(super) next: Time,
    packets_left: u64,
    bytes_left: u64,
}

enum SlotGap {
    Between(Span, u64, Random),
    Drawn(Box<Values>),
}

impl Slots {
    pub(super) fn new(slot: &Slot, random: Random) -> Self {
        let gap = match &slot.times {
            SlotTimes::Between(min, max) => SlotGap::Between(*min, (*max - *min).as_ps(), random),
            SlotTimes::Drawn(distribution, mean, jitter) => {
                let values = Values::of_distribution(distribution, *mean, *jitter, None, random);
                SlotGap::Drawn(Box::new(values.expect("without a correlation any table will do")))
            }
        };
        let limit = |n: u64| if n == 0 { u64::MAX } else { n };
        let (packets, bytes) = (limit(slot.packets), limit(slot.bytes));
        Slots { gap, packets, bytes, next: Time::ZERO, packets_left: packets, bytes_left: bytes }
    }

    /// When the frame due at `due`, polled at `now`, may leave.
    pub(super) fn opens(&mut self, due: Time, now: Time) -> Time {
        if self.next < due {
            self.renew(now);
        }
        due.max(self.next)
    }

    /// Records that a frame of `length` B left at `at`.
    pub(super) fn used(&mut self, at: Time, length: u32) {
        self.packets_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(length.into());
        if self.packets_left == 0 || self.bytes_left == 0 {
            self.renew(at);
        }
    }

    fn renew(&mut self, now: Time) {
        let gap = match &mut self.gap {
            SlotGap::Between(min, 0, _) => *min,
            SlotGap::Between(min, width, random) => *min + Span::from_ps(random.below(*width)),
            SlotGap::Drawn(values) => values.draw(),
        };
        self.next = now + gap;
        (self.packets_left, self.bytes_left) = (self.packets, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_cells_like_tc() {
        // ATM: 48 B of payload per cell of 53 B.
        assert_eq!(Bottleneck::bytes(0, 48, 5, 48), 53);
        assert_eq!(Bottleneck::bytes(0, 48, 5, 49), 106);
        assert_eq!(Bottleneck::bytes(20, 48, 5, 1_500), 32 * 53);
        assert_eq!(Bottleneck::bytes(-14, 0, 0, 1_514), 1_500);
        assert_eq!(Bottleneck::bytes(-100, 0, 0, 60), 0);
    }

    #[test]
    fn rate_is_exact_over_many_frames() {
        let rate = Bottleneck::Rate { rate: BitRate::from_bps(7_000_001), overhead: 0, cell: 0, cell_overhead: 0 };
        let mut serving = Serving::new(Some(&rate));
        let mut last = Time::ZERO;
        for _ in 0..100_000 {
            last = serving.pass(Time::ZERO, last, 1_000);
        }
        let exact = 100_000_u128 * 8_000 * u128::from(PS_PER_S) / 7_000_001;
        assert_eq!(u128::from(last.as_ps()), exact);
    }

    #[test]
    fn trace_yields_its_opportunities() {
        let trace = Opportunities { file: "t".into(), times: Arc::new([1, 1, 5].map(Span::from_ms).to_vec()) };
        let mut serving = Serving::new(Some(&Bottleneck::Trace(trace)));
        let mut last = Time::ZERO;
        let ms: Vec<u64> = (0..8)
            .map(|_| {
                last = serving.pass(Time::ZERO, last, 750);
                last.as_ps() / 1_000_000_000
            })
            .collect();
        assert_eq!(ms, [1, 1, 1, 1, 5, 5, 6, 6]);
        let later = Time::ZERO + Span::from_ms(1) * 13;
        assert_eq!(serving.pass(later, last, 1_500), Time::ZERO + Span::from_ms(1) * 15, "unused ones are gone");
    }

    #[test]
    fn takes_the_next_opportunity_after_idle_time() {
        let ms = |tenths: u64| Time::from_ps(tenths * 100_000_000);
        // Opportunities at 1, 2, 9, 10, 11, 18, 19, 20, 27 ms.
        for (ready, passed) in
            [(80, 90), (90, 90), (95, 100), (100, 100), (105, 110), (180, 180), (181, 190), (265, 270)]
        {
            let trace = Opportunities { file: "t".into(), times: Arc::new([1, 2, 9].map(Span::from_ms).to_vec()) };
            let mut serving = Serving::new(Some(&Bottleneck::Trace(trace)));
            let first = serving.pass(Time::ZERO, Time::ZERO, 1_500);
            let last = serving.pass(Time::ZERO, first, 1_500);
            assert_eq!((first, last), (ms(10), ms(20)));
            assert_eq!(serving.pass(ms(ready), last, 1_500), ms(passed), "ready at {ready} tenths of a ms");
        }
    }
}

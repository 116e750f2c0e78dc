//! The filler plan: what to send between data frames so that each departs when it should.
//!
//! A NIC that always has a frame to send leaves exactly 20 bytes (preamble, delimiter, gap) between
//! two frames. So the place of a data frame on the line is set by the lengths of the frames before
//! it, and idle time is made of filler frames that the switch or the receiving MAC throws away
//! (LightShaper §2.3).
//!
//! Between two data frames N byte times are to be filled. N = 0 and N ≥ 84 (the smallest frame on
//! the wire) are exact. 0 < N < 84 cannot be had on Ethernet: the nearer of 0 and 84 is taken. Since
//! every ask is an absolute instant, the error is made good by the next departure: none is off by
//! more than 42 byte times, and the mean is exact.

use crate::Line;
use units::{FrameLen, Span, Time, WireLen};

/// Longest filler: a standard frame. N ≥ 84 byte times take ⌈N / 1538⌉ fillers.
const LONGEST: u64 = WireLen::MAX_STANDARD.bytes() as u64;
/// Shortest filler, and so the least idle time that can be filled.
const SHORTEST: u64 = WireLen::MIN.bytes() as u64;

/// Captures stamp no finer than this: a frame that came later by less may have been there.
const STAMP_RESOLUTION: Span = Span::from_ns(1);

/// Decides where each data frame goes on a line and what fills the line before it.
#[derive(Clone, Debug)]
pub struct FillerPlanner {
    line: Line,
    /// Data frames start at multiples of this many bytes.
    align: u64,
    /// The shortest idle time that is possible: 84 byte times if idle time is filled, else none.
    shortest: u64,
    /// First byte time that is free; `None` before the first frame.
    free: Option<u64>,
}

/// Where one data frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Byte time at which its preamble starts.
    pub position: u64,
    /// Byte times to fill before it, from the end of the frame before: 0 or at least 84.
    pub fill: u64,
    /// The ask left between 1 and 83 byte times to fill, so that the frame goes earlier or later.
    pub carried: bool,
    /// The frame before was still on the line when this one should have started.
    pub crowded: bool,
}

impl FillerPlanner {
    /// A planner that fills all idle time after the first frame.
    ///
    /// With `align` 4 or 8 data frames start at multiples of so many bytes, which is where MACs with
    /// a deficit idle count put them anyway: the plan then loses nothing to that count. 1 otherwise.
    #[must_use]
    pub fn new(line: Line, align: u64) -> Self {
        FillerPlanner { line, align: align.max(1).next_power_of_two(), shortest: SHORTEST, free: None }
    }

    /// A planner that leaves the line idle between frames: any gap can be had.
    #[must_use]
    pub fn idle(line: Line) -> Self {
        FillerPlanner { line, align: 1, shortest: 0, free: None }
    }

    /// The line.
    #[must_use]
    #[inline]
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// When the line is free for the next frame.
    #[must_use]
    #[inline]
    pub fn free(&self) -> Time {
        self.free.map_or(Time::ZERO, |free| self.line.time(free))
    }

    /// A frame of `length` that nobody asked for takes the line next: a filler while nothing is due.
    /// Gives where it starts.
    pub fn idle_frame(&mut self, length: WireLen) -> u64 {
        let position = self.free.unwrap_or(0);
        self.free = Some(position + u64::from(length.bytes()));
        position
    }

    /// The line idled for `bytes` byte times: all that is not placed yet can start no earlier.
    pub fn slip(&mut self, bytes: u64) {
        self.free = self.free.map(|free| free + bytes);
    }

    /// Whether a frame was placed: from the first on, all idle time is filled.
    #[must_use]
    #[inline]
    pub fn begun(&self) -> bool {
        self.free.is_some()
    }

    /// Places the next frame, which should start at `due`, was ready at `ready` and takes `length`.
    #[inline]
    pub fn place(&mut self, due: Time, ready: Time, length: WireLen) -> Slot {
        self.place_at(self.nearest_start(due), ready, length)
    }

    /// The same of a frame that should start at byte time `wanted`, see [`nearest_start`](FillerPlanner::nearest_start).
    #[inline(always)]
    pub fn place_at(&mut self, wanted: u64, ready: Time, length: WireLen) -> Slot {
        let slot = match self.free {
            // Before the first frame nobody listens: the line may idle.
            None => Slot { position: wanted, fill: 0, carried: false, crowded: false },
            Some(free) if wanted <= free => Slot { position: free, fill: 0, carried: false, crowded: wanted < free },
            Some(free) if wanted - free >= self.shortest => {
                Slot { position: wanted, fill: wanted - free, carried: false, crowded: false }
            }
            Some(free) => self.place_between(free, wanted, ready),
        };
        self.free = Some(slot.position + u64::from(length.bytes()));
        slot
    }

    /// Less than the smallest filler is idle: the nearer of back to back and one smallest filler;
    /// back to back only if the frame was there by then.
    fn place_between(&self, free: u64, wanted: u64, ready: Time) -> Slot {
        let after_filler = (free + self.shortest).next_multiple_of(self.align);
        let there = ready <= self.line.time(free) + STAMP_RESOLUTION;
        let early = there && wanted - free <= after_filler - wanted;
        let position = if early { free } else { after_filler };
        Slot { position, fill: position - free, carried: true, crowded: false }
    }

    /// When the first frame may start, at `now` or after: asks that begin there are met as those of a model are, which
    /// begin at zero.
    #[must_use]
    pub fn first_start(&self, now: Time) -> Time {
        self.line.time(self.line.position(now).next_multiple_of(self.align))
    }

    /// The byte time nearest to `due` at which a data frame may start.
    #[must_use]
    #[inline]
    pub fn nearest_start(&self, due: Time) -> u64 {
        let position = self.line.position(due);
        // Alignments are powers of two.
        (position + self.align / 2) & !(self.align - 1)
    }
}

/// The next of the ⌈N / 1538⌉ standard fillers that take exactly `fill` byte times.
///
/// All are of the longest kind but the last two, which share the rest so that neither is too short.
///
/// # Panics
/// If `fill` is less than 84, which no frame takes.
#[inline]
#[must_use]
pub fn next_filler(fill: u64) -> WireLen {
    assert!(fill >= SHORTEST, "{fill} byte times cannot be filled");
    // A longest filler would leave too little for another.
    let crumbs = fill > LONGEST && fill < LONGEST + SHORTEST;
    let take = if crumbs { fill - SHORTEST } else { fill.min(LONGEST) };
    WireLen::new(take as u32)
}

/// From so many byte times on the next filler is one of many.
pub const MANY_FROM: u64 = 2 * LONGEST + 1;

/// How many of the next fillers are standard ones of the longest kind.
///
/// `fill` is at least [`MANY_FROM`], so there is one.
#[must_use]
pub fn longest_in_a_row(fill: u64) -> u64 {
    (fill - SHORTEST) / LONGEST
}

/// The number of the next filler among `long`, see [`long_fillers`]: the longest that leaves room for another.
///
/// `fill` is at least [`MANY_FROM`]; none if there are no long ones.
#[must_use]
pub fn next_long_filler(fill: u64, long: &[WireLen]) -> Option<usize> {
    long.iter().position(|length| u64::from(length.bytes()) + SHORTEST <= fill)
}

/// Fillers above the standard, for a port that takes frames of up to `most`, longest first: what one of them leaves of a
/// time that has no room for the next one is one standard filler. So a full queue lasts longer, by few frames that are
/// kept.
#[must_use]
pub fn long_fillers(most: FrameLen) -> Vec<WireLen> {
    let most = most.on_wire();
    let steps = (1..).map(|n| WireLen::new((LONGEST + n * (LONGEST - SHORTEST)) as u32));
    let mut long: Vec<WireLen> = steps.take_while(|length| *length < most).collect();
    if !long.is_empty() {
        long.push(most);
    }
    long.reverse();
    long
}

/// All the fillers that take exactly `fill` byte times: those of `long` first, then standard ones.
///
/// # Panics
/// If `fill` is between 1 and 83, which no frame takes.
pub fn fillers(fill: u64, long: &[WireLen]) -> impl Iterator<Item = WireLen> {
    let mut left = fill;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let number = if left >= MANY_FROM { next_long_filler(left, long) } else { None };
        let next = number.map_or_else(|| next_filler(left), |number| long[number]);
        left -= u64::from(next.bytes());
        Some(next)
    })
}

/// How many fillers these are. All but the last few are of the longest kind.
#[must_use]
pub fn filler_count(fill: u64, long: &[WireLen]) -> u64 {
    let Some(longest) = long.first().map(|longest| u64::from(longest.bytes())) else {
        return fill.div_ceil(LONGEST);
    };
    let longest_ones = if fill < MANY_FROM { 0 } else { (fill - SHORTEST) / longest };
    longest_ones + fillers(fill - longest_ones * longest, long).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::BitRate;

    const BYTE_PS: u64 = 800;

    fn planner(align: u64) -> FillerPlanner {
        FillerPlanner::new(Line::new(BitRate::from_gbps(10)), align)
    }

    fn at(bytes: u64) -> Time {
        Time::from_ps(bytes * BYTE_PS)
    }

    #[test]
    fn every_fill_is_tiled_by_legal_fillers() {
        for fill in (84..10_000).chain([1_000_003, 123_456_789]) {
            let lengths: Vec<_> = fillers(fill, &[]).map(|length| u64::from(length.bytes())).collect();
            assert_eq!(lengths.iter().sum::<u64>(), fill);
            assert_eq!(lengths.len() as u64, filler_count(fill, &[]));
            assert!(lengths.iter().all(|length| (84..=1538).contains(length)), "{fill}: {lengths:?}");
        }
        assert_eq!(fillers(0, &[]).count(), 0);
    }

    #[test]
    fn the_next_fillers_of_many_are_alike() {
        for fill in (MANY_FROM..20_000).chain([1_000_003, 123_456_789]) {
            let alike = longest_in_a_row(fill);
            assert!(alike >= 1, "{fill}");
            let longest = fillers(fill, &[]).take_while(|length| *length == WireLen::MAX_STANDARD).count() as u64;
            assert!((longest.saturating_sub(1)..=longest).contains(&alike), "{fill}: {alike} of {longest}");
        }
    }

    #[test]
    fn long_fillers_leave_a_standard_one() {
        assert!(long_fillers(FrameLen::MAX_STANDARD).is_empty());
        assert!(long_fillers(FrameLen::new(2_900)).is_empty(), "it would save no frame");
        for most in [9_018, 9_216] {
            let long = long_fillers(FrameLen::new(most));
            assert_eq!(long.len(), 6);
            assert!(long.is_sorted_by(|a, b| a > b));
            let longest = u64::from(long[0].bytes());
            assert_eq!(longest, u64::from(most) + 20);
            for fill in (84..60_000).chain([1_000_003]) {
                let lengths: Vec<_> = fillers(fill, &long).collect();
                assert_eq!(lengths.iter().map(|length| u64::from(length.bytes())).sum::<u64>(), fill);
                assert!(lengths.iter().all(|length| (84..=1538).contains(&length.bytes()) || long.contains(length)));
                assert_eq!(lengths.len() as u64, filler_count(fill, &long), "{fill}");
                assert!(lengths.len() as u64 <= fill / longest + 2, "{fill} by {lengths:?}");
            }
        }
    }

    #[test]
    fn both_sides_of_the_smallest_filler() {
        for (gap, expected, carried) in [
            (0, 0, false),
            (1, 0, true),
            (42, 0, true),
            (43, 84, true),
            (83, 84, true),
            (84, 84, false),
            (85, 85, false),
        ] {
            let mut planner = planner(1);
            let length = FrameLen::MIN.on_wire();
            planner.place(at(0), at(0), length);
            let slot = planner.place(at(84 + gap), at(0), length);
            assert_eq!((slot.fill, slot.carried), (expected, carried), "{gap} byte times idle");
        }
    }

    #[test]
    fn a_frame_is_not_sent_before_it_came() {
        let mut planner = planner(1);
        let length = FrameLen::MIN.on_wire();
        planner.place(at(0), at(0), length);
        let slot = planner.place(at(84 + 5), at(84 + 5), length);
        assert_eq!(slot.fill, 84);
    }

    #[test]
    fn alignment_is_kept_whatever_the_lengths() {
        let mut planner = planner(4);
        for i in 0..1_000 {
            let slot = planner.place(at(i * 12_500), at(0), FrameLen::new(64 + (i as u32 * 37) % 1455).on_wire());
            assert_eq!(slot.position, i * 12_500);
        }
    }

    #[test]
    fn asks_from_the_first_start_on_are_met_as_those_from_zero_are() {
        for align in [1, 4, 8] {
            for now in [at(0), at(1_000_003), at(77_777) + Span::from_ps(300)] {
                let (mut model, mut late) = (planner(align), planner(align));
                let start = late.first_start(now);
                assert!(start + Span::from_ps(BYTE_PS) > now && start.since(now) <= at(align).since(Time::ZERO));
                let first = late.line().position(start);
                for i in 0..50 {
                    let (ask, length) = (at(i * 1_875).since(Time::ZERO), FrameLen::new(64 + i as u32).on_wire());
                    let expected = model.place(Time::ZERO + ask, Time::ZERO, length).position;
                    assert_eq!(late.place(start + ask, start, length).position - first, expected, "align {align}");
                }
            }
        }
    }

    #[test]
    fn idle_lines_take_any_gap() {
        let mut planner = FillerPlanner::idle(Line::new(BitRate::from_gbps(10)));
        planner.place(at(0), at(0), FrameLen::MIN.on_wire());
        let slot = planner.place(at(85), at(0), FrameLen::MIN.on_wire());
        assert_eq!((slot.position, slot.carried), (85, false));
    }

    proptest! {
        /// Where the frames fit, no departure is off by more than 42 byte times and half a rounding,
        /// however the asks fall, and the line is never used twice.
        #[test]
        fn no_departure_is_off_by_more_than_42_byte_times(
            steps in prop::collection::vec((64_u32..9216, 0_u64..400_000), 1..300),
            start in 0_u64..1 << 50,
        ) {
            let mut planner = planner(1);
            let mut due = Time::from_ps(start);
            let mut free = 0;
            for (bytes, idle_ps) in steps {
                let length = FrameLen::new(bytes).on_wire();
                let slot = planner.place(due, Time::ZERO, length);
                prop_assert!(slot.position >= free);
                prop_assert!(slot.fill == 0 || slot.fill >= 84);
                free = slot.position + u64::from(length.bytes());
                let off = planner.line().time(slot.position).signed_ps_since(due).unsigned_abs();
                prop_assert!(off <= 42 * BYTE_PS + BYTE_PS / 2, "off by {} ps", off);
                due += Span::from_ps(u64::from(length.bytes()) * BYTE_PS + idle_ps);
            }
        }
    }
}

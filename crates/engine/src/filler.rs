//! The filler plan: which frames to send between data frames so that each data frame departs on time.
//!
//! A NIC that always has a frame to send leaves exactly 20 bytes (preamble, delimiter and gap) between two frames. The
//! lengths of the preceding frames therefore fix the position of a data frame on the line. Idle time consists of filler
//! frames that the switch or the receiving MAC discards (LightShaper §2.3).
//!
//! Let N be the byte times to fill between two data frames. N = 0 and N ≥ 84, the smallest frame on the wire, are
//! exact. Ethernet cannot carry 0 < N < 84, so the plan takes the nearer of 0 and 84. Targets are absolute instants, so
//! the next departure corrects the error: no departure is off by more than 42 byte times, and the mean is exact.

use crate::Line;
use units::{FrameLen, Span, Time, WireLen};

/// Longest filler: a standard frame. N ≥ 84 byte times take ⌈N / 1538⌉ fillers.
const LONGEST: u64 = WireLen::MAX_STANDARD.bytes() as u64;
/// Shortest filler, and so the shortest idle time that can be filled.
const SHORTEST: u64 = WireLen::MIN.bytes() as u64;

/// Resolution of capture timestamps. A frame whose stamp is later by less than this may have been ready in time.
const STAMP_RESOLUTION: Span = Span::from_ns(1);

/// Decides the position of each data frame on a line and the filling before it.
#[derive(Clone, Debug)]
pub struct FillerPlanner {
    line: Line,
    /// Data frames start at multiples of this, in bytes.
    align: u64,
    /// Shortest possible idle time: 84 byte times if idle time is filled, else 0.
    shortest: u64,
    /// First free byte time; `None` before the first frame.
    free: Option<u64>,
}

/// Position of one data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Byte time at which the preamble starts.
    pub position: u64,
    /// Byte times to fill since the end of the preceding frame: 0 or at least 84.
    pub fill: u64,
    /// The target left 1 to 83 byte times to fill, so the frame departs early or late.
    pub carried: bool,
    /// The preceding frame was still on the line when this one should have started.
    pub crowded: bool,
}

impl FillerPlanner {
    /// A planner that fills all idle time after the first frame.
    ///
    /// With `align` 4 or 8, data frames start at multiples of that many bytes. MACs with a deficit idle count place
    /// them there anyway, so that count does not disturb the plan. Otherwise use 1.
    #[must_use]
    pub fn new(line: Line, align: u64) -> Self {
        FillerPlanner { line, align: align.max(1).next_power_of_two(), shortest: SHORTEST, free: None }
    }

    /// A planner that leaves the line idle between frames: any gap is possible.
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

    /// When the line becomes free.
    #[must_use]
    #[inline]
    pub fn free(&self) -> Time {
        self.free.map_or(Time::ZERO, |free| self.line.time(free))
    }

    /// Places a filler of `length` that no target requires, while nothing is due. Returns its start in byte times.
    pub fn idle_frame(&mut self, length: WireLen) -> u64 {
        let position = self.free.unwrap_or(0);
        self.free = Some(position + u64::from(length.bytes()));
        position
    }

    /// Records that the line idled for `bytes` byte times. Frames that are not yet placed start after them.
    pub fn slip(&mut self, bytes: u64) {
        self.free = self.free.map(|free| free + bytes);
    }

    /// Whether a frame has been placed. From then on all idle time is filled.
    #[must_use]
    #[inline]
    pub fn begun(&self) -> bool {
        self.free.is_some()
    }

    /// Places the next frame, due at `due` and ready at `ready`.
    #[inline]
    pub fn place(&mut self, due: Time, ready: Time, length: WireLen) -> Slot {
        self.place_at(self.nearest_start(due), ready, length)
    }

    /// As [`place`](FillerPlanner::place), for a frame due at byte time `wanted`, see
    /// [`nearest_start`](FillerPlanner::nearest_start).
    #[inline(always)]
    pub fn place_at(&mut self, wanted: u64, ready: Time, length: WireLen) -> Slot {
        let slot = match self.free {
            // The line may idle before the first frame.
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

    /// Places a frame when the idle time is shorter than the shortest filler. Chooses the nearer of back to back and
    /// one shortest filler. Back to back requires that the frame was ready by then.
    fn place_between(&self, free: u64, wanted: u64, ready: Time) -> Slot {
        let after_filler = (free + self.shortest).next_multiple_of(self.align);
        let there = ready <= self.line.time(free) + STAMP_RESOLUTION;
        let early = there && wanted - free <= after_filler - wanted;
        let position = if early { free } else { after_filler };
        Slot { position, fill: position - free, carried: true, crowded: false }
    }

    /// The earliest instant from `now` on at which the first frame may start. Targets relative to it are met with the
    /// same error as targets relative to zero in the model.
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
/// All have the longest length except the last two, which share the rest so that neither is too short.
///
/// # Panics
/// If `fill` is less than 84: no frame is that short.
#[inline]
#[must_use]
pub fn next_filler(fill: u64) -> WireLen {
    assert!(fill >= SHORTEST, "{fill} byte times cannot be filled");
    // After a longest filler, the remainder would be too short for another filler.
    let crumbs = fill > LONGEST && fill < LONGEST + SHORTEST;
    let take = if crumbs { fill - SHORTEST } else { fill.min(LONGEST) };
    WireLen::new(take as u32)
}

/// From this many byte times on, the next filler has the longest length.
pub const MANY_FROM: u64 = 2 * LONGEST + 1;

/// How many of the next fillers are standard ones with the longest length.
///
/// `fill` is at least [`MANY_FROM`], so the result is at least 1.
#[must_use]
pub fn longest_in_a_row(fill: u64) -> u64 {
    (fill - SHORTEST) / LONGEST
}

/// The index in `long` of the next filler: the longest that leaves space for another filler. See [`long_fillers`].
///
/// `fill` is at least [`MANY_FROM`]. `None` if no long filler fits.
#[must_use]
pub fn next_long_filler(fill: u64, long: &[WireLen]) -> Option<usize> {
    long.iter().position(|length| u64::from(length.bytes()) + SHORTEST <= fill)
}

/// Lengths of fillers above the standard maximum for a port that accepts frames of up to `most`, longest first. One
/// standard filler covers the remainder of one of these when the next does not fit. With long fillers a full queue
/// lasts longer, and few distinct frames are in memory.
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

/// All fillers that together take exactly `fill` byte times: first those of `long`, then standard ones.
///
/// # Panics
/// If `fill` is between 1 and 83: no frame is that short.
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

/// How many fillers [`fillers`] yields. All but the last few have the longest length.
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
    fn legal_fillers_tile_every_fill() {
        for fill in (84..10_000).chain([1_000_003, 123_456_789]) {
            let lengths: Vec<_> = fillers(fill, &[]).map(|length| u64::from(length.bytes())).collect();
            assert_eq!(lengths.iter().sum::<u64>(), fill);
            assert_eq!(lengths.len() as u64, filler_count(fill, &[]));
            assert!(lengths.iter().all(|length| (84..=1538).contains(length)), "{fill}: {lengths:?}");
        }
        assert_eq!(fillers(0, &[]).count(), 0);
    }

    #[test]
    fn next_fillers_of_a_long_fill_are_equal() {
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
    fn takes_the_nearer_side_of_the_smallest_filler() {
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
    fn never_sends_a_frame_before_it_arrived() {
        let mut planner = planner(1);
        let length = FrameLen::MIN.on_wire();
        planner.place(at(0), at(0), length);
        let slot = planner.place(at(84 + 5), at(84 + 5), length);
        assert_eq!(slot.fill, 84);
    }

    #[test]
    fn keeps_alignment_for_any_lengths() {
        let mut planner = planner(4);
        for i in 0..1_000 {
            let slot = planner.place(at(i * 12_500), at(0), FrameLen::new(64 + (i as u32 * 37) % 1455).on_wire());
            assert_eq!(slot.position, i * 12_500);
        }
    }

    #[test]
    fn targets_from_the_first_start_are_met_as_from_zero() {
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
    fn idle_line_takes_any_gap() {
        let mut planner = FillerPlanner::idle(Line::new(BitRate::from_gbps(10)));
        planner.place(at(0), at(0), FrameLen::MIN.on_wire());
        let slot = planner.place(at(85), at(0), FrameLen::MIN.on_wire());
        assert_eq!((slot.position, slot.carried), (85, false));
    }

    proptest! {
        /// If the frames fit, no departure is off by more than 42 byte times plus half a rounding step, for any
        /// targets, and no two frames overlap.
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

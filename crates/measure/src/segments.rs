//! Changes of a run, and its figures between them.

use crate::frame_counters::{Drops, FrameCounters, Tally};
use crate::held::Held;
use crate::moments::Moments;
use crate::ns;
use schemars::JsonSchema;
use serde::Serialize;
use units::{FrameLen, PS_PER_S, Time};

/// A change of a setting while a run went on.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct ChangeReport {
    /// The setting, such as `down.delay`.
    pub path: String,
    /// The new value.
    pub value: String,
    /// Who asked for it: `timeline`, or a client of the run.
    pub by: String,
    /// When it was to take effect, since the start of the run.
    pub asked_at_ns: f64,
    /// When it took effect, since the start of the run; absent if the run ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_effect_at_ns: Option<f64>,
}

/// Figures of the time between two changes. Frames count where they arrived, were dropped and departed, so a frame that a
/// stage held across a change is in the `in` of one segment and in the `out` of another.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct SegmentReport {
    /// Its start, since the start of the run.
    pub from_ns: f64,
    /// Its end.
    pub to_ns: f64,
    /// Frames received.
    #[serde(rename = "in")]
    pub arrived: Tally,
    /// Frames sent, without fillers.
    #[serde(rename = "out")]
    pub left: Tally,
    /// Frames made by duplication.
    pub copies: u64,
    /// Frames dropped, by reason.
    pub drops: Drops,
    /// Rate from the first departure of the segment to the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<SegmentRate>,
    /// Inter-departure times within the segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<SegmentTimes>,
    /// Delays by stages of frames that departed in the segment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<SegmentTimes>,
}

/// Rate of frames with FCS, from the first start to the last one: the length of the last frame is not in it.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct SegmentRate {
    /// Bits per second.
    pub mean_bps: f64,
    /// Frames per second.
    pub mean_fps: f64,
}

/// Times within a segment.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct SegmentTimes {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub std_ns: f64,
    /// Smallest.
    pub min_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

impl SegmentTimes {
    fn of(moments: &Moments) -> Option<Self> {
        (moments.count() > 0).then(|| SegmentTimes {
            count: moments.count(),
            mean_ns: ns(moments.mean()),
            std_ns: ns(moments.deviation()),
            min_ns: ns(moments.min() as f64),
            max_ns: ns(moments.max() as f64),
        })
    }
}

/// Measures each interval between two changes separately.
///
/// Arrivals and departures may run on two clocks, as in virtual time, so each reaches a change by itself.
#[derive(Clone, Debug)]
pub struct SegmentMeter {
    segments: Vec<Segment>,
    /// The segment of arrivals and drops, and that of departures.
    arriving: usize,
    departing: usize,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    from: Time,
    /// The counters when arrivals reached the start of this segment.
    books: FrameCounters,
    left: Tally,
    first: Option<Time>,
    last: Time,
    last_bytes: u64,
    gaps: Moments,
    delays: Moments,
}

/// Segments for which memory is allocated at the start.
const AT_HAND: usize = 256;

impl SegmentMeter {
    /// A meter whose first segment starts at `start`.
    #[must_use]
    pub fn new(start: Time) -> Self {
        let mut segments = Vec::with_capacity(AT_HAND);
        segments.push(Segment { from: start, ..Segment::default() });
        SegmentMeter { segments, arriving: 0, departing: 0 }
    }

    /// The start of the run.
    #[must_use]
    pub fn start(&self) -> Time {
        self.segments[0].from
    }

    /// Moves the start of the run, before anything was measured.
    pub fn begin(&mut self, start: Time) {
        self.segments[0].from = start;
    }

    /// Arrivals and drops have reached a change at `at`; the counters read `books`.
    pub fn arrivals_reach(&mut self, at: Time, books: &FrameCounters) {
        self.arriving = self.next(self.arriving, at);
        let segment = &mut self.segments[self.arriving];
        if segment.from == at {
            segment.books = books.clone();
        }
    }

    /// Departures have reached a change at `at`.
    pub fn departures_reach(&mut self, at: Time) {
        self.departing = self.next(self.departing, at);
    }

    /// The segment that starts at `at`, after segment `present`. Changes at the same instant start a single segment.
    fn next(&mut self, present: usize, at: Time) -> usize {
        if self.segments[present].from == at {
            return present;
        }
        if present + 1 == self.segments.len() {
            self.segments.push(Segment { from: at, ..Segment::default() });
        }
        present + 1
    }

    /// A frame of `length` with target `ask` starts at `start`; stages held it as in `held`, if any delayed it.
    #[inline]
    pub fn departed(&mut self, length: FrameLen, held: Option<Held>, ask: Time, start: Time) {
        let segment = &mut self.segments[self.departing];
        match segment.first {
            Some(_) => segment.gaps.add(start.signed_ps_since(segment.last)),
            None => segment.first = Some(start),
        }
        segment.last = start;
        segment.left.add(length);
        segment.last_bytes = length.bytes().into();
        if let Some(Held { asked, waited }) = held {
            let late = start.signed_ps_since(ask);
            let late = waited.signed_ps().saturating_add(late);
            segment.delays.add(asked.signed_ps().saturating_add(late));
        }
    }

    /// Removes a frame of `length` that was counted and then not sent.
    pub fn take_back(&mut self, length: FrameLen) {
        let left = &mut self.segments[self.departing].left;
        left.frames = left.frames.saturating_sub(1);
        left.bytes = left.bytes.saturating_sub(length.bytes().into());
    }

    /// The segments of a run that ended at `end` with these counters.
    #[must_use]
    pub fn report(&self, books: &FrameCounters, end: Time) -> Vec<SegmentReport> {
        let start = self.start();
        let since = |at: Time| at.since(start).as_ns_f64();
        let report = |(number, segment): (usize, &Segment)| {
            let next = self.segments.get(number + 1);
            let until = if number < self.arriving { next.map_or(books, |next| &next.books) } else { books };
            let reached = number <= self.arriving;
            let from = if reached { &segment.books } else { books };
            SegmentReport {
                from_ns: since(segment.from),
                to_ns: since(next.map_or(end.max(segment.from), |next| next.from)),
                arrived: until.arrived.since(from.arrived),
                left: segment.left,
                copies: until.copies - from.copies,
                drops: until.drops().since(&from.drops()),
                rate: segment.rate(),
                gap: SegmentTimes::of(&segment.gaps),
                delay: SegmentTimes::of(&segment.delays),
            }
        };
        self.segments.iter().enumerate().map(report).collect()
    }
}

impl Segment {
    fn rate(&self) -> Option<SegmentRate> {
        let elapsed = self.last.since(self.first?).as_ps();
        let per_second = |amount: u64| amount as f64 * PS_PER_S as f64 / elapsed as f64;
        (elapsed > 0).then(|| SegmentRate {
            mean_bps: per_second(self.left.bytes - self.last_bytes) * 8.0,
            mean_fps: per_second(self.left.frames - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DropReason;

    #[test]
    fn each_segment_has_the_figures_of_a_run_of_its_own() {
        let us = |us: u64| Time::from_ps(us * 1_000_000);
        let length = FrameLen::new(125);
        let mut meter = SegmentMeter::new(us(0));
        let mut books = FrameCounters::default();
        for n in 0..=10 {
            books.arrived.add(length);
            meter.departed(length, None, us(n), us(n));
        }
        books.drop_one(DropReason::Loss);
        // Departures are ahead of arrivals.
        meter.departures_reach(us(11));
        for n in 0..=5 {
            meter.departed(length, None, us(12 + 2 * n), us(12 + 2 * n));
        }
        meter.arrivals_reach(us(11), &books);
        books.arrived.add(length);
        let report = meter.report(&books, us(30));
        let rates: Vec<f64> = report.iter().filter_map(|one| one.rate).map(|rate| rate.mean_bps.round()).collect();
        assert_eq!(rates, [1e9, 5e8], "the gap across the change is in no segment");
        let times: Vec<(f64, f64)> = report.iter().map(|one| (one.from_ns, one.to_ns)).collect();
        assert_eq!(times, [(0.0, 11_000.0), (11_000.0, 30_000.0)]);
        let counts: Vec<_> =
            report.iter().map(|one| (one.arrived.frames, one.left.frames, one.drops.total())).collect();
        assert_eq!(counts, [(11, 11, 1), (1, 6, 0)]);
    }

    #[test]
    fn changes_at_one_instant_start_one_segment() {
        let at = Time::from_ps(7);
        let mut meter = SegmentMeter::new(Time::ZERO);
        for _ in 0..3 {
            meter.arrivals_reach(at, &FrameCounters::default());
            meter.departures_reach(at);
        }
        assert_eq!(meter.report(&FrameCounters::default(), at).len(), 2);
    }
}

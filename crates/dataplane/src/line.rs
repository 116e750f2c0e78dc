//! A line without a NIC: a ring that drains at line rate, and a receiver that records times.
//!
//! The far end of the ring works like a NIC: it takes the next frame when the one before has left the line, paced by
//! the time-stamp counter, and never waits. If no frame is there, that is an *underrun*: the line idles, and all later
//! frames are late by that time.

use dpdk::{Burst, RxQueue, TscClock};
use engine::{Line, Placed};
use measure::LineReport;
use packet::Frame;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use units::{FrameLen, Time};

/// A frame as seen on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLine {
    /// Start of its preamble, relative to that of the first frame.
    pub start: Time,
    /// Length with FCS.
    pub length: FrameLen,
    /// It is a filler.
    pub filler: bool,
}

/// Frames that a NIC fetches ahead of the line.
const FETCH: usize = 8;

/// Interval at which the last frames are polled for after the end of sending.
const LOOK: Duration = Duration::from_micros(200);
/// Data frames beyond the slots of the queue: those of a burst being generated, of a burst being handed over, and those
/// that the far end has fetched.
const MORE: usize = 256;

/// A planned data frame.
pub(crate) struct Planned {
    /// Its departure.
    pub(crate) placed: Placed,
    /// Planned start in byte times.
    pub(crate) position: u64,
}

/// From data frame `from` on, frames start `by` byte times later than planned.
#[derive(Clone, Copy)]
struct Shift {
    from: u64,
    by: i64,
}

/// State shared by both ends, each field on its own cache line, because two cores writing to one line slow each other
/// down.
#[derive(Default)]
struct Shared {
    /// Nothing more will be sent.
    done: CacheLine<AtomicBool>,
    /// Number of data frames that have started.
    started: CacheLine<AtomicU64>,
}

#[derive(Default)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// The pacer's end: announces planned data frames and learns their actual starts. Dropping it ends the line.
pub(crate) struct NearEnd {
    plan: rtrb::Producer<u64>,
    shifts: rtrb::Consumer<Shift>,
    shared: Arc<Shared>,
    under_way: VecDeque<Planned>,
    taken: u64,
    by: i64,
}

/// The channels of the receiving end. It reports only changes, because per-frame reports would be too frequent.
pub(crate) struct FarSide {
    planned: rtrb::Consumer<u64>,
    shifts: rtrb::Producer<Shift>,
    shared: Arc<Shared>,
}

/// The two ends' channels for a line with this many slots.
pub(crate) fn ends(slots: usize) -> (NearEnd, FarSide) {
    let (plan, planned) = rtrb::RingBuffer::new(slots + MORE);
    let (tells, shifts) = rtrb::RingBuffer::new(slots + MORE);
    let shared = Arc::new(Shared::default());
    let under_way = VecDeque::with_capacity(slots + MORE);
    let far = FarSide { planned, shifts: tells, shared: Arc::clone(&shared) };
    (NearEnd { plan, shifts, shared, under_way, taken: 0, by: 0 }, far)
}

impl NearEnd {
    /// Announces a planned data frame. Call before the frame becomes visible.
    #[inline]
    pub(crate) fn plan(&mut self, frame: Planned) {
        self.plan.push(frame.position).expect("there is room for all that are under way");
        self.under_way.push_back(frame);
    }

    /// Passes the frames that have started since the last call, with their starts, to `started`.
    #[inline]
    pub(crate) fn take_started(&mut self, mut started: impl FnMut(Placed, u64)) {
        // All shifts before a started frame are visible by then.
        let until = self.shared.started.0.load(Ordering::Acquire);
        let mut next = self.shifts.peek().ok().copied();
        while self.taken < until {
            let Some(frame) = self.under_way.pop_front() else { return };
            if let Some(shift) = next.filter(|shift| shift.from == self.taken) {
                self.by = shift.by;
                let _this_one = self.shifts.pop();
                next = self.shifts.peek().ok().copied();
            }
            started(frame.placed, frame.position.saturating_add_signed(self.by));
            self.taken += 1;
        }
    }

    /// Ends sending and passes the remaining starts to `started`. Returns when the far end has seen the last frame,
    /// because it identifies fillers by their extra references until then.
    pub(crate) fn hear_the_last(&mut self, mut started: impl FnMut(Placed, u64)) {
        self.shared.done.0.store(true, Ordering::Release);
        loop {
            let gone = self.shifts.is_abandoned();
            self.take_started(&mut started);
            if gone {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        self.shared.done.0.store(true, Ordering::Release);
        // They were planned and never handed over.
        self.under_way.drain(..).for_each(|frame| frame.placed.hold());
    }
}

/// The receiving end.
pub(crate) struct LineEnd {
    rx: RxQueue,
    line: Line,
    /// Where the pacer planned each data frame, and where to report shifts.
    side: FarSide,
    /// Limit on listed frames, and whether fillers are listed.
    most: usize,
    keep_fillers: bool,
    listed: Vec<OnLine>,
    /// First free byte time.
    free: Option<u64>,
    first: u64,
    /// Planned and actual position of the first data frame.
    origin: Option<(u64, u64)>,
    /// How much later than planned the last data frame was, in byte times.
    by: i64,
    report: LineReport,
}

impl LineEnd {
    pub(crate) fn new(rx: RxQueue, line: Line, slots: u32, side: FarSide, most: usize, keep_fillers: bool) -> Self {
        LineEnd {
            rx,
            line,
            side,
            most,
            keep_fillers,
            listed: Vec::with_capacity(most),
            free: None,
            first: 0,
            origin: None,
            by: 0,
            report: LineReport { slots, ..LineReport::default() },
        }
    }

    /// Takes frames at line rate until sending has ended and the ring is empty.
    pub(crate) fn run(mut self, clock: &TscClock) -> (LineReport, Vec<OnLine>) {
        let mut burst = Burst::new();
        let mut frames = [(FrameLen::MIN, false); FETCH];
        let mut ran_dry = false;
        loop {
            let now = self.line.position(clock.now());
            if self.free.is_some_and(|free| now < free) {
                continue;
            }
            let ended = self.side.shared.done.0.load(Ordering::Acquire);
            let count = self.rx.poll_up_to(&mut burst, FETCH);
            if count == 0 {
                if ended {
                    return (self.report, self.listed);
                }
                ran_dry = true;
                continue;
            }
            // Fetches what another core wrote for all frames at once. A retained frame is a filler, and any other frame
            // is data, regardless of contents.
            for (into, frame) in frames.iter_mut().zip(&burst) {
                *into = (frame.length(), frame.is_kept());
            }
            burst.clear();
            let start = match self.free {
                Some(free) if !ran_dry => free,
                Some(free) => {
                    self.underrun(now - free);
                    now
                }
                None => {
                    self.first = now;
                    now
                }
            };
            ran_dry = false;
            let mut at = start;
            for (length, filler) in &frames[..count] {
                self.frame(at, *length, *filler);
                at += u64::from(length.on_wire().bytes());
            }
            self.free = Some(at);
            self.side.shared.started.0.store(self.report.compared, Ordering::Release);
        }
    }

    fn underrun(&mut self, idle: u64) {
        self.report.underruns += 1;
        self.report.idle_ns += self.line.span(idle).as_ns_f64();
    }

    fn frame(&mut self, at: u64, length: FrameLen, filler: bool) {
        let tally = if filler { &mut self.report.fillers } else { &mut self.report.data };
        tally.add(length);
        if !filler {
            self.compare(at);
        }
        if self.listed.len() < self.most && (self.keep_fillers || !filler) {
            let start = Time::ZERO + self.line.span(at - self.first);
            self.listed.push(OnLine { start, length, filler });
        }
    }

    /// Compares a data frame's start with the plan, both relative to the first data frame. Reports a changed shift to
    /// the pacer.
    fn compare(&mut self, at: u64) {
        let Ok(planned) = self.side.planned.pop() else { return };
        let (first_planned, first_at) = *self.origin.get_or_insert((planned, at));
        let by = (at - first_at).cast_signed() - (planned - first_planned).cast_signed();
        if by != self.by {
            self.by = by;
            let shift = Shift { from: self.report.compared, by };
            self.side.shifts.push(shift).expect("the pacer reads all shifts before it sends more");
        }
        let off = by.unsigned_abs();
        self.report.compared += 1;
        self.report.displaced += u64::from(off > 0);
        self.report.max_off_ns = self.report.max_off_ns.max(self.line.span(off).as_ns_f64());
    }
}

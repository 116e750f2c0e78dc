//! A line without a NIC: a ring that is drained at line rate, and a receiver that keeps its time.
//!
//! The far end of the ring does what a NIC does: it takes the next frame when the one before has left
//! the line, at the time-stamp counter's pace, and never waits. A frame that is not there then is an
//! *underrun*: the line idles, and all that follows is late by that.

use dpdk::{Burst, RxQueue, TscClock};
use engine::Line;
use measure::LineReport;
use packet::Frame;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{FrameLen, Time};

/// A frame as it was on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLine {
    /// Start of its preamble since that of the first frame.
    pub start: Time,
    /// Its length with FCS.
    pub length: FrameLen,
    /// A filler of ours.
    pub filler: bool,
}

/// Frames that a NIC fetches ahead of the line.
const FETCH: usize = 8;

/// The receiving end.
pub(crate) struct LineEnd {
    rx: RxQueue,
    line: Line,
    /// Where the pacer put each data frame.
    planned: rtrb::Consumer<u64>,
    /// Frames listed at most, and whether fillers are among them.
    most: usize,
    keep_fillers: bool,
    listed: Vec<OnLine>,
    /// First byte time that is free.
    free: Option<u64>,
    first: u64,
    /// Plan and place of the first data frame.
    origin: Option<(u64, u64)>,
    report: LineReport,
}

impl LineEnd {
    pub(crate) fn new(
        rx: RxQueue,
        line: Line,
        slots: u32,
        planned: rtrb::Consumer<u64>,
        most: usize,
        keep_fillers: bool,
    ) -> Self {
        LineEnd {
            rx,
            line,
            planned,
            most,
            keep_fillers,
            listed: Vec::with_capacity(most),
            free: None,
            first: 0,
            origin: None,
            report: LineReport { slots, ..LineReport::default() },
        }
    }

    /// Takes frames at line rate until `done` is set and the ring is empty.
    pub(crate) fn run(mut self, clock: &TscClock, done: &AtomicBool) -> (LineReport, Vec<OnLine>) {
        let mut burst = Burst::new();
        let mut frames = [(FrameLen::MIN, false); FETCH];
        let mut ran_dry = false;
        loop {
            let now = self.line.position(clock.now());
            if self.free.is_some_and(|free| now < free) {
                continue;
            }
            let ended = done.load(Ordering::Acquire);
            let count = self.rx.poll_up_to(&mut burst, FETCH);
            if count == 0 {
                if ended {
                    return (self.report, self.listed);
                }
                ran_dry = true;
                continue;
            }
            // What another core wrote is fetched for all of them at once.
            for (into, frame) in frames.iter_mut().zip(&burst) {
                *into = (frame.length(), packet::is_filler(frame.bytes()));
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

    /// Whether a data frame is where it was planned, as counted from the first.
    fn compare(&mut self, at: u64) {
        let Ok(planned) = self.planned.pop() else { return };
        let (first_planned, first_at) = *self.origin.get_or_insert((planned, at));
        let off = (at - first_at).abs_diff(planned - first_planned);
        self.report.compared += 1;
        self.report.displaced += u64::from(off > 0);
        self.report.max_off_ns = self.report.max_off_ns.max(self.line.span(off).as_ns_f64());
    }
}

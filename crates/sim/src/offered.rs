use crate::error::SimError;
use crate::sink::Sink;
use crate::source::Source;
use engine::sources::Streams;
use engine::{Lengths, Line, Schedule, Token};
use measure::StreamMeter;
use packet::{Frame, HeapFrame, Stamp};
use units::{PS_PER_NS, Span, Time};

/// Frames of streams that arrive on a schedule: the load offered to a modelled device. Each frame is stamped with its
/// arrival. No frame arrives before the line has carried the preceding one.
pub struct OfferedSource {
    streams: Streams,
    schedule: Box<dyn Schedule>,
    left: u64,
    next: HeapFrame,
    arrival: Option<Time>,
    line: Line,
    /// When the line becomes free.
    free: Time,
    behind: Span,
}

impl OfferedSource {
    /// Offers `count` frames at the times of `schedule`, or as soon as `line` can carry them.
    #[must_use]
    pub fn new(streams: Streams, schedule: Box<dyn Schedule>, count: u64, line: Line) -> Self {
        let mut source = OfferedSource {
            streams,
            schedule,
            left: count,
            next: HeapFrame::default(),
            arrival: None,
            line,
            free: Time::ZERO,
            behind: Span::ZERO,
        };
        source.look_ahead();
        source
    }

    /// Lateness of the last frame because the line was busy.
    #[must_use]
    pub fn behind(&self) -> Span {
        self.behind
    }

    fn look_ahead(&mut self) {
        self.arrival = None;
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.streams.fill(&mut self.next);
        let frame = self.next.length();
        let asked = self.schedule.depart(Time::ZERO, &Lengths { frame, packet: frame.bytes() - 18 }).at;
        let at = asked.max(self.free);
        self.behind = at.since(asked);
        self.free = at + self.line.span(frame.on_wire().bytes().into());
        Stamp::set_time(self.next.bytes_mut(), at.as_ps() / PS_PER_NS);
        self.arrival = Some(at);
    }
}

impl Source for OfferedSource {
    fn arrival(&self) -> Option<Time> {
        self.arrival
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        std::mem::swap(frame, &mut self.next);
        self.look_ahead();
    }
}

/// Counts arriving frames and evaluates their stamps.
#[derive(Default)]
pub struct CountingSink {
    /// Frames received.
    pub frames: u64,
    /// Figures computed from the stamps.
    pub streams: StreamMeter,
}

impl Sink for CountingSink {
    fn send(&mut self, frame: &mut HeapFrame, _: &Token, at: Time) -> Result<Time, SimError> {
        self.frames += 1;
        if let Some(stamp) = Stamp::of(frame.bytes()) {
            self.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, at.as_ps() / PS_PER_NS);
        }
        Ok(at)
    }
}

use crate::error::SimError;
use crate::sink::Sink;
use crate::source::Source;
use engine::sources::Streams;
use engine::{Departure, Lengths, Schedule};
use measure::StreamMeter;
use packet::{Frame, HeapFrame, Stamp};
use units::{PS_PER_NS, Time};

/// Frames of streams that arrive by a schedule: a load that is offered to what follows. Each is stamped
/// with its arrival.
pub struct OfferedSource {
    streams: Streams,
    schedule: Box<dyn Schedule>,
    left: u64,
    next: HeapFrame,
    arrival: Option<Time>,
}

impl OfferedSource {
    /// `count` frames, which arrive when `schedule` lets them depart.
    #[must_use]
    pub fn new(streams: Streams, schedule: Box<dyn Schedule>, count: u64) -> Self {
        let mut source = OfferedSource { streams, schedule, left: count, next: HeapFrame::default(), arrival: None };
        source.look_ahead();
        source
    }

    fn look_ahead(&mut self) {
        self.arrival = None;
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.streams.fill(&mut self.next);
        let frame = self.next.length();
        let at = self.schedule.depart(Time::ZERO, &Lengths { frame, packet: frame.bytes() - 18 }).at;
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

/// Counts frames as they arrive, by their stamps if they have such.
#[derive(Default)]
pub struct CountingSink {
    /// Frames that came.
    pub frames: u64,
    /// What their stamps say.
    pub streams: StreamMeter,
}

impl Sink for CountingSink {
    fn send(&mut self, departure: &mut Departure<HeapFrame>) -> Result<Time, SimError> {
        self.frames += 1;
        if let Some(stamp) = Stamp::of(departure.frame.bytes()) {
            let arrived = departure.at.as_ps() / PS_PER_NS;
            self.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, arrived);
        }
        Ok(departure.at)
    }
}

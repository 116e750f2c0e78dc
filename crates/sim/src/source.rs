use crate::arrivals::Arrivals;
use crate::capture::{CaptureAnomalies, CaptureReader};
use crate::error::SimError;
use engine::sources::Streams;
use packet::HeapFrame;
use std::path::Path;
use units::Time;

/// The input of a run in virtual time.
pub trait Source {
    /// When the next frame arrives; `None` at the end.
    fn arrival(&self) -> Option<Time>;

    /// Moves the next frame into `frame` and determines the arrival of the following one.
    fn take(&mut self, frame: &mut HeapFrame);

    /// Whether the next frame belongs to a class that is not `full`. A source that cannot choose returns true.
    fn wanted(&mut self, full: &dyn Fn(usize) -> bool) -> bool {
        let _ = full;
        true
    }

    /// The error that ended the input early, if any.
    fn failure(&mut self) -> Option<SimError> {
        None
    }

    /// UNIX time in nanoseconds that corresponds to the start of the run, for the next frame. It changes when a gap is
    /// shortened.
    fn epoch_ns(&self) -> u64 {
        0
    }

    /// Anomalies of its records so far.
    fn anomalies(&self) -> Option<&CaptureAnomalies> {
        None
    }

    /// True if frames carry a stamp that the driver must update at departure.
    fn stamped(&self) -> bool {
        false
    }

    /// True if all frames are present from the start. The caller must then limit how many it takes.
    fn is_backlog(&self) -> bool {
        false
    }
}

/// The frames of a capture, which arrive at their timestamps. The first frame starts the run.
pub struct PcapSource {
    arrivals: Arrivals,
    next: HeapFrame,
    arrival: Option<Time>,
    failed: Option<SimError>,
}

impl PcapSource {
    /// Opens a capture.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn open(path: &Path) -> Result<Self, SimError> {
        let arrivals = Arrivals::new(CaptureReader::open(path)?);
        let mut source = PcapSource { arrivals, next: HeapFrame::default(), arrival: None, failed: None };
        source.look_ahead();
        Ok(source)
    }

    /// The timestamp resolution of the capture in nanoseconds, see [`CaptureReader::step_ns`].
    #[must_use]
    pub fn step_ns(&self) -> f64 {
        self.arrivals.reader().step_ns()
    }

    fn look_ahead(&mut self) {
        self.arrival = self.arrivals.read(&mut self.next).unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        });
    }
}

impl Source for PcapSource {
    fn arrival(&self) -> Option<Time> {
        self.arrival
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        std::mem::swap(frame, &mut self.next);
        self.look_ahead();
    }

    fn failure(&mut self) -> Option<SimError> {
        self.failed.take()
    }

    fn epoch_ns(&self) -> u64 {
        self.arrivals.first_ns() + self.arrivals.shortened_ns()
    }

    fn anomalies(&self) -> Option<&CaptureAnomalies> {
        Some(self.arrivals.reader().anomalies())
    }
}

/// The frames of streams, all present from the start.
pub struct StreamSource {
    streams: Streams,
    left: u64,
}

impl StreamSource {
    /// `count` frames of streams.
    #[must_use]
    pub fn new(streams: Streams, count: u64) -> Self {
        StreamSource { streams, left: count }
    }
}

impl Source for StreamSource {
    fn arrival(&self) -> Option<Time> {
        (self.left > 0).then_some(Time::ZERO)
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        self.left -= 1;
        self.streams.fill(frame);
    }

    fn is_backlog(&self) -> bool {
        true
    }

    fn wanted(&mut self, full: &dyn Fn(usize) -> bool) -> bool {
        self.streams.wanted(full)
    }

    fn stamped(&self) -> bool {
        self.streams.stamped()
    }
}

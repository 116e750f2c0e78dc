use crate::capture::CaptureReader;
use crate::error::SimError;
use engine::sources::Streams;
use packet::HeapFrame;
use std::path::Path;
use units::{PS_PER_NS, Time};

/// Where frames come from in virtual time.
pub trait Source {
    /// When the next frame arrives; `None` at the end.
    fn arrival(&self) -> Option<Time>;

    /// Moves the next frame into `frame` and looks for the one after.
    fn take(&mut self, frame: &mut HeapFrame);

    /// Whether it has a frame of a class that is not `full`, to be taken next; a source that cannot choose has.
    fn wanted(&mut self, full: &dyn Fn(usize) -> bool) -> bool {
        let _ = full;
        true
    }

    /// What ended the input before its end, if anything did.
    fn failure(&mut self) -> Option<SimError> {
        None
    }

    /// The UNIX time in nanoseconds of the start of the run.
    fn epoch_ns(&self) -> u64 {
        0
    }

    /// What its records were like so far.
    fn oddities(&self) -> Oddities {
        Oddities::default()
    }

    /// Frames say when they depart: it is to be written into them then.
    fn stamped(&self) -> bool {
        false
    }

    /// True if all frames are there from the start, so that whoever takes them must limit how many.
    fn is_backlog(&self) -> bool {
        false
    }
}

/// Records of a capture that are not as one would expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Their stamp was before that of the record ahead of them; they arrive together with it.
    pub disordered: u64,
    /// They were captured without an Ethernet header, and have got one.
    pub made_headers: u64,
}

/// The frames of a capture, which arrive at their stamps. The first one starts the run.
pub struct PcapSource {
    reader: CaptureReader,
    epoch_ns: u64,
    next: HeapFrame,
    arrival: Option<Time>,
    oddities: Oddities,
    failed: Option<SimError>,
}

impl PcapSource {
    /// Opens a capture.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn open(path: &Path) -> Result<Self, SimError> {
        let reader = CaptureReader::open(path)?;
        let mut source = PcapSource {
            reader,
            epoch_ns: 0,
            next: HeapFrame::default(),
            arrival: None,
            oddities: Oddities::default(),
            failed: None,
        };
        match source.reader.read(&mut source.next) {
            Ok(None) => {}
            Ok(Some(record)) => {
                source.epoch_ns = record.time_ns;
                source.oddities.made_headers += u64::from(record.made_header);
                source.arrival = Some(Time::ZERO);
            }
            Err(error) => source.failed = Some(error),
        }
        Ok(source)
    }

    /// The step of the capture's stamps in nanoseconds, see [`CaptureReader::step_ns`].
    #[must_use]
    pub fn step_ns(&self) -> f64 {
        self.reader.step_ns()
    }

    /// Reads the next frame, which does not come earlier than `before`.
    fn next_arrival(&mut self, before: Time) -> Result<Option<Time>, SimError> {
        let Some(record) = self.reader.read(&mut self.next)? else { return Ok(None) };
        self.oddities.made_headers += u64::from(record.made_header);
        let since = record.time_ns.saturating_sub(self.epoch_ns).checked_mul(PS_PER_NS);
        let arrival = since.map(Time::from_ps).ok_or_else(|| self.reader.too_wide())?;
        if arrival < before || record.time_ns < self.epoch_ns {
            self.oddities.disordered += 1;
        }
        Ok(Some(arrival.max(before)))
    }
}

impl Source for PcapSource {
    fn arrival(&self) -> Option<Time> {
        self.arrival
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        let before = self.arrival.unwrap_or_default();
        std::mem::swap(frame, &mut self.next);
        self.arrival = self.next_arrival(before).unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        });
    }

    fn failure(&mut self) -> Option<SimError> {
        self.failed.take()
    }

    fn epoch_ns(&self) -> u64 {
        self.epoch_ns
    }

    fn oddities(&self) -> Oddities {
        self.oddities
    }
}

/// The frames of streams, all of which are there from the start.
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

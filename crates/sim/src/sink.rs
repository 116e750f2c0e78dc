use crate::capture::CaptureWriter;
use crate::error::SimError;
use crate::output::WhenFull;
use engine::{Line, Token};
use measure::{PipelineReport, Tally};
use packet::{Frame, HeapFrame, Stamp};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use units::{PS_PER_NS, Time};

/// The output of a run in virtual time.
pub trait Sink {
    /// Sends a frame at `at`, or as soon as the line is free. Returns its actual start.
    ///
    /// # Errors
    /// The output cannot be written.
    fn send(&mut self, frame: &mut HeapFrame, token: &Token, at: Time) -> Result<Time, SimError>;

    /// Number of frames sent so far that have definitely left. A file is written later than frames are sent to it, and
    /// a write may fail. `None` if frames leave when they are sent.
    fn certain(&self) -> Option<u64> {
        None
    }

    /// Writes the departure time into each stamped frame from now on.
    fn stamp_departures(&mut self) {}

    /// Sets the UNIX time that corresponds to the start of the run, for frames from this instant on. It changes when a
    /// gap of the input is shortened.
    fn rebase(&mut self, _from: Time, _epoch_ns: u64) {}

    /// Writes all buffered output.
    ///
    /// # Errors
    /// The output cannot be written.
    fn finish(&mut self) -> Result<(), SimError> {
        Ok(())
    }

    /// Frames that could not be written, even if they count as sent.
    fn unwritten(&self) -> Tally {
        Tally::default()
    }

    /// Records that readers of its files did not accept. Known once the sink has finished.
    fn lacks(&self) -> Vec<UnreadRecords> {
        Vec::new()
    }

    /// Adds figures that only the sink knows.
    fn report(&self, _report: &mut PipelineReport) {}

    /// The line, if the port has a line rate.
    fn line(&self) -> Option<Line> {
        None
    }

    /// When the preceding frame has left the line, so that the next one can start.
    fn free(&self) -> Time {
        Time::ZERO
    }
}

/// Records that the reader of a file did not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadRecords {
    /// The file.
    pub path: PathBuf,
    /// Number of missing records.
    pub records: u64,
    /// What the records are, in the singular.
    pub are: &'static str,
}

/// Drops and counts frames.
pub struct NullSink;

impl Sink for NullSink {
    fn send(&mut self, _: &mut HeapFrame, _: &Token, at: Time) -> Result<Time, SimError> {
        Ok(at)
    }
}

/// Writes a capture whose timestamps are the departures.
pub struct PcapSink {
    writer: CaptureWriter,
    epoch_ns: u64,
    /// Later values of the epoch, each with the instant from which it applies.
    later: VecDeque<(Time, u64)>,
    stamps: bool,
}

impl PcapSink {
    /// Creates the file. `epoch_ns` is the UNIX time of the start of the run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, epoch_ns: u64) -> Result<Self, SimError> {
        Ok(PcapSink {
            writer: CaptureWriter::create(path, WhenFull::Wait)?,
            epoch_ns,
            later: VecDeque::new(),
            stamps: false,
        })
    }

    /// Writes a frame that started at `start`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&mut self, start: Time, frame: &mut HeapFrame) -> Result<(), SimError> {
        let time_ns = self.stamp(start);
        if self.stamps {
            Stamp::set_time(frame.bytes_mut(), time_ns);
        }
        self.writer.write(time_ns, frame.bytes(), frame.original())
    }

    /// Like [`PcapSink::write`], for bytes that are not a frame of the pipeline.
    pub(crate) fn write_bytes(&mut self, start: Time, bytes: &[u8]) -> Result<(), SimError> {
        let time_ns = self.stamp(start);
        self.writer.write(time_ns, bytes, bytes.len() as u32)
    }

    /// The timestamp, rounded to the nearest nanosecond, which is the resolution of a capture.
    fn stamp(&mut self, start: Time) -> u64 {
        while let Some((_, epoch_ns)) = self.later.front().filter(|(from, _)| *from <= start) {
            self.epoch_ns = *epoch_ns;
            self.later.pop_front();
        }
        self.epoch_ns.saturating_add((start.as_ps() + PS_PER_NS / 2) / PS_PER_NS)
    }
}

impl Sink for PcapSink {
    fn send(&mut self, frame: &mut HeapFrame, _: &Token, at: Time) -> Result<Time, SimError> {
        self.write(at, frame)?;
        Ok(at)
    }

    fn certain(&self) -> Option<u64> {
        Some(self.writer.written().frames)
    }

    fn stamp_departures(&mut self) {
        self.stamps = true;
    }

    fn rebase(&mut self, from: Time, epoch_ns: u64) {
        self.later.push_back((from, epoch_ns));
    }

    fn finish(&mut self) -> Result<(), SimError> {
        self.writer.finish()
    }

    fn lacks(&self) -> Vec<UnreadRecords> {
        let (path, records) = (self.writer.path().to_owned(), self.writer.unwritten().frames);
        if records > 0 { vec![UnreadRecords { path, records, are: "frame" }] } else { Vec::new() }
    }

    fn unwritten(&self) -> Tally {
        self.writer.unwritten()
    }
}

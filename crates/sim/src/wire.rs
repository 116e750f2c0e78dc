use crate::error::SimError;
use crate::output::Output;
use crate::sink::{PcapSink, Sink};
use engine::filler::{FillerPlanner, filler_count, fillers, long_fillers};
use engine::{Departure, Line};
use measure::{PipelineReport, Tally};
use packet::{FillerKind, HeapFrame};
use std::io::Write;
use std::path::Path;
use units::{FrameLen, Time, WireLen};

/// The model line: a NIC that sends at line rate, a switch that discards fillers, and an ideal receiver that timestamps
/// the first preamble byte of each frame to the picosecond.
pub struct WireSink {
    planner: FillerPlanner,
    /// Fills idle time with frames of this kind.
    filler: Option<FillerKind>,
    /// Lengths of fillers above the standard.
    long: Vec<WireLen>,
    /// Frames start at multiples of this many bytes: the MAC's deficit idle count.
    lane: u64,
    keep_fillers: bool,
    pcap: Option<PcapSink>,
    frames: Option<FrameList>,
    fillers: Tally,
    carried: u64,
    crowded: u64,
    buffer: Vec<u8>,
}

impl WireSink {
    /// A line that fills idle time with frames of up to `longest`, and aligns data frames to `align` bytes.
    #[must_use]
    pub fn filled(line: Line, kind: FillerKind, align: u64, longest: FrameLen) -> Self {
        let sink = WireSink::new(FillerPlanner::new(line, align), Some(kind));
        WireSink { long: long_fillers(longest), ..sink }
    }

    /// A line that idles between frames.
    #[must_use]
    pub fn idle(line: Line) -> Self {
        WireSink::new(FillerPlanner::idle(line), None)
    }

    fn new(planner: FillerPlanner, filler: Option<FillerKind>) -> Self {
        WireSink {
            planner,
            filler,
            long: Vec::new(),
            lane: 1,
            keep_fillers: false,
            pcap: None,
            frames: None,
            fillers: Tally::default(),
            carried: 0,
            crowded: 0,
            buffer: Vec::new(),
        }
    }

    /// Moves frames to where a MAC with a deficit idle count starts them: it rounds each start down to its lanes and
    /// tracks the deficit, so that the mean gap stays 12 bytes (IEEE 802.3 46.3.1.4).
    pub fn count_deficit_idle(&mut self) {
        self.lane = self.planner.line().lane_alignment();
    }

    /// Lists and captures fillers, as if no switch discarded them.
    pub fn keep_fillers(&mut self) {
        self.keep_fillers = true;
    }

    /// Captures the frames that the receiver sees.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn capture(&mut self, path: &Path, epoch_ns: u64) -> Result<(), SimError> {
        self.pcap = Some(PcapSink::create(path, epoch_ns)?);
        Ok(())
    }

    /// Lists the frames with their starts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn list(&mut self, path: &Path) -> Result<(), SimError> {
        self.frames = Some(FrameList::create(path)?);
        Ok(())
    }

    fn start(&self, position: u64) -> Time {
        self.planner.line().time(position / self.lane * self.lane)
    }

    fn fill(&mut self, kind: FillerKind, from: u64, fill: u64) -> Result<(), SimError> {
        let count = filler_count(fill, &self.long);
        self.fillers.frames += count;
        self.fillers.bytes += fill - count * u64::from(WireLen::OVERHEAD);
        if !self.keep_fillers {
            return Ok(());
        }
        let mut position = from;
        for length in fillers(fill, &self.long) {
            let start = self.start(position);
            if let Some(frames) = &mut self.frames {
                frames.add(start, length.frame(), "filler")?;
            }
            if let Some(pcap) = &mut self.pcap {
                kind.write(&mut self.buffer, length.frame());
                pcap.write_bytes(start, &self.buffer)?;
            }
            position += u64::from(length.bytes());
        }
        Ok(())
    }
}

impl Sink for WireSink {
    fn send(&mut self, departure: &mut Departure<HeapFrame>) -> Result<Time, SimError> {
        let slot = self.planner.place(departure.at, departure.ready, departure.length.on_wire());
        self.carried += u64::from(slot.carried);
        self.crowded += u64::from(slot.crowded);
        if let Some(kind) = self.filler {
            self.fill(kind, slot.position - slot.fill, slot.fill)?;
        }
        let start = self.start(slot.position);
        if let Some(frames) = &mut self.frames {
            frames.add(start, departure.length, "data")?;
        }
        if let Some(pcap) = &mut self.pcap {
            pcap.write(start, &mut departure.frame)?;
        }
        Ok(start)
    }

    fn stamp_departures(&mut self) {
        if let Some(pcap) = &mut self.pcap {
            pcap.stamp_departures();
        }
    }

    fn rebase(&mut self, from: Time, epoch_ns: u64) {
        if let Some(pcap) = &mut self.pcap {
            pcap.rebase(from, epoch_ns);
        }
    }

    fn finish(&mut self) -> Result<(), SimError> {
        if let Some(frames) = &mut self.frames {
            frames.flush()?;
        }
        self.pcap.as_mut().map_or(Ok(()), Sink::finish)
    }

    fn unwritten(&self) -> Tally {
        // If fillers are captured as well, unwritten frames may be fillers.
        let pcap = self.pcap.as_ref().filter(|_| !self.keep_fillers);
        pcap.map_or(Tally::default(), Sink::unwritten)
    }

    fn report(&self, report: &mut PipelineReport) {
        report.fillers = self.filler.map(|_| self.fillers);
        report.underruns = self.filler.map(|_| 0);
        report.carried = Some(self.carried);
        report.crowded = Some(self.crowded);
    }

    fn line(&self) -> Option<Line> {
        Some(*self.planner.line())
    }

    fn free(&self) -> Time {
        self.planner.free()
    }
}

/// A CSV list of frames, `start_ps,length,kind`: start of the preamble in ps since the start of the run, length with
/// FCS, and `data` or `filler`.
pub struct FrameList {
    output: Output,
    lines: Vec<u8>,
}

impl FrameList {
    /// Creates the file with its header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Self, SimError> {
        let mut list = FrameList { output: Output::create(path)?, lines: b"start_ps,length,kind\n".to_vec() };
        list.flush()?;
        Ok(list)
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, start: Time, length: FrameLen, kind: &str) -> Result<(), SimError> {
        // Writing to memory cannot fail.
        let _ = writeln!(self.lines, "{},{},{kind}", start.as_ps(), length.bytes());
        if self.lines.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), SimError> {
        let last_line = |end: usize| self.lines[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let written = self.output.write(&self.lines, last_line);
        self.lines.clear();
        written.map_err(|cause| SimError::Write { path: self.output.path().to_owned(), cause })
    }
}

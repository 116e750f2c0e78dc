use crate::error::SimError;
use crate::output::{Lines, WhenFull};
use crate::sink::{PcapSink, Sink, UnreadRecords};
use engine::filler::{FillerPlanner, filler_count, fillers, long_fillers};
use engine::{Line, Token};
use measure::{PipelineReport, Tally};
use packet::{FillerKind, HeapFrame};
use std::path::Path;
use units::{FrameLen, Time, WireLen};

/// The model line: a NIC that sends at line rate, a switch that discards fillers, and an ideal receiver that timestamps
/// the first preamble byte of each frame to the picosecond.
pub struct WireSink {
    planner: FillerPlanner,
    /// The kind of fillers in idle time, if it is filled.
    filler: Option<FillerKind>,
    /// Lengths of fillers above the standard maximum.
    long: Vec<WireLen>,
    /// Frames start at multiples of this many bytes, as with a deficit idle count in the MAC.
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
    /// A line that fills idle time with fillers of up to `longest`, and aligns data frames to `align` bytes.
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

    /// Moves each frame to where a MAC with a deficit idle count would start it. The MAC rounds each start down to its
    /// lanes and tracks the deficit, so that the mean gap stays 12 bytes (IEEE 802.3 46.3.1.4).
    pub fn count_deficit_idle(&mut self) {
        self.lane = self.planner.line().lane_alignment();
    }

    /// Also lists and captures fillers, as if no switch discarded them.
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

    /// Lists the frames with their start times.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn list(&mut self, path: &Path) -> Result<(), SimError> {
        self.frames = Some(FrameList::create(path, WhenFull::Wait)?);
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
    fn send(&mut self, frame: &mut HeapFrame, token: &Token, at: Time) -> Result<Time, SimError> {
        let slot = self.planner.place(at, token.ready(), token.length().on_wire());
        self.carried += u64::from(slot.carried);
        self.crowded += u64::from(slot.crowded);
        if let Some(kind) = self.filler {
            self.fill(kind, slot.position - slot.fill, slot.fill)?;
        }
        let start = self.start(slot.position);
        if let Some(frames) = &mut self.frames {
            frames.add(start, token.length(), "data")?;
        }
        if let Some(pcap) = &mut self.pcap {
            pcap.write(start, frame)?;
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
        // Both are finished even if one of them fails.
        let listed = self.frames.as_mut().map_or(Ok(0), FrameList::finish).map(drop);
        listed.and(self.pcap.as_mut().map_or(Ok(()), Sink::finish))
    }

    fn lacks(&self) -> Vec<UnreadRecords> {
        let lines = self.frames.as_ref().map(|frames| UnreadRecords {
            path: frames.lines.path().to_owned(),
            records: frames.lines.missing(),
            are: "line",
        });
        let frames = self.pcap.as_ref().map(Sink::lacks).unwrap_or_default();
        lines.into_iter().filter(|lack| lack.records > 0).chain(frames).collect()
    }

    fn certain(&self) -> Option<u64> {
        self.pcap.as_ref().filter(|_| !self.keep_fillers).and_then(Sink::certain)
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
    lines: Lines,
}

impl FrameList {
    /// Creates the file with its header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, when_full: WhenFull) -> Result<Self, SimError> {
        let mut lines = Lines::create(path, when_full)?;
        lines.line("start_ps,length,kind")?;
        Ok(FrameList { lines })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.lines.path()
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// An earlier write failed.
    pub fn add(&mut self, start: Time, length: FrameLen, kind: &str) -> Result<(), SimError> {
        self.lines.line(format_args!("{},{},{kind}", start.as_ps(), length.bytes()))
    }

    /// Ends the file. Returns the number of lines that its reader did not accept.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(&mut self) -> Result<u64, SimError> {
        self.lines.finish()
    }
}

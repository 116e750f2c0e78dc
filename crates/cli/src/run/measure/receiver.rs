//! Counts and times the frames of `measure`, from a capture or an interface.

use crate::options::common::Common;
use crate::output::{self, Failure};
use crate::plan::frame_filter::FrameFilter;
use engine::schedules::Target;
use engine::schedules::laws::GapDistribution;
use engine::sync::SourceList;
use measure::{
    ArrivalMeter, ConformanceMeter, FitMeter, FrameCounters, GapMeter, Histograms, PipelineReport, Plots, RateMeter,
    StreamMeter, Tally, Timeline,
};
use packet::Stamp;
use sim::CaptureWriter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use units::{BitRate, FrameLen, Layer, PS_PER_S, Rate, Span, Time};

/// The expected inter-departure time after a frame of `length`, if the target determines it from the length alone.
fn gap_after(expected: &Target, length: FrameLen) -> Option<Span> {
    let at = |rate: BitRate, bytes: u32| {
        Span::from_ps((u128::from(bytes) * 8 * u128::from(PS_PER_S) / u128::from(rate.bps().max(1))) as u64)
    };
    match expected {
        Target::Gap(gap) => Some(*gap),
        Target::Rate(Rate::Frames(rate)) => Some(rate.gap()),
        Target::Rate(Rate::Bits(rate, Layer::Frame)) => Some(at(*rate, length.bytes())),
        Target::Rate(Rate::Bits(rate, Layer::Wire)) => Some(at(*rate, length.on_wire().bytes())),
        _ => None,
    }
}

/// Measures frames.
pub(crate) struct Receiver {
    /// The filter for measured frames, if any.
    only: Option<FrameFilter>,
    expected: Option<Target>,
    pub(super) gaps: GapMeter,
    conformance: ConformanceMeter,
    rate: RateMeter,
    pub(super) fit: Option<FitMeter>,
    timeline: Timeline,
    pub(super) streams: StreamMeter,
    /// Sources that are compared, if any.
    sources: Option<(SourceList, ArrivalMeter)>,
    books: FrameCounters,
    /// Records of a capture that are not frames, by reason.
    pub(super) skipped: BTreeMap<String, u64>,
    /// Frames that could not be written.
    unwritten: Tally,
    /// Length of the preceding frame.
    last: Option<FrameLen>,
}

impl Receiver {
    pub(super) fn new(
        only: Option<FrameFilter>,
        expected: Option<Target>,
        law: Option<GapDistribution>,
        window: Span,
        streams: u32,
    ) -> Self {
        Receiver {
            only,
            gaps: GapMeter::new(expected.as_ref().and_then(Target::fixed_gap), None).at_hand(),
            expected,
            conformance: ConformanceMeter::new(None).at_hand(),
            rate: RateMeter::new(window),
            fit: law.map(|law| FitMeter::new(Arc::new(law), None)),
            timeline: Timeline::default(),
            streams: StreamMeter::at_most(streams as usize),
            sources: None,
            books: FrameCounters::default(),
            skipped: BTreeMap::new(),
            unwritten: Tally::default(),
            last: None,
        }
    }

    /// Whether to measure a frame, given without FCS and with its tags. Counts other frames as left out.
    pub(crate) fn takes(&mut self, frame: &[u8], length: FrameLen) -> bool {
        self.only.as_mut().is_none_or(|only| only.takes(frame, length))
    }

    pub(crate) fn record(&mut self, start: Time, length: FrameLen) {
        self.gaps.record(start);
        if let Some(expected) = &self.expected {
            // The first frame has no gap, so any target will do.
            let before = self.last.replace(length).unwrap_or(length);
            if let Some(gap) = gap_after(expected, before) {
                self.conformance.record_after(gap, start, length);
            }
        }
        self.rate.record(start, length);
        if let Some(fit) = &mut self.fit {
            fit.record(start, length);
        }
        self.timeline.got(start, length);
        self.books.arrived.add(length);
        self.books.left.add(length);
    }

    /// Compares these sources.
    pub(super) fn compare(&mut self, sources: Option<SourceList>) {
        self.sources = sources.map(|list| {
            let meter = ArrivalMeter::new(list.sources.iter().map(ToString::to_string), list.silence, list.gap);
            (list, meter)
        });
    }

    /// Records a frame, given without FCS, for its source, if sources are compared.
    pub(crate) fn record_source(&mut self, frame: &[u8], start: Time, length: FrameLen) {
        if let Some((list, meter)) = &mut self.sources
            && let Some(source) = list.source_of(frame)
        {
            meter.record(source, start, length);
        }
    }

    /// Counts a frame by its stamp. Returns false if it has none. `frame` is without FCS, `arrived_ns` is UNIX time.
    pub(crate) fn record_stamp(&mut self, frame: &[u8], arrived_ns: u64) -> bool {
        let Some(stamp) = Stamp::of(frame) else { return false };
        self.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, arrived_ns);
        true
    }

    /// Frames measured.
    #[cfg(feature = "live")]
    pub(crate) fn arrived(&self) -> Tally {
        self.books.arrived
    }

    /// Frames left out by the rule, if there is one.
    pub(crate) fn left_out(&self) -> Option<Tally> {
        self.only.as_ref().map(FrameFilter::left_out)
    }

    pub(crate) fn frames(&self) -> u64 {
        self.books.arrived.frames
    }

    /// The progress of a run after this time, on one line.
    pub(crate) fn so_far(&self, passed: Duration) -> String {
        let (frames, bytes) = (self.books.arrived.frames, self.books.arrived.bytes);
        let rate = bytes as f64 * 8.0 / passed.as_secs_f64().max(1e-3);
        let rate = output::bits(output::digits(rate, 4));
        format!("{} s  {rate}  {}", passed.as_secs(), output::counted(frames, "frame"))
    }

    /// Finishes the written capture. Frames that are missing in it do not count as out.
    pub(crate) fn finish(&mut self, writer: Option<&mut CaptureWriter>) -> Result<(), Failure> {
        let Some(writer) = writer else { return Ok(()) };
        let ended = writer.finish().map_err(Failure::new);
        self.unwritten = writer.unwritten();
        if ended.is_ok() {
            output::warn_of_lacks(writer.path(), self.unwritten.frames, "frame");
        }
        ended
    }

    pub(super) fn report(&self) -> PipelineReport {
        let mut report = self.report_of_all();
        report.take_back(self.unwritten);
        report
    }

    fn report_of_all(&self) -> PipelineReport {
        PipelineReport {
            name: "measure".into(),
            rule: self.only.as_ref().map(FrameFilter::rule),
            left_out: self.left_out(),
            skipped: self.skipped.clone(),
            arrived: self.books.arrived,
            left: self.books.left,
            drops: self.books.drops(),
            histograms: Some(Histograms { gap_ps: self.gaps.whole(), ..Histograms::default() }),
            gap: self.gaps.report(),
            fit: self.fit.as_ref().and_then(FitMeter::report),
            conformance: self.conformance.report(),
            rate: self.rate.report().map(|rate| rate.with_frames(self.gaps.report().as_ref())),
            streams: self.streams.report(&[]),
            streams_beyond: self.streams.beyond(),
            arrivals: self.sources.as_ref().map(|(_, meter)| meter.report()),
            crest_gap: self.sources.as_ref().and_then(|(_, meter)| meter.gaps().report()),
            plots: Some(Box::new(Plots {
                sources: self.sources.as_ref().map_or_else(Vec::new, |(_, meter)| meter.curves()),
                crest_gaps: self.sources.as_ref().and_then(|(_, meter)| meter.gaps().plot()),
                ..Plots::of(&self.gaps, self.expected.as_ref().map(|_| &self.conformance), &self.timeline)
            })),
            ..PipelineReport::default()
        }
    }
}

/// What to receive, and until when.
pub(crate) struct Reception<'a> {
    pub(crate) common: &'a Common,
    pub(crate) write: Option<&'a Path>,
    /// Files written after all frames have arrived.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "ports are refused"))]
    pub(crate) later: Vec<PathBuf>,
    pub(crate) count: u64,
    pub(crate) duration: Option<Span>,
}

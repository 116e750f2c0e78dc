pub(crate) mod receiver;

use crate::options::measure::Measure;
use crate::output::{self, Failure};
use crate::plan::capture_anomalies;
use crate::plan::frame_filter::FrameFilter;
use crate::plan::measure::{MeasurePlan, MeasuredFrames};
use crate::render::gaps;
use crate::render::output_file;
use crate::render::page_folder::PageFolder;
use crate::render::progress::Progress;
use crate::run::host;
use crate::run::measure::receiver::{Receiver, Reception};
use crate::run::outcome::Outcome;
use crate::run::pipelines;
use crate::run::resolution;
use crate::run::stop::Stop;
use engine::schedules::Target;
use engine::sync::SourceList;
use measure::{Caveat, CaveatKind, ClockSource, ExpectationReport, PipelineReport, Report};
use packet::{Frame, HeapFrame};
use scenario::PortSpec;
use sim::{CaptureWriter, PcapSource, Source, WhenFull};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use units::{FrameLen, Layer, Rate, Time, WireLen};

/// Measures frames or counters, and reports.
pub(crate) fn run(plan: MeasurePlan) -> Result<ExitCode, Failure> {
    match plan {
        MeasurePlan::Counters { interfaces, interval, common } => host::watch(&interfaces, interval, &common),
        MeasurePlan::Frames(frames) => {
            let MeasuredFrames { port, expected, only, sources, of_files, options } = *frames;
            options.measure(&port, expected, only, sources, of_files)
        }
    }
}

impl Measure {
    fn measure(
        &self,
        port: &PortSpec,
        expected: Option<Target>,
        only: Option<FrameFilter>,
        sources: Option<SourceList>,
        of_files: Vec<Caveat>,
    ) -> Result<ExitCode, Failure> {
        let folder = self.common.folder.as_deref().map(PageFolder::open).transpose()?;
        let stop = Stop::on_signals()?;
        let law = match &expected {
            Some(Target::Law(law)) => Some(law.distribution().map_err(Failure::new)?),
            _ => None,
        };
        let mut receiver = Receiver::new(only, expected.clone(), law, self.common.window, self.max_streams);
        receiver.compare(sources);
        let reception = Reception {
            common: &self.common,
            write: self.write.as_deref(),
            later: self.csv.iter().chain(&self.svg).cloned().collect(),
            count: self.count.unwrap_or(u64::MAX),
            duration: self.common.duration,
        };
        let mut outcome = match port {
            PortSpec::Pcap(path) => from_capture(path, &mut receiver, &reception, &stop)?,
            port if port.can_receive() => from_port(port, &mut receiver, &reception, &stop)?,
            port => {
                return Err(Failure::new(format!(
                    "--in: nothing can be received from {port}: name a live port (eth0, pci:, dpdk:, tap:) or pcap:FILE"
                )));
            }
        };
        resolution::warn(&mut outcome.caveats, of_files);
        let mut report = receiver.report();
        say_if_none_met(&report);
        if let Some(partial) = outcome.reports.pop() {
            (report.flow, report.start) = (partial.flow, partial.start);
        }
        if let Some(Target::Gap(gap)) = expected {
            resolution::warn(&mut outcome.caveats, resolution::of_stamps(gap));
        }
        if let Some(beyond) = report.streams_beyond {
            let kind = CaveatKind::StreamsBeyond {
                streams: beyond.streams,
                frames: beyond.frames,
                most: self.max_streams.into(),
            };
            resolution::warn(&mut outcome.caveats, [Caveat::new(kind)]);
        }
        let written = self.write_gaps(&receiver, &report);
        let failure = output::all([outcome.failure.take().map_or(Ok(()), Err), written]).err();
        let mut report =
            Report { clocks: outcome.clocks, ..pipelines::report("measure", vec![report], outcome.caveats) };
        pipelines::forget_histograms(&mut report, &self.common);
        if let Some((expected, text)) = expected.zip(self.expect.as_ref()) {
            let (value, missed) = self.miss(&expected, &report.pipelines[0]);
            report.expectations.push(ExpectationReport::new(text, value, missed));
        }
        pipelines::conclude(&report, &self.common, folder, failure)
    }

    /// Writes the requested files of gaps: the distribution and the histogram.
    fn write_gaps(&self, receiver: &Receiver, report: &PipelineReport) -> Result<(), Failure> {
        let write = |option: &str, path: &Option<PathBuf>, text: &dyn Fn() -> String| match path {
            None => Ok(()),
            Some(path) => {
                output_file::write(path, &text()).map_err(|failure| Failure::new(format!("{option}: {failure}")))
            }
        };
        let drawing = || page::gaps(report).unwrap_or_else(|| gaps::NO_GAPS.to_owned());
        output::all([
            write("--csv", &self.csv, &|| gaps::distribution(&receiver.gaps.buckets())),
            write("--svg", &self.svg, &drawing),
        ])
    }

    /// The figure to compare with the expectation, and why the expectation is missed, if it is.
    fn miss(&self, expected: &Target, report: &PipelineReport) -> (Option<f64>, Option<String>) {
        let (Some(gap), Some(rate)) = (&report.gap, &report.rate) else {
            return (None, Some("fewer than two frames arrived".into()));
        };
        let frame_rate = 1e9 / gap.mean_ns;
        let frames: fn(f64) -> String = |rate| format!("{} frames/s", output::digits(rate, 10));
        let (asked, got, figure) = match expected {
            Target::Gap(asked) => (asked.as_ns_f64(), gap.mean_ns, output::time as fn(f64) -> String),
            Target::Rate(Rate::Frames(asked)) => (asked.millis() as f64 / 1_000.0, frame_rate, frames),
            Target::Rate(Rate::Bits(asked, Layer::Wire)) => {
                let overhead = frame_rate * f64::from(WireLen::OVERHEAD) * 8.0;
                (asked.bps() as f64, rate.mean_bps + overhead, output::bits as fn(f64) -> String)
            }
            Target::Rate(Rate::Bits(asked, _)) => {
                (asked.bps() as f64, rate.mean_bps, output::bits as fn(f64) -> String)
            }
            Target::Law(_) => {
                let p = report.fit.as_ref().map_or(0.0, measure::FitReport::p);
                let badly = || format!("gaps of this law would fit this badly with a probability of only {p:.2e}");
                return (Some(p), (p < LEAST_P).then(badly));
            }
            Target::Nothing | Target::IdleGap(_) | Target::Wave(_) | Target::Depth(_) | Target::Rate(Rate::Line(_)) => {
                return (None, None);
            }
        };
        let off = (got - asked).abs() / asked;
        if off > self.tolerance.as_f64() {
            let missed = format!("the mean is {}, {:.4} % off {}", figure(got), off * 100.0, figure(asked));
            return (Some(got), Some(missed));
        }
        let near = gap.error.as_ref().map(|error| error.shares.within_1us_ratio).filter(|share| *share < 0.9);
        let far = |share| format!("{:.2} % of the gaps are within 1 µs, below the required 90 %", share * 100.0);
        (Some(got), near.map(far))
    }
}

/// A rule that no frame matches is often a mistake.
fn say_if_none_met(report: &PipelineReport) {
    let Some((rule, left_out)) = report.rule.as_ref().zip(report.left_out) else { return };
    if report.arrived.frames == 0 && left_out.frames > 0 {
        let arrived = output::counted(left_out.frames, "frame");
        output::warn(format!("--only: {arrived} arrived, but none matches '{rule}': all were left out"));
    }
}

/// An expected law is missed if its p-value is below this: the probability that gaps of the law fit at least this
/// badly.
const LEAST_P: f64 = 1e-4;

/// Frames of a capture that are too long for any line: a NIC segmented them after the capture, or merged them before.
#[derive(Default)]
struct UncutSuperFrames {
    frames: u64,
    longest: u32,
}

impl UncutSuperFrames {
    fn add(&mut self, length: FrameLen) {
        // Jumbo frames have up to 9216 B plus tags.
        if length.bytes() > 9_300 {
            self.frames += 1;
            self.longest = self.longest.max(length.bytes());
        }
    }

    fn warning(&self, path: &Path) -> Option<Caveat> {
        (self.frames > 0).then(|| resolution::of_uncut(path, self.frames, self.longest))
    }
}

fn from_capture(
    path: &Path,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    #[cfg(feature = "live")]
    crate::rights::keep_files();
    let mut source = PcapSource::open(path).map_err(Failure::new)?;
    let create = |path| CaptureWriter::create(path, WhenFull::Wait).map_err(Failure::new);
    let mut writer = reception.write.map(create).transpose()?;
    let mut frame = HeapFrame::default();
    // Records whose stamp was truncated, if they had one.
    let mut cut = 0;
    let mut uncut = UncutSuperFrames::default();
    let mut failure = None;
    let mut progress = Progress::new(reception.common.shows_progress(), ["measure"]);
    let end = reception.duration.map_or(Time::MAX, |duration| Time::from_ps(duration.as_ps()));
    while let Some(arrival) = source.arrival().filter(|arrival| *arrival < end) {
        if receiver.frames() >= reception.count || stop.asked() {
            break;
        }
        if progress.is_due() {
            progress.say(0, receiver.so_far(progress.passed()));
        }
        let arrived_ns = source.epoch_ns().saturating_add(arrival.as_ps() / units::PS_PER_NS);
        source.take(&mut frame);
        if !receiver.takes(frame.bytes(), frame.length()) {
            continue;
        }
        receiver.record(arrival, frame.length());
        receiver.record_source(frame.bytes(), arrival, frame.length());
        uncut.add(frame.length());
        let is_cut = (frame.bytes().len() as u32) < frame.original();
        cut += u64::from(!receiver.record_stamp(frame.bytes(), arrived_ns) && is_cut);
        if let Some(writer) = &mut writer {
            failure = writer.write(arrived_ns, frame.bytes(), frame.original()).err().map(Failure::new);
            if failure.is_some() {
                break;
            }
        }
    }
    failure = failure.or(receiver.finish(writer.as_mut()).err());
    if let Some(fit) = &mut receiver.fit {
        fit.stamped_in_steps(source.step_ns());
    }
    let mut caveats = vec![Caveat::new(CaveatKind::Clock { source: ClockSource::Capture })];
    let step_ns = source.step_ns();
    let step = Caveat::new(CaveatKind::StampStep { file: path.display().to_string(), step_ns });
    let of_stamps = (cut > 0 && !receiver.streams.is_empty()).then(|| resolution::of_cut(path, cut));
    let anomalies = source.anomalies().cloned().unwrap_or_default();
    receiver.skipped = anomalies.skipped_by_name();
    let of_anomalies = capture_anomalies::warnings(path.display(), &anomalies);
    let (of_steps, steps) = if step_ns > 1.0 { (Some(step), None) } else { (None, Some(step)) };
    caveats.extend(steps);
    let warnings = of_anomalies.into_iter().chain(of_steps).chain(of_stamps).chain(uncut.warning(path));
    resolution::warn(&mut caveats, warnings);
    resolution::note_anomalies(&anomalies, &mut caveats);
    Ok(Outcome {
        reports: Vec::new(),
        caveats,
        clocks: Vec::new(),
        failure: failure.or(source.failure().map(Failure::new)),
    })
}

#[cfg(feature = "live")]
fn from_port(
    port: &PortSpec,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    crate::run::live::receive(port, receiver, reception, stop)
}

#[cfg(not(feature = "live"))]
fn from_port(_: &PortSpec, _: &mut Receiver, _: &Reception<'_>, _: &Stop) -> Result<Outcome, Failure> {
    Err(Failure::no_live_ports())
}

//! The receiver of `measure`.

use super::start::Start;
use super::stats_file::{Stats, of_receiver};
use crate::output::{self, Failure};
use crate::plan::files;
use crate::plan::xdp_programs;
use crate::render::progress::Progress;
use crate::rights::list::{Capability, PACKET};
use crate::rights::{self, RunCapabilities};
use crate::run::clock::watch::ClockWatch;
use crate::run::live::devices::{device, log_level};
use crate::run::live::{host_ports, nic_links, required_rights, stream_receiver};
use crate::run::measure::receiver::{Receiver, Reception};
use crate::run::outcome::Outcome;
use crate::run::readiness;
use crate::run::stop::Stop;
use dataplane::{ArrivalPort, StartGate};
use dpdk::{Eal, EalConfig, Received, RingConfig};
use measure::{Caveat, CaveatKind, ClockSource, Flow, PipelineReport, StartReport};
use scenario::PortSpec;
use sim::{CaptureWriter, WhenFull};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{FrameLen, Time};

/// Interval between writes to the capture, so that a killed run loses little.
const FLUSH: Duration = Duration::from_secs(1);
/// How long to wait for frames between checks for the end of the run.
const LOOK: Duration = Duration::from_millis(100);

/// Receives from a live port until the run ends: from an interface through the kernel's ring, or else by polling.
pub(crate) fn receive(
    input: &PortSpec,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    host_ports::check_listener(input, reception.common.take_over)?;
    let clocks = ClockWatch::begin(reception.common, stop)?;
    let mut start = Start::new(reception.common.start_at, reception.common.verbose > 0)?;
    let mut stats = Stats::open(reception.common, "measure")?;
    let mut port = open(input, reception)?;
    let create = |path| CaptureWriter::create(path, WhenFull::LeaveOut).map_err(Failure::new);
    let writer = reception.write.map(create).transpose()?;
    keep_what_is_needed(reception, input);
    let longest = port.longest().map_err(Failure::new)?;
    let mut taker = FrameProcessor {
        receiver,
        count: reception.count,
        longest,
        gate: start.as_ref().map(Start::gate),
        epoch_ns: None,
        flow: Flow::default(),
        writer,
        bytes: Vec::new(),
    };
    let mut begin = Instant::now();
    let mut flushed = begin;
    let mut failure = None;
    readiness::tell(reception.common);
    let mut progress = Progress::new(reception.common.shows_progress(), ["measure"]);
    if let Some(stats) = &mut stats {
        stats.begins();
    }
    while failure.is_none() && !stop.asked() && !taker.has_all() {
        if progress.is_due() {
            progress.say(0, taker.receiver.so_far(progress.passed()));
        }
        if let Some(start) = &mut start {
            start.look(0, stop);
            if let Some(ahead) = start.left() {
                begin = Instant::now() + ahead;
            }
        }
        let left = reception.duration.map_or(LOOK, |span| span.to_std().saturating_sub(begin.elapsed()).min(LOOK));
        if left.is_zero() {
            break;
        }
        if let Some(stats) = &mut stats {
            stats.write_if_due(|| {
                let dropped = port.lost().unwrap_or(0);
                vec![of_receiver(taker.receiver.arrived(), taker.receiver.left_out(), dropped)]
            });
        }
        let left = stats.as_ref().map_or(left, |stats| left.min(stats.left()));
        let mut taken = Ok(());
        let received = port.next(left, |frame| {
            if taken.is_ok() {
                taken = taker.take(frame);
            }
        });
        failure = taken.err().or(received.err().map(Failure::new));
        if flushed.elapsed() >= FLUSH {
            failure = failure.or(taker.flush().err());
            flushed = Instant::now();
        }
    }
    drop(progress);
    failure = failure.or(start.as_ref().and_then(Start::failure));
    failure = failure.or(taker.receiver.finish(taker.writer.as_mut()).err());
    let started = taker.start_report().zip(start.as_ref()).map(|(report, start)| start.by_host_clock(&report));
    let mut flow = taker.flow;
    match port.lost() {
        Ok(lost) => flow.kernel_drops = lost,
        Err(error) => failure = failure.or(Some(Failure::new(error))),
    }
    if let Some(stats) = &mut stats {
        let written =
            stats.end(|| vec![of_receiver(taker.receiver.arrived(), taker.receiver.left_out(), flow.kernel_drops)]);
        failure = failure.or(written.err());
    }
    if flow.super_frames + flow.partial_checksums > 0 {
        output::warn(format!(
            "{} frames are longer than the MTU and {} have unfinished checksums: turn off offloads at the sender, ethtool -K DEVICE tx off tso off gso off gro off",
            flow.super_frames, flow.partial_checksums
        ));
    }
    let caveats = match port.longest_pause() {
        None => vec![Caveat::new(CaveatKind::Clock { source: ClockSource::Kernel })],
        Some(pause) => {
            vec![Caveat::new(CaveatKind::Clock { source: ClockSource::Tsc }), Caveat::new(polled_stamps(input, pause))]
        }
    };
    let partial = PipelineReport { start: started, flow: Some(flow), ..PipelineReport::default() };
    let clocks = clocks.map_or_else(Vec::new, |watch| watch.finish(reception.common));
    Ok(Outcome { reports: vec![partial], caveats, clocks, failure })
}

/// Opens the input and waits for its link.
fn open(input: &PortSpec, reception: &Reception<'_>) -> Result<ArrivalPort, Failure> {
    if let Some(name) = stream_receiver::ring_of(input) {
        rights::require(&PACKET)?;
        let port = ArrivalPort::of_interface(name, &RingConfig::default()).map_err(Failure::new)?;
        xdp_programs::warn_if_any(name);
        return Ok(port);
    }
    let device = device(input)?;
    required_rights::row(input).map_or(Ok(()), rights::require)?;
    let mut config =
        EalConfig::new("netlathe").memory_mib(ArrivalPort::memory_mib(1)).log(log_level(reception.common.verbose));
    if let Some(address) = device.pci() {
        config = config.pci(address);
    }
    let eal = Eal::init(&config).map_err(Failure::new)?;
    let port = ArrivalPort::of_device(eal, &device, 1).map_err(Failure::new)?;
    nic_links::await_links(port.nic_link(), || sim::ended_for().is_some());
    Ok(port)
}

/// The caveat for stamps taken at polls.
pub(super) fn polled_stamps(input: &PortSpec, pause: Duration) -> CaveatKind {
    CaveatKind::PolledStamps { port: input.to_string(), longest_pause_ns: pause.as_secs_f64() * 1e9 }
}

/// Gives up the rights that are not needed once the input is open. Files are written at the end, which root may only
/// reach with CAP_DAC_OVERRIDE, and a named pipe for figures is opened whenever it has a reader.
fn keep_what_is_needed(reception: &Reception<'_>, input: &PortSpec) {
    let Reception { common, later, .. } = reception;
    let mut writable: Vec<PathBuf> = common.folder.iter().chain(&common.stats).cloned().collect();
    // A missing file will be created in its folder.
    writable.extend(later.iter().map(|path| if path.exists() { path.clone() } else { folder_of(path) }));
    let pipe = reception.write.filter(|path| files::is_pipe(path)).map(Path::to_path_buf);
    writable.extend(pipe.clone());
    let files = rights::set(&[Capability::DacOverride]);
    let (of_port, claims) = required_rights::of_polled(input);
    let own = of_port | if writable.is_empty() { 0 } else { files };
    writable.extend(claims);
    rights::drop_rights(RunCapabilities { own, others: if pipe.is_some() { files } else { 0 } }, Some(&writable), None);
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Processes received frames.
struct FrameProcessor<'a> {
    receiver: &'a mut Receiver,
    /// Limit on the number of frames.
    count: u64,
    /// The longest frame that the interface's MTU allows, in bytes without FCS.
    longest: u32,
    /// The asked start. Frames before it are in no count.
    gate: Option<Arc<StartGate>>,
    /// The stamp of the first frame; times count from it.
    epoch_ns: Option<u64>,
    flow: Flow,
    writer: Option<CaptureWriter>,
    bytes: Vec<u8>,
}

impl FrameProcessor<'_> {
    fn has_all(&self) -> bool {
        self.receiver.frames() >= self.count
    }

    fn take(&mut self, frame: &Received<'_>) -> Result<(), Failure> {
        if self.has_all() {
            return Ok(());
        }
        if self.gate.as_ref().is_some_and(|gate| gate.at().is_none_or(|at| frame.time_ns < at)) {
            return Ok(());
        }
        let epoch = *self.epoch_ns.get_or_insert(frame.time_ns);
        let length = FrameLen::of_captured(frame.link_len());
        // The kernel removes the outermost tag from the frame.
        let whole = match frame.vlan {
            Some(_) => {
                self.bytes.clear();
                frame.write_to(&mut self.bytes);
                &self.bytes
            }
            None => frame.bytes,
        };
        if !self.receiver.takes(whole, length) {
            return Ok(());
        }
        let start = Time::from_ps(frame.time_ns.saturating_sub(epoch) * units::PS_PER_NS);
        self.receiver.record(start, length);
        self.receiver.record_source(whole, start, length);
        self.receiver.record_stamp(frame.bytes, frame.time_ns);
        self.flow.partial_checksums += u64::from(frame.partial_checksum);
        self.flow.super_frames += u64::from(frame.original_len > self.longest);
        match &mut self.writer {
            Some(writer) => writer.write(frame.time_ns, whole, frame.link_len()).map_err(Failure::new),
            None => Ok(()),
        }
    }

    /// The asked start and the arrival of the first frame; `None` if no start was asked or its instant is not known.
    fn start_report(&self) -> Option<StartReport> {
        let at = self.gate.as_ref()?.at()?;
        Some(StartReport::of(at, self.epoch_ns.map(|first| first.cast_signed().wrapping_sub(at.cast_signed()))))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.as_mut().map_or(Ok(()), CaptureWriter::flush).map_err(Failure::new)
    }
}

//! The receiver of `measure`.

use super::stats_file::{SoFar, Stats};
use crate::output::{self, Failure};
use crate::plan::files;
use crate::render::progress::Progress;
use crate::rights::list::{Capability, PACKET};
use crate::rights::{self, Kept};
use crate::run::live::stream_receiver;
use crate::run::measure::{Receiver, Reception};
use crate::run::pipelines::Outcome;
use crate::run::readiness;
use crate::run::stop::Stop;
use dpdk::{Batch, PacketRing, RingConfig};
use measure::{Caveat, CaveatKind, ClockSource, Flow, PipelineReport};
use sim::{CaptureWriter, WhenFull};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use units::{FrameLen, Time};

/// How often what came is written to the file, for whoever kills the run.
const FLUSH: Duration = Duration::from_secs(1);
/// How long frames are waited for between two looks at whether the run is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Receives from an interface by its packet ring until told to stop.
pub(crate) fn receive(
    name: &str,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    rights::require(&PACKET)?;
    let mut stats = Stats::open(reception.common, "measure")?;
    let mut ring = PacketRing::open(name, &RingConfig::default()).map_err(Failure::new)?;
    stream_receiver::say_what_comes_before(name);
    let create = |path| CaptureWriter::create(path, WhenFull::LeaveOut).map_err(Failure::new);
    let writer = reception.write.map(create).transpose()?;
    keep_what_is_needed(reception);
    let longest = ring.mtu().map_err(Failure::new)? + 14;
    let mut taker = Taker {
        receiver,
        count: reception.count,
        longest,
        epoch_ns: None,
        flow: Flow::default(),
        writer,
        bytes: Vec::new(),
    };
    let begin = Instant::now();
    let mut flushed = begin;
    let mut failure = None;
    readiness::tell(reception.common);
    let mut progress = Progress::new(reception.common, ["measure"]);
    if let Some(stats) = &mut stats {
        stats.begins();
    }
    while failure.is_none() && !stop.asked() && !taker.has_all() {
        if progress.is_due() {
            progress.say(0, taker.receiver.so_far(progress.passed()));
        }
        let left = reception.duration.map_or(LOOK, |span| span.to_std().saturating_sub(begin.elapsed()).min(LOOK));
        if left.is_zero() {
            break;
        }
        if let Some(stats) = &mut stats {
            stats.tell(|| {
                let dropped = ring.counts().map_or(0, |counts| counts.dropped);
                vec![SoFar::of_receiver(taker.receiver.came(), taker.receiver.left_out(), dropped)]
            });
        }
        let left = stats.as_ref().map_or(left, |stats| left.min(stats.left()));
        failure = match ring.next(left) {
            Ok(Some(batch)) => taker.take(&batch).err(),
            Ok(None) => None,
            Err(error) => Some(Failure::new(error)),
        };
        if flushed.elapsed() >= FLUSH {
            failure = failure.or(taker.flush().err());
            flushed = Instant::now();
        }
    }
    drop(progress);
    failure = failure.or(taker.receiver.finish(taker.writer.as_mut()).err());
    let mut flow = taker.flow;
    match ring.counts() {
        Ok(counts) => flow.kernel_drops = counts.dropped,
        Err(error) => failure = failure.or(Some(Failure::new(error))),
    }
    if let Some(stats) = &mut stats {
        let told =
            stats.end(|| vec![SoFar::of_receiver(taker.receiver.came(), taker.receiver.left_out(), flow.kernel_drops)]);
        failure = failure.or(told.err());
    }
    if flow.super_frames + flow.partial_checksums > 0 {
        output::warn(format!(
            "{} frames are longer than the MTU and {} have unfinished checksums: turn off offloads at the sender, ethtool -K DEVICE tx off tso off gso off gro off",
            flow.super_frames, flow.partial_checksums
        ));
    }
    let caveats = vec![Caveat::new(CaveatKind::Clock { source: ClockSource::Kernel })];
    let partial = PipelineReport { flow: Some(flow), ..PipelineReport::default() };
    Ok(Outcome { reports: vec![partial], caveats, failure })
}

/// The socket is open: what is left are the files that are written at the end, to which root may have a way by
/// CAP_DAC_OVERRIDE alone, and a named pipe of figures, which is opened whenever it has a reader.
fn keep_what_is_needed(reception: &Reception<'_>) {
    let Reception { common, later, .. } = reception;
    let mut writable: Vec<PathBuf> = common.folder.iter().chain(&common.stats).cloned().collect();
    // A file that is not there yet is made in its folder.
    writable.extend(later.iter().map(|path| if path.exists() { path.clone() } else { folder_of(path) }));
    let pipe = reception.write.filter(|path| files::is_pipe(path)).map(Path::to_path_buf);
    writable.extend(pipe.clone());
    let files = rights::set(&[Capability::DacOverride]);
    let own = if writable.is_empty() { 0 } else { files };
    rights::give_up(Kept { own, others: if pipe.is_some() { files } else { 0 } }, Some(&writable));
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Processing of received frames.
struct Taker<'a> {
    receiver: &'a mut Receiver,
    /// How many frames are taken.
    count: u64,
    /// The longest frame that the interface's MTU allows, in bytes without FCS.
    longest: u32,
    /// The stamp of the first frame; times count from it.
    epoch_ns: Option<u64>,
    flow: Flow,
    writer: Option<CaptureWriter>,
    bytes: Vec<u8>,
}

impl Taker<'_> {
    fn has_all(&self) -> bool {
        self.receiver.frames() >= self.count
    }

    fn take(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
        for frame in batch {
            if self.has_all() {
                break;
            }
            let epoch = *self.epoch_ns.get_or_insert(frame.time_ns);
            let length = FrameLen::of_captured(frame.link_len());
            // The kernel takes the outermost tag out of the frame.
            let whole = match frame.vlan {
                Some(_) => {
                    self.bytes.clear();
                    frame.write_to(&mut self.bytes);
                    &self.bytes
                }
                None => frame.bytes,
            };
            if !self.receiver.takes(whole, length) {
                continue;
            }
            let start = Time::from_ps(frame.time_ns.saturating_sub(epoch) * units::PS_PER_NS);
            self.receiver.record(start, length);
            self.receiver.record_stamp(frame.bytes, frame.time_ns);
            self.flow.partial_checksums += u64::from(frame.partial_checksum);
            self.flow.super_frames += u64::from(frame.original_len > self.longest);
            if let Some(writer) = &mut self.writer {
                writer.write(frame.time_ns, whole, frame.link_len()).map_err(Failure::new)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.as_mut().map_or(Ok(()), CaptureWriter::flush).map_err(Failure::new)
    }
}

//! The receiver of `measure`.

use crate::commands::measure::{Receiver, Reception};
use crate::execute::Outcome;
use crate::far_end;
use crate::output::{self, Failure};
use crate::progress::Progress;
use crate::ready;
use crate::stop::Stop;
use dpdk::{PacketRing, RingConfig};
use measure::{Flow, PipelineReport};
use serde_json::{Map, json};
use std::time::{Duration, Instant};
use units::{FrameLen, Span, Time};

/// Receives from an interface by its packet ring until told to stop.
pub(crate) fn receive(
    name: &str,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    let mut ring = PacketRing::open(name, &RingConfig::default()).map_err(Failure::new)?;
    far_end::say_what_comes_before(name);
    let mut writer = reception.write.map(sim::CaptureWriter::create).transpose().map_err(Failure::new)?;
    let longest = ring.mtu().map_err(Failure::new)? + 14;
    let begin = Instant::now();
    let mut flow = Flow::default();
    let mut epoch_ns = None;
    let mut bytes = Vec::new();
    let mut failure = None;
    let mut flushed = Instant::now();
    let left =
        |duration: Option<Span>| duration.map_or(Duration::MAX, |span| span.to_std().saturating_sub(begin.elapsed()));
    ready::tell(reception.common);
    let mut progress = Progress::new(reception.common, ["measure"]);
    while !stop.asked() && receiver.frames() < reception.count {
        if progress.is_due() {
            progress.say(0, receiver.so_far(progress.passed()));
        }
        let left = left(reception.duration);
        if left.is_zero() {
            break;
        }
        match ring.next(left.min(Duration::from_millis(100))) {
            Ok(None) => {}
            Ok(Some(batch)) => {
                for frame in &batch {
                    if receiver.frames() >= reception.count {
                        break;
                    }
                    let epoch = *epoch_ns.get_or_insert(frame.time_ns);
                    let start = Time::from_ps(frame.time_ns.saturating_sub(epoch) * units::PS_PER_NS);
                    receiver.record(start, FrameLen::of_captured(frame.link_len()));
                    receiver.record_stamp(frame.bytes, frame.time_ns);
                    flow.partial_checksums += u64::from(frame.partial_checksum);
                    flow.super_frames += u64::from(frame.original_len > longest);
                    if let Some(writer) = &mut writer {
                        bytes.clear();
                        frame.write_to(&mut bytes);
                        failure = writer.write(frame.time_ns, &bytes, frame.link_len()).err().map(Failure::new);
                    }
                    if failure.is_some() {
                        break;
                    }
                }
            }
            Err(error) => {
                failure = Some(Failure::new(error));
                break;
            }
        }
        if let Some(writer) = writer.as_mut().filter(|_| flushed.elapsed() >= Duration::from_secs(1)) {
            failure = failure.or(writer.flush().err().map(Failure::new));
            flushed = Instant::now();
        }
        if failure.is_some() {
            break;
        }
    }
    drop(progress);
    if let Some(writer) = &mut writer {
        failure = failure.or(writer.flush().err().map(Failure::new));
    }
    match ring.counts() {
        Ok(counts) => flow.kernel_drops = counts.dropped,
        Err(error) => failure = failure.or(Some(Failure::new(error))),
    }
    if flow.super_frames + flow.partial_checksums > 0 {
        output::note(format!(
            "{} frames are longer than the MTU and {} have unfinished checksums: turn offloads off at the sender, ethtool -K DEVICE tx off tso off gso off gro off",
            flow.super_frames, flow.partial_checksums
        ));
    }
    let mut limits = Map::new();
    limits.insert(
        "clock".into(),
        json!("kernel receive stamps, 1 ns steps; a stamp is taken when the kernel has the frame from the driver"),
    );
    let partial = PipelineReport { flow: Some(flow), ..PipelineReport::default() };
    Ok(Outcome { reports: vec![partial], limits, failure })
}

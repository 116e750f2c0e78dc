//! The frames of a capture replayed to a receiver.

use crate::output::{self, Failure};
use crate::plan::request::{Arrivals, Request};
use crate::run::assemble;
use measure::{DropReason, Drops, FrameDigests, ReplayMeter};
use packet::{Fingerprint, Frame, HeapFrame};
use scenario::{Replay, SourcePlan};
use sim::{CaptureWriter, ReplaySource, Source};
use std::collections::BTreeSet;

/// The frames that the receiver of a replay expects; `None` without such a receiver.
pub(super) fn expected(request: &Request, receiver: Option<&Arrivals>) -> Result<Option<ReplayMeter>, Failure> {
    let (Some(_), Some(replay)) = (receiver, replay(request)) else { return Ok(None) };
    let mut source = one_round(replay)?;
    let mut frames = Vec::new();
    let mut frame = HeapFrame::default();
    while source.arrival().is_some() {
        if frames.len() == ReplayMeter::MOST {
            return Err(Failure::new(format!(
                "--in: {} has more than {} frames, too many to find the lost ones: use a part of it, or --count",
                replay.path.display(),
                crate::output::thousands(ReplayMeter::MOST as u64)
            )));
        }
        source.take(&mut frame);
        frame.make_whole();
        let found = Fingerprint::of(frame.bytes()).expect("a whole frame has an Ethernet header");
        let tag = if frame.bytes()[12..14] == [0x81, 0x00] { 4 } else { 0 };
        frames.push(FrameDigests { length: frame.bytes().len() as u32 - tag, ..digests(found) });
    }
    Ok(Some(ReplayMeter::new(frames, replay.rounds())))
}

/// Leaves out the frames of the capture that were dropped before they departed. Warns if it is not known which frames
/// these are.
pub(super) fn leave_out_unsent(replay: &mut ReplayMeter, sent: u64, drops: &Drops) {
    let (dropped, too_long) = (drops.total(), drops.of(DropReason::TooLong));
    if dropped > 0 && !(dropped == too_long && replay.leave_out_longest(too_long, sent)) {
        output::warn(format!(
            "--in: {} of the capture were dropped before they were sent, and which ones is unknown: the frames named as lost may be others",
            output::counted(dropped, "frame")
        ));
    }
}

/// Writes the frames with these numbers, counted from 0, as they were sent.
pub(super) fn write(mut writer: CaptureWriter, request: &Request, missing: &BTreeSet<u64>) -> Result<(), Failure> {
    let Some(replay) = replay(request) else { return Ok(()) };
    let mut source = one_round(replay)?;
    let mut frame = HeapFrame::default();
    let mut number = 0;
    while let Some(arrival) = source.arrival() {
        let time_ns = source.epoch_ns() + arrival.as_ps() / units::PS_PER_NS;
        source.take(&mut frame);
        if missing.contains(&number) {
            frame.make_whole();
            let length = frame.bytes().len() as u32;
            writer.write(time_ns, frame.bytes(), length).map_err(Failure::new)?;
        }
        number += 1;
    }
    writer.finish().map_err(Failure::new)
}

/// Converts a fingerprint for the meter.
pub(super) fn digests(found: Fingerprint) -> FrameDigests {
    let Fingerprint { whole, header, payload } = found;
    FrameDigests { whole, header, payload, ..FrameDigests::default() }
}

fn replay(request: &Request) -> Option<&Replay> {
    request.pipelines.iter().find_map(|plan| match &plan.source {
        SourcePlan::Replay(replay) => Some(replay),
        _ => None,
    })
}

/// The frames of one round of a capture, with the asked changes.
fn one_round(replay: &Replay) -> Result<ReplaySource, Failure> {
    assemble::open_replay(&Replay { times: 1, ..replay.clone() }).map_err(Failure::new)
}

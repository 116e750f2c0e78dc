use crate::device::Device;
use crate::replay::{BufferedReplay, FrameSupply};
use crate::start_gate::StartGate;
use dpdk::{LaunchTime, Mbuf};
use engine::sources::Streams;
use engine::{Line, Pipeline};
use packet::FillerKind;
use std::sync::Arc;
use units::{FrameLen, Span};

/// Configuration of a worker.
pub struct Config {
    /// The pipeline's name in reports.
    pub name: String,
    /// The source of frames.
    pub feed: Feed,
    /// Further input ports beside that of a [`Feed::Device`]. With them there is no return path.
    pub more_inputs: Vec<Device>,
    /// The output port.
    pub output: Device,
    /// Disables the return path from the output to the input.
    pub one_way: bool,
    /// How departures are timed.
    pub pacing: Pacing,
    /// The fixed gap that was asked, as a reference for measured gaps.
    pub asked_gap: Option<Span>,
    /// CPUs to run on. If empty, one thread that the kernel places. Otherwise one thread per CPU, each with a part of
    /// the pipeline ([`engine::Pipeline::parts`]); the last part carries out departures. [`Device::Line`] takes one
    /// more CPU at the end. Streams are generated on all CPUs, each with its own queue, if they have no target or each queue can
    /// take its share of the departures.
    pub cpus: Vec<usize>,
    /// Length of the windows of the rate.
    pub window: Span,
    /// When to end without a signal.
    pub duration: Option<Span>,
    /// The asked start, if any. All workers of a run share it.
    pub start: Option<Arc<StartGate>>,
    /// Frames that the stages of both directions may hold.
    pub room: u64,
    /// The interface whose traffic is diverted through the ports: the input receives what the host sends, the output
    /// receives what arrives from the link. Both ports are [`Device::Detour`].
    pub on: Option<String>,
}

impl Config {
    /// The pipelines of the queues if streams with a target are generated on all CPUs, each with its own queue: none of
    /// them waits for another one. Empty if one thread must see all frames, or the NIC times the departures.
    pub(crate) fn shares(&self, pipeline: &Pipeline<Mbuf>) -> Vec<Pipeline<Mbuf>> {
        let timed = matches!(self.pacing, Pacing::Deadline(LaunchTime::Never | LaunchTime::IfOffered));
        match &self.feed {
            Feed::Stream(streams, _) if timed && self.cpus.len() > 1 && self.output.has_queues() => {
                pipeline.shares(self.cpus.len(), streams.have_one_length()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// The CPUs of the parts of the pipeline, and the CPU of a line's far end.
    pub(crate) fn cpus_of_parts(&self) -> (Vec<usize>, Option<usize>) {
        match (&self.output, self.cpus.as_slice()) {
            (Device::Line { .. }, [parts @ .., line]) if !parts.is_empty() => (parts.to_vec(), Some(*line)),
            (_, cpus) => (cpus.to_vec(), None),
        }
    }
}

/// The source of frames.
pub enum Feed {
    /// A port.
    Device(Device),
    /// Generated streams, and the number of frames.
    Stream(Box<Streams>, Option<u64>),
    /// Frames from a supply. If the pipeline has stages, they are not taken before their time.
    Replay {
        /// Frames and their times.
        supply: Box<dyn FrameSupply>,
        /// Frames may be taken before their time, because there are no stages.
        ahead: bool,
        /// The same frames in memory, if they fit and have no times.
        whole: Option<BufferedReplay>,
    },
}

/// How departures are timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// As soon as possible, in bursts.
    AsReady,
    /// The CPU waits for each departure on the time-stamp counter. If asked and supported, frames are handed to the NIC
    /// ahead, and it sends each at its time.
    Deadline(LaunchTime),
    /// Fillers keep the line busy, so that frame lengths set the times.
    Filler {
        /// The output's line.
        line: Line,
        /// Which device discards fillers.
        kind: FillerKind,
        /// Data frames start at multiples of this many bytes.
        align: u64,
        /// The longest filler.
        longest: FrameLen,
        /// The output may run ahead of the clock, for ports that never refuse frames. Shows how fast this machine can
        /// fill a line.
        unbounded: bool,
    },
}

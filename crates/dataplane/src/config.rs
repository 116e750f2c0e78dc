use crate::device::Device;
use crate::replay::{Supply, Whole};
use dpdk::LaunchTime;
use engine::Line;
use engine::sources::Streams;
use packet::FillerKind;
use units::{FrameLen, Span};

/// What a worker is to do.
pub struct Config {
    /// The pipeline's name in reports.
    pub name: String,
    /// Where frames come from.
    pub feed: Feed,
    /// Where they leave.
    pub output: Device,
    /// Nothing is carried back from the output to the input.
    pub one_way: bool,
    /// How departures are made.
    pub pacing: Pacing,
    /// The fixed gap that was asked, to measure against.
    pub asked_gap: Option<Span>,
    /// CPUs to run on: none for wherever the kernel likes with one thread; else a thread on each, and on
    /// each thread a part of the pipeline ([`Pipeline::parts`]), the last of which makes departures. Behind
    /// those [`Device::Line`] takes one more. A stream of which nothing is asked is made on all of them,
    /// each with a queue of its own.
    pub cpus: Vec<usize>,
    /// Windows of the rate.
    pub window: Span,
    /// When to end by itself.
    pub duration: Option<Span>,
    /// Frames that the stages of both directions may have to hold.
    pub room: u64,
    /// The interface whose frames are led through the ports: the input has what the host sends, the output
    /// what arrives. They are [`Device::Detour`].
    pub on: Option<String>,
    /// Probes of the kernel follow what leaves. `net_af_packet` sends what lies in its ring as pages, in which they find
    /// no headers: frames go by calls then, whatever the pacing.
    pub probed: bool,
}

impl Config {
    /// The CPUs of the parts of the pipeline, and that of the far end of a line.
    pub(crate) fn cpus_of_parts(&self) -> (Vec<usize>, Option<usize>) {
        match (&self.output, self.cpus.as_slice()) {
            (Device::Line { .. }, [parts @ .., line]) if !parts.is_empty() => (parts.to_vec(), Some(*line)),
            (_, cpus) => (cpus.to_vec(), None),
        }
    }
}

/// Where frames come from.
pub enum Feed {
    /// A port.
    Device(Device),
    /// Streams that are made, and how many frames of them.
    Stream(Box<Streams>, Option<u64>),
    /// What a supply gives; with stages in the pipeline, not before its time.
    Replay {
        /// Frames and their times.
        supply: Box<dyn Supply>,
        /// They may be taken before their time: no stage stands between.
        ahead: bool,
        /// The same frames at once, where they fit in memory and have no times.
        whole: Option<Whole>,
    },
}

/// How departures are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// As soon as possible, in bursts.
    AsReady,
    /// The time-stamp counter is watched until each departure is due; or, where that is wanted and the
    /// NIC does it, frames are handed over ahead and the NIC lets each go at its time.
    Deadline(LaunchTime),
    /// Fillers keep the line busy, so that lengths set the times.
    Filler {
        /// The output's line.
        line: Line,
        /// Who throws fillers away.
        kind: FillerKind,
        /// Data frames start at multiples of so many bytes.
        align: u64,
        /// The longest filler.
        longest: FrameLen,
        /// The output may be run ahead of the clock: for ports that refuse nothing, to see how fast
        /// this machine can fill a line.
        unbounded: bool,
    },
}

//! A pipeline as text and as a plan.

use crate::classes::{ClassOptions, ClassPlan, ClassText};
use crate::filler::FillerSpec;
use crate::ports::PortSpec;
use crate::problem::{Origin, Text};
use crate::replay::{Replay, Speed};
use engine::schedules::Target;
use engine::sources::StreamSpec;
use engine::stages::{Limit, StageConfig};
use engine::sync::SyncSpec;
use engine::{CatchUp, Line};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use units::Span;

/// A pipeline as text, with positions.
#[derive(Clone, Debug, Default)]
pub struct PipelineText {
    /// The name in reports.
    pub name: String,
    /// Its position in a scenario. Options are located by their own names.
    pub origin: Option<Origin>,
    /// The input port.
    pub input: Option<Text>,
    /// Further inputs of the same kind.
    pub more_inputs: Vec<Text>,
    /// The streams to generate, instead of an input port.
    pub streams: Vec<Text>,
    /// Neighbours that receive streams without a destination MAC address.
    pub gateway: Vec<Text>,
    /// Number of frames of all streams, or of the capture.
    pub count: Option<u64>,
    /// Number of the first stream; numbers are unique within a run.
    pub first_stream: u16,
    /// The capture to replay, instead of an input port.
    pub replay: Option<Text>,
    /// Speed of the replay.
    pub speed: Option<Text>,
    /// Number of rounds of the replay; 0 repeats without end.
    pub times: Option<u64>,
    /// The time between two rounds.
    pub loop_gap: Option<Text>,
    /// Maximum gap of the replay; longer ones are shortened.
    pub max_gap: Option<Text>,
    /// Rewrites of its frames.
    pub rewrite: Vec<Text>,
    /// The output port.
    pub output: Option<Text>,
    /// A WAVE.
    pub rate: Option<Text>,
    /// A GAP.
    pub gap: Option<Text>,
    /// The pacer.
    pub pacer: Option<Text>,
    /// The fillers.
    pub filler: Option<Text>,
    /// The output's line rate, if the port does not report it.
    pub line_rate: Option<Text>,
    /// The policy for late departures.
    pub catch_up: Option<Text>,
    /// Stages, first to last.
    pub stages: Vec<Text>,
    /// The synchronisation of sources (`sync`).
    pub sync: Option<Text>,
    /// Delay of the schedule's start.
    pub buffer: Option<Text>,
    /// Classes with a rule, in order. The fields above belong to the class without one.
    pub classes: Vec<ClassText>,
    /// The name of the class without a rule.
    pub default_class: Option<Text>,
    /// Options of classes that are not applied yet.
    pub options: ClassOptions,
    /// Whether frames that arrive at the output are not carried back to the input.
    pub one_way: bool,
    /// Name and stages of the return path. Without it, frames are carried back unchanged.
    pub back: Option<(String, Vec<Text>)>,
}

/// A pipeline that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelinePlan {
    /// The name in reports.
    pub name: String,
    /// The source of frames.
    pub source: SourcePlan,
    /// Further inputs: captures in addition to a capture, merged by timestamp, or live ports in addition to a live
    /// port, whose frames are taken as they arrive.
    pub more_inputs: Vec<PortSpec>,
    /// The output port.
    pub output: PortSpec,
    /// The target of departures.
    pub target: Target,
    /// How departures are timed.
    pub pacer: Pacer,
    /// The fillers.
    pub filler: FillerSpec,
    /// The output's line, if it has a line rate.
    pub line: Option<Line>,
    /// The policy for late departures.
    pub catch_up: CatchUp,
    /// Stages, first to last.
    pub stages: Vec<StageConfig>,
    /// How frames of several sources are synchronised, if configured.
    pub sync: Option<SyncSpec>,
    /// Delay of the schedule's start after the first frame.
    pub buffer: Span,
    /// Classes with a rule, in order. The target above belongs to the class without one.
    pub classes: Vec<ClassPlan>,
    /// The name of the class without a rule.
    pub default_class: String,
    /// Whether frames that arrive at the output are not carried back to the input.
    pub one_way: bool,
    /// The return path, if it has stages.
    pub back: Option<BackPlan>,
}

/// The path from the output port back to the input port, if it has stages.
#[derive(Clone, Debug, PartialEq)]
pub struct BackPlan {
    /// The name in reports.
    pub name: String,
    /// Stages, first to last.
    pub stages: Vec<StageConfig>,
}

/// The source of frames.
#[derive(Clone, Debug, PartialEq)]
pub enum SourcePlan {
    /// A port.
    Port(PortSpec),
    /// Generated streams.
    Streams {
        /// The streams.
        specs: Vec<StreamSpec>,
        /// Number of the first stream.
        first: u16,
        /// Number of frames in total; limited only by the duration if `None`.
        count: Option<u64>,
        /// Neighbours for streams without a MAC address: one per IP version.
        gateway: Vec<IpAddr>,
    },
    /// A replayed capture.
    Replay(Replay),
}

/// How departures are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// Filler frames keep the line busy, so that frame lengths set the times.
    Filler,
    /// The line idles between frames. The NIC starts each frame at its time.
    LaunchTime,
    /// The CPU waits on the clock until each departure is due.
    Deadline,
    /// Launch time if the port supports it, else a deadline.
    Auto,
    /// Frames leave as soon as possible.
    Unpaced,
    /// Departures are only recorded.
    Stamps,
}

impl Pacer {
    /// The name in texts and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pacer::Filler => "filler",
            Pacer::LaunchTime => "launch-time",
            Pacer::Deadline => "deadline",
            Pacer::Auto => "auto",
            Pacer::Unpaced => "none",
            Pacer::Stamps => "stamps",
        }
    }
}

impl PipelinePlan {
    /// Whether the pipeline runs in virtual time: it has no live port.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        match &self.source {
            SourcePlan::Port(port) if *port != PortSpec::Null => port.is_virtual(),
            _ => self.output.is_virtual(),
        }
    }

    /// The captures that the pipeline reads, if any.
    pub fn captures(&self) -> impl Iterator<Item = &Path> {
        let first = match &self.source {
            SourcePlan::Port(PortSpec::Pcap(path)) | SourcePlan::Replay(Replay { path, .. }) => Some(path),
            SourcePlan::Port(_) | SourcePlan::Streams { .. } => None,
        };
        let more = self.more_inputs.iter().filter_map(|port| match port {
            PortSpec::Pcap(path) => Some(path),
            _ => None,
        });
        first.into_iter().chain(more).map(PathBuf::as_path)
    }

    /// The ports that frames come from, if any.
    pub fn input_ports(&self) -> impl Iterator<Item = &PortSpec> {
        let first = if let SourcePlan::Port(port) = &self.source { Some(port) } else { None };
        first.into_iter().chain(&self.more_inputs)
    }

    /// The `limit` stages, each with the name of its class.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &Limit)> {
        let classes = self.classes.iter().map(|class| (class.name.as_str(), &class.stages));
        let all = classes.chain([(self.default_class.as_str(), &self.stages)]);
        all.flat_map(|(name, stages)| {
            stages.iter().filter_map(move |stage| match stage {
                StageConfig::Limit(limit) => Some((name, limit)),
                _ => None,
            })
        })
    }

    /// The `limit` stages of the return path.
    pub fn limits_back(&self) -> impl Iterator<Item = &Limit> {
        let stages = self.back.iter().flat_map(|back| &back.stages);
        stages.filter_map(|stage| match stage {
            StageConfig::Limit(limit) => Some(limit),
            _ => None,
        })
    }

    /// True if no class has a target, either from a schedule or from the timing of a capture.
    #[must_use]
    pub fn asks_nothing(&self) -> bool {
        let timed = matches!(&self.source, SourcePlan::Replay(Replay { speed: Speed::Times(_), .. }));
        !timed && self.target == Target::Nothing && self.classes.iter().all(|class| class.target == Target::Nothing)
    }

    /// All stages, including those of classes and of the return path.
    pub fn all_stages(&self) -> impl Iterator<Item = &StageConfig> {
        let back = self.back.iter().flat_map(|back| &back.stages);
        self.stages.iter().chain(back).chain(self.classes.iter().flat_map(|class| &class.stages))
    }
}

impl PortSpec {
    /// The line, if the port has a line rate.
    #[must_use]
    pub fn line(&self) -> Option<Line> {
        match self {
            PortSpec::Wire(wire) => Some(Line::new(wire.rate)),
            PortSpec::Line(line) => Some(Line::new(line.rate)),
            _ => None,
        }
    }
}

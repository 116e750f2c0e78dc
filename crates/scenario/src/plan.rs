//! A pipeline, as it was written and as it can be run.

use crate::classes::{ClassOptions, ClassPlan, ClassText};
use crate::ports::{FillerSpec, PortSpec};
use crate::problem::{Origin, Text};
use crate::replay::{Replay, Speed};
use engine::schedules::Ask;
use engine::sources::StreamSpec;
use engine::stages::{Limit, StageConfig};
use engine::sync::SyncSpec;
use engine::{CatchUp, Line};
use std::net::IpAddr;
use units::Span;

/// A pipeline as it was written: texts, and where each stands.
#[derive(Clone, Debug, Default)]
pub struct PipelineText {
    /// Its name in reports.
    pub name: String,
    /// Where it stands in a scenario; options have names of their own.
    pub place: Option<Origin>,
    /// The port that frames come from.
    pub input: Option<Text>,
    /// Or the streams that are made.
    pub streams: Vec<Text>,
    /// Neighbours whose hardware addresses streams without one are sent to.
    pub gateway: Vec<Text>,
    /// How many frames of the streams together, or of the capture.
    pub count: Option<u64>,
    /// The number of the first stream; those of one run differ.
    pub first_stream: u16,
    /// Or the capture that is sent again.
    pub replay: Option<Text>,
    /// How fast.
    pub speed: Option<Text>,
    /// How often.
    pub times: Option<u64>,
    /// What is changed in its frames.
    pub rewrite: Vec<Text>,
    /// The port that frames leave by.
    pub output: Option<Text>,
    /// A WAVE.
    pub rate: Option<Text>,
    /// A GAP.
    pub gap: Option<Text>,
    /// A pacer.
    pub pacer: Option<Text>,
    /// Fillers.
    pub filler: Option<Text>,
    /// The output's line rate, where it does not tell.
    pub line_rate: Option<Text>,
    /// What becomes of late departures.
    pub catch_up: Option<Text>,
    /// Stages, first to last.
    pub stages: Vec<Text>,
    /// An order of sources.
    pub sync: Option<Text>,
    /// How long the schedule waits.
    pub buffer: Option<Text>,
    /// Classes with a rule, in order; what is said above is of the one without.
    pub classes: Vec<ClassText>,
    /// The name of the class without a rule.
    pub default_class: Option<Text>,
    /// What options say of classes, to be put in its place.
    pub options: ClassOptions,
    /// Nothing is carried back.
    pub one_way: bool,
    /// Stages that what is carried back passes, and what this is called in reports; without, it is
    /// carried back unchanged.
    pub back: Option<(String, Vec<Text>)>,
}

/// A pipeline that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelinePlan {
    /// Its name in reports.
    pub name: String,
    /// Where frames come from.
    pub source: SourcePlan,
    /// The port that frames leave by.
    pub output: PortSpec,
    /// What is asked of departures.
    pub ask: Ask,
    /// How departures are made to happen.
    pub pacer: Pacer,
    /// What fills the line.
    pub filler: FillerSpec,
    /// The output's line, if it has a line rate.
    pub line: Option<Line>,
    /// What becomes of late departures.
    pub catch_up: CatchUp,
    /// Stages, first to last.
    pub stages: Vec<StageConfig>,
    /// How frames of several sources follow each other, if that is asked.
    pub sync: Option<SyncSpec>,
    /// How long after its first frame the schedule starts.
    pub buffer: Span,
    /// Classes with a rule, in order; what is asked above is of the one without.
    pub classes: Vec<ClassPlan>,
    /// The name of the class without a rule.
    pub default_class: String,
    /// Nothing is carried back.
    pub one_way: bool,
    /// What is carried back passes stages of its own.
    pub back: Option<BackPlan>,
}

/// The way from the output port back to the input port, when it has stages.
#[derive(Clone, Debug, PartialEq)]
pub struct BackPlan {
    /// Its name in reports.
    pub name: String,
    /// Stages, first to last.
    pub stages: Vec<StageConfig>,
}

/// Where frames come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SourcePlan {
    /// A port.
    Port(PortSpec),
    /// Streams that are made.
    Streams {
        /// The streams.
        specs: Vec<StreamSpec>,
        /// The number of the first one.
        first: u16,
        /// How many frames in all; as many as the duration allows if not said.
        count: Option<u64>,
        /// Neighbours that streams without a hardware address of their own go to: one of each version of IP.
        gateway: Vec<IpAddr>,
    },
    /// A capture that is sent again.
    Replay(Replay),
}

/// How departures are made to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacer {
    /// Filler frames keep the line busy, so that lengths set the times.
    Filler,
    /// The line idles between frames, each of which starts at its time.
    LaunchTime,
    /// A clock is watched until each departure is due.
    Deadline,
    /// Launch time if the port turns out to offer it, else a deadline.
    Auto,
    /// Frames leave as soon as they can.
    Unpaced,
    /// Departures are written down, not made.
    Stamps,
}

impl Pacer {
    /// Its name in texts and reports.
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
    /// The stages that limit users, each with the name of its class.
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

    /// Nothing is asked of the departures of any class, neither by a schedule nor by a capture's timing.
    #[must_use]
    pub fn asks_nothing(&self) -> bool {
        let timed = matches!(&self.source, SourcePlan::Replay(Replay { speed: Speed::Times(_), .. }));
        !timed && self.ask == Ask::Nothing && self.classes.iter().all(|class| class.ask == Ask::Nothing)
    }

    /// All stages, those of classes and of the way back included.
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

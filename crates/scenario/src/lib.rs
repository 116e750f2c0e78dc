//! Parses pipelines from the command line and scenario files, with all grammars and diagnostics.
//!
//! Both inputs use the same types: [`PipelineText`] contains texts and their positions, and [`PipelineText::resolve`]
//! turns it into a [`PipelinePlan`]. Nothing is opened here, and all problems are collected before any is shown.

mod classes;
mod document;
mod expect;
mod experiment;
mod filler;
mod gateway;
mod keys;
mod overrides;
mod plan;
mod ports;
mod print;
mod problem;
mod reader;
mod replay;
mod resolve;
mod settings;
mod sites;
mod stream;
mod sweep;
mod targets;
mod timeline;
mod words;

pub use classes::{ClassOptions, ClassPlan, ClassText, DEFAULT_CLASS};
pub use document::{Scenario, read, read_sweep, read_with};
pub use expect::{Comparison, Expectation, Quantity};
pub use experiment::{After, CommandText, ExpectedStatus, LabPlan, ProgramPlan, Ready};
pub use filler::FillerSpec;
pub use gateway::parse_gateway;
pub use keys::KEYS;
pub use overrides::Override;
pub use plan::{BackPlan, Pacer, PipelinePlan, PipelineText, SourcePlan};
pub use ports::{Driver, LineSpec, PortSpec, WireSpec, name_before_peer};
pub use problem::{Origin, Problem, Problems, Text};
pub use replay::{Replay, Speed};
pub use settings::{Setting, SettingChange, SettingValue, Settings};
pub use sites::{ForPairs, MOST_SITES, Named, Sites, Way, host_name};
pub use stream::{STREAM_KEYS, parse_stream};
pub use sweep::{Sweep, SweepRun};
pub use targets::{parse_gap, parse_wave};
pub use timeline::TimelineChange;

//! From text to a plan: what people type on the command line or in a scenario file, every grammar
//! of it, and every diagnostic.
//!
//! Both ways of asking end in the same place: [`PipelineText`] holds texts and where each was
//! written, [`PipelineText::resolve`] makes a [`PipelinePlan`] of it. Nothing is opened here, and
//! all problems are collected before any is shown.

mod asks;
mod classes;
mod document;
mod expect;
mod gateway;
mod plan;
mod ports;
mod print;
mod problem;
mod reader;
mod replay;
mod resolve;
mod stream;
mod words;

pub use asks::{parse_gap, parse_wave};
pub use classes::{ClassOptions, ClassPlan, ClassText, DEFAULT_CLASS};
pub use document::{Scenario, read};
pub use expect::{Comparison, Expectation, Quantity, Unit};
pub use plan::{BackPlan, Pacer, PipelinePlan, PipelineText, SourcePlan};
pub use ports::{Driver, FillerSpec, LineSpec, PortSpec, WireSpec, name_before_peer};
pub use problem::{Origin, Problem, Problems, Text};
pub use replay::{Replay, Speed};
pub use stream::parse_stream;

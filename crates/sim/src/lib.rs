//! Virtual time: captures as ports, the model line, and the driver that moves frames between them.
//!
//! The clock jumps from one event to the next. Frames of a capture arrive at their timestamps. Frames that cannot leave
//! yet stay in the file, so memory does not grow with the input. The same input, plan and seed give bit-identical
//! output.

mod arrivals;
mod capture;
mod driver;
mod error;
mod merged;
mod offered;
mod output;
mod replay;
mod sink;
mod source;
mod wire;

pub use capture::{
    CaptureAnomalies, CaptureReader, CaptureWriter, Record, SkipReason, end_pipes_when, end_silent_pipes_after,
    ended_for, is_standard, open_plain,
};
pub use driver::{Limits, MANY, Observer, RunResult, run};
pub use error::SimError;
pub use merged::MergedSource;
pub use offered::{CountingSink, OfferedSource};
pub use output::{Lines, WhenFull};
pub use replay::{Pauses, ReplaySource};
pub use sink::{NullSink, PcapSink, Sink, UnreadRecords};
pub use source::{PcapSource, Source, StreamSource};
pub use wire::{FrameList, WireSink};

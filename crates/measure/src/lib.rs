//! Measures traffic: counters that must balance, statistics of gaps, rates and lateness, and the report that every
//! command ends with.
//!
//! Means, deviations, minima and maxima are exact: picoseconds are summed as integers and divided once. Quantiles are
//! exact to 0.1 % (HDR histograms with three digits).

mod arrivals;
mod buckets;
mod caveats;
mod clock_offset;
mod conformance;
mod crest_gaps;
mod delays;
mod departures;
mod effects;
mod figure_list;
pub mod figures;
mod fit;
mod frame_counters;
mod gaps;
mod held;
mod histogram;
pub mod host;
mod kinds;
mod lateness;
mod limit;
mod merge;
mod moments;
mod neighbours;
mod octaves;
mod plots;
mod programs;
mod rates;
mod replay;
mod report;
mod segments;
pub mod slices;
pub mod special;
mod steps;
mod streams;
mod timeline;

pub use arrivals::{ApartReport, ArrivalMeter, ArrivalsReport, SourceArrivals, SourceCurve};
pub use buckets::Buckets;
pub use caveats::{Caveat, CaveatKind, ClockSource, FrameSource, SharedEvent};
pub use clock_offset::{ClockExchange, ClockMeter, ClockReport, ClockStamps};
pub use conformance::ConformanceMeter;
pub use crest_gaps::{CrestGapMeter, CrestGapPlot, CrestGapReport};
pub use departures::{ClassTarget, DepartureMeter};
pub use effects::{Choice, ChoiceReport, ChoiceReports, Effect, EffectCounts, Effects, ReorderReport};
pub use figure_list::{
    Figure, Named, Unit, figures as all_figures, named, named_program, named_segment, program_figures, report_schema,
};
pub use fit::{FitMeter, FitReport, Reference};
pub use frame_counters::{DropReason, Drops, FrameCounters, Tally};
pub use gaps::GapMeter;
pub use held::{DelayError, DelayFigures, DelayReport, Held, HeldMeter};
pub use limit::{LimitReport, LimitWindow, LimitedUser, LongerFrames, PolicedTcp, UserTable, WorkerLoad};
pub use merge::{HostReportFile, NotMergeable, merge};
pub use moments::Moments;
pub use octaves::{Distributions, Octaves, OctavesReport};
pub use plots::{Bins, GapPlot, Plots, RatePlot};
pub use programs::{ProgramEnd, ProgramReport};
pub use rates::RateMeter;
pub use replay::{FrameDigests, FrameFate, ReplayMeter, ReplayReport, ReplayedFrame};
pub use report::{
    AnsweredTally, AnswersReport, AskedRate, BufferReport, ConformanceReport, Contended, DepthReport,
    ExpectationReport, Flow, Forgiven, GapError, GapReport, Hiccups, Histograms, LatenessReport, LineReport, Overlap,
    PaceReport, PipelineReport, QueueReport, RateCurve, RateReport, Refused, Report, ReturnReport, SharesWithin,
    Shortfall, Skew, SourceReport, StartReport, Unanswered,
};
pub use segments::{ChangeReport, SegmentMeter, SegmentRate, SegmentReport, SegmentTimes};
pub use slices::{EndToEnd, EndToEndMeter, Mark, PipelineSlices, SliceMeter, TOGETHER};
pub use steps::{StepPlan, StepReport};
pub use streams::{BeyondStreams, IpdvReport, Quantiles, ReceivedStream, SentStreams, StreamMeter, StreamReport};
pub use timeline::Timeline;

/// Converts picoseconds to the nanoseconds of reports.
fn ns(ps: f64) -> f64 {
    ps / units::PS_PER_NS as f64
}

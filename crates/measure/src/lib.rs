//! What happened to the traffic: counters that must add up, statistics of gaps, rates and lateness,
//! and the report that every command ends with.
//!
//! Means, deviations, least and largest values are exact: they are summed as integers of
//! picoseconds and divided once. Quantiles are exact to 0.1 % (HDR histograms of three digits).

mod books;
mod departures;
mod fit;
mod gaps;
mod lateness;
mod moments;
mod rates;
mod report;
pub mod special;

pub use books::{Books, DropReason, Tally};
pub use departures::DepartureMeter;
pub use fit::{FitMeter, FitReport, Reference};
pub use gaps::GapMeter;
pub use moments::Moments;
pub use rates::RateMeter;
pub use report::{
    DepthReport, Flow, Forgiven, GapError, GapReport, LatenessReport, LineReport, PipelineReport, RateReport, Report,
    ReturnReport, Shortfall,
};

//! The outcome of a run, before it is reported.

use crate::output::Failure;
use measure::{Caveat, ClockReport, PipelineReport};

/// The results of a run.
pub(crate) struct Outcome {
    pub(crate) reports: Vec<PipelineReport>,
    pub(crate) caveats: Vec<Caveat>,
    /// Clocks of peers.
    pub(crate) clocks: Vec<ClockReport>,
    /// The failure that ended it early; the report is valid up to there.
    pub(crate) failure: Option<Failure>,
}

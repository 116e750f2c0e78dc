//! The outcome of a run, before it is reported.

use crate::output::Failure;
use measure::{Caveat, ClockReport, PipelineReport};

/// The results of a run.
pub(crate) struct Outcome {
    pub(crate) reports: Vec<PipelineReport>,
    pub(crate) caveats: Vec<Caveat>,
    /// Comparisons with the clocks of peers.
    pub(crate) clocks: Vec<ClockReport>,
    /// The failure that ended the run early. The reports are valid up to that point.
    pub(crate) failure: Option<Failure>,
}

//! What a run gives before it is reported.

use crate::output::Failure;
use measure::{Caveat, ClockReport, PipelineReport};

/// The results so far.
pub(crate) struct Outcome {
    pub(crate) reports: Vec<PipelineReport>,
    pub(crate) caveats: Vec<Caveat>,
    /// Clocks of peers.
    pub(crate) clocks: Vec<ClockReport>,
    /// The failure that ended it early; the report is valid up to there.
    pub(crate) failure: Option<Failure>,
}

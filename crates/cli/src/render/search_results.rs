//! The results of a search, for tables, JSON and the page.

use engine::search::{Bursts, Curve, GoalResult, Outcome, Search as Machine, Trial};
use serde_json::Value;
use units::FrameRate;

/// The outcome of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// One-way delays, in the form of reports.
    pub(crate) delay: Option<Value>,
    /// Duplicates made by the device, which count as neither sent nor lost.
    pub(crate) duplicates: u64,
    /// Frames of earlier trials that arrived during this one.
    pub(crate) earlier: u64,
    /// What the ports showed, if no frame was received.
    pub(crate) seen: Option<String>,
    /// Warnings in the report of the trial.
    pub(crate) warnings: Vec<String>,
}

/// The results of a size, complete or not.
pub(crate) struct Searched {
    pub(crate) size: String,
    /// The highest load to try.
    pub(crate) most: FrameRate,
    pub(crate) machine: Machine,
    pub(crate) measured: Vec<Measured>,
    pub(crate) found: Vec<GoalResult>,
    /// The latency run at the found rate of each goal.
    pub(crate) latency: Vec<Option<(Trial, Measured)>>,
    pub(crate) curve: Option<Curve>,
    pub(crate) bursts: Option<Bursts>,
}

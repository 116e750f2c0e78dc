//! The results of a search, which tables, JSON and the page show.

use engine::search::{Bursts, Curve, GoalResult, Outcome, Search as Machine, Trial};
use serde_json::Value;
use units::FrameRate;

/// The outcome of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// One-way delays, as reports have them.
    pub(crate) delay: Option<Value>,
    /// Copies that the device made, which are neither sent nor lost.
    pub(crate) duplicates: u64,
    /// Frames of earlier trials that came during this one.
    pub(crate) earlier: u64,
    /// Observations at the ports if nothing came back.
    pub(crate) seen: Option<String>,
    /// What the trial's own report warns of.
    pub(crate) warnings: Vec<String>,
}

/// One size of a search, found or not.
pub(crate) struct Searched {
    pub(crate) size: String,
    /// The highest load to try.
    pub(crate) most: FrameRate,
    pub(crate) machine: Machine,
    pub(crate) measured: Vec<Measured>,
    pub(crate) found: Vec<GoalResult>,
    /// Of each goal: the found rate once more, for its latency.
    pub(crate) latency: Vec<Option<(Trial, Measured)>>,
    pub(crate) curve: Option<Curve>,
    pub(crate) bursts: Option<Bursts>,
}

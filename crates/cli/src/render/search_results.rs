//! The results of a search, for tables, JSON and the page.

use engine::search::{Bursts, Curve, GoalResult, Outcome, Search as Machine, Trial};
use serde_json::{Value, json};
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
    /// The part of each direction, if several carried the load at the same time.
    pub(crate) directions: Vec<DirectionResult>,
}

impl Measured {
    /// An outcome without anything else.
    pub(crate) fn of(outcome: Outcome) -> Measured {
        Measured {
            outcome,
            delay: None,
            duplicates: 0,
            earlier: 0,
            seen: None,
            warnings: Vec::new(),
            directions: Vec::new(),
        }
    }
}

/// A direction's part of a trial.
#[derive(Clone, Debug)]
pub(crate) struct DirectionResult {
    pub(crate) out: String,
    pub(crate) input: String,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// One-way delays, in the form of reports.
    pub(crate) delay: Option<Value>,
}

impl DirectionResult {
    pub(crate) fn json(&self) -> Value {
        let DirectionResult { out, input, sent, lost, delay } = self;
        json!({"out": out, "in": input, "sent": sent, "lost": lost, "delay": delay})
    }

    /// The inverse of [`json`](DirectionResult::json); `None` if it is something else.
    pub(crate) fn read(value: &Value) -> Option<DirectionResult> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let delay = Some(value["delay"].clone()).filter(|delay| !delay.is_null());
        let (sent, lost) = (value["sent"].as_u64()?, value["lost"].as_u64()?);
        Some(DirectionResult { out: text("out")?, input: text("in")?, sent, lost, delay })
    }
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

//! A run from the client's point of view: state, figures, settings, changes. These types define the JSON of the service
//! and the schemas of its OpenAPI document.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

/// A run that can be observed, and possibly changed. All functions return at once. They are called on the thread of the
/// service, never on a thread that paces departures.
pub trait ControlledRun: Send + Sync {
    /// The command that runs, as in the report.
    fn command(&self) -> &str;
    /// The state of the run.
    fn state(&self) -> RunState;
    /// The figures so far, or those of the report once the run has ended. Rates are not included; the service computes
    /// them.
    fn figures(&self) -> Figures;
    /// Warnings so far, in words.
    fn warnings(&self) -> Vec<String>;
    /// The report as JSON, once the run has ended.
    fn report(&self) -> Option<String>;
    /// Ends the run in the same way as a signal. Does not wait for the end.
    fn stop(&self);
    /// The changes that the run accepts, if any.
    fn changes(&self) -> Option<&dyn Changes>;
}

/// Changes of a run in progress.
pub trait Changes: Send + Sync {
    /// All settings, in the order of the scenario.
    fn settings(&self) -> Vec<Setting>;
    /// Checks and plans a change as a whole. The change takes effect later, between two frames.
    ///
    /// # Errors
    /// A path or value is wrong, or the run has ended. Then no part of the change is applied.
    fn change(&self, change: Change) -> Result<Accepted, Refusal>;
    /// The changes that have taken effect so far, in this order, without the first `after`.
    fn applied(&self, after: usize) -> Vec<AppliedChange>;
    /// How many changes have taken effect.
    fn applied_count(&self) -> u64;
    /// Pauses departures until [`Changes::resume`].
    ///
    /// # Errors
    /// This run cannot be paused, or has ended.
    fn pause(&self, _by: &str) -> Result<Accepted, Refusal> {
        Err(Refusal::unsupported("this run cannot be paused", "set the rate instead"))
    }
    /// Resumes departures after [`Changes::pause`].
    ///
    /// # Errors
    /// This run cannot be paused, or has ended.
    fn resume(&self, _by: &str) -> Result<Accepted, Refusal> {
        Err(Refusal::unsupported("this run cannot be paused", "set the rate instead"))
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Ports are being opened.
    #[default]
    Starting,
    /// Frames may pass.
    Running,
    /// A client has paused departures.
    Paused,
    /// It has ended, and its report is available unless it failed.
    Ended,
}

impl RunState {
    /// All states.
    pub const ALL: [RunState; 4] = [RunState::Starting, RunState::Running, RunState::Paused, RunState::Ended];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Starting => "starting",
            RunState::Running => "running",
            RunState::Paused => "paused",
            RunState::Ended => "ended",
        }
    }
}

/// The figures of a run so far. Counters run from its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// Time since the run began, in ns. For a virtual run, the time that the computation has taken.
    pub passed_ns: u64,
    /// The clock of a virtual run, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_ns: Option<u64>,
    /// One entry for each pipeline and each separate direction.
    pub pipelines: Vec<PipelineFigures>,
}

/// The figures so far of a pipeline, a direction or a return path, with the names of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PipelineFigures {
    /// The name; a return path has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Frames received.
    #[serde(rename = "in")]
    pub arrived: FrameCount,
    /// Frames of a receiver that were excluded from the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<FrameCount>,
    /// Frames made by duplication.
    #[serde(default)]
    pub copies: u64,
    /// Frames sent, without fillers.
    #[serde(rename = "out")]
    pub left: FrameCount,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Frames in the pipeline.
    #[serde(default)]
    pub held: u64,
    /// Rates since the previous figures, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rates>,
    /// The rate or gap asked of a live run now, as in scenarios, after the names of classes: `api 5Mbps, 20Mbps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Times that a departure was due and no frame was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starved: Option<u64>,
    /// Lateness of departures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Distributions of departures so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub octaves: Option<Octaves>,
    /// Frames that the kernel dropped before a receiver read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_drops: Option<u64>,
    /// The return path, if there is one.
    #[serde(rename = "return", default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub back: Option<Box<PipelineFigures>>,
}

/// Distributions by powers of two of a second: pairs of a power from -30 to 8 and the number of times up to it and above the
/// power before, and the sum of all times. Times above 2⁸ s have power 9.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Octaves {
    /// Lateness of departures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lateness: Vec<(i32, u64)>,
    /// Sum of all lateness.
    pub lateness_total_ns: u64,
    /// Difference between each inter-departure time and the asked one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gap_error: Vec<(i32, u64)>,
    /// Sum of all gap errors.
    pub gap_error_total_ns: u64,
    /// Measured delays by stages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delay: Vec<(i32, u64)>,
    /// Sum of all delays.
    pub delay_total_ns: u64,
}

/// Frames and their bytes (layer 2, with FCS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FrameCount {
    /// Number of frames.
    pub frames: u64,
    /// Bytes, with FCS.
    pub bytes: u64,
}

/// Rates in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Rate of frames received.
    #[serde(rename = "in")]
    pub arrived: FrameRate,
    /// Rate of frames sent.
    #[serde(rename = "out")]
    pub left: FrameRate,
}

/// A rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FrameRate {
    /// Frames per second.
    pub fps: f64,
    /// Bits per second (layer 2, with FCS).
    pub bps: f64,
}

/// Lateness of departures since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Lateness {
    /// The median, in ns.
    pub p50_ns: f64,
    /// The largest, in ns.
    pub max_ns: f64,
}

impl Figures {
    /// Adds the rates and gaps configured for each pipeline and its classes, according to these settings of the run.
    pub fn add_asked(&mut self, settings: &[Setting]) {
        for pipeline in &mut self.pipelines {
            let asked = settings.iter().filter_map(|setting| {
                let rest = setting.path.strip_prefix(pipeline.name.as_str())?.strip_prefix('.')?;
                let class = match rest.rsplit_once('.') {
                    None if matches!(rest, "rate" | "gap") => "",
                    // A limit has rates of users, which are not rates of the pipeline.
                    Some((class, "rate" | "gap")) if class != "limit" && !class.contains('.') => class,
                    _ => return None,
                };
                (setting.value != "off").then(|| format!("{class} {}", setting.value).trim_start().to_owned())
            });
            let asked: Vec<String> = asked.collect();
            pipeline.asked = (!asked.is_empty()).then(|| asked.join(", "));
        }
    }

    /// Computes the rates since the figures `before`.
    pub fn since(&mut self, before: &Figures) {
        let seconds = self.passed_ns.saturating_sub(before.passed_ns) as f64 / 1e9;
        for (i, pipeline) in self.pipelines.iter_mut().enumerate() {
            pipeline.since(before.pipelines.get(i), seconds);
        }
    }
}

impl PipelineFigures {
    /// Computes the rates since the figures `before`, which are `seconds` old.
    pub fn since(&mut self, before: Option<&PipelineFigures>, seconds: f64) {
        let none = PipelineFigures::default();
        let earlier = before.unwrap_or(&none);
        let rate = |now: FrameCount, then: FrameCount| FrameRate {
            fps: per_second(now.frames, then.frames, seconds),
            bps: per_second(now.bytes * 8, then.bytes * 8, seconds),
        };
        self.rate = Some(Rates { arrived: rate(self.arrived, earlier.arrived), left: rate(self.left, earlier.left) });
        if let Some(back) = &mut self.back {
            back.since(earlier.back.as_deref(), seconds);
        }
    }
}

/// Rounds to a thousandth.
fn per_second(now: u64, then: u64, seconds: f64) -> f64 {
    (now.saturating_sub(then) as f64 / seconds.max(1e-9) * 1e3).round() / 1e3
}

/// A value of a run that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Setting {
    /// Its path, such as `down.rate` or `down.api.delay`.
    pub path: String,
    /// The present value, in the notation of scenarios.
    pub value: String,
    /// The accepted values, in the notation of the help.
    pub takes: String,
}

/// A change of one or several settings, which takes effect at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// The new value of each path.
    pub set: BTreeMap<String, String>,
    /// When it takes effect, in ns since the run began; now if omitted.
    pub at_ns: Option<u64>,
    /// The client that asked, as named in the report.
    pub by: String,
}

/// A change that was checked and will take effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Accepted {
    /// The number of the change in this run, from 1 on.
    pub number: u64,
    /// When it is planned to take effect, in ns since the run began.
    pub at_ns: u64,
}

/// A change that has taken effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedChange {
    /// Its number.
    pub number: u64,
    /// The new value of each path.
    pub set: BTreeMap<String, String>,
    /// When it was asked for, in ns since the run began.
    pub asked_at_ns: u64,
    /// When it took effect, in ns since the run began.
    pub took_effect_at_ns: u64,
    /// The client that asked.
    pub by: String,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of problem, which determines the HTTP status.
    pub kind: RefusalKind,
    /// What is wrong.
    pub message: String,
    /// Where: a path, a field, a line of the scenario.
    pub at: Option<String>,
    /// How to fix it.
    pub remedy: String,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// There is no such setting.
    Unknown,
    /// The value cannot be used.
    Invalid,
    /// Not possible in this state, such as after the end.
    Conflict,
    /// Not yet: the run is starting.
    Early,
    /// This run, or this build, cannot do it.
    Unsupported,
}

impl Refusal {
    /// There is no setting with this path.
    pub fn unknown(path: &str, remedy: impl Into<String>) -> Self {
        let message = format!("there is no setting '{path}'");
        Refusal { kind: RefusalKind::Unknown, message, at: Some(path.to_owned()), remedy: remedy.into() }
    }

    /// The value of `path` cannot be used.
    pub fn invalid(path: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let at = Some(path.to_owned());
        Refusal { kind: RefusalKind::Invalid, message: message.into(), at, remedy: remedy.into() }
    }

    /// Not possible in this state of the run.
    pub fn conflict(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { kind: RefusalKind::Conflict, message: message.into(), at: None, remedy: remedy.into() }
    }

    /// Not yet: the run is starting. Clients may ask again by themselves.
    pub fn early() -> Self {
        let (message, remedy) = ("the run is starting".to_owned(), "ask again when its state is running".to_owned());
        Refusal { kind: RefusalKind::Early, message, at: None, remedy }
    }

    /// Never in this run.
    pub fn unsupported(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Refusal { kind: RefusalKind::Unsupported, message: message.into(), at: None, remedy: remedy.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        write!(f, "{}: {}", self.message, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_rates_are_those_of_the_pipeline_and_its_classes() {
        let setting = |(path, value): (&str, &str)| Setting {
            path: path.to_owned(),
            value: value.to_owned(),
            takes: String::new(),
        };
        let settings = [
            ("down.api.rate", "5Mbps"),
            ("down.api.gap", "off"),
            ("down.limit.rate", "1Mbps"),
            ("down.api.limit.rate", "1Mbps"),
            ("down.rate", "off"),
            ("down.gap", "fixed 10us"),
            ("down.delay", "5ms"),
            ("downs.rate", "7Mbps"),
            ("up.rate", "off"),
        ]
        .map(setting);
        let pipeline = |name: &str| PipelineFigures { name: name.to_owned(), ..PipelineFigures::default() };
        let mut figures = Figures { pipelines: ["down", "up"].map(pipeline).into(), ..Figures::default() };
        figures.add_asked(&settings);
        let asked: Vec<Option<&str>> = figures.pipelines.iter().map(|pipeline| pipeline.asked.as_deref()).collect();
        assert_eq!(asked, [Some("api 5Mbps, fixed 10us"), None]);
    }
}

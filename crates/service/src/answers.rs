//! Bodies of requests and responses that the service itself defines.

use crate::control::{Figures, PipelineFigures, RunState};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A run of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    /// Its number in this service.
    pub id: u64,
    /// The command that runs, as in the report.
    pub command: String,
    /// Its state.
    pub state: RunState,
    /// The exit status, once it has ended: 0 done, 1 missed an expectation, 2 failed. Absent if a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The instant asked for the first departure, in UTC; absent if the client that posted the run asked for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<String>,
    /// Why it failed, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Warnings so far, in words.
    pub warnings: Vec<String>,
    /// What the run could not resolve or did differently, as in the report; empty until it has ended.
    #[schema(value_type = Vec<Object>)]
    pub caveats: Vec<Value>,
    /// How many changes have taken effect.
    pub changes: u64,
    /// The figures so far, or those of the report.
    pub figures: Figures,
}

/// All runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RunList {
    /// The runs, in the order of their start.
    pub(crate) runs: Vec<RunView>,
}

/// All settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SettingList {
    /// The settings, in the order of the scenario.
    pub(crate) settings: Vec<crate::control::Setting>,
}

/// Changes that have taken effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChangeList {
    /// The changes, in the order in which they took effect.
    pub(crate) changes: Vec<crate::control::AppliedChange>,
}

/// New values of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeRequest {
    /// The new value of each path.
    #[schema(schema_with = some_values)]
    pub(crate) set: BTreeMap<String, String>,
    /// When the change takes effect, in ns since the run began; at once if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    pub(crate) at_ns: Option<u64>,
}

/// Reads a whole number. `1.0` is accepted, because JSON does not distinguish it from `1`.
fn whole<'de, D: Deserializer<'de>>(number: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(number)? else { return Ok(None) };
    // Floating-point numbers above this are not exact.
    let exact = |value: &f64| value.fract().abs() < f64::MIN_POSITIVE && (0.0..9_007_199_254_740_992.0).contains(value);
    let whole = number.as_i64().and_then(|number| u64::try_from(number).ok());
    let whole = whole.or_else(|| number.as_f64().filter(exact).map(|value| value as u64));
    whole.map(Some).ok_or_else(|| D::Error::custom("at_ns is not a whole number of ns since the run began"))
}

/// The schema of a non-empty map of strings.
fn some_values() -> utoipa::openapi::schema::Object {
    let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::schema::Type::String);
    utoipa::openapi::ObjectBuilder::new()
        .additional_properties(Some(text))
        .min_properties(Some(1))
        .description(Some("The new value of each path."))
        .build()
}

/// A scenario as JSON: the tables and values of a scenario file, with the same names.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct NewRun {
    /// The version of the format.
    #[schema(minimum = 1, maximum = 1)]
    pub schema: u32,
    /// The seed of all random numbers.
    pub seed: Option<u64>,
    /// The time limit, such as `10s`.
    pub duration: Option<String>,
    /// The pipelines.
    #[schema(value_type = Vec<Object>)]
    pub pipeline: Vec<Value>,
}

impl Figures {
    /// The figures of a report, whose pipelines use the same names.
    pub(crate) fn of_report(report: &Value) -> Self {
        let pipelines = report["pipelines"].as_array().into_iter().flatten();
        // Some reports, for example those of a search, have no such figures and show none. The rate is omitted, because
        // the rate in a report refers to windows.
        let read = |pipeline: &Value| {
            let mut pipeline = pipeline.clone();
            pipeline.as_object_mut()?.remove("rate");
            PipelineFigures::deserialize(pipeline).ok()
        };
        Figures { pipelines: pipelines.filter_map(read).collect(), ..Figures::default() }
    }
}

//! The runs of a service: the run of this process, or the processes that it starts.

use crate::answers::RunView;
use crate::control::{Accepted, AppliedChange, Change, Changes, ControlledRun, Refusal, RunState, Setting};
use crate::problem::Problem;
use crate::supervisor::Supervisor;
use axum::http::StatusCode;
use serde_json::Value;
use std::sync::Arc;

/// Where the runs are.
pub(crate) enum Runs {
    /// In this process. Its number is 1.
    One(Arc<dyn ControlledRun>),
    /// In separate processes.
    Many(Supervisor),
}

/// The number of the run in a service for one run.
pub(crate) const ONLY: u64 = 1;

/// The effect of a `DELETE`.
pub(crate) enum Ending {
    /// The run was asked to end.
    Asked(Box<RunView>),
    /// The run had ended and was removed.
    Forgotten,
}

impl Runs {
    /// Starts a run.
    pub(crate) async fn create(&self, scenario: &str, start_at: Option<&str>) -> Result<RunView, Problem> {
        match self {
            Runs::One(_) => Err(Problem::new(
                StatusCode::CONFLICT,
                "this service belongs to one run",
                "start netlathe serve, which takes scenarios",
            )),
            Runs::Many(runs) => runs.create(scenario, start_at).await,
        }
    }

    /// All runs.
    pub(crate) async fn list(&self) -> Vec<RunView> {
        match self {
            Runs::One(run) => vec![view(run.as_ref())],
            Runs::Many(runs) => runs.list().await,
        }
    }

    /// A run.
    pub(crate) async fn get(&self, id: u64) -> Result<RunView, Problem> {
        match self {
            Runs::One(run) => Ok(view(only(run, id)?)),
            Runs::Many(runs) => runs.get(id).await,
        }
    }

    /// The report of a run that has ended.
    pub(crate) fn report(&self, id: u64) -> Result<String, Problem> {
        match self {
            Runs::One(run) => only(run, id)?.report().ok_or_else(not_ended),
            Runs::Many(runs) => runs.report(id),
        }
    }

    /// The report, drawn as HTML. A service for one run ends with the run, so it draws none.
    pub(crate) fn page(&self, id: u64) -> Result<String, Problem> {
        match self {
            Runs::One(run) => {
                only(run, id)?;
                let remedy = "add --report DIR to the command of the run: its page is in DIR/report.html";
                Err(Problem::new(StatusCode::CONFLICT, "the service of one run has no page of its report", remedy))
            }
            Runs::Many(runs) => runs.page(id),
        }
    }

    pub(crate) async fn settings(&self, id: u64) -> Result<Vec<Setting>, Problem> {
        match self {
            Runs::One(run) => match (only(run, id)?.changes(), run.state()) {
                (Some(changes), _) => Ok(changes.settings()),
                (None, RunState::Starting) => Err(Refusal::early().into()),
                (None, _) => Ok(Vec::new()),
            },
            Runs::Many(runs) => runs.settings(id).await,
        }
    }

    pub(crate) async fn change(&self, id: u64, change: Change) -> Result<Accepted, Problem> {
        match self {
            Runs::One(run) => Ok(changeable(only(run, id)?)?.change(change)?),
            Runs::Many(runs) => runs.change(id, change).await,
        }
    }

    /// The changes that have taken effect, without the first `after`.
    pub(crate) async fn applied(&self, id: u64, after: u64) -> Result<Vec<AppliedChange>, Problem> {
        match self {
            Runs::One(run) => {
                let after = usize::try_from(after).unwrap_or(usize::MAX);
                Ok(only(run, id)?.changes().map(|changes| changes.applied(after)).unwrap_or_default())
            }
            Runs::Many(runs) => runs.applied(id, after).await,
        }
    }

    pub(crate) async fn pause(&self, id: u64, by: &str, resume: bool) -> Result<Accepted, Problem> {
        match self {
            Runs::One(run) => {
                let changes = changeable(only(run, id)?)?;
                Ok(if resume { changes.resume(by) } else { changes.pause(by) }?)
            }
            Runs::Many(runs) => runs.pause(id, resume).await,
        }
    }

    /// Ends a run, or removes one that has ended.
    pub(crate) async fn end(&self, id: u64) -> Result<Ending, Problem> {
        match self {
            Runs::One(run) => {
                let run = only(run, id)?;
                run.stop();
                Ok(Ending::Asked(Box::new(view(run))))
            }
            Runs::Many(runs) => runs.end(id).await,
        }
    }
}

/// The error for a report that is not available yet.
pub(crate) fn not_ended() -> Problem {
    Problem::new(StatusCode::CONFLICT, "the run has not ended", "wait for the event 'end', or end it by DELETE")
}

fn only(run: &Arc<dyn ControlledRun>, id: u64) -> Result<&dyn ControlledRun, Problem> {
    if id == ONLY { Ok(run.as_ref()) } else { Err(Problem::no_run(&id.to_string())) }
}

fn changeable(run: &dyn ControlledRun) -> Result<&dyn Changes, Refusal> {
    let remedy = "change what runs on live ports, while it runs; in virtual time write a timeline into the scenario";
    match run.state() {
        RunState::Ended => Err(Refusal::conflict("the run has ended", "start another one")),
        RunState::Starting if run.changes().is_none() => Err(Refusal::early()),
        _ => run.changes().ok_or_else(|| Refusal::unsupported("nothing in this run can be changed", remedy)),
    }
}

fn view(run: &dyn ControlledRun) -> RunView {
    let report = run.report().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    RunView {
        id: ONLY,
        command: run.command().to_owned(),
        state: run.state(),
        status: None,
        start_at: None,
        failure: None,
        warnings: run.warnings(),
        caveats: report.and_then(|report| report["caveats"].as_array().cloned()).unwrap_or_default(),
        changes: run.changes().map_or(0, Changes::applied_count),
        figures: run.figures(),
    }
}

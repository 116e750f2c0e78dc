//! Carries out the runs of a sweep one after the other. Each run has its own process, so no state carries over.

use crate::output::{self, Failure};
use crate::plan::sweep::{MARK, SweepPlan};
use crate::render::report_printer;
use crate::render::results::{ResultTables, RunResult};
use crate::render::sweep_text;
use crate::run::netlathe_process;
use crate::run::stop::Stop;
use measure::Report;
use serde_json::{Value, json};
use std::env;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::AtomicBool;

/// Carries out all runs and reports them together.
pub(crate) fn run(plan: &SweepPlan) -> Result<ExitCode, Failure> {
    let tables = ResultTables::open(&plan.results)?;
    let stop = Stop::on_signals()?;
    let mut results = Vec::new();
    let mut status = 0;
    for (number, values) in plan.runs.iter().enumerate() {
        if stop.asked() {
            output::warn(format!("ended after {number} of {} runs", plan.runs.len()));
            break;
        }
        let words = sweep_text::values(values);
        if plan.tells {
            output::note(format!("run {} of {}: {words}", number + 1, plan.runs.len()));
        }
        let cannot = |cause: std::io::Error| Failure::new(format!("cannot run netlathe: {cause}"));
        let mut command = netlathe_process::command().map_err(cannot)?;
        command.args(env::args_os().skip(1)).env(MARK, (number + 1).to_string()).stdin(Stdio::null());
        let finished =
            netlathe_process::output(&mut command, (&stop, &AtomicBool::new(false)), |_| output::say("armed"))
                .map_err(cannot)?;
        let messages = String::from_utf8_lossy(&finished.stderr);
        let lines = messages.lines().map(|line| line.trim_start_matches("netlathe: "));
        for line in lines.clone() {
            output::say(format_args!("{words}: {line}"));
        }
        let ended = finished.status.code().unwrap_or(i32::from(Failure::STATUS));
        status = status.max(ended);
        let is_failure = ended > i32::from(Failure::MISSED);
        let failure = is_failure.then(|| {
            let lines = lines.filter(|line| !line.starts_with("note: ") && !line.starts_with("expected "));
            lines.collect::<Vec<_>>().join("; ")
        });
        let report = serde_json::from_slice(&finished.stdout).unwrap_or(Value::Null);
        results.push(RunResult { name: format!("{} [{words}]", plan.title), values: values.clone(), report, failure });
    }
    let printed = match plan.json {
        true => {
            let runs: Vec<Value> = results.iter().map(as_json).collect();
            let report = json!({ "schema": Report::SCHEMA, "command": "run", "runs": runs });
            report_printer::print(&(report.to_string() + "\n"))
        }
        false if plan.quiet => Ok(()),
        false => report_printer::print(&sweep_text::table(&results)),
    };
    output::all([printed, tables.finish(&results)])?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(Failure::STATUS)))
}

/// Returns the JSON object of a run: its values, its report and its failure.
fn as_json(run: &RunResult) -> Value {
    let values: serde_json::Map<String, Value> =
        run.values.iter().map(|(path, value)| (path.clone(), json!(value))).collect();
    let mut json = json!({ "values": values, "report": run.report });
    if let Some(failure) = &run.failure {
        json["failure"] = json!(failure);
    }
    json
}

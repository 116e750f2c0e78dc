use crate::options::ctl::{Action, Ctl};
use crate::output::{self, Failure};
use serde::Deserialize;
use serde_json::{Value, json};
use service::control::{Accepted, Figures, FrameCount, PipelineFigures, RunState, Setting};
use service::{Client, ClientError, RunView};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

#[derive(Deserialize)]
struct RunList {
    runs: Vec<RunView>,
}

#[derive(Deserialize)]
struct SettingList {
    settings: Vec<Setting>,
}

#[derive(Deserialize)]
struct Progress {
    run: u64,
    figures: Figures,
}

impl Ctl {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let socket = self.socket.path();
        let client = connect(&socket)?;
        let failed = |error: ClientError| failure(&socket, &error);
        if let Action::Watch = self.action {
            return watch(&client, self.run, self.json).map_err(failed);
        }
        if let Action::Start { scenario, start_at } = &self.action {
            if self.run.is_some() {
                return Err(Failure::new("--run: the service numbers its new run: leave it out"));
            }
            let text = fs::read_to_string(scenario).map_err(|cause| {
                Failure::new(format!("{}: {cause}: name the file of a scenario", scenario.display()))
            })?;
            let started = client.start(&text, start_at.as_deref()).map_err(failed)?;
            let answer = if self.json { started + "\n" } else { started_text(&started)? };
            output::print(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let runs = client.get::<RunList>("/v1/runs").map_err(failed)?.runs;
        let run = self.choose(runs)?;
        let path = |rest: &str| format!("/v1/runs/{}{rest}", run.id);
        let answer = match &self.action {
            Action::Show { paths } => {
                let settings: SettingList = client.get(&path("/settings")).map_err(failed)?;
                if *paths {
                    settings.settings.into_iter().map(|setting| setting.path + "\n").collect()
                } else if self.json {
                    json!({ "run": run, "settings": settings.settings }).to_string() + "\n"
                } else {
                    shown(&run, &settings.settings)
                }
            }
            Action::Set { path: setting, value, at } => {
                let at_ns = at.map(|at| at.as_ps() / 1_000);
                let mut body = json!({ "set": { (setting): value } });
                if let Some(at_ns) = at_ns {
                    body["at_ns"] = at_ns.into();
                }
                self.accepted(&client.text("PATCH", &path("/settings"), Some(&body.to_string())).map_err(failed)?)?
            }
            Action::Pause => self.accepted(&client.text("POST", &path("/pause"), None).map_err(failed)?)?,
            Action::Resume => self.accepted(&client.text("POST", &path("/resume"), None).map_err(failed)?)?,
            Action::Stop => {
                if run.state == RunState::Ended {
                    return Err(Failure::new(format!("run {} has ended already", run.id)));
                }
                let text = client.text("DELETE", &path(""), None).map_err(failed)?;
                if self.json { text + "\n" } else { format!("run {} was asked to end\n", run.id) }
            }
            Action::Watch | Action::Start { .. } => unreachable!("they are done above"),
        };
        output::print(&answer)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Chooses the run to act on: the run with the given number, else the only run that has not ended, else the only
    /// run.
    fn choose(&self, runs: Vec<RunView>) -> Result<RunView, Failure> {
        let there = runs.iter().map(|run| run.id.to_string()).collect::<Vec<_>>().join(", ");
        if let Some(id) = self.run {
            let found = runs.into_iter().find(|run| run.id == id);
            return found.ok_or_else(|| Failure::new(format!("--run {id}: there is no such run; there are: {there}")));
        }
        let (mut ended, mut going): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.state == RunState::Ended);
        match (going.len(), ended.len()) {
            (1, _) => Ok(going.remove(0)),
            (0, 1) => Ok(ended.remove(0)),
            (0, 0) => Err(Failure::new("the service has no run: start one by netlathe ctl start SCENARIO")),
            _ => Err(Failure::new(format!("there are several runs: name one of them by --run: {there}"))),
        }
    }

    fn accepted(&self, text: &str) -> Result<String, Failure> {
        if self.json {
            return Ok(text.to_owned() + "\n");
        }
        let accepted: Accepted = serde_json::from_str(text).map_err(Failure::new)?;
        Ok(format!("change {} takes effect at {}\n", accepted.number, output::brief(accepted.at_ns as f64)))
    }
}

/// A client of the service on a socket.
pub(super) fn connect(socket: &Path) -> Result<Client, Failure> {
    Client::new(socket).map_err(|cause| failure(socket, &ClientError::Io(cause)))
}

/// The text of an error for users.
pub(super) fn failure(socket: &Path, error: &ClientError) -> Failure {
    match error {
        ClientError::Io(cause) => Failure::new(format!(
            "{}: {cause}: use --socket to name the socket of an active run (--control) or of netlathe serve",
            socket.display()
        )),
        ClientError::Refused(..) => Failure::new(error),
    }
}

/// The text about a run that was started.
fn started_text(json: &str) -> Result<String, Failure> {
    let run: RunView = serde_json::from_str(json).map_err(Failure::new)?;
    let at = run.start_at.map_or_else(String::new, |at| format!(", its first departure is at {at}"));
    Ok(format!("run {} was started{at}\n", run.id))
}

/// A run, on several lines.
fn shown(run: &RunView, settings: &[Setting]) -> String {
    let mut text = format!("run {}: {}, {}", run.id, run.command, run.state.name());
    if let Some(status) = run.status {
        // Writing to a string cannot fail.
        let _ = write!(text, " with status {status}");
    }
    let passed = output::brief(run.figures.passed_ns as f64);
    match run.figures.virtual_ns {
        Some(ns) => text.push_str(&format!(", {} of virtual time in {passed}\n", output::brief(ns as f64))),
        None => text.push_str(&format!(", {passed}\n")),
    }
    if let Some(at) = &run.start_at {
        text.push_str(&format!("  first departure asked at {at}\n"));
    }
    for pipeline in &run.figures.pipelines {
        text.push_str(&line(pipeline));
    }
    for setting in settings {
        text.push_str(&format!("  {} = {}   ({})\n", setting.path, setting.value, setting.takes));
    }
    for warning in &run.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    if let Some(failure) = &run.failure {
        text.push_str(&format!("  failed: {failure}\n"));
    }
    text
}

/// A pipeline, on one line.
fn line(pipeline: &PipelineFigures) -> String {
    let count = |count: &FrameCount| output::thousands(count.frames);
    let dropped: u64 = pipeline.drops.values().sum();
    let (arrived, left) = (count(&pipeline.arrived), count(&pipeline.left));
    let (dropped, held) = (output::thousands(dropped), output::thousands(pipeline.held));
    let rate =
        pipeline.rate.map(|rate| format!(", {}", output::bits(output::digits(rate.left.bps, 4)))).unwrap_or_default();
    format!("  {}: {arrived} in, {left} out, {dropped} dropped, {held} held{rate}\n", pipeline.name)
}

/// Prints events until the watched run, or the service, ends.
fn watch(client: &Client, only: Option<u64>, as_json: bool) -> Result<ExitCode, ClientError> {
    client.events(|kind, data| {
        let value: Value = serde_json::from_str(data).unwrap_or_default();
        let run = value["run"].as_u64().or(value["id"].as_u64());
        if only.is_some() && run.is_some() && run != only {
            return true;
        }
        let text = match (as_json, kind) {
            (true, _) => json!({ "event": kind, "data": value }).to_string() + "\n",
            (false, "progress") => serde_json::from_value::<Progress>(value).map_or_else(
                |_| String::new(),
                |progress| {
                    let passed = output::brief(progress.figures.passed_ns as f64);
                    let lines: String = progress.figures.pipelines.iter().map(line).collect();
                    format!("run {}, {passed}\n{lines}", progress.run)
                },
            ),
            (false, "state" | "end") => {
                serde_json::from_value::<RunView>(value).map_or_else(|_| String::new(), |view| shown(&view, &[]))
            }
            (false, "change") => {
                let change = &value["change"];
                let at = output::brief(change["took_effect_at_ns"].as_f64().unwrap_or_default());
                let set = change["set"].as_object().into_iter().flatten();
                let set: Vec<String> =
                    set.map(|(path, value)| format!("{path} = {}", value.as_str().unwrap_or_default())).collect();
                let by = change["by"].as_str().unwrap_or_default();
                format!("run {}: at {at}: {}, by {by}\n", run.unwrap_or_default(), set.join(", "))
            }
            (false, _) => format!("{} events were skipped, since they were read too slowly\n", value["events"]),
        };
        // Ends when stdout is closed, or when the watched run ends.
        let is_read = output::is_read(&text).unwrap_or(false);
        is_read && !(kind == "end" && only.is_some())
    })?;
    Ok(ExitCode::SUCCESS)
}

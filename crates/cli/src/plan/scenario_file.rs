use super::files::{OnDisk, RecordedFiles, read_text};
use super::ready_gate::ReadyGate;
use super::request::{Beside, Request, SliceListener};
use crate::options::check::Check;
use crate::options::common::Common;
use crate::options::run::Run;
use crate::output::Failure;
use engine::schedules::Files;
use scenario::{Override, Scenario};
use std::path::Path;

impl Run {
    /// What will run.
    pub(crate) fn plan(self) -> Result<Request, Failure> {
        let files = RecordedFiles::default();
        let scenario = read_scenario(&self.file, &files, &self.set)?;
        let mut read = files.into_paths();
        let title = self.file.display().to_string();
        read.push(self.file);
        let common = Common {
            duration: self.common.duration.or(scenario.duration),
            seed: self.common.seed.or(scenario.seed),
            ..self.common
        };
        Ok(Request {
            command: "run",
            pipelines: scenario.pipelines,
            expectations: scenario.expectations,
            timeline: scenario.timeline,
            read,
            decisions: None,
            by_user: None,
            on: None,
            receiver: None,
            listener: SliceListener::default(),
            beside: Beside { lab: scenario.lab, programs: scenario.programs, until: scenario.until },
            gate: ReadyGate::default(),
            title,
            results: self.results,
            common,
        })
    }
}

impl Check {
    /// The scenario, if it has no problem.
    pub(crate) fn plan(self) -> Result<Scenario, Failure> {
        read_scenario(&self.file, &OnDisk, &self.set)
    }
}

/// Reads a scenario file with other values, and the tables that it names out of `files`.
fn read_scenario(file: &Path, files: &dyn Files, set: &[Override]) -> Result<Scenario, Failure> {
    let name = file.display();
    let source = read_text(file).map_err(|cause| {
        let remedy = match cause.kind() {
            std::io::ErrorKind::InvalidData => "write it to a file in UTF-8, as TOML is",
            _ => "check the path and its permissions",
        };
        Failure::new(format!("cannot read {name}: {cause}: {remedy}"))
    })?;
    scenario::read_with(&name.to_string(), &source, Some(files), set).map_err(Failure::new)
}

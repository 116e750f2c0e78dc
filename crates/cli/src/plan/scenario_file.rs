use super::Plan;
use super::files::{OnDisk, RecordedFiles, read_scenario_text};
use super::ready_gate::ReadyGate;
use super::request::{Beside, Request, SliceListener};
use super::sweep::{self, SweepPlan};
use crate::options::check::Check;
use crate::options::common::{Common, ResultFiles};
use crate::options::run::Run;
use crate::output::Failure;
use engine::schedules::Files;
use scenario::{Override, Scenario, SweepRun};
use std::path::Path;

impl Run {
    /// The plan of `run`.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let files = RecordedFiles::default();
        let mut scenario = read_scenario(&self.file, &files, &self.set)?;
        let mut common = self.common;
        let mut results = self.results;
        if scenario.sweep.is_some() {
            if !self.file.is_file() {
                return Err(Failure::new(format!(
                    "{}: each run of a sweep reads the scenario: give it as a regular file",
                    self.file.display()
                )));
            }
            let mut runs = read_runs(&self.file, &files, &self.set)?;
            let Some(number) = sweep::own_run().filter(|number| *number < runs.len()) else {
                let title = self.file.display().to_string();
                return SweepPlan::new(title, &runs, &common, results).map(Plan::Sweep);
            };
            scenario = runs.swap_remove(number).scenario;
            common = sweep::options_of_run(common, number);
            results = ResultFiles::default();
        }
        let (mut read, of_files) = files.into_parts();
        let title = self.file.display().to_string();
        read.push(self.file);
        let common =
            Common { duration: common.duration.or(scenario.duration), seed: common.seed.or(scenario.seed), ..common };
        Ok(Plan::Pipelines(Box::new(Request {
            command: "run",
            pipelines: scenario.pipelines,
            expectations: scenario.expectations,
            timeline: scenario.timeline,
            read,
            of_files,
            decisions: None,
            by_user: None,
            on: None,
            receiver: None,
            listener: SliceListener::default(),
            beside: Beside { lab: scenario.lab, programs: scenario.programs, until: scenario.until },
            gate: ReadyGate::default(),
            title,
            results,
            common,
        })))
    }
}

impl Check {
    /// Reads the scenario and checks it.
    pub(crate) fn plan(self) -> Result<Scenario, Failure> {
        read_scenario(&self.file, &OnDisk, &self.set)
    }
}

/// Reads the runs of a scenario file's sweep. Empty without a sweep.
fn read_runs(file: &Path, files: &dyn Files, set: &[Override]) -> Result<Vec<SweepRun>, Failure> {
    let source = source_of(file)?;
    let runs = scenario::read_sweep(&file.display().to_string(), &source, Some(files), set).map_err(Failure::new)?;
    Ok(runs.unwrap_or_default())
}

/// Reads a scenario file and replaces the values in `set`. Tables that it names are read from `files`.
fn read_scenario(file: &Path, files: &dyn Files, set: &[Override]) -> Result<Scenario, Failure> {
    let source = source_of(file)?;
    scenario::read_with(&file.display().to_string(), &source, Some(files), set).map_err(Failure::new)
}

/// Reads the text of a scenario file.
fn source_of(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    read_scenario_text(file).map_err(|cause| {
        let remedy = match cause.kind() {
            std::io::ErrorKind::InvalidData => "write it to a file in UTF-8, as TOML is",
            std::io::ErrorKind::OutOfMemory => "write a shorter scenario, or give the program more memory",
            _ => "check the path and its permissions",
        };
        Failure::new(format!("cannot read {name}: {cause}: {remedy}"))
    })
}

use crate::output::Failure;
use engine::schedules::Files;
use scenario::Scenario;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check a scenario and print what it means
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe check scenarios/even-gaps.toml

No port is opened and nothing is sent; tables and steps that the scenario names are read. All problems
are shown together, each with its line and column; a good scenario is printed as it was understood: its
long form, which means the same.")]
pub(crate) struct Check {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    file: PathBuf,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let scenario = read_scenario(&self.file, &crate::files::OnDisk)?;
        for plan in &scenario.pipelines {
            for line in plan.all_stages().flat_map(|stage| [stage.notes(), stage.elsewhere()].concat()) {
                crate::output::note(format!("{}: {line}", plan.name));
            }
        }
        crate::output::print(&scenario.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a scenario file, and the tables that it names out of `files`.
pub(super) fn read_scenario(file: &Path, files: &dyn Files) -> Result<Scenario, Failure> {
    let name = file.display();
    let source = std::fs::read_to_string(file)
        .map_err(|cause| Failure::new(format!("cannot read {name}: {cause}: check the path and its permissions")))?;
    let mut scenario = scenario::read(&name.to_string(), &source).map_err(Failure::new)?;
    let mut problems = Vec::new();
    for pipeline in &mut scenario.pipelines {
        if let Err(error) = pipeline.load(files) {
            problems.push(format!("{name}: {}: {error}", pipeline.name));
        }
    }
    if problems.is_empty() { Ok(scenario) } else { Err(Failure::new(problems.join("\n"))) }
}

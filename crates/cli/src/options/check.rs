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

Opens no port and sends nothing, but reads the files that the scenario names. Prints all problems
together, each with its line and column. A scenario without problems is printed in its long form, which
means the same.")]
pub(crate) struct Check {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) file: PathBuf,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let scenario = read_scenario(&self.file, &crate::plan::files::OnDisk)?;
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
    let source = crate::plan::files::read_text(file).map_err(|cause| {
        let remedy = match cause.kind() {
            std::io::ErrorKind::InvalidData => "write it to a file in UTF-8, as TOML is",
            _ => "check the path and its permissions",
        };
        Failure::new(format!("cannot read {name}: {cause}: {remedy}"))
    })?;
    scenario::read(&name.to_string(), &source, Some(files)).map_err(Failure::new)
}

use crate::output::{self, Failure};
use scenario::Scenario;
use std::process::ExitCode;

/// Prints the scenario in its full form.
pub(crate) fn run(scenario: &Scenario) -> Result<ExitCode, Failure> {
    for plan in &scenario.pipelines {
        for line in plan.all_stages().flat_map(|stage| [stage.notes(), stage.elsewhere()].concat()) {
            output::note(format!("{}: {line}", plan.name));
        }
    }
    for of_slices in scenario.expectations.iter().filter(|expectation| expectation.needs_slices()) {
        output::note(format!("'{}': the run has that figure only with --slices", of_slices.text));
    }
    output::print(&scenario.to_string())?;
    Ok(ExitCode::SUCCESS)
}

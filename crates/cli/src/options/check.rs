use std::path::PathBuf;

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

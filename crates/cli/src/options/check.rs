use super::values::parse_override;
use scenario::Override;
use std::path::PathBuf;

/// Check a scenario and print what it means
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe check scenarios/even-gaps.toml
  netlathe check scenarios/even-gaps.toml --set even.gap=20us

Opens no port and sends nothing, but reads the files that the scenario names. Prints all problems
together, each with its line and column. A scenario without problems is printed in its long form, which
means the same.")]
pub(crate) struct Check {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) file: PathBuf,
    /// Replace a value of the scenario, such as down.rate=5Gbps; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_override, allow_hyphen_values = true)]
    pub(crate) set: Vec<Override>,
}

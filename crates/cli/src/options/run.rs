use super::common::{Common, ResultFiles};
use super::values::parse_override;
use scenario::Override;
use std::path::PathBuf;

/// Run a scenario file
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe run scenarios/even-gaps.toml
  netlathe run scenarios/even-gaps.toml --set even.gap=20us --set seed=3
  netlathe run scenarios/weak-network.toml --junit results.xml --csv figures.csv

The file's seed and duration are used unless --seed or --duration says otherwise. --set replaces a value of
the file: NAME.KEY of a pipeline, NAME.CLASS.KEY of a class, NAME.STAGE for the parameters of a stage.
netlathe help keys lists the keys. The exit status is 1 when an [[expect]] is missed.")]
pub(crate) struct Run {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) file: PathBuf,
    /// Replace a value of the scenario, such as down.rate=5Gbps; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_override, allow_hyphen_values = true)]
    pub(crate) set: Vec<Override>,
    #[command(flatten)]
    pub(crate) results: ResultFiles,
    #[command(flatten)]
    pub(crate) common: Common,
}

use super::common::Common;
use std::path::PathBuf;

/// Run a scenario file
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe run scenarios/even-gaps.toml

The file's seed and duration are used unless --seed or --duration says otherwise. The exit status is
1 when an [[expect]] is missed.")]
pub(crate) struct Run {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) common: Common,
}

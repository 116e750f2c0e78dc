use super::Common;
use super::check::read_scenario;
use crate::output::Failure;
use crate::plan::files::Listed;
use crate::run::pipelines::{self, Request};
use std::path::PathBuf;
use std::process::ExitCode;

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

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let files = Listed::default();
        let scenario = read_scenario(&self.file, &files)?;
        let mut read = files.into_paths();
        read.push(self.file);
        let common = Common {
            duration: self.common.duration.or(scenario.duration),
            seed: self.common.seed.or(scenario.seed),
            ..self.common
        };
        pipelines::run(&Request {
            command: "run",
            pipelines: scenario.pipelines,
            expectations: scenario.expectations,
            read,
            decisions: None,
            by_user: None,
            on: None,
            common,
        })
    }
}

use super::Common;
use super::check::read_scenario;
use crate::execute::{self, Request};
use crate::output::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a scenario file
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe run scenarios/even-gaps.toml

The file's seed and duration are used unless --seed or --duration says otherwise. The exit status is
1 when something in [[expect]] is missed.")]
pub(crate) struct Run {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    file: PathBuf,
    /// Seed of all random numbers, instead of the file's
    #[arg(long = "seed", value_name = "N")]
    other_seed: Option<u64>,
    #[command(flatten)]
    common: CommonWithoutSeed,
}

/// As [`Common`], but for the seed, whose default is the file's.
#[derive(clap::Args)]
struct CommonWithoutSeed {
    /// End after this time instead of the file's
    #[arg(long, value_name = "TIME", value_parser = super::parse::<units::Span>)]
    duration: Option<units::Span>,
    /// Length of the windows in which rates are measured
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = super::parse_window)]
    window: units::Span,
    /// Print the report as one JSON object, and nothing else, on stdout
    #[arg(long)]
    json: bool,
    /// Show progress on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    progress: String,
    /// Say more: what was chosen and why, and what DPDK says
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print no report for people
    #[arg(short, long)]
    quiet: bool,
}

impl Run {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let scenario = read_scenario(&self.file)?;
        let common = Common {
            duration: self.common.duration.or(scenario.duration),
            seed: self.other_seed.or(scenario.seed).unwrap_or(1),
            window: self.common.window,
            json: self.common.json,
            progress: self.common.progress,
            verbose: self.common.verbose,
            quiet: self.common.quiet,
        };
        execute::run(Request {
            command: "run",
            pipelines: scenario.pipelines,
            expectations: scenario.expectations,
            common,
        })
    }
}

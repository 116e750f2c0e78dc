//! What can be typed: commands and their options, and how each is parsed. One file per command, one line in the list below.

use crate::output::Failure;
use crate::render::page_folder::PageFolder;
use clap::Subcommand;
use scenario::{ClassOptions, PipelineText, Text};
use std::process::ExitCode;

pub(crate) mod check;
mod emulate;
mod generate;
mod limit;
mod run;
mod shape;
#[cfg(any(feature = "live", feature = "slice"))]
pub(crate) mod trailing_command;
pub(crate) mod usage_errors;

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    Shape(shape::Shape),
    Emulate(emulate::Emulate),
    Gen(generate::Generate),
    Limit(limit::Limit),
    Measure(crate::run::measure::Measure),
    Search(crate::run::search::Search),
    Run(run::Run),
    Check(check::Check),
    #[cfg(feature = "slice")]
    Slice(crate::run::slice::Slice),
    #[cfg(feature = "live")]
    Lab(crate::run::lab::Lab),
    Disk(crate::run::disk::Disk),
    Doctor(crate::run::doctor::Doctor),
    Manual(crate::run::manual::Manual),
    Help(crate::run::help::Help),
}

impl Command {
    /// Runs the command; the status says whether all expectations were met.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Shape(command) => command.run(),
            Command::Emulate(command) => command.run(),
            Command::Gen(command) => command.run(),
            Command::Limit(command) => command.run(),
            Command::Measure(command) => command.run(),
            Command::Search(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Check(command) => command.run(),
            #[cfg(feature = "slice")]
            Command::Slice(command) => command.run(),
            #[cfg(feature = "live")]
            Command::Lab(command) => command.run(),
            Command::Disk(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Manual(command) => command.run(),
            Command::Help(command) => command.run(),
        }
    }
}

impl Command {
    /// The options of a command that moves frames through a pipeline.
    #[cfg(feature = "slice")]
    pub(crate) fn common_mut(&mut self) -> Option<&mut Common> {
        match self {
            Command::Shape(command) => Some(&mut command.common),
            Command::Emulate(command) => Some(&mut command.common),
            Command::Gen(command) => Some(&mut command.common),
            Command::Limit(command) => Some(&mut command.common),
            Command::Run(command) => Some(&mut command.common),
            _ => None,
        }
    }
}

/// Options that every command which moves frames has.
#[derive(clap::Args, Clone)]
pub(crate) struct Common {
    /// End after this time (virtual time in virtual runs), such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse::<units::Span>, allow_hyphen_values = true)]
    pub(crate) duration: Option<units::Span>,
    /// Seed of all random numbers [default: the scenario's, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Length of the windows in which rates are measured
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_window)]
    pub(crate) window: units::Span,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as an HTML page, DIR/report.html, with its data in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    pub(crate) folder: Option<std::path::PathBuf>,
    /// Show progress on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    pub(crate) progress: String,
    /// Write the progress of a live run to FILE as JSON lines, one per --stats-every; FILE may be a named pipe
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<std::path::PathBuf>,
    /// How often --stats writes a line
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "stats", value_parser = parse_every, allow_hyphen_values = true)]
    pub(crate) stats_every: units::Span,
    /// CPUs for live pipelines, as 2,3 or 2-5. One CPU per pipeline pins it; two, three or four per pipeline
    /// split it into receiving, classes, stages and departures; departures run on the last CPU
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// Trace one frame in N through the stages and report where its time went [default without a value: 1/64]
    #[arg(long, value_name = "1/N", num_args = 0..=1, default_missing_value = "1/64", value_parser = parse_sampling)]
    pub(crate) slices: Option<Every>,
    /// Use interfaces that carry this host's own traffic, and cut that traffic off
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Trace listeners for the followed frames.
    #[arg(skip)]
    pub(crate) listener: SliceListener,
    /// Print more: choices and their reasons, and the log of DPDK
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Common {
    /// The folder of the page, if one is wanted; it can be written.
    pub(crate) fn page_folder(&self) -> Result<Option<PageFolder>, Failure> {
        self.folder.as_deref().map(PageFolder::open).transpose()
    }

    /// What is written into that folder at the end.
    pub(crate) fn report_files(&self) -> Vec<std::path::PathBuf> {
        self.folder.iter().flat_map(|folder| crate::render::page_folder::FILES.map(|file| folder.join(file))).collect()
    }
}

/// Why `--stats` does not work for captures.
pub(crate) const NO_STATS: &str = "--stats: it is only for live ports, since captures are processed as fast as they can be read: leave it out; the report \
                                   has all figures";

/// Options of departures.
#[derive(clap::Args)]
pub(crate) struct Departures {
    /// Target rate: 5Gbps, '5Gbps wire', 1.2Mpps, 50%, 'burst 8Gbps for 2ms every 10ms',
    /// 'ramp 1Gbps..9Gbps over 1s repeat', 'sine 1Gbps..9Gbps every 1s', 'steps FILE', 'trace FILE',
    /// 'follow-depth 1Gbps..9Gbps'
    #[arg(long = "rate", value_name = "[CLASS=]WAVE", allow_hyphen_values = true)]
    pub(crate) rates: Vec<String>,
    /// Target inter-departure time: 10us, 'fixed 10us', or a law: 'chi2 df 6 in 80us..120us',
    /// 'normal mean 100us sd 5us', 'exp mean 10us corr 50%', 'table FILE'
    #[arg(long = "gap", value_name = "[CLASS=]GAP", allow_hyphen_values = true)]
    pub(crate) gaps: Vec<String>,
    /// How departures are made: auto, filler, launch-time, deadline, none
    #[arg(long, default_value = "auto")]
    pub(crate) pacer: String,
    /// Filler frames: self, mac-control, blackhole=MAC; then ,align=4 or ,align=8, and ,longest=9018B where jumbo frames may pass
    #[arg(long)]
    pub(crate) filler: Option<String>,
    /// Late departures: catch up all, none, or at most N back to back
    #[arg(long, value_name = "all|none|N", default_value = "all", allow_hyphen_values = true)]
    pub(crate) catch_up: String,
    /// Line rate of a live output that does not report it, as 10G: the base of fillers and of 50%. It is not
    /// checked; with fillers the report shows planned figures, not measured ones
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) line_rate: Option<String>,
}

impl Departures {
    /// A pipeline with these options only.
    fn pipeline(self, name: &str) -> PipelineText {
        PipelineText {
            name: name.to_owned(),
            options: ClassOptions { rates: self.rates, gaps: self.gaps, ..ClassOptions::default() },
            pacer: Some(Text::option("--pacer", self.pacer)),
            filler: self.filler.map(|filler| Text::option("--filler", filler)),
            catch_up: Some(Text::option("--catch-up", self.catch_up)),
            line_rate: self.line_rate.map(|rate| Text::option("--line-rate", rate)),
            ..PipelineText::default()
        }
    }
}

/// Reads a value whose text form knows its own errors.
pub(crate) fn parse<T: std::str::FromStr<Err = units::ParseError>>(text: &str) -> Result<T, units::ParseError> {
    text.parse()
}

/// Reads how many frames.
pub(crate) fn parse_count(text: &str) -> Result<u64, units::ParseError> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| units::ParseError::new(format!("'{text}' is no count"), "write a whole number from 1"))
}

/// CPUs by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

fn parse_cores(text: &str) -> Result<Cores, units::ParseError> {
    let bad = |part: &str| {
        units::ParseError::new(format!("'{part}' names no CPUs"), "write numbers and ranges such as 2,3 or 2-5")
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            first.parse().ok().zip(last.parse().ok()).filter(|(a, b)| a <= b && *b < 1_024).ok_or_else(|| bad(part))?;
        for core in first..=last {
            if cores.contains(&core) {
                return Err(units::ParseError::new(
                    format!("CPU {core} is named twice"),
                    "name each once, as 2,3 or 2-5",
                ));
            }
            cores.push(core);
        }
    }
    Ok(Cores(cores))
}

/// Trace one frame in N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) u64);

/// Creates the trace listener of the pipeline or direction with this name.
pub(crate) type Hears = std::sync::Arc<dyn Fn(&str) -> engine::slices::Listener + Send + Sync>;

/// The trace listeners, if any, and the function that evaluates their records after the run.
#[derive(Clone, Default)]
pub(crate) struct SliceListener {
    /// One for each pipeline or direction, by its name.
    pub(crate) hears: Option<Hears>,
    /// Called once, after the run.
    pub(crate) concludes: Option<Conclusion>,
}

/// Packet paths from end to end, at the end of a run.
pub(crate) type Conclusion = std::sync::Arc<dyn Fn() -> Result<::measure::EndToEnd, Failure> + Send + Sync>;

pub(crate) fn parse_sampling(text: &str) -> Result<Every, units::ParseError> {
    let every = text.strip_prefix("1/").unwrap_or(text).parse().ok().filter(|every| *every > 0);
    let every = every.filter(|every| text.starts_with("1/") || *every == 1);
    every.map(Every).ok_or_else(|| {
        units::ParseError::new(format!("'{text}' is no share of frames to trace"), "write 1/64, or 1/1 for all")
    })
}

fn parse_every(text: &str) -> Result<units::Span, units::ParseError> {
    let every: units::Span = text.parse()?;
    if every < units::Span::from_ms(100) {
        let what = format!("'{text}' is too short an interval: each reading takes CPU time from departures");
        return Err(units::ParseError::new(what, "write 100ms or more"));
    }
    Ok(every)
}

fn parse_window(text: &str) -> Result<units::Span, units::ParseError> {
    let window: units::Span = text.parse()?;
    if window == units::Span::ZERO {
        return Err(units::ParseError::new("a window of length 0 holds no frames", "write 1us or more"));
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_one_in_some() {
        assert_eq!(parse_sampling("1/64"), Ok(Every(64)));
        assert_eq!((parse_sampling("1"), parse_sampling("1/1")), (Ok(Every(1)), Ok(Every(1))));
        for text in ["", "64", "0", "1/0", "2/3", "1/x", "25%", "1/"] {
            assert!(parse_sampling(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(parse_cores("0"), Ok(Cores(vec![0])));
        assert_eq!(parse_cores("3,0-1"), Ok(Cores(vec![3, 0, 1])));
        for text in ["", ",", "1,", "a", "2-1", "1,0-2", "-1", "9999"] {
            assert!(parse_cores(text).is_err(), "{text}");
        }
        for text in ["0,0", "1-3,2"] {
            assert!(parse_cores(text).is_err_and(|error| error.to_string().contains("named twice")), "{text}");
        }
    }
}

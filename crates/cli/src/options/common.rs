//! Options shared by several commands.

use super::start_at::StartAt;
use super::values::{Cores, TraceInterval, parse, parse_cores, parse_every, parse_sampling, parse_window};
use std::path::PathBuf;
use units::Span;

/// Options of every command that moves frames.
#[derive(clap::Args, Clone)]
pub(crate) struct Common {
    /// End after this time (virtual time in virtual runs), such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
    /// Live: arm, then send the first frame at this instant of this host's clock: 2026-11-25T18:00:00Z (fractions are
    /// possible), '2026-11-25T18:00:37 TAI', +5s, or stdin to read it from a line of stdin once armed
    #[arg(long, value_name = "INSTANT", value_parser = parse::<StartAt>, allow_hyphen_values = true)]
    pub(crate) start_at: Option<StartAt>,
    /// Live: compare this host's clock with that of HOST before and during the run; may be repeated. HOST runs
    /// netlathe clock --answer [default port: 47100]
    #[arg(long = "clock-peer", value_name = "HOST[:PORT]")]
    pub(crate) clock_peers: Vec<String>,
    /// Refuse to start if the clock of a --clock-peer may be further off than this
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = parse::<Span>, requires = "clock_peers")]
    pub(crate) max_clock_error: Span,
    /// Seed of all random numbers [default: the scenario's, else 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Length of the windows in which rates are measured
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_window)]
    pub(crate) window: Span,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Add whole histograms and the rate over time to the JSON report, so that netlathe merge has the quantiles and the lanes
    /// of several reports
    #[arg(long)]
    pub(crate) histograms: bool,
    /// Write the report as an HTML page, DIR/report.html, with its data in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Show progress on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    pub(crate) progress: String,
    /// Write the progress of a live run to FILE as JSON lines, one per --stats-every; FILE may be a named pipe
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// How often --stats writes a line
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "stats", value_parser = parse_every, allow_hyphen_values = true)]
    pub(crate) stats_every: Span,
    /// Let `netlathe ctl` and `top` watch and change the run by this socket: unix:PATH
    #[cfg(feature = "service")]
    #[arg(long, value_name = "unix:PATH", value_parser = parse_socket)]
    pub(crate) control: Option<PathBuf>,
    /// CPUs for live pipelines, as 2,3 or 2-5. One CPU per pipeline pins it; two, three or four per pipeline
    /// split it into receiving, classes, stages and departures; departures run on the last CPU
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// Trace one frame in N through the stages and report where its time went [default without a value: 1/64]
    #[arg(long, value_name = "1/N", num_args = 0..=1, default_missing_value = "1/64", value_parser = parse_sampling)]
    pub(crate) slices: Option<TraceInterval>,
    /// Use interfaces that carry this host's own traffic, and cut that traffic off
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print more: choices and their reasons, and the log of DPDK
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Files for the results of a run, for other programs.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ResultFiles {
    /// Write the expectations and their outcomes to FILE as JUnit XML, for continuous integration
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write all figures to FILE as CSV: pipeline, figure, unit, value
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

/// The files of `--report`, in its folder.
pub(crate) const REPORT_FILES: [&str; 2] = ["report.html", "report.json"];

/// The first argument of a netlathe started by another one. The process ID of the parent and the arguments follow.
pub(crate) const CHILD: &str = "netlathe-child-of";

impl Common {
    /// The files that `--report` will write.
    pub(crate) fn report_files(&self) -> Vec<PathBuf> {
        self.folder.iter().flat_map(|folder| REPORT_FILES.map(|file| folder.join(file))).collect()
    }

    /// Whether progress may be shown on a terminal.
    pub(crate) fn shows_progress(&self) -> bool {
        self.progress == "auto" && !self.quiet
    }
}

/// The path of a socket, as `unix:PATH`.
#[cfg(feature = "service")]
fn parse_socket(text: &str) -> Result<PathBuf, String> {
    match text.parse()? {
        service::Address::Unix(path) => Ok(path),
        service::Address::Tcp(..) => Err("a run is controlled by a socket of this machine: write unix:PATH".to_owned()),
    }
}

/// Why `--stats` does not work for captures.
pub(crate) const NO_STATS: &str = "--stats: it is only for live ports, since captures are processed as fast as they can be read: leave it out; the report \
                                   has all figures";

/// Why `--clock-peer` does not work in virtual time.
pub(crate) const NO_CLOCKS: &str =
    "--clock-peer: it is only for live ports, since virtual time reads no clock: leave it out";

/// Why `--start-at` does not work in virtual time.
pub(crate) const NO_START: &str =
    "--start-at: it is only for live ports, since virtual time begins at 0 whenever the command runs: leave it out";

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

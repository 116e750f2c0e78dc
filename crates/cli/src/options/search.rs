use super::start_at::StartAt;
use super::values::parse;
use std::path::PathBuf;
use units::{BitRate, FrameRate, Share, Span};

/// Find the highest rate whose loss stays within a goal
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe search --out <PORT> --in <PORT> [OPTIONS]
       netlathe search --dut <STAGE> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe search --dut 'limit key dst-ip rate 63209472bps mode police burst 64B' --trial 1s --width 0.1% --max 1Mpps
  netlathe search --out eth1 --in eth2 --size rfc2544 --trial 60s --csv throughput.csv
  netlathe search --out eth1 --in eth2 --size 64B --size imix --loss 0% --loss 0.5% --trial 10s --max 1Mpps
  netlathe search --out eth1 --in eth2 --gateway 198.18.0.254 --max 1Mpps
  netlathe search --out eth1 --in eth2 --both --gateway eth1=198.18.0.254 --gateway eth2=198.19.0.254 --max 1Mpps
  netlathe search --out eth1 --in eth2 --out eth3 --in eth4 --max 1Mpps
  netlathe search --out eth1 --in eth2 --max 1Mpps --start-at +3s
  netlathe search --out eth1 --in eth2 --method mlrsearch --loss 0% --loss 0.5% --trial 1s --sum 21s --json
  netlathe search --out eth1 --in eth2 --trial 60s --latency 120s --frame-loss 10% --back-to-back 50 --report results

Each trial sends a constant load for --trial and counts the frames that come back. rfc2544 halves the
interval, one trial per load. mlrsearch (RFC 9971) adds up trials of a load, up to --sum; a share --exceed
of them may be bad, and it begins with short ones. A trial whose load the tester did not offer does not
count. If repeating it does not help, the verdict is tester-limited.

--latency sends the found rate once more. --frame-loss measures the loss at each load from the highest
down (RFC 2544, 26.3). --back-to-back finds the longest burst without loss (26.4). A router needs
--gateway and a route to the streams' destinations: --in answers ARP, NDP and pings for them. --dut names
stages to test in virtual time.")]
pub(crate) struct Search {
    /// Port to send frames on; several send at the same time, each to the --in at the same position
    #[arg(long = "out", value_name = "PORT", required_unless_present = "dut", requires = "input")]
    pub(crate) output: Vec<String>,
    /// Port to receive them on
    #[arg(long = "in", value_name = "PORT", requires = "output")]
    pub(crate) input: Vec<String>,
    /// Send from each --in to its --out at the same time. Needs Linux interfaces, which are used with driver=af_packet
    #[arg(long, requires = "output", conflicts_with = "dut")]
    pub(crate) both: bool,
    /// Instead of ports: a stage to test in virtual time; several are passed in order
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["output", "input"])]
    pub(crate) dut: Vec<String>,
    /// The stream to send, without a size; PORT=SPEC is for one port [default: udp 198.18.0.1:1024 > 198.19.0.1:9, for
    /// the second pair of ports from 198.18.1.1 to 198.19.1.1; with --both, turned round]
    #[arg(long = "stream", value_name = "SPEC")]
    pub(crate) streams: Vec<String>,
    /// A frame size or a mix, as 64B, imix; several are searched in turn; rfc2544 means its seven Ethernet sizes,
    /// 64B to 1518B; 64B,1518B is one mix
    #[arg(long = "size", value_name = "SIZE", default_value = "64B")]
    pub(crate) sizes: Vec<String>,
    /// Allowed loss; several goals are searched in one run
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse::<Share>)]
    pub(crate) loss: Vec<Share>,
    /// Search method
    #[arg(long, default_value = "rfc2544", value_parser = ["rfc2544", "mlrsearch"])]
    pub(crate) method: String,
    /// Duration of a trial
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) trial: Span,
    /// mlrsearch: total duration of the trials at one load [default: 21 trials]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    pub(crate) sum: Option<Span>,
    /// mlrsearch: share of the trials that may exceed the loss [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse::<Share>)]
    pub(crate) exceed: Option<Share>,
    /// Width of the interval at which the search ends
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = parse::<Share>)]
    pub(crate) width: Share,
    /// Lowest load, of each direction
    #[arg(long, value_name = "RATE", default_value = "100pps", value_parser = parse::<FrameRate>)]
    pub(crate) min: FrameRate,
    /// Highest load of each direction, as 1Mpps [default: --line-rate at the mean frame size]
    #[arg(long, value_name = "RATE", value_parser = parse::<FrameRate>)]
    pub(crate) max: Option<FrameRate>,
    /// Line rate, the upper limit of the load
    #[arg(long, value_name = "RATE", default_value = "10Gbps", value_parser = parse::<BitRate>)]
    pub(crate) line_rate: BitRate,
    /// Live: how long to wait for missing frames after the last was sent
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, conflicts_with = "dut")]
    pub(crate) wait: Span,
    /// Live: largest lateness of a departure in a trial with loss; beyond it the trial does not count
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse::<Span>, conflicts_with = "dut")]
    pub(crate) late: Span,
    /// Live: arm the first trial, then send its first frame at this instant of this host's clock, written as for gen; the
    /// other trials follow as usual
    #[arg(long, value_name = "INSTANT", value_parser = parse::<StartAt>, allow_hyphen_values = true, conflicts_with = "dut")]
    pub(crate) start_at: Option<StartAt>,
    /// Live: the neighbour to which --out sends, resolved by ARP or neighbour discovery, as for gen; PORT=IP is for one
    /// port, also an --in with --both
    #[arg(long = "gateway", value_name = "[PORT=]IP", conflicts_with = "dut")]
    pub(crate) gateways: Vec<String>,
    /// Live: use interfaces that carry this host's own traffic, and cut that traffic off
    #[arg(long, conflicts_with = "dut")]
    pub(crate) take_over: bool,
    /// Send at the found rate again for this time to measure latency (RFC 2544 says 120s)
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    pub(crate) latency: Option<Span>,
    /// Measure the loss rate: send at --max or the line rate, then lower the load by this share of it until two loads
    /// in a row lose nothing (RFC 2544 says 10% or finer)
    #[arg(long, value_name = "SHARE", value_parser = parse::<Share>)]
    pub(crate) frame_loss: Option<Share>,
    /// Find the longest burst without loss, N times, at --max or the line rate (RFC 2544 says 50)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) back_to_back: u32,
    /// Longest burst to try, as a time
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, requires = "back_to_back")]
    pub(crate) longest_burst: Span,
    /// Extra trials at each bound found, to confirm it [default: 2, for mlrsearch 0]
    #[arg(long, value_name = "N")]
    pub(crate) confirm: Option<u32>,
    /// Allowed deviation of a trial's rate or duration
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse::<Share>)]
    pub(crate) tolerance: Share,
    /// Keep all trials in this file, and resume from the trials in it
    #[arg(long, value_name = "FILE")]
    pub(crate) trials: Option<PathBuf>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as an HTML page, DIR/report.html, with all trials in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Write the results to this file as CSV, one line per size and goal, and per load of --frame-loss and --back-to-back
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Show the current load and the bounds so far in a line on stderr, if that is a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    pub(crate) progress: String,
    /// Print a line on stderr for each trial, and when the first frames pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

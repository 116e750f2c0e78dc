use super::values::{parse, parse_exchange_interval};
use std::net::SocketAddr;
use units::Span;

/// The default port of `clock --answer`.
pub(crate) const PORT: u16 = 47_100;

/// Compare this host's clock with those of others
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe clock --peer <HOST[:PORT]> [OPTIONS]
       netlathe clock --answer [--listen <ADDR:PORT>] [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe clock --answer
  netlathe clock --peer 10.0.0.2
  netlathe clock --peer 10.0.0.2 --peer lab-3:5000 --duration 30s --json
  netlathe clock --peer 10.0.0.2 --max-clock-error 20us

The peer runs netlathe clock --answer. Both ends stamp messages in the kernel. The fastest exchange gives
the offset, peer minus this host; the error is half its round trip plus the resolution of the stamps, so
it holds for any asymmetry of the path. State of chrony and ptp4l is shown where they are installed.")]
pub(crate) struct Clock {
    /// Host to compare with; may be repeated [default port: 47100]
    #[arg(long = "peer", value_name = "HOST[:PORT]", required_unless_present = "answer")]
    pub(crate) peers: Vec<String>,
    /// Answer the exchanges of other hosts, until a signal or for --duration
    #[arg(long, conflicts_with_all = ["peers", "interval", "max_clock_error"])]
    pub(crate) answer: bool,
    /// Address to answer on [default: port 47100 of all addresses]
    #[arg(long, value_name = "ADDR:PORT", requires = "answer")]
    pub(crate) listen: Option<SocketAddr>,
    /// How long to measure [default: 2s] or to answer [default: until a signal]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
    /// Time between two exchanges with a peer
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_exchange_interval, allow_hyphen_values = true)]
    pub(crate) interval: Span,
    /// End with status 1 if the offset of a peer, with its error, is larger than this
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    pub(crate) max_clock_error: Option<Span>,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show progress on a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    pub(crate) progress: String,
}

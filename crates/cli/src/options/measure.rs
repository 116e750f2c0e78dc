use super::common::Common;
use super::values::{parse, parse_count};
use std::path::PathBuf;
use units::{PS_PER_S, Share, Span};

/// Help of `--take-over` for `measure`, whose usual ports leave frames to the host.
const TAKE_OVER: &str = "Receive by driver=af_xdp or dpdk: from an interface that carries this host's own traffic, and \
cut that traffic off";

/// Measure gaps, rates, loss and delay of frames that arrive
#[derive(clap::Args)]
// Both are refused, and the error names the alternative.
#[command(mut_arg("slices", |option| option.hide(true)), mut_arg("cores", |option| option.hide(true)),
    mut_arg("take_over", |option| option.help(TAKE_OVER)))]
#[cfg_attr(feature = "service", command(mut_arg("control", |option| option.hide(true))))]
#[command(override_usage = "\
netlathe measure --in <PORT> [OPTIONS]
       netlathe measure --pcap <FILE> [OPTIONS]
       netlathe measure --host <INTERFACE,…> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe measure --pcap out.pcap --expect 'fixed 10us'
  netlathe measure --pcap out.pcap --expect 'chi2 df 6 in 80us..120us'
  netlathe measure --pcap out.pcap --only 'udp dport 2000' --expect 'fixed 10us'
  netlathe measure --in if:eth0 --duration 10s --write seen.pcap --json
  netlathe measure --pcap out.pcap --sources '10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms' --report fig7
  netlathe measure --pcap out.pcap --write out.pcapng.zst
  netlathe measure --pcap out.pcap --csv gaps.csv --svg gaps.svg
  netlathe measure --host eth0,eth1 --duration 10s

--expect fails (status 1) if the mean or the rate is off by more than --tolerance, or if less than 90 % of
the gaps are within 1 µs of a fixed gap. A law fails if p < 1e-4: gaps of that law would differ from it by
as much less than once in 10 000 runs.

--only takes the rules of classes: tcp udp icmp arp ip ip6 vlan, src A, dst A, host A, sport P, dport P,
port P, dscp D, flags F, dmac MAC, smac MAC, bytes HEX at N. Conditions side by side must all hold; or begins an
alternative, not negates the next condition. The report counts the frames that did not match.

--host receives no frames. It reads the counters of this machine's kernel and drivers while another
program receives. It reports how many frames arrived, where frames were lost (wire, ring, softnet,
interface, protocol, socket), how queues and CPUs shared the work, and commands that reduce the loss.")]
pub(crate) struct Measure {
    /// Input: a live port, or pcap:FILE
    #[arg(long = "in", value_name = "PORT", required_unless_present_any = ["pcap", "host"], conflicts_with = "pcap")]
    pub(crate) input: Option<String>,
    /// Capture to read, - for stdin; may be compressed with gzip, zstd, xz, bzip2 or lz4
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Interfaces of this machine whose kernel counters are watched while another program receives
    #[arg(long, value_name = "INTERFACE,…", value_delimiter = ',', conflicts_with_all =
        ["input", "pcap", "only", "sources", "stats", "write", "csv", "svg", "count", "expect", "tolerance", "folder", "cores", "seed", "window"])]
    pub(crate) host: Option<Vec<String>>,
    /// With --host: interval between two readings, and between lines on a terminal [default: 1s]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["input", "pcap"], value_parser = parse_interval, allow_hyphen_values = true)]
    pub(crate) interval: Option<Span>,
    /// Measure, count and write only frames that match this class rule: 'udp dport 53', 'src 10.0.0.0/8 not arp'
    #[arg(long, value_name = "RULE")]
    pub(crate) only: Option<String>,
    /// Sources to compare: when each began, and whether their crests (runs of frames without a silence of 1ms) were
    /// received one after the other: '10.0.0.1,10.0.0.2', '10.0.0.1,10.0.0.2 silence 5ms'
    #[arg(long, value_name = "A,B,…")]
    pub(crate) sources: Option<String>,
    /// Write the received frames to a capture, - for stdout: pcapng if the name ends in .pcapng, compressed if in .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Write the distribution of gaps to a CSV: from_ns,to_ns,gaps,share,up_to
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the histogram of gaps to an SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// End after this number of frames
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) count: Option<u64>,
    /// Maximum number of streams (of more than 8 frames) with their own figures, 64 KiB each; others are counted together
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_streams: u32,
    /// The expected gap, law or rate: 'fixed 10us', 'exp mean 10us', 5Gbps, 50kpps
    #[arg(long, value_name = "GAP|WAVE")]
    pub(crate) expect: Option<String>,
    /// Allowed deviation of the mean
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse::<Share>)]
    pub(crate) tolerance: Share,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Parses the interval between two readings of counters, which take some milliseconds each.
fn parse_interval(text: &str) -> Result<Span, units::ParseError> {
    let interval: Span = text.parse()?;
    if interval < Span::from_ps(PS_PER_S / 10) {
        return Err(units::ParseError::new(
            format!("'{text}' is too short an interval for reading counters"),
            "write 100ms or more",
        ));
    }
    Ok(interval)
}

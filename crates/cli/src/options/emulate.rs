use super::common::Common;
use std::path::PathBuf;

/// Impair traffic as tc-netem does, in the direction you name
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe emulate --between <A> <B> [OPTIONS]
       netlathe emulate --on <INTERFACE> [OPTIONS]
       netlathe emulate --in <PORT> --out <PORT> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe emulate --in pcap:in.pcap --out pcap:out.pcap --forward 'delay 10ms 2ms distribution normal loss 1%'
  netlathe emulate --between eth0 eth1 --forward 'rate 10mbit' --backward 'loss 20%' --duration 60s
  netlathe emulate --between eth0 eth1 --class 'web = tcp dport 80' --forward web='loss 5%' --forward 'delay 20ms'
  netlathe emulate --between eth0 eth1 --forward 'delay 20ms rate 20mbit queue fq_codel ecn' --duration 60s
  netlathe emulate --on eth0 --forward 'rate 2mbit' --backward 'delay 40ms loss 1%' --duration 60s
  netlathe emulate --between eth0 eth1 --both 'delay 150ms 25ms 25% corrupt 0.1% mode checksum-valid'
  netlathe emulate --between eth0 eth1 --forward 'delay 20ms then 80ms at 10s then 20ms at 20s' --duration 30s

Forward is what arrives on A (or --in) and leaves by B (or --out); backward is the other way. With --on, forward is
what this host sends on the interface, backward what arrives there for it.
SPEC is tc-netem's grammar, with tc's units and tc's lengths (a frame without its FCS):
  limit FRAMES|BYTES|TIME        delay TIME [JITTER [CORR%]] [then TIME at TIME …]   distribution NAME|FILE.dist
  loss P% [CORR%] | loss state P13 [P31 [P32 [P23 [P14]]]] | loss gemodel P [R [1-H [1-K]]] | loss pattern 0b1011|FILE
  ecn                            corrupt P% [CORR%] [mode bit|byte|checksum-valid]              duplicate P% [CORR%]
  reorder P% [CORR%] [gap N]     rate RATE [OVERHEAD [CELL [CELLOVERHEAD]]] | rate trace FILE   mtu BYTES [icmp]
  queue codel|fq_codel [target TIME] [interval TIME] | pie [target TIME] | red min BYTES max BYTES | step above LIMIT
  slot MIN [MAX] [packets N] [bytes N]   down TIME every TIME      keep-order                    seed N   profile NAME
Profiles: geo-satellite, 3g-down, 3g-up, 4g, lte, dsl-down, dsl-up, cable-down, cable-up.")]
pub(crate) struct Emulate {
    /// Two live ports; traffic between them is carried in both directions
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["input", "output"])]
    pub(crate) between: Option<Vec<String>>,
    /// One interface of this host; impairs what its programs send and receive. Its settings stay unchanged,
    /// and everything is restored when netlathe ends, even if it is killed
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["between", "input", "output", "one_way"],
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) on: Option<String>,
    /// With --on: proceed even if that may cut off your own SSH session
    #[arg(long, requires = "on", conflicts_with_all = ["between", "input", "output"])]
    pub(crate) yes: bool,
    /// Input port
    #[arg(long = "in", value_name = "PORT", required_unless_present_any = ["between", "on"])]
    pub(crate) input: Option<String>,
    /// Output port
    #[arg(long = "out", value_name = "PORT", required_unless_present_any = ["between", "on"])]
    pub(crate) output: Option<String>,
    /// Impairments of frames from A to B, or from --in to --out
    #[arg(long, value_name = "[CLASS=]SPEC")]
    pub(crate) forward: Vec<String>,
    /// A class of forward frames: a name and a rule, 'api = tcp dport 8080'; then --forward api=SPEC, and a SPEC
    /// without a name for all other frames
    #[arg(long = "class", value_name = "NAME = RULE")]
    pub(crate) classes: Vec<String>,
    /// Impairments of frames from B to A, or from --out to --in
    #[arg(long, value_name = "SPEC")]
    pub(crate) backward: Option<String>,
    /// Impairments of each direction separately, applied after --forward and --backward
    #[arg(long, value_name = "SPEC", conflicts_with = "classes")]
    pub(crate) both: Option<String>,
    /// Log what was done to each frame. Two directions write FILE-forward and FILE-backward, a class writes
    /// FILE-CLASS
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Replay the decisions of such a file instead of a SPEC
    #[arg(long, value_name = "FILE", conflicts_with_all = ["forward", "backward", "both"])]
    pub(crate) replay: Option<PathBuf>,
    /// Do not carry frames back from --out to --in
    #[arg(long, conflicts_with_all = ["between", "backward"])]
    pub(crate) one_way: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

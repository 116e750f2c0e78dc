use super::common::{Common, Departures};
use super::values::{Cores, parse, parse_cores, parse_count};
use std::path::PathBuf;

/// Help of `--cores` for `gen`, which can generate streams on several CPUs.
const CORES: &str = "CPUs for live ports, as 2,3 or 2-5. Streams without --class are generated on all of them, \
each with its own queue and its share of the departures; otherwise one CPU runs the pipeline, and a second one runs the departures";

/// Generate traffic from a description, or replay a capture
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe gen --out <PORT> --stream <SPEC> [OPTIONS]
       netlathe gen --out <PORT> --pcap <FILE> [OPTIONS]")]
#[command(mut_arg("cores", |cores| cores.help(CORES)))]
#[command(after_help = "\
Examples:
  netlathe gen --out pcap:in.pcap --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B' --count 100000 --seed 7
  netlathe gen --out eth0 --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size imix' --rate 50kpps --duration 10s
  netlathe gen --out eth0 --stream 'tcp random 10.1.0.0/16:1024-65535 > 10.2.0.1:80,443 flags S vlan 5 weight 3' \\
      --stream 'udp [2001:db8::1]:1 > [2001:db8::2]:53 size 100B dscp ef' --rate 1Gbps --duration 10s
  netlathe gen --out eth0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:53' --stream 'udp 10.0.0.1:1 > 10.0.0.2:80' \\
      --class 'dns = dport 53' --rate dns=1kpps --rate 100kpps --duration 10s
  netlathe gen --out eth0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9' --rate 100kpps --duration 1h --stats figures.jsonl
  netlathe gen --out eth0 --gateway 10.0.0.254 --stream 'udp 10.0.0.1-10.0.0.9:1000 > 10.9.0.1:9' --rate 10kpps --duration 10s
  netlathe gen --out pcap:tunnel.pcap --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 in vxlan vni 1-9 in udp 192.0.2.1 > 192.0.2.2' --count 100
  netlathe gen --out eth0 --pcap day.pcap --speed 2 --rewrite 'dst 48.0.0.0/8 > 10.99.204.8, dmac 44:ec:ce:c1:a8:20'
  netlathe gen --out eth0 --in eth1 --pcap day.pcap --write-missing missing.pcap
  netlathe gen --out pci:03:00.0 --in pci:03:00.1 --in-cores 2,3 --cores 1 --stream 'udp 10.0.0.1-10.0.0.99:1 > 10.1.0.1:9' --duration 10s
  netlathe gen --out eth0 --pcap day.pcap --max-gap 1s --loop 0 --loop-gap 500ms --duration 60s

A stream is udp, tcp, icmp, ip or arp with SOURCE > DESTINATION, eth, hex BYTES, or pcap FILE frame N;
then fields and their values, size, payload, weight and stamp. A value is a single one, a range a-b [step N]
taken in order, a list a,b-c taken in order (flags S,A is SYN, then ACK; flags SA is both at once), a prefix
10.0.0.0/24, or random a-b. Tunnels follow: in vxlan vni 7 in udp 192.0.2.1 > 192.0.2.2. Sizes count the FCS: 64B, 64B-1518B (in order), random 64B-1518B, a mix (imix is
58:33:9 of 64/594/1518 B; imix-7-4-1, imix-trex, imix-csit; 64B:7,1518B:1), genome aaaag, or a law. Every
field: docs/reference/streams.md. Frames with enough room carry a stamp, so that measure counts loss,
order and delay of each stream. Without a rate, streams in a file are back to back at 10 Gbit/s, and
captures keep their timing.")]
pub(crate) struct Generate {
    /// Output port
    #[arg(long = "out", value_name = "PORT")]
    pub(crate) output: String,
    /// Live port at which the frames should arrive; counts lost, late, repeated and reordered frames. Of a capture, it
    /// names those that were lost or changed
    #[arg(long = "in", value_name = "PORT")]
    pub(crate) input: Option<String>,
    /// With --in: CPUs that receive, as 2,3 or 2-5, each from its own queue; the NIC deals frames to the queues by their
    /// flows. Ports that DPDK receives from
    #[arg(long, value_name = "LIST", value_parser = parse_cores, requires = "input", conflicts_with = "pcap")]
    pub(crate) in_cores: Option<Cores>,
    /// With --in: how long to wait for missing frames after the last was sent
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse::<units::Span>, requires = "input")]
    pub(crate) wait: units::Span,
    /// With --in and --pcap: write the frames that did not arrive as they were sent to this capture
    #[arg(long, value_name = "FILE", requires = "input", requires = "pcap")]
    pub(crate) write_missing: Option<PathBuf>,
    /// A stream to send; several are interleaved by weight
    #[arg(long = "stream", value_name = "SPEC", required_unless_present = "pcap")]
    pub(crate) streams: Vec<String>,
    /// Number of the first stream in the stamps. --in counts only the streams of its own run, so give generators on one
    /// network different numbers
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "pcap")]
    pub(crate) first_stream: u16,
    /// Send streams without dmac to this neighbour, whose hardware address is first resolved by ARP or
    /// neighbour discovery; once per IP version
    #[arg(long = "gateway", value_name = "IP", conflicts_with = "pcap")]
    pub(crate) gateways: Vec<String>,
    /// A class of frames: a name and a rule, 'dns = udp dport 53'. It can have its own schedule:
    /// --rate dns=1kpps, --gap dns=1ms
    #[arg(long = "class", value_name = "NAME = RULE")]
    pub(crate) classes: Vec<String>,
    /// Number of frames, of all streams together; for a capture, the maximum
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) count: Option<u64>,
    /// Capture to replay (- for stdin; may be compressed), with its own timing unless --speed, --rate or --gap is given
    #[arg(long, value_name = "FILE", conflicts_with = "streams")]
    pub(crate) pcap: Option<String>,
    /// Replay speed: 2 is twice as fast; max is back to back
    #[arg(long, value_name = "F", allow_hyphen_values = true)]
    pub(crate) speed: Option<String>,
    /// How often to send the capture; 0 repeats until --count, --duration or a signal ends it
    #[arg(long = "loop", value_name = "N", conflicts_with = "streams")]
    pub(crate) times: Option<u64>,
    /// With --loop: gap between the last frame of a round and the first of the next [default: the capture's mean gap]
    #[arg(long, value_name = "TIME", requires = "times", allow_hyphen_values = true)]
    pub(crate) loop_gap: Option<String>,
    /// Shorten longer gaps of the capture to this length
    #[arg(long, value_name = "TIME", requires = "pcap", allow_hyphen_values = true)]
    pub(crate) max_gap: Option<String>,
    /// Change the capture's frames, checksums included: 'dst 10.0.0.0/8 > 192.168.0.0/16',
    /// 'dmac 02:00:00:00:00:02', 'dport 80 > 8080', 'vlan 5', 'vlan none', 'ttl 64', 'checksums right'
    #[arg(long, value_name = "CHANGE")]
    pub(crate) rewrite: Vec<String>,
    #[command(flatten)]
    pub(crate) departures: Departures,
    #[command(flatten)]
    pub(crate) common: Common,
}

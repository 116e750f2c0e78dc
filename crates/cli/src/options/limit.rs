use super::common::Common;
use super::values::parse;
use engine::meters::{Algorithm, KeyKind};
use std::path::PathBuf;
use units::{Rate, Span};

/// Limit each of many users to a rate
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe limit --in pcap:in.pcap --out pcap:out.pcap --key dst-ip --rate 1Mbps --mode police --burst 3036B
  netlathe limit --in eth0 --out eth1 --key dst-prefix/24 --rate 10Mbps --mode police --rates users.txt
  netlathe limit --in eth0 --out eth1 --key src-ip --rate 5Mbps --mode shape --queue 200ms
  netlathe limit --in pcap:in.pcap --out null --key src-ip --rate 5Mbps --mode police --burst 64kB --by-user users.csv --idle 3600s
  netlathe limit --in eth0 --out eth1 --key dst-ip --rate 1Mbps --mode police --workers 4 --cores 1,2,3,4,5
  netlathe limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police --workers 64 \\
      --algorithm 'light-lock batch 1500B depth 6000B idle expire 10ms'

--mode police is for UDP, attacks and contracts: it drops excess frames immediately. --mode shape is for
TCP: it queues excess frames, and TCP gets its rate. --mode mark leaves the decision to the next hop. With police, TCP needs a
bucket of several round trips at its rate: at 20 Mbit/s and 40 ms, cubic got 12.1 Mbit/s with the default of 25 kB,
15.5 with 250 kB, and 18.6 with shape.

Frames with the same key are one user. Each user has a bucket that is full at the start; rates count the frame
with FCS unless they say ip or wire. A rates file has lines of USER RATE [burst SIZE]; kill -HUP
re-reads it while traffic flows.")]
pub(crate) struct Limit {
    /// Input port
    #[arg(long = "in", value_name = "PORT")]
    pub(crate) input: String,
    /// Output port
    #[arg(long = "out", value_name = "PORT")]
    pub(crate) output: String,
    /// The field that identifies a user: dst-ip, src-ip, 5-tuple, vlan, dst-prefix/24, src-prefix/48, or up to four fields of any layer: svlan+cvlan, smac, teid, inner.src, src/24,/56
    #[arg(long, value_name = "KEY", value_parser = parse::<KeyKind>)]
    pub(crate) key: KeyKind,
    /// Rate of each user that is not in --rates: 1Mbps, '1Mbps ip' or '1Mbps wire'
    #[arg(long, value_name = "RATE", value_parser = parse::<Rate>, allow_hyphen_values = true)]
    pub(crate) rate: Rate,
    /// Size of each user's bucket [default: 10 ms of the rate, at least 3036B]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) burst: Option<String>,
    /// Required. Frames above the rate: police drops them, shape queues them, mark marks them
    #[arg(long, value_parser = ["police", "shape", "mark"])]
    pub(crate) mode: Option<String>,
    /// How to mark: 'dscp YELLOW RED' or ecn [default: dscp 12 14]
    #[arg(long, value_name = "MARK")]
    pub(crate) mark: Option<String>,
    /// Three colours: 'rfc2697 ebs 10kB', 'rfc2698 pir 2Mbps pbs 10kB', 'rfc4115 eir 1Mbps ebs 10kB';
    /// yellow frames are marked and pass; with 'aware' at the end the incoming DSCP counts
    #[arg(long, value_name = "MARKER")]
    pub(crate) colours: Option<String>,
    /// How long a frame may wait in mode shape [default: 100 ms, at least four frames of 1518 B]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) queue: Option<Span>,
    /// File with the rates of users
    #[arg(long, value_name = "FILE")]
    pub(crate) rates: Option<String>,
    /// Users that are not in the file: give them --rate, pass or drop them
    #[arg(long, value_name = "FATE", default_value = "default", value_parser = ["default", "pass", "drop"])]
    pub(crate) unknown: String,
    /// Maximum number of users, 64 bytes each
    #[arg(long, value_name = "N", default_value = "1048576")]
    pub(crate) users: String,
    /// Remove a user whose bucket has been full for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) idle: Span,
    /// New users that do not fit in the table: drop or pass
    #[arg(long, value_name = "FATE", default_value = "drop", value_parser = ["drop", "pass"])]
    pub(crate) full: String,
    /// gcra, atomic-queue, static, mutex, or 'light-lock batch SIZE depth SIZE idle keep|expire TIME'
    #[arg(long, default_value = "gcra", value_parser = parse::<Algorithm>)]
    pub(crate) algorithm: Algorithm,
    /// Event device of atomic-queue on live ports: event_dsw, event_sw, or the PCI address of a DLB [default: the first
    /// software device present]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Number of workers: threads on live ports, at most 64; modelled in virtual time
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) workers: String,
    /// Service time of a modelled worker per frame; a frame that finds 512 waiting is dropped
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) service: Option<Span>,
    /// Write the bytes passed and exceeded per user to this file, one line for each user known at the end; an --idle longer than
    /// the run keeps all users
    #[arg(long, value_name = "FILE")]
    pub(crate) by_user: Option<PathBuf>,
    /// Do not carry frames back from --out to --in
    #[arg(long)]
    pub(crate) one_way: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

use super::{Common, parse};
use crate::execute::{self, Request};
use crate::output::Failure;
use engine::meters::{Algorithm, KeyKind};
use scenario::{PipelineText, Text};
use std::path::PathBuf;
use std::process::ExitCode;
use units::{Rate, Span};

/// Hold each of many users to a rate
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

--mode police is for UDP, attacks and contracts: what exceeds is dropped at once. --mode shape is for TCP: what
exceeds waits, and TCP gets its rate. --mode mark leaves the decision to the next hop. TCP behind police needs a
bucket of several round trips of its rate: at 20 Mbit/s and 40 ms cubic had 12.1 Mbit/s with the default of 25 kB,
15.5 with 250 kB, and 18.6 with shape.

A user is whoever shares the key. Each has a bucket that is full at the start; rates count the frame
with FCS unless they say ip or wire. A file of rates has lines of USER RATE [burst SIZE]; kill -HUP
has it read again under traffic.")]
pub(crate) struct Limit {
    /// Port that frames come from
    #[arg(long = "in", value_name = "PORT")]
    input: String,
    /// Port that frames leave by
    #[arg(long = "out", value_name = "PORT")]
    output: String,
    /// What frames of one user share: dst-ip, src-ip, 5-tuple, vlan, dst-prefix/24 or src-prefix/48
    #[arg(long, value_name = "KEY", value_parser = parse::<KeyKind>)]
    key: KeyKind,
    /// Rate of each user whose own is not in --rates: 1Mbps, '1Mbps ip' or '1Mbps wire'
    #[arg(long, value_name = "RATE", value_parser = parse::<Rate>, allow_hyphen_values = true)]
    rate: Rate,
    /// Bytes of each user's bucket [default: what comes in 10 ms, 3036B at least]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Required. Frames that exceed: police drops them, shape queues them, mark lets them pass with a mark
    #[arg(long, value_parser = ["police", "shape", "mark"])]
    mode: Option<String>,
    /// How to mark: 'dscp YELLOW RED' or ecn [default: dscp 12 14]
    #[arg(long, value_name = "MARK")]
    mark: Option<String>,
    /// Three colours: 'rfc2697 ebs 10kB', 'rfc2698 pir 2Mbps pbs 10kB', 'rfc4115 eir 1Mbps ebs 10kB';
    /// yellow frames are marked and pass; with 'aware' at the end the DSCP that a frame comes with counts
    #[arg(long, value_name = "MARKER")]
    colours: Option<String>,
    /// How long a frame may wait in mode shape [default: 100 ms, four frames of 1518 B at least]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    queue: Option<Span>,
    /// File with the rates of users
    #[arg(long, value_name = "FILE")]
    rates: Option<String>,
    /// Users that are not in it: they have --rate, pass or are dropped
    #[arg(long, value_name = "FATE", default_value = "default", value_parser = ["default", "pass", "drop"])]
    unknown: String,
    /// Users that there is room for, 64 bytes each
    #[arg(long, value_name = "N", default_value = "1048576")]
    users: String,
    /// A user whose bucket has been full for so long makes room
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::<Span>, allow_hyphen_values = true)]
    idle: Span,
    /// New users that find no room are dropped or pass
    #[arg(long, value_name = "FATE", default_value = "drop", value_parser = ["drop", "pass"])]
    full: String,
    /// gcra, atomic-queue, static, mutex, or 'light-lock batch SIZE depth SIZE idle keep|expire TIME'
    #[arg(long, default_value = "gcra", value_parser = parse::<Algorithm>)]
    algorithm: Algorithm,
    /// Event device of atomic-queue on live ports: event_dsw, event_sw, or the PCI address of a DLB [default: the first
    /// of these in software that is there]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Workers: threads on live ports, 64 at most; modelled in virtual time
    #[arg(long, value_name = "N", default_value = "1")]
    workers: String,
    /// How long a modelled worker is busy with a frame; what finds 512 waiting is dropped
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    service: Option<Span>,
    /// Write what each user sent and got to this file, a line for each that is known at the end; --idle longer than
    /// the run keeps all
    #[arg(long, value_name = "FILE")]
    by_user: Option<PathBuf>,
    /// Carry nothing back from --out to --in
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Limit {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let stage = self.stage()?;
        let by_user = self.by_user;
        let pipeline = PipelineText {
            name: "limit".to_owned(),
            input: Some(Text::option("--in", self.input)),
            output: Some(Text::option("--out", self.output)),
            stages: vec![Text::option("limit", stage)],
            one_way: self.one_way,
            ..PipelineText::default()
        };
        let request = Request::of_pipeline("limit", &pipeline, self.common)?;
        execute::run(&Request { by_user, ..request })
    }

    /// The stage as a scenario would have it.
    fn stage(&self) -> Result<String, Failure> {
        let Rate::Bits(rate, layer) = self.rate else {
            let problem = format!("'{}' is no rate of bits", self.rate);
            return Err(Failure::new(format!("--rate: {problem}: write 1Mbps, '1Mbps wire' or '1Mbps ip'")));
        };
        let mut limit = engine::stages::Limit::new(self.key, rate, layer);
        limit.algorithm = self.algorithm;
        let texts = [
            ("burst", self.burst.as_deref()),
            ("mode", self.mode.as_deref()),
            ("mark", self.mark.as_deref()),
            ("colours", self.colours.as_deref()),
            ("unknown", Some(self.unknown.as_str())),
            ("users", Some(self.users.as_str())),
            ("full", Some(self.full.as_str())),
            ("device", self.device.as_deref()),
            ("workers", Some(self.workers.as_str())),
        ];
        for (word, text) in texts {
            if let Some(text) = text {
                limit.set(word, text).map_err(|error| Failure::new(format!("--{word}: {error}")))?;
            }
        }
        for (word, time) in [("queue", self.queue), ("idle", Some(self.idle)), ("service", self.service)] {
            if let Some(time) = time {
                limit.set(word, &time.to_string()).map_err(|error| Failure::new(format!("--{word}: {error}")))?;
            }
        }
        if self.mode.is_none() {
            return Err(Failure::new(
                "--mode is missing: write --mode police to drop what exceeds, --mode shape to queue it, with which TCP gets its rate, or --mode mark",
            ));
        }
        if let Some(file) = &self.rates {
            if file.is_empty() {
                return Err(Failure::new("--rates: the file has no name: write --rates users.txt"));
            }
            if file.contains('"') || file.contains("  ") {
                return Err(Failure::new(format!(
                    "--rates: the name '{file}' cannot be written in a stage: give the file a name without quotes and double spaces"
                )));
            }
            limit.rates = Some(file.into());
        }
        Ok(limit.to_string())
    }
}

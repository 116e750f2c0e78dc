use super::common::{Common, Departures};

/// Send traffic again with an exact rate or gap
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap 'fixed 10us'
  netlathe shape --in pcap:in.pcap --out wire:10G,frames=out.csv --gap 'chi2 df 6 in 80us..120us'
  netlathe shape --in pcap:in.pcap --out wire:10G --rate 'burst 8Gbps for 2ms every 10ms' --report results
  netlathe shape --in pcap:in.pcap --out pcap:out.pcap --delay '20ms 2ms normal corr 25%' --reorder '25% extent 3'
  netlathe shape --in eth0 --out eth1 --rate 50Mbps --duration 10s --json
  netlathe shape --in eth0 --out eth1 --rate 50Mbps --stats figures.jsonl --stats-every 500ms
  netlathe shape --in eth0 --out eth1 --class 'api = tcp dport 8080 payload \"GET\" at 0' --rate api=50Mbps \\
      --stage 'api=delay 20ms' --gap 'chi2 df 6 in 80us..120us'
  netlathe shape --in eth0 --out eth1 --sync 'order 10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms'
  netlathe shape --in pcap:in.pcap --in pcap:day.pcap --out wire:10G --sync 'order 10.0.0.1,10.0.0.2 gap 5ms wait 300ms'")]
pub(crate) struct Shape {
    /// Input port. Several captures are merged by their stamps: --in pcap:a.pcap --in pcap:b.pcap. Several live ports need
    /// --one-way
    #[arg(long = "in", value_name = "PORT", required = true)]
    pub(crate) inputs: Vec<String>,
    /// Output port
    #[arg(long = "out", value_name = "PORT")]
    pub(crate) output: String,
    #[command(flatten)]
    pub(crate) departures: Departures,
    /// A class of frames: a name and a rule, 'api = tcp dport 8080 src 10.0.0.0/8'; the first match
    /// counts. Then --rate api=50Mbps, --gap, --stage; without a name they apply to all other frames
    #[arg(long = "class", value_name = "NAME = RULE")]
    pub(crate) classes: Vec<String>,
    /// A stage, applied in the order given: 'delay 20ms', 'loss 0.5%'
    #[arg(long = "stage", value_name = "[CLASS=]STAGE")]
    pub(crate) stages: Vec<String>,
    /// Delay every frame, after the other stages: 20ms, '20ms 2ms normal corr 25%', 'exp mean 5ms keep-order'
    #[arg(long = "delay", value_name = "[CLASS=]DELAY", allow_hyphen_values = true)]
    pub(crate) delays: Vec<String>,
    /// Reorder a share of each flow's frames: 25%, '25% extent 3', '25% hold 2ms'
    #[arg(long = "reorder", value_name = "[CLASS=]REORDER", allow_hyphen_values = true)]
    pub(crate) reorders: Vec<String>,
    /// Interleave the crests of several sources: 'order 10.0.0.1,10.0.0.2 gap 5ms [wait 1s]
    /// [silence 1ms]', 'order A,B offset 5ms', 'round-robin A,B [gap T]'
    #[arg(long = "sync", value_name = "[CLASS=]ORDER")]
    pub(crate) syncs: Vec<String>,
    /// Delay the schedule by TIME after the first frame, so that it is not starved
    #[arg(long = "buffer", value_name = "[CLASS=]TIME", allow_hyphen_values = true)]
    pub(crate) buffers: Vec<String>,
    /// Do not carry frames back from --out to --in
    #[arg(long)]
    pub(crate) one_way: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

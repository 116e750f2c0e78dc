use super::{Common, Departures};
use crate::execute::{self, Request};
use crate::output::Failure;
use scenario::{PipelineText, Text};
use std::process::ExitCode;

/// Re-emit traffic with an exact rate or gap
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap 'fixed 10us'
  netlathe shape --in pcap:in.pcap --out wire:10G,frames=out.csv --gap 'chi2 df 6 in 80us..120us'
  netlathe shape --in pcap:in.pcap --out wire:10G --rate 'burst 8Gbps for 2ms every 10ms' --report results
  netlathe shape --in eth0 --out eth1 --rate 50Mbps --duration 10s --json")]
pub(crate) struct Shape {
    /// Port that frames come from
    #[arg(long = "in", value_name = "PORT")]
    input: String,
    /// Port that frames leave by
    #[arg(long = "out", value_name = "PORT")]
    output: String,
    #[command(flatten)]
    departures: Departures,
    /// A stage that frames pass, in the order given: 'delay 20ms', 'loss 0.5%'
    #[arg(long = "stage", value_name = "STAGE")]
    stages: Vec<String>,
    /// Carry nothing back from --out to --in
    #[arg(long)]
    one_way: bool,
    #[command(flatten)]
    common: Common,
}

impl Shape {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let pipeline = PipelineText {
            input: Some(Text::option("--in", self.input)),
            output: Some(Text::option("--out", self.output)),
            stages: self.stages.into_iter().map(|stage| Text::option("--stage", stage)).collect(),
            one_way: self.one_way,
            ..self.departures.pipeline("shape")
        };
        execute::run(&Request::of_pipeline("shape", &pipeline, self.common)?)
    }
}

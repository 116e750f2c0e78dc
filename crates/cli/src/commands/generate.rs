use super::{Common, Departures};
use crate::execute::{self, Request};
use crate::output::Failure;
use scenario::{PipelineText, Text};
use std::process::ExitCode;

/// Make traffic from a description
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe gen --out pcap:in.pcap --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B' --count 100000 --seed 7
  netlathe gen --out eth0 --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size imix' --rate 50kpps --duration 10s

A stream is: udp SOURCE:PORT > DESTINATION:PORT, then size, smac, dmac, ttl, each with a value.
Addresses and ports are a value, a range a-b that is walked, or random a-b. Sizes count the FCS:
64B, 64B-1518B (walked), random 64B-1518B, or a mix: imix (58:33:9 of 64/594/1518 B), imix-7-4-1,
imix-trex, imix-csit. Into a file without a rate, frames are back to back at 10 Gbit/s.")]
pub(crate) struct Generate {
    /// Port that frames leave by
    #[arg(long = "out", value_name = "PORT")]
    output: String,
    /// What to send
    #[arg(long, value_name = "SPEC")]
    stream: String,
    /// How many frames
    #[arg(long, value_name = "N", value_parser = super::parse_count)]
    count: Option<u64>,
    #[command(flatten)]
    departures: Departures,
    #[command(flatten)]
    common: Common,
}

impl Generate {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let pipeline = PipelineText {
            stream: Some(Text::option("--stream", self.stream)),
            count: self.count,
            output: Some(Text::option("--out", self.output)),
            ..self.departures.pipeline("gen")
        };
        execute::run(&Request::of_pipeline("gen", &pipeline, self.common)?)
    }
}

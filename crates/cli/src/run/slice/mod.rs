//! Where a packet's time goes.

use crate::output::Failure;
use clap::Subcommand;
use std::process::ExitCode;

mod attach;
mod end_to_end;
mod kernel;
mod pipeline;
mod processes;

/// Show where a packet's time goes, minus the known cost of measuring
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe slice kernel --port 8080 --duration 10s
  netlathe slice kernel --json -- ./ping-pong 127.0.0.1 1000
  netlathe slice pipeline -- emulate --in pcap:in.pcap --out pcap:out.pcap --forward 'delay 200us'
  netlathe slice attach /dev/shm/server.probes --duration 10s")]
pub(crate) struct Slice {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    Kernel(kernel::KernelSlices),
    Pipeline(pipeline::PipelineSlices),
    Attach(attach::Attach),
}

impl Slice {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Kernel(command) => command.run(),
            Action::Pipeline(command) => command.run(),
            Action::Attach(command) => command.run(),
        }
    }
}

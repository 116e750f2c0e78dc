//! netlathe: exactly known traffic on a wire, and what happened to it.
//!
//! Every command makes a plan (`scenario`), runs it (`sim` or `dataplane`) and ends with a report
//! (`measure`). This crate holds what is between: options, files and streams, exit status.

mod commands;
mod execute;
#[cfg(feature = "live")]
mod live;
mod output;
mod stop;
mod virtual_time;

use clap::Parser;
use output::Failure;
use std::process::ExitCode;

/// Exactly known traffic on a wire, and what happened to it.
#[derive(Parser)]
#[command(name = "netlathe", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "\
Ports:
  eth0, if:eth0[,driver=af_xdp|af_packet]    a Linux interface
  tap:NAME                                   a TAP device made by netlathe
  pci:0000:03:00.1                           a NIC bound to DPDK
  dpdk:ARGS                                  any DPDK device, dpdk:net_null0
  pcap:FILE                                  a capture, read or written
  wire:10G[,pcap=FILE][,frames=FILE][,fillers=keep][,dic=on]   the model line
  null                                       drops and counts

When every port is a capture, the model line or null, time is virtual: no privileges are needed and
the same command gives the same output to the bit.

Exit status: 0 done; 1 ran but an expectation was missed; 2 usage, configuration or system error.")]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; clap knows which stream and status each takes.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match arguments.command.run() {
        Ok(status) => status,
        Err(failure) => {
            for line in failure.to_string().lines() {
                eprintln!("netlathe: {line}");
            }
            ExitCode::from(Failure::STATUS)
        }
    }
}

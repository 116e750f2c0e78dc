use super::values::{TraceInterval, parse, parse_count, parse_sampling};
use clap::Subcommand;
use slice::Windows;
use std::ffi::OsString;
use std::path::PathBuf;

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
    Kernel(KernelSlices),
    Pipeline(PipelineSlices),
    Attach(Attach),
}

/// Slices of the Linux path: system call, TCP, IP, link, driver, softirq, socket, application
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe slice kernel --port 8080 --duration 10s
  netlathe slice kernel --json -- ./ping-pong 127.0.0.1 1000
  netlathe slice kernel --port 53 --each lines --count 20
  netlathe slice kernel --pid 4711 -w records.jsonl; netlathe slice kernel -r records.jsonl
  netlathe slice kernel --counters cycles,instructions,context-switches -- ./ping-pong 127.0.0.1 1000
  netlathe slice kernel --port 443 --windows 20ms/1s --duration 60s

Packets with a TCP or UDP payload are traced from the send call to the return of the receive call, also between
namespaces of this machine. With COMMAND, only packets that it or its child processes send or receive are traced,
and the run ends with it. A packet must match all filters. Exit status 1: COMMAND failed.
docs/reference/slice.md defines each slice.")]
pub(crate) struct KernelSlices {
    /// Only packets from or to this port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Only packets sent or received by this process or its children; the run ends when all of them have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Only packets sent or received by threads of this name, as ps -L -o comm shows it
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) comm: Option<String>,
    /// Part of the path: tx ends at the driver, rx begins at the receiver's queue
    #[arg(long, value_name = "WAY", default_value = "both", value_parser = ["tx", "rx", "both"])]
    pub(crate) direction: String,
    /// Stamp at all points that this kernel has, or at few: five points, no system calls, a third of the cost
    #[arg(long, value_name = "SET", default_value = "all", value_parser = ["all", "few"])]
    pub(crate) points: String,
    /// Count events in each slice, up to four, by perf's names: cycles, cache-misses, context-switches, r1a8, msr/tsc/
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = parse::<slice::Event>)]
    pub(crate) counters: Vec<slice::Event>,
    /// Trace packets in windows, such as 20 ms in each second; between windows the probes are detached and cost nothing
    #[arg(long, value_name = "OPEN/EVERY", value_parser = parse::<Windows>)]
    pub(crate) windows: Option<Windows>,
    /// End after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse::<units::Span>)]
    pub(crate) duration: Option<units::Span>,
    /// End after this number of packets
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) count: Option<u64>,
    /// Print only the report on stdout, as one JSON object
    #[arg(long, conflicts_with = "each")]
    pub(crate) json: bool,
    /// Also show figures as stamped
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print each packet as it arrives: one line, one JSON line, or a waterfall
    #[arg(long, value_name = "FORM", value_parser = ["lines", "json", "waterfall"])]
    pub(crate) each: Option<String>,
    /// Write each packet's stamps to a file as JSON lines
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Read packets from such a file instead of the kernel
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["port", "pid", "comm", "direction", "points", "counters", "windows", "duration", "write", "buffer", "program"])]
    pub(crate) read: Option<PathBuf>,
    /// Write the report as an HTML page, DIR/report.html, with its data in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Size of the record buffer; a packet takes 472 B, with --counters 1496 B
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_buffer)]
    pub(crate) buffer: u32,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The command to run, and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// Slices of netlathe's own pipelines: the port's ring, arrival, each stage, queue, pacer, driver
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe slice pipeline -- emulate --in pcap:in.pcap --out pcap:out.pcap --forward 'delay 200us'
  netlathe slice pipeline --every 1/64 -- emulate --between eth0 eth1 --both 'delay 10ms' --duration 10s
  netlathe slice pipeline --kernel --port 7 -- emulate --between c0 s0 --forward 'delay 200us' --duration 5s
  netlathe slice pipeline --each waterfall -- shape --in pcap:in.pcap --out wire:10G --gap 10us

COMMAND is shape, emulate, limit, gen or run with its options. The slices are added to its report, as by
--slices there. docs/reference/slice.md defines each slice. The wait of frames in a port's ring is known for
af_packet, af_xdp and TAP devices; for other ports the report says that it is unknown.")]
pub(crate) struct PipelineSlices {
    /// Trace one frame in N
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = parse_sampling)]
    pub(crate) every: TraceInterval,
    /// Print each frame as it departs: one line, one JSON line, or a waterfall
    #[arg(long, value_name = "FORM", value_parser = ["lines", "json", "waterfall"])]
    pub(crate) each: Option<String>,
    /// Also trace the packets in the kernel, from the sending program to the receiving one on this machine
    #[arg(long)]
    pub(crate) kernel: bool,
    /// With --kernel, only packets from or to this port
    #[arg(long, value_name = "N", requires = "kernel", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// A command of netlathe, and its options
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// Sections of a program with probes: turn the probes on, read them, report them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe slice attach /dev/shm/server.probes --duration 10s
  netlathe slice attach /dev/shm/server.probes --each lines --count 100
  netlathe slice attach new.probes --buffer 64MiB --json

RING is the file that the program gives to Ring::configure (Rust) or netlathe_configure (C); with --buffer it is
created for a later program. The probes are on until this command ends. docs/reference/slice.md describes the
probes and the report.")]
pub(crate) struct Attach {
    /// The ring file
    #[arg(value_name = "RING")]
    pub(crate) ring: PathBuf,
    /// Create the ring with this size if there is none; a block takes 288 B
    #[arg(long, value_name = "SIZE", value_parser = parse_buffer)]
    pub(crate) buffer: Option<u32>,
    /// End after this time, such as 10s
    #[arg(long, value_name = "TIME", value_parser = parse::<units::Span>)]
    pub(crate) duration: Option<units::Span>,
    /// End after this number of blocks
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) count: Option<u64>,
    /// Print only the report on stdout, as one JSON object
    #[arg(long, conflicts_with = "each")]
    pub(crate) json: bool,
    /// Also show figures as stamped
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print each block as it arrives, on one line
    #[arg(long, value_name = "FORM", value_parser = ["lines"])]
    pub(crate) each: Option<String>,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

fn parse_name(text: &str) -> Result<String, units::ParseError> {
    if text.is_empty() || text.len() > 15 {
        let what = format!("'{text}' is not a thread name");
        return Err(units::ParseError::new(what, "write 1 to 15 bytes, as ps -L -o comm shows it"));
    }
    Ok(text.to_owned())
}

fn parse_buffer(text: &str) -> Result<u32, units::ParseError> {
    let size = units::parse_size(text)?;
    let wrong =
        || units::ParseError::new(format!("'{text}' is not a ring size"), "write a power of two from 64KiB to 1GiB");
    let bytes = u32::try_from(size).map_err(|_| wrong())?;
    if bytes.is_power_of_two() && (65_536..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err(wrong()) }
}

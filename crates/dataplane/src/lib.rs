//! Live runs: opens ports and carries out the engine's departures on them.
//!
//! The engine decides when a frame departs. This crate waits for that instant and hands the frame to the driver, or
//! fills the line up to it. Placement is *inline*: one thread receives, runs the stages and sends, with departures
//! first; or *split*: receiving, classes, stages and departures have separate threads if there are enough CPUs. Every
//! frame received is accounted for, however a run ends.

mod answers;
mod arrivals;
mod changes;
mod config;
mod counters;
mod deadline;
mod device;
mod duplex;
mod feeder;
mod filler;
mod fillers;
mod flood;
mod floor;
mod intake;
mod launch;
mod line;
mod maker;
mod metered;
mod neighbour;
mod outlet;
mod placement;
mod pools;
mod queue;
mod replay;
mod return_path;
mod rounds;
mod site_forwarder;
mod slices;
mod stamped_arrivals;
mod start_gate;
mod stream_burst;
mod worker;

pub use arrivals::{ArrivalPort, ArrivalQueues};
pub use changes::{ChangeReceiver, ChangeSender, change_queue};
pub use config::{Config, Feed, Pacing};
pub use counters::Counters;
pub use device::{Device, Driver};
pub use dpdk::LaunchTime;
pub use duplex::{DuplexPort, FrameSender};
pub use floor::Floor;
pub use line::OnLine;
pub use metered::{MOST_LIVE_WORKERS, has_threads, limit_stage};
pub use replay::{BufferedReplay, FrameSupply};
pub use site_forwarder::{ForwarderCounters, SiteForwarder, SitePort};
pub use stamped_arrivals::{Arrival, StampedArrivals};
pub use start_gate::StartGate;
pub use worker::{Finished, PortSummary, Worker, pin};

/// Why a live run could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error from DPDK or the kernel.
    #[error(transparent)]
    Dpdk(#[from] dpdk::Error),
    /// No neighbour answered with its MAC address.
    #[error(
        "no answer for {neighbour} within {seconds} s: {request} from {from}; check that it is up and on this link, or write dmac MAC in the stream"
    )]
    NoAnswer {
        /// The address requested.
        neighbour: std::net::IpAddr,
        /// ARP or neighbour discovery.
        request: &'static str,
        /// Our address in the request.
        from: std::net::IpAddr,
        /// Waiting time in seconds.
        seconds: u64,
    },
    /// A thread cannot run on the requested CPU.
    #[error("cannot run on CPU {cpu}: {cause}: name CPUs that exist and are allowed, see taskset -p $$")]
    Cpu {
        /// Number of the CPU.
        cpu: usize,
        /// The kernel's error.
        cause: &'static str,
    },
    /// The asked start had passed before the ports were open.
    #[error(
        "--start-at: the ports were ready {} ms after the instant: name a later one",
        late_ns.div_ceil(1_000_000)
    )]
    Late {
        /// How long ago it was.
        late_ns: u64,
    },
    /// A thread cannot be created.
    #[error("cannot start a thread: {0}: ask for fewer workers, or see ulimit -u")]
    Thread(String),
    /// An impossible request, with the remedy.
    #[error(transparent)]
    Asked(#[from] units::ParseError),
    /// An interface lacks the queues that AF_XDP sockets need.
    #[error("interface {interface}: {cause}: {remedy}")]
    Queues {
        /// Name of the interface.
        interface: String,
        /// The problem.
        cause: String,
        /// The remedy.
        remedy: String,
    },
    /// The worker's thread panicked.
    #[error("the worker of pipeline {0} failed: this is a bug in netlathe: please report it with the lines above")]
    Worker(String),
}

//! Real time: opens live ports and makes the engine's departures happen on them.
//!
//! The engine says when a frame departs, this crate waits for that instant and hands the frame to
//! the driver, or fills the line up to it. Placement is *inline*: one thread receives, runs the stages
//! and sends, departures first; or *split*: receiving, classes, stages and departures are threads of
//! their own, as many as there are CPUs for. Everything that came is in the books when a run ends, however it ends.

mod answers;
mod back;
mod config;
mod counters;
mod deadline;
mod device;
mod feeder;
mod filler;
mod fillers;
mod flood;
mod floor;
mod fresh;
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
mod rounds;
mod slices;
mod worker;

pub use config::{Config, Feed, Pacing};
pub use counters::Counters;
pub use device::{Device, Driver};
pub use dpdk::LaunchTime;
pub use floor::Floor;
pub use line::OnLine;
pub use metered::{MOST_LIVE_WORKERS, has_threads, limit_stage};
pub use replay::{Supply, Whole};
pub use worker::{Finished, PortSummary, Worker};

/// Why a live run could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What DPDK or the kernel refused.
    #[error(transparent)]
    Dpdk(#[from] dpdk::Error),
    /// Nobody told the hardware address of a neighbour.
    #[error(
        "nobody answers for {neighbour} in {seconds} s: {asked} from {from}; check that it is up and on this link, or write dmac MAC in the stream"
    )]
    Nobody {
        /// Who was asked for.
        neighbour: std::net::IpAddr,
        /// ARP or neighbour discovery.
        asked: &'static str,
        /// The address that asked.
        from: std::net::IpAddr,
        /// How long, in seconds.
        seconds: u64,
    },
    /// A thread cannot run on the CPU that was asked for.
    #[error("cannot run on CPU {cpu}: {cause}: name CPUs that are there and allowed, see taskset -p $$")]
    Cpu {
        /// Its number.
        cpu: usize,
        /// The kernel's answer.
        cause: &'static str,
    },
    /// No more threads.
    #[error("cannot start a thread: {0}: ask for fewer workers, or see ulimit -u")]
    Thread(String),
    /// What is asked cannot be had, with what to write instead.
    #[error(transparent)]
    Asked(#[from] units::ParseError),
    /// An interface has not the queues that AF_XDP sockets need.
    #[error("interface {interface}: {cause}: {remedy}")]
    Queues {
        /// Its name.
        interface: String,
        /// What is missing.
        cause: String,
        /// What to write or do instead.
        remedy: String,
    },
    /// The worker's thread ended by a panic.
    #[error("the worker of pipeline {0} failed: this is a defect of netlathe, please report it with what is above")]
    Worker(String),
}

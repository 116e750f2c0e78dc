//! A safe binding to DPDK ports, pools and bursts, and to packet rings: the fence around unsafe.
//!
//! - [`Eal`] starts DPDK once per process, quietly, with arguments that let several processes run at
//!   once and an unprivileged user run one in a user namespace.
//! - [`Pool`] owns frame buffers; an [`Mbuf`] is one of them and a [`Burst`] up to 64. Each frees what
//!   it holds, and nothing else can.
//! - A [`Kept`] frame is sent again and again, and shared with the drivers that have not sent it yet.
//! - [`Port::open`] attaches a device of DPDK, [`Port::packet`] opens packet sockets, [`Port::start`] hands out its [`RxQueue`]s and [`TxQueue`]s,
//!   once. The port stops and goes when it and the last of its queues are dropped.
//! - [`EventDevice`] deals frames to workers so that those of a flow are with one at a time, in order.
//! - [`TscClock`] reads the time-stamp counter in picoseconds, at the kernel's rate.
//! - [`Detour`] leads the frames of an interface through two TAP devices and back.
//! - [`LinkChanges`] tells that an interface has changed.
//! - [`relation`] tells how two interfaces hang together, [`host_uses`] what the host does with one.
//! - [`give_up`] takes rights from all threads of this process.
//! - [`wake_first`] tells the kernel of a thread that must not wake late.
//! - [`PacketSender`] sends single frames on a Linux interface, without DPDK.
//! - [`PacketRing`] receives from a Linux interface with the kernel's stamps, without DPDK.
//!
//! No function here panics for want of memory, frames or privileges; an empty pool is `None` or 0,
//! a failed set-up an [`Error`] with DPDK's own last words and, where known, what to do about it.

mod attached;
mod burst;
mod clock;
mod detour;
mod eal;
mod error;
mod events;
mod host_use;
mod interface;
mod kept;
mod launch;
mod link_changes;
mod losses;
mod mbuf;
mod memory;
mod netlink;
mod outgoing;
mod packet_port;
mod packet_ring;
mod packet_sender;
mod pool;
mod port;
mod priority;
mod queues;
mod relation;
mod rights;
mod stops;
mod tap_sender;
mod tap_stamps;
mod vdev;
mod waits;
mod xdp;
mod xdp_stamps;

pub use burst::{BURST, Burst, Drain};
pub use clock::TscClock;
pub use detour::{Detour, Passed, Pulse, seclude};
pub use eal::{Eal, EalConfig, HugePages, LogLevel, WorkerGuard};
pub use error::Error;
pub use events::{EventCollector, EventDevice, EventFeeder, EventScheduler, EventWorker};
pub use host_use::{HostUse, host_uses, way_to};
pub use interface::{Link, is_there, link};
pub use kept::Kept;
pub use launch::{LaunchField, LaunchTime, NicClock};
pub use link_changes::LinkChanges;
pub use mbuf::Mbuf;
pub use memory::{OrEnd, prefer_huge_pages};
pub use outgoing::Outgoing;
pub use packet_ring::{Batch, Frames, PacketRing, Received, RingConfig, RingCounts, Vlan};
pub use packet_sender::PacketSender;
pub use pool::Pool;
pub use port::{Narrower, Port, PortConfig, PortInfo, PortInterface, PortStats, Started};
pub use priority::wake_first;
pub use queues::{RxQueue, TxQueue};
pub use relation::{Relation, is_veth, relation};
pub use rights::{give_up, give_up_here};
pub use stops::ignore_stops;
pub use vdev::Vdev;
pub use xdp::xdp_program;

/// The result of what can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

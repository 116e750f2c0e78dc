//! A safe binding to DPDK ports, pools and bursts, and to packet rings. All unsafe code is in this crate.
//!
//! - [`Eal`] starts DPDK once per process without output. Its arguments let several processes run at once, and let an
//!   unprivileged user run one in a user namespace.
//! - [`Pool`] owns frame buffers. An [`Mbuf`] is one buffer and a [`Burst`] holds up to 64. Each frees its frames when
//!   dropped.
//! - A [`SharedFrame`] can be sent many times. It is shared with drivers that have not sent it yet.
//! - [`Port::open`] attaches a DPDK device and [`Port::packet`] opens packet sockets. [`Port::start`] returns the
//!   [`RxQueue`]s and [`TxQueue`]s, once. The port closes when it and its last queue are dropped.
//! - [`EventDevice`] distributes frames to workers. Frames of one flow stay in order and are with one worker at a time.
//! - [`TscClock`] reads the time-stamp counter in picoseconds, at the kernel's rate.
//! - [`Detour`] redirects the frames of an interface through two TAP devices and back.
//! - [`LinkChanges`] reports that an interface has changed.
//! - [`relation`] returns how two interfaces are connected, and [`host_uses`] how the host uses one.
//! - [`drop_capabilities`] drops rights on all threads of this process.
//! - [`set_high_priority`] and [`set_realtime_priority`] give a thread priority when it wakes, [`raise_priority`] for
//!   some moments.
//! - [`PacketSender`] sends single frames on a Linux interface, without DPDK.
//! - [`StampedSocket`] receives and sends single frames, with the kernel's stamps, without DPDK.
//! - [`PacketRing`] receives from a Linux interface with the kernel's stamps, without DPDK.
//!
//! No function panics for lack of memory, frames or privileges. An empty pool returns `None` or 0. A failed set-up
//! returns an [`Error`] with DPDK's last log messages and, where known, the remedy.

mod attached;
mod burst;
mod clock;
mod detour;
mod eal;
mod error;
mod events;
mod host_use;
mod interface;
mod launch;
mod link_changes;
mod losses;
mod mbuf;
mod memory;
mod netlink;
mod nic;
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
mod shared_frame;
mod stamped_socket;
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
pub use host_use::{HostUse, host_uses, route_interface};
pub use interface::{Link, is_there, link};
pub use launch::{LaunchField, LaunchTime, NicClock};
pub use link_changes::LinkChanges;
pub use mbuf::Mbuf;
pub use memory::{AbortOnOutOfMemory, name_less_memory, prefer_huge_pages};
pub use nic::{DRIVERS_FOR_PROGRAMS, SHARED_DRIVERS, pci_address};
pub use outgoing::Outgoing;
pub use packet_ring::{Batch, Frames, PacketRing, Received, RingConfig, RingCounts, Vlan};
pub use packet_sender::PacketSender;
pub use pool::Pool;
pub use port::{MtuLimits, NicLink, Port, PortConfig, PortInfo, PortInterface, PortStats, Started};
pub use priority::{raise_priority, restore_priority, set_high_priority, set_realtime_priority};
pub use queues::{RxQueue, TxQueue};
pub use relation::{Relation, is_veth, relation};
pub use rights::{drop_capabilities, drop_thread_capabilities};
pub use shared_frame::SharedFrame;
pub use stamped_socket::{StampedFrame, StampedSocket, steady_ns};
pub use stops::ignore_stops;
pub use vdev::Vdev;
pub use xdp::xdp_program;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

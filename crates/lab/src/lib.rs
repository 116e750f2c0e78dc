//! Test networks of namespaces, veth pairs and bridges.
//!
//! A lab is a small network inside one machine: one or more client namespaces, a *box* in the middle, and a server.
//! Programs run unmodified at the ends; netlathe runs in the box.
//!
//! ```text
//!  client1 eth0 ──┐
//!  client2 eth0 ──┤ switch ├── c0 box s0 ── eth0 server          (one client: eth0 is wired to c0, no switch)
//!  client3 eth0 ──┘
//! ```
//!
//! A lab of sites has one namespace per site instead. Each is connected to the box, where a forwarder delays the frames
//! of each pair of sites.
//!
//! A lab guarantees:
//! - The kernel forwards nothing in the box. Its interfaces have no address, no IPv6 and no ARP, so a frame reaches the
//!   far side only if a program in the box carries it.
//! - Frames look as they do on a real wire: segmentation, aggregation and checksum offloads are off at every end. The
//!   settings are read back to verify this.
//! - An idle lab is silent: MAC addresses are fixed and every end has static entries for the others, so no ARP or
//!   neighbour discovery disturbs measurements. (In the first second IPv6 reports its multicast groups.)
//! - Nothing is left behind. A lab is removed if its build fails, when a [`Guard`] is dropped and when [`run()`] ends.
//!   [`down`] finds what a killed process left, with or without its record.
//! - Nothing is created in the caller's network namespace.
//!
//! Labs are built by running `ip` and `ethtool`, so that each step can be read and repeated by hand; errors contain the
//! command that failed. This crate prints nothing.

mod assemble;
mod error;
mod hosts_file;
mod inside_lab;
mod list;
mod offload;
mod processes;
mod record;
mod run;
mod tool;
mod topology;
mod user_namespace;

pub use assemble::{Ended, Guard, Lab, down, down_of, up};
pub use error::{Error, Result};
pub use inside_lab::{LabInterface, made_here};
pub use list::{Forwarder, Interface, NodeSummary, State, Summary, list};
pub use run::{RunRequest, default_name, run, run_by};
pub use tool::which;
pub use topology::{DEFAULT_NAME, MAX_CLIENTS, MAX_SITES, Node, Shape, Site, SiteWay, Topology};
pub use user_namespace::{in_user_namespace, permit_user_namespaces, privileged, reexec_in_user_namespace};

//! Namespaces, veth pairs and bridges to test in.
//!
//! A lab is a small network inside one machine: one or more client namespaces, a *box* in the middle, and a server.
//! Programs run in the ends unmodified; the box is where netlathe runs.
//!
//! ```text
//!  client1 eth0 ──┐
//!  client2 eth0 ──┤ switch ├── c0 box s0 ── eth0 server          (one client: eth0 is wired to c0, no switch)
//!  client3 eth0 ──┘
//! ```
//!
//! What a lab guarantees:
//! - The kernel forwards nothing in the box. Its interfaces have no address, no IPv6 and no ARP, so a frame reaches
//!   the far side only when a program in the box carries it.
//! - A frame on a wire is what the application sent, as a real wire would show it: segmentation, aggregation and
//!   checksum offloads are off at every end, and that they *are* off has been read back.
//! - A quiet lab is silent: MAC addresses are fixed and every end knows the others', so no ARP or neighbour
//!   discovery is mixed into what is measured. (In its first second IPv6 reports its multicast groups.)
//! - Nothing is left behind: what was built goes when building fails half-way, when a [`Guard`] is dropped and when
//!   [`run()`] ends; what a killed process left is found again by [`down`], with or without its record.
//! - Nothing is made in the caller's network namespace.
//!
//! It is done by running `ip` and `ethtool`, so that each step can be read, and repeated by hand; errors carry the
//! command that failed. This crate prints nothing.

mod assemble;
mod error;
mod held;
mod here;
mod list;
mod offload;
mod record;
mod run;
mod tool;
mod topology;
mod user_namespace;

pub use assemble::{Ended, Guard, Lab, down, up};
pub use error::{Error, Result};
pub use here::{Own, made_here};
pub use list::{Interface, NodeSummary, State, Summary, list};
pub use run::{Run, default_name, run};
pub use tool::which;
pub use topology::{DEFAULT_NAME, MAX_CLIENTS, Node, Shape, Topology};
pub use user_namespace::{in_user_namespace, permit_user_namespaces, privileged, reexec_in_user_namespace};

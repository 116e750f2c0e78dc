//! Finds other netlathe processes that forward the frames of an interface. With packet sockets, each of them gets all
//! frames.

use crate::output;
use scenario::{PipelinePlan, PortSpec};
use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;

/// Announces the interfaces that this process forwards with packet sockets. The announcement ends with the process.
#[derive(Default)]
pub(super) struct ForwardedInterfaces(Vec<(String, UnixDatagram)>);

/// The driver that shares arriving frames with other programs; `af_xdp` does not.
const SHARES: &str = "net_af_packet";

impl ForwardedInterfaces {
    /// Warns about other netlathe processes that forward frames arriving at the ports of a pipeline, opened with these
    /// drivers.
    pub(super) fn note(&mut self, plan: &PipelinePlan, drivers: &[&str]) {
        if plan.input_ports().next().is_none() {
            return;
        }
        let inputs = plan.input_ports().map(PortSpec::interface);
        let output = plan.output.interface().filter(|_| !plan.one_way);
        for (interface, driver) in inputs.chain([output]).zip(drivers) {
            if let Some(interface) = interface.filter(|_| *driver == SHARES) {
                self.note_netlathes(interface);
            }
        }
    }

    /// Warns about other netlathe processes that forward frames of an interface, and announces this one. Each process
    /// binds a socket with an abstract name. Such sockets belong to a network namespace, need no rights and end with
    /// their process.
    fn note_netlathes(&mut self, interface: &str) {
        let Ok(link) = dpdk::link(interface) else { return };
        let of_interface = format!("netlathe/carries/{}/", link.index);
        // The announcement precedes the search, so that two processes that start at once find each other.
        let Some(own) = bind(&of_interface) else { return };
        let table = fs::read("/proc/thread-self/net/unix").unwrap_or_default();
        let table = String::from_utf8_lossy(&table);
        let names = table.lines().filter_map(|line| Some(line.rsplit_once(" @")?.1));
        let others = names.filter(|name| name.starts_with(&of_interface) && *name != own.0);
        let this = process::id().to_string();
        let mut owners: Vec<String> = others
            .filter_map(|name| match name[of_interface.len()..].split('/').next()? {
                process if process == this => Some("another pipeline of this run".to_owned()),
                process => Some(format!("another netlathe (process {process})")),
            })
            .collect();
        owners.dedup();
        if !owners.is_empty() {
            output::warn(format!(
                "{interface}: {} also forwards what arrives there, so each frame is forwarded twice: end one of them",
                owners.join(" and ")
            ));
        }
        self.0.push(own);
    }
}

/// A socket with an unused name that starts with this prefix.
fn bind(beginning: &str) -> Option<(String, UnixDatagram)> {
    // Two pipelines of one process need different names. So do processes with equal IDs in containers that share a
    // network namespace.
    for number in 0..64 {
        let name = format!("{beginning}{}/{number}", process::id());
        match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).ok()?) {
            Ok(socket) => return Some((name, socket)),
            Err(cause) if cause.kind() == ErrorKind::AddrInUse => {}
            Err(_) => return None,
        }
    }
    None
}

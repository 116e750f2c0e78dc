//! An interface of this host whose frames are diverted through netlathe.

use crate::output::Failure;
#[cfg(feature = "live")]
use std::path::Path;

/// The longest packet that DPDK's TAP devices carry, in bytes.
#[cfg(feature = "live")]
const MTU: u32 = 1_500;

/// An interface, and the TAP devices through which its frames are diverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DetourPlan {
    pub(crate) interface: String,
    /// Frames sent by the host arrive here.
    pub(crate) host: String,
    /// Frames received from the link arrive here.
    pub(crate) wire: String,
}

impl DetourPlan {
    /// Checks that the detour is possible. Changes nothing.
    #[cfg(feature = "live")]
    pub(crate) fn check(interface: &str) -> Result<DetourPlan, Failure> {
        let link = dpdk::link(interface).map_err(|cause| match scenario::name_before_peer(interface) {
            Some(own) => Failure::new(format!("--on: {cause}; ip link prints that for {own}: write {own}")),
            None => Failure::new(cause),
        })?;
        if !link.ethernet {
            return Err(Failure::new(format!(
                "--on {interface}: it is not an Ethernet interface: name an Ethernet interface, or build a network with netlathe lab up"
            )));
        }
        if !link.up {
            return Err(Failure::new(dpdk::Error::InterfaceDown { name: interface.to_owned() }));
        }
        if link.mtu > MTU {
            return Err(Failure::new(format!(
                "--on {interface}: its MTU is {}, and DPDK's TAP devices carry at most {MTU}: ip link set {} mtu {MTU}",
                link.mtu,
                units::quoted(interface)
            )));
        }
        if !is_first_user_namespace() {
            return Err(Failure::new(format!(
                "--on {interface}: needs root outside of user namespaces, since it loads programs into the kernel: run it with sudo, or use --between in netlathe lab run"
            )));
        }
        crate::rights::require(&crate::rights::list::ON)?;
        // The names contain the interface's index, so that two runs cannot use one interface.
        let [host, wire] = ["nlh", "nlw"].map(|side| format!("{side}{}", link.index));
        if dpdk::link(&host).is_ok() || dpdk::link(&wire).is_ok() {
            return Err(Failure::new(format!(
                "--on {interface}: another netlathe already uses it, through {host} and {wire}: end that one first"
            )));
        }
        super::xdp_programs::warn_if_any(interface);
        Ok(DetourPlan { interface: interface.to_owned(), host, wire })
    }

    #[cfg(not(feature = "live"))]
    pub(crate) fn check(_: &str) -> Result<DetourPlan, Failure> {
        Err(Failure::no_live_ports())
    }

    /// Returns the peer of the SSH session that this process descends from, if the detour may cut it off: the route to
    /// the peer uses the interface or is unknown.
    #[cfg(feature = "live")]
    pub(crate) fn carries_session(&self) -> Option<String> {
        let (text, route) = session()?;
        route.is_none_or(|route| route == self.interface).then_some(text)
    }

    #[cfg(not(feature = "live"))]
    pub(crate) fn carries_session(&self) -> Option<String> {
        None
    }
}

/// Returns the peer of the SSH session that this process descends from, if the route to the peer uses this interface.
#[cfg(feature = "live")]
pub(crate) fn session_by(interface: &str) -> Option<String> {
    let (peer, route) = session()?;
    (route.as_deref() == Some(interface)).then_some(peer)
}

/// Returns the address of the SSH peer, and the interface of the route to it if that is known.
#[cfg(feature = "live")]
fn session() -> Option<(String, Option<String>)> {
    let peer = ssh_peer()?;
    // A link-local address names its interface after `%`.
    let route = match peer.split_once('%') {
        Some((_, zone)) => Some(zone.to_owned()),
        None => peer.parse().ok().and_then(dpdk::route_interface),
    };
    Some((peer, route))
}

/// Whether the capabilities of this process apply to the whole machine. They do not in `unshare -Urn`, or in labs of
/// ordinary users.
#[cfg(feature = "live")]
fn is_first_user_namespace() -> bool {
    // Only the initial user namespace maps all users to themselves.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Returns the peer's address from `SSH_CONNECTION` of this process or an ancestor. The ancestors are searched because
/// `sudo` removes the variable.
#[cfg(feature = "live")]
fn ssh_peer() -> Option<String> {
    let mut process = std::process::id();
    while process > 1 {
        let folder = Path::new("/proc").join(process.to_string());
        let variables = std::fs::read(folder.join("environ")).unwrap_or_default();
        let found = variables.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"SSH_CONNECTION="));
        if let Some(peer) = found.and_then(|value| value.split(|byte| *byte == b' ').next()) {
            return Some(String::from_utf8_lossy(peer).into_owned());
        }
        // The name is in parentheses and may contain spaces. The state and the parent follow it.
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        process = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

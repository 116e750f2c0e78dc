//! Connections between two interfaces inside the kernel. If two interfaces are connected, frames may loop or be sent
//! twice.

use crate::Result;
use crate::interface::Interface;
use crate::netlink::{self, attributes, attributes_in, number};

/// The connection between two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both names refer to the same interface.
    Same,
    /// The interfaces are the two ends of a veth pair.
    Pair,
    /// The interfaces are ports of the bridge with this name.
    Bridged(String),
    /// Frames sent on the first interface leave by the second, which is its port or its lower link.
    Above(String, String),
}

/// An interface and its relations to other interfaces, as the kernel reports them.
struct LinkInfo {
    interface: Interface,
    /// The lower link or a veth's other end, if it is in the same network namespace.
    link: Option<u32>,
    /// The bridge or bond that has this interface as a port.
    master: Option<u32>,
    kind: Option<String>,
}

impl LinkInfo {
    fn of(interface: Interface) -> Result<LinkInfo> {
        let answer = netlink::request(&interface, "its position")?;
        let all = attributes_in(&answer).unwrap_or_default();
        let elsewhere = all.iter().any(|(kind, _)| *kind == libc::IFLA_LINK_NETNSID);
        let about = all.iter().find(|(kind, _)| *kind == libc::IFLA_LINKINFO);
        let about = about.map(|(_, value)| attributes(value)).unwrap_or_default();
        let kind = about.iter().find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
        let kind = kind.map(|(_, name)| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
        let link = number(&all, libc::IFLA_LINK).filter(|_| !elsewhere);
        Ok(LinkInfo { interface, link, master: number(&all, libc::IFLA_MASTER), kind })
    }

    fn is_above(&self, other: &LinkInfo) -> bool {
        self.link == Some(other.interface.index) || other.master == Some(self.interface.index)
    }
}

/// Whether an interface of the calling thread's network namespace is one end of a veth pair.
///
/// # Errors
/// [`Error::NoInterface`](crate::Error::NoInterface), [`Error::System`](crate::Error::System).
pub fn is_veth(name: &str) -> Result<bool> {
    Ok(LinkInfo::of(Interface::named(name)?)?.kind.as_deref() == Some("veth"))
}

/// Returns the connection between two interfaces of the calling thread's network namespace, if any. Indirect
/// connections, such as a bridge behind a veth, are not found.
///
/// # Errors
/// [`Error::NoInterface`](crate::Error::NoInterface), [`Error::System`](crate::Error::System).
pub fn relation(one: &str, other: &str) -> Result<Option<Relation>> {
    let (one, other) = (Interface::named(one)?, Interface::named(other)?);
    if one.index == other.index {
        return Ok(Some(Relation::Same));
    }
    let (one, other) = (LinkInfo::of(one)?, LinkInfo::of(other)?);
    let name = |link: &LinkInfo| link.interface.name.clone();
    let above = |upper: &LinkInfo, lower: &LinkInfo| Some(Relation::Above(name(upper), name(lower)));
    if one.link == Some(other.interface.index) && other.link == Some(one.interface.index) {
        return Ok(Some(Relation::Pair));
    }
    Ok(if one.is_above(&other) {
        above(&one, &other)
    } else if other.is_above(&one) {
        above(&other, &one)
    } else if let (Some(master), true) = (one.master, one.master == other.master)
        && let Some(bridge) = Interface::numbered(master)
    {
        // Other masters, such as bonds, do not forward between their ports.
        let bridge = LinkInfo::of(bridge)?;
        (bridge.kind.as_deref() == Some("bridge")).then(|| Relation::Bridged(name(&bridge)))
    } else {
        None
    })
}

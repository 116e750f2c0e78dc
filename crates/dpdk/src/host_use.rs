//! How this host uses an interface. If netlathe takes the interface's frames, the host loses these uses.

use crate::interface::Interface;
use crate::netlink::{attributes, dump, look_up, number};
use crate::{Error, Result};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One use of an interface by this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostUse {
    /// The interface has this address with this prefix length.
    Address(IpAddr, u8),
    /// The default route uses the interface.
    DefaultRoute,
    /// The route to this network, with this prefix length, uses the interface.
    Route(IpAddr, u8),
    /// The interface is a port of a bridge, bond or team, or a slave of another kind. The fields are the master's kind
    /// and name.
    PortOf(String, String),
    /// The interface is a bridge, bond, team or similar. The fields are its kind and the name of its first port, if
    /// any.
    Carries(String, Option<String>),
    /// The host uses another interface on top of this one, such as a VLAN.
    Under(String, Box<HostUse>),
}

impl fmt::Display for HostUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostUse::Address(address, prefix) => write!(f, "it has the address {address}/{prefix}"),
            HostUse::DefaultRoute => f.write_str("the default route leaves by it"),
            HostUse::Route(network, prefix) => write!(f, "the route to {network}/{prefix} leaves by it"),
            HostUse::PortOf(kind, name) => write!(f, "it is a port of the {kind} {name}"),
            HostUse::Carries(kind, None) => write!(f, "it is a {kind}"),
            HostUse::Carries(kind, Some(port)) => write!(f, "it is a {kind} with the port {port}"),
            HostUse::Under(name, why) => write!(f, "{name} is on top of it: {why}"),
        }
    }
}

/// Kinds of interfaces that carry the traffic of their ports.
const MASTERS: [&str; 3] = ["bridge", "bond", "team"];
/// Kinds of paired interfaces, whose ends name each other as their lower link.
const PAIRS: [&str; 2] = ["veth", "netkit"];

/// Returns all uses of an interface of the calling thread's network namespace. Link-local addresses, and routes that
/// the kernel creates for addresses, do not count.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn host_uses(interface: &str) -> Result<Vec<HostUse>> {
    let index = Interface::named(interface)?.index;
    let links = dump(libc::RTM_GETLINK, libc::AF_UNSPEC as u8, "the interfaces")?;
    let addresses = dump(libc::RTM_GETADDR, libc::AF_UNSPEC as u8, "the addresses")?;
    let mut routes = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // A kernel without IPv6 refuses to list IPv6 routes.
        match dump(libc::RTM_GETROUTE, family as u8, "the routes") {
            Ok(more) => routes.extend(more.iter().filter_map(|body| Route::read(body))),
            Err(Error::System { .. }) if family == libc::AF_INET6 => {}
            Err(error) => return Err(error),
        }
    }
    let table = Table {
        links: links.iter().filter_map(|body| Link::read(body)).collect(),
        addresses: addresses.iter().filter_map(|body| Address::read(body)).collect(),
        routes,
    };
    Ok(table.uses(index))
}

/// Returns the outgoing interface for an address. `None` if there is no route.
#[must_use]
pub fn route_interface(address: IpAddr) -> Option<String> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut head = [0; ROUTE];
    (head[0], head[1]) = (family as u8, bytes.len() as u8 * 8);
    let length = (4 + bytes.len()) as u16;
    let attribute = [length.to_ne_bytes(), libc::RTA_DST.to_ne_bytes()].concat();
    let body = look_up(libc::RTM_GETROUTE, &[&head, &attribute, &bytes])?;
    let index = number(&attributes(body.get(ROUTE..)?), libc::RTA_OIF)?;
    Interface::numbered(index).map(|interface| interface.name)
}

/// Lengths of `struct ifinfomsg`, `struct ifaddrmsg` and `struct rtmsg`.
const LINK: usize = 16;
const ADDRESS: usize = 8;
const ROUTE: usize = 12;

struct Link {
    index: u32,
    name: String,
    kind: String,
    /// The lower link in this network namespace.
    on: Option<u32>,
    master: Option<u32>,
}

impl Link {
    fn read(body: &[u8]) -> Option<Link> {
        let index = u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
        let all = attributes(body.get(LINK..)?);
        let text = |all: &[(u16, &[u8])], kind| {
            let value = all.iter().find(|(found, _)| *found == kind)?.1;
            Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned())
        };
        let about = all.iter().find(|(kind, _)| *kind == libc::IFLA_LINKINFO).map(|(_, value)| attributes(value));
        let elsewhere = all.iter().any(|(kind, _)| *kind == libc::IFLA_LINK_NETNSID);
        Some(Link {
            index,
            name: text(&all, libc::IFLA_IFNAME)?,
            kind: about.and_then(|about| text(&about, libc::IFLA_INFO_KIND)).unwrap_or_default(),
            on: number(&all, libc::IFLA_LINK).filter(|on| !elsewhere && *on != index),
            master: number(&all, libc::IFLA_MASTER),
        })
    }
}

struct Address {
    index: u32,
    address: IpAddr,
    prefix: u8,
}

impl Address {
    fn read(body: &[u8]) -> Option<Address> {
        let head = body.get(..ADDRESS)?;
        let index = u32::from_ne_bytes(head[4..8].try_into().ok()?);
        let all = attributes(&body[ADDRESS..]);
        // On a point-to-point link, IFA_ADDRESS is the other end and IFA_LOCAL is the local address.
        let of = |kind| all.iter().find(|(found, _)| *found == kind).and_then(|(_, value)| ip(value));
        let address = of(libc::IFA_LOCAL).or_else(|| of(libc::IFA_ADDRESS))?;
        Some(Address { index, address, prefix: head[1] })
    }
}

struct Route {
    /// The outgoing interfaces.
    by: Vec<u32>,
    network: Option<IpAddr>,
    prefix: u8,
}

impl Route {
    /// `None` for routes that the kernel created and for routes that are not unicast.
    fn read(body: &[u8]) -> Option<Route> {
        let head = body.get(..ROUTE)?;
        let (prefix, protocol, kind) = (head[1], head[5], head[7]);
        if kind != libc::RTN_UNICAST || protocol == libc::RTPROT_KERNEL {
            return None;
        }
        let all = attributes(&body[ROUTE..]);
        let mut by: Vec<u32> = number(&all, libc::RTA_OIF).into_iter().collect();
        if let Some((_, hops)) = all.iter().find(|(kind, _)| *kind == libc::RTA_MULTIPATH) {
            by.extend(next_hops(hops));
        }
        let network = all.iter().find(|(kind, _)| *kind == libc::RTA_DST).and_then(|(_, value)| ip(value));
        Some(Route { by, network, prefix })
    }
}

/// The interfaces in a list of `struct rtnexthop`: length, flags, hops, interface, attributes.
fn next_hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut all = Vec::new();
    while let [a, b, _, _, c, d, e, f, ..] = *bytes {
        all.push(u32::from_ne_bytes([c, d, e, f]));
        let length = usize::from(u16::from_ne_bytes([a, b])).next_multiple_of(4).max(8);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    all
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The kernel's lists of interfaces, addresses and routes.
struct Table {
    links: Vec<Link>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

impl Table {
    fn uses(&self, index: u32) -> Vec<HostUse> {
        let mut uses = Vec::new();
        let own = self.addresses.iter().filter(|address| address.index == index && !is_link_local(address.address));
        uses.extend(own.map(|address| HostUse::Address(address.address, address.prefix)));
        for route in self.routes.iter().filter(|route| route.by.contains(&index)) {
            match route.network {
                Some(network) if is_link_local(network) => {}
                Some(network) => uses.push(HostUse::Route(network, route.prefix)),
                None => uses.push(HostUse::DefaultRoute),
            }
        }
        let Some(link) = self.links.iter().find(|link| link.index == index) else { return uses };
        if let Some(master) = link.master {
            let master = self.links.iter().find(|link| link.index == master);
            let (kind, name) = master.map_or(("device", "another interface"), |link| (&link.kind, &link.name));
            uses.push(HostUse::PortOf(kind.to_owned(), name.to_owned()));
        }
        let port = self.links.iter().find(|other| other.master == Some(index));
        if port.is_some() || MASTERS.contains(&link.kind.as_str()) {
            uses.push(HostUse::Carries(link.kind.clone(), port.map(|port| port.name.clone())));
        }
        let above = self.links.iter().filter(|other| other.on == Some(index) && !PAIRS.contains(&other.kind.as_str()));
        for upper in above {
            let why = self.uses(upper.index).into_iter().next();
            uses.extend(why.map(|why| HostUse::Under(upper.name.clone(), Box::new(why))));
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: &str, on: Option<u32>, master: Option<u32>) -> Link {
        Link { index, name: name.to_owned(), kind: kind.to_owned(), on, master }
    }

    #[test]
    fn each_use_is_found_and_link_local_is_none() {
        let table = Table {
            links: vec![
                link(1, "eth0", "", None, None),
                link(2, "eth0.5", "vlan", Some(1), None),
                link(3, "br0", "bridge", None, None),
                link(4, "p1", "veth", Some(5), Some(3)),
                link(5, "p2", "veth", Some(4), None),
                link(6, "bond0", "bond", None, None),
                link(7, "eth1", "", None, None),
            ],
            addresses: vec![
                Address { index: 2, address: "192.0.2.5".parse().expect("an address"), prefix: 24 },
                Address { index: 7, address: "fe80::1".parse().expect("an address"), prefix: 64 },
                Address { index: 7, address: "169.254.3.4".parse().expect("an address"), prefix: 16 },
            ],
            routes: vec![
                Route { by: vec![5], network: None, prefix: 0 },
                Route { by: vec![7], network: Some("fe80::".parse().expect("an address")), prefix: 64 },
            ],
        };
        let texts = |index| table.uses(index).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(1), ["eth0.5 is on top of it: it has the address 192.0.2.5/24"]);
        assert_eq!(texts(2), ["it has the address 192.0.2.5/24"]);
        assert_eq!(texts(3), ["it is a bridge with the port p1"]);
        assert_eq!(texts(4), ["it is a port of the bridge br0"]);
        assert_eq!(texts(5), ["the default route leaves by it"]);
        assert_eq!(texts(6), ["it is a bond"]);
        assert_eq!(texts(7), [""; 0]);
    }

    #[test]
    fn next_hops_are_read_to_the_end() {
        let hop = |index: u32| [&[12, 0, 0, 0][..], &index.to_ne_bytes(), &[0; 4]].concat();
        assert_eq!(next_hops(&[hop(3), hop(9)].concat()), [3, 9]);
        assert_eq!(next_hops(&[0; 3]), [0; 0]);
    }

    #[test]
    fn loopback_is_the_hosts() {
        // In a new network namespace lo is down and has no address; on most machines it is up.
        let uses = host_uses("lo").expect("there is one");
        assert!(uses.iter().all(|one| matches!(one, HostUse::Address(..) | HostUse::Route(..))), "{uses:?}");
        assert!(matches!(host_uses("no-such-one"), Err(Error::NoInterface { .. })));
    }
}

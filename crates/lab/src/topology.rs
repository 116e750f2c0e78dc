//! The topology of a lab: nodes, names and addresses. Pure computation without side effects.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The default name of a lab.
pub const DEFAULT_NAME: &str = "lab";
/// Limit on clients: 10.77.0.1 … 10.77.0.99 (the server is .100).
pub const MAX_CLIENTS: u16 = 99;
/// Below this MTU Linux disables IPv6 on an interface (RFC 8200), so the lab assigns no IPv6 addresses.
const IPV6_MIN_MTU: u32 = 1280;
/// Last byte of the server's address.
const SERVER_HOST: u16 = 100;
/// Prefix of all lab namespaces.
const PREFIX: &str = "nl-";

/// A namespace of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// The n-th client, counted from 1. Its interface is `eth0`.
    Client(u16),
    /// The bridge that joins several clients to the box's one interface; absent with one client.
    Switch,
    /// The middle, where netlathe runs: `c0` towards the clients, `s0` towards the server.
    Box,
    /// The server. Its interface is `eth0`.
    Server,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Client(n) => write!(f, "client{n}"),
            Node::Switch => f.write_str("switch"),
            Node::Box => f.write_str("box"),
            Node::Server => f.write_str("server"),
        }
    }
}

impl FromStr for Node {
    type Err = Error;

    /// Parses `client` (the first), `client2`, `box`, `server` or `switch`.
    ///
    /// # Errors
    /// [`Error::UnknownNode`] for any other text.
    fn from_str(text: &str) -> Result<Node> {
        let unknown = || Error::UnknownNode(text.to_owned());
        match text {
            "box" => Ok(Node::Box),
            "server" => Ok(Node::Server),
            "switch" => Ok(Node::Switch),
            "client" => Ok(Node::Client(1)),
            _ => {
                let digits = text.strip_prefix("client").ok_or_else(unknown)?;
                // `client01` and `client+1` parse as numbers but are not namespace names.
                let n: u16 = digits.parse().map_err(|_| unknown())?;
                if n == 0 || n.to_string() != digits {
                    return Err(unknown());
                }
                Ok(Node::Client(n))
            }
        }
    }
}

/// The requested shape of a lab; defaults are those of [`Topology::named`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// Number of clients.
    pub clients: Option<u16>,
    /// The longest packet in bytes.
    pub mtu: Option<u32>,
    /// Number of queues per interface.
    pub queues: Option<u16>,
}

impl Shape {
    /// A lab of this shape.
    #[must_use]
    pub fn named(&self, name: impl Into<String>) -> Topology {
        let usual = Topology::named(name);
        Topology {
            clients: self.clients.unwrap_or(usual.clients),
            mtu: self.mtu.unwrap_or(usual.mtu),
            queues: self.queues.unwrap_or(usual.queues),
            ..usual
        }
    }

    /// The first requested value that differs in a lab: its name, the requested value and the actual value.
    pub(crate) fn differs(&self, lab: &Topology) -> Option<(&'static str, u32, u32)> {
        let said = [
            ("clients", self.clients.map(u32::from), u32::from(lab.clients)),
            ("mtu", self.mtu, lab.mtu),
            ("queues", self.queues.map(u32::from), u32::from(lab.queues)),
        ];
        said.into_iter().find_map(|(what, said, has)| Some((what, said.filter(|said| *said != has)?, has)))
    }
}

/// The topology of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The name: lower-case letters, digits and inner dashes, at most 32. Labs with different names coexist.
    pub name: String,
    /// Number of clients, 1 … [`MAX_CLIENTS`].
    pub clients: u16,
    /// The MTU of every interface in bytes (L3), 68 … 65535. Below 1280 the lab has no IPv6.
    pub mtu: u32,
    /// Receive and transmit queues per veth end, 1 … 64. The default is 1, because an AF_XDP socket sees only one
    /// queue.
    pub queues: u16,
}

impl Default for Topology {
    fn default() -> Self {
        Topology { name: DEFAULT_NAME.to_owned(), clients: 1, mtu: 1500, queues: 1 }
    }
}

impl Topology {
    /// A lab of that name with one client and an MTU of 1500.
    pub fn named(name: impl Into<String>) -> Self {
        Topology { name: name.into(), ..Topology::default() }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Topology`], with the field and its valid values.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let out_of_range = |what: &str, got: u32, range: &str| {
            Err(Error::Topology(format!("a lab cannot have {what} {got}: it must be in {range}")))
        };
        if self.clients == 0 || self.clients > MAX_CLIENTS {
            return out_of_range("a number of clients of", u32::from(self.clients), "1…99");
        }
        if !(68..=65_535).contains(&self.mtu) {
            return out_of_range("an MTU of", self.mtu, "68…65535 bytes");
        }
        if self.queues == 0 || self.queues > 64 {
            return out_of_range("a number of queues of", u32::from(self.queues), "1…64");
        }
        Ok(())
    }

    /// Whether a bridge joins the clients. A single client is connected directly.
    #[must_use]
    pub fn has_switch(&self) -> bool {
        self.clients > 1
    }

    /// Whether the ends have IPv6 addresses.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= IPV6_MIN_MTU
    }

    /// All nodes, clients first, server last.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = (1..=self.clients).map(Node::Client).collect();
        if self.has_switch() {
            nodes.push(Node::Switch);
        }
        nodes.extend([Node::Box, Node::Server]);
        nodes
    }

    /// The nodes that have addresses: clients and server.
    #[must_use]
    pub fn hosts(&self) -> Vec<Node> {
        let mut hosts: Vec<Node> = (1..=self.clients).map(Node::Client).collect();
        hosts.push(Node::Server);
        hosts
    }

    /// The name of a node's network namespace, as `ip netns` shows it.
    #[must_use]
    pub fn namespace(&self, node: Node) -> String {
        format!("{PREFIX}{}-{node}", self.name)
    }

    /// The IPv4 address of a node; the box and the switch have none.
    #[must_use]
    pub fn ipv4(&self, node: Node) -> Option<Ipv4Addr> {
        // At most 100, so it fits in a byte.
        host_number(node).map(|n| Ipv4Addr::new(10, 77, 0, u8::try_from(n).unwrap_or(u8::MAX)))
    }

    /// The IPv6 address of a node: `fd77::` with the digits of its IPv4 host number. Client 2 is `fd77::2`, the server
    /// `fd77::100`. `None` for the box and the switch, and for all nodes below an MTU of 1280.
    #[must_use]
    pub fn ipv6(&self, node: Node) -> Option<Ipv6Addr> {
        let n = if node == Node::Server { 0x100 } else { host_number(node)? };
        self.has_ipv6().then(|| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, decimal_as_hex(n)))
    }

    /// The MAC address of a client's or the server's `eth0`. Equal in every lab, so that templates and captures may
    /// contain it.
    #[must_use]
    pub fn mac(&self, node: Node) -> Option<String> {
        host_number(node).map(|n| format!("02:77:00:00:00:{n:02x}"))
    }
}

/// Converts decimal digits to equal hex digits, so that `fd77::12` belongs to 10.77.0.12. 0x100 stays unchanged.
fn decimal_as_hex(n: u16) -> u16 {
    if n < 100 { (n / 10) * 16 + n % 10 } else { n }
}

fn host_number(node: Node) -> Option<u16> {
    match node {
        Node::Client(n) => Some(n),
        Node::Server => Some(SERVER_HOST),
        Node::Switch | Node::Box => None,
    }
}

/// Checks a lab's name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 32
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        return Ok(());
    }
    Err(Error::Topology(format!(
        "`{name}` cannot be a lab's name: use lower-case letters, digits and inner dashes, at most 32"
    )))
}

/// The lab and node of a namespace name, if it is one of ours. The node follows the last dash, so names with dashes are
/// unambiguous.
pub(crate) fn parse_namespace(namespace: &str) -> Option<(String, Node)> {
    let (lab, node) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    // Users may type `client` for `client1`, but it is not a namespace name.
    let node: Node = node.parse().ok().filter(|parsed: &Node| parsed.to_string() == node)?;
    check_name(lab).ok()?;
    Some((lab.to_owned(), node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_survive_printing_and_parsing() {
        for node in [Node::Client(1), Node::Client(12), Node::Box, Node::Server, Node::Switch] {
            assert_eq!(node.to_string().parse::<Node>().expect("its own name"), node);
        }
        assert_eq!("client".parse::<Node>().expect("short form"), Node::Client(1));
        for wrong in ["", "client0", "client01", "client+1", "client-1", "Box", "boxes", "client 1", "client99999"] {
            assert!(wrong.parse::<Node>().is_err(), "{wrong:?} was taken for a node");
        }
    }

    #[test]
    fn parses_namespaces_of_labs_with_dashes() {
        for name in ["lab", "a-box", "x-client1", "7"] {
            let topology = Topology { clients: 3, ..Topology::named(name) };
            for node in topology.nodes() {
                assert_eq!(parse_namespace(&topology.namespace(node)), Some((name.to_owned(), node)));
            }
        }
        for foreign in ["nl-box", "nl--box", "nl-lab-", "nl-lab-client", "lab-box", "nl-Lab-box", "nl-lab-boxes"] {
            assert_eq!(parse_namespace(foreign), None, "{foreign:?} was taken for ours");
        }
    }

    #[test]
    fn addresses_count_from_one_and_the_server_is_100() {
        let topology = Topology { clients: 99, ..Topology::default() };
        assert_eq!(topology.ipv4(Node::Client(1)), Some(Ipv4Addr::new(10, 77, 0, 1)));
        assert_eq!(topology.ipv4(Node::Client(99)), Some(Ipv4Addr::new(10, 77, 0, 99)));
        assert_eq!(topology.ipv4(Node::Server), Some(Ipv4Addr::new(10, 77, 0, 100)));
        assert_eq!(topology.ipv4(Node::Box), None);
        assert_eq!(topology.ipv6(Node::Client(12)).map(|a| a.to_string()).as_deref(), Some("fd77::12"));
        assert_eq!(topology.ipv6(Node::Server).map(|a| a.to_string()).as_deref(), Some("fd77::100"));
        assert_eq!(topology.mac(Node::Server).as_deref(), Some("02:77:00:00:00:64"));
        assert_eq!(Topology { mtu: 1279, ..Topology::default() }.ipv6(Node::Server), None);
        assert!(Topology { mtu: 1280, ..Topology::default() }.ipv6(Node::Server).is_some());
    }

    #[test]
    fn checks_both_sides_of_every_limit() {
        let with = |change: fn(&mut Topology)| {
            let mut topology = Topology::default();
            change(&mut topology);
            topology.check()
        };
        assert!(with(|t| t.clients = 1).is_ok() && with(|t| t.clients = 99).is_ok());
        assert!(with(|t| t.clients = 0).is_err() && with(|t| t.clients = 100).is_err());
        assert!(with(|t| t.mtu = 68).is_ok() && with(|t| t.mtu = 65_535).is_ok());
        assert!(with(|t| t.mtu = 67).is_err() && with(|t| t.mtu = 65_536).is_err());
        assert!(with(|t| t.queues = 1).is_ok() && with(|t| t.queues = 64).is_ok());
        assert!(with(|t| t.queues = 0).is_err() && with(|t| t.queues = 65).is_err());
        assert!(with(|t| t.name = "a".repeat(32)).is_ok() && with(|t| t.name = "a".repeat(33)).is_err());
        assert!(with(|t| t.name = "../etc".into()).is_err() && with(|t| t.name = String::new()).is_err());
    }
}

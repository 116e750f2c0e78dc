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
/// Limit on sites: 10.77.1.1 … 10.77.1.200.
pub const MAX_SITES: u16 = 200;
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
    /// The n-th site, counted from 1. Its interface is `eth0`. A lab of sites has only these and the box.
    Site(u16),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Client(n) => write!(f, "client{n}"),
            Node::Switch => f.write_str("switch"),
            Node::Box => f.write_str("box"),
            Node::Server => f.write_str("server"),
            Node::Site(n) => write!(f, "site{n}"),
        }
    }
}

impl FromStr for Node {
    type Err = Error;

    /// Parses `client` (the first), `client2`, `box`, `server`, `switch` or `site2`.
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
                let numbered = |prefix, node| Some((text.strip_prefix(prefix)?, node));
                let (digits, node): (&str, fn(u16) -> Node) = numbered("client", Node::Client as fn(u16) -> Node)
                    .or_else(|| numbered("site", Node::Site))
                    .ok_or_else(unknown)?;
                // `client01` and `client+1` parse as numbers but are not namespace names.
                let n: u16 = digits.parse().map_err(|_| unknown())?;
                if n == 0 || n.to_string() != digits {
                    return Err(unknown());
                }
                Ok(node(n))
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
    /// The sites of a lab of sites; empty in other labs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
}

/// A site of a lab, and the paths from it to the other sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The name, as the user wrote it.
    pub name: String,
    /// The name by which programs in the lab find its address.
    pub host: String,
    /// The path to each site, in the order of the sites. The path from a site to itself is not used.
    pub ways: Vec<SiteWay>,
}

/// What happens to frames from one site to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteWay {
    /// The delay in picoseconds.
    pub delay_ps: u64,
    /// The share of frames that are lost, in parts per billion.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loss_ppb: u32,
    /// The rate in bits per second, if it is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(ppb: &u32) -> bool {
    *ppb == 0
}

impl Default for Topology {
    fn default() -> Self {
        Topology { name: DEFAULT_NAME.to_owned(), clients: 1, mtu: 1500, queues: 1, sites: Vec::new() }
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
        if self.sites.len() > usize::from(MAX_SITES) {
            return out_of_range("a number of sites of", u32::try_from(self.sites.len()).unwrap_or(u32::MAX), "2…200");
        }
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
        self.clients > 1 && !self.has_sites()
    }

    /// Whether this is a lab of sites: each is connected to the box, and there is neither a client nor a server.
    #[must_use]
    pub fn has_sites(&self) -> bool {
        !self.sites.is_empty()
    }

    /// The node of a site, by its name, its host name, or its node name, such as `site3`.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`].
    pub fn site(&self, name: &str) -> Result<Node> {
        let named = self.sites.iter().position(|site| site.name == name || site.host == name);
        let numbered = || name.parse().ok().filter(|node| self.nodes().contains(node));
        named.and_then(|at| u16::try_from(at + 1).ok()).map(Node::Site).or_else(numbered).ok_or_else(|| {
            let has: Vec<String> = match self.sites.is_empty() {
                true => self.nodes().iter().map(Node::to_string).collect(),
                false => self.sites.iter().map(|site| site.host.clone()).chain(["box".to_owned()]).collect(),
            };
            Error::NoSuchNode { lab: self.name.clone(), node: name.to_owned(), has: has.join(", ") }
        })
    }

    /// The entry of a site's node.
    #[must_use]
    pub fn site_of(&self, node: Node) -> Option<&Site> {
        match node {
            Node::Site(n) => self.sites.get(usize::from(n).checked_sub(1)?),
            _ => None,
        }
    }

    /// The nodes of all sites.
    fn site_nodes(&self) -> Vec<Node> {
        (1..=u16::try_from(self.sites.len()).unwrap_or(u16::MAX)).map(Node::Site).collect()
    }

    /// Whether the ends have IPv6 addresses.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= IPV6_MIN_MTU
    }

    /// All nodes, clients first, server last.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        if self.has_sites() {
            return self.site_nodes().into_iter().chain([Node::Box]).collect();
        }
        let mut nodes: Vec<Node> = (1..=self.clients).map(Node::Client).collect();
        if self.has_switch() {
            nodes.push(Node::Switch);
        }
        nodes.extend([Node::Box, Node::Server]);
        nodes
    }

    /// The nodes that have addresses: clients and server, or the sites.
    #[must_use]
    pub fn hosts(&self) -> Vec<Node> {
        if self.has_sites() {
            return self.site_nodes();
        }
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
        // At most 200, so it fits in a byte.
        host_number(node).map(|n| Ipv4Addr::new(10, 77, subnet(node), u8::try_from(n).unwrap_or(u8::MAX)))
    }

    /// The IPv6 address of a node: `fd77::` with the digits of its IPv4 host number. Client 2 is `fd77::2`, the server
    /// `fd77::100`, site 12 `fd77::1:12`. `None` for the box and the switch, and for all nodes below an MTU of 1280.
    #[must_use]
    pub fn ipv6(&self, node: Node) -> Option<Ipv6Addr> {
        let n = if node == Node::Server { 0x100 } else { host_number(node)? };
        self.has_ipv6().then(|| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, subnet(node).into(), decimal_as_hex(n)))
    }

    /// The MAC address of a client's or the server's `eth0`. Equal in every lab, so that templates and captures may
    /// contain it.
    #[must_use]
    pub fn mac(&self, node: Node) -> Option<String> {
        host_number(node).map(|n| format!("02:77:00:00:{:02x}:{n:02x}", subnet(node)))
    }
}

/// Converts decimal digits to equal hex digits, so that `fd77::12` belongs to 10.77.0.12. 0x100 stays unchanged.
fn decimal_as_hex(n: u16) -> u16 {
    match n {
        0x100 => n,
        _ => (n / 100) * 256 + (n / 10 % 10) * 16 + n % 10,
    }
}

/// The third byte of IPv4 addresses. Sites have their own subnet.
fn subnet(node: Node) -> u8 {
    u8::from(matches!(node, Node::Site(_)))
}

fn host_number(node: Node) -> Option<u16> {
    match node {
        Node::Client(n) | Node::Site(n) => Some(n),
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

    fn of_sites(count: u16) -> Topology {
        let site = |n: u16| Site { name: format!("City {n}"), host: format!("city-{n}"), ways: Vec::new() };
        Topology { sites: (1..=count).map(site).collect(), ..Topology::named("world") }
    }

    #[test]
    fn sites_have_a_subnet_of_their_own_and_are_found_by_name() {
        let topology = of_sites(200);
        assert_eq!(topology.nodes().len(), 201);
        assert_eq!(topology.hosts().len(), 200);
        assert!(!topology.has_switch());
        assert_eq!(topology.ipv4(Node::Site(200)), Some(Ipv4Addr::new(10, 77, 1, 200)));
        assert_eq!(topology.ipv6(Node::Site(123)).map(|a| a.to_string()).as_deref(), Some("fd77::1:123"));
        assert_eq!(topology.mac(Node::Site(16)).as_deref(), Some("02:77:00:00:01:10"));
        for name in ["City 7", "city-7", "site7"] {
            assert_eq!(topology.site(name).expect("the seventh"), Node::Site(7), "{name}");
        }
        assert_eq!(topology.site("box").expect("it has one"), Node::Box);
        for name in ["city-201", "site201", "client", ""] {
            assert!(topology.site(name).is_err(), "{name}");
        }
        assert_eq!(parse_namespace("nl-world-site12"), Some(("world".to_owned(), Node::Site(12))));
        assert!(of_sites(200).check().is_ok() && of_sites(201).check().is_err());
    }

    #[test]
    fn records_of_labs_without_sites_stay_readable() {
        let text = r#"{"name":"old","clients":2,"mtu":1500,"queues":1}"#;
        let topology: Topology = serde_json::from_str(text).expect("a record of before");
        assert!(!topology.has_sites());
        assert_eq!(serde_json::to_string(&topology).expect("plain values"), text);
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

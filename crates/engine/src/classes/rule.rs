use super::grammar::CONDITIONS;
use crate::Kind;
use packet::layers::{FieldPath, LayerKind, Level};
use packet::{Kind as ValueKind, MacAddr};
use std::fmt;
use std::net::IpAddr;

/// The rule of a class: matches frames that meet all conditions of at least one alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Alternatives; the conditions within one must all hold.
    pub alternatives: Vec<Vec<Condition>>,
}

impl Rule {
    /// Every kind of condition. A rule combines them with `and` (or nothing), `or` and `not`.
    pub const CONDITIONS: &'static [Kind] = CONDITIONS;

    /// How to correct a rule that no frame can match.
    #[must_use]
    pub fn correction(&self) -> &'static str {
        let asks_for_layer = |condition: &Condition| matches!(condition.test, Test::Layer(..) | Test::Field(..));
        if self.alternatives.iter().flatten().any(asks_for_layer) {
            "its conditions exclude each other: correct it; write conditions of a packet in a tunnel after inner"
        } else {
            "its conditions exclude each other: correct it"
        }
    }
}

/// A test, possibly negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Negates the test.
    pub not: bool,
    /// The test.
    pub test: Test,
}

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
    /// Either end.
    Either,
}

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address; bits after the prefix are zero.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

/// A property of a frame. A frame that lacks the header does not have the property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The EtherType after VLAN tags: 0x0800 is written `ip`, 0x86dd `ip6`, 0x0806 `arp`.
    EtherType(u16),
    /// The transport protocol, over IPv4 or IPv6.
    Protocol(u8),
    /// An address in one of these prefixes.
    Address(Side, Vec<Prefix>),
    /// A TCP, UDP or SCTP port in one of these inclusive ranges.
    Port(Side, Vec<(u16, u16)>),
    /// The outermost VLAN ID in one of these ranges; any tag if the list is empty.
    Vlan(Vec<(u16, u16)>),
    /// The DSCP in one of these ranges.
    Dscp(Vec<(u8, u8)>),
    /// TCP flags that are set and flags that are clear; FIN is the lowest bit.
    Flags {
        /// Flags that must be set.
        set: u8,
        /// Flags that must be clear.
        clear: u8,
    },
    /// Bytes of the frame; offset 0 is the first byte of the destination address.
    Bytes {
        /// The bytes; masked bits are zero.
        value: Vec<u8>,
        /// Mask of the bits to compare.
        mask: Vec<u8>,
        /// Offset in bytes.
        at: u32,
    },
    /// Bytes of the TCP or UDP payload in this frame.
    Payload {
        /// The packet that carries them.
        level: Level,
        /// The bytes.
        value: Vec<u8>,
        /// Offset in bytes; anywhere if `None`.
        at: Option<u32>,
    },
    /// A layer: the packet, the protocol, and its occurrence in this packet, counted from 1.
    Layer(Level, LayerKind, u8),
    /// A field of a layer.
    Field(Fields, FieldValues),
}

/// The fields of a test. One of them must have the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// One field.
    One(FieldPath),
    /// Source and destination address of a packet in a tunnel: `inner host`.
    Addresses(Level),
    /// Source and destination port of a packet in a tunnel: `inner port`.
    Ports(Level),
}

/// Values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValues {
    /// Inclusive ranges.
    Ranges(Vec<(u128, u128)>),
    /// Addresses.
    Prefixes(Vec<Prefix>),
    /// A value and a mask: the masked bits of the field must have the value.
    Masked(u128, u128),
}

impl Fields {
    /// The paths of the fields.
    pub(super) fn paths(self) -> impl Iterator<Item = FieldPath> {
        let bare = |level, names: [&str; 2]| names.map(|name| FieldPath::bare(level, name));
        let paths = match self {
            Fields::One(path) => [Some(path), None],
            Fields::Addresses(level) => bare(level, ["src", "dst"]),
            Fields::Ports(level) => bare(level, ["sport", "dport"]),
        };
        paths.into_iter().flatten()
    }

    fn level(self) -> Level {
        match self {
            Fields::One(path) => path.level(),
            Fields::Addresses(level) | Fields::Ports(level) => level,
        }
    }

    /// The syntax of the values.
    fn kind(self) -> ValueKind {
        self.paths().next().map_or(ValueKind::Number(0), |path| path.kind())
    }
}

/// The packet around all tunnels.
pub(super) const OUTERMOST: Level = Level::Nth(0);

impl Test {
    /// The packet that the test applies to.
    fn level(&self) -> Level {
        match self {
            Test::Layer(level, ..) | Test::Payload { level, .. } => *level,
            Test::Field(fields, _) => fields.level(),
            _ => OUTERMOST,
        }
    }
}

/// Names of the TCP flags, FIN first (RFC 9293 §3.1).
pub(super) const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// IP protocols with a keyword.
pub(super) const PROTOCOLS: [(&str, u8); 5] = [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmp6", 58), ("sctp", 132)];

/// Offsets of the hardware addresses in a frame.
pub(super) const DMAC_AT: u32 = 0;
pub(super) const SMAC_AT: u32 = 6;

/// EtherTypes with a keyword.
pub(super) const ETHER_TYPES: [(&str, u16); 3] = [("ip", 0x0800), ("ip6", 0x86dd), ("arp", 0x0806)];

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, alternative) in self.alternatives.iter().enumerate() {
            f.write_str(if i > 0 { " or " } else { "" })?;
            let mut level = OUTERMOST;
            for (i, Condition { not, test }) in alternative.iter().enumerate() {
                f.write_str(if i > 0 { " " } else { "" })?;
                if test.level() != level {
                    level = test.level();
                    if level == OUTERMOST { f.write_str("outer ")? } else { level.fmt(f)? }
                }
                f.write_str(if *not { "not " } else { "" })?;
                test.fmt(f)?;
            }
        }
        Ok(())
    }
}

/// Prints the test without its level, which the rule prints.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::EtherType(value) => match ETHER_TYPES.iter().find(|(_, known)| known == value) {
                Some((word, _)) => f.write_str(word),
                None => write!(f, "bytes {value:04x} at 12"),
            },
            Test::Protocol(value) => match PROTOCOLS.iter().find(|(_, known)| known == value) {
                Some((word, _)) => f.write_str(word),
                None => write!(f, "proto {value}"),
            },
            Test::Address(side, prefixes) => {
                f.write_str(match side {
                    Side::Source => "src ",
                    Side::Destination => "dst ",
                    Side::Either => "host ",
                })?;
                list(f, prefixes)
            }
            Test::Port(side, ranges) => {
                f.write_str(match side {
                    Side::Source => "sport ",
                    Side::Destination => "dport ",
                    Side::Either => "port ",
                })?;
                list(f, ranges.iter().map(range))
            }
            Test::Vlan(ranges) if ranges.is_empty() => f.write_str("vlan"),
            Test::Vlan(ranges) => {
                f.write_str("vlan ")?;
                list(f, ranges.iter().map(range))
            }
            Test::Dscp(ranges) => {
                f.write_str("dscp ")?;
                list(f, ranges.iter().map(range))
            }
            Test::Flags { set, clear } => {
                f.write_str("flags ")?;
                flags(f, *set, *clear)
            }
            Test::Bytes { value, mask, at: at @ (DMAC_AT | SMAC_AT) }
                if value.len() == 6 && mask.iter().all(|byte| *byte == 0xff) =>
            {
                let word = if *at == DMAC_AT { "dmac" } else { "smac" };
                write!(f, "{word} {}", MacAddr(std::array::from_fn(|i| value[i])))
            }
            Test::Bytes { value, mask, at } => {
                write!(f, "bytes {}", Hex(value))?;
                if mask.iter().any(|byte| *byte != 0xff) {
                    write!(f, "/{}", Hex(mask))?;
                }
                write!(f, " at {at}")
            }
            Test::Layer(_, kind, 1) => f.write_str(kind.name()),
            Test::Layer(_, kind, number) => write!(f, "{}#{number}", kind.name()),
            Test::Field(fields, values) => {
                match fields {
                    Fields::One(path) => write!(f, "{} ", path.in_level(OUTERMOST))?,
                    Fields::Addresses(_) => f.write_str("host ")?,
                    Fields::Ports(_) => f.write_str("port ")?,
                }
                values.print(f, fields.kind())
            }
            Test::Payload { value, at, .. } => {
                let plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"\"\\".contains(byte);
                match std::str::from_utf8(value).ok().filter(|_| value.iter().all(plain)) {
                    Some(text) => write!(f, "payload \"{text}\"")?,
                    None => write!(f, "payload {}", Hex(value))?,
                }
                at.map_or(Ok(()), |at| write!(f, " at {at}"))
            }
        }
    }
}

impl FieldValues {
    fn print(&self, f: &mut fmt::Formatter<'_>, kind: ValueKind) -> fmt::Result {
        let value = |f: &mut fmt::Formatter<'_>, value| kind.print(f, value, false);
        match self {
            FieldValues::Prefixes(prefixes) => list(f, prefixes),
            FieldValues::Masked(set, mask) if kind == ValueKind::Flags => flags(f, *set as u8, (mask & !set) as u8),
            FieldValues::Masked(number, mask) if kind == ValueKind::Mac => {
                value(f, *number)?;
                f.write_str("/")?;
                value(f, *mask)
            }
            FieldValues::Masked(number, mask) => write!(f, "{number:#x}/{mask:#x}"),
            FieldValues::Ranges(ranges) => {
                for (i, (from, to)) in ranges.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    value(f, *from)?;
                    if from != to {
                        f.write_str("-")?;
                        value(f, *to)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Writes the names of the TCP flags that must be set, then those that must be clear.
fn flags(f: &mut fmt::Formatter<'_>, set: u8, clear: u8) -> fmt::Result {
    let named =
        |bits: u8, sign| (0..8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| format!("{sign}{}", FLAGS[bit]));
    list(f, named(set, "").chain(named(clear, "!")))
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        write!(f, "{}", self.address)?;
        if self.length < whole { write!(f, "/{}", self.length) } else { Ok(()) }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn range<T: fmt::Display + PartialEq>((from, to): &(T, T)) -> String {
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, values: impl IntoIterator<Item = T>) -> fmt::Result {
    for (i, value) in values.into_iter().enumerate() {
        write!(f, "{}{value}", if i > 0 { "," } else { "" })?;
    }
    Ok(())
}

use super::{Field, LayerKind};

/// What a protocol declares.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The word that names it.
    pub name: &'static str,
    /// Other words for it.
    pub aliases: &'static [&'static str],
    /// What it is.
    pub about: &'static str,
    /// The document that defines it.
    pub source: &'static str,
    /// Its fields, in the order of the header.
    pub fields: &'static [Field],
    /// The header with its defaults.
    pub header: &'static [u8],
    /// How the layer below announces it.
    pub binds: &'static [Bind],
    /// The checksum in its header.
    pub checksum: Option<Checksum>,
    /// The length in its header.
    pub length: Option<Length>,
    /// Makes the header announce what follows, which may make it longer. False if it cannot.
    pub announce: fn(&mut Vec<u8>, LayerKind) -> bool,
    /// Reads the header at the start of these bytes, which end where the layer below ends. `None` if it is not this
    /// protocol, or its header is cut.
    pub read: fn(&[u8]) -> Option<Header>,
}

/// What a header says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its own length in bytes.
    pub length: usize,
    /// The length of header and content, if the header has it.
    pub whole: Option<usize>,
    /// What follows.
    pub next: Next,
    /// It belongs to a part of a larger packet.
    pub fragment: bool,
}

impl Header {
    pub(super) const fn new(length: usize, next: Next) -> Header {
        Header { length, whole: None, next, fragment: false }
    }

    pub(super) const fn whole(self, bytes: usize) -> Header {
        Header { whole: Some(bytes), ..self }
    }
}

/// What follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// By EtherType.
    EtherType(u16),
    /// By IP protocol number.
    Protocol(u8),
    /// By destination and source port of UDP.
    Ports(u16, u16),
    /// This protocol.
    Layer(LayerKind),
    /// Bytes of an application.
    Payload,
    /// The later bytes of a fragmented packet.
    Fragment,
}

/// A number by which the layer below announces a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// An EtherType.
    EtherType(u16),
    /// A protocol number of IP.
    Protocol(u8),
    /// A UDP port, at either end.
    Port(u16),
}

impl Bind {
    /// A number that differs for each of these.
    pub(super) const fn number(self) -> u32 {
        match self {
            Bind::EtherType(number) => number as u32,
            Bind::Protocol(number) => 0x1_0000 | number as u32,
            Bind::Port(number) => 0x2_0000 | number as u32,
        }
    }
}

/// The checksum of a header.
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    /// Its first byte in the header: two bytes, or four of CRC-32C. An invariant CRC is the last four bytes of what the
    /// header carries instead.
    pub at: usize,
    /// What it covers.
    pub over: Over,
    /// Whether this header has one.
    pub present: fn(&[u8]) -> bool,
}

/// The length in a header: that of header and content, less some bytes. Two bytes wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Its first byte; negative if it is in the header before.
    pub at: isize,
    /// Bytes that it does not count.
    pub less: usize,
}

/// What a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The header.
    Header,
    /// The header and all that it carries.
    Content,
    /// The same, and the pseudo header of the IP packet around it.
    PseudoHeader,
    /// Header and content, as CRC-32C (RFC 9260, appendix A).
    Crc32c,
    /// The IP packet around it, as CRC-32, but what routers change (InfiniBand 1.4, annex A17.3.3).
    Invariant,
}

/// A big-endian 16-bit number.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// What follows an IPv6 header or extension header: 59 says that nothing does.
pub(super) const fn following(next: u8) -> Next {
    match next {
        59 => Next::Payload,
        other => Next::Protocol(other),
    }
}

/// An extension header of IPv6 in units of 8 bytes.
pub(super) fn extension(bytes: &[u8]) -> Option<Header> {
    let [next, length, ..] = *bytes.get(..8)? else { return None };
    let length = (usize::from(length) + 1) * 8;
    (bytes.len() >= length).then(|| Header::new(length, following(next)))
}

/// Announces a protocol by its first EtherType, at this byte.
pub(super) fn by_ether_type(header: &mut [u8], at: usize, next: LayerKind) -> bool {
    let number = next.description().binds.iter().find_map(|bind| match bind {
        Bind::EtherType(number) => Some(*number),
        _ => None,
    });
    number.map(|number| header[at..at + 2].copy_from_slice(&number.to_be_bytes())).is_some()
}

/// Announces a protocol by its first IP protocol number, at this byte.
pub(super) fn by_protocol(header: &mut [u8], at: usize, next: LayerKind) -> bool {
    let number = next.description().protocol();
    number.map(|number| header[at] = number).is_some()
}

/// Announces a protocol by its first port, as the destination of UDP.
pub(super) fn by_port(header: &mut [u8], next: LayerKind) -> bool {
    let number = next.description().binds.iter().find_map(|bind| match bind {
        Bind::Port(number) => Some(*number),
        _ => None,
    });
    number.map(|number| header[2..4].copy_from_slice(&number.to_be_bytes())).is_some()
}

impl Description {
    /// Its first IP protocol number.
    pub(super) fn protocol(&self) -> Option<u8> {
        self.binds.iter().find_map(|bind| match bind {
            Bind::Protocol(number) => Some(*number),
            _ => None,
        })
    }
}

use super::{Field, LayerKind};

/// What a protocol declares.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it is, for help texts.
    pub about: &'static str,
    /// The document that defines it.
    pub source: &'static str,
    /// Its fields, in the order of the header.
    pub fields: &'static [Field],
    /// The default header.
    pub header: &'static [u8],
    /// The numbers by which the layer below announces it.
    pub binds: &'static [Bind],
    /// The checksum in its header.
    pub checksum: Option<Checksum>,
    /// The length in its header.
    pub length: Option<Length>,
    /// Makes the header announce the next layer, which may lengthen it. Returns false if it cannot.
    pub announce: fn(&mut Vec<u8>, LayerKind) -> bool,
    /// Reads the header at the start of these bytes, which end where the layer below ends. `None` if they are not of
    /// this protocol, or if the header is truncated.
    pub read: fn(&[u8]) -> Option<Header>,
}

/// A parsed header: its extent, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its own length in bytes.
    pub length: usize,
    /// The length of header and content, if the header contains it.
    pub whole: Option<usize>,
    /// What follows.
    pub next: Next,
    /// It belongs to a fragment of a larger packet.
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
    /// The protocol with this EtherType.
    EtherType(u16),
    /// The protocol with this IP protocol number.
    Protocol(u8),
    /// The protocol with this destination or source port of UDP.
    Ports(u16, u16),
    /// This protocol.
    Layer(LayerKind),
    /// Application data.
    Payload,
    /// The rest of a fragmented packet.
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
    /// A number that is unique among all variants.
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
    /// Offset of its first byte in the header. It has two bytes, or four if it is a CRC-32C. An invariant CRC is not
    /// in the header: it is the last four bytes of what the header carries.
    pub at: usize,
    /// What it covers.
    pub over: Over,
    /// Whether this header has a checksum.
    pub present: fn(&[u8]) -> bool,
}

/// The length in a header: that of header and content, minus some bytes. Two bytes wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Offset of its first byte; negative if it is in the previous header.
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
    /// Header, content, and the pseudo header of the IP packet around them.
    PseudoHeader,
    /// Header and content, as CRC-32C (RFC 9260, appendix A).
    Crc32c,
    /// The IP packet around it without the fields that routers change, as CRC-32 (InfiniBand 1.4, annex A17.3.3).
    Invariant,
}

/// A big-endian 16-bit number.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// What follows an IPv6 header or extension header; 59 means no next header.
pub(super) const fn following(next: u8) -> Next {
    match next {
        59 => Next::Payload,
        other => Next::Protocol(other),
    }
}

/// Reads an IPv6 extension header whose length is in units of 8 bytes.
pub(super) fn extension(bytes: &[u8]) -> Option<Header> {
    let [next, length, ..] = *bytes.get(..8)? else { return None };
    let length = (usize::from(length) + 1) * 8;
    (bytes.len() >= length).then(|| Header::new(length, following(next)))
}

/// Announces a protocol by its first EtherType, at offset `at`.
pub(super) fn by_ether_type(header: &mut [u8], at: usize, next: LayerKind) -> bool {
    let number = next.description().binds.iter().find_map(|bind| match bind {
        Bind::EtherType(number) => Some(*number),
        _ => None,
    });
    number.map(|number| header[at..at + 2].copy_from_slice(&number.to_be_bytes())).is_some()
}

/// Announces a protocol by its first IP protocol number, at offset `at`.
pub(super) fn by_protocol(header: &mut [u8], at: usize, next: LayerKind) -> bool {
    let number = next.description().protocol();
    number.map(|number| header[at] = number).is_some()
}

/// Announces a protocol by its first port, as the UDP destination.
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

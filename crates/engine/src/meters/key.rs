use super::fields::KeyFields;
use packet::{Headers, TCP, UDP};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use units::ParseError;

/// The fields that define a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// The destination address.
    DstIp,
    /// The source address.
    SrcIp,
    /// Protocol, addresses and ports. Fragments have no ports; they are keyed by their addresses.
    FiveTuple,
    /// The VLAN ID of the outer tag.
    Vlan,
    /// A prefix of the destination address, in bits. An address with fewer bits is used whole.
    DstPrefix(u8),
    /// A prefix of the source address, in bits.
    SrcPrefix(u8),
    /// Fields of any layers.
    Fields(KeyFields),
}

/// A user: 128 bits, unique within its kind.
///
/// Addresses use the IPv6 form, with IPv4 in ::ffff:0:0/96. An IPv4 flow is its five fields. An IPv6 flow is a 120-bit
/// hash of them; among ten million flows, two collide with a probability of 10⁻²².
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Key {
    /// A key from its bits.
    #[must_use]
    pub fn new(high: u64, low: u64) -> Self {
        Key { high, low }
    }

    pub(super) fn of_bits(bits: u128) -> Self {
        Key { high: (bits >> 64) as u64, low: bits as u64 }
    }

    pub(super) fn bits(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// A 32-bit hash of the whole key, to distribute users to workers.
    #[must_use]
    pub fn hash(self) -> u32 {
        // Fibonacci hashing spreads consecutive users evenly.
        ((self.high.rotate_left(32) ^ self.low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    /// A 64-bit mix of the whole key that is never zero.
    pub(crate) fn mixed(self) -> u64 {
        (self.high.rotate_left(32) ^ self.low) | 1 << 63
    }
}

impl KeyKind {
    /// The user of a frame, as in [`KeyKind::key`]. Has a fast path for plain IPv4 that parses only what it needs.
    #[must_use]
    #[inline]
    pub fn of_frame(self, frame: &[u8]) -> Option<Key> {
        let (at, bits) = match self {
            KeyKind::DstIp => (30, 32),
            KeyKind::SrcIp => (26, 32),
            KeyKind::DstPrefix(bits) => (30, bits),
            KeyKind::SrcPrefix(bits) => (26, bits),
            KeyKind::Fields(fields) => return fields.key(frame),
            KeyKind::FiveTuple | KeyKind::Vlan => return self.key(&Headers::of(frame)?, frame),
        };
        match frame.get(12..34) {
            // EtherType of IPv4, version 4, and a header of at least five words.
            Some([8, 0, 0x45..=0x4f, ..]) => Some(address(&frame[at..at + 4], bits)),
            _ => self.key(&Headers::of(frame)?, frame),
        }
    }

    /// The user of a frame; `None` if the frame lacks the field: ARP, for example, has no IP address.
    #[must_use]
    #[inline]
    pub fn key(self, headers: &Headers, frame: &[u8]) -> Option<Key> {
        if let KeyKind::Fields(fields) = self {
            return fields.key(frame);
        }
        if self == KeyKind::Vlan {
            return headers.vlan().map(|vlan| Key::new(0, vlan.into()));
        }
        let ip = headers.ip.as_ref()?;
        let (source, destination) = ip.addresses(frame)?;
        match self {
            KeyKind::DstIp => Some(address(destination, 128)),
            KeyKind::SrcIp => Some(address(source, 128)),
            KeyKind::DstPrefix(bits) => Some(address(destination, bits)),
            KeyKind::SrcPrefix(bits) => Some(address(source, bits)),
            KeyKind::FiveTuple => {
                let ports = if ip.fragment { (0, 0) } else { headers.ports(frame).unwrap_or_default() };
                Some(flow(ip.protocol, source, destination, ports))
            }
            KeyKind::Vlan | KeyKind::Fields(_) => None,
        }
    }

    /// Parses a user as written in files of rates: `10.0.0.1`, `10.0.0.0/24`, `2001:db8::/48`, `100` for a VLAN, or
    /// `udp 10.0.0.1:1000 > 10.0.0.2:53`.
    ///
    /// # Errors
    /// The text is not a user of this kind.
    pub fn parse(self, text: &str) -> Result<Key, ParseError> {
        let bad = |remedy: &str| {
            Err(ParseError::new(format!("'{text}' is not a value of key {self}"), format!("write {remedy}")))
        };
        match self {
            KeyKind::Fields(fields) => fields.read(text),
            KeyKind::DstIp | KeyKind::SrcIp => match text.parse() {
                Ok(ip) => Ok(of_ip(ip, 128)),
                Err(_) => bad("an address such as 10.0.0.1 or 2001:db8::1"),
            },
            KeyKind::DstPrefix(bits) | KeyKind::SrcPrefix(bits) => {
                let parts = text
                    .split_once('/')
                    .and_then(|(ip, length)| Some((ip.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?)));
                match parts {
                    Some((ip, length)) if length == bits.min(if ip.is_ipv4() { 32 } else { 128 }) => {
                        let (key, whole) = (of_ip(ip, bits), of_ip(ip, 128));
                        if key == whole { Ok(key) } else { bad("a prefix whose other bits are zero") }
                    }
                    _ => bad(&format!("a prefix of {bits} bits such as 10.0.0.0/{}", bits.min(32))),
                }
            }
            KeyKind::Vlan => match text.parse::<u16>() {
                Ok(vlan) if vlan < 4_096 => Ok(Key::new(0, vlan.into())),
                _ => bad("an identifier from 0 to 4095"),
            },
            KeyKind::FiveTuple => match parse_flow(text) {
                Some(key) => Ok(key),
                None => {
                    bad("a flow such as udp 10.0.0.1:1000 > 10.0.0.2:53 or tcp [2001:db8::1]:80 > [2001:db8::2]:90")
                }
            },
        }
    }

    /// Prints a user in the form that [`KeyKind::parse`] reads. For IPv6 flows, only the hash is stored and printed.
    #[must_use]
    pub fn show(self, key: Key) -> String {
        let ip = Ipv6Addr::from(key.bits());
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        match self {
            KeyKind::DstIp | KeyKind::SrcIp => ip.to_string(),
            KeyKind::DstPrefix(bits) | KeyKind::SrcPrefix(bits) => {
                format!("{ip}/{}", if ip.is_ipv4() { bits.min(32) } else { bits })
            }
            KeyKind::Fields(fields) => fields.show(key),
            KeyKind::Vlan => key.low.to_string(),
            KeyKind::FiveTuple if key.high >> 56 == 4 => {
                let bits = key.bits();
                let part = |from: u32| Ipv4Addr::from((bits >> from) as u32);
                let protocol = (bits >> 96) as u8;
                let name = match protocol {
                    TCP => "tcp".to_owned(),
                    UDP => "udp".to_owned(),
                    other => format!("protocol-{other}"),
                };
                format!("{name} {}:{} > {}:{}", part(64), (bits >> 16) as u16, part(32), bits as u16)
            }
            KeyKind::FiveTuple => format!("ipv6-flow-{:030x}", key.bits() & (u128::MAX >> 8)),
        }
    }
}

/// A key from the first `bits` bits of an address.
#[inline]
fn address(bytes: &[u8], bits: u8) -> Key {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        let bits = u32::from(bits.min(32));
        let kept = u32::from_be_bytes(four) & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        return Key::new(0, 0xffff_0000_0000 | u64::from(kept));
    }
    let mut sixteen = [0; 16];
    sixteen.copy_from_slice(&bytes[..16]);
    Key::of_bits(u128::from_be_bytes(sixteen) & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
}

fn of_ip(ip: IpAddr, bits: u8) -> Key {
    match ip {
        IpAddr::V4(ip) => address(&ip.octets(), bits),
        IpAddr::V6(ip) => address(&ip.octets(), bits),
    }
}

fn flow(protocol: u8, source: &[u8], destination: &[u8], (from, to): (u16, u16)) -> Key {
    let ports = u128::from(from) << 16 | u128::from(to);
    if let (Ok(source), Ok(destination)) = (<[u8; 4]>::try_from(source), <[u8; 4]>::try_from(destination)) {
        let addresses =
            u128::from(u32::from_be_bytes(source)) << 64 | u128::from(u32::from_be_bytes(destination)) << 32;
        return Key::of_bits(4 << 120 | u128::from(protocol) << 96 | addresses | ports);
    }
    // FNV-1a, 128 bits.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let fields = [protocol].into_iter().chain(source.iter().copied()).chain(destination.iter().copied());
    for byte in fields.chain(ports.to_be_bytes()) {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    Key::of_bits(6 << 120 | hash >> 8)
}

fn parse_flow(text: &str) -> Option<Key> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [protocol, source, ">", destination] = words[..] else { return None };
    let protocol = match protocol {
        "tcp" => TCP,
        "udp" => UDP,
        other => other.strip_prefix("protocol-")?.parse().ok()?,
    };
    let (source, destination): (SocketAddr, SocketAddr) = (source.parse().ok()?, destination.parse().ok()?);
    let ports = (source.port(), destination.port());
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some(flow(protocol, &a.octets(), &b.octets(), ports)),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some(flow(protocol, &a.octets(), &b.octets(), ports)),
        _ => None,
    }
}

impl FromStr for KeyKind {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bits = |text: &str| text.parse::<u8>().ok().filter(|bits| (1..=128).contains(bits));
        match text.split_once('/') {
            Some(("dst-prefix", n)) if bits(n).is_some() => return Ok(KeyKind::DstPrefix(bits(n).unwrap_or(128))),
            Some(("src-prefix", n)) if bits(n).is_some() => return Ok(KeyKind::SrcPrefix(bits(n).unwrap_or(128))),
            _ => {}
        }
        Ok(match text {
            "dst-ip" => KeyKind::DstIp,
            "src-ip" => KeyKind::SrcIp,
            "5-tuple" => KeyKind::FiveTuple,
            "vlan" => KeyKind::Vlan,
            "" => {
                return Err(ParseError::new(
                    "a key is missing",
                    "write dst-ip, src-ip, 5-tuple, vlan, dst-prefix/24, or fields such as svlan+cvlan or inner.src",
                ));
            }
            other => KeyKind::Fields(
                KeyFields::parse(other)
                    .map_err(|error| ParseError::new(format!("'{other}' is not a key"), error.to_string()))?,
            ),
        })
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::DstIp => f.write_str("dst-ip"),
            KeyKind::SrcIp => f.write_str("src-ip"),
            KeyKind::FiveTuple => f.write_str("5-tuple"),
            KeyKind::Vlan => f.write_str("vlan"),
            KeyKind::Fields(fields) => fields.fmt(f),
            KeyKind::DstPrefix(bits) => write!(f, "dst-prefix/{bits}"),
            KeyKind::SrcPrefix(bits) => write!(f, "src-prefix/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP over IPv4 after a VLAN tag.
    fn frame(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0x20, 0x64, 0x08, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, UDP, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn keys_of_frames_equal_parsed_keys() {
        let frame = frame([10, 0, 0, 1], [10, 2, 3, 4], (1_000, 53));
        let headers = Headers::of(&frame).expect("headers");
        for (kind, text) in [
            ("dst-ip", "10.2.3.4"),
            ("src-ip", "10.0.0.1"),
            ("vlan", "100"),
            ("dst-prefix/24", "10.2.3.0/24"),
            ("dst-prefix/9", "10.0.0.0/9"),
            ("src-prefix/32", "10.0.0.1/32"),
            ("5-tuple", "udp 10.0.0.1:1000 > 10.2.3.4:53"),
        ] {
            let kind: KeyKind = kind.parse().expect(kind);
            let key = kind.key(&headers, &frame).expect("a key");
            assert_eq!(kind.of_frame(&frame), Some(key), "tagged");
            let plain = [&frame[..12], &frame[16..]].concat();
            let headers = Headers::of(&plain).expect("headers");
            assert_eq!(kind.of_frame(&plain), kind.key(&headers, &plain), "plain");
            for length in 0..plain.len() {
                let cut = &plain[..length];
                assert_eq!(kind.of_frame(cut), Headers::of(cut).and_then(|headers| kind.key(&headers, cut)));
            }
            assert_eq!(kind.parse(text), Ok(key), "{text}");
            assert_eq!(kind.show(key), text);
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn parses_ipv6_users_and_rejects_other_text() {
        let kind: KeyKind = "dst-prefix/48".parse().expect("a kind");
        let key = kind.parse("2001:db8:1::/48").expect("a prefix");
        assert_eq!(kind.show(key), "2001:db8:1::/48");
        assert!(kind.parse("2001:db8:1:2::/48").is_err(), "bits beyond the prefix");
        assert_eq!(kind.parse("10.0.0.1/32").map(|key| kind.show(key)), Ok("10.0.0.1/32".to_owned()));
        let flows: KeyKind = "5-tuple".parse().expect("a kind");
        let one = flows.parse("tcp [2001:db8::1]:80 > [2001:db8::2]:90").expect("a flow");
        let other = flows.parse("tcp [2001:db8::1]:80 > [2001:db8::2]:91").expect("a flow");
        assert_ne!(one, other);
        assert!(flows.show(one).starts_with("ipv6-flow-"));
        for kind in ["dst-prefix/0", "dst-prefix/129", "dst-prefix/", "ip", "vlan/3", ""] {
            assert!(kind.parse::<KeyKind>().is_err(), "{kind}");
        }
        assert!(KeyKind::Vlan.parse("4096").is_err());
        let arp = [&[2; 12][..], &[0x08, 0x06], &[0; 46]].concat();
        let headers = Headers::of(&arp).expect("headers");
        assert_eq!(KeyKind::DstIp.key(&headers, &arp), None);
    }
}

use crate::headers::{Headers, TCP, UDP};
use crate::layers::{Layer, LayerKind, Layers};
use std::fmt::{self, Display as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use units::ParseError;

/// How a field's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A hardware address.
    Mac,
    /// An IPv4 or IPv6 address.
    Address,
    /// An integer up to this one, decimal or `0x` hexadecimal.
    Number(u32),
    /// Differentiated services: a number up to 63 or a name, `ef`, `af41`, `cs1` (RFC 2474, 2597, 3246).
    Dscp,
    /// TCP flags: `SA`, `syn+ack` or a number up to 255.
    Flags,
}

impl Kind {
    /// The grammar of a value.
    #[must_use]
    pub fn grammar(self) -> String {
        match self {
            Kind::Mac => "MAC".to_owned(),
            Kind::Address => "ADDRESS".to_owned(),
            Kind::Number(most) => format!("0-{most}"),
            Kind::Dscp => "0-63|NAME".to_owned(),
            Kind::Flags => "FLAGS|0-255".to_owned(),
        }
    }

    /// An example of a single value.
    #[must_use]
    pub fn one(self) -> String {
        match self {
            Kind::Address => "10.0.0.1".to_owned(),
            Kind::Number(most) => (most / 4).to_string(),
            Kind::Mac | Kind::Dscp | Kind::Flags => self.example(),
        }
    }

    /// An example of a value or a range.
    #[must_use]
    pub fn example(self) -> String {
        match self {
            Kind::Mac => "02:00:00:00:00:01".to_owned(),
            Kind::Address => "10.0.0.1-10.0.0.9".to_owned(),
            Kind::Number(most) => format!("{}-{}", most / 4, most / 2),
            Kind::Dscp => "ef".to_owned(),
            Kind::Flags => "syn+ack".to_owned(),
        }
    }
}

/// Declares the fields once: variant, name, kind and meaning.
macro_rules! keys {
    ($($variant:ident $name:literal $kind:expr, $doc:literal;)*) => {
        /// A field of a frame, by the name that users write.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Key { $(#[doc = $doc] $variant),* }

        impl Key {
            /// Every field.
            pub const ALL: &'static [Key] = &[$(Key::$variant),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Key::$variant => $name),* }
            }

            /// How its values are written.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Key::$variant => $kind),* }
            }

            /// Its meaning, for help texts.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Key::$variant => $doc),* }
            }
        }
    };
}

keys! {
    Dmac "dmac" Kind::Mac, "destination hardware address";
    Smac "smac" Kind::Mac, "source hardware address";
    Svlan "svlan" Kind::Number(4095), "identifier of the outer tag of two (802.1ad, EtherType 88a8)";
    Spcp "spcp" Kind::Number(7), "priority of the outer tag of two";
    Vlan "vlan" Kind::Number(4095), "identifier of the VLAN tag, of the inner one of two (802.1Q)";
    Pcp "pcp" Kind::Number(7), "priority of the VLAN tag";
    EtherType "ethertype" Kind::Number(0xffff), "EtherType after the tags";
    Source "src" Kind::Address, "source address of IP, sender's address of ARP";
    Destination "dst" Kind::Address, "destination address of IP, target's address of ARP";
    Ttl "ttl" Kind::Number(255), "time to live of IPv4, hop limit of IPv6";
    Dscp "dscp" Kind::Dscp, "differentiated services";
    Ecn "ecn" Kind::Number(3), "explicit congestion notification";
    Id "id" Kind::Number(0xffff), "identification of IPv4";
    Proto "proto" Kind::Number(255), "protocol of IPv4, next header of IPv6";
    FlowLabel "flow-label" Kind::Number(0xf_ffff), "flow label of IPv6";
    Sport "sport" Kind::Number(0xffff), "source port of UDP or TCP";
    Dport "dport" Kind::Number(0xffff), "destination port of UDP or TCP";
    Seq "seq" Kind::Number(u32::MAX), "sequence number of TCP";
    Ack "ack" Kind::Number(u32::MAX), "acknowledgement number of TCP";
    Flags "flags" Kind::Flags, "flags of TCP";
    Window "window" Kind::Number(0xffff), "window of TCP";
    IcmpType "type" Kind::Number(255), "type of ICMP";
    IcmpCode "code" Kind::Number(255), "code of ICMP";
    EchoId "icmp-id" Kind::Number(0xffff), "identifier of an ICMP echo";
    EchoSeq "icmp-seq" Kind::Number(0xffff), "sequence number of an ICMP echo";
    ArpOp "op" Kind::Number(0xffff), "operation of ARP: 1 request, 2 reply";
    Sha "sha" Kind::Mac, "sender's hardware address in ARP";
    Tha "tha" Kind::Mac, "target's hardware address in ARP";
}

/// Protocol number of ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// Protocol number of ICMPv6 (RFC 4443).
pub(crate) const ICMPV6: u8 = 58;

/// Position of a field in a frame, and which checksums cover it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Offset of the first byte that contains it.
    pub at: usize,
    /// Number of bytes that contain it: 1, 2, 4, 6 or 16.
    pub width: usize,
    /// Distance of its lowest bit from the lowest bit of these bytes.
    shift: u32,
    /// Mask of its bits in these bytes; all ones for widths 6 and 16.
    mask: u32,
    /// The IPv4 header checksum covers it.
    pub in_ip: bool,
    /// The checksum of UDP, TCP or ICMP covers it, directly or in the pseudo header.
    pub in_transport: bool,
}

impl Site {
    const fn bytes(at: usize, width: usize) -> Site {
        Site { at, width, shift: 0, mask: u32::MAX, in_ip: false, in_transport: false }
    }

    /// A field of `width` bits that starts at bit `at` of a frame. `None` if the frame ends before the field does.
    pub(crate) fn of_bits(at: usize, width: usize, frame: &[u8]) -> Option<Site> {
        let (first, end) = (at / 8, (at + width).div_ceil(8));
        let bytes = match end - first {
            // Three bytes are accessed as part of four.
            3 => 4,
            bytes => bytes,
        };
        let first = if first + bytes > frame.len() { end.checked_sub(bytes)? } else { first };
        let site = Site::bytes(first, bytes);
        if bytes > 4 {
            return (end <= frame.len()).then_some(site);
        }
        let shift = (first + bytes) * 8 - at - width;
        let mask = if width >= 32 { u32::MAX } else { (1 << width) - 1 };
        (first + bytes <= frame.len()).then(|| site.bits(shift as u32, mask))
    }

    const fn bits(self, shift: u32, mask: u32) -> Site {
        Site { shift, mask: mask << shift, ..self }
    }

    const fn by_ip(self) -> Site {
        Site { in_ip: true, ..self }
    }

    const fn by_transport(self) -> Site {
        Site { in_transport: true, ..self }
    }

    /// Writes `value` into the field.
    ///
    /// # Panics
    /// If the frame ends before the field does.
    #[inline]
    pub fn write(&self, frame: &mut [u8], value: u128) {
        let place = &mut frame[self.at..self.at + self.width];
        let small = (value as u32) << self.shift & self.mask;
        match self.width {
            1 => place[0] = place[0] & !(self.mask as u8) | small as u8,
            2 => {
                let old = u16::from_be_bytes([place[0], place[1]]);
                place.copy_from_slice(&(old & !(self.mask as u16) | small as u16).to_be_bytes());
            }
            4 => {
                let old = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
                place.copy_from_slice(&(old & !self.mask | small).to_be_bytes());
            }
            width => place.copy_from_slice(&value.to_be_bytes()[16 - width..]),
        }
    }

    /// Whether the field is a whole 16-bit or 32-bit word at an even offset.
    #[must_use]
    pub fn is_word(&self) -> bool {
        let whole = match self.width {
            2 => self.mask as u16 == u16::MAX,
            4 => self.mask == u32::MAX,
            _ => false,
        };
        whole && self.shift == 0 && self.at.is_multiple_of(2)
    }

    /// What `value` in this field adds to a sum of 16-bit words.
    #[inline]
    #[must_use]
    pub fn sum(&self, value: u128) -> u64 {
        let small = (value as u32) << self.shift & self.mask;
        match self.width {
            1 if self.at.is_multiple_of(2) => u64::from(small & 0xff) << 8,
            1 => u64::from(small & 0xff),
            2 => u64::from(small & 0xffff),
            4 => u64::from(small >> 16) + u64::from(small & 0xffff),
            _ => {
                let (high, low) = ((value >> 64) as u64, value as u64);
                let words = |half: u64| (half >> 48) + (half >> 32 & 0xffff) + (half >> 16 & 0xffff) + (half & 0xffff);
                words(high) + words(low)
            }
        }
    }

    /// Reads the field.
    #[must_use]
    pub fn read(&self, frame: &[u8]) -> u128 {
        let all = frame[self.at..self.at + self.width].iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
        if self.width > 4 { all } else { (all & u128::from(self.mask)) >> self.shift }
    }
}

impl Key {
    /// The field called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// Where the field is in this frame; `None` if the frame does not have it, or is truncated.
    #[must_use]
    pub fn site(self, frame: &[u8], headers: &Headers) -> Option<Site> {
        let tags = headers.tags.iter().flatten().count();
        let network = headers.network;
        // Tag control information follows its EtherType.
        let inner = (tags > 0).then(|| Site::bytes(network - 4, 2));
        let outer = (tags > 1).then(|| Site::bytes(network - 8, 2));
        let ip = headers.ip;
        let v4 = ip.filter(|ip| ip.version == 4);
        let v6 = ip.filter(|ip| ip.version == 6);
        let arp = headers.ether_type == 0x0806;
        let transport = |protocols: &[u8]| {
            let ip = ip.filter(|ip| protocols.contains(&ip.protocol))?;
            ip.transport
        };
        let ports = transport(&[UDP, TCP]);
        let tcp = transport(&[TCP]);
        let icmp = transport(&[ICMP, ICMPV6]);
        let at = |start: Option<usize>, offset: usize, width: usize| {
            start.map(|start| Site::bytes(start + offset, width).by_transport())
        };
        let address = |v4_offset: usize, v6_offset: usize, arp_offset: usize| match ip {
            Some(ip) if ip.version == 4 => Some(Site::bytes(ip.start + v4_offset, 4).by_ip().by_transport()),
            Some(ip) => Some(Site::bytes(ip.start + v6_offset, 16).by_transport()),
            None => arp.then(|| Site::bytes(network + arp_offset, 4)),
        };
        let site = match self {
            Key::Dmac => Some(Site::bytes(0, 6)),
            Key::Smac => Some(Site::bytes(6, 6)),
            Key::Svlan => outer.map(|site| site.bits(0, 0xfff)),
            Key::Spcp => outer.map(|site| site.bits(13, 7)),
            Key::Vlan => inner.map(|site| site.bits(0, 0xfff)),
            Key::Pcp => inner.map(|site| site.bits(13, 7)),
            Key::EtherType => (ip.is_none() && !arp).then(|| Site::bytes(network - 2, 2)),
            Key::Source => address(12, 8, 14),
            Key::Destination => address(16, 24, 24),
            Key::Ttl => match ip? {
                ip if ip.version == 4 => Some(Site::bytes(ip.start + 8, 1).by_ip()),
                ip => Some(Site::bytes(ip.start + 7, 1)),
            },
            Key::Dscp => match ip? {
                ip if ip.version == 4 => Some(Site::bytes(ip.start + 1, 1).bits(2, 0x3f).by_ip()),
                ip => Some(Site::bytes(ip.start, 2).bits(6, 0x3f)),
            },
            Key::Ecn => match ip? {
                ip if ip.version == 4 => Some(Site::bytes(ip.start + 1, 1).bits(0, 3).by_ip()),
                ip => Some(Site::bytes(ip.start, 2).bits(4, 3)),
            },
            Key::Id => v4.map(|ip| Site::bytes(ip.start + 4, 2).by_ip()),
            // Another number would contradict the header of a known transport that follows.
            Key::Proto => match ip.filter(|ip| !matches!(ip.protocol, UDP | TCP | ICMP | ICMPV6))? {
                ip if ip.version == 4 => Some(Site::bytes(ip.start + 9, 1).by_ip()),
                ip => (ip.transport == Some(ip.start + 40)).then(|| Site::bytes(ip.start + 6, 1)),
            },
            Key::FlowLabel => v6.map(|ip| Site::bytes(ip.start, 4).bits(0, 0xf_ffff)),
            Key::Sport => at(ports, 0, 2),
            Key::Dport => at(ports, 2, 2),
            Key::Seq => at(tcp, 4, 4),
            Key::Ack => at(tcp, 8, 4),
            Key::Flags => at(tcp, 13, 1),
            Key::Window => at(tcp, 14, 2),
            Key::IcmpType => at(icmp, 0, 1),
            Key::IcmpCode => at(icmp, 1, 1),
            Key::EchoId => at(icmp, 4, 2),
            Key::EchoSeq => at(icmp, 6, 2),
            Key::ArpOp => arp.then(|| Site::bytes(network + 6, 2)),
            Key::Sha => arp.then(|| Site::bytes(network + 8, 6)),
            Key::Tha => arp.then(|| Site::bytes(network + 18, 6)),
        };
        site.filter(|site| site.at + site.width <= frame.len())
    }

    /// Where the field is in the innermost packet of these layers.
    pub(crate) fn site_in(self, frame: &[u8], layers: &Layers) -> Option<Site> {
        use LayerKind::{Ethernet, Icmp, Icmp6, Ipv4, Ipv6, Vlan};
        let (kinds, name): (&[LayerKind], &str) = match self {
            Key::Vlan | Key::Svlan => (&[Vlan], "id"),
            Key::Pcp | Key::Spcp => (&[Vlan], "pcp"),
            Key::EchoId => (&[Icmp, Icmp6], "id"),
            Key::EchoSeq => (&[Icmp, Icmp6], "seq"),
            Key::Id => (&[Ipv4], "id"),
            Key::Proto => (&[Ipv4, Ipv6], "proto"),
            Key::EtherType => (&[Ethernet, Vlan], "ethertype"),
            key => (&[], key.name()),
        };
        let level: Vec<&Layer> = layers.level(layers.deepest()).collect();
        let tags = level.iter().filter(|layer| layer.kind == Vlan).count();
        // A field that announces the next header may vary only if no header follows.
        let carries = matches!(self, Key::Proto | Key::EtherType);
        let mut places = level.iter().rev().filter_map(|layer| {
            let field = layer.kind.field(name)?;
            let named = kinds.contains(&layer.kind) || kinds.is_empty() && field.bare;
            let last = layer.start == layers.last()?.start;
            let offset = field.offset(layer.header(frame)).filter(|_| named && (last || !carries))?;
            Site::of_bits(layer.start as usize * 8 + usize::from(offset), field.width().into(), frame)
        });
        match self {
            Key::Svlan | Key::Spcp => (tags > 1).then(|| places.nth(1)).flatten(),
            _ => places.next(),
        }
    }

    /// Reads a value of the field.
    ///
    /// # Errors
    /// The text is not a value of the field; the error names what to write.
    pub fn parse(self, text: &str) -> Result<u128, ParseError> {
        self.kind().parse(self.name(), text)
    }

    /// Prints a value of the field so that it parses back to the same value; `v6` says whether addresses are IPv6.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn print(self, f: &mut fmt::Formatter<'_>, value: u128, v6: bool) -> fmt::Result {
        self.kind().print(f, value, v6)
    }
}

impl Kind {
    /// Reads a value of the field `name`.
    ///
    /// # Errors
    /// The text is not a value of the field; the error names what to write.
    pub fn parse(self, name: &str, text: &str) -> Result<u128, ParseError> {
        let bad = |how: String| ParseError::new(format!("'{text}' is not a value of {name}"), how);
        match self {
            Kind::Mac => {
                let mac: crate::MacAddr = text.parse()?;
                Ok(mac.0.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)))
            }
            Kind::Address => {
                let v4 = text.parse().map(|address: Ipv4Addr| u128::from(u32::from(address)));
                let v6 = || text.parse().map(|address: Ipv6Addr| u128::from(address));
                v4.or_else(|_| v6()).map_err(|_| {
                    ParseError::new(format!("'{text}' is not an IP address"), "write 10.0.0.1 or 2001:db8::1")
                })
            }
            Kind::Number(most) => number(text)
                .filter(|value| *value <= most)
                .map(u128::from)
                .ok_or_else(|| bad(format!("write 0 to {most}, or 0x and hex digits"))),
            Kind::Dscp => dscp(text).map(u128::from).ok_or_else(|| bad("write 0 to 63, ef, af41 or cs1".into())),
            Kind::Flags => flags(text).map(u128::from).ok_or_else(|| bad("write SA, syn+ack or 0 to 255".into())),
        }
    }

    /// Prints a value of the field so that it parses back to the same value; `v6` says whether addresses are IPv6.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn print(self, f: &mut fmt::Formatter<'_>, value: u128, v6: bool) -> fmt::Result {
        match self {
            Kind::Mac => {
                let bytes = value.to_be_bytes();
                crate::MacAddr(std::array::from_fn(|i| bytes[10 + i])).fmt(f)
            }
            Kind::Address if v6 => Ipv6Addr::from(value).fmt(f),
            Kind::Address => Ipv4Addr::from(value as u32).fmt(f),
            Kind::Number(_) | Kind::Dscp | Kind::Flags => value.fmt(f),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

fn dscp(text: &str) -> Option<u32> {
    let digit = |text: &str, least: u32, most: u32| {
        text.parse().ok().filter(|digit: &u32| text.len() == 1 && (least..=most).contains(digit))
    };
    if text == "ef" {
        return Some(46);
    }
    if let Some(class) = text.strip_prefix("cs") {
        return digit(class, 0, 7).map(|class| class * 8);
    }
    if let Some(class) = text.strip_prefix("af").filter(|class| class.is_ascii() && class.len() == 2) {
        return Some(digit(&class[..1], 1, 4)? * 8 + digit(&class[1..], 1, 3)? * 2);
    }
    number(text).filter(|value| *value <= 63)
}

/// The TCP flags from the lowest bit up: letter and name.
const FLAGS: [(char, &str); 8] =
    [('F', "fin"), ('S', "syn"), ('R', "rst"), ('P', "psh"), ('A', "ack"), ('U', "urg"), ('E', "ece"), ('C', "cwr")];

fn flags(text: &str) -> Option<u32> {
    if let Some(value) = number(text) {
        return Some(value).filter(|value| *value <= 255);
    }
    let named = text.split('+').try_fold(0, |all, name| {
        let bit = FLAGS.iter().position(|(_, known)| *known == name)?;
        Some(all | 1 << bit)
    });
    let lettered = || {
        text.chars().try_fold(0, |all, letter| {
            let bit = FLAGS.iter().position(|(known, _)| *known == letter)?;
            Some(all | 1 << bit)
        })
    };
    named.or_else(lettered).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_and_refuse() {
        for (key, text, value) in [
            (Key::Dport, "80", 80),
            (Key::EtherType, "0x88b5", 0x88b5),
            (Key::Dscp, "ef", 46),
            (Key::Dscp, "af41", 34),
            (Key::Dscp, "cs6", 48),
            (Key::Flags, "SA", 0x12),
            (Key::Flags, "syn+ack", 0x12),
            (Key::Flags, "0x18", 0x18),
            (Key::Smac, "02:00:00:00:01:00", 0x0200_0000_0100),
            (Key::Source, "10.0.0.1", 0x0a00_0001),
            (Key::Source, "::ff", 0xff),
        ] {
            assert_eq!(key.parse(text), Ok(value), "{text}");
        }
        for (key, text) in [
            (Key::Dport, "65536"),
            (Key::Dport, "-1"),
            (Key::Dport, "+1"),
            (Key::Vlan, "4096"),
            (Key::Dscp, "af51"),
            (Key::Dscp, "64"),
            (Key::Flags, ""),
            (Key::Flags, "syn+foo"),
            (Key::Source, "10.0.0.256"),
            (Key::Smac, "02:00"),
            (Key::Dport, "0x"),
        ] {
            let error = key.parse(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }

    #[test]
    fn bits_are_written_among_their_neighbours() {
        let mut frame = vec![0xff; 64];
        let site = Site::bytes(14, 2).bits(0, 0xfff);
        site.write(&mut frame, 5);
        assert_eq!((&frame[14..16], site.read(&frame)), (&[0xf0, 5][..], 5));
        let site = Site::bytes(14, 2).bits(13, 7);
        site.write(&mut frame, 2);
        assert_eq!((&frame[14..16], site.read(&frame), site.sum(2)), (&[0x50, 5][..], 2, 0x4000));
        let odd = Site::bytes(15, 1).bits(2, 0x3f);
        assert_eq!((odd.sum(46), Site::bytes(22, 1).sum(64)), (184, 0x4000));
    }
}

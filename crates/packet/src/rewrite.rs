use crate::headers::{Headers, IpHeader, TCP, UDP};
use crate::key::{ICMP, ICMPV6, Key, Kind};
use crate::layers::{FieldPath, Layers, Level, hides_an_address, make_checksums_right, write_field};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use units::ParseError;

/// A change to every frame it applies to. All but [`Rewrite::Checksums`] preserve the checksums of all layers: valid
/// ones stay valid, wrong ones stay wrong (RFC 1624).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Sets a field in all frames that have it, or only where it has the first value: `ttl 64`, `dport 80 > 8080`,
    /// `vxlan vni 7 > 8`.
    Set(Target, Option<u128>, u128),
    /// Moves addresses from one prefix to another and keeps their host bits: `src 10.0.0.0/8 > 192.168.0.0/16`,
    /// `inner dst 10.0.0.0/8 > 10.0.0.1`. Also in ARP.
    Move(Target, Prefix, Prefix),
    /// Sets the VLAN of the outermost tag, in all frames or in those of one VLAN: `vlan 5`, `vlan 5 > 6`. The first
    /// form also tags untagged frames.
    Vlan(Option<u16>, u16),
    /// Removes the tags: `vlan none`.
    Untag,
    /// Corrects the checksums of every layer: `checksums right`. Captures made at the sender have unfinished checksums
    /// that were left to the NIC.
    Checksums,
}

/// The fields that a change sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One field.
    Field(FieldPath),
    /// Both addresses: `ip`.
    Addresses(Level),
    /// Both ports: `port`.
    Ports(Level),
}

impl Target {
    fn paths(self) -> [Option<FieldPath>; 2] {
        match self {
            Target::Field(path) => [Some(path), None],
            Target::Addresses(level) => ["src", "dst"].map(|name| FieldPath::bare(level, name)),
            Target::Ports(level) => ["sport", "dport"].map(|name| FieldPath::bare(level, name)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Field(path) => path.fmt(f),
            Target::Addresses(level) => write!(f, "{level}ip"),
            Target::Ports(level) => write!(f, "{level}port"),
        }
    }
}

/// Addresses with the same leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

const HOW: &str = "write 'dst 10.0.0.0/8 > 192.168.0.0/16', 'dmac 02:00:00:00:00:02', 'dport 80 > 8080', 'vlan 5', 'vxlan vni 7 > 8', 'inner ttl 64' or 'checksums right'";

impl FromStr for Prefix {
    type Err = ParseError;

    /// Parses `10.0.0.0/8` or a single address.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad =
            |what: &str| ParseError::new(format!("'{text}' {what}"), "write 10.0.0.0/8, 2001:db8::/32 or an address");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad("is not a prefix"))?;
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(length) => {
                length.parse().ok().filter(|length| *length <= bits).ok_or_else(|| bad("has no such length"))?
            }
        };
        let prefix = Prefix { address, length };
        if prefix.number() & prefix.host() != 0 {
            return Err(bad("has bits beyond its prefix"));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    fn number(self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => address.into(),
        }
    }

    /// Mask of the host bits, after the prefix.
    fn host(self) -> u128 {
        match self.address {
            IpAddr::V4(_) => u128::from(u32::MAX.checked_shr(self.length.into()).unwrap_or(0)),
            IpAddr::V6(_) => u128::MAX.checked_shr(self.length.into()).unwrap_or(0),
        }
    }

    fn holds(self, address: u128, v4: bool) -> bool {
        self.address.is_ipv4() == v4 && address & !self.host() == self.number()
    }
}

impl FromStr for Rewrite {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Rewrite::read(text).map_err(|error| match respelled(text) {
            Some(rule) => ParseError::new(format!("'{text}' is not a change"), format!("write '{rule}'")),
            None => error,
        })
    }
}

/// The correct spelling of a change that is written as for tcprewrite, or misspelt: `portmap 80:8080`,
/// `dst 10.0.0.0/8 -> 20.0.0.0/8`.
fn respelled(text: &str) -> Option<String> {
    let text = text.trim_start_matches('-').to_ascii_lowercase();
    let (name, value) = text.split_once([' ', '=']).unwrap_or((&text, ""));
    let name = match name {
        "portmap" | "ports" => "port",
        "pnat" => "ip",
        "srcipmap" | "sip" => "src",
        "dstipmap" | "dip" => "dst",
        "enet-smac" | "srcmac" => "smac",
        "enet-dmac" | "dstmac" => "dmac",
        "enet-vlan" | "enet-vlan-tag" => "vlan",
        "fixcsum" | "checksum" => "checksums",
        other => other,
    };
    let value = match (name, value.trim()) {
        ("checksums", "" | "fix" | "fixed") => "right",
        ("vlan", "del" | "off" | "strip" | "remove") => "none",
        ("vlan", value) => value.trim_start_matches("add").trim(),
        (_, value) => value,
    };
    // IPv6 and hardware addresses contain colons, so only a single one is a separator.
    let separators = ["->", "=>", " to ", "=", ":", " "];
    let separated = separators.iter().filter(|separator| value.matches(**separator).count() == 1);
    let spellings = separated.map(|separator| value.replace(separator, " > "));
    let rules = std::iter::once(value.to_owned()).chain(spellings);
    let mut rules = rules.filter_map(|value| Rewrite::read(&format!("{name} {value}")).ok());
    rules.next().map(|rule| rule.to_string())
}

impl Rewrite {
    /// Parses a change in its correct spelling.
    fn read(text: &str) -> Result<Self, ParseError> {
        let spaced = text.replace('>', " > ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let bad = || ParseError::new(format!("'{text}' is not a change"), HOW);
        let number = |text: &str| Key::Vlan.parse(text).map(|number| number as u16);
        match words[..] {
            [] => return Err(bad()),
            ["vlan", "none"] => return Ok(Rewrite::Untag),
            ["checksums", "right"] => return Ok(Rewrite::Checksums),
            ["vlan", to] if is_number(to) => return Ok(Rewrite::Vlan(None, number(to)?)),
            ["vlan", from, ">", to] if is_number(from) => return Ok(Rewrite::Vlan(Some(number(from)?), number(to)?)),
            _ => {}
        }
        let (level, depth) = Level::read(&words);
        let after = words.get(depth + 1).copied().unwrap_or_default();
        let (target, used) = match words.get(depth) {
            Some(&"ip") if after.contains(['.', ':']) => (Target::Addresses(level), depth + 1),
            Some(&"port") => (Target::Ports(level), depth + 1),
            _ => {
                let (path, used) = FieldPath::read(text, &words)?;
                (Target::Field(path), used)
            }
        };
        let (from, to) = match words[used..] {
            [to] => (None, to),
            [from, ">", to] => (Some(from), to),
            _ => return Err(bad()),
        };
        let (name, kind) = match target.paths() {
            [Some(path), _] => (path.name(), path.kind()),
            _ => return Err(bad()),
        };
        if kind != Kind::Address {
            let from = from.map(|from| kind.parse(name, from)).transpose()?;
            return Ok(Rewrite::Set(target, from, kind.parse(name, to)?));
        }
        let to: Prefix = to.parse()?;
        let everything = if to.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let from: Prefix = from.unwrap_or(everything).parse()?;
        if from.address.is_ipv4() != to.address.is_ipv4() {
            return Err(ParseError::new(format!("'{text}' changes the version of IP"), "write two prefixes alike"));
        }
        Ok(Rewrite::Move(target, from, to))
    }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rewrite::Set(target, from, to) => {
                let kind = target.paths()[0].map_or(Kind::Number(0), |path| path.kind());
                write!(f, "{target} ")?;
                if let Some(from) = from {
                    kind.print(f, *from, false)?;
                    f.write_str(" > ")?;
                }
                kind.print(f, *to, false)
            }
            Rewrite::Move(target, from, to) => write!(f, "{target} {from} > {to}"),
            Rewrite::Vlan(from, to) => {
                f.write_str("vlan ")?;
                from.map_or(Ok(()), |from| write!(f, "{from} > "))?;
                write!(f, "{to}")
            }
            Rewrite::Untag => f.write_str("vlan none"),
            Rewrite::Checksums => f.write_str("checksums right"),
        }
    }
}

impl Rewrite {
    /// Changes a frame (without FCS) if the change applies to it. Adding or removing a tag changes its length. Returns
    /// false if the frame cannot be changed because a checksum covers an address that a compressed route hides.
    pub fn apply(&self, frame: &mut Vec<u8>) -> bool {
        match *self {
            Rewrite::Set(target, from, to) => {
                let wanted = |old: u128, _| from.is_none_or(|from| old == from).then_some(to);
                set(frame, target, wanted)
            }
            Rewrite::Move(target, from, to) => {
                let moved = |old, v4| from.holds(old, v4).then(|| to.number() | old & to.host());
                set(frame, target, moved)
            }
            Rewrite::Vlan(from, to) => {
                match Headers::of(frame).map(|headers| headers.vlan()) {
                    Some(Some(old)) if from.is_none_or(|from| from == old) => {
                        frame[14] = frame[14] & 0xf0 | (to >> 8) as u8;
                        frame[15] = to as u8;
                    }
                    Some(None) if from.is_none() => {
                        let [high, low] = to.to_be_bytes();
                        frame.splice(12..12, [0x81, 0x00, high, low]);
                    }
                    _ => {}
                }
                true
            }
            Rewrite::Untag => {
                if let Some(headers) = Headers::of(frame) {
                    frame.drain(12..headers.network - 2);
                }
                true
            }
            Rewrite::Checksums => {
                let layers = Layers::of(frame);
                let hidden = hides_an_address(frame, &layers);
                if !hidden {
                    make_checksums_right(frame, &layers);
                }
                !hidden
            }
        }
    }
}

/// Sets each field of a target. `to` takes the old value and whether the field is an IPv4 address, and returns the new
/// value. Returns false if the frame hides an address that a checksum covers.
fn set(frame: &mut [u8], target: Target, to: impl Fn(u128, bool) -> Option<u128>) -> bool {
    let layers = Layers::of(frame);
    for path in target.paths().into_iter().flatten() {
        let Some((of, field)) = path.find(frame, &layers) else { continue };
        let Some(old) = layers.all()[of].value(field, frame) else { continue };
        let Some(new) = to(old, field.width() == 32) else { continue };
        if field.kind == Kind::Address && hides_an_address(frame, &layers) {
            return false;
        }
        write_field(frame, &layers, of, field, new);
    }
    true
}

/// Updates a checksum (RFC 1624, equation 3).
pub(crate) fn update(frame: &mut [u8], at: usize, difference: u64, udp: bool) {
    let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut sum = u64::from(!old) + difference;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = match !(sum as u16) {
        0 if udp => 0xffff,
        new => new,
    };
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
}

/// Offset of the TCP, UDP or ICMP checksum, if it was captured.
pub(crate) fn transport_checksum(ip: &IpHeader, frame: &[u8]) -> Option<usize> {
    let start = ip.transport?;
    let at = match ip.protocol {
        UDP => start + 6,
        TCP => start + 16,
        ICMP | ICMPV6 => start + 2,
        _ => return None,
    };
    (at + 2 <= frame.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::template::Template;

    fn made(protocol: Protocol, v6: bool, tags: usize) -> Vec<u8> {
        let mut template = Template::made(protocol.headers(v6, tags), b"hello", 101);
        let (source, destination) =
            if v6 { (0xfd00 << 112 | 0x0102_0304, 0xfd01 << 112 | 5) } else { (0x0a01_0203, 0x0a00_0002) };
        for (key, value) in [(Key::Source, source), (Key::Destination, destination), (Key::Sport, 80), (Key::Dport, 9)]
        {
            if let Some(site) = template.site(key) {
                template.fix(&site, value);
            }
        }
        let mut frame = vec![0; 101];
        template.write(template.sums(), 0, &mut frame);
        frame
    }

    fn rewritten(frame: &[u8], rules: &[&str]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        for rule in rules {
            assert!(rule.parse::<Rewrite>().expect(rule).apply(&mut frame));
        }
        frame
    }

    /// By the rule itself: the IPv4 header, and the segment with its pseudo header, sum to zero.
    fn checksums_are_valid(frame: &[u8]) -> bool {
        let ip = Headers::of(frame).and_then(|headers| headers.ip).expect("a packet");
        let sum = |pieces: &[&[u8]]| crate::internet_checksum(pieces) == 0;
        let (source, destination) = ip.addresses(frame).expect("addresses");
        let rest = &frame[ip.transport.expect("a transport")..ip.end];
        let mut pseudo = [source, destination, &(rest.len() as u32).to_be_bytes(), &[0, 0, 0, ip.protocol]].concat();
        if ip.protocol == ICMP {
            pseudo.clear();
        }
        (ip.version == 6 || sum(&[&frame[ip.start..ip.start + 20]])) && sum(&[&pseudo, rest])
    }

    #[test]
    fn checksums_follow_in_every_stack() {
        let v4 = [
            "src 10.0.0.0/8 > 192.168.0.0/16",
            "ip 10.0.0.2 > 1.2.3.4",
            "port 80 > 8080",
            "ttl 3",
            "vlan 7",
            "dport 5",
        ];
        let v6 = ["src fd00::/16 > 2001:db8::/32", "sport 81", "ttl 3", "vlan none"];
        for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
            for tags in 0..3 {
                let frame = rewritten(&made(protocol, false, tags), &v4);
                assert!(checksums_are_valid(&frame), "{protocol:?}");
                let headers = Headers::of(&frame).expect("headers");
                let ip = headers.ip.expect("a packet");
                assert_eq!(ip.source(&frame).map(|ip| ip.to_string()).as_deref(), Some("192.168.2.3"));
                assert_eq!(ip.destination(&frame).map(|ip| ip.to_string()).as_deref(), Some("1.2.3.4"));
                assert_eq!((headers.vlan(), frame[ip.start + 8]), (Some(7), 3));
                if protocol != Protocol::Icmp {
                    assert_eq!(headers.ports(&frame), Some((8080, 5)));
                }
                let frame = rewritten(&made(protocol, true, tags), &v6);
                assert!(checksums_are_valid(&frame), "{protocol:?} over IPv6");
                let headers = Headers::of(&frame).expect("headers");
                assert_eq!((headers.vlan(), headers.network), (None, 14));
                let source = headers.ip.and_then(|ip| ip.source(&frame)).map(|ip| ip.to_string());
                assert_eq!(source.as_deref(), Some("2001:db8::102:304"));
            }
        }
    }

    #[test]
    fn checksums_are_made_right() {
        for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
            for (v6, tags) in [(false, 0), (false, 2), (true, 0), (true, 1)] {
                let right = made(protocol, v6, tags);
                let ip = Headers::of(&right).and_then(|headers| headers.ip).expect("a packet");
                let at = transport_checksum(&ip, &right).expect("one with a checksum");
                let mut wrong = right.clone();
                wrong[at] ^= 0x55;
                if !v6 {
                    wrong[ip.start + 10] ^= 0xaa;
                }
                assert_eq!(rewritten(&wrong, &["checksums right"]), right, "{protocol:?}, IPv6 {v6}, {tags} tags");
                // A checksum over missing bytes stays as it is. The IPv4 header is complete.
                let cut = rewritten(&wrong[..100], &["checksums right"]);
                assert_eq!((cut[at], cut[ip.start..at].to_vec()), (wrong[at], right[ip.start..at].to_vec()));
            }
        }
        let mut unsummed = made(Protocol::Udp, false, 0);
        unsummed[40..42].fill(0);
        assert_eq!(rewritten(&unsummed, &["checksums right"]), unsummed);
    }

    #[test]
    fn leaves_other_fields_unchanged() {
        let frame = made(Protocol::Udp, false, 1);
        for rule in ["src 11.0.0.0/8 > 12.0.0.0/8", "dport 80 > 81", "vlan 5 > 6", "ip ::/0 > ::1"] {
            assert_eq!(rewritten(&frame, &[rule]), frame, "{rule}");
        }
        let arp = made(Protocol::Arp, false, 0);
        assert_eq!(rewritten(&arp, &["src 10.0.0.0/8 > 20.0.0.0/8"])[28..32], [20, 1, 2, 3]);
        let mut unsummed = made(Protocol::Udp, false, 0);
        unsummed[40..42].fill(0);
        assert_eq!(rewritten(&unsummed, &["dport 7"])[40..42], [0, 0]);
        for length in 0..60 {
            let cut = frame[..length].to_vec();
            let _ = rewritten(
                &cut,
                &["ip 10.0.0.0/8 > 11.0.0.0/8", "port 1", "vlan 3", "ttl 2", "vlan none", "checksums right"],
            );
        }
    }

    #[test]
    fn rules_print_as_they_read_and_bad_ones_say_how() {
        for text in [
            "src 10.0.0.0/8 > 192.168.0.0/16",
            "port 80 > 8080",
            "sport 5",
            "vlan 5 > 6",
            "vlan none",
            "dmac 02:00:00:00:00:02",
            "ttl 9",
            "ttl 5 > 6",
            "vxlan vni 7 > 8",
            "inner src 10.0.0.0/8 > 192.168.0.0/16",
            "inner inner port 80 > 8080",
            "innermost dscp 46",
            "mpls#2 label 17",
            "ip ttl 7",
            "vlan pcp 3",
            "checksums right",
        ] {
            assert_eq!(text.parse::<Rewrite>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "", "src", "src 10.0.0.0/33", "dst 10.0.0.1/8", "src 10.0.0.0/8 > ::/0", "mac x", "vlan 5000", "dport 1 2",
            "ttl 256", "checksums 0", "vxlan vnl 5", "inner", "vni 16777216",
        ] {
            let error = text.parse::<Rewrite>().expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
        for (text, rule) in [
            ("dport 80:8080", "dport 80 > 8080"),
            ("portmap 80:8080", "port 80 > 8080"),
            ("--portmap=80:8080", "port 80 > 8080"),
            ("dport 80 to 8080", "dport 80 > 8080"),
            ("dport 80 8080", "dport 80 > 8080"),
            ("pnat 10.0.0.0/8:192.168.0.0/16", "ip 10.0.0.0/8 > 192.168.0.0/16"),
            ("src 10.0.0.0/8->20.0.0.0/8", "src 10.0.0.0/8 > 20.0.0.0/8"),
            ("dst fd00::/8 => fe00::/8", "dst fd00::/8 > fe00::/8"),
            ("enet-dmac 02:00:00:00:00:02", "dmac 02:00:00:00:00:02"),
            ("vlan del", "vlan none"),
            ("vlan add 5", "vlan 5"),
            ("vlan 5:6", "vlan 5 > 6"),
            ("fixcsum", "checksums right"),
        ] {
            let error = text.parse::<Rewrite>().expect_err(text).to_string();
            assert!(error.ends_with(&format!("write '{rule}'")), "{text}: {error}");
        }
    }

    fn address_v6(last: u8) -> Vec<u8> {
        [&[0xfd, 0][..], &[0; 13], &[last]].concat()
    }

    /// UDP after these IPv6 extension headers or IPv4 options.
    fn behind(v6: bool, kind: u8, extra: &[u8]) -> Vec<u8> {
        let udp = [0x04, 0xd2, 0, 0x35, 0, 12, 0xab, 0xcd, 1, 2, 3, 4];
        let ip = if v6 {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(((extra.len() + udp.len()) as u16).to_be_bytes());
            ip.extend([if extra.is_empty() { UDP } else { kind }, 64]);
            [ip, address_v6(1), address_v6(2)].concat()
        } else {
            let length = (20 + extra.len() + udp.len()) as u16;
            let [high, low] = length.to_be_bytes();
            let mut ip = vec![0x45 + (extra.len() / 4) as u8, 0, high, low, 0, 1, 0, 0, 64, UDP, 0, 0];
            ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            ip
        };
        let ether_type = if v6 { [0x86, 0xdd] } else { [8, 0] };
        [&[2; 12][..], &ether_type, &ip, extra, &udp].concat()
    }

    #[test]
    fn checksums_cover_the_final_destination_and_the_home_address() {
        let segment = |kind: u8, left: u8| [&[UDP, 2, kind, left, 0, 0, 0, 0][..], &address_v6(9)].concat();
        let home = [&[UDP, 2, 1, 2, 0, 0, 201, 16][..], &address_v6(7)].concat();
        let hops = [[43, 0, 1, 4, 0, 0, 0, 0].as_slice(), &segment(4, 1)].concat();
        let route = |kind: u8, pointer: u8| vec![kind, 7, pointer, 192, 0, 2, 1, 0];
        let after_others = [&[1, 1, 1][..], &route(0x83, 4)[..7], &[0, 0]].concat();
        let addresses = |frame: &[u8]| if frame[12] == 8 { frame[26..34].to_vec() } else { frame[22..54].to_vec() };
        let last = |frame: &[u8]| [&frame[22..38], &address_v6(9)[..]].concat();
        let at_home = |frame: &[u8]| [&address_v6(7)[..], &frame[38..54]].concat();
        let routed = |frame: &[u8]| [&frame[26..30], &[192, 0, 2, 1]].concat();
        type Covered<'f> = &'f dyn Fn(&[u8]) -> Vec<u8>;
        let cases: [(Covered<'_>, Vec<u8>); 14] = [
            (&last, behind(true, 43, &segment(0, 1))),
            (&last, behind(true, 43, &segment(2, 1))),
            (&last, behind(true, 43, &segment(4, 1))),
            (&last, behind(true, 0, &hops)),
            (&at_home, behind(true, 60, &home)),
            (&routed, behind(false, 0, &route(0x83, 4))),
            (&routed, behind(false, 0, &route(0x89, 4))),
            (&routed, behind(false, 0, &after_others)),
            (&addresses, behind(true, 43, &segment(0, 0))),
            (&addresses, behind(true, 60, &[UDP, 0, 1, 4, 0, 0, 0, 0])),
            (&addresses, behind(true, 0, &[])),
            (&addresses, behind(false, 0, &route(0x83, 8))),
            (&addresses, behind(false, 0, &route(0x07, 4))),
            (&addresses, behind(false, 0, &[])),
        ];
        for (covered, frame) in cases {
            let right = rewritten(&frame, &["checksums right"]);
            let segment = &right[right.len() - 12..];
            let sum = crate::internet_checksum(&[&covered(&right), &[0, UDP, 0, 12], segment]);
            assert_eq!(sum, 0, "{right:02x?}");
            for rule in
                ["dst ::/0 > fd00:1::/32", "ip 10.0.0.0/8 > 20.0.0.0/8", "src fd00::/16 > fd01::/16", "dport 54"]
            {
                let changed = rewritten(&right, &[rule]);
                assert_eq!(rewritten(&changed, &["checksums right"]), changed, "{rule}: {right:02x?}");
                let wrong = rewritten(&frame, &[rule]);
                assert_ne!(rewritten(&wrong, &["checksums right"]), wrong, "{rule}: wrong ones stay wrong");
            }
        }
    }

    #[test]
    fn frames_with_a_compressed_route_stay() {
        let frame = behind(true, 43, &[&[UDP, 2, 3, 1, 0, 0, 0, 0][..], &address_v6(9)].concat());
        for (rule, is_left) in [
            ("checksums right", true),
            ("dst ::/0 > fd00:1::/32", true),
            ("ip 10.0.0.0/8 > 20.0.0.0/8", false),
            ("dport 53 > 54", false),
        ] {
            let mut changed = frame.clone();
            let applied = rule.parse::<Rewrite>().expect(rule).apply(&mut changed);
            assert_eq!((applied, changed == frame), (!is_left, !rule.starts_with("dport")), "{rule}");
        }
    }

    #[test]
    fn fields_of_tunnels_change_and_all_checksums_follow() {
        use crate::layers::{LayerKind, checksum_is_right, stack};
        use LayerKind::{Ethernet, Gre, Gtpu, Ipv4, Ipv6, Mpls, Sctp, Tcp, Udp, Vlan, Vxlan};
        for kinds in [
            &[Ethernet, Vlan, Mpls, Mpls, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp][..],
            &[Ethernet, Ipv6, Udp, Vxlan, Ethernet, Ipv6, Udp],
            &[Ethernet, Ipv4, Udp, Gtpu, Ipv6, Sctp],
            &[Ethernet, Ipv4, Gre, Ipv4, Ipv4, Udp],
        ] {
            let mut frame = stack(kinds, b"hello").expect("a stack");
            // Gives the outer datagram a checksum too, over the inner headers.
            if let Some(at) = kinds.iter().position(|kind| *kind == Udp) {
                let start = Layers::of(&frame).all()[at].start as usize;
                frame[start + 6..start + 8].copy_from_slice(&[1, 1]);
                frame = rewritten(&frame, &["checksums right"]);
            }
            for (rule, path, value) in [
                ("vxlan vni 0 > 7", "vni", 7),
                ("teid 9", "gtpu teid", 9),
                ("mpls#2 label 18", "mpls#2 label", 18),
                ("inner ttl 9", "inner ttl", 9),
                ("innermost dport 443", "innermost dport", 443),
                ("inner dscp ef", "inner dscp", 46),
                ("inner src 0.0.0.0/0 > 10.0.0.7", "inner ip src", 0x0a00_0007),
                ("inner dst ::/0 > fd00::7", "inner ip6 dst", 0xfd00 << 112 | 7),
                ("vlan pcp 3", "vlan pcp", 3),
                ("inner tcp flags SA", "inner tcp flags", 0x12),
                ("src 10.0.0.5", "ip src", 0x0a00_0005),
                ("vlan 3", "vlan id", 3),
            ] {
                let changed = rewritten(&frame, &[rule]);
                let layers = Layers::of(&changed);
                let words: Vec<&str> = path.split(' ').collect();
                let (path, _) = FieldPath::read(path, &words).expect(rule);
                let before = path.find(&frame, &Layers::of(&frame));
                if let (Some((of, field)), Some(_)) = (path.find(&changed, &layers), before) {
                    assert_eq!(layers.all()[of].value(field, &changed), Some(value), "{rule}: {kinds:?}");
                }
                for of in 0..layers.all().len() {
                    assert_ne!(checksum_is_right(&changed, &layers, of), Some(false), "{rule}: {of} of {kinds:?}");
                }
                assert_eq!(rewritten(&changed, &["checksums right"]), changed, "{rule}: {kinds:?}");
            }
        }
    }
}

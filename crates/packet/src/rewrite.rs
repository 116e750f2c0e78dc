use crate::checksum::make_right;
use crate::headers::{Headers, IpHeader, TCP, UDP};
use crate::key::{ICMP, ICMPV6, Key};
use crate::mac::MacAddr;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use units::ParseError;

/// A change made to every frame it concerns. Checksums are kept but by the last: valid ones stay valid, wrong ones stay
/// wrong (RFC 1624).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// A hardware address: `dmac 02:00:00:00:00:02`.
    Mac(Key, MacAddr),
    /// Addresses within a prefix move to another one and keep what is behind it:
    /// `src 10.0.0.0/8 > 192.168.0.0/16`; `ip` for both ends. Those of ARP too.
    Prefix(End, Prefix, Prefix),
    /// A port, of every packet that has one: `dport 80 > 8080`, `sport 1000`; `port` for both ends.
    Port(End, Option<u16>, u16),
    /// The VLAN of the outermost tag, of all or of those in one; frames without a tag get one if all
    /// are meant: `vlan 5`, `vlan 5 > 6`.
    Vlan(Option<u16>, u16),
    /// No tags: `vlan none`.
    Untag,
    /// Time to live or hop limit: `ttl 64`.
    Ttl(u8),
    /// Checksums of IPv4, TCP, UDP and ICMP as they should be: `checksums right`. A capture made where frames were sent has
    /// those that were left to the NIC.
    Checksums,
}

/// Which end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
    /// Both.
    Both,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

const HOW: &str = "write 'dst 10.0.0.0/8 > 192.168.0.0/16', 'dmac 02:00:00:00:00:02', 'dport 80 > 8080', 'vlan 5' or 'checksums right'";

impl FromStr for Prefix {
    type Err = ParseError;

    /// Reads `10.0.0.0/8`, or an address alone.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad =
            |what: &str| ParseError::new(format!("'{text}' {what}"), "write 10.0.0.0/8, 2001:db8::/32 or an address");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad("is no prefix"))?;
        let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(length) => {
                length.parse().ok().filter(|length| *length <= bits).ok_or_else(|| bad("has no such length"))?
            }
        };
        let prefix = Prefix { address, length };
        if prefix.number() & prefix.host() != 0 {
            return Err(bad("has bits behind its prefix"));
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

    /// The bits behind the prefix.
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
            Some(rule) => ParseError::new(format!("'{text}' is no change"), format!("write '{rule}'")),
            None => error,
        })
    }
}

/// What tcprewrite, or a hand in a hurry, calls a change that there is: `portmap 80:8080`, `dst 10.0.0.0/8 -> 20.0.0.0/8`.
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
    // Colons are within addresses of IPv6 and hardware, so only a single one separates.
    let separators = ["->", "=>", " to ", "=", ":", " "];
    let separated = separators.iter().filter(|separator| value.matches(**separator).count() == 1);
    let spellings = separated.map(|separator| value.replace(separator, " > "));
    let rules = std::iter::once(value.to_owned()).chain(spellings);
    let mut rules = rules.filter_map(|value| Rewrite::read(&format!("{name} {value}")).ok());
    rules.next().map(|rule| rule.to_string())
}

impl Rewrite {
    /// A change as it is to be written.
    fn read(text: &str) -> Result<Self, ParseError> {
        let spaced = text.replace('>', " > ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let (what, from, to) = match words[..] {
            [what, to] => (what, None, to),
            [what, from, ">", to] => (what, Some(from), to),
            _ => return Err(ParseError::new(format!("'{text}' is no change"), HOW)),
        };
        let end = match what {
            "src" | "sport" => End::Source,
            "dst" | "dport" => End::Destination,
            _ => End::Both,
        };
        let number = |key: Key, text: &str| key.parse(text).map(|number| number as u16);
        match (what, from) {
            ("smac", None) => Ok(Rewrite::Mac(Key::Smac, to.parse()?)),
            ("dmac", None) => Ok(Rewrite::Mac(Key::Dmac, to.parse()?)),
            ("src" | "dst" | "ip", from) => {
                let to: Prefix = to.parse()?;
                let everything = if to.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
                let from: Prefix = from.unwrap_or(everything).parse()?;
                if from.address.is_ipv4() != to.address.is_ipv4() {
                    return Err(ParseError::new(
                        format!("'{text}' changes the version of IP"),
                        "write two prefixes alike",
                    ));
                }
                Ok(Rewrite::Prefix(end, from, to))
            }
            ("sport" | "dport" | "port", from) => {
                let from = from.map(|from| number(Key::Dport, from)).transpose()?;
                Ok(Rewrite::Port(end, from, number(Key::Dport, to)?))
            }
            ("vlan", None) if to == "none" => Ok(Rewrite::Untag),
            ("vlan", from) => {
                let from = from.map(|from| number(Key::Vlan, from)).transpose()?;
                Ok(Rewrite::Vlan(from, number(Key::Vlan, to)?))
            }
            ("checksums", None) if to == "right" => Ok(Rewrite::Checksums),
            ("ttl", None) => Ok(Rewrite::Ttl(Key::Ttl.parse(to)? as u8)),
            _ => Err(ParseError::new(format!("'{text}' is no change"), HOW)),
        }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |end: End, names: [&'static str; 3]| match end {
            End::Source => names[0],
            End::Destination => names[1],
            End::Both => names[2],
        };
        match self {
            Rewrite::Mac(key, mac) => write!(f, "{} {mac}", key.name()),
            Rewrite::Prefix(end, from, to) => write!(f, "{} {from} > {to}", name(*end, ["src", "dst", "ip"])),
            Rewrite::Port(end, from, to) => {
                write!(f, "{} ", name(*end, ["sport", "dport", "port"]))?;
                from.map_or(Ok(()), |from| write!(f, "{from} > "))?;
                write!(f, "{to}")
            }
            Rewrite::Vlan(from, to) => {
                f.write_str("vlan ")?;
                from.map_or(Ok(()), |from| write!(f, "{from} > "))?;
                write!(f, "{to}")
            }
            Rewrite::Untag => f.write_str("vlan none"),
            Rewrite::Ttl(ttl) => write!(f, "ttl {ttl}"),
            Rewrite::Checksums => f.write_str("checksums right"),
        }
    }
}

impl Rewrite {
    /// Changes a frame (without FCS) if it concerns it. A tag that is added or taken away changes its length. False if it
    /// concerns a frame that it cannot change: its checksum covers an address that is not in its IP header.
    pub fn apply(&self, frame: &mut Vec<u8>) -> bool {
        let Some(headers) = Headers::of(frame) else { return true };
        if headers.ip.is_some_and(|ip| ip.detours(frame) && self.needs_addresses(frame, &headers)) {
            return false;
        }
        match *self {
            Rewrite::Mac(key, MacAddr(mac)) => {
                let at = if key == Key::Smac { 6 } else { 0 };
                frame[at..at + 6].copy_from_slice(&mac);
            }
            Rewrite::Prefix(end, from, to) => {
                let v4 = headers.ip.is_none_or(|ip| ip.version == 4);
                let moved = |old: u128| from.holds(old, v4).then(|| to.number() | old & to.host());
                change(frame, &headers, keys(end, Key::Source, Key::Destination), moved);
            }
            Rewrite::Port(end, from, to) => {
                let moved = |old: u128| from.is_none_or(|from| old == u128::from(from)).then_some(u128::from(to));
                change(frame, &headers, keys(end, Key::Sport, Key::Dport), moved);
            }
            Rewrite::Ttl(ttl) => change(frame, &headers, &[Key::Ttl], |_| Some(u128::from(ttl))),
            Rewrite::Vlan(from, to) => match headers.vlan() {
                Some(old) if from.is_none_or(|from| from == old) => {
                    frame[14] = frame[14] & 0xf0 | (to >> 8) as u8;
                    frame[15] = to as u8;
                }
                None if from.is_none() => {
                    let [high, low] = to.to_be_bytes();
                    frame.splice(12..12, [0x81, 0x00, high, low]);
                }
                _ => {}
            },
            Rewrite::Untag => {
                frame.drain(12..headers.network - 2);
            }
            Rewrite::Checksums => make_right(frame),
        }
        true
    }

    /// Whether the change of this frame goes by its addresses.
    fn needs_addresses(&self, frame: &[u8], headers: &Headers) -> bool {
        match *self {
            Rewrite::Checksums => true,
            Rewrite::Prefix(end, from, _) => {
                let v4 = headers.ip.is_none_or(|ip| ip.version == 4);
                let sites = keys(end, Key::Source, Key::Destination).iter().filter_map(|key| key.site(frame, headers));
                sites.into_iter().any(|site| from.holds(site.read(frame), v4))
            }
            _ => false,
        }
    }
}

fn keys(end: End, source: Key, destination: Key) -> &'static [Key] {
    match (end, source, destination) {
        (End::Source, Key::Source, _) => &[Key::Source],
        (End::Destination, _, Key::Destination) => &[Key::Destination],
        (End::Both, Key::Source, _) => &[Key::Source, Key::Destination],
        (End::Source, ..) => &[Key::Sport],
        (End::Destination, ..) => &[Key::Dport],
        (End::Both, ..) => &[Key::Sport, Key::Dport],
    }
}

/// Changes fields where `to` says so, and the checksums that cover them.
fn change(frame: &mut [u8], headers: &Headers, keys: &[Key], to: impl Fn(u128) -> Option<u128>) {
    for key in keys {
        let Some(site) = key.site(frame, headers) else { continue };
        let old = site.read(frame);
        let Some(new) = to(old) else { continue };
        site.write(frame, new);
        let difference = site.sum(new) + (0xffff - site.sum(old) % 0xffff);
        if let Some(ip) = headers.ip.filter(|_| site.in_ip) {
            update(frame, ip.start + 10, difference, false);
        }
        if let Some((ip, at)) = headers.ip.and_then(|ip| Some((ip, transport_checksum(&ip, frame)?))) {
            let in_header = ip.transport.is_some_and(|start| site.at >= start);
            let unsummed = ip.protocol == UDP && ip.version == 4 && frame[at..at + 2] == [0, 0];
            // ICMP has no pseudo header.
            if site.in_transport && !unsummed && (in_header || ip.protocol != ICMP) {
                update(frame, at, difference, ip.protocol == UDP);
            }
        }
    }
}

/// RFC 1624, equation 3.
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

/// Where the checksum of TCP, UDP or ICMP is, if it was captured.
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

    /// By a template: one that was given keeps its checksums, so that a valid frame made anew is the same.
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
                // What is over bytes that are not there stays; the header of IPv4 is there.
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
            "checksums right",
        ] {
            assert_eq!(text.parse::<Rewrite>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "", "src", "src 10.0.0.0/33", "dst 10.0.0.1/8", "src 10.0.0.0/8 > ::/0", "mac x", "vlan 5000", "dport 1 2",
            "ttl 5 > 6", "checksums 0",
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

    /// UDP behind these extension headers, or options of IPv4.
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
    fn leaves_frames_whose_checksum_covers_another_address() {
        let segment = |kind: u8, left: u8| [&[UDP, 2, kind, left, 0, 0, 0, 0][..], &address_v6(9)].concat();
        let home = [&[UDP, 2, 1, 2, 0, 0, 201, 16][..], &address_v6(7)].concat();
        let hops = [[43, 0, 1, 4, 0, 0, 0, 0].as_slice(), &segment(4, 1)].concat();
        let route = |kind: u8, pointer: u8| vec![kind, 7, pointer, 192, 0, 2, 1, 0];
        let after_others = [&[1, 1, 1][..], &route(0x83, 4)[..7], &[0, 0]].concat();
        for (left, frame) in [
            (true, behind(true, 43, &segment(0, 1))),
            (true, behind(true, 43, &segment(2, 1))),
            (true, behind(true, 43, &segment(4, 1))),
            (true, behind(true, 0, &hops)),
            (true, behind(true, 60, &home)),
            (true, behind(false, 0, &route(0x83, 4))),
            (true, behind(false, 0, &route(0x89, 4))),
            (true, behind(false, 0, &after_others)),
            (false, behind(true, 43, &segment(0, 0))),
            (false, behind(true, 60, &[UDP, 0, 1, 4, 0, 0, 0, 0])),
            (false, behind(true, 0, &[])),
            (false, behind(false, 0, &route(0x83, 8))),
            (false, behind(false, 0, &route(0x07, 4))),
            (false, behind(false, 0, &[])),
        ] {
            for rule in
                ["checksums right", "dst ::/0 > fd00:1::/32", "ip 10.0.0.0/8 > 20.0.0.0/8", "src fd00::/16 > fd00::/16"]
            {
                let mut changed = frame.clone();
                let applied = rule.parse::<Rewrite>().expect(rule).apply(&mut changed);
                let v6 = frame[12] == 0x86;
                let concerned = rule.starts_with("checksums") || v6 != rule.contains("10.0");
                assert_eq!(applied, !(left && concerned), "{rule}: {frame:x?}");
                assert!(!left || changed == frame, "{rule}");
            }
            // Ports and hardware addresses need no pseudo header.
            let mut changed = frame.clone();
            assert!("dport 53 > 54".parse::<Rewrite>().expect("a change").apply(&mut changed));
        }
    }
}

use crate::key::{ICMP, ICMPV6};
use crate::layers::{LayerKind, Layers, is_announced_port};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use units::FrameLen;

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
/// Payload of the smallest frame in bytes, padding included.
const SMALLEST: usize = 46;
/// Limit on skipped IPv6 extension headers; no sender needs more.
const MOST_EXTENSIONS: usize = 8;

/// Protocol number of TCP (RFC 9293).
pub const TCP: u8 = 6;
/// Protocol number of UDP (RFC 768).
pub const UDP: u8 = 17;
/// Protocol number of SCTP (RFC 9260).
pub const SCTP: u8 = 132;

/// Offsets of the headers of a frame: found once, used often.
///
/// Offsets count from the first byte of the destination address. A truncated or inconsistent header is absent; nothing
/// panics, since each accessor takes the same frame again and checks its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Tag control information of the VLAN tags, outermost first; two at most (IEEE 802.1Q, 802.1ad).
    pub tags: [Option<u16>; 2],
    /// EtherType after the tags; a value below 0x0600 is a length (IEEE 802.3).
    pub ether_type: u16,
    /// Offset of the header that the EtherType announces.
    pub network: usize,
    /// The IP packet, if its header is complete.
    pub ip: Option<IpHeader>,
}

/// The header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// 4 or 6.
    pub version: u8,
    /// Offset of the header.
    pub start: usize,
    /// Offset of the packet's end by its own length. Padding may follow, or a capture may have truncated the packet
    /// earlier.
    pub end: usize,
    /// Protocol of the transport header, after any IPv6 extension headers.
    pub protocol: u8,
    /// Type of service or traffic class: DSCP in the upper six bits, ECN in the lower two (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// The packet is a fragment.
    pub fragment: bool,
    /// Offset of the transport header; `None` in later fragments, and if an extension header is truncated.
    pub transport: Option<usize>,
}

impl Headers {
    /// Finds the headers; `None` if the Ethernet header or a VLAN tag is truncated.
    #[must_use]
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Headers> {
        let mut tags = [None; 2];
        let mut network = ETHERNET;
        let mut ether_type = be16(frame, 12)?;
        for tag in &mut tags {
            if !matches!(ether_type, 0x8100 | 0x88a8) {
                break;
            }
            *tag = Some(be16(frame, network)?);
            ether_type = be16(frame, network + 2)?;
            network += VLAN_TAG;
        }
        let ip = match ether_type {
            0x0800 => IpHeader::v4(frame, network),
            0x86dd => IpHeader::v6(frame, network),
            _ => None,
        };
        Some(Headers { tags, ether_type, network, ip })
    }

    /// As [`of`](Headers::of), but also finds the packet after MPLS labels, PPPoE, SNAP or a third tag, as if its own
    /// EtherType announced it: the outermost packet of [`Layers`].
    #[must_use]
    #[inline]
    pub fn outermost(frame: &[u8]) -> Option<Headers> {
        let headers = Headers::of(frame)?;
        if headers.ip.is_none() && (headers.ether_type < 0x0600 || headers.may_hold_more(frame)) {
            return Headers::by_layers(frame);
        }
        Some(headers)
    }

    /// Finds the headers again: if the caller passed its own by reference, they could not stay in registers.
    #[cold]
    fn by_layers(frame: &[u8]) -> Option<Headers> {
        let layers = Layers::of(frame);
        let mut tags = layers.level(0).filter(|layer| layer.kind == LayerKind::Vlan);
        let mut tag = || tags.next().and_then(|layer| be16(frame, layer.start as usize));
        let tags = [tag(), tag()];
        for layer in layers.level(0) {
            let network = layer.start as usize;
            match layer.kind {
                LayerKind::Ipv4 => {
                    return Some(Headers { tags, ether_type: 0x0800, network, ip: IpHeader::v4(frame, network) });
                }
                LayerKind::Ipv6 => {
                    return Some(Headers { tags, ether_type: 0x86dd, network, ip: IpHeader::v6(frame, network) });
                }
                LayerKind::Arp => return Some(Headers { tags, ether_type: 0x0806, network, ip: None }),
                _ => {}
            }
        }
        Some(Headers { tags, ..Headers::of(frame)? })
    }

    /// IPv4 addresses of sender and target in ARP and RARP over Ethernet (RFC 826, RFC 903).
    #[must_use]
    pub fn arp_addresses(&self, frame: &[u8]) -> Option<(u32, u32)> {
        if !matches!(self.ether_type, 0x0806 | 0x8035) {
            return None;
        }
        let packet = frame.get(self.network..self.network + 28)?;
        let address = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        (packet[..6] == [0, 1, 8, 0, 6, 4]).then(|| (address(14), address(24)))
    }

    /// Identifier of the outermost VLAN; 0 in a priority tag.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        self.tags[0].map(|tag| tag & 0x0fff)
    }

    /// Source and destination port of TCP, UDP or SCTP.
    #[must_use]
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let ip = self.ip.as_ref().filter(|ip| matches!(ip.protocol, TCP | UDP | SCTP))?;
        let at = ip.transport?;
        Some((be16(frame, at)?, be16(frame, at + 2)?))
    }

    /// The flags of a TCP header, FIN lowest.
    #[must_use]
    pub fn tcp_flags(&self, frame: &[u8]) -> Option<u8> {
        let ip = self.ip.as_ref().filter(|ip| ip.protocol == TCP)?;
        frame.get(ip.transport? + 13).copied()
    }

    /// Range of the TCP or UDP payload, up to the end of the packet or of the captured bytes.
    #[must_use]
    pub fn payload(&self, frame: &[u8]) -> Option<Range<usize>> {
        let ip = self.ip?;
        let transport = ip.transport?;
        let start = match ip.protocol {
            TCP => transport + usize::from(frame.get(transport + 12)? >> 4) * 4,
            UDP => transport + 8,
            _ => return None,
        };
        let told = ip.tells_length(frame.len() - ip.start);
        let end = if told { ip.end.min(frame.len()) } else { frame.len() };
        (start <= end).then_some(start..end)
    }
}

impl IpHeader {
    /// Whether the length in the header is valid, if the frame has `rest` bytes from the IP header on. The length is 0
    /// in packets of more than 64 KiB, and in packets that a NIC is to segment (TSO, BIG TCP of IPv6). It is also 0 in
    /// an IPv6 packet without content, which only padding follows.
    fn tells_length(&self, rest: usize) -> bool {
        match self.version {
            4 => self.end > self.start,
            _ => self.end > self.start + IPV6 || rest <= SMALLEST,
        }
    }

    #[inline]
    fn v4(frame: &[u8], start: usize) -> Option<IpHeader> {
        let header = frame.get(start..start + IPV4)?;
        let length = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || length < IPV4 {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        Some(IpHeader {
            version: 4,
            start,
            end: start + usize::from(u16::from_be_bytes([header[2], header[3]])),
            protocol: header[9],
            traffic_class: header[1],
            fragment: fragment & 0x3fff != 0,
            transport: (fragment & 0x1fff == 0).then_some(start + length),
        })
    }

    #[inline]
    fn v6(frame: &[u8], start: usize) -> Option<IpHeader> {
        let header = frame.get(start..start + IPV6)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let end = start + IPV6 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let traffic_class = header[0] << 4 | header[1] >> 4;
        let (protocol, fragment, transport) = match header[6] {
            0 | 43 | 44 | 51 | 60 => pass_extensions(frame, start + IPV6, header[6]),
            protocol => (protocol, false, Some(start + IPV6)),
        };
        Some(IpHeader { version: 6, start, end, protocol, traffic_class, fragment, transport })
    }

    /// Source and destination address as bytes: 4 each in IPv4, 16 each in IPv6.
    #[must_use]
    pub fn addresses<'f>(&self, frame: &'f [u8]) -> Option<(&'f [u8], &'f [u8])> {
        self.both_addresses(frame).map(|both| both.split_at(both.len() / 2))
    }

    /// Source and destination address, adjacent.
    #[inline]
    pub(crate) fn both_addresses<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        let (from, length) = if self.version == 4 { (12, 8) } else { (8, 32) };
        frame.get(self.start + from..self.start + from + length)
    }

    /// Source address.
    #[must_use]
    pub fn source(&self, frame: &[u8]) -> Option<IpAddr> {
        self.addresses(frame).and_then(|(source, _)| address(source))
    }

    /// Destination address.
    #[must_use]
    pub fn destination(&self, frame: &[u8]) -> Option<IpAddr> {
        self.addresses(frame).and_then(|(_, destination)| address(destination))
    }
}

/// Skips hop-by-hop options, routing, fragment, authentication and destination options headers (RFC 8200, RFC 4302).
/// Returns the protocol after them, whether the packet is a fragment, and the offset of the transport header.
#[inline(never)]
fn pass_extensions(frame: &[u8], start: usize, first: u8) -> (u8, bool, Option<usize>) {
    let (mut at, mut protocol, mut part) = (start, first, false);
    for _ in 0..MOST_EXTENSIONS {
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            break;
        }
        let Some([next, length, high, low]) = frame.get(at..at + 4) else { return (protocol, part, None) };
        let (this, length) = (protocol, usize::from(*length));
        protocol = *next;
        at += match this {
            44 => {
                let fragment = u16::from_be_bytes([*high, *low]);
                part |= fragment & 0xfff9 != 0;
                if fragment & 0xfff8 != 0 {
                    return (protocol, part, None);
                }
                8
            }
            51 => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
    }
    (protocol, part, Some(at))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(bytes)));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Length in bytes of the IPv4 or IPv6 packet in a frame of `length`, by its own header, after up to two VLAN tags. If
/// the header has no valid length, as in packets captured before a NIC segmented them, all bytes after the Ethernet
/// header count. `None` if the frame has no IP packet, or its IP header is truncated.
#[must_use]
pub fn ip_length(frame: &[u8], length: FrameLen) -> Option<u32> {
    let ip = Headers::of(frame)?.ip?;
    let rest = length.bytes().saturating_sub(FrameLen::FCS + ip.start as u32);
    Some(if ip.tells_length(rest as usize) { (ip.end - ip.start) as u32 } else { rest })
}

/// A hash that all frames of a flow share. Covers the VLAN tags, and the addresses and ports of the innermost packet
/// that the [walk](Layers) finds. Like Linux's flow dissector, it looks into VLAN tags, `PPPoE`, MPLS, GRE and IP in
/// IP; unlike it, also into VXLAN, Geneve and GTP-U. ESP and AH count by their SPI, GRE by its key, fragments by their
/// addresses alone, and frames without an IP packet by their hardware addresses.
/// Not for tables that an attacker can fill: it is FNV-1a without a key.
#[must_use]
pub fn flow_hash(frame: &[u8]) -> u32 {
    let Some(headers) = Headers::of(frame) else { return fnv(SEED, frame) };
    let tags = headers.tags.iter().flatten().fold(SEED, |hash, tag| fnv(hash, &(tag & 0x0fff).to_be_bytes()));
    if headers.may_hold_more(frame) {
        return flow_of_layers(frame);
    }
    let Some((ip, (source, destination))) = headers.ip.and_then(|ip| Some((ip, ip.addresses(frame)?))) else {
        return fnv(tags, frame.get(..12).unwrap_or(frame));
    };
    let ports = match ip.transport {
        Some(at) if !ip.fragment && matches!(ip.protocol, TCP | UDP | SCTP) => frame.get(at..at + 4),
        _ => None,
    };
    fnv(fnv(fnv(tags, source), destination), ports.unwrap_or_default())
}

const SEED: u32 = 0x811c_9dc5;

fn fnv(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn flow_of_layers(frame: &[u8]) -> u32 {
    let layers = Layers::of(frame);
    let mut hash = SEED;
    // Of nested packets and frames, only the innermost counts.
    let mut ends = frame.get(..12).unwrap_or(frame);
    let (mut ports, mut fragment): (&[u8], bool) = (&[], false);
    for layer in layers.all() {
        let header = layer.header(frame);
        let part = |from: usize, to: usize| header.get(from..to).unwrap_or_default();
        match layer.kind {
            LayerKind::Vlan => hash = fnv(hash, &[header[0] & 0x0f, header[1]]),
            LayerKind::Ethernet => (ends, ports) = (part(0, 12), &[]),
            LayerKind::Ipv4 => (ends, ports) = (part(12, 20), &[]),
            LayerKind::Ipv6 => (ends, ports) = (part(8, 40), &[]),
            LayerKind::Tcp | LayerKind::Udp | LayerKind::Sctp | LayerKind::Esp => ports = part(0, 4),
            LayerKind::Ah => ports = part(4, 8),
            LayerKind::Gre => {
                if let Some(key) = LayerKind::Gre.field("key").and_then(|field| field.read(header)) {
                    hash = fnv(hash, &(key as u32).to_be_bytes());
                }
            }
            _ => {}
        }
        fragment |= layer.fragment;
    }
    fnv(fnv(hash, ends), if fragment { &[] } else { ports })
}

impl Headers {
    /// Whether the frame may have layers that these headers do not show: a tunnel, labels, a third tag.
    #[inline]
    pub(crate) fn may_hold_more(&self, frame: &[u8]) -> bool {
        let Some(ip) = self.ip else {
            return matches!(self.ether_type, 0x8847 | 0x8848 | 0x8863 | 0x8864 | 0x8100 | 0x88a8 | 0x9100);
        };
        match ip.protocol {
            TCP | SCTP | ICMP | ICMPV6 => false,
            UDP => self.ports(frame).is_some_and(|(from, to)| is_announced_port(to) || is_announced_port(from)),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet header with `tags`, then `network`.
    fn frame(tags: &[u16], ether_type: u16, network: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(network);
        frame
    }

    fn v4(protocol: u8, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let total = (IPV4 + transport.len()) as u16;
        let mut packet = vec![0x45, 0xb9];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(transport);
        packet
    }

    const UDP_PACKET: [u8; 12] = [0x04, 0xd2, 0x00, 0x35, 0, 12, 0, 0, b'p', b'i', b'n', b'g'];

    #[test]
    fn udp_behind_two_tags() {
        let mut bytes = frame(&[0x2064, 0x0007], 0x0800, &v4(UDP, 0, &UDP_PACKET));
        bytes.extend([0; 6]);
        let headers = Headers::of(&bytes).expect("headers");
        assert_eq!((headers.vlan(), headers.tags), (Some(0x64), [Some(0x2064), Some(7)]));
        let ip = headers.ip.expect("a packet");
        assert_eq!((ip.version, ip.protocol, ip.traffic_class >> 2, ip.fragment), (4, UDP, 46, false));
        assert_eq!(ip.source(&bytes), Some("10.0.0.1".parse().expect("an address")));
        assert_eq!(ip.destination(&bytes), Some("10.0.0.2".parse().expect("an address")));
        assert_eq!(headers.ports(&bytes), Some((1234, 53)));
        let payload = headers.payload(&bytes).expect("a payload");
        assert_eq!(&bytes[payload], b"ping", "padding is not payload");
        assert_eq!(headers.tcp_flags(&bytes), None);
        assert_eq!(ip_length(&bytes, FrameLen::new(72)), Some(32));
    }

    #[test]
    fn tcp_over_ipv6_with_options() {
        let mut packet = vec![0x6b, 0x90, 0, 0, 0, 8 + 24 + 3, 0, 64];
        packet.extend([0x11; 16]);
        packet.extend([0x22; 16]);
        packet.extend([TCP, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend([0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x12]);
        packet.extend([0; 10]);
        packet.extend(b"GET");
        let bytes = frame(&[], 0x86dd, &packet);
        let headers = Headers::of(&bytes).expect("headers");
        assert_eq!(headers.ip.map(|ip| (ip.protocol, ip.traffic_class)), Some((TCP, 0xb9)));
        assert_eq!((headers.ports(&bytes), headers.tcp_flags(&bytes)), (Some((8080, 80)), Some(0x12)));
        assert_eq!(headers.payload(&bytes).map(|range| bytes[range].to_vec()), Some(b"GET".to_vec()));
        assert_eq!(ip_length(&bytes, FrameLen::new(93)), Some(75));
    }

    #[test]
    fn packets_that_a_nic_was_to_cut_are_as_long_as_their_frames() {
        let mut packet = v4(TCP, 0, &[0; 20]);
        packet[32] = 5 << 4;
        packet.extend(b"GET / HTTP");
        packet[2..4].fill(0);
        for tags in [&[][..], &[7]] {
            let bytes = frame(tags, 0x0800, &packet);
            let length = FrameLen::new(bytes.len() as u32 + 4);
            assert_eq!(ip_length(&bytes, length), Some(50), "{tags:?}");
            let payload = Headers::of(&bytes).and_then(|headers| headers.payload(&bytes)).expect("a payload");
            assert_eq!(&bytes[payload], b"GET / HTTP");
            // Bytes that the capture truncated were on the wire.
            assert_eq!(ip_length(&bytes[..40], length), Some(50), "{tags:?}");
        }
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
        packet.resize(40 + 6, 0);
        assert_eq!(ip_length(&frame(&[], 0x86dd, &packet), FrameLen::MIN), Some(40), "no next header, and padding");
        packet.resize(40 + 70_000, 0);
        assert_eq!(ip_length(&frame(&[], 0x86dd, &packet), FrameLen::new(18 + 70_040)), Some(70_040), "BIG TCP");
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let first = frame(&[], 0x0800, &v4(UDP, 0x2000, &UDP_PACKET));
        let later = frame(&[], 0x0800, &v4(UDP, 0x0010, &UDP_PACKET));
        let ports = |bytes: &[u8]| Headers::of(bytes).and_then(|headers| headers.ports(bytes));
        assert_eq!((ports(&first), ports(&later)), (Some((1234, 53)), None));
        assert!(Headers::of(&first).and_then(|headers| headers.ip).is_some_and(|ip| ip.fragment));
    }

    #[test]
    fn flows_share_a_hash_and_ports_part_them() {
        let of = |port: u8, fragment| {
            let mut udp = UDP_PACKET;
            udp[3] = port;
            frame(&[], 0x0800, &v4(UDP, fragment, &udp))
        };
        assert_eq!(flow_hash(&of(1, 0)), flow_hash(&of(1, 0)));
        assert_ne!(flow_hash(&of(1, 0)), flow_hash(&of(2, 0)));
        assert_eq!(flow_hash(&of(1, 0x2000)), flow_hash(&of(2, 0x2000)), "fragments have no ports");
    }

    /// Two flows in each of the tunnels, with the same outer headers but other inner ports or SPI.
    #[test]
    fn flows_in_tunnels_are_distinguished_by_their_inner_endpoints() {
        use crate::layers::{FieldPath, LayerKind, Layers, stack, write_field};
        use LayerKind::{Esp, Ethernet, Geneve, Gre, Gtpu, Ipv4, Ipv6, Mpls, Pppoe, Tcp, Udp, Vlan, Vxlan};
        for (kinds, path) in [
            (&[Ethernet, Pppoe, Ipv4, Udp][..], "dport"),
            (&[Ethernet, Mpls, Mpls, Ipv6, Tcp], "dport"),
            (&[Ethernet, Ipv4, Gre, Ipv4, Udp], "inner dport"),
            (&[Ethernet, Ipv4, Ipv6, Tcp], "inner src"),
            (&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp], "inner sport"),
            (&[Ethernet, Ipv4, Udp, Geneve, Ethernet, Vlan, Ipv4, Tcp], "inner vlan id"),
            (&[Ethernet, Ipv6, Udp, Gtpu, Ipv4, Udp], "innermost dst"),
            (&[Ethernet, Ipv4, Esp], "esp spi"),
            (&[Ethernet, Vlan, Vlan, Ipv4, Udp], "vlan#2 id"),
        ] {
            let one = stack(kinds, &[0; 20]).expect("a stack");
            let layers = Layers::of(&one);
            let change = |path: &str, value| {
                let words: Vec<&str> = path.split(' ').collect();
                let (path, _) = FieldPath::read(path, &words).expect("a path");
                let (of, field) = path.find(&one, &layers).expect("a field");
                let mut other = one.clone();
                assert!(write_field(&mut other, &layers, of, field, value));
                other
            };
            assert_ne!(flow_hash(&one), flow_hash(&change(path, 77)), "{kinds:?}");
            assert_eq!(flow_hash(&one), flow_hash(&change("smac", 77)), "{kinds:?}");
            let longer = stack(kinds, &[0; 21]).expect("a stack");
            assert_eq!(flow_hash(&one), flow_hash(&longer), "{kinds:?}");
        }
    }

    #[test]
    fn cut_and_odd_frames_do_no_harm() {
        let whole = frame(&[5], 0x0800, &v4(TCP, 0, &[0xff; 20]));
        for length in 0..=whole.len() {
            let cut = &whole[..length];
            let Some(headers) = Headers::of(cut) else { continue };
            let _ = (headers.ports(cut), headers.tcp_flags(cut), flow_hash(cut));
            assert!(headers.payload(cut).is_none_or(|range| range.end <= length), "at {length} B");
        }
        assert_eq!(ip_length(&[0x81; 64], FrameLen::new(68)), None);
        assert_eq!(ip_length(&frame(&[], 0x0806, &[0; 46]), FrameLen::MIN), None, "ARP");
        // The search ends even in a long chain of extension headers.
        let mut packet = vec![0x60, 0, 0, 0, 0, 200, 0, 64];
        packet.extend([0; 32 + 200]);
        assert!(Headers::of(&frame(&[], 0x86dd, &packet)).is_some());
    }
}

//! What a program put into a frame, below tunnels.

use crate::headers::{Headers, TCP, UDP};
use std::ops::Range;

/// Why a frame has no such bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPayload {
    /// No IP packet, or one that cannot be read.
    NoIp,
    /// A part of a larger packet.
    Fragment,
    /// An IP packet that carries neither TCP nor UDP nor a tunnel that is known here.
    NoTransport,
}

/// Tunnels in tunnels that are followed.
const MOST_LAYERS: usize = 8;
const GRE: u8 = 47;
const ETHERNET: u16 = 0x6558;

/// What a tunnel carries, and where that starts.
#[derive(Clone, Copy)]
enum Inner {
    Frame(usize),
    Packet(usize),
}

/// Where the bytes are that innermost TCP or UDP carries: below VXLAN, Geneve, GTP-U, Teredo, GRE and IP in IP. A sum of any
/// layer above covers them too.
///
/// # Errors
/// There are none, and why.
pub fn innermost_payload(frame: &[u8]) -> Result<Range<usize>, NoPayload> {
    let mut headers = Headers::of(frame).ok_or(NoPayload::NoIp)?;
    let mut end = frame.len();
    for _ in 0..MOST_LAYERS {
        let layer = &frame[..end];
        let ip = headers.ip.ok_or(NoPayload::NoIp)?;
        if ip.fragment {
            return Err(NoPayload::Fragment);
        }
        let transport = ip.transport.ok_or(NoPayload::NoTransport)?;
        let inner = match ip.protocol {
            TCP | UDP => {
                let payload = headers.payload(layer).ok_or(NoPayload::NoTransport)?;
                end = payload.end;
                let (from, to) = headers.ports(layer).unwrap_or_default();
                match Some(&frame[payload.clone()]).filter(|_| ip.protocol == UDP) {
                    Some(bytes) => match [to, from].into_iter().find_map(|port| in_udp(port, bytes)) {
                        Some(inner) => inner.behind(payload.start),
                        None => return Ok(payload),
                    },
                    None => return Ok(payload),
                }
            }
            4 | 41 => Inner::Packet(transport),
            GRE => in_gre(layer.get(transport..).unwrap_or_default())
                .map(|inner| inner.behind(transport))
                .ok_or(NoPayload::NoTransport)?,
            _ => return Err(NoPayload::NoTransport),
        };
        headers = match inner {
            Inner::Frame(start) => Headers::at(&frame[..end], start),
            Inner::Packet(start) => Headers::of_packet(&frame[..end], start),
        }
        .ok_or(NoPayload::NoIp)?;
    }
    Err(NoPayload::NoTransport)
}

impl Inner {
    fn behind(self, offset: usize) -> Inner {
        match self {
            Inner::Frame(start) => Inner::Frame(start + offset),
            Inner::Packet(start) => Inner::Packet(start + offset),
        }
    }

    /// By the EtherType of what starts at `start`.
    fn of(ether_type: u16, start: usize) -> Option<Inner> {
        match ether_type {
            ETHERNET => Some(Inner::Frame(start)),
            0x0800 | 0x86dd => Some(Inner::Packet(start)),
            _ => None,
        }
    }
}

/// What a datagram carries, if a port and its first bytes are those of a tunnel.
fn in_udp(port: u16, bytes: &[u8]) -> Option<Inner> {
    let [first, second, third, fourth] = *bytes.first_chunk()?;
    match port {
        // RFC 7348; Linux took another port before.
        4789 | 8472 if first & 0x08 != 0 => Some(Inner::Frame(8)),
        // VXLAN-GPE.
        4790 if first & 0x0c == 0x0c => match fourth {
            1 | 2 => Some(Inner::Packet(8)),
            3 => Some(Inner::Frame(8)),
            _ => None,
        },
        // RFC 8926.
        6081 if first >> 6 == 0 => Inner::of(u16::from_be_bytes([third, fourth]), 8 + usize::from(first & 0x3f) * 4),
        // 3GPP TS 29.281, G-PDU.
        2152 if first >> 4 == 3 && second == 255 => {
            let mut at = if first & 7 == 0 { 8 } else { 12 };
            let mut next = if first & 4 == 0 { 0 } else { *bytes.get(11)? };
            while next != 0 {
                let length = usize::from(*bytes.get(at)?).max(1) * 4;
                next = *bytes.get(at + length - 1)?;
                at += length;
            }
            Some(Inner::Packet(at))
        }
        // RFC 4380.
        3544 if first >> 4 == 6 => Some(Inner::Packet(0)),
        _ => None,
    }
}

/// What GRE carries (RFC 2784, RFC 2890).
fn in_gre(bytes: &[u8]) -> Option<Inner> {
    let [flags, version, high, low] = *bytes.first_chunk()?;
    // Routing, and what PPTP makes of it.
    if flags & 0x40 != 0 || version & 7 != 0 {
        return None;
    }
    let fields = (flags & 0xb0).count_ones() as usize;
    Inner::of(u16::from_be_bytes([high, low]), 4 + 4 * fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHER: [u8; 14] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 0];

    fn ip(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let [high, low] = (20 + rest.len() as u16).to_be_bytes();
        [&[0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..], rest].concat()
    }

    fn ip6(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let [high, low] = (rest.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, high, low, protocol, 64][..], &[0xfd; 32], rest].concat()
    }

    fn udp(port: u16, rest: &[u8]) -> Vec<u8> {
        let length = 8 + rest.len() as u16;
        [&[0x04, 0xd2][..], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0], rest].concat()
    }

    fn tcp(rest: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &[0x50, 0, 0, 0, 0, 0, 0, 0], rest].concat()
    }

    fn found(frame: &[u8]) -> Result<&[u8], NoPayload> {
        innermost_payload(frame).map(|range| &frame[range])
    }

    #[test]
    fn bytes_of_programs_are_found_below_tunnels() {
        let data = b"what a program wrote";
        let inner = [ip(UDP, &udp(53, data)), ip(TCP, &tcp(data)), ip6(UDP, &udp(53, data)), ip6(TCP, &tcp(data))];
        for packet in inner {
            let ether_type: [u8; 2] = if packet[0] == 0x45 { [8, 0] } else { [0x86, 0xdd] };
            let frame = [&ETHER[..12], &ether_type, &packet].concat();
            let tagged = [&ETHER[..12], &[0x81, 0, 0, 5], &ether_type, &packet].concat();
            let vxlan = |inner: &[u8]| [&[8, 0, 0, 0, 0, 0, 7, 0][..], inner].concat();
            let protocol = if packet[0] == 0x45 { 4 } else { 41 };
            let outer = [
                ip(UDP, &udp(4789, &vxlan(&frame))),
                ip(UDP, &udp(8472, &vxlan(&tagged))),
                ip6(UDP, &udp(4789, &vxlan(&frame))),
                ip(UDP, &udp(4789, &vxlan(&[&ETHER[..], &ip(UDP, &udp(4789, &vxlan(&frame)))].concat()))),
                ip(UDP, &udp(4790, &[&[0x0c, 0, 0, 3, 0, 0, 7, 0][..], &frame].concat())),
                ip(UDP, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 4][..], &frame].concat())),
                ip(UDP, &udp(2152, &[&[0x30, 255, 0, 9, 0, 0, 0, 1][..], &packet].concat())),
                ip(UDP, &udp(2152, &[&[0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 9, 9, 0][..], &packet].concat())),
                ip(GRE, &[&[0, 0, ether_type[0], ether_type[1]][..], &packet].concat()),
                ip(GRE, &[&[0xb0, 0, 0x65, 0x58, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9][..], &frame].concat()),
                ip(protocol, &packet),
                ip6(protocol, &packet),
            ];
            for (i, outer) in outer.iter().enumerate() {
                let ether_type: [u8; 2] = if outer[0] == 0x45 { [8, 0] } else { [0x86, 0xdd] };
                let whole = [&ETHER[..12], &ether_type, outer, &[0; 7]].concat();
                assert_eq!(found(&whole), Ok(&data[..]), "tunnel {i}");
            }
            assert_eq!(found(&frame), Ok(&data[..]));
        }
    }

    #[test]
    fn gives_the_reason_for_frames_without_one() {
        let vxlan = |inner: &[u8]| {
            [&ETHER[..], &ip(UDP, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], inner].concat()))].concat()
        };
        assert_eq!(found(&[2; 60]), Err(NoPayload::NoIp));
        assert_eq!(found(&vxlan(&[2; 60])), Err(NoPayload::NoIp), "ARP below VXLAN");
        assert_eq!(found(&vxlan(&[&ETHER[..], &ip(1, b"ping")].concat())), Err(NoPayload::NoTransport));
        assert_eq!(found(&[&ETHER[..], &ip(50, b"ESP")].concat()), Err(NoPayload::NoTransport));
        let mut part = ip(UDP, &udp(53, b"part"));
        part[6] = 0x20;
        assert_eq!(found(&vxlan(&[&ETHER[..], &part].concat())), Err(NoPayload::Fragment));
        // A port alone is no tunnel.
        let dns = [&ETHER[..], &ip(UDP, &udp(4789, b"\0\0plain"))].concat();
        assert_eq!(found(&dns), Ok(&b"\0\0plain"[..]));
        for length in 0..dns.len() {
            let _ = innermost_payload(&dns[..length]);
        }
    }
}

//! Finds the payload that a program sent, inside any tunnels.

use crate::layers::{ICRC, Layer, LayerKind, Layers, Rest};
use std::ops::Range;

/// Why a frame has no innermost payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPayload {
    /// No IP packet, or an unreadable one.
    NoIp,
    /// A fragment of a larger packet.
    Fragment,
    /// An IP packet without TCP, UDP, an SCTP data chunk, RoCE or a known tunnel.
    NoTransport,
}

/// Range of the innermost payload of TCP, UDP, RoCE or an SCTP data chunk, inside all tunnels that the [walk](Layers)
/// knows. The checksums of all layers around it cover it too.
///
/// # Errors
/// Why the frame has no such payload.
pub fn innermost_payload(frame: &[u8]) -> Result<Range<usize>, NoPayload> {
    let layers = Layers::of(frame);
    let last = layers.last().ok_or(NoPayload::NoIp)?;
    let is_packet = |layer: &Layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6);
    if !layers.level(layers.deepest()).any(is_packet) {
        return Err(NoPayload::NoIp);
    }
    match last.kind {
        _ if last.fragment => Err(NoPayload::Fragment),
        LayerKind::Tcp | LayerKind::Udp if layers.rest() == Rest::Payload => {
            Ok(last.content as usize..last.end as usize)
        }
        // The ICRC follows the payload.
        LayerKind::Roce if last.content as usize + ICRC <= last.end as usize => {
            Ok(last.content as usize..last.end as usize - ICRC)
        }
        LayerKind::SctpData => Ok(last.content as usize..last.end as usize),
        _ => Err(NoPayload::NoTransport),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::{TCP, UDP};

    const GRE: u8 = 47;

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
                ip(UDP, &udp(2152, &[&[0x30, 255, 0, packet.len() as u8, 0, 0, 0, 1][..], &packet].concat())),
                ip(
                    UDP,
                    &udp(
                        2152,
                        &[&[0x34, 255, 0, 8 + packet.len() as u8, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 9, 9, 0][..], &packet]
                            .concat(),
                    ),
                ),
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
        // A port alone does not make a tunnel.
        let dns = [&ETHER[..], &ip(UDP, &udp(4789, b"\0\0plain"))].concat();
        assert_eq!(found(&dns), Ok(&b"\0\0plain"[..]));
        for length in 0..dns.len() {
            let _ = innermost_payload(&dns[..length]);
        }
    }
}

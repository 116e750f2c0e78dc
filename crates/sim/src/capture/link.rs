//! Link-layer headers of captures, and their conversion to Ethernet.

use super::anomalies::SkipReason;
use packet::{Frame, HeapFrame};

/// Destination and source of generated headers: locally administered, as in streams.
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A link type (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// 1: an Ethernet frame.
    Ethernet,
    /// 12, 14, 101, 228 and 229: an IP packet without a link-layer header, as on tunnels.
    Raw,
    /// 0 and 108: BSD loopback, whose header is an address family.
    Loopback,
    /// 113: Linux's "cooked" header, as from `tcpdump -i any`.
    Cooked,
    /// 276: version 2 of the cooked header.
    Cooked2,
}

impl Link {
    /// The link type with this number; `None` if it is not supported.
    pub(super) fn of(link_type: u16) -> Option<Link> {
        match link_type {
            1 => Some(Link::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Link::Raw),
            0 | 108 => Some(Link::Loopback),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            _ => None,
        }
    }

    /// Replaces the captured link-layer header by an Ethernet header. Returns whether it did, or why it could not.
    pub(super) fn make_frame(self, frame: &mut HeapFrame) -> Result<bool, SkipReason> {
        let bytes = frame.bytes();
        let (taken, header) = match self {
            Link::Ethernet => return Ok(false),
            Link::Raw => (0, header(0, None, ip_version(bytes)?)),
            Link::Loopback => {
                let family = head::<4>(bytes)?;
                (4, header(0, None, of_family(family)?))
            }
            Link::Cooked => {
                let [_, of, hardware @ .., high, low] = head::<16>(bytes)?;
                let [device_high, device_low, _, length, a, b, c, d, e, f, _, _] = hardware;
                let device = u16::from_be_bytes([device_high, device_low]);
                let kind = kind([high, low], device, frame.original() - 16)?;
                (16, header(of, (length == 6).then_some([a, b, c, d, e, f]), kind))
            }
            Link::Cooked2 => {
                let [high, low, _, _, _, _, _, _, device_high, device_low, of, length, a, b, c, d, e, f, _, _] =
                    head::<20>(bytes)?;
                let device = u16::from_be_bytes([device_high, device_low]);
                let kind = kind([high, low], device, frame.original() - 20)?;
                (20, header(of, (length == 6).then_some([a, b, c, d, e, f]), kind))
            }
        };
        frame.edit(|bytes| drop(bytes.splice(..taken, header)));
        Ok(true)
    }
}

/// The EtherType of an IP packet, from its version field.
fn ip_version(packet: &[u8]) -> Result<[u8; 2], SkipReason> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => Ok(IPV4),
        Some(6) => Ok(IPV6),
        _ => Err(SkipReason::NotIp),
    }
}

/// The EtherType of an address family, in the byte order of the capturing host.
fn of_family(family: [u8; 4]) -> Result<[u8; 2], SkipReason> {
    let little = u32::from_le_bytes(family);
    match if little > 0xffff { little.swap_bytes() } else { little } {
        2 => Ok(IPV4),
        // Linux, Windows, OpenBSD and NetBSD, FreeBSD, macOS.
        10 | 23 | 24 | 28 | 30 => Ok(IPV6),
        _ => Err(SkipReason::NotIp),
    }
}

/// The EtherType or length field for a cooked header, from its protocol and device type (ARPHRD).
fn kind(protocol: [u8; 2], device: u16, payload: u32) -> Result<[u8; 2], SkipReason> {
    const CAN: u16 = 280;
    const FRAME_RELAY: u16 = 770;
    const WIFI: std::ops::RangeInclusive<u16> = 801..=803;
    const NETLINK: u16 = 824;
    if matches!(device, CAN | FRAME_RELAY | NETLINK) || WIFI.contains(&device) {
        return Err(SkipReason::NotEthernet);
    }
    match u16::from_be_bytes(protocol) {
        0x0600.. => Ok(protocol),
        // Without and with an LLC header: Ethernet has a length in this field.
        1 | 4 if payload <= 1_500 => Ok((payload as u16).to_be_bytes()),
        1 | 4 => Err(SkipReason::LongLlc),
        _ => Err(SkipReason::NotEthernet),
    }
}

fn head<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SkipReason> {
    bytes.first_chunk().copied().ok_or(SkipReason::Short)
}

/// An Ethernet header. The capture has only the sender's address and whether the packet was a broadcast.
fn header(packet_type: u8, source: Option<[u8; 6]>, kind: [u8; 2]) -> [u8; 14] {
    const BROADCAST: u8 = 1;
    let destination = if packet_type == BROADCAST { [0xff; 6] } else { DESTINATION };
    let mut header = [0; 14];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source.unwrap_or(SOURCE));
    header[12..].copy_from_slice(&kind);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    fn framed(link: u16, before: &[u8], cut: u32) -> Result<(Vec<u8>, u32), SkipReason> {
        let record = [before, &PACKET].concat();
        let mut frame = HeapFrame::default();
        frame.refill(&record, record.len() as u32 + cut);
        Link::of(link).expect("it is read").make_frame(&mut frame)?;
        Ok((frame.bytes().to_vec(), frame.length().bytes()))
    }

    #[test]
    fn generates_headers_from_the_captured_fields() {
        let made = [&DESTINATION[..], &SOURCE, &[0x08, 0x00], &PACKET].concat();
        // With an FCS, and with 100 B truncated by the capture.
        assert_eq!(framed(101, &[], 100), Ok((made.clone(), 14 + 20 + 100 + 4)));
        for raw in [12, 14, 228] {
            assert_eq!(framed(raw, &[], 100).map(|(bytes, _)| bytes), Ok(made.clone()));
        }
        let sender = [0x52, 0x54, 0, 1, 2, 3];
        let cooked = [&[0, 1, 0, 1, 0, 6][..], &sender, &[0, 0, 0x08, 0x00]].concat();
        let made = [&[0xff; 6][..], &sender, &[0x08, 0x00], &PACKET].concat();
        assert_eq!(framed(113, &cooked, 100), Ok((made, 14 + 20 + 100 + 4)));
        let cooked = [&[0x08, 0x00, 0, 0, 0, 0, 0, 9, 0, 1, 4, 6][..], &sender, &[0, 0]].concat();
        let made = [&DESTINATION[..], &sender, &[0x08, 0x00], &PACKET].concat();
        assert_eq!(framed(276, &cooked, 100), Ok((made, 14 + 20 + 100 + 4)));
        // On `lo` the address is six zero bytes; on a tunnel there is none.
        let tunnel = [&[0, 4, 2, 8, 0, 0][..], &[0; 8], &[0x08, 0x00]].concat();
        assert_eq!(framed(113, &tunnel, 0).map(|(bytes, _)| bytes[6..12].to_vec()), Ok(SOURCE.to_vec()));
    }

    #[test]
    fn reads_loopback_families_in_either_byte_order() {
        let kind = |family: [u8; 4], link| framed(link, &family, 0).map(|(bytes, _)| [bytes[12], bytes[13]]);
        for link in [0, 108] {
            assert_eq!(kind([2, 0, 0, 0], link), Ok(IPV4));
            assert_eq!(kind([0, 0, 0, 2], link), Ok(IPV4));
            for six in [10, 23, 24, 28, 30] {
                assert_eq!(kind([six, 0, 0, 0], link), Ok(IPV6));
                assert_eq!(kind([0, 0, 0, six], link), Ok(IPV6));
            }
            assert_eq!(kind([7, 0, 0, 0], link), Err(SkipReason::NotIp));
        }
        assert_eq!(
            framed(0, &[2, 0, 0, 0], 100).map(|(bytes, length)| (bytes.len(), length)),
            Ok((34, 14 + 20 + 100 + 4))
        );
    }

    #[test]
    fn converts_cooked_protocols_that_are_not_ether_types() {
        let cooked = |device: u16, protocol: u16, cut| {
            let [a, b] = device.to_be_bytes();
            let [c, d] = protocol.to_be_bytes();
            let first = framed(113, &[0, 0, a, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, c, d], cut);
            let second = framed(276, &[c, d, 0, 0, 0, 0, 0, 0, a, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], cut);
            assert_eq!(first, second);
            first.map(|(bytes, _)| u16::from_be_bytes([bytes[12], bytes[13]]))
        };
        assert_eq!(cooked(1, 0x0806, 0), Ok(0x0806));
        assert_eq!(cooked(65_534, 0x86dd, 0), Ok(0x86dd), "a tunnel");
        // LLC and Novell's IPX have a length field, which includes truncated bytes.
        assert_eq!((cooked(1, 4, 0), cooked(1, 4, 18), cooked(1, 1, 0)), (Ok(20), Ok(38), Ok(20)));
        assert_eq!((cooked(1, 4, 1_480), cooked(1, 4, 1_481)), (Ok(1_500), Err(SkipReason::LongLlc)));
        for (device, protocol) in
            [(280, 0x000c), (280, 0x000d), (1, 0x000c), (824, 0), (824, 0x0800), (803, 0x0800), (1, 3)]
        {
            assert_eq!(cooked(device, protocol, 0), Err(SkipReason::NotEthernet), "{device} {protocol}");
        }
    }

    #[test]
    fn skips_records_without_packets() {
        let mut frame = HeapFrame::default();
        for (link, bytes, why) in [
            (101, &[][..], SkipReason::NotIp),
            (12, &[0x15], SkipReason::NotIp),
            (0, &[2, 0, 0], SkipReason::Short),
            (113, &[0; 15], SkipReason::Short),
            (276, &[0; 19], SkipReason::Short),
        ] {
            frame.refill(bytes, 60);
            let link = Link::of(link).expect("it is read");
            assert_eq!(link.make_frame(&mut frame), Err(why), "{link:?} {bytes:?}");
        }
        assert_eq!(Link::of(105), None);
    }
}

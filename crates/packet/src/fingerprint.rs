use crate::headers::{Headers, SCTP, TCP};
use crate::key::{ICMP, ICMPV6};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::ops::Range;

/// Identifies a frame after switches and routers have forwarded it.
///
/// Excludes link addresses, VLAN tags, padding, and the IP header fields that a router changes: TTL or hop limit,
/// traffic class, and the IPv4 checksum (RFC 1812 section 5.2.1, RFC 8200 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Digest of all other bytes.
    pub whole: u64,
    /// Digest of addresses, protocol, identification, ports and sequence number: identifies a frame whose payload was
    /// changed. Without IP, of the EtherType and the first bytes after it.
    pub header: Option<u64>,
    /// Digest of the payload: identifies a frame whose addresses or ports were changed. Without a known transport, of
    /// what follows the first bytes of the packet. `None` if it has fewer than 8 bytes.
    pub payload: Option<u64>,
}

/// Shorter payloads occur in many frames.
const SHORTEST_PAYLOAD: usize = 8;
/// Bytes of a packet that is not IP which count as its header: labels of MPLS and the start of what they carry, or an ARP
/// header with the sender's hardware address.
const FIRST: usize = 14;
/// Bytes of a TCP or SCTP header in the digest: ports, and sequence number or verification tag.
const START: usize = 8;

impl Fingerprint {
    /// The fingerprint of a frame; `None` if its Ethernet header or VLAN tags are truncated.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Fingerprint> {
        let headers = Headers::of(frame)?;
        let packet = frame.get(headers.network..)?;
        let Some(ip) = headers.ip else {
            // Padding looks like trailing zeros.
            let end = packet.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let (first, rest) = packet[..end].split_at(end.min(FIRST));
            return Some(Fingerprint {
                whole: digest(&(headers.ether_type, &packet[..end])),
                header: (!rest.is_empty()).then(|| digest(&(headers.ether_type, first))),
                payload: (rest.len() >= SHORTEST_PAYLOAD).then(|| digest(&rest)),
            });
        };
        let packet = frame.get(ip.start..ip.end.clamp(ip.start, frame.len())).unwrap_or(packet);
        let mut start = [0; 40];
        let fixed = packet.len().min(if ip.version == 4 { 20 } else { 40 });
        start[..fixed].copy_from_slice(&packet[..fixed]);
        if ip.version == 4 {
            start[1] = 0;
            start[8] = 0;
            start[10..12].fill(0);
        } else {
            start[0] &= 0xf0;
            start[1] &= 0x0f;
            start[7] = 0;
        }
        // ICMP, and others without ports, have a header of 8 bytes.
        let of_other = || frame.get(ip.transport? + START..ip.end.min(frame.len()));
        let payload = headers.payload(frame).map(|range| &frame[range]).or_else(of_other);
        let payload = payload.filter(|bytes| bytes.len() >= SHORTEST_PAYLOAD);
        Some(Fingerprint {
            whole: digest(&(&start[..fixed], &packet[fixed..])),
            header: transport_start(frame, &headers),
            payload: payload.map(|bytes| digest(&bytes)),
        })
    }
}

fn transport_start(frame: &[u8], headers: &Headers) -> Option<u64> {
    let ip = headers.ip?;
    let addresses: (IpAddr, IpAddr) = (ip.source(frame)?, ip.destination(frame)?);
    let id = if ip.version == 4 { frame.get(ip.start + 4..ip.start + 8)? } else { &[] };
    // UDP's length and checksum change with its payload. SCTP's verification tag only identifies an association. ICMP's
    // checksum lies between its type and the identifier and sequence number of an echo.
    let parts = match ip.protocol {
        TCP | SCTP => [0..START, START..START],
        ICMP | ICMPV6 => [0..2, 4..8],
        _ => [0..4, 4..4],
    };
    let part =
        |part: Range<usize>| ip.transport.and_then(|at| frame.get(at + part.start..at + part.end)).unwrap_or(&[]);
    let [first, second] = parts.map(part);
    Some(digest(&(addresses, ip.protocol, id, first, second)))
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 UDP datagram with `payload`, padded to 60 bytes.
    fn udp(ttl: u8, destination: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((28 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 7, 0, 0, ttl, 17, ttl, ttl, 10, 0, 0, 1, 10, 0, 0, destination, 0, 5, 0, 9]);
        frame.extend((8 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn print(frame: &[u8]) -> Fingerprint {
        Fingerprint::of(frame).expect("a frame")
    }

    #[test]
    fn ignores_what_switches_and_routers_change() {
        let sent = udp(64, 2, b"as it was sent");
        let mut routed = udp(63, 2, b"as it was sent");
        routed[..12].fill(9);
        routed.splice(12..12, [0x81, 0, 0, 5]);
        routed.push(0);
        assert_eq!(print(&sent), print(&routed));
    }

    #[test]
    fn recognises_changed_payloads_and_addresses() {
        let sent = print(&udp(64, 2, b"as it was sent"));
        let corrupt = print(&udp(64, 2, b"as it was bent"));
        assert_ne!(sent.whole, corrupt.whole);
        assert_eq!(sent.header, corrupt.header);
        assert_ne!(sent.payload, corrupt.payload);
        let translated = print(&udp(64, 3, b"as it was sent"));
        assert_ne!(sent.header, translated.header);
        assert_eq!(sent.payload, translated.payload);
    }

    /// An IPv4 ICMP echo with this payload and its checksum left as 0.
    fn echo(sequence: u8, destination: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = udp(64, destination, payload);
        frame[23] = 1;
        frame[34..42].copy_from_slice(&[8, 0, payload[0], payload[1], 0, 7, 0, sequence]);
        frame
    }

    #[test]
    fn recognises_changed_echoes() {
        let sent = print(&echo(1, 2, b"as it was sent"));
        let corrupt = print(&echo(1, 2, b"bs it was sent"));
        assert!(sent.whole != corrupt.whole && sent.payload != corrupt.payload);
        assert_eq!(sent.header, corrupt.header, "the checksum changes with the payload");
        assert_ne!(sent.header, print(&echo(2, 2, b"as it was sent")).header, "the sequence number does not");
        assert_eq!(sent.payload, print(&echo(1, 3, b"as it was sent")).payload);
    }

    #[test]
    fn recognises_changed_frames_without_ip() {
        let mpls = |label: u8, last: u8| {
            let mut frame = vec![2; 12];
            frame.extend([0x88, 0x47, 0, label, 1, 64]);
            frame.extend((0..40).map(|byte| byte + 1));
            frame.push(last);
            print(&frame)
        };
        let sent = mpls(1, 9);
        assert_eq!(sent.header, mpls(1, 8).header);
        assert_eq!(sent.payload, mpls(2, 9).payload);
        assert!(sent.payload.is_some() && sent.whole != mpls(1, 8).whole && sent.header != mpls(2, 9).header);
    }

    #[test]
    fn short_frames_without_ip_have_only_a_digest_of_all() {
        let mut arp = vec![1; 12];
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 7]);
        let padded: Vec<u8> = arp.iter().copied().chain([0; 20]).collect();
        assert_eq!(print(&arp), print(&padded));
        assert_eq!((print(&arp).header, print(&arp).payload), (None, None));
        assert_eq!(Fingerprint::of(&[0; 13]), None);
    }
}

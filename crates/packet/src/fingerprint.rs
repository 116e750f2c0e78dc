use crate::headers::{Headers, SCTP, TCP, UDP};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

/// Identifies a frame after switches and routers have forwarded it.
///
/// Excludes link addresses, VLAN tags, padding, and the IP header fields that a router changes: TTL or hop limit,
/// traffic class, and the IPv4 checksum (RFC 1812 section 5.2.1, RFC 8200 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Digest of all other bytes.
    pub whole: u64,
    /// Digest of addresses, protocol, identification, ports and sequence number: identifies a frame whose payload was
    /// changed. `None` for frames without IP.
    pub header: Option<u64>,
    /// Digest of the TCP or UDP payload: identifies a frame whose addresses or ports were changed. `None` without such
    /// a payload, or if it has fewer than 8 bytes.
    pub payload: Option<u64>,
}

/// Shorter payloads occur in many frames.
const SHORTEST_PAYLOAD: usize = 8;
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
            return Some(Fingerprint {
                whole: digest(&(headers.ether_type, &packet[..end])),
                header: None,
                payload: None,
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
        let payload = headers.payload(frame).map(|range| &frame[range]).filter(|bytes| bytes.len() >= SHORTEST_PAYLOAD);
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
    // UDP's length and checksum change with its payload. SCTP's verification tag only identifies an association.
    let length = match ip.protocol {
        UDP => 4,
        TCP | SCTP => START,
        _ => 4,
    };
    let first = ip.transport.and_then(|at| frame.get(at..at + length)).unwrap_or(&[]);
    Some(digest(&(addresses, ip.protocol, id, first)))
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

    #[test]
    fn frames_without_ip_have_only_a_digest_of_all() {
        let mut arp = vec![1; 12];
        arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 7]);
        let padded: Vec<u8> = arp.iter().copied().chain([0; 20]).collect();
        assert_eq!(print(&arp), print(&padded));
        assert_eq!((print(&arp).header, print(&arp).payload), (None, None));
        assert_eq!(Fingerprint::of(&[0; 13]), None);
    }
}

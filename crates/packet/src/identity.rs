use crate::headers::{Headers, TCP, UDP};
use std::net::IpAddr;

/// Identifies a TCP or UDP packet wherever it is seen on its way.
///
/// A retransmission of the same bytes has the same identity; only its time differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Sender's address.
    pub source: IpAddr,
    /// Receiver's address.
    pub destination: IpAddr,
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// TCP's sequence number; in UDP, a digest of the IP identification and the first eight bytes of payload.
    pub number: u32,
    /// Bytes of payload.
    pub payload: u32,
}

/// The number of a UDP datagram. `crates/slice/bpf/frames.h` computes the same number.
#[must_use]
pub(crate) fn digest(id: u16, payload: &[u8]) -> u32 {
    let mut first = [0; 8];
    let length = payload.len().min(8);
    first[..length].copy_from_slice(&payload[..length]);
    let mixed = u64::from_be_bytes(first) ^ u64::from(id) << 48;
    (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

impl Identity {
    /// The identity of a frame; `None` without a TCP or UDP payload, in fragments, and if headers are truncated.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Identity> {
        let headers = Headers::of(frame)?;
        let ip = headers.ip?;
        let transport = ip.transport?;
        let (source_port, destination_port) = headers.ports(frame)?;
        let payload = headers.payload(frame)?;
        let number = match ip.protocol {
            TCP => u32::from_be_bytes(frame.get(transport + 4..transport + 8)?.try_into().ok()?),
            UDP => {
                let id = if ip.version == 4 { frame.get(ip.start + 4..ip.start + 6)? } else { &[0, 0] };
                digest(u16::from_be_bytes([id[0], id[1]]), &frame[payload.clone()])
            }
            _ => return None,
        };
        let length = u32::try_from(ip.end.checked_sub(payload.start)?).ok()?;
        Some(Identity {
            source: ip.source(frame)?,
            destination: ip.destination(frame)?,
            source_port,
            destination_port,
            protocol: ip.protocol,
            number,
            payload: length,
        })
        .filter(|identity| identity.payload > 0 && !ip.fragment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(id: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[23] = UDP;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..38].copy_from_slice(&[0, 5, 0, 7]);
        frame.extend_from_slice(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    #[test]
    fn identity_distinguishes_datagrams_by_id_and_payload() {
        let one = Identity::of(&udp(1, b"abc")).expect("UDP with a payload");
        assert_eq!((one.source_port, one.destination_port, one.payload, one.protocol), (5, 7, 3, 17));
        assert_eq!(one.source, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(Identity::of(&udp(1, b"abc")), Some(one));
        assert_ne!(Identity::of(&udp(2, b"abc")), Some(one));
        assert_ne!(Identity::of(&udp(1, b"abd")), Some(one));
        assert_eq!(Identity::of(&udp(1, b"")), None, "padding is not payload");
        assert_eq!(Identity::of(&udp(1, b"abc")[..40]), None);
    }
}

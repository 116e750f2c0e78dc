use crate::checksum::internet_checksum;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use units::{FrameLen, ParseError};

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl FromStr for MacAddr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError::new(format!("'{text}' is no MAC address"), "write six hex bytes, 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(MacAddr(bytes)) }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

/// A UDP datagram in IPv4 in Ethernet, whose addresses, ports and length are given per frame.
#[derive(Clone, Debug)]
pub struct UdpTemplate {
    /// Source and destination hardware address.
    pub macs: (MacAddr, MacAddr),
    /// Time to live.
    pub ttl: u8,
}

impl UdpTemplate {
    /// Writes frame number `sequence` into `buffer` (cleared first), without FCS, with both checksums.
    ///
    /// The payload starts with `sequence` in 8 bytes, most significant first, then zeros, so that a
    /// reader can tell frames apart and sees a reordering.
    pub fn write(
        &self,
        buffer: &mut Vec<u8>,
        length: FrameLen,
        source: (Ipv4Addr, u16),
        destination: (Ipv4Addr, u16),
        sequence: u64,
    ) {
        let total = length.without_fcs() as usize;
        let ip_length = (total - ETHERNET) as u16;
        let udp_length = ip_length - IPV4 as u16;
        buffer.clear();
        buffer.extend_from_slice(&self.macs.1.0);
        buffer.extend_from_slice(&self.macs.0.0);
        buffer.extend_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        buffer.extend_from_slice(&ip_length.to_be_bytes());
        buffer.extend_from_slice(&(sequence as u16).to_be_bytes());
        buffer.extend_from_slice(&[0x00, 0x00, self.ttl, 17, 0, 0]);
        buffer.extend_from_slice(&source.0.octets());
        buffer.extend_from_slice(&destination.0.octets());
        let sum = internet_checksum(&[&buffer[ETHERNET..ETHERNET + IPV4]]);
        buffer[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());

        buffer.extend_from_slice(&source.1.to_be_bytes());
        buffer.extend_from_slice(&destination.1.to_be_bytes());
        buffer.extend_from_slice(&udp_length.to_be_bytes());
        buffer.extend_from_slice(&[0, 0]);
        buffer.extend_from_slice(&sequence.to_be_bytes());
        // All zeros from here on, which add nothing to the checksum.
        let written = buffer.len();
        buffer.resize(total, 0);
        let udp_at = ETHERNET + IPV4;
        let pseudo = [0, 17, udp_length.to_be_bytes()[0], udp_length.to_be_bytes()[1]];
        let sum = internet_checksum(&[&buffer[udp_at - 8..written], &pseudo]);
        // RFC 768: a computed zero is sent as all ones, since zero means "no checksum".
        let sum = if sum == 0 { 0xffff } else { sum };
        buffer[udp_at + 6..udp_at + UDP].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_valid_checksums_at_every_length() {
        let template = UdpTemplate { macs: (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])), ttl: 64 };
        let (source, destination) = ((Ipv4Addr::new(10, 0, 0, 1), 1000), (Ipv4Addr::new(10, 0, 0, 2), 2000));
        let mut frame = Vec::new();
        for bytes in 64..=1518 {
            template.write(&mut frame, FrameLen::new(bytes), source, destination, u64::from(bytes) * 77_777);
            assert_eq!(frame.len() as u32, bytes - 4);
            assert_eq!(internet_checksum(&[&frame[14..34]]), 0, "IP checksum of {bytes} B");
            let length = (frame.len() - 34) as u16;
            let pseudo = [&frame[26..34], &[0, 17], &length.to_be_bytes()].concat();
            assert_eq!(internet_checksum(&[&pseudo, &frame[34..]]), 0, "UDP checksum of {bytes} B");
        }
    }

    #[test]
    fn addresses_read_and_print() {
        assert_eq!(
            "02:00:5e:00:00:0a".parse::<MacAddr>().map(|mac| mac.to_string()).as_deref(),
            Ok("02:00:5e:00:00:0a")
        );
        for text in ["", "02:00:5e:00:00", "02:00:5e:00:00:0a:0b", "2:0:5e:0:0:a", "zz:00:5e:00:00:0a"] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}

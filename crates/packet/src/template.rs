use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use units::ParseError;

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

/// Bytes that a frame of the template starts with; all that follow are zero.
const HEAD: usize = ETHERNET + IPV4 + UDP + 8;

impl UdpTemplate {
    /// Writes frame number `sequence` into `frame`, whose length is that of the frame without FCS,
    /// with both checksums.
    ///
    /// The payload starts with `sequence` in 8 bytes, most significant first, then zeros, so that a
    /// reader can tell frames apart and sees a reordering.
    ///
    /// # Panics
    /// If the frame has no room for headers and sequence number (50 B).
    pub fn write(&self, frame: &mut [u8], source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), sequence: u64) {
        let ip_length = (frame.len() - ETHERNET) as u16;
        let udp_length = ip_length - IPV4 as u16;
        let (from, to) = (u32::from(source.0), u32::from(destination.0));
        let addresses = u64::from(from >> 16) + u64::from(from & 0xffff) + u64::from(to >> 16) + u64::from(to & 0xffff);
        // The checksums are sums of 16-bit words, so they follow from the fields (RFC 1071).
        let ip_sum = 0x4500 + u64::from(ip_length) + (sequence & 0xffff) + (u64::from(self.ttl) << 8) + 17 + addresses;
        let words = (sequence >> 48) + (sequence >> 32 & 0xffff) + (sequence >> 16 & 0xffff) + (sequence & 0xffff);
        let ports = u64::from(source.1) + u64::from(destination.1);
        let udp_sum = addresses + 17 + 2 * u64::from(udp_length) + ports + words;
        // RFC 768: a computed zero is sent as all ones, since zero means "no checksum".
        let udp_checksum = match fold(udp_sum) {
            0 => 0xffff,
            sum => sum,
        };

        let mut head = [0; HEAD];
        head[..6].copy_from_slice(&self.macs.1.0);
        head[6..12].copy_from_slice(&self.macs.0.0);
        head[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        head[16..18].copy_from_slice(&ip_length.to_be_bytes());
        head[18..20].copy_from_slice(&(sequence as u16).to_be_bytes());
        head[22..24].copy_from_slice(&[self.ttl, 17]);
        head[24..26].copy_from_slice(&fold(ip_sum).to_be_bytes());
        head[26..30].copy_from_slice(&from.to_be_bytes());
        head[30..34].copy_from_slice(&to.to_be_bytes());
        head[34..36].copy_from_slice(&source.1.to_be_bytes());
        head[36..38].copy_from_slice(&destination.1.to_be_bytes());
        head[38..40].copy_from_slice(&udp_length.to_be_bytes());
        head[40..42].copy_from_slice(&udp_checksum.to_be_bytes());
        head[42..].copy_from_slice(&sequence.to_be_bytes());
        let (start, rest) = frame.split_at_mut(HEAD);
        start.copy_from_slice(&head);
        rest.fill(0);
    }
}

/// The checksum of a sum of 16-bit words: its ones' complement in ones' complement.
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::internet_checksum;

    #[test]
    fn writes_valid_checksums_at_every_length() {
        let template = UdpTemplate { macs: (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])), ttl: 64 };
        let (source, destination) = ((Ipv4Addr::new(10, 0, 0, 1), 1000), (Ipv4Addr::new(10, 0, 0, 2), 2000));
        for bytes in 64..=9216_u64 {
            let mut frame = vec![0xff; bytes as usize - 4];
            template.write(&mut frame, source, destination, bytes * 777_777_777_777_777);
            assert_eq!(frame[42..50], (bytes * 777_777_777_777_777).to_be_bytes());
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

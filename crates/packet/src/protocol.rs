use crate::headers::{TCP, UDP};
use crate::key::{ICMP, ICMPV6};

/// The protocol of a generated frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP (RFC 768).
    Udp,
    /// TCP (RFC 9293): segments as described, without connections.
    Tcp,
    /// ICMP (RFC 792) or ICMPv6 (RFC 4443): an echo request by default.
    Icmp,
    /// IP with the payload of an unknown protocol.
    Ip,
    /// ARP (RFC 826): a request by default.
    Arp,
    /// Ethernet alone.
    Ethernet,
    /// No protocol: the layers around it are the whole frame.
    Nothing,
}

impl Protocol {
    /// Every protocol with a name.
    pub const ALL: &'static [Protocol] =
        &[Protocol::Udp, Protocol::Tcp, Protocol::Icmp, Protocol::Ip, Protocol::Arp, Protocol::Ethernet];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
            Protocol::Icmp => "icmp",
            Protocol::Ip => "ip",
            Protocol::Arp => "arp",
            Protocol::Ethernet => "eth",
            Protocol::Nothing => "",
        }
    }

    /// The headers alone, with zero addresses and ports, after `tags` VLAN tags (at most two).
    #[must_use]
    pub fn headers(self, v6: bool, tags: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if self == Protocol::Arp {
            frame[..6].fill(0xff);
        }
        for tag in 0..tags {
            let service = tags == 2 && tag == 0;
            frame.extend(if service { [0x88, 0xa8] } else { [0x81, 0x00] });
            frame.extend([0, 0]);
        }
        let (number, transport): (u8, &[u8]) = match (self, v6) {
            (Protocol::Udp, _) => (UDP, &[0, 0, 0, 0, 0, 8, 0, 0]),
            (Protocol::Tcp, _) => (TCP, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0x20, 0x00, 0, 0, 0, 0]),
            (Protocol::Icmp, false) => (ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]),
            (Protocol::Icmp, true) => (ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]),
            // Reserved for experiments (RFC 3692).
            (Protocol::Ip, _) => (253, &[]),
            (Protocol::Arp, _) => {
                frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
                frame.extend([0; 14]);
                return frame;
            }
            // IEEE 802 local experimental EtherType 1.
            (Protocol::Ethernet | Protocol::Nothing, _) => {
                frame.extend([0x88, 0xb5]);
                return frame;
            }
        };
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, transport.len() as u8, number, 64]);
            frame.extend([0; 32]);
        } else {
            // With Don't Fragment set, a packet needs no identification (RFC 6864).
            frame.extend([0x08, 0x00, 0x45, 0, 0, 20 + transport.len() as u8, 0, 0, 0x40, 0, 64, number, 0, 0]);
            frame.extend([0; 8]);
        }
        frame.extend(transport);
        frame
    }
}

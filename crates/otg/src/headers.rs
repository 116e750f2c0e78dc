//! The headers of flows: their fields in the model, and the position of each field. The numbers that announce a header
//! come from the layers of `packet`.

use crate::pattern::Kind;
use packet::layers::{Bind, LayerKind};

/// The value of a field that the configuration omits or sets to `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// This value; `auto` is not allowed.
    Plain(u128),
    /// This value; `auto` is allowed.
    Auto(u128),
    /// The number that announces the next header; this value if there is none.
    Next(u128),
    /// The destination port of the following tunnel, or 0.
    Port,
    /// Number of bytes from the start of the header to the end of the packet, minus this number.
    Length(usize),
    /// The hardware address of the next hop of the sending device; 0 without a device.
    NextHop,
    /// 1 if no further label follows.
    Bottom,
    /// 255 (a user packet) if a packet follows, or 0.
    Carries,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// First bit in the header.
    pub(crate) at: u16,
    pub(crate) kind: Kind,
    pub(crate) role: Role,
    /// Whether the model allows `auto` for the field.
    pub(crate) automatic: bool,
}

const fn plain(name: &'static str, at: u16, bits: u16, default: u128) -> Row {
    Row { name, at, kind: Kind::Bits(bits), role: Role::Plain(default), automatic: false }
}

const fn of_kind(name: &'static str, at: u16, kind: Kind, default: u128) -> Row {
    Row { name, at, kind, role: Role::Plain(default), automatic: false }
}

const fn special(name: &'static str, at: u16, bits: u16, role: Role, automatic: bool) -> Row {
    Row { name, at, kind: Kind::Bits(bits), role, automatic }
}

/// The bytes that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The header.
    Header,
    /// The header and everything after it.
    Content,
    /// Like `Content`, plus the pseudo header of the IP packet around it, with this protocol number.
    Pseudo(u8),
}

/// A checksum: its name in the model, its offset, and the bytes that it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub(crate) name: &'static str,
    pub(crate) at: usize,
    pub(crate) over: Over,
}

/// A header.
#[derive(Debug)]
pub(crate) struct Header {
    /// Its name in the model.
    pub(crate) name: &'static str,
    /// Its name in `packet`, if there is one.
    pub(crate) layer: Option<LayerKind>,
    /// Length in bytes.
    pub(crate) length: usize,
    pub(crate) rows: &'static [Row],
    pub(crate) sum: Option<Sum>,
}

impl Header {
    /// The number by which an EtherType field announces it.
    pub(crate) fn ether_type(&self) -> Option<u128> {
        if self.name == "ppp" {
            return Some(0x880b);
        }
        self.bind(|bind| if let Bind::EtherType(number) = bind { Some((*number).into()) } else { None })
    }

    /// The number by which an IP header announces it.
    pub(crate) fn protocol(&self) -> Option<u128> {
        match self.name {
            "igmpv1" => Some(2),
            "ipv4" => Some(4),
            "ipv6" => Some(41),
            _ => self.bind(|bind| if let Bind::Protocol(number) = bind { Some((*number).into()) } else { None }),
        }
    }

    /// The UDP destination port by which it is announced.
    pub(crate) fn port(&self) -> Option<u128> {
        if self.name == "gtpv2" {
            return Some(2123);
        }
        self.bind(|bind| if let Bind::Port(number) = bind { Some((*number).into()) } else { None })
    }

    fn bind(&self, number: impl Fn(&Bind) -> Option<u128>) -> Option<u128> {
        self.layer?.description().binds.iter().find_map(number)
    }
}

/// Identifiers of VLAN tags: IEEE 802.1Q, 802.1ad, and older ones.
pub(crate) const TAGS: [u128; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];

const NONE: Option<Sum> = None;

/// The first header by default.
pub(crate) static ETHERNET: Header = Header {
    name: "ethernet",
    layer: Some(LayerKind::Ethernet),
    length: 14,
    rows: &[
        Row { name: "dst", at: 0, kind: Kind::Mac, role: Role::NextHop, automatic: true },
        of_kind("src", 48, Kind::Mac, 0),
        special("ether_type", 96, 16, Role::Next(0xffff), true),
    ],
    sum: NONE,
};

/// Every header except `custom`, which consists of bytes.
pub(crate) static ALL: [&Header; 16] = [
    &ETHERNET, &VLAN, &MPLS, &PPP, &IPV4, &IPV6, &TCP, &UDP, &ICMP, &ICMPV6, &ARP, &IGMPV1, &VXLAN, &GRE, &GTPV1,
    &GTPV2,
];

/// Headers of flow control, which are complete frames.
pub(crate) static PAUSES: [&Header; 2] = [&PFC_PAUSE, &ETHERNET_PAUSE];

/// Every choice for a header.
pub(crate) const NAMES: [&str; 19] = [
    "ethernet", "vlan", "mpls", "ppp", "ipv4", "ipv6", "tcp", "udp", "icmp", "icmpv6", "arp", "igmpv1", "vxlan", "gre",
    "gtpv1", "gtpv2", "pfcpause", "ethernetpause", "custom",
];

static VLAN: Header = Header {
    name: "vlan",
    layer: Some(LayerKind::Vlan),
    length: 4,
    rows: &[
        plain("priority", 0, 3, 0),
        plain("cfi", 3, 1, 0),
        plain("id", 4, 12, 0),
        special("tpid", 16, 16, Role::Next(0xffff), false),
    ],
    sum: NONE,
};

static MPLS: Header = Header {
    name: "mpls",
    layer: Some(LayerKind::Mpls),
    length: 4,
    rows: &[
        special("label", 0, 20, Role::Auto(16), true),
        plain("traffic_class", 20, 3, 0),
        special("bottom_of_stack", 23, 1, Role::Bottom, true),
        plain("time_to_live", 24, 8, 64),
    ],
    sum: NONE,
};

static PPP: Header = Header {
    name: "ppp",
    layer: None,
    length: 4,
    rows: &[
        plain("address", 0, 8, 0xff),
        plain("control", 8, 8, 3),
        special("protocol_type", 16, 16, Role::Next(0x21), true),
    ],
    sum: NONE,
};

static IPV4: Header = Header {
    name: "ipv4",
    layer: Some(LayerKind::Ipv4),
    length: 20,
    rows: &[
        plain("version", 0, 4, 4),
        special("header_length", 4, 4, Role::Auto(5), true),
        special("total_length", 16, 16, Role::Length(0), true),
        plain("identification", 32, 16, 0),
        plain("reserved", 48, 1, 0),
        plain("dont_fragment", 49, 1, 0),
        plain("more_fragments", 50, 1, 0),
        plain("fragment_offset", 51, 13, 0),
        plain("time_to_live", 64, 8, 64),
        special("protocol", 72, 8, Role::Next(61), true),
        of_kind("src", 96, Kind::Ipv4, 0),
        of_kind("dst", 128, Kind::Ipv4, 0),
    ],
    sum: Some(Sum { name: "header_checksum", at: 10, over: Over::Header }),
};

/// The type of service of IPv4 as a whole byte.
pub(crate) static RAW: Row = plain("raw", 8, 8, 0);

/// The same byte as in RFC 2474 and RFC 3168.
pub(crate) static DSCP: [Row; 2] = [plain("phb", 8, 6, 0), plain("ecn", 14, 2, 0)];

/// The same byte as in RFC 791 and RFC 1349.
pub(crate) static TOS: [Row; 6] = [
    plain("precedence", 8, 3, 0),
    plain("delay", 11, 1, 0),
    plain("throughput", 12, 1, 0),
    plain("reliability", 13, 1, 0),
    plain("monetary", 14, 1, 0),
    plain("unused", 15, 1, 0),
];

static IPV6: Header = Header {
    name: "ipv6",
    layer: Some(LayerKind::Ipv6),
    length: 40,
    rows: &[
        plain("version", 0, 4, 6),
        plain("traffic_class", 4, 8, 0),
        plain("flow_label", 12, 20, 0),
        special("payload_length", 32, 16, Role::Length(40), true),
        special("next_header", 48, 8, Role::Next(59), true),
        plain("hop_limit", 56, 8, 64),
        of_kind("src", 64, Kind::Ipv6, 0),
        of_kind("dst", 192, Kind::Ipv6, 0),
    ],
    sum: NONE,
};

static TCP: Header = Header {
    name: "tcp",
    layer: Some(LayerKind::Tcp),
    length: 20,
    rows: &[
        plain("src_port", 0, 16, 0),
        plain("dst_port", 16, 16, 0),
        plain("seq_num", 32, 32, 0),
        plain("ack_num", 64, 32, 0),
        // The model's default is 0, but a header cannot have 0 words.
        plain("data_offset", 96, 4, 5),
        plain("ecn_ns", 103, 1, 0),
        plain("ecn_cwr", 104, 1, 0),
        plain("ecn_echo", 105, 1, 0),
        plain("ctl_urg", 106, 1, 0),
        plain("ctl_ack", 107, 1, 0),
        plain("ctl_psh", 108, 1, 0),
        plain("ctl_rst", 109, 1, 0),
        plain("ctl_syn", 110, 1, 0),
        plain("ctl_fin", 111, 1, 0),
        plain("window", 112, 16, 0),
    ],
    sum: Some(Sum { name: "checksum", at: 16, over: Over::Pseudo(6) }),
};

static UDP: Header = Header {
    name: "udp",
    layer: Some(LayerKind::Udp),
    length: 8,
    rows: &[
        plain("src_port", 0, 16, 0),
        special("dst_port", 16, 16, Role::Port, false),
        special("length", 32, 16, Role::Length(0), false),
    ],
    sum: Some(Sum { name: "checksum", at: 6, over: Over::Pseudo(17) }),
};

static ICMP: Header = Header {
    name: "icmp",
    layer: Some(LayerKind::Icmp),
    length: 8,
    rows: &[
        plain("type", 0, 8, 8),
        plain("code", 8, 8, 0),
        plain("identifier", 32, 16, 0),
        plain("sequence_number", 48, 16, 0),
    ],
    sum: Some(Sum { name: "checksum", at: 2, over: Over::Content }),
};

static ICMPV6: Header = Header {
    name: "icmpv6",
    layer: Some(LayerKind::Icmp6),
    length: 8,
    rows: &[
        plain("type", 0, 8, 128),
        plain("code", 8, 8, 0),
        plain("identifier", 32, 16, 0),
        plain("sequence_number", 48, 16, 0),
    ],
    sum: Some(Sum { name: "checksum", at: 2, over: Over::Pseudo(58) }),
};

static ARP: Header = Header {
    name: "arp",
    layer: Some(LayerKind::Arp),
    length: 28,
    rows: &[
        plain("hardware_type", 0, 16, 1),
        plain("protocol_type", 16, 16, 0x0800),
        plain("hardware_length", 32, 8, 6),
        plain("protocol_length", 40, 8, 4),
        plain("operation", 48, 16, 1),
        of_kind("sender_hardware_addr", 64, Kind::Mac, 0),
        of_kind("sender_protocol_addr", 112, Kind::Ipv4, 0),
        of_kind("target_hardware_addr", 144, Kind::Mac, 0),
        of_kind("target_protocol_addr", 192, Kind::Ipv4, 0),
    ],
    sum: NONE,
};

static IGMPV1: Header = Header {
    name: "igmpv1",
    layer: None,
    length: 8,
    rows: &[
        plain("version", 0, 4, 1),
        plain("type", 4, 4, 1),
        plain("unused", 8, 8, 0),
        of_kind("group_address", 32, Kind::Ipv4, 0),
    ],
    sum: Some(Sum { name: "checksum", at: 2, over: Over::Content }),
};

static VXLAN: Header = Header {
    name: "vxlan",
    layer: Some(LayerKind::Vxlan),
    length: 8,
    rows: &[
        plain("flags", 0, 8, 8),
        plain("reserved0", 8, 24, 0),
        special("vni", 32, 24, Role::Auto(0), true),
        plain("reserved1", 56, 8, 0),
    ],
    sum: NONE,
};

/// A GRE header. Its checksum and `reserved1` are present only if `checksum_present` is 1.
pub(crate) static GRE: Header = Header {
    name: "gre",
    layer: Some(LayerKind::Gre),
    length: 8,
    rows: &[
        plain("checksum_present", 0, 1, 0),
        plain("reserved0", 1, 12, 0),
        plain("version", 13, 3, 0),
        special("protocol", 16, 16, Role::Next(0x0800), true),
        plain("reserved1", 48, 16, 0),
    ],
    sum: Some(Sum { name: "checksum", at: 4, over: Over::Content }),
};

/// A GTPv1 header. Its last three fields are present if one of the flags is 1.
pub(crate) static GTPV1: Header = Header {
    name: "gtpv1",
    layer: Some(LayerKind::Gtpu),
    length: 12,
    rows: &[
        plain("version", 0, 3, 1),
        plain("protocol_type", 3, 1, 1),
        plain("reserved", 4, 1, 0),
        plain("e_flag", 5, 1, 0),
        plain("s_flag", 6, 1, 0),
        plain("pn_flag", 7, 1, 0),
        special("message_type", 8, 8, Role::Carries, false),
        special("message_length", 16, 16, Role::Length(8), false),
        plain("teid", 32, 32, 0),
        plain("squence_number", 64, 16, 0),
        plain("n_pdu_number", 80, 8, 0),
        plain("next_extension_header_type", 88, 8, 0),
    ],
    sum: NONE,
};

static GTPV2: Header = Header {
    name: "gtpv2",
    layer: None,
    length: 12,
    rows: &[
        plain("version", 0, 3, 2),
        plain("piggybacking_flag", 3, 1, 0),
        // The model's default is 0, but a header without the identifier would end before `spare2`.
        plain("teid_flag", 4, 1, 1),
        plain("spare1", 5, 3, 0),
        plain("message_type", 8, 8, 0),
        special("message_length", 16, 16, Role::Length(4), false),
        plain("teid", 32, 32, 0),
        plain("sequence_number", 64, 24, 0),
        plain("spare2", 88, 8, 0),
    ],
    sum: NONE,
};

/// The group address of flow control, which no bridge forwards.
const PAUSE_GROUP: u128 = 0x0180_c200_0001;

static PFC_PAUSE: Header = Header {
    name: "pfcpause",
    layer: None,
    length: 34,
    rows: &[
        of_kind("dst", 0, Kind::Mac, PAUSE_GROUP),
        of_kind("src", 48, Kind::Mac, 0),
        plain("ether_type", 96, 16, 0x8808),
        plain("control_op_code", 112, 16, 0x0101),
        plain("class_enable_vector", 128, 16, 0),
        plain("pause_class_0", 144, 16, 0),
        plain("pause_class_1", 160, 16, 0),
        plain("pause_class_2", 176, 16, 0),
        plain("pause_class_3", 192, 16, 0),
        plain("pause_class_4", 208, 16, 0),
        plain("pause_class_5", 224, 16, 0),
        plain("pause_class_6", 240, 16, 0),
        plain("pause_class_7", 256, 16, 0),
    ],
    sum: NONE,
};

static ETHERNET_PAUSE: Header = Header {
    name: "ethernetpause",
    layer: None,
    length: 18,
    rows: &[
        of_kind("dst", 0, Kind::Mac, PAUSE_GROUP),
        of_kind("src", 48, Kind::Mac, 0),
        plain("ether_type", 96, 16, 0x8808),
        plain("control_op_code", 112, 16, 1),
        plain("time", 128, 16, 0),
    ],
    sum: NONE,
};

/// The header with this name.
pub(crate) fn named(name: &str) -> Option<&'static Header> {
    ALL.into_iter().chain(PAUSES).find(|header| header.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_header_are_in_it_and_apart() {
        for header in ALL.into_iter().chain(PAUSES) {
            let mut taken = vec![false; header.length * 8];
            for row in header.rows {
                for bit in row.at..row.at + row.kind.width() {
                    let bit = &mut taken[usize::from(bit)];
                    assert!(!*bit, "{} of {} overlaps another", row.name, header.name);
                    *bit = true;
                }
            }
            assert!(NAMES.contains(&header.name) && named(header.name).is_some());
        }
        assert_eq!(NAMES.len(), ALL.len() + PAUSES.len() + 1, "custom is the last one");
    }
}

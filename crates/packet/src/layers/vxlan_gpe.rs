use super::kind::{Bind, Description, Header, Next};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "vxlan-gpe",
    aliases: &[],
    about: "VXLAN with a next protocol",
    source: "draft-ietf-nvo3-vxlan-gpe-13",
    fields: &[
        Field::number("flags", 0, 8, "flags").role(Role::Shape).named_with_layer(),
        Field::number("next", 24, 8, "1 IPv4, 2 IPv6, 3 Ethernet, 5 MPLS").role(Role::Shape).named_with_layer(),
        Field::number("vni", 32, 24, "network identifier"),
    ],
    header: &[0x0c, 0, 0, 3, 0, 0, 0, 0],
    binds: &[Bind::Port(4790)],
    length: None,
    checksum: None,
    announce: |header, next| {
        header[3] = match next {
            LayerKind::Ipv4 => 1,
            LayerKind::Ipv6 => 2,
            LayerKind::Ethernet => 3,
            LayerKind::Mpls => 5,
            _ => return false,
        };
        true
    },
    read: |bytes| {
        let fixed = bytes.get(..8)?;
        if fixed[0] & 0x0c != 0x0c {
            return None;
        }
        let next = match fixed[3] {
            1 => Next::Layer(LayerKind::Ipv4),
            2 => Next::Layer(LayerKind::Ipv6),
            3 => Next::Layer(LayerKind::Ethernet),
            5 => Next::Layer(LayerKind::Mpls),
            _ => Next::Payload,
        };
        Some(Header::new(8, next))
    },
};

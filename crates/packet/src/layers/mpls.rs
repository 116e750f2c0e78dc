use super::kind::{Bind, Description, Header, Next};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "mpls",
    aliases: &[],
    about: "one label of an MPLS stack",
    source: "RFC 3032",
    fields: &[
        Field::number("label", 0, 20, "label"),
        Field::number("tc", 20, 3, "traffic class (EXP)"),
        Field::number("s", 23, 1, "bottom of the stack").role(Role::Shape),
        Field::number("ttl", 24, 8, "time to live").named_with_layer(),
    ],
    header: &[0, 1, 1, 64],
    // RFC 5332, RFC 4023, RFC 7510.
    binds: &[Bind::EtherType(0x8847), Bind::EtherType(0x8848), Bind::Protocol(137), Bind::Port(6635)],
    length: None,
    checksum: None,
    announce: |header, next| {
        header[2] = header[2] & !1 | u8::from(next != LayerKind::Mpls);
        matches!(
            next,
            LayerKind::Mpls | LayerKind::Ipv4 | LayerKind::Ipv6 | LayerKind::PseudoWire | LayerKind::Ethernet
        )
    },
    read: |bytes| {
        let bottom = bytes.get(..4)?[2] & 1 == 1;
        // No field announces what follows the last label: its first four bits decide (RFC 4928).
        let next = match bytes.get(4).map(|first| first >> 4) {
            _ if !bottom => LayerKind::Mpls,
            Some(4) => LayerKind::Ipv4,
            Some(6) => LayerKind::Ipv6,
            // A control word without a sequence number; anything else is an Ethernet address.
            Some(0) if bytes.get(4..8) == Some(&[0; 4]) => LayerKind::PseudoWire,
            _ => LayerKind::Ethernet,
        };
        Some(Header::new(4, Next::Layer(next)))
    },
};

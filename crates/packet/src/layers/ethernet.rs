use super::kind::{Bind, Description, Header, Next, be16, by_ether_type};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "eth",
    aliases: &["ethernet", "ether"],
    about: "Ethernet II and 802.3",
    source: "IEEE 802.3",
    fields: &[
        Field::mac("dmac", 0, "destination hardware address"),
        Field::mac("smac", 48, "source hardware address"),
        Field::number("ethertype", 96, 16, "EtherType, or a length below 0x600").role(Role::Shape),
    ],
    header: &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5],
    // Transparent Ethernet bridging in GRE and Geneve; Ethernet after an IPv6 header (RFC 8986, 10.5).
    binds: &[Bind::EtherType(0x6558), Bind::Protocol(143)],
    length: None,
    checksum: None,
    announce: |header, next| {
        if matches!(next, LayerKind::Pause | LayerKind::Pfc) {
            // The group address that no bridge forwards (IEEE 802.3, annex 31B.1).
            header[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x01]);
        }
        next == LayerKind::Llc || by_ether_type(header, 12, next)
    },
    read: |bytes| Some(Header::new(14, Next::EtherType(be16(bytes, 12)?))),
};

use super::kind::{Bind, Description, Header, Next, be16, by_ether_type};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "vlan",
    aliases: &["dot1q", "dot1ad", "qinq"],
    about: "VLAN tag: 802.1Q, and 802.1ad for the outer one of two",
    source: "IEEE 802.1Q",
    fields: &[
        Field::number("pcp", 0, 3, "priority"),
        Field::number("dei", 3, 1, "drop eligible"),
        Field::number("id", 4, 12, "identifier of the VLAN").named_with_layer(),
        Field::number("ethertype", 16, 16, "EtherType after the tag").role(Role::Shape).named_with_layer(),
    ],
    header: &[0, 0, 0x88, 0xb5],
    binds: &[Bind::EtherType(0x8100), Bind::EtherType(0x88a8), Bind::EtherType(0x9100)],
    length: None,
    checksum: None,
    announce: |header, next| by_ether_type(header, 2, next),
    read: |bytes| Some(Header::new(4, Next::EtherType(be16(bytes, 2)?))),
};

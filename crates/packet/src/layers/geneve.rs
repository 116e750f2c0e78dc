use super::kind::{Bind, Description, Header, Next, be16, by_ether_type};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "geneve",
    aliases: &[],
    about: "Geneve, with options",
    source: "RFC 8926",
    fields: &[
        Field::number("options", 2, 6, "length of the options in words").role(Role::Shape).named_with_layer(),
        Field::number("control", 8, 1, "control packet").named_with_layer(),
        Field::number("critical", 9, 1, "critical options are present"),
        Field::number("ethertype", 16, 16, "EtherType of what it carries").role(Role::Shape).named_with_layer(),
        Field::number("vni", 32, 24, "network identifier"),
    ],
    header: &[0, 0, 0x65, 0x58, 0, 0, 0, 0],
    binds: &[Bind::Port(6081)],
    length: None,
    checksum: None,
    announce: |header, next| by_ether_type(header, 2, next),
    read: |bytes| {
        let length = 8 + usize::from(bytes.get(..8)?[0] & 0x3f) * 4;
        let next = match be16(bytes, 2)? {
            other if other < 0x0600 => Next::Payload,
            other => Next::EtherType(other),
        };
        (bytes[0] >> 6 == 0 && bytes.len() >= length).then(|| Header::new(length, next))
    },
};

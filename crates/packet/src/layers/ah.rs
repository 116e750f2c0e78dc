use super::kind::{Bind, Description, Header, by_protocol, following};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "ah",
    aliases: &[],
    about: "IPsec authentication header",
    source: "RFC 4302",
    fields: &[
        Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer(),
        Field::number("spi", 32, 32, "security parameters index"),
        Field::number("seq", 64, 32, "sequence number").named_with_layer(),
    ],
    header: &[59, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Protocol(51)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: |bytes| {
        let length = (usize::from(bytes.get(..12)?[1]) + 2) * 4;
        (length >= 12 && bytes.len() >= length).then(|| Header::new(length, following(bytes[0])))
    },
};

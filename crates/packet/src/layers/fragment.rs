use super::kind::{Bind, Description, Header, Next, be16, by_protocol, following};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "fragment",
    aliases: &["frag"],
    about: "IPv6 fragment header",
    source: "RFC 8200, 4.5",
    fields: &[
        Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer(),
        Field::number("offset", 16, 13, "fragment offset in 8 bytes").role(Role::Shape).named_with_layer(),
        Field::number("more", 31, 1, "more fragments").role(Role::Shape),
        Field::number("id", 32, 32, "identification").named_with_layer(),
    ],
    header: &[59, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Protocol(44)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: |bytes| {
        let fixed = bytes.get(..8)?;
        let fragment = be16(fixed, 2)?;
        let next = if fragment & 0xfff8 == 0 { following(fixed[0]) } else { Next::Fragment };
        Some(Header { fragment: fragment & 0xfff9 != 0, ..Header::new(8, next) })
    },
};

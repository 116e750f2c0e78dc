use super::kind::{Bind, Description, by_protocol, extension};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "hop-by-hop",
    aliases: &["hbh"],
    about: "IPv6 hop-by-hop options",
    source: "RFC 8200, 4.3",
    fields: &[Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer()],
    header: &[59, 0, 1, 4, 0, 0, 0, 0],
    binds: &[Bind::Protocol(0)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: extension,
};

use super::kind::{Bind, Description, by_protocol, extension};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "dest-options",
    aliases: &["dstopts"],
    about: "IPv6 destination options, with the home address of a mobile node",
    source: "RFC 8200, 4.6; RFC 6275, 6.3",
    fields: &[
        Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer(),
        Field::address("home", 0, 128, "home address of a mobile node")
            .found(|header| Some(8 * super::pseudo::home_address(header)? as u16)),
    ],
    header: &[59, 0, 1, 4, 0, 0, 0, 0],
    binds: &[Bind::Protocol(60)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: extension,
};

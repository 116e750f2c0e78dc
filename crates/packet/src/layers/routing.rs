use super::kind::{Bind, Description, by_protocol, extension};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "routing",
    aliases: &["rh"],
    about: "IPv6 routing header of any type but 4",
    source: "RFC 8200, 4.4",
    fields: &[
        Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer(),
        Field::number("type", 16, 8, "routing type").role(Role::Shape).named_with_layer(),
        Field::number("left", 24, 8, "segments left"),
        Field::address("last", 0, 128, "the last address of the route")
            .found(|header| Some(8 * header.len().checked_sub(16).filter(|at| *at >= 8)? as u16)),
    ],
    header: &{
        let mut header = [0; 24];
        (header[0], header[1]) = (59, 2);
        header
    },
    binds: &[Bind::Protocol(43)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: |bytes| if bytes.get(2) == Some(&4) { None } else { extension(bytes) },
};

use super::kind::{Bind, Description, by_protocol, extension};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "srv6",
    aliases: &["srh"],
    about: "IPv6 segment routing header",
    source: "RFC 8754",
    fields: &[
        Field::number("next", 0, 8, "next header").role(Role::Shape).named_with_layer(),
        Field::number("left", 24, 8, "segments left"),
        Field::number("last-entry", 32, 8, "index of the first segment of the way"),
        Field::number("flags", 40, 8, "flags").named_with_layer(),
        Field::number("tag", 48, 16, "tag").named_with_layer(),
        Field::address("segment", 64, 128, "the last segment of the way: segment list[0]"),
    ],
    header: &{
        let mut header = [0; 24];
        (header[0], header[1], header[2]) = (59, 2, 4);
        header
    },
    binds: &[Bind::Protocol(43)],
    length: None,
    checksum: None,
    announce: |header, next| by_protocol(header, 0, next),
    read: |bytes| if bytes.get(2) == Some(&4) && *bytes.get(1)? >= 2 { extension(bytes) } else { None },
};
